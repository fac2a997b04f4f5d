"""Every kind of diagnostic: a stream that needs it and nothing else, its count, its offset."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import Backend
from streams import END, chunk, event, merged, payload, sse

HI, STOP = chunk({"content": "hi"}), chunk(finish_reason="stop")


def calls(*fragments: dict[str, Any]) -> list[dict[str, Any]]:
    return [chunk({"tool_calls": [fragment]}) for fragment in fragments]


def function(**members: Any) -> dict[str, Any]:
    return {"function": members}


FIRST = len(event(HI))  # where the second event begins
# kind → (a stream that needs nothing else, count, offset)
KINDS: dict[str, tuple[bytes, int, int]] = {
    "unterminated-event": (sse(HI) + b"data: [DONE]", 1, FIRST),
    "incomplete-event": (sse(HI) + b'data: {"cho', 1, FIRST),
    "repeated-data-prefix": (sse(HI, "data: " + payload(HI), "data: [DONE]"), 2, FIRST),
    "missing-blank-line": (sse(HI) + (b"data: " + payload(HI).encode() + b"\n") * 2 + b"\n" + sse(*END), 1, FIRST),
    "json-body": (b'\n {"choices":[{"message":{"content":"hi"},"index":0,"finish_reason":"stop"}]}', 1, 1),
    "json-lines": (payload(HI).encode() + b"\n" + payload(STOP).encode(), 2, 0),
    "raw-error-line": (sse(HI) + b'{"error":"x"}\n' * 2 + sse(*END), 2, FIRST),
    "error-field": (sse(HI) + b"error: x\nerror: y\n" + sse(*END), 2, FIRST),
    "data-after-done": (sse("[DONE]", HI, "x", "null"), 3, len(sse("[DONE]"))),
    "bad-json": (sse(HI, "x", "{", *END), 2, FIRST),
    "replaced-bytes": (sse(HI) + b'data: {"x":"\xff\xfe"}\n\ndata: {"x":"\xff"}\n\n' + sse(*END), 2, FIRST),
    "lone-surrogate": (sse(HI, '{"x":"\\ud83d\\ud83d"}', '{"y":["\\udc00"]}', *END), 3, FIRST),
    "non-finite-number": (sse(HI, '{"x":[NaN,Infinity,-Infinity,1e999]}', *END), 3, FIRST),
    "changed-id": (sse(HI, {"id": "a"}, {"id": "b"}, {"id": "c"}, *END), 2, FIRST + len(event({"id": "a"}))),
    "converted-created": (sse(HI, {"created": 1.5}, *END), 1, FIRST),
    "missing-choice-index": (sse(HI, {"choices": [{"delta": {}}, {"index": -1}]}, "[DONE]"), 2, FIRST),
    "message-ignored": (sse(HI, *[{"choices": [{"index": 0, "message": {"content": "x"}}]}] * 2, *END), 2, FIRST),
    "changed-call-id": (
        sse(HI, *calls({"index": 0, "id": "a"}, {"index": 0, "id": "b"}, {"index": 0, "id": "c"}), *END),
        2,
        FIRST + len(sse(*calls({"index": 0, "id": "a"}))),
    ),
    "missing-call-index": (sse(HI, *calls({"id": "a"}, {"id": "a"}, {"index": -1, "id": "b"}), *END), 3, FIRST),
    "reused-call-index": (
        sse(HI, *calls({"index": 0, "id": "a"}, {"index": 0, "id": "b", **function(name="f")}), *END),
        1,
        FIRST + len(sse(*calls({"index": 0, "id": "a"}))),
    ),
    "unseen-call-index": (
        sse(HI, *calls({"index": 0, "id": "a"}, {"index": 1}, {"index": 1}, {"index": 2}), *END),
        2,
        FIRST + len(sse(*calls({"index": 0, "id": "a"}))),
    ),
    "ignored-name": (
        sse(HI, *calls({"index": 0, **function(name="f", arguments="1")}, {"index": 0, **function(name="x")}), *END),
        1,
        FIRST + len(sse(*calls({"index": 0, **function(name="f", arguments="1")}))),
    ),
    "object-arguments": (
        sse(HI, *calls({"index": 0, **function(arguments=[])}, {"index": 0, **function(arguments=1)}), *END),
        2,
        FIRST,
    ),
    "placeholder-arguments": (
        sse(HI, *calls({"index": 0, **function(arguments="{}")}, {"index": 0, **function(arguments="{")}), *END),
        1,
        FIRST + len(sse(*calls({"index": 0, **function(arguments="{}")}))),
    ),
    "zero-usage": (
        sse(HI, {"usage": {"total_tokens": 1}}, {"usage": {"total_tokens": 0}}, *END),
        1,
        FIRST + len(event({"usage": {"total_tokens": 1}})),
    ),
    "changed-type": (
        sse(HI, chunk({"x": "a", "y": 1}), chunk({"x": 1, "y": "a"}), *END),
        2,
        FIRST + len(event(chunk({"x": "a", "y": 1}))),
    ),
    "ignored-value": (sse(HI, {"id": 1, "usage": 2, "choices": [3]}, *END), 3, FIRST),
    "recoded-audio": (
        sse(HI, *[chunk({"audio": {"data": "YQ=="}})] * 3, *END),
        2,
        FIRST + len(event(chunk({"audio": {"data": "YQ=="}}))),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kind(backend: Backend, kind: str) -> None:
    data, count, offset = KINDS[kind]
    assert merged(backend, data).diagnostics == [(kind, count, offset)]


def test_all_kinds() -> None:
    assert len(KINDS) == 28


def test_in_order_of_first_occurrence(backend: Backend) -> None:
    chunks = ["bad", {"id": 7}, {"created": "5"}, "bad", {"x": "\\"}, '{"x":NaN}', {"id": 7}, "[DONE]", "x"]
    assert [(d.kind, d.count) for d in merged(backend, *chunks).diagnostics] == [
        ("bad-json", 2),
        ("ignored-value", 2),
        ("converted-created", 1),
        ("non-finite-number", 1),
        ("data-after-done", 1),
    ]


def test_a_plain_stream_has_none(backend: Backend) -> None:
    assert merged(backend, HI, HI, *END).diagnostics == []
