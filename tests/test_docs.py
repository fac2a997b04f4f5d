"""docs/semantics.md: its examples are run, and its tables name everything there is."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import deltafold.types as objects
from conftest import ROOT, Backend
from deltafold import Limits
from streams import Outcome, merged, spelled
from test_diagnostics import KINDS

PAGE = (ROOT / "docs" / "semantics.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\S+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples() -> list[Any]:
    """(kind of input, input, [(what is told, expected)]) of each example."""
    found: list[tuple[str, str, list[tuple[str, Any]]]] = []
    for block in BLOCK.finditer(PAGE):
        kind, about, text = block.groups()
        if kind == "json":
            found[-1][2].append((about, json.loads(text)))
        else:
            found.append((kind, text, []))
    return [pytest.param(*example, id=f"example {i}") for i, example in enumerate(found, 1)]


def body(kind: str, text: str) -> bytes:
    if kind == "sse":
        return text.encode()
    lines = text.splitlines()
    if kind == "deltas":
        lines = ['{"choices":[{"index":0,"delta":' + line + "}]}" for line in lines]
    return "".join(f"data: {line}\n\n" for line in lines).encode()


def fact(outcome: Outcome, name: str, expected: Any) -> Any:
    if name == "diagnostics":
        return outcome.kinds
    if name == "finish_reasons":
        return {str(index): reason for index, reason in outcome.finish_reasons.items()}
    if name == "error" and outcome.error is not None and expected is not None:
        return {member: outcome.error[member] for member in expected}
    return getattr(outcome, name)


@pytest.mark.parametrize(("kind", "text", "expected"), examples())
def test_example(backend: Backend, kind: str, text: str, expected: list[tuple[str, Any]]) -> None:
    assert expected, "an example without its outcome"
    assert kind in ("sse", "chunks", "deltas")
    outcome = merged(backend, body(kind, text))
    odd = set(outcome.kinds)
    for about, wanted in expected:
        if about == "message":
            assert spelled(outcome.message) == spelled({"role": "assistant"} | wanted)
        elif about == "result":
            assert spelled({name: outcome.result[name] for name in wanted}) == spelled(wanted)
        else:
            assert about == "facts"
            assert spelled({name: fact(outcome, name, value) for name, value in wanted.items()}) == spelled(wanted)
            odd -= set(wanted.get("diagnostics", ()))
    assert not odd - {"missing-call-index"}, "what was odd is told"


def test_there_are_examples() -> None:
    assert len(examples()) >= 20


def rows(heading: str) -> str:
    """A section up to the next heading of the same depth."""
    start = PAGE.index(f"\n{heading}\n")
    depth = heading.index(" ")
    end = re.search(rf"^#{{2,{depth}}} ", PAGE[start + len(heading) + 1 :], re.MULTILINE)
    return PAGE[start : start + len(heading) + 1 + end.start()] if end else PAGE[start:]


def test_every_kind_of_diagnostic_has_its_line() -> None:
    assert re.findall(r"^\| `([a-z0-9-]+)` \|", rows("## Diagnostics"), re.MULTILINE) == list(KINDS)


def test_every_limit_has_its_line() -> None:
    section = rows("## Limits")
    for name, default in vars(Limits()).items():
        assert re.search(rf"^\| `{name}` \| [^|]*\b{default}\b", section, re.MULTILINE), name


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        (
            "## The response",
            objects.ChatCompletion.__annotations__.keys() | objects.ChatCompletionChunk.__annotations__.keys(),
        ),
        ("## Choices", objects.Choice.__annotations__.keys() | objects.ChunkChoice.__annotations__.keys()),
        ("## Messages", objects.Message.__annotations__.keys() | objects.Delta.__annotations__.keys()),
        (
            "### Tool calls",
            objects.MessageToolCall.__annotations__.keys() | objects.ToolCallDelta.__annotations__.keys(),
        ),
        ("### Tool calls", objects.FunctionDefinition.__annotations__.keys()),
        ("### Audio", objects.Audio.__annotations__.keys()),
        ("## Usage", objects.Usage.__annotations__.keys()),
        ("## Usage", objects.PromptTokensDetails.__annotations__.keys()),
        ("## Usage", objects.CompletionTokensDetails.__annotations__.keys()),
    ],
)
def test_every_field_has_its_line(heading: str, names: set[str]) -> None:
    lines = [line for line in rows(heading).splitlines() if line.startswith("|") or heading == "### Tool calls"]
    for name in names:
        assert any(re.search(rf"`(\w+\.)?{name}`", line) for line in lines), name


def test_every_finish_reason_has_its_line() -> None:
    section = rows("### Finish reasons")
    for reason in ("stop", "length", "tool_calls", "content_filter", "function_call", "error"):
        assert f"\n| `{reason}` |" in section
    assert "\n| null at the end |" in section
