#!/usr/bin/env bash
# Builds sdist and wheels, installs each into an empty environment and uses it from another folder.
#
#     scripts/check_package.sh           the cheap half, for every change
#     scripts/check_package.sh --full    also every Python at hand, editable installs, and two Rust builds byte by byte
#
# Works on a copy of the committed files, so that nothing left in the tree can help or harm. Needs cargo.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
full=${1:-}
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset DELTAFOLD_BUILD DELTAFOLD_BACKEND PYTHONPATH
export PIP_DISABLE_PIP_VERSION_CHECK=1 SOURCE_DATE_EPOCH=1767225600

python=${PYTHON:-python3}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
without_cargo=$work/bin  # a PATH that has all but Rust
mkdir "$without_cargo"
for tool in sh bash cc gcc ld env uname; do ln -s "$(command -v $tool)" "$without_cargo/" 2>/dev/null || true; done

fail() { printf 'check_package: %s\n' "$*" >&2; exit 1; }

environment() { # NAME [PYTHON]: an empty one
    "${2:-$python}" -m venv "$work/$1"
    "$work/$1/bin/python" -m pip install --quiet --upgrade 'pip>=25.1'
}

uses() { # ENVIRONMENT BACKEND: the command line and the import, from a folder that has no sources
    local bin=$work/$1/bin
    (
        cd "$work"
        "$bin/deltafold" merge "$root"/examples/{openai-text,parallel-tools,reasoning-comments}.sse > "$1.jsonl" || fail "$1: merge ended with $?"
        [ "$(wc -l < "$1.jsonl")" = 3 ] || fail "$1: merge gave other than three lines"
        "$bin/deltafold" --version | grep -q "^deltafold $version ($2 backend" || fail "$1: --version says $("$bin/deltafold" --version)"
        "$bin/python" -c "import deltafold, sys; sys.exit(deltafold.BACKEND != '$2' or deltafold.__version__ != '$version')" || fail "$1: not $2 $version"
        "$bin/python" -m pip --quiet check
    )
}

binaries() { "$python" -m zipfile -l "$1" | grep -cE '\.(so|pyd|dylib) ' || true; }

git archive --prefix=tree/ HEAD | tar -x -C "$work"
cd "$work/tree"
touch python/deltafold/_rust.abi3.so  # as an editable install leaves one: no sdist and no pure wheel may hold it

environment build
"$work/build/bin/python" -m pip install --quiet build
"$work/build/bin/python" -m build --sdist --outdir "$work" . > "$work/sdist.log" 2>&1 || { cat "$work/sdist.log"; fail 'sdist'; }
sdist=$work/deltafold-$version.tar.gz
tar -tzf "$sdist" > "$work/sdist.files"
grep -E '\.(so|pyd|dylib)$' "$work/sdist.files" && fail 'the sdist holds a binary'
for needed in Cargo.lock rust/core/src/lib.rs _build/deltafold_build.py python/deltafold/py.typed LICENSE; do
    grep -q "/$needed\$" "$work/sdist.files" || fail "the sdist lacks $needed"
done

wheel() { # FOLDER OPTIONS...: a wheel from the sdist
    local out=$work/$1
    shift
    "$work/build/bin/python" -m pip wheel --quiet --no-deps --no-cache-dir --wheel-dir "$out" "$@" "$sdist"
    echo "$out"/*.whl
}

pure=$(wheel pure -C build=pure)
[ "$(basename "$pure")" = "deltafold-$version-py3-none-any.whl" ] || fail "the pure wheel is $pure"
[ "$(binaries "$pure")" = 0 ] || fail 'the pure wheel holds a binary'
cmp "$pure" "$(wheel pure-again -C build=pure)" || fail 'two pure builds differ'
(cd "$work/tree" && "$work/build/bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$work/pure-tree" -C build=pure .)
cmp "$pure" "$work"/pure-tree/*.whl || fail 'the pure wheel of the tree differs from that of the sdist'
cmp "$pure" "$(PATH=$without_cargo wheel pure-auto)" || fail 'without cargo: not the pure wheel'
environment pure-env
"$work/pure-env/bin/python" -m pip install --quiet --no-index "$pure"
uses pure-env pure
if DELTAFOLD_BACKEND=rust "$work/pure-env/bin/python" -c 'import deltafold' 2> /dev/null; then fail 'rust forced where it is not installed'; fi

rust=$(wheel rust)
case $(basename "$rust") in deltafold-"$version"-cp310-abi3-*.whl) ;; *) fail "the Rust wheel is $rust" ;; esac
[ "$(binaries "$rust")" = 1 ] || fail 'the Rust wheel holds other than one binary'
environment rust-env
"$work/rust-env/bin/python" -m pip install --quiet --no-index "$rust"
uses rust-env rust
cmp "$work/pure-env.jsonl" "$work/rust-env.jsonl" || fail 'the two wheels merge differently'

if [ "$full" = --full ]; then
    # in the same folder: the bill of materials in the wheel names it
    for again in 1 2; do
        rm -rf target
        "$work/build/bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$work/rust-$again" -C build=rust .
    done
    cmp "$work"/rust-{1,2}/*.whl || fail 'two Rust builds differ'
    for minor in 10 11 12 13 14; do
        other=$(ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.$minor.*/bin/python 2> /dev/null | tail -n 1) || true
        [ -n "$other" ] || other=$(command -v python3.$minor) || { echo "no Python 3.$minor here"; continue; }
        for kind in pure rust; do
            environment "$kind-3$minor" "$other"
            "$work/$kind-3$minor/bin/python" -m pip install --quiet --no-index "${!kind}"
            uses "$kind-3$minor" "$kind"
        done
    done
    environment editable
    "$work/editable/bin/python" -m pip install --quiet --editable . -C build=rust
    uses editable rust
    "$work/editable/bin/python" -m pip install --quiet --editable . -C build=pure
    uses editable pure
fi
echo "check_package: sdist, pure and Rust wheel are good"
