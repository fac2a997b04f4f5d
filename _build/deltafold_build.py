"""The PEP 517 backend of deltafold: hands over to maturin (with the Rust extension) or to hatchling (pure Python).

Which one: ``-C build=rust|pure|auto``, else the variable ``DELTAFOLD_BUILD``, else ``auto``. ``auto`` takes Rust when a cargo that
is new enough answers on PATH, and pure Python otherwise; it never downloads a toolchain. The sdist is the same either way and holds
what both need, so hatchling always makes it.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "deltafold"
REQUIRES = {"rust": ["maturin>=1.16,<2"], "pure": ["hatchling>=1.27"]}
BINARIES = (".so", ".pyd", ".dylib")

Settings = Mapping[str, Any] | None

os.environ.setdefault("MATURIN_NO_INSTALL_RUST", "1")


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    return REQUIRES[_mode(config_settings)]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    return REQUIRES[_mode(config_settings)]


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    return REQUIRES["pure"]


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    return _prepare("prepare_metadata_for_build_wheel", metadata_directory, config_settings)


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Settings = None) -> str:
    return _prepare("prepare_metadata_for_build_editable", metadata_directory, config_settings)


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    mode = _mode(config_settings)
    name: str = _backend(mode).build_wheel(wheel_directory, _rest(config_settings), metadata_directory)
    _check(mode, Path(wheel_directory, name))
    return name


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    mode = _mode(config_settings)
    if mode == "pure":
        _remove_extension()
    name: str = _backend(mode).build_editable(wheel_directory, _rest(config_settings), metadata_directory)
    return name


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    name: str = _backend("pure").build_sdist(sdist_directory, _rest(config_settings))
    return name


def _mode(config_settings: Settings) -> str:
    asked = (config_settings or {}).get("build") or os.environ.get("DELTAFOLD_BUILD") or "auto"
    if asked not in ("rust", "pure", "auto"):
        raise SystemExit(f"deltafold: build must be rust, pure or auto, not {asked!r}")
    if asked != "auto":
        return str(asked)
    missing = _why_not_rust()
    if missing:
        print(f"deltafold: building the pure Python wheel: {missing}", file=sys.stderr)
    return "pure" if missing else "rust"


def _why_not_rust() -> str:
    """Empty when Rust can build this tree, else the reason why not."""
    needed = re.search(r'^rust-version = "(\d+)\.(\d+)', (ROOT / "Cargo.toml").read_text("utf-8"), re.MULTILINE)
    assert needed, "Cargo.toml names its rust-version"
    try:
        answer = subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    except (OSError, subprocess.CalledProcessError):
        return "no working cargo on PATH"
    found = re.match(r"cargo (\d+)\.(\d+)", answer)
    if not found or tuple(map(int, found.groups())) < tuple(map(int, needed.groups())):
        return f"{answer.strip()} is older than {'.'.join(needed.groups())}"
    return ""


def _backend(mode: str) -> ModuleType:
    return importlib.import_module("maturin" if mode == "rust" else "hatchling.build")


def _rest(config_settings: Settings) -> dict[str, Any]:
    return {key: value for key, value in (config_settings or {}).items() if key != "build"}


def _prepare(hook: str, metadata_directory: str, config_settings: Settings) -> str:
    mode = _mode(config_settings)
    if mode == "rust":
        name: str = getattr(_backend(mode), hook)(metadata_directory, _rest(config_settings))
        return name
    # hatchling hides this hook from pip, and a pure wheel is made faster than an explanation is read
    with (
        tempfile.TemporaryDirectory() as folder,
        zipfile.ZipFile(Path(folder, build_wheel(folder, config_settings))) as wheel,
    ):
        members = [member for member in wheel.namelist() if ".dist-info/" in member]
        wheel.extractall(metadata_directory, members)
    return members[0].split("/")[0]


def _check(mode: str, wheel: Path) -> None:
    """A binary that an editable install left in the tree must not travel in a wheel that says it runs anywhere."""
    with zipfile.ZipFile(wheel) as archive:
        binaries = [name for name in archive.namelist() if name.endswith(BINARIES)]
    if len(binaries) != (mode == "rust"):
        wheel.unlink()
        raise SystemExit(f"deltafold: the {mode} wheel holds {binaries or 'no extension'}")


def _remove_extension() -> None:
    """A pure editable install would otherwise go on using the binary of an earlier one."""
    for stale in PACKAGE.glob("_rust.*"):
        if stale.suffix in BINARIES:
            print(f"deltafold: removing {stale.name}, left by an earlier install", file=sys.stderr)
            stale.unlink()
