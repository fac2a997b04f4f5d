"""What the build backend chooses; nothing is built here, see scripts/check_package.sh for that."""

from __future__ import annotations

import importlib.util
import os
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from conftest import ROOT

pytestmark = pytest.mark.skipif(os.name != "posix", reason="stands in for cargo with a shell script")


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.delenv("DELTAFOLD_BUILD", raising=False)
    monkeypatch.delenv("MATURIN_NO_INSTALL_RUST", raising=False)
    spec = importlib.util.spec_from_file_location("deltafold_build", ROOT / "_build" / "deltafold_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def cargo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))

    def cargo(script: str) -> None:
        path = tmp_path / "cargo"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return cargo


MATURIN, HATCHLING = ["maturin>=1.16,<2"], ["hatchling>=1.27"]


@pytest.mark.parametrize(
    ("script", "needs"),
    [
        pytest.param(None, HATCHLING, id="absent"),
        pytest.param("echo 'cargo 1.95.0 (f2d3ce0bd 2026-03-21)'", MATURIN, id="new"),
        pytest.param("echo 'cargo 1.88.0'", MATURIN, id="just-new-enough"),
        pytest.param("echo 'cargo 1.87.0'", HATCHLING, id="old"),
        pytest.param("echo 'cargo 2.0.0'", MATURIN, id="next"),
        pytest.param("echo 'error: no default toolchain' >&2; exit 1", HATCHLING, id="no-toolchain"),
        pytest.param("echo what", HATCHLING, id="something-else"),
    ],
)
def test_auto_takes_rust_where_it_can(build: ModuleType, cargo, script: str | None, needs: list[str]) -> None:
    if script:
        cargo(script)
    assert build.get_requires_for_build_wheel() == needs
    assert build.get_requires_for_build_editable({"build": "auto"}) == needs


def test_a_setting_comes_before_the_variable(build: ModuleType, cargo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTAFOLD_BUILD", "rust")
    assert build.get_requires_for_build_wheel() == MATURIN
    assert build.get_requires_for_build_wheel({"build": "pure"}) == HATCHLING


def test_another_word_is_refused(build: ModuleType) -> None:
    with pytest.raises(SystemExit, match="build must be rust, pure or auto, not 'fast'"):
        build.get_requires_for_build_wheel({"build": "fast"})


def test_the_sdist_never_needs_rust(build: ModuleType) -> None:
    assert build.get_requires_for_build_sdist({"build": "rust"}) == HATCHLING


def test_no_toolchain_is_ever_downloaded(build: ModuleType) -> None:
    assert os.environ["MATURIN_NO_INSTALL_RUST"] == "1"


@pytest.mark.parametrize(("mode", "member"), [("pure", "deltafold/_rust.abi3.so"), ("rust", "deltafold/__init__.py")])
def test_a_wheel_of_the_wrong_kind_is_refused(build: ModuleType, tmp_path: Path, mode: str, member: str) -> None:
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(member, b"")
    with pytest.raises(SystemExit, match=f"the {mode} wheel holds"):
        build._check(mode, wheel)
    assert not wheel.exists()
