#!/usr/bin/env bash
# Builds what a release of this machine's kind ships, looks into it, and uses it on every Python at hand.
#
#     scripts/wheels.sh [FOLDER]     the sdist and three wheels, in dist/ by default
#
#     cp310-abi3-manylinux2014       the Rust implementation for CPython 3.10 and newer
#     cp314-cp314t-manylinux2014     the same for free-threaded CPython 3.14; used only where such an interpreter is
#     py3-none-any                   pure Python, for everything else
#
# Works on a copy of the committed files. zig links against the glibc of 2014; it and maturin come from the package index.
# Other systems and processors need machines of their own: .github/workflows/release.yml.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
mkdir -p "${1:-dist}"
out=$(cd "${1:-dist}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset DELTAFOLD_BUILD DELTAFOLD_BACKEND PYTHONPATH
export PIP_DISABLE_PIP_VERSION_CHECK=1 MATURIN_NO_INSTALL_RUST=1
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
machine=$(uname -m)
linux=manylinux_2_17_$machine.manylinux2014_$machine

fail() { printf 'wheels: %s\n' "$*" >&2; exit 1; }

environment() { # NAME [PYTHON]: an empty one
    "${2:-${PYTHON:-python3}}" -m venv "$work/$1"
    "$work/$1/bin/python" -m pip install --quiet --upgrade 'pip>=25.1'
}

quietly() { # COMMAND...: its output only if it fails
    "$@" > "$work/log" 2>&1 || { cat "$work/log" >&2; fail "$*"; }
}

git archive --prefix=tree/ HEAD | tar -x -C "$work"
cd "$work/tree"
environment build
"$work/build/bin/python" -m pip install --quiet 'build>=1.2' 'maturin>=1.16,<2' ziglang
PATH=$work/build/bin:$PATH

zig=(maturin build --release --locked --zig --compatibility manylinux2014 --target "$machine-unknown-linux-gnu" --out "$work/wheels")
quietly python -m build --sdist --outdir "$work/wheels" .
quietly pip wheel --no-deps --no-cache-dir --wheel-dir "$work/wheels" -C build=pure "$work/wheels/deltafold-$version.tar.gz"
quietly "${zig[@]}"
quietly "${zig[@]}" --interpreter 3.14t
ls "$work/wheels"

python - "$version" "$linux" "$work"/wheels/* << 'EOF_PYTHON'
import re, sys, tarfile, zipfile
from pathlib import Path

version, linux, *paths = sys.argv[1:]
expected = {f"deltafold-{version}.tar.gz"}
expected |= {f"deltafold-{version}-{tag}.whl" for tag in (f"cp310-abi3-{linux}", f"cp314-cp314t-{linux}", "py3-none-any")}


def spelled(name):
    head, dash, tail = name.rpartition("-")
    return head + dash + ".".join(sorted(tail.removesuffix(".whl").split("."))) if name.endswith(".whl") else name


found = {spelled(Path(path).name) for path in paths}
assert found == set(map(spelled, expected)), f"built {sorted(found)}"
for path in paths:
    name = Path(path).name
    if name.endswith(".tar.gz"):
        names = [member.split("/", 1)[1] for member in tarfile.open(path).getnames() if "/" in member]
        needed = ["LICENSE", "Cargo.lock", "pyproject.toml", "_build/deltafold_build.py", "rust/core/src/lib.rs", "docs/index.md"]
        binaries = 0
    else:
        wheel = zipfile.ZipFile(path)
        assert wheel.testzip() is None
        names = wheel.namelist()
        info = f"deltafold-{version}.dist-info"
        needed = ["deltafold/__init__.py", "deltafold/py.typed", f"{info}/licenses/LICENSE", f"{info}/entry_points.txt"]
        binaries = int("none-any" not in name)
        metadata = wheel.read(f"{info}/METADATA").decode()
        assert f"\nVersion: {version}\n" in metadata
        assert "\nLicense-Expression: MIT\n" in metadata
        assert "\nRequires-Python: >=3.10\n" in metadata
        assert not re.search(r"^Requires-Dist: [^;]*$", metadata, re.MULTILINE), "installing it installs nothing else"
        if binaries:
            boms = [member for member in names if member.startswith(f"{info}/sboms/") and member.endswith(".json")]
            assert boms, f"{name} has no bill of materials"
            assert all(crate in wheel.read(boms[0]).decode() for crate in ("memchr", "pyo3", "simdutf8", "zmij"))
            needed.append("deltafold/_rust.abi3.so" if "abi3" in name else f"deltafold/_rust.cpython-314t-{linux.split('_')[3].split('.')[0]}")
        outside = [member for member in names if not member.startswith(("deltafold/", info))]
        assert not outside, f"{name} holds {outside}"
    for member in needed:
        assert any(one.startswith(member) for one in names), f"{name} lacks {member}"
    inside = [member for member in names if member.endswith((".so", ".pyd", ".dylib"))]
    assert len(inside) == binaries, f"{name} holds {inside}"
EOF_PYTHON

used() { # ENVIRONMENT BACKEND TAG: the command line and the import, from a folder that has no sources
    local bin=$work/$1/bin
    (
        cd "$work"
        "$bin/deltafold" --version | grep -q "^deltafold $version ($2 backend, build [^,]*$3" || fail "$1: --version says $("$bin/deltafold" --version)"
        "$bin/deltafold" merge "$root"/examples/{openai-text,parallel-tools,reasoning-comments}.sse > "$1.jsonl" || fail "$1: merge ended with $?"
        cmp "$1.jsonl" first.jsonl 2> /dev/null || { [ ! -e first.jsonl ] && cp "$1.jsonl" first.jsonl; } || fail "$1: merges differently"
        [ "$(wc -l < "$1.jsonl")" = 3 ] || fail "$1: merge gave other than three lines"
        "$bin/python" -m pip --quiet check
        printf '%s: ' "$1"
        "$bin/deltafold" --version
    )
}

for minor in 10 11 12 13 14 14t; do
    other=$(ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."${minor%t}".*[0-9]"${minor##*[0-9]}"/bin/python 2> /dev/null | tail -n 1) || true
    [ -n "$other" ] || other=$(command -v "python3.$minor") || { echo "no Python 3.$minor here"; continue; }
    environment "pure-3.$minor" "$other"
    "$work/pure-3.$minor/bin/python" -m pip install --quiet --no-index "$work"/wheels/*-none-any.whl
    used "pure-3.$minor" pure py3-none-any
    environment "any-3.$minor" "$other"
    "$work/any-3.$minor/bin/python" -m pip install --quiet --no-index --only-binary=:all: --find-links "$work/wheels" deltafold
    case $minor in *t) tag=cp314-cp314t ;; *) tag=cp310-abi3 ;; esac
    used "any-3.$minor" rust "$tag"  # of all wheels pip takes the fast one
done
cp "$work"/wheels/* "$out"
echo "wheels: all good, in $out"
