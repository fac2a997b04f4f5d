"""The two implementations show the same face: names, signatures, docstrings, types, and the errors of wrong arguments."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
import re
import weakref
from pathlib import Path
from typing import Any

import pytest

import deltafold
from conftest import ROOT, Backend, load
from streams import chunk, sse

EXPORTS = ["ChatCompletionAccumulator", "SSEDecoder", "StreamFilter", "merge", "merge_many"]
CLASSES = EXPORTS[:3]


def public(value: Any) -> list[str]:
    return sorted(name for name in dir(value) if not name.startswith("_"))


def member_names() -> list[tuple[str, str]]:
    pure = load("pure")
    return [(name, member) for name in CLASSES for member in public(getattr(pure, name))]


def test_exports(both: tuple[Backend, Backend]) -> None:
    for name in EXPORTS:
        chosen = getattr(deltafold, name)
        assert chosen in [getattr(backend, name) for backend in both]
        assert chosen.__name__ == name


def test_members(both: tuple[Backend, Backend]) -> None:
    for name in CLASSES:
        pure, rust = (getattr(backend, name) for backend in both)
        assert public(pure) == public(rust)
        assert (pure.__module__, pure.__qualname__) == (rust.__module__, rust.__qualname__) == ("deltafold", name)


@pytest.mark.parametrize("name", EXPORTS)
def test_signature_and_docstring(both: tuple[Backend, Backend], name: str) -> None:
    pure, rust = (getattr(backend, name) for backend in both)
    assert inspect.getdoc(pure)
    assert inspect.getdoc(pure) == inspect.getdoc(rust)
    assert parameters(pure) == parameters(rust)


@pytest.mark.parametrize(("name", "member"), member_names())
def test_signature_and_docstring_of_members(both: tuple[Backend, Backend], name: str, member: str) -> None:
    pure, rust = (getattr(getattr(backend, name), member) for backend in both)
    assert inspect.getdoc(pure)
    assert inspect.getdoc(pure) == inspect.getdoc(rust)
    assert callable(pure) == callable(rust)
    if callable(pure):
        assert parameters(pure) == parameters(rust)


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(p.name, p.kind, p.default) for p in found if p.name != "self"]


def test_attributes_cannot_be_set(backend: Backend) -> None:
    for made in (backend.ChatCompletionAccumulator(), backend.SSEDecoder()):
        for name in [*public(made), "new"]:
            with pytest.raises(AttributeError):
                setattr(made, name, 1)


def test_classes_cannot_be_derived(backend: Backend) -> None:
    if backend.name == "pure":  # final is for type checkers there
        assert backend.ChatCompletionAccumulator.__final__
        return
    with pytest.raises(TypeError):
        type("Mine", (backend.ChatCompletionAccumulator,), {})


def test_copies_and_references(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    assert weakref.ref(accumulator)() is accumulator
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="an accumulator cannot be pickled or copied"):
            attempt(accumulator)


def test_repr(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    shown = [repr(accumulator)]
    data = sse(chunk({"content": "secret"}))
    accumulator.feed(data)
    accumulator.close()
    shown.append(repr(accumulator))
    done = backend.ChatCompletionAccumulator()
    done.feed(sse("[DONE]"))
    assert [*shown, repr(done)] == [
        "<ChatCompletionAccumulator open, 0 bytes, 0 chunks>",
        f"<ChatCompletionAccumulator incomplete, {len(data)} bytes, 1 chunks>",
        "<ChatCompletionAccumulator complete, 14 bytes, 0 chunks>",
    ]


def test_plain_types(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    seen = accumulator.feed(
        sse(chunk({"content": "a", "tool_calls": [{"index": 0, "id": "a"}]}, finish_reason="x"), {"id": 1, "usage": {}})
    )
    assert type(seen) is int
    assert type(accumulator.close()) is int
    assert type(accumulator.result()) is dict
    assert type(accumulator.result_json()) is bytes
    assert type(accumulator.complete) is bool
    assert type(accumulator.done_seen) is bool
    assert type(accumulator.finish_reasons) is dict
    assert type(accumulator.counts) is dict
    assert type(accumulator.diagnostics) is list
    assert {type(d) for d in accumulator.diagnostics} == {deltafold.Diagnostic}
    assert {type(c) for c in accumulator.tool_calls()} == {deltafold.ToolCall}
    assert type(accumulator.text_since()) is tuple
    assert type(accumulator.retained_bytes) is int


@pytest.mark.parametrize("choice", [None, "0", -1, 2**70, 1.5])
def test_an_odd_choice_is_an_unknown_one(backend: Backend, choice: Any) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    accumulator.feed(sse(chunk({"content": "a", "reasoning": "b", "tool_calls": [{"index": 0, "id": "a"}]})))
    assert (
        accumulator.text(choice) == accumulator.reasoning_text(choice) == accumulator.text_since(None, choice)[0] == ""
    )
    assert accumulator.tool_calls(choice) == []


@pytest.mark.parametrize("threads", [-1, 1.0, "1", None, True])
def test_threads(backend: Backend, threads: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        backend.merge_many([], threads)


def test_merge_takes_options_by_name_only(backend: Backend) -> None:
    with pytest.raises(TypeError):
        backend.merge(b"", None)
    with pytest.raises(TypeError):
        backend.merge_many([], 0, None)
    with pytest.raises(TypeError):
        backend.merge()
    with pytest.raises(TypeError):
        backend.merge(7)


def declared(path: Path) -> dict[str, str]:
    """Each public function and method of a module, spelled with its decorators, parameters, defaults and types, all overloads."""
    text = re.sub(r"\bPiece\b(?! =)", "bytes | bytearray | memoryview", path.read_text("utf-8"))
    found: dict[str, str] = {}

    def walk(body: list[ast.stmt], within: str = "") -> None:
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name in CLASSES:
                found[node.name] = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
                walk(node.body, f"{node.name}.")
            elif isinstance(node, ast.FunctionDef) and (within or node.name in EXPORTS):
                if not node.name.startswith("_") or node.name in ("__init__", "__reduce__"):
                    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
                    returns = ast.unparse(node.returns) if node.returns else None
                    if "overload" in (before := found.get(within + node.name, "")) and "overload" not in decorators:
                        continue  # the body behind the overloads
                    found[within + node.name] = f"{before}{decorators} ({ast.unparse(node.args)}) -> {returns}\n"

    walk(ast.parse(text).body)
    return found


@pytest.mark.thread_unsafe(reason="CPython 3.11 counts the recursion of ast.parse for all threads at once")
def test_the_stub_declares_what_the_pure_modules_do() -> None:
    package = ROOT / "python" / "deltafold"
    pure: dict[str, str] = {}
    for path in (package / "_pure").glob("*.py"):
        pure |= declared(path)
    assert {name.split(".")[0] for name in pure} == set(EXPORTS)
    assert declared(package / "_rust.pyi") == pure
