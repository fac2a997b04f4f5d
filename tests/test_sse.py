"""`SSEDecoder` on both backends, whole and byte by byte; the pure `Machine`, whose twin is tested in rust/core/src/sse.rs.

Expected values are worked out by hand from the WHATWG HTML standard, sections 9.2.5 and 9.2.6.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deltafold import _events
from deltafold._errors import LimitExceeded
from deltafold._pure import sse
from deltafold._types import Limits, ServerSentEvent

E = ServerSentEvent


def decode(decoder: Any, pieces: list[bytes]) -> list[ServerSentEvent]:
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.close()


def ways(body: bytes) -> list[list[bytes]]:
    halves = [[body[:at], body[at:]] for at in range(1, len(body))]
    return [[body], [body[at : at + 1] for at in range(len(body))], *halves]


CASES: dict[str, tuple[bytes, list[ServerSentEvent]]] = {
    "nothing": (b"", []),
    "lf": (b"data: one\n\ndata: two\n\n", [E(data="one"), E(data="two")]),
    "cr": (b"data: one\r\rdata: two\r\r", [E(data="one"), E(data="two")]),
    "crlf": (b"data: one\r\n\r\ndata: two\r\n\r\n", [E(data="one"), E(data="two")]),
    "mixed line ends": (b"data: one\rdata: two\n\r\ndata: three\r\n\n", [E(data="one\ntwo"), E(data="three")]),
    "cr lf is one line end": (b"data: one\r\ndata: two\r\n\r\n", [E(data="one\ntwo")]),
    "lf cr is two line ends": (b"data: one\n\rdata: two\n\r", [E(data="one"), E(data="two")]),
    "cr ends the blank line at once": (b"data: x\r\n\r", [E(data="x")]),
    "no other line ends": (
        "data: a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\n\n".encode(),
        [E(data="a\u2028b\u2029c\x85d\x0be\x0cf\x1cg")],
    ),
    "one space is removed": (b"data:  x\n\ndata:x\n\ndata:\tx\n\n", [E(data=" x"), E(data="x"), E(data="\tx")]),
    "spaces at the end stay": (b"data: x \n\n", [E(data="x ")]),
    "first colon": (b"data:a:b: c\n\n", [E(data="a:b: c")]),
    "no colon": (b"data\ndata\n\n", [E(data="\n")]),
    "empty data is an event": (b"data:\n\ndata\n\ndata: \n\n", [E(), E(), E()]),
    "no data is no event": (b"event: x\n\nid: 1\n\n\n\n: c\n\n", []),
    "comments": (b":\n: x\ndata: 1\n:data: 2\ndata: 3\n\n", [E(data="1\n3")]),
    "event": (b"event: add\ndata: 1\n\ndata: 2\n\n", [E("add", "1"), E(data="2")]),
    "the last event name counts": (b"event: a\nevent: b\ndata: 1\n\n", [E("b", "1")]),
    "an empty event name is message": (b"event: a\nevent\ndata: 1\n\nevent:\ndata: 2\n\n", [E(data="1"), E(data="2")]),
    "an event name ends with its block": (b"event: a\n\ndata: 1\n\n", [E(data="1")]),
    "id persists": (
        b"id: 7\ndata: 1\n\ndata: 2\n\nid\ndata: 3\n\n",
        [E(data="1", id="7"), E(data="2", id="7"), E(data="3")],
    ),
    "id without data counts": (b"id: 7\n\ndata: 1\n\n", [E(data="1", id="7")]),
    "id with NUL is ignored": (b"id: 7\nid: 8\x009\ndata: 1\n\n", [E(data="1", id="7")]),
    "id may hold anything else": ("id: a b\t:é\ndata\n\n".encode(), [E(id="a b\t:é")]),
    "retry": (b"retry: 10\ndata: 1\n\ndata: 2\n\n", [E(data="1", retry=10), E(data="2")]),
    "retry waits for an event": (b"retry: 10\n\nretry: 11\nretry: x\n\ndata: 1\n\n", [E(data="1", retry=11)]),
    "retry of zeros": (b"retry: 000\ndata\n\n", [E(retry=0)]),
    "retry of many zeros": (b"retry: " + b"0" * 5000 + b"12\ndata\n\n", [E(retry=12)]),
    "retry up to u64": (
        b"retry: 18446744073709551615\ndata\n\nretry: 18446744073709551616\ndata\n\n",
        [E(retry=2**64 - 1), E()],
    ),
    "retry is no number": (
        "retry\nretry:\nretry: -1\nretry: 1e3\nretry:  5\nretry: 5 \nretry: 1_0\nretry: ٣\ndata\n\n".encode(),
        [E()],
    ),
    "names are exact": (
        b"Data: 1\nDATA: 2\n data: 3\ndata : 4\ndat: 5\ndatas: 6\ndata\x00: 7\ndata: 8\n\n",
        [E(data="8")],
    ),
    "error is no field": (b"error: 1\ndata: 2\n\nerror: 3\n\n", [E(data="2")]),
    "one bom": (b"\xef\xbb\xbfdata: 1\n\n", [E(data="1")]),
    "only one bom": (b"\xef\xbb\xbf\xef\xbb\xbfdata: 1\n\ndata: 2\n\n", [E(data="2")]),
    "bom and blank line": (b"\xef\xbb\xbf\ndata: 1\n\n", [E(data="1")]),
    "bom later": (b"data: 1\n\n\xef\xbb\xbfdata: 2\n\ndata: 3\n\n", [E(data="1"), E(data="3")]),
    "bom in a value": (b"data: \xef\xbb\xbf1\n\n", [E(data="\ufeff1")]),
    "half a bom": (b"\xef\xbbdata: 1\n\ndata: 2\n\n", [E(data="2")]),
    "half a bom and a line end": (b"\xef\ndata: 1\n\n", [E(data="1")]),
    "incomplete last event": (b"data: 1\n\ndata: 2\n", [E(data="1")]),
    "incomplete last line": (b"data: 1\n\ndata: 2", [E(data="1")]),
    "utf-8": ("data: é€😀\n\n".encode(), [E(data="é€😀")]),
    "nul in data": (b"data: a\x00b\n\n", [E(data="a\x00b")]),
    # A truncated 4-byte sequence is one maximal subpart; a surrogate's three bytes are three, since no sequence begins ED A0.
    "ill-formed utf-8": (
        b"data: \xf0\x9f\x98x\n\ndata: \xed\xa0\x80\n\ndata: \xc0\xaf\ndata: \xe2\x82\n\n",
        [E(data="\ufffdx"), E(data="\ufffd" * 3), E(data="\ufffd\ufffd\n\ufffd")],
    ),
    "ill-formed names": (b"event: \xff\nid: \xfe\ndata: 1\n\n", [E("\ufffd", "1", "\ufffd")]),
}


@pytest.mark.parametrize("name", CASES)
def test_stream(backend: Any, name: str) -> None:
    body, expected = CASES[name]
    for pieces in ways(body) if len(body) < 300 else [[body]]:
        assert decode(backend.SSEDecoder(), pieces) == expected, pieces


FLUSHED: dict[str, tuple[bytes, list[ServerSentEvent]]] = {
    "nothing": (b"", []),
    "whole": (b"data: 1\n\n", [E(data="1")]),
    "no blank line": (b"event: e\ndata: 1\n", [E("e", "1")]),
    "no line end": (b"id: 7\ndata: 1\ndata: 2", [E(data="1\n2", id="7")]),
    "cr": (b"data: 1\r", [E(data="1")]),
    "the line is no data": (b"data: 1\nevent: e", [E("e", "1")]),
    "the line is retry": (b"data: 1\nretry: 5", [E(data="1", retry=5)]),
    "bare name": (b"data", [E()]),
    "half a character": (b"data: \xe2\x82", [E(data="\ufffd")]),
    "no data": (b"event: e\nid: 5\n", []),
    "comment": (b"data: 1\n: x", [E(data="1")]),
    "half a bom": (b"\xef\xbb", []),
}


@pytest.mark.parametrize("name", FLUSHED)
def test_flush_incomplete(backend: Any, name: str) -> None:
    body, expected = FLUSHED[name]
    for pieces in ways(body):
        decoder = backend.SSEDecoder(flush_incomplete=True)
        assert decode(decoder, pieces) == expected, pieces
        assert decoder.bytes == len(body)
        assert decoder.close() == []


def test_events_come_with_the_byte_that_completes_them(backend: Any) -> None:
    decoder = backend.SSEDecoder()
    assert decoder.feed(b"data: a\r\n") == []
    assert decoder.feed(b"\r") == [E(data="a")]
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"data: b\n\ndata: c\n\ndata:") == [E(data="b"), E(data="c")]
    assert decoder.feed(b"d\n") == []
    assert decoder.feed(b"\n") == [E(data="d")]


def test_last_event_id_is_as_of_the_last_blank_line(backend: Any) -> None:
    decoder = backend.SSEDecoder()
    assert decoder.last_event_id == ""
    decoder.feed(b"id: 1\n")
    assert decoder.last_event_id == ""
    decoder.feed(b"\n")
    assert decoder.last_event_id == "1"
    decoder.feed(b"id: 2\ndata: x\n")
    assert decoder.last_event_id == "1"
    decoder.close()
    assert decoder.last_event_id == "1"


def test_retry_is_as_of_the_last_complete_line(backend: Any) -> None:
    decoder = backend.SSEDecoder()
    assert decoder.retry is None
    decoder.feed(b"retry: 30")
    assert decoder.retry is None
    decoder.feed(b"\nretry: soon\n")
    assert decoder.retry == 30
    decoder.feed(b"data: x\n\n")
    assert decoder.retry == 30


def test_counters(backend: Any) -> None:
    body = b"\xef\xbb\xbf: c\n:\ndata: 1\nunknown\nid: \x00\nretry: x\n\nid: 5\nretry: 6\n\ndata: 2\r\n\r\nx: y"
    for pieces in ways(body):
        decoder = backend.SSEDecoder()
        decode(decoder, pieces)
        counted = (decoder.bytes, decoder.events, decoder.comments, decoder.ignored_lines)
        assert counted == (len(body), 2, 2, 3)


def test_closed_until_reset(backend: Any) -> None:
    decoder = backend.SSEDecoder()
    decoder.feed(b"\xef\xbb\xbfid: 1\nretry: 2\ndata: 3\n\ndata: 4\r")
    assert decoder.close() == []
    assert decoder.close() == []
    for piece in (b"data: 5\n\n", b""):
        with pytest.raises(ValueError, match="closed"):
            decoder.feed(piece)
    decoder.reset()
    facts = (
        decoder.last_event_id,
        decoder.retry,
        decoder.bytes,
        decoder.events,
        decoder.comments,
        decoder.ignored_lines,
    )
    assert facts == ("", None, 0, 0, 0, 0)
    assert decoder.feed(b"\xef\xbb\xbfdata: 6\n\n") == [E(data="6")]


@pytest.mark.parametrize("wrong", ["data: x\n\n", None, 5, [b"data"], iter(b"x")])
def test_a_piece_is_bytes_like(backend: Any, wrong: Any) -> None:
    decoder = backend.SSEDecoder()
    with pytest.raises(TypeError, match=type(wrong).__name__):
        decoder.feed(wrong)
    assert decoder.feed(b"data: x\n\n") == [E(data="x")]


class Piece(bytes):
    """A caller's own kind of bytes."""


@pytest.mark.parametrize(
    "piece",
    [
        b"data: x\n\n",
        Piece(b"data: x\n\n"),
        bytearray(b"data: x\n\n"),
        memoryview(b"data: x\n\n"),
        memoryview(b"-data: x\n\n-")[1:-1],
        memoryview(b"\n\nx :atad")[::-1],
        memoryview(b"d-a-t-a-:- -x-\n-\n-")[::2],
        memoryview(b"data:xx\n\ndata:xx\n\n").cast("B", (3, 6)),
        memoryview(b"data: wxyz\n\n").cast("I"),
    ],
    ids=lambda piece: type(piece).__name__,
)
def test_bytes_like(backend: Any, piece: Any) -> None:
    decoder = backend.SSEDecoder()
    decoder.feed(piece)
    whole = backend.SSEDecoder()
    whole.feed(memoryview(piece).tobytes())
    assert decoder.events == whole.events > 0
    assert decoder.bytes == memoryview(piece).nbytes


def test_a_bytearray_may_change_afterwards(backend: Any) -> None:
    decoder, piece = backend.SSEDecoder(), bytearray(b"data: ab")
    decoder.feed(piece)
    piece[:] = b"\n\n"
    assert decoder.feed(piece) == [E(data="ab")]


def test_arguments(backend: Any) -> None:
    limits = Limits(max_event_bytes=9)
    for decoder in (backend.SSEDecoder(limits, True), backend.SSEDecoder(flush_incomplete=True, limits=limits)):
        decoder.feed(b"data: 12345678")
        assert decoder.close() == [E(data="12345678")]
    for arguments in (
        {"limits": 9},
        {"limits": {"max_event_bytes": 9}},
        {"flush_incomplete": "yes"},
        {"flush_incomplete": 1},
    ):
        with pytest.raises(TypeError):
            backend.SSEDecoder(**arguments)


def test_repr_and_name(backend: Any) -> None:
    decoder = backend.SSEDecoder(Limits(max_event_bytes=5))
    assert f"{type(decoder).__module__}.{type(decoder).__name__}" == "deltafold.SSEDecoder"
    assert repr(decoder) == "<deltafold.SSEDecoder: 0 bytes, 0 events, open>"
    decoder.feed(b"data\n\n")
    decoder.close()
    assert repr(decoder) == "<deltafold.SSEDecoder: 6 bytes, 1 events, closed>"
    decoder.reset()
    decoder.feed(b"data: 123456")
    assert repr(decoder) == "<deltafold.SSEDecoder: 12 bytes, 0 events, past its limit>"


# Limits. Size = data values + 1 for each finished data line + event + current id + the unfinished field's value.
# The last byte of each body is the one that passes a limit of 10; the offset is the first data line's, else the line's.

PASSING: dict[str, tuple[bytes, int]] = {
    "a value": (b"data: 12345678901", 0),
    "a value without the space": (b"data:12345678901", 0),
    "a second space is value": (b"data:  1234567890", 0),
    "the line feed": (b"data: 1234567890\n", 0),
    "the carriage return": (b"data: 1234567890\r", 0),
    "the second line": (b"data: 1234\ndata: 123456", 0),
    "the second line's end": (b"data: 1234\ndata: 12345\n", 0),
    "bare data lines": (b"data\n" * 11, 0),
    "an event name": (b"event: 12345678901", 0),
    "two event names": (b"event: 123456\nevent: 12345", 14),
    "an event name after data": (b"\ndata: 123\nevent: 1234567", 1),
    "data after an event name": (b"event: 12345\ndata: 123456", 13),
    "an id": (b": 0\nid: 12345678901", 4),
    "the current id": (b"id: 12345678\n\n\ndata: 12\n", 15),
    "a second id": (b"id: 123456\nid: 12345", 11),
    "a retry": (b"retry: 00000000001", 0),
    "a retry after data": (b"data: 1\nretry: 123456789", 0),
    "after a bom": (b"\xef\xbb\xbfdata: 12345678901", 3),
    "after an event": (b"data: 123456789\n\ndata: 12345678901", 17),
    "after crlf": (b"data: 123456789\r\n\r\ndata: 12345678901", 19),
}


@pytest.mark.parametrize("name", PASSING)
def test_limit_at_the_same_byte_for_every_cut(backend: Any, name: str) -> None:
    body, offset = PASSING[name]
    before = body.count(b"data: 123456789\n\n") + body.count(b"data: 123456789\r\n\r\n")
    for pieces in [[body[:-1]], *([body[:at], body[at:-1]] for at in range(len(body)))]:
        decoder = backend.SSEDecoder(Limits(max_event_bytes=10))
        assert len(decode(decoder, pieces)) == before

    for tail in (b"", b"456\n\ndata: x\n\n"):
        for pieces in ways(body + tail):
            decoder = backend.SSEDecoder(Limits(max_event_bytes=10))
            given, rest = 0, list(pieces)
            while rest and decoder.bytes < len(body):
                given += len(decoder.feed(rest.pop(0)))
            assert (given, decoder.events, decoder.bytes) == (before, before, len(body))
            for call in (lambda: decoder.feed(b""), decoder.close, lambda: decoder.feed(b"data: x\n\n"), decoder.close):
                with pytest.raises(LimitExceeded, match="max_event_bytes") as caught:
                    call()
                assert caught.value.offset == offset
            decoder.reset()
            assert decoder.feed(b"data: 1\n\n") == [E(data="1")]


FITTING = {
    "a value and its end": b"data: 123456789\n\n",
    "bare data lines": b"data\n" * 10 + b"\n",
    "event and id": b"event: 123\nid: 456\ndata: 789\n\n",
    "a replaced name": b"event: 12345\nevent: 12345\ndata: 1234\n\n",
    "a shorter id": b"id: 1234567\n\nid: 1\ndata: 12345678\n\n",
    "comments and unknown fields": b":"
    + b"c" * 99
    + b"\n"
    + b"u" * 99
    + b": x\nerror: "
    + b"e" * 99
    + b"\ndata: 1\n\n",
}


@pytest.mark.parametrize("name", FITTING)
def test_within_the_limit(backend: Any, name: str) -> None:
    for pieces in ways(FITTING[name]):
        assert len(decode(backend.SSEDecoder(Limits(max_event_bytes=10)), pieces)) == 1


def test_the_last_line_may_fill_the_limit_when_flushed(backend: Any) -> None:
    decoder = backend.SSEDecoder(Limits(max_event_bytes=10), flush_incomplete=True)
    assert decode(decoder, [b"data: 1234567890"]) == [E(data="1234567890")]


def test_type_errors_come_before_state_errors(backend: Any) -> None:
    decoder = backend.SSEDecoder()
    decoder.close()
    with pytest.raises(TypeError):
        decoder.feed("data")


# Size: large streams in small pieces.


@pytest.mark.parametrize("size", [100, 65536, 1 << 20])
def test_a_long_line(backend: Any, size: int) -> None:
    body = b"data: " + b"x" * (4 << 20) + b"\n\n"
    events = decode(backend.SSEDecoder(), [body[at : at + size] for at in range(0, len(body), size)])
    assert [len(event.data) for event in events] == [4 << 20]


def test_many_of_everything(backend: Any) -> None:
    assert decode(backend.SSEDecoder(), [b"\r" * (2 << 20)]) == []
    assert len(decode(backend.SSEDecoder(), [b"data\n\n" * 100_000])) == 100_000
    assert decode(backend.SSEDecoder(), [b"data:x\r\n" * 100_000 + b"\r\n"]) == [E(data="x\n" * 99_999 + "x")]
    decoder = backend.SSEDecoder()
    assert decode(decoder, [b"a\n" * (1 << 20)]) == []
    assert decoder.ignored_lines == 1 << 20


def test_events_share_one_id(backend: Any) -> None:
    decoder = backend.SSEDecoder()
    events = decoder.feed(b"id: " + b"i" * 90_000 + b"\n\n" + b"data\n\n" * 500)
    events += [event for _ in range(500) for event in decoder.feed(b"event: e\ndata\n\n")]
    assert len(events) == 1000
    assert len({id(event.id) for event in [*events, E(id=decoder.last_event_id)]}) == 1


class Counter:
    looked = 0


class CountedBytes(bytes):
    """A piece that counts the bytes searched in it and copied from it."""

    def find(self, *arguments: Any) -> int:
        found = bytes.find(self, *arguments)
        Counter.looked += (found if found >= 0 else len(self)) - arguments[1] + 1
        return found

    def __getitem__(self, key: Any) -> Any:
        part = bytes.__getitem__(self, key)
        Counter.looked += len(part) if isinstance(part, bytes) else 1
        return part


class CountedBuffer(bytearray):
    """A buffer that counts the bytes put into it, taken from it and copied whole."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        Counter.looked += len(self)

    def __iadd__(self, more: Any) -> Any:
        Counter.looked += len(more)
        return super().__iadd__(more)

    def __getitem__(self, key: Any) -> Any:
        part = bytearray.__getitem__(self, key)
        Counter.looked += len(part) if isinstance(part, bytearray) else 1
        return part

    def __bytes__(self) -> bytes:
        Counter.looked += len(self)
        return memoryview(self).tobytes()


HEAVY = {
    "one line": b"data: " + b"x" * 100_000 + b"\n\n",
    "carriage returns": b"\r" * 30_000,
    "smallest events": b"\xef\xbb\xbf" + b"data\n\n" * 10_000,
    "smallest lines": b"a\n" * 20_000,
    "data lines": b"data:\n" * 10_000,
    "crlf": b"id: 123456\r\ndata: x\r\ndata: y\r\n\r\n" * 2_000,
    "lines that are not kept": b":" * 50_000 + b"\nunknown" * 5_000,
}


@pytest.mark.parametrize("limit", [1 << 24, 1000])
@pytest.mark.parametrize("raw_lines", [False, True])
@pytest.mark.parametrize("name", HEAVY)
def test_every_byte_is_looked_at_a_bounded_number_of_times(
    monkeypatch: pytest.MonkeyPatch, name: str, raw_lines: bool, limit: int
) -> None:
    monkeypatch.setattr(sse, "bytearray", CountedBuffer, raising=False)
    body = HEAVY[name]
    for size in (1, 100, len(body)):
        machine = sse.Machine(limit, raw_lines)
        Counter.looked = 0
        for at in range(0, len(body), size):
            list(machine.feed(CountedBytes(body[at : at + size])))
        assert Counter.looked <= 9 * len(body)


# What cannot be said by examples: any stream, any cut, both implementations.

TOKENS = [
    b"\n",
    b"\n\n",
    b"\r",
    b"\r\n",
    b"data",
    b"data:",
    b"data: x\n\n",
    b"event:",
    b"event: e\n",
    b"id:",
    b"id: 7\n",
    b"id: \x00\n",
]
TOKENS += [
    b"retry:",
    b"retry: 12\n",
    b"9",
    b":",
    b" ",
    b"\xef\xbb\xbf",
    b"\xef\xbb",
    b"\xff",
    b"\xe2\x82",
    b"\x82",
    b"\xf0\x9f\x98\x80",
]
TOKENS += [
    b"error:",
    b"error: e\n",
    b"{",
    b"xyz",
    b"dat",
    b"\x00",
    "\u2028".encode(),
    "\x85".encode(),
    b"99999999999999999999",
]

streams = st.lists(st.sampled_from(TOKENS), max_size=30).map(b"".join)
cuts = st.lists(st.integers(0, 200), max_size=8)


def cut(body: bytes, at: list[int]) -> list[bytes]:
    marks = sorted(mark % (len(body) + 1) for mark in at)
    return [body[a:b] for a, b in zip([0, *marks], [*marks, len(body)], strict=True)]


def outcome(decoder: Any, pieces: list[bytes]) -> tuple[Any, ...]:
    events, error = [], None
    try:
        for piece in pieces:
            events += decoder.feed(piece)
        events += decoder.close()
    except LimitExceeded as raised:
        error = (raised.message, raised.offset)
    if error is None and "past its limit" in repr(decoder):
        with pytest.raises(LimitExceeded) as caught:
            decoder.close()
        error = (caught.value.message, caught.value.offset)
    counts = (decoder.bytes, decoder.events, decoder.comments, decoder.ignored_lines)
    return events, error, decoder.last_event_id, decoder.retry, counts, repr(decoder)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])  # the fixture holds no state
@given(streams, cuts, st.integers(1, 40), st.booleans())
def test_both_backends_and_every_cut_agree(both: Any, body: bytes, at: list[int], limit: int, flush: bool) -> None:
    results = [
        outcome(backend.SSEDecoder(Limits(max_event_bytes=limit), flush), pieces)
        for backend in both
        for pieces in ([body], cut(body, at), [body[i : i + 1] for i in range(len(body))])
    ]
    assert all(result == results[0] for result in results)


@settings(max_examples=400)
@given(streams, cuts, st.integers(1, 40))
def test_the_machine_gives_the_same_items_for_every_cut(body: bytes, at: list[int], limit: int) -> None:
    def items(pieces: list[bytes]) -> tuple[Any, ...]:
        machine = sse.Machine(limit, raw_lines=True)
        given = [item for piece in pieces for item in machine.feed(piece)]
        facts = {name: getattr(machine, name) for name in machine.__slots__ if not name.startswith("_")}
        return given, facts, machine.rest()

    assert items([body]) == items(cut(body, at)) == items([body[i : i + 1] for i in range(len(body))])


# The machine in raw-lines mode, as the accumulator uses it.


def raw(body: bytes, limit: int = 12) -> tuple[list[Any], sse.Machine]:
    machine = sse.Machine(limit, raw_lines=True)
    return list(machine.feed(body)), machine


def test_raw_lines_come_whole_until_data() -> None:
    items, machine = raw(b"<html>\n\n: c\nerror: e\nerror:\n<b>\ndata:1\n{x\nyy\n\n")
    assert items == [
        sse.RawLine(b"<html>", 0),
        sse.ErrorField(b"e", 12),
        sse.RawLine(b"{x", 39),
        sse.Event(b"1", b"", 32, b"", None),
    ]
    assert (machine.raw_kept, machine.ignored_lines, machine.comments, machine.events) == (8, 2, 1, 2)


def test_raw_lines_share_the_limit() -> None:
    items, machine = raw(b"123456\n123456\n1")
    assert items == [sse.RawLine(b"123456", 0), sse.RawLine(b"123456", 7), sse.Oversize(14)]
    assert machine.rest().line_skipped
    assert list(machine.feed(b"2\n3\ndata:1\n\n{\n")) == [sse.Event(b"1", b"", 19, b"", None), sse.RawLine(b"{", 27)]


def test_a_consumer_may_let_go_of_raw_lines() -> None:
    machine = sse.Machine(6, raw_lines=True)
    for item in machine.feed(b"123456\n" * 3):
        assert isinstance(item, sse.RawLine)
        assert machine.raw_kept == 6
        machine.raw_kept = 0


@pytest.mark.parametrize(("length", "kept"), [(65536, 1), (65537, 0)])
def test_a_raw_object_in_mid_stream_has_64_kib(length: int, kept: int) -> None:
    items, machine = raw(b"data:\n\n{" + b" " * (length - 1) + b"\n")
    assert len(items) == 1 + kept
    assert machine.ignored_lines == 1 - kept


def test_the_stream_goes_on_after_an_event_too_large() -> None:
    items, machine = raw(b"id: 1\n\nid: 2\ndata: 123\ndata: 1234567890\nid: 3\nerror: e\n{}\n: c\n\ndata: 4\n\n")
    assert items == [sse.Oversize(13), sse.Event(b"4", b"", 63, b"2", None)]
    assert (machine.blocks_oversize, machine.events, machine.comments, machine.ignored_lines) == (1, 1, 1, 1)


def test_an_id_too_large_is_not_applied() -> None:
    items, machine = raw(b"id: 1\n\nid: 123456789012\n\ndata: 2\n\n")
    assert items == [sse.Oversize(7), sse.Event(b"2", b"", 25, b"1", None)]
    assert machine.blocks_oversize == 0


@pytest.mark.parametrize(
    ("body", "rest"),
    [
        (b"", sse.Rest(None, b"", None, None, 0, False, False, False)),
        (b"data: a\r", sse.Rest(b"a", b"", 0, None, 8, False, False, False)),
        (b"event: e\ndata: a\ndata: b", sse.Rest(b"a", b"e", 9, b"data: b", 17, False, False, False)),
        (b"\xef\xbb", sse.Rest(None, b"", None, b"\xef\xbb", 0, False, False, False)),
        (b"\n: c", sse.Rest(None, b"", None, None, 1, True, False, False)),
        (b"data:\nother", sse.Rest(b"", b"", 0, None, 6, False, True, False)),
        (b"data: 1234567890123", sse.Rest(None, b"", None, None, 0, False, True, True)),
    ],
)
def test_rest(body: bytes, rest: sse.Rest) -> None:
    for pieces in ways(body):
        machine = sse.Machine(12, raw_lines=True)
        for piece in pieces:
            list(machine.feed(piece))
        assert machine.rest() == rest


# iter_events, aiter_events


def test_iter_events(monkeypatch: pytest.MonkeyPatch, backend: Any) -> None:
    monkeypatch.setattr(_events, "SSEDecoder", backend.SSEDecoder)
    events = _events.iter_events(iter([b"data: 1\n", bytearray(b"\ndata: 2\n\n"), b"data: 3"]))
    assert next(events) == E(data="1")
    assert list(events) == [E(data="2")]
    assert list(_events.iter_events([b"data: 3"], flush_incomplete=True)) == [E(data="3")]
    events = _events.iter_events([b"data: 1\n\ndata: 23"], limits=Limits(max_event_bytes=2), flush_incomplete=True)
    assert list(events) == [E(data="1"), E(data="23")]
    events = _events.iter_events([b"data: 1\n\ndata: 234\n\n"], limits=Limits(max_event_bytes=2))
    assert next(events) == E(data="1")
    with pytest.raises(LimitExceeded):
        next(events)


def test_aiter_events(monkeypatch: pytest.MonkeyPatch, backend: Any) -> None:
    monkeypatch.setattr(_events, "SSEDecoder", backend.SSEDecoder)

    async def source() -> AsyncIterator[bytes]:
        for piece in (b"data: 1\n", b"\ndata: 2\n\nda", b"ta: 3"):
            await asyncio.sleep(0)
            yield piece

    async def collect() -> list[ServerSentEvent]:
        return [event async for event in _events.aiter_events(source(), flush_incomplete=True)]

    assert asyncio.run(collect()) == [E(data="1"), E(data="2"), E(data="3")]


@pytest.mark.parametrize("single", [b"data: 1\n\n", bytearray(b"x"), memoryview(b"x"), "data: 1\n\n"])
def test_iter_events_refuses_a_single_piece(single: Any) -> None:
    with pytest.raises(TypeError, match="iterable"):
        _events.iter_events(single)
    with pytest.raises(TypeError, match="iterable"):
        _events.aiter_events(single)


# Two implementations, one interface.


def test_same_signatures_and_texts(both: Any) -> None:
    pure, rust = (backend.SSEDecoder for backend in both)
    assert str(inspect.signature(rust)) == "(limits=None, flush_incomplete=False)"
    assert list(inspect.signature(pure).parameters) == ["limits", "flush_incomplete"]
    public = [name for name in vars(pure) if not name.startswith("_")]
    assert sorted(public) == sorted(name for name in vars(rust) if not name.startswith("_"))
    assert inspect.getdoc(pure) == inspect.getdoc(rust)
    for name in public:
        assert inspect.getdoc(getattr(pure, name)) == inspect.getdoc(getattr(rust, name)), name


def test_streams_in_threads_do_not_meet(backend: Any) -> None:
    def work(number: int) -> None:
        decoder = backend.SSEDecoder()
        for turn in range(200):
            results[number] += decoder.feed(b"data: %d %d\n\n" % (number, turn))

    results: list[list[ServerSentEvent]] = [[] for _ in range(4)]
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[E(data=f"{number} {turn}") for turn in range(200)] for number in range(4)]
