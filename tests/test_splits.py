"""No cut of the bytes changes anything: every place for one cut, on streams with everything that a cut can hurt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, Backend, feeds
from deltafold import Limits
from streams import chunk, feed_all, payload, sse

HI = chunk({"content": "hi é \U0001f600"})
CALL = chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"a":'}}]})
MORE = chunk({"tool_calls": [{"index": 0, "function": {"arguments": '"\\"}"}'}}]})
STOP = chunk(finish_reason="stop")

BODIES = {
    "line feeds": sse(HI, CALL, MORE, STOP, "[DONE]"),
    "carriage returns": sse(HI, CALL, MORE, STOP, "[DONE]").replace(b"\n", b"\r"),
    "both": sse(HI, CALL, MORE, STOP, "[DONE]").replace(b"\n", b"\r\n"),
    "mixed ends": b"data: 1\r\r\ndata: {}\n\r\ndata: null\r\n\rdata: [DONE]\n\n",
    "byte order mark": b"\xef\xbb\xbf" + sse(HI, "[DONE]"),
    "a second mark": b"\xef\xbb\xbf\xef\xbb\xbf" + sse(HI, "[DONE]"),
    "half a mark": b"\xef\xbb" + sse(HI),
    "comments and fields": b": a\nid: 1\nevent: error\nretry: 3\n"
    + sse("x")
    + b":\ndata\n\nid\ndatax: y\n"
    + sse("[DONE]"),
    "ill-formed": b'data: {"choices":[{"index":0,"delta":{"content":"\xf0\x9f\x98\xe2\x82\xff"}}]}\n\n' * 2,
    "halves": sse(
        *(
            '{"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}',
            '{"choices":[{"index":0,"delta":{"content":"\\ude00"}}]}',
        )
    ),
    "no blank lines": f"data: {payload(HI)}\ndata: {payload(STOP)}\ndata: [DONE]\n\n".encode(),
    "raw error": sse(HI) + b'{"error":{"message":"x"}}\n' + b"error: y\n" + sse(STOP),
    "unterminated": sse(HI, STOP) + b"data: [DONE]",
    "cut": sse(HI, STOP) + b'data: {"id":"x',
    "cut behind a carriage return": sse(HI) + b"data: " + payload(STOP).encode() + b"\r",
    "json body": b'\n{"object":"chat.completion",\r\n "choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}]}\n',
    "json lines": f"{payload(HI)}\n{payload(STOP)}\r\n[DONE]".encode(),
    "html": "<html>\r\n<body>é</body>\n".encode(),
    "behind done": sse("[DONE]", HI) + b"error: x\n" + b'{"error":1}',
    "bad": sse("{", "[1,2", "17", HI, [STOP, STOP]),
}


def told(backend: Backend, parts: list[bytes], **limits: int) -> str:
    return repr(feed_all(backend.ChatCompletionAccumulator(Limits(**limits)), parts))


@pytest.mark.parametrize("limits", [{}, {"max_event_bytes": 60, "max_retained_bytes": 9}], ids=["default", "small"])
@pytest.mark.parametrize("name", BODIES)
def test_one_cut_anywhere(backend: Backend, name: str, limits: dict[str, int]) -> None:
    data = BODIES[name]
    whole = told(backend, [data], **limits)
    for at in range(len(data) + 1):
        assert told(backend, [data[:at], b"", data[at:]], **limits) == whole, f"cut at {at}"


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.sse")), ids=lambda path: path.name)
def test_examples(backend: Backend, path: Path) -> None:
    assert len({told(backend, parts) for parts in feeds(path.read_bytes(), rounds=12)}) == 1


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_bytes(backend: Backend, kind: Any) -> None:
    data = BODIES["both"]
    assert told(backend, [kind(data[:50]), kind(data[50:])]) == told(backend, [data])
    wide = memoryview(bytes(b for byte in data for b in (byte, 0)))[::2]  # not contiguous
    assert told(backend, [wide]) == told(backend, [data])


@pytest.mark.parametrize("piece", ["text", None, 7, [1]])
def test_what_is_no_bytes(backend: Backend, piece: Any) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    with pytest.raises(TypeError, match=f"a piece must be bytes, bytearray or memoryview, not {type(piece).__name__}"):
        accumulator.feed(piece)
    accumulator.feed(BODIES["both"])
    assert accumulator.complete
