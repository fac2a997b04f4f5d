"""Faults of the network and of proxies, injected everywhere: nothing raises, nothing before the fault is lost, no fault is hidden.

Each fault is put into one stream at every place where it can stand. What must hold is reasoned by hand, from where it stands.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import Backend
from streams import chunk, event

WORDS = ["Déjà", " vu", " 😀", " again", "."]
TEXT = [event(chunk({"content": word})) for word in WORDS]
STOP = event(chunk(finish_reason="stop"))
USAGE = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}})
DONE = b"data: [DONE]\n\n"
EVENTS = [*TEXT, STOP, USAGE, DONE]
STREAM = b"".join(EVENTS)
ENDS = list(itertools.accumulate(map(len, EVENTS)))  # the byte behind each event


def fed(backend: Backend, data: bytes, size: int = 0) -> Any:
    accumulator = backend.ChatCompletionAccumulator()
    for at in range(0, len(data), size or len(data) or 1):
        accumulator.feed(data[at : at + (size or len(data))])
    accumulator.close()
    accumulator.result_json().decode()
    return accumulator


def told(accumulator: Any) -> tuple[Any, ...]:
    error = accumulator.error
    kind = error and (error.kind, error.message, error.offset)
    return accumulator.result(), kind, accumulator.diagnostics, accumulator.counts, accumulator.complete


def arrived(size: int) -> int:
    """How many events are whole within the first ``size`` bytes."""
    return sum(end <= size for end in ENDS)


def test_cut_at_every_byte(backend: Backend) -> None:
    for size in range(len(STREAM) + 1):
        acc = fed(backend, STREAM[:size])
        whole = arrived(size)
        # Up to its two line ends an event is whole for the accumulator.
        late = whole < len(EVENTS) and size >= ENDS[whole] - 2
        counted = whole + late
        assert acc.text() == "".join(WORDS[:counted]), size
        assert acc.done_seen == (counted == 8)
        assert acc.finish_reasons == ({} if not counted else {0: "stop" if counted > 5 else None})
        assert (acc.usage is not None) == (counted > 6)
        cut = not late and size not in (0, *ENDS)
        assert acc.complete == (counted == 8 or counted > 5 and not cut), size
        kind = "not-sse" if 0 < size < len("data") else "truncated"  # a line `data` is a field already
        assert (acc.error and acc.error.kind) == (None if acc.complete else kind), size


def test_every_byte_flipped(backend: Backend) -> None:
    for at in range(len(STREAM)):
        for bit in (0x01, 0x80):
            data = STREAM[:at] + bytes([STREAM[at] ^ bit]) + STREAM[at + 1 :]
            acc = fed(backend, data)
            before = arrived(at)
            assert acc.text().startswith("".join(WORDS[: min(before, 5)])), (at, bit)
            assert acc.counts["bytes"] == len(STREAM)
            if before >= 6:
                assert acc.finish_reasons == {0: "stop"}
            if before == 0 or at < ENDS[6]:
                # Whatever happened to one event, the marks of the end came.
                assert acc.done_seen or at >= ENDS[6] - 2, (at, bit)
            assert told(acc) == told(fed(backend, data, 1)), (at, bit)


@pytest.mark.parametrize("fault", ["dropped", "doubled", "swapped"])
def test_events_dropped_doubled_and_swapped(backend: Backend, fault: str) -> None:
    for at in range(len(EVENTS) - 1):
        numbers = list(range(len(EVENTS)))
        if fault == "dropped":
            del numbers[at]
        elif fault == "doubled":
            numbers.insert(at, at)
        else:
            numbers[at : at + 2] = at + 1, at
        merged = numbers[: numbers.index(7)]
        acc = fed(backend, b"".join(EVENTS[i] for i in numbers))
        assert acc.text() == "".join(WORDS[i] for i in merged if i < 5)
        assert acc.finish_reasons == {0: "stop" if 5 in merged else None}
        assert (acc.usage or {}).get("total_tokens") == (8 if 6 in merged else None)
        assert acc.complete
        assert acc.done_seen
        assert acc.error is None
        assert acc.counts["after_done"] == len(numbers) - len(merged) - 1


PAGE = b"<html>\n<body>\n<h1>502 Bad Gateway</h1>\n</body>\n</html>\n"
FAULTS: dict[str, tuple[bytes, str | None]] = {
    "error event": (b'event: error\ndata: {"message":"overloaded","code":529}\n\n', "upstream-error"),
    "error chunk": (b'data: {"error":{"message":"overloaded","code":529}}\n\n', "upstream-error"),
    "error field": (b'error: {"message":"overloaded","code":529}\n', "upstream-error"),
    "bare error": (b'{"error":{"message":"overloaded","code":529}}\n', "upstream-error"),
    "page": (PAGE, None),
    "broken payload": (b'data: {"choices":[{"index":0,"del\n\n', "bad-json"),
    "BOM and a line": (b"\xef\xbb\xbfdata: x\n\n", None),
    "NUL": (b"\x00\n\n", None),
    "NUL as payload": (b"data: \x00\n\n", "bad-json"),
    "half a character as payload": (b"data: \xf0\x9f\x98\n\n", "bad-json"),
    "comments": (b": ping\r\n:\r: \xff\n\n", None),
    "blank lines": (b"\n\r\n\r\r\n", None),
    "unknown fields": (b"foo: bar\nid: \x00\nretry: x\nDATA: y\n data: z\n\n", None),
    "empty payloads": (b"data:\n\ndata: null\n\ndata: {}\n\ndata: : ping\n\n", None),
}


def injected(fault: bytes) -> Iterator[tuple[int, bytes]]:
    for at in range(len(EVENTS)):
        yield at, b"".join(EVENTS[:at]) + fault + b"".join(EVENTS[at:])


@pytest.mark.parametrize("name", FAULTS)
def test_something_else_at_every_boundary(backend: Backend, name: str) -> None:
    fault, kind = FAULTS[name]
    for at, data in injected(fault):
        acc = fed(backend, data)
        if at == 0 and name == "BOM and a line":
            kind_here = "bad-json"  # at the very beginning a BOM is a BOM, and the line is data
        else:
            kind_here = kind
        assert (acc.error and acc.error.kind) == kind_here, at
        assert acc.text() == "".join(WORDS)
        assert acc.finish_reasons == {0: "stop"}
        assert acc.usage == {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
        assert acc.complete
        if kind == "upstream-error":
            start = ENDS[at - 1] if at else 0
            assert (acc.error.message, acc.error.code) == ("overloaded", 529)
            assert acc.error.offset == start + (13 if name == "error event" else 0)
        assert told(acc) == told(fed(backend, data, 1)) == told(fed(backend, data, 7))


@pytest.mark.parametrize("name", FAULTS)
def test_the_stream_breaks_off_behind_something_else(backend: Backend, name: str) -> None:
    """A proxy's page or error in the place of the rest: never complete unless the end had come before."""
    fault, kind = FAULTS[name]
    for at in range(1, len(EVENTS)):
        acc = fed(backend, b"".join(EVENTS[:at]) + fault)
        assert acc.text() == "".join(WORDS[:at])
        assert acc.complete == (at > 5)
        assert (acc.error and acc.error.kind) == (kind or (None if at > 5 else "truncated"))


@pytest.mark.parametrize("ending", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_bom_change_nothing(backend: Backend, ending: bytes, bom: bytes) -> None:
    data = bom + STREAM.replace(b"\n", ending)
    expected = fed(backend, STREAM)
    for size in (0, 1, 2, 3, 50):
        acc = fed(backend, data, size)
        assert acc.result() == expected.result()
        assert (acc.error, acc.diagnostics, acc.complete) == (None, [], True)


def test_line_ends_mixed(backend: Backend) -> None:
    endings = itertools.cycle([b"\n", b"\r\n", b"\r", b"\r\n"])  # never LF behind CR: that would be one line end
    lines = STREAM.split(b"\n")[:-1]
    data = b"".join(line + next(endings) for line in lines)
    for size in (0, 1, 5):
        assert fed(backend, data, size).text() == "".join(WORDS)


def test_truncated_utf8(backend: Backend) -> None:
    """A character cut short inside a payload is replaced and counted; the event and its neighbours count."""
    for kept in (1, 2, 3):
        broken = TEXT[2].replace(b"\\ud83d\\ude00", "😀".encode()[:kept])
        acc = fed(backend, b"".join([*TEXT[:2], broken, *EVENTS[3:]]))
        assert acc.text() == "Déjà vu \ufffd again."
        assert [(d.kind, d.count, d.offset) for d in acc.diagnostics] == [("replaced-bytes", 1, ENDS[1])]
        assert acc.complete
        assert acc.error is None
