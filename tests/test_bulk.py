"""Many bodies at once: order, errors, outputs, and how little is held. What Arrow adds is in test_arrow.py."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Backend, load
from deltafold import DeltafoldError, Limits
from streams import END, chunk, sse


def body(text: str) -> bytes:
    return sse(chunk({"content": text}), *END)


def completion(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }


CUT = sse(chunk({"content": "half"}))


@pytest.mark.parametrize("threads", [0, 1, 2, 300])
def test_order(backend: Backend, threads: int) -> None:
    texts = [f"{at} {'x' * (at % 7 * 300)}" for at in range(300)]
    wanted = [completion(text)["choices"][0]["message"]["content"] for text in texts]
    for bodies in ([body(text) for text in texts], (body(text) for text in texts)):
        results = backend.merge_many(bodies, threads)
        assert [r["choices"][0]["message"]["content"] for r in results] == wanted


def test_bad_bodies_are_results_like_others(backend: Backend) -> None:
    bodies = [body("a"), CUT, b"<html>", b'{"error":{"message":"no","code":7}}', b"data: {\n\n", b"", body("b")]
    for output in ("dict", "json"):
        results = backend.merge_many(bodies, output=output)
        kinds = [r.kind if isinstance(r, DeltafoldError) else None for r in results]
        assert kinds == [None, "truncated", "not-sse", "upstream-error", "bad-json", "truncated", None]
        assert results[1].partial["choices"][0]["message"]["content"] == "half"
        assert results[3].code == 7


def test_json(backend: Backend) -> None:
    [line, failure] = backend.merge_many([body("é\n"), CUT], output="json")
    assert type(line) is bytes
    assert b"\n" not in line
    assert "é".encode() in line
    assert json.loads(line)["choices"][0]["message"]["content"] == "é\n"
    assert failure.kind == "truncated"
    assert backend.merge_many([], output="json") == []


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_bytes(backend: Backend, kind: Any) -> None:
    [result] = backend.merge_many([kind(body("a"))])
    assert result["choices"][0]["message"]["content"] == "a"


def test_nothing_comes_to_nothing(backend: Backend) -> None:
    results = backend.merge_many([None, body("a"), None], output="json")
    assert [results[0], results[2]] == [None, None]
    assert json.loads(results[1])["choices"][0]["message"]["content"] == "a"


@pytest.mark.parametrize("bodies", [["text"], [body("a"), 7], 7, None, [[b"a"]]])
def test_what_is_no_body(backend: Backend, bodies: Any) -> None:
    with pytest.raises(TypeError):
        backend.merge_many(bodies)


def test_options(backend: Backend) -> None:
    two = sse(chunk({"content": "a"}, 0), chunk({"content": "b"}, 1), "[DONE]")
    [result] = backend.merge_many([two], n=1)
    assert result["choices"][0]["message"]["content"] == "ab"
    [failure] = backend.merge_many([two], limits=Limits(max_event_bytes=8))
    assert failure.kind == "limit-exceeded"
    with pytest.raises(ValueError, match="output must be dict, json or arrow"):
        backend.merge_many([], output="yaml")
    with pytest.raises(TypeError):
        backend.merge_many([], output=None)
    with pytest.raises(TypeError):
        backend.merge_many([], limits=3)
    with pytest.raises(ValueError, match="n must be None or 1"):
        backend.merge_many([], n=2)


def test_an_iterator_is_read_as_it_is_needed(backend: Backend) -> None:
    """When the body behind 40 MiB is asked for, those before the last 17 MiB are gone."""
    filler = b": " + b"x" * (1024 * 1024 - 3) + b"\n"
    held: list[Any] = []
    alive = []

    class Body(bytearray):
        def __del__(self) -> None:
            held.remove(id(self))

    def bodies() -> Iterator[bytearray]:
        for _ in range(40):
            alive.append(len(held))
            made = Body(filler + body("a"))
            held.append(id(made))
            yield made
            del made

    results = backend.merge_many(bodies(), 2, output="json")
    assert len(results) == 40
    if sys.implementation.name == "cpython":
        assert max(alive) <= 17


def test_the_iterators_own_error_is_the_callers(backend: Backend) -> None:
    def bodies() -> Iterator[bytes]:
        yield body("a")
        raise LookupError("the disk is gone")

    with pytest.raises(LookupError, match="the disk is gone"):
        backend.merge_many(bodies())


def merge_lines(backend: Backend, lines: list[Any], path: list[str] | None) -> list[Any]:
    module = sys.modules[f"deltafold._{backend.name}"]
    found: list[Any] = module._merge_lines(lines, 2, None, None, path)
    return found


def test_records(backend: Backend) -> None:
    text = body("é").decode()
    lines = [
        json.dumps({"a": {"b": [0, text]}}).encode(),
        json.dumps({"a": {"b": [0, [text[:20], text[20:]]]}}, ensure_ascii=False).encode(),
        b'{"a":1,"a":{"b":[0,"data: {\\ud800}\\n\\n"]}}',
        b'{"a":{"b":[0,17]}}',
        b'{"a":{"b":[0]}}',
        b'{"a":{"b":{}}}',
        b"{oops",
        b"[" * 200,
        b"\xff",
        None,
    ]
    found = merge_lines(backend, lines, ["a", "b", "1"])
    assert [json.loads(line) for line, *_ in found[:2]] == [completion("é")] * 2
    assert [error for _, error, _ in found[:2]] == [None, None]
    assert found[2][1].kind == "bad-json"
    assert found[2][1].message == "a payload is not a JSON object: {\ufffd}"
    assert [d.kind for d in found[2][2]] == ["bad-json"]
    reasons = ["the member is not text", *["the line has no such member"] * 2, *["the line is not JSON"] * 3, "no body"]
    assert [(line, error) for line, error, _ in found[3:]] == [(None, reason) for reason in reasons]


def test_the_whole_line_may_be_the_body(backend: Backend) -> None:
    [(line, error, notes)] = merge_lines(backend, [json.dumps(body("a").decode()).encode()], [])
    assert (json.loads(line), error, notes) == (completion("a"), None, [])


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8), st.just(body("a").decode())),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("a0é"), inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(VALUES, st.booleans(), st.integers(0, 3)), max_size=5),
    st.lists(st.sampled_from(["a", "0", "1", "é", "-1", "²", ""]), max_size=3),
)
def test_records_of_any_kind(values: list[tuple[Any, bool, int]], path: list[str]) -> None:
    lines = [
        json.dumps(value, ensure_ascii=ascii).encode("utf-8", "replace")[cut // 3 :] for value, ascii, cut in values
    ]
    told = [
        [(line, str(error), notes) for line, error, notes in merge_lines(backend, lines, path)]
        for backend in (load("pure"), load("rust"))
    ]
    assert told[0] == told[1]
