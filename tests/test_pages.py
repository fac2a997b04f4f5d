"""The README and the pages of docs/: every block of Python is run by some test, and commands are such as exist."""

from __future__ import annotations

import asyncio
import doctest
import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import deltafold
from conftest import ROOT, Backend, recipes
from deltafold import cli

PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
PYPROJECT = (ROOT / "pyproject.toml").read_text("utf-8")
TARGETS = re.findall(r"^([a-z-]+):(?!=)", MAKEFILE, re.MULTILINE)
MODULES = sorted(
    ".".join(path.relative_to(ROOT / "python").with_suffix("").parts)
    for path in (ROOT / "python" / "deltafold").rglob("*.py")
    if ">>> " in path.read_text("utf-8")
)
STATUSES = {"examples/cut.sse": 3}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)


def use(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    implementation = importlib.import_module(f"deltafold._{backend.name}")
    for name in ("ChatCompletionAccumulator", "StreamFilter", "merge"):
        monkeypatch.setattr(deltafold, name, getattr(implementation, name))


def test_start_in_five_minutes(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    httpx = pytest.importorskip("httpx")
    use(backend, monkeypatch)
    names: dict[str, Any] = {}
    for block in recipes("index.md"):
        exec(block, names)

    async def body() -> AsyncIterator[bytes]:
        for at in range(0, len(names["body"]), 50):
            yield names["body"][at : at + 50]

    async def relayed() -> tuple[bytes, Any]:
        got = bytearray()

        async def send(piece: bytes) -> None:
            got.extend(piece)

        answer = httpx.MockTransport(lambda _: httpx.Response(200, content=body()))
        async with httpx.AsyncClient(transport=answer, base_url="http://upstream") as client:
            accumulator = await names["relay"](client, {"stream": True}, send)
        return bytes(got), accumulator

    got, accumulator = asyncio.run(relayed())
    assert got == names["body"]
    assert accumulator.close_reason == "eof"
    assert accumulator.result()["choices"][0]["message"]["content"] == "Hello"


def test_a_body_that_is_already_there(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    use(backend, monkeypatch)
    names: dict[str, Any] = {"deltafold": deltafold, "body": (ROOT / "examples" / "openai-text.sse").read_bytes()}
    (block,) = (block for block in blocks("README.md", "python") if "merge(body)" in block)
    exec(block, names)
    assert names["completion"]["usage"]["total_tokens"] == 37


def test_tool_calls_of_a_request(backend: Backend) -> None:
    pytest.importorskip("jsonschema_rs")
    accumulator = backend.ChatCompletionAccumulator()
    call = {"index": 0, "id": "call_1", "function": {"name": "weather", "arguments": '{"city":"Chur"}'}}
    accumulator.feed_chunk({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
    offered = {"name": "weather", "parameters": {"type": "object", "required": ["city"]}}
    names: dict[str, Any] = {
        "accumulator": accumulator,
        "request": {"tools": [{"type": "function", "function": offered}]},
    }
    exec(next(code for code in recipes("agents.md") if "for call in accumulator" in code), names)
    assert names["arguments"] == {"city": "Chur"}
    offered["parameters"] = {"type": "object", "required": ["country"]}
    with pytest.raises(ValueError, match="required"):
        exec(next(code for code in recipes("agents.md") if "for call in accumulator" in code), names)


def test_attributes_of_a_span(backend: Backend) -> None:
    told: dict[str, Any] = {}

    class Span:
        set_attributes = told.update

    accumulator = backend.ChatCompletionAccumulator()
    accumulator.feed((ROOT / "examples" / "openai-text.sse").read_bytes())
    accumulator.close()
    names: dict[str, Any] = {"deltafold": deltafold, "span": Span, "accumulator": accumulator, "timing": None}
    exec(next(code for code in recipes("agents.md") if "otel_attributes" in code), names)
    assert told["gen_ai.response.id"] == "chatcmpl-DfExampleText01"
    assert told["gen_ai.usage.output_tokens"] == 23


def test_every_block_of_python_is_run() -> None:
    """A test takes all blocks of a page, or those that hold certain words."""
    taken: dict[str, set[str]] = {"README.md": {"async def relay(", "merge(body)"}}  # see also test_examples
    for path in (ROOT / "tests").glob("test_*.py"):
        text = path.read_text("utf-8")
        for page, words in re.findall(r'recipes\("([\w.]+)"\)(?: if "([^"]+)" in code)?', text):
            taken.setdefault(f"docs/{page}", set()).add(words)
        for page in re.findall(r'\brun\("([\w.]+\.md)"', text):
            taken.setdefault(f"docs/{page}", set()).add("")
    for page in PAGES:
        for block in blocks(page, "python"):
            assert any(words in block for words in taken.get(page, ())), f"{page}: no test runs\n{block}"


@pytest.mark.thread_unsafe(reason="doctest takes standard output from everybody")
@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder(exclude_empty=True)
    for test in finder.find(module, name, globs=vars(deltafold) | vars(module)):
        assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test).failed == 0, test.name


def test_the_reference_has_every_name() -> None:
    text = (ROOT / "docs" / "reference.md").read_text("utf-8")
    names = set(re.findall(r"^\.\. (?:auto\w+|data):: (\w+)$", text, re.MULTILINE))
    assert names == {name for name in deltafold.__all__ if not name.startswith("__")}


def commands() -> list[Any]:
    """Each command of a block of shell, once for each page."""
    found: dict[tuple[str, str], None] = {}
    for page in PAGES:
        for block in blocks(page, "(?:sh|shell|bash|console)"):
            for line in re.sub(r"\\\n *", "", block).splitlines():
                found |= {(page, part.strip()): None for part in re.split(r"&&|\|\|", line) if part.strip()}
    return [pytest.param(*command, id=" ".join(command)[:60]) for command in found]


@pytest.mark.parametrize(("page", "command"), commands())
def test_a_command_of_the_documentation(page: str, command: str) -> None:
    name, *words = shlex.split(command.partition(" > ")[0], comments=True)
    files = [word for word in words if "/" in word and not word.startswith("http")]
    if Path(name).name == "deltafold" and not all((ROOT / file).exists() for file in files):
        cli._parsed(words)
    elif Path(name).name == "deltafold":
        assert ran([sys.executable, "-m", "deltafold", *words]) == STATUSES.get(words[-1], 0)
    elif name == "make":
        assert words[0] in TARGETS
    elif name == "pip":
        (extra,) = re.findall(r"^(?:deltafold|\.)(?:\[([a-z]+)\])?$", words[words.index("install") + 1])
        assert not extra or re.search(rf"^{extra} = \[", PYPROJECT, re.MULTILINE)
    elif Path(name).name == "python" and words[0] == "-m" and words[1] == "timeit":
        assert ran([sys.executable, *words[:2], "-n", "1", "-r", "1", *words[2:]]) == 0
    elif Path(name).name in ("python", "pytest") or name.startswith("scripts/"):
        assert all((ROOT / file).exists() for file in files)
    else:
        assert name in ("curl", "tail", "echo", "git", "pre-commit", "docker"), f"{page}: what does {command!r} do?"


def ran(command: list[str]) -> int:
    environment = os.environ | {"PYTHONPATH": str(Path(deltafold.__file__).parent.parent)}
    return subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True).returncode


@pytest.mark.parametrize("page", [*PAGES, "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_to_files(page: str) -> None:
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not target.startswith(("http", "mailto:")):
            assert (ROOT / page).parent.joinpath(target).exists() or target.endswith("benches/ratios.svg"), target
