"""Which implementation is chosen, each time in an interpreter of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, load

BINARIES = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with a copy of the package that has no extension."""
    shutil.copytree(ROOT / "python" / "deltafold", tmp_path / "deltafold", ignore=BINARIES)
    return tmp_path


def python(code: str, forced: str | None, path: Path | None = None) -> tuple[int, str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("DELTAFOLD_BACKEND", "PYTHONPATH")}
    if forced is not None:
        environment["DELTAFOLD_BACKEND"] = forced
    if path is not None:
        code = f"import sys; sys.path.insert(0, {str(path)!r}); {code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=path)
    return done.returncode, done.stdout.strip(), done.stderr.strip().rpartition("\n")[2]


BACKEND = "import deltafold; print(deltafold.BACKEND, deltafold.merge.__module__)"


def test_without_the_extension_it_is_pure(package: Path) -> None:
    for forced in (None, "", "pure"):
        assert python(BACKEND, forced, package)[:2] == (0, "pure deltafold._pure.accumulator")


def test_an_absent_extension_cannot_be_forced(package: Path) -> None:
    status, _, error = python(BACKEND, "rust", package)
    assert status == 1
    assert error == "ImportError: DELTAFOLD_BACKEND=rust, but this installation of deltafold has no extension"


@pytest.mark.parametrize("forced", ["Rust", "python", " pure", "1"])
def test_any_other_word_is_an_error(package: Path, forced: str) -> None:
    status, _, error = python(BACKEND, forced, package)
    assert (status, error) == (1, f"ImportError: DELTAFOLD_BACKEND must be rust or pure, not {forced!r}")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("raise ImportError('undefined symbol')", "ImportError: undefined symbol", id="unloadable"),
        pytest.param("import gone_", "ModuleNotFoundError: No module named 'gone_'", id="needs-what-is-not-there"),
        pytest.param("1/0", "ZeroDivisionError: division by zero", id="raises"),
        pytest.param("", "ImportError: cannot import name 'ChatCompletionAccumulator'", id="lacks-names"),
    ],
)
def test_a_broken_extension_is_loud(package: Path, text: str, error: str) -> None:
    (package / "deltafold" / "_rust.py").write_text(text)
    for forced in (None, "rust"):
        status, _, said = python(BACKEND, forced, package)
        assert status == 1
        assert said.startswith(error)
    assert python(BACKEND, "pure", package)[:2] == (0, "pure deltafold._pure.accumulator")


def test_the_extension_is_chosen_where_it_is() -> None:
    load("rust")
    for forced in (None, "", "rust"):
        assert python("import deltafold; print(deltafold.BACKEND)", forced)[:2] == (0, "rust")
    assert python("import deltafold; print(deltafold.BACKEND)", "pure")[:2] == (0, "pure")


@pytest.mark.parametrize("module", ["deltafold", "deltafold.types"])
def test_every_export_is_there(package: Path, module: str) -> None:
    code = f"import {module} as m; print([n for n in m.__all__ if n != '__version__' and not hasattr(m, n)])"
    assert python(code, "pure", package)[:2] == (0, "[]")


def test_importing_needs_nothing_else(package: Path) -> None:
    code = (
        "import sys; before = set(sys.modules); import deltafold;"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names))"
    )
    status, loaded, _ = python(code, "pure", package)
    assert status == 0
    assert set(loaded.split()) <= {"deltafold", "orjson"}
