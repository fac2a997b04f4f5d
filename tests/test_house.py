"""The rules of the house that a machine can keep: imports point one way, dependencies have their reason, one version."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from conftest import ROOT

PACKAGE = ROOT / "python" / "deltafold"
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
PYPROJECT = (ROOT / "pyproject.toml").read_text("utf-8")
# Each may import only what stands before it.
ORDER = """
    _errors _types _typed _bodies _objects types _calls _chunks _filtering _pure _rust _backend _merge_chunks
    _cursors events _events tap unfold openai litellm _otel asgi arrow __init__ cli __main__
""".split()
PURE_ORDER = """
    json sse ledger chunk text tree usage calls message merge shape stream accumulator bulk template filter __init__
""".split()


def imported(path: Path) -> set[str]:
    """The modules beside ``path`` that it imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            names |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("deltafold.")}
    return names


@pytest.mark.thread_unsafe(reason="CPython 3.11 counts the recursion of ast.parse for all threads at once")
@pytest.mark.parametrize(
    ("folder", "order"),
    [pytest.param(PACKAGE, ORDER, id="deltafold"), pytest.param(PACKAGE / "_pure", PURE_ORDER, id="_pure")],
)
def test_imports_point_one_way(folder: Path, order: list[str]) -> None:
    for path in folder.glob("*.py"):
        assert path.stem in order, f"{path.name} has no place in the order of imports"
        for name in imported(path):
            assert order.index(name) < order.index(path.stem), f"{path.name} imports {name}"


@pytest.mark.thread_unsafe(reason="CPython 3.11 counts the recursion of ast.parse for all threads at once")
def test_stages_know_only_their_own() -> None:
    pure = PACKAGE / "_pure"
    assert not imported(pure / "sse.py"), "sse knows no JSON"
    assert not imported(pure / "json.py"), "json knows no OpenAI"
    assert "sse" not in imported(pure / "merge.py"), "merge knows no bytes"


def test_every_dependency_has_its_reason() -> None:
    table = CONTRIBUTING[CONTRIBUTING.index("## Dependencies") :]
    explained = {name.strip() for row in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) for name in row.split(",")}
    groups = PYPROJECT[PYPROJECT.index("[project.optional-dependencies]") : PYPROJECT.index("[tool.maturin]")]
    used = {name.lower() for name in re.findall(r'"([A-Za-z0-9-]+)(?:[<>=][^"]*)?"[],]', groups)}
    for manifest in ("rust/core/Cargo.toml", "rust/python/Cargo.toml"):
        for section in (ROOT / manifest).read_text("utf-8").split("\n["):
            if section.startswith(("dependencies]", "dev-dependencies]")):
                used |= set(re.findall(r"^([a-z0-9_-]+) *=", section, re.MULTILINE))
    assert used - {"deltafold-core"} <= explained
    assert "orjson" in used
    assert "pyo3" in used


def test_installing_it_installs_nothing_else() -> None:
    assert "\ndependencies = []\n" in PYPROJECT


def test_one_place_for_the_version() -> None:
    assert not re.search(r"^version *=", PYPROJECT, re.MULTILINE)
    version = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text("utf-8"), re.MULTILINE)
    assert version
    assert f"## {version[1]}" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    for manifest in ("rust/core/Cargo.toml", "rust/python/Cargo.toml"):
        assert "version.workspace = true" in (ROOT / manifest).read_text("utf-8")


def test_a_newcomer_can_guess_the_targets() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):(?!=)", makefile, re.MULTILINE))
    assert len(targets) <= 10
    assert targets == set(re.findall(r"^\.PHONY: (.+)", makefile, re.MULTILINE)[0].split())
