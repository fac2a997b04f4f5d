"""StreamFilter: what changes, that nothing else does, and that neither depends on the cuts; on both implementations."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deltafold
from conftest import ROOT, Backend, feeds, load, pieces
from deltafold import Limits

FOLDER = Path(os.environ.get("DELTAFOLD_STREAMS") or ROOT.parent / "shared" / "streams")
RECORDED = sorted(FOLDER.rglob("*.sse"))
ENDS = [b"\n", b"\r\n", b"\r"]


def filtered(backend: Backend, parts: list[bytes], fast: bool = True, **options: Any) -> bytes:
    relay = backend.StreamFilter(**options)
    if not fast:
        relay._set_fast_path(False)
    return b"".join([relay.feed(part) for part in parts] + [relay.close()])


def check(backend: Backend, body: bytes, expected: bytes, **options: Any) -> None:
    """The expected bytes for every cut, and the same with every LF as another line ending."""
    for end in ENDS:
        for parts in feeds(body.replace(b"\n", end)):
            assert filtered(backend, parts, **options) == expected.replace(b"\n", end)


# Options, what the upstream sends, what the client gets: b"" where that is the same, b"-" where it is nothing.
BEFORE = b': hello\n\nevent: x\ndata: {"n":1}\n\n'
AFTER = b"data: [DONE]\n\n"
M = {"model": "fast"}
D = {"drop_usage_chunk": True}
CASES: dict[str, tuple[dict[str, Any], bytes, bytes]] = {
    "model": (M, b'data: {"model":"m-1","choices":[]}\n\n', b'data: {"model":"fast","choices":[]}\n\n'),
    "odd spacing stays": (
        M,
        b'data:  { "a" : 1 ,"model" :\t"m" }  \n\n',
        b'data:  { "a" : 1 ,"model" :\t"fast" }  \n\n',
    ),
    "no space behind the colon": (M, b'data:{"model":"m"}\n\n', b'data:{"model":"fast"}\n\n'),
    "an empty model": (M, b'data: {"model":""}\n\n', b'data: {"model":"fast"}\n\n'),
    "a model that is no string": (M, b'data: {"model":null}\n\ndata: {"model":{"model":"m"}}\n\n', b""),
    "a model inside of something": (M, b'data: {"choices":[{"model":"m","delta":{"model":"m"}}]}\n\n', b""),
    "a model that holds escapes": (
        M,
        b'data: {"model":"a\\"b\\\\","x":"\\u00e9"}\n\n',
        b'data: {"model":"fast","x":"\\u00e9"}\n\n',
    ),
    "a name that is escaped": (M, b'data: {"mod\\u0065l":"m"}\n\n', b'data: {"mod\\u0065l":"fast"}\n\n'),
    "a model given twice": (M, b'data: {"model":"a","model":"b"}\n\n', b'data: {"model":"fast","model":"fast"}\n\n'),
    "an alias that needs escapes": (
        {"model": 'a"\\\né'},
        b'data: {"model":"m"}\n\n',
        'data: {"model":"a\\"\\\\\\né"}\n\n'.encode(),
    ),
    "id": ({"id": "r-1"}, b'data: {"id":"c-1","x":{"id":"c-1"}}\n\n', b'data: {"id":"r-1","x":{"id":"c-1"}}\n\n'),
    "id and model": ({"id": "r", **M}, b'data: {"model":"m","id":"c"}\n\n', b'data: {"model":"fast","id":"r"}\n\n'),
    "other fields and comments of the event": (
        M,
        b': c\nevent: message\nid: 7\n: c2\nfoo: bar\ndata: {"model":"m"}\nretry: 5\n\n',
        b': c\nevent: message\nid: 7\n: c2\nfoo: bar\ndata: {"model":"fast"}\nretry: 5\n\n',
    ),
    "several data lines": (
        M,
        b'data: {"model":\ndata: "m",\ndata:"x":1}\n\n',
        b'data: {"model":\ndata: "fast",\ndata:"x":1}\n\n',
    ),
    "a doubled prefix": (M, b'data: data: {"model":"m"}\n\n', b'data: data: {"model":"fast"}\n\n'),
    "forgotten blank lines": (
        M,
        b'data: {"model":"a"}\ndata: {"model":"b"}\ndata: [DONE]\n\n',
        b'data: {"model":"fast"}\ndata: {"model":"fast"}\ndata: [DONE]\n\n',
    ),
    "an array of chunks": (
        M,
        b'data: [{"model":"a"}, {"model":"b"}]\n\n',
        b'data: [{"model":"fast"}, {"model":"fast"}]\n\n',
    ),
    "an error on the last line": (
        M,
        b'data: {"model":"a\ndata: {"error":1,"model":"b"}\n\n',
        b'data: {"model":"a\ndata: {"error":1,"model":"fast"}\n\n',
    ),
    "an error event": (M, b'event: error\ndata: {"model":"m"}\n\n', b'event: error\ndata: {"model":"fast"}\n\n'),
    "ill-formed UTF-8": (
        M,
        b'data: {"x":"\xff\xc3","model":"\xe2\x82"}\n\n',
        b'data: {"x":"\xff\xc3","model":"fast"}\n\n',
    ),
    "what cannot be read": (
        M,
        b'data: [DONE]\n\ndata: {"model":"m"\n\ndata: "model"\n\ndata\n\ndata: {"model":"m"} x\n\ndata: [{"model":"m"},1]\n\n',
        b"",
    ),
    "raw lines": (M, b'{"error":{"model":"m"},"model":"m"}\nerror: {"model":"m"}\n\n', b""),
    "a JSON body": (M, b'{"object":"chat.completion","model":"m",\n"choices":[]}', b""),
    "too deep": (
        {**M, "limits": Limits(max_depth=2)},
        b'data: {"model":"m","a":[[]]}\n\ndata: {"model":"m","a":[]}\n\n',
        b'data: {"model":"m","a":[[]]}\n\ndata: {"model":"fast","a":[]}\n\n',
    ),
    "usage chunk": (D, b'data: {"choices":[],"usage":{"total_tokens":3}}\n\n', b"-"),
    "usage chunk without choices": (D, b'data: {"usage":{}}\n\ndata: {"usage":{},"choices":null}\n\n', b"-"),
    "usage chunk with other fields": (D, b'event: message\nid: 1\ndata: {"choices":[],"usage":{}}\n: c\n\n', b"-"),
    "usage null": (D, b'data: {"choices":[],"usage":null}\n\ndata: {"choices":[{"index":0}],"usage":null}\n\n', b""),
    "usage beside choices": (D, b'data: {"choices":[{"index":0}],"usage":{"total_tokens":3}}\n\n', b""),
    "usage beside an error": (
        D,
        b'data: {"usage":{},"error":{"m":1}}\n\ndata: {"object":"error","usage":{}}\n\nevent: error\ndata: {"usage":{}}\n\n',
        b"",
    ),
    "usage beside no error": (D, b'data: {"usage":{},"error":null}\n\n', b"-"),
    "a comment before a usage chunk": (D, b': c\ndata: {"usage":{}}\n\n', b": c\n"),
    "usage chunk on a line": (
        D,
        b'data: {"choices":[1]}\ndata: {"usage":{}}\ndata: [DONE]\n\n',
        b'data: {"choices":[1]}\ndata: [DONE]\n\n',
    ),
    "usage chunks on all lines": (D, b'data: {"usage":{"a":1}}\ndata: {"usage":{}}\n\n', b"-"),
    "usage chunk in an array": (D, b'data: [{"a":1} , {"usage":{}}]\n\n', b'data: [{"a":1}]\n\n'),
    "usage chunk first in an array": (D, b'data: [ {"usage":{}} , {"a":1} ]\n\n', b'data: [ {"a":1} ]\n\n'),
    "only usage chunks in an array": (D, b'data: [{"usage":{}}]\n\n', b"-"),
    "strip the first": ({"strip": ["a"]}, b'data: { "a" : 1 , "b" : 2 }\n\n', b'data: { "b" : 2 }\n\n'),
    "strip one between": ({"strip": ["b"]}, b'data: {"a":1, "b":[2] ,"c":3}\n\n', b'data: {"a":1 ,"c":3}\n\n'),
    "strip the last": ({"strip": ["b"]}, b'data: {"a":1 , "b":{"a":1} }\n\n', b'data: {"a":1 }\n\n'),
    "strip the only one": ({"strip": ["a"]}, b'data: { "a":1 }\n\n', b"data: {  }\n\n"),
    "strip all": ({"strip": ["b", "a"]}, b'data: {"a":1, "b":2}\n\n', b"data: {}\n\n"),
    "strip all but one": (
        {"strip": ["a", "b", "d", "e"]},
        b'data: {"a":1,"b":2,"c":3,"d":4,"e":5}\n\n',
        b'data: {"c":3}\n\n',
    ),
    "strip what is given twice": ({"strip": ["a"]}, b'data: {"a":1,"b":2,"a":3}\n\n', b'data: {"b":2}\n\n'),
    "strip deep": (
        {"strip": ("choices.delta.thinking",)},
        b'data: {"thinking":1,"choices":[{"delta":{"thinking":"r","content":"c"}},{"delta":{"content":"d"}}, 3]}\n\n',
        b'data: {"thinking":1,"choices":[{"delta":{"content":"c"}},{"delta":{"content":"d"}}, 3]}\n\n',
    ),
    "strip a path that ends early": (
        {"strip": ["a.b"]},
        b'data: {"a":"b"}\n\ndata: {"a":[["b"],null,{"c":{"b":1}}]}\n\n',
        b"",
    ),
    "strip both": ({"strip": ["a.b", "a", "a.c"]}, b'data: {"a":{"b":1},"z":0}\n\n', b'data: {"z":0}\n\n'),
    "strip across lines": (
        {"strip": ["b"]},
        b'data: {"a":1,\ndata: "b":2\ndata: }\n\n',
        b'data: {"a":1\ndata: \ndata: }\n\n',
    ),
    "strip a name beyond ASCII": (
        {"strip": ["é"]},
        'data: {"é":1,"a":2}\n\ndata: {"\\u00e9":1}\n\n'.encode(),
        b'data: {"a":2}\n\ndata: {}\n\n',
    ),
    "strip usage, drop the chunk": (
        {**D, "strip": ["usage"]},
        b'data: {"choices":[{}],"usage":null}\n\ndata: {"choices":[{}],"usage":{"a":1}}\n\ndata: {"choices":[],"usage":{}}\n\n',
        b'data: {"choices":[{}]}\n\ndata: {"choices":[{}]}\n\n',
    ),
    "strip beside the model": (
        {**M, "strip": ["id"]},
        b'data: {"model":"m","id":"i"}\n\n',
        b'data: {"model":"fast"}\n\n',
    ),
    "strip the model": ({**M, "strip": ["model"]}, b'data: {"model":"m","id":"i"}\n\n', b'data: {"id":"i"}\n\n'),
}


@pytest.mark.parametrize("name", CASES)
def test_changes(backend: Backend, name: str) -> None:
    options, body, expected = CASES[name]
    expected = {b"": body, b"-": b""}.get(expected, expected)
    check(backend, body, expected, **options)
    if not body.startswith(b"{"):
        check(backend, BEFORE + body + AFTER, BEFORE + expected + AFTER, **options)


def test_a_frame_may_end_in_cr_or_crlf(backend: Backend) -> None:
    # the LF behind the last CR goes with what it ends
    body = b'data: {"usage":{}}\r\n\r\ndata: 1\r\n\r\ndata: {"usage":{}}\r\r\n: c\r\n'
    for parts in feeds(body):
        assert filtered(backend, parts, **D) == b"data: 1\r\n\r\n: c\r\n"


def test_a_byte_order_mark_is_passed(backend: Backend) -> None:
    body = b'\xef\xbb\xbfdata: {"model":"m"}\n\n'
    check(backend, body, body.replace(b'"m"', b'"fast"'), **M)
    check(backend, b"\xef\xbb" + body, b"\xef\xbb" + body, **M)  # no mark, so no field: another line
    check(backend, b"\xef\xbb\xbf" + body, b"\xef\xbb\xbf" + body, **M)


@pytest.mark.parametrize("end", ENDS)
def test_options_off(backend: Backend, end: bytes) -> None:
    body = (BEFORE + b"\n".join(body for _, body, _ in CASES.values()) + b"\n\n\ndata: half").replace(b"\n", end)
    for parts in feeds(body):
        relay = backend.StreamFilter()
        for part in parts:
            assert relay.feed(part) is part
        assert relay.close() == b""


def test_the_piece_itself_when_nothing_changes(backend: Backend) -> None:
    relay = backend.StreamFilter(model="fast", drop_usage_chunk=True)
    for piece in (b'data: {"x":1}\n\n', b'data: {"x":2}\n\n', b": ping\n\ndata: [DONE]\n\n", b"data: a\r\n\r\n", b""):
        assert relay.feed(piece) is piece


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_other_bytes(backend: Backend, kind: Callable[[bytes], Any]) -> None:
    relay = backend.StreamFilter(model="fast")
    assert type(relay.feed(kind(b"data: 1\n\n"))) is bytes
    spread = b"".join(bytes([byte, 0]) for byte in b'data: {"model":"m"}')
    assert relay.feed(memoryview(spread)[::2]) == b""
    assert relay.feed(kind(b"\n\n")) == b'data: {"model":"fast"}\n\n'
    assert relay.inject(kind(b": ping")) == b": ping\n\n"


def test_only_one_frame_is_held(backend: Backend) -> None:
    relay = backend.StreamFilter(model="fast")
    assert relay.feed(b": pi") == b": pi"
    assert relay.feed(b"ng\nda") == b"ng\n"
    assert relay.feed(b'ta: {"model":"m"}\n') == b""
    assert relay.feed(b'\ndata: {"model":"n') == b'data: {"model":"fast"}\n\n'
    assert relay.feed(b'"}\n\n{"error"') == b'data: {"model":"fast"}\n\n{"error"'
    assert relay.feed(b":1}\n") == b":1}\n"
    assert relay.close() == b""


def test_past_the_limit(backend: Backend) -> None:
    large = b'data: {"model":"%s"}\n\n' % (b"m" * 40)
    small = b'data: {"model":"m"}\n\n'
    sent = small.replace(b'"m"', b'"fast"')
    check(backend, small + large + small, sent + large + sent, model="fast", limits=Limits(max_event_bytes=40))
    exactly = len(large)
    check(backend, large, large.replace(b"m" * 40, b"fast"), model="fast", limits=Limits(max_event_bytes=2 * exactly))
    relay = backend.StreamFilter(model="fast", limits=Limits(max_event_bytes=40))
    assert relay.feed(large[:40]) == b""
    assert relay.feed(large[40:41]) == large[:41]
    assert relay.feed(large[41:]) == large[41:]


def test_the_limit_counts_a_whole_frame(backend: Backend) -> None:
    frame = b'data: {"model":"m"}\n\n'
    for parts in feeds(frame * 3):
        assert (
            filtered(backend, parts, model="f", limits=Limits(max_event_bytes=21)) == frame.replace(b'"m"', b'"f"') * 3
        )
        assert filtered(backend, parts, model="f", limits=Limits(max_event_bytes=20)) == frame * 3


END_CASES = {
    b"data: [DONE]": b"data: [DONE]",
    b'data: {"model":"m"': b'data: {"model":"m"',
    b"dat": b"dat",
    b"data": b"data",
    b"id: 7\n": b"id: 7\n",
    b'data: {"model":"m"}': b'data: {"model":"fast"}',
    b'data: {"model":"m"}\n': b'data: {"model":"fast"}\n',
    b'data: {"model":"m"}\ndata: {"mod': b'data: {"model":"fast"}\ndata: {"mod',
    b'data: {"model":"m"}\nda': b'data: {"model":"fast"}\nda',
    b'data: {"usage":{}}\n': b"",
    b'data: {"usage":{': b'data: {"usage":{',
}


@pytest.mark.parametrize("rest", END_CASES)
def test_the_end_of_the_bytes(backend: Backend, rest: bytes) -> None:
    for parts in feeds(AFTER + rest):
        assert filtered(backend, parts, **M, **D) == AFTER + END_CASES[rest]


# Events of the caller's own


def test_inject_between_frames(backend: Backend) -> None:
    relay = backend.StreamFilter(model="fast")
    assert relay.inject(b": ping\n\n") == b": ping\n\n"
    assert relay.feed(b'data: {"model"') == b""
    assert relay.inject(b'data: {"error":{}}') == b'data: {"error":{}}\n\n'  # what is held is not sent yet
    assert relay.feed(b':"m"}\n\nda') == b'data: {"model":"fast"}\n\n'
    assert relay.inject(b"data: 1\r\n") == b"data: 1\r\n\n"
    assert relay.inject(b"data: 1\r\r") == b"data: 1\r\r"
    assert relay.inject(b"") == b""
    assert relay.feed(b"ta: 2\n\n") == b"data: 2\n\n"
    assert relay.close() == b""


@pytest.mark.parametrize("end", ENDS)
def test_inject_waits_for_a_boundary(backend: Backend, end: bytes) -> None:
    relay = backend.StreamFilter()
    assert relay.feed(b"data: 1" + end) == b"data: 1" + end
    assert relay.inject(b": a") == b""
    assert relay.inject(b": b\n\n") == b""
    assert relay.feed(b"data: 2" + end) == b"data: 2" + end
    assert relay.feed(end + b"data: 3" + end) == end + b": a\n\n: b\n\ndata: 3" + end
    assert relay.feed(end) == end
    assert relay.inject(b": c") == b": c\n\n"


def test_inject_within_a_line_that_passes(backend: Backend) -> None:
    relay = backend.StreamFilter(model="fast")
    assert relay.feed(b": pi") == b": pi"
    assert relay.inject(b"data: 1") == b""
    assert relay.feed(b"ng\n") == b"ng\ndata: 1\n\n"
    assert relay.feed(b'{"raw": 1}\n') == b'{"raw": 1}\n'
    assert relay.inject(b"data: 2") == b""
    assert relay.feed(b"data: 3\n") == b""
    assert relay.feed(b"\n") == b"data: 3\n\ndata: 2\n\n"
    assert relay.feed(b"half") == b"half"
    assert relay.inject(b"data: 4") == b""
    assert relay.close() == b""


@pytest.mark.parametrize("options", [{}, M])
def test_a_byte_order_mark_behind_an_injected_event_is_none(backend: Backend, options: dict[str, Any]) -> None:
    for parts in feeds(b"\xef\xbb\xbfdata: 1\n\n"):
        relay = backend.StreamFilter(**options)
        assert relay.inject(b": first") == b": first\n\n"
        assert b"".join(map(relay.feed, parts)) == b"data: 1\n\n"


# The caller's functions


def with_cost(usage: dict[str, Any]) -> dict[str, Any]:
    return {**usage, "cost": usage.get("total_tokens", 0) / 4}


SET_USAGE: dict[str, tuple[Callable[[dict[str, Any]], Any], bytes, bytes]] = {
    "a changed usage": (
        with_cost,
        b'data: {"usage" : { "total_tokens" : 3 } }\n\n',
        b'data: {"usage" : {"total_tokens":3,"cost":0.75} }\n\n',
    ),
    "beside choices": (
        with_cost,
        b'data: {"choices":[1],"usage":{}}\n\n',
        b'data: {"choices":[1],"usage":{"cost":0.0}}\n\n',
    ),
    "null": (with_cost, b'data: {"usage":null}\n\n', b'data: {"usage":null}\n\n'),
    "elsewhere": (with_cost, b'data: {"x_groq":{"usage":{}}}\n\n', b'data: {"x_groq":{"usage":{}}}\n\n'),
    "None": (lambda usage: None, b'data: {"usage":{ "a": 1 }}\n\n', b'data: {"usage":{ "a": 1 }}\n\n'),
    "the same": (lambda usage: usage, b'data: {"usage":{ "a": 1.50 }}\n\n', b'data: {"usage":{ "a": 1.50 }}\n\n'),
    "changed in place": (
        lambda usage: usage.update(a=2) or usage,
        b'data: {"usage":{"a":1}}\n\n',
        b'data: {"usage":{"a":2}}\n\n',
    ),
    "given twice": (
        with_cost,
        b'data: {"usage":{"a":1},"usage":{}}\n\n',
        b'data: {"usage":{"a":1},"usage":{"cost":0.0}}\n\n',
    ),
    "1 is not true": (lambda usage: {"a": True}, b'data: {"usage":{"a":1}}\n\n', b'data: {"usage":{"a":true}}\n\n'),
    "on two lines": (with_cost, b'data: {"usage":{\ndata: }}\n\n', b'data: {"usage":{"cost":0.0}\ndata: }\n\n'),
}


@pytest.mark.parametrize("name", SET_USAGE)
def test_set_usage(backend: Backend, name: str) -> None:
    function, body, expected = SET_USAGE[name]
    check(backend, body, expected, set_usage=function)


def test_set_usage_sees_what_is_left(backend: Backend) -> None:
    seen: list[Any] = []
    body = b'data: {"usage":{"a":1}}\n\ndata: {"usage":{"a":1,"b":2},"choices":[0]}\n\n'
    sent = filtered(backend, [body], set_usage=seen.append, drop_usage_chunk=True, strip=["usage.a"])
    assert sent == b'data: {"usage":{"b":2},"choices":[0]}\n\n'
    assert seen == [{"b": 2}]
    seen.clear()
    assert filtered(backend, [body], set_usage=seen.append, strip=["usage"]) == b'data: {}\n\ndata: {"choices":[0]}\n\n'
    assert seen == []


ON_CHUNK: dict[str, tuple[Callable[[dict[str, Any]], Any], bytes, bytes]] = {
    "a changed chunk": (lambda c: {**c, "é": 1}, b'data: { "a": 1 }\n\n', 'data: {"a":1,"é":1}\n\n'.encode()),
    "the same": (lambda c: c, b'data: { "a": 1.50 }\n\n', b'data: { "a": 1.50 }\n\n'),
    "changed in place": (lambda c: c.pop("a") and c, b'data: {"a":1, "b":2}\n\n', b'data: {"b":2}\n\n'),
    "dropped": (lambda c: None, b'event: x\ndata: {"a":1}\n\n', b""),
    "bytes": (lambda c: b'{"z": 1}', b'event: x\ndata:{"a":1} \n\n', b'event: x\ndata:{"z": 1} \n\n'),
    "no chunks": (lambda c: None, b'data: [DONE]\n\n: c\n\ndata: {"a"\n\n', b'data: [DONE]\n\n: c\n\ndata: {"a"\n\n'),
    "a line dropped": (
        lambda c: c.get("a"),
        b'data: {"a":{"b":1}}\ndata: {"c":1}\ndata: [DONE]\n\n',
        b'data: {"b":1}\ndata: [DONE]\n\n',
    ),
    "an entry dropped": (
        lambda c: c if "a" in c else None,
        b'data: [{"b":1}, {"a":1}, {"b":2}]\n\n',
        b'data: [{"a":1}]\n\n',
    ),
    "several lines": (lambda c: {"b": c["a"]}, b'data: {"a":\ndata: 1}\n\n', b'data: {"b":1}\ndata: \n\n'),
    "half a surrogate pair": (
        lambda c: {**c, "b": 1},
        b'data: {"a":"\\ud83d"}\n\n',
        b'data: {"a":"\\ud83d","b":1}\n\n',
    ),
    "ill-formed UTF-8": (lambda c: {"b": c["a"]}, b'data: {"a":"\xff"}\n\n', 'data: {"b":"\ufffd"}\n\n'.encode()),
}


@pytest.mark.parametrize("name", ON_CHUNK)
def test_on_chunk(backend: Backend, name: str) -> None:
    function, body, expected = ON_CHUNK[name]
    check(backend, body, expected, on_chunk=function)


def test_on_chunk_comes_last(backend: Backend) -> None:
    seen: list[Any] = []
    body = b'data: {"usage":{}}\n\ndata: {"model":"m","x":1,"usage":{},"choices":[0]}\n\n'
    filtered(backend, [body], on_chunk=seen.append, set_usage=with_cost, strip=["x"], **M, **D)
    assert seen == [{"model": "fast", "usage": {"cost": 0.0}, "choices": [0]}]


def test_a_function_that_raises_loses_its_event_only(backend: Backend) -> None:
    def refuse(chunk: dict[str, Any]) -> dict[str, Any]:
        if "bad" in chunk:
            raise LookupError("bad chunk")
        return chunk

    relay = backend.StreamFilter(on_chunk=refuse)
    body = b'data: 1\n\ndata: {"bad":1}\r\n\r\ndata: 2\n\ndata: {"bad":2}\n\ndata: 3\n\nda'
    with pytest.raises(LookupError, match="bad chunk"):
        relay.feed(body)
    with pytest.raises(LookupError):
        relay.feed(b"")
    assert relay.inject(b": ping") == b"data: 1\n\ndata: 2\n\n: ping\n\n"
    assert relay.feed(b"ta: 4\n\ndata") == b"data: 3\n\ndata: 4\n\n"
    assert relay.feed(b': {"bad":3}') == b""
    with pytest.raises(LookupError):
        relay.close()
    assert relay.close() == b""


def test_a_function_may_use_another_filter(backend: Backend) -> None:
    def change(chunk: dict[str, Any]) -> bytes:
        sent: bytes = backend.StreamFilter(model="inner").feed(b'data: {"x":1,"model":"m"}\n\n')
        return sent[6:-2]

    relay = backend.StreamFilter(model="outer", on_chunk=change)
    body = b'data: {"model":"a"}\ndata: {"model":"b"}\n\n'
    assert (
        relay.feed(body * 2)
        == body.replace(b'"a"', b'"inner"').replace(b'"b"', b'"inner"').replace(b"{", b'{"x":1,') * 2
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_chunk": lambda c: 1}, "on_chunk must return a dict, bytes or None, not int"),
        ({"set_usage": lambda u: []}, "set_usage must return a dict or None, not list"),
    ],
)
def test_a_function_returns_something_else(backend: Backend, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        backend.StreamFilter(**options).feed(b'data: {"usage":{}}\n\n')


def test_a_line_end_in_the_bytes_of_on_chunk(backend: Backend) -> None:
    with pytest.raises(ValueError, match="one line"):
        backend.StreamFilter(on_chunk=lambda chunk: b"{\n}").feed(b'data: {"a":1}\n\n')


def test_a_function_cannot_use_the_filter(backend: Backend) -> None:
    errors = []

    def use(chunk: dict[str, Any]) -> dict[str, Any]:
        for call in (lambda: relay.feed(b""), lambda: relay.inject(b""), relay.close):
            with pytest.raises(RuntimeError, match="the filter is in use") as caught:
                call()
            errors.append(caught.value)
        return chunk

    relay = backend.StreamFilter(on_chunk=use)
    assert relay.feed(b'data: {"a":1}\n\n') == b'data: {"a":1}\n\n'
    assert len(errors) == 3


# The observer


def test_the_observer_gets_the_upstreams_bytes(backend: Backend) -> None:
    body = b'data: {"model":"m","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n'
    body += b'data: {"model":"m","choices":[],"usage":{"total_tokens":3}}\n\ndata: [DONE]\n\n'
    for parts in feeds(body):
        acc = backend.ChatCompletionAccumulator()
        sent = filtered(backend, parts, observe=acc, **M, **D)
        assert acc.close_reason is None
        acc.close()
        assert acc.result() == backend.merge(body)
        assert (acc.model, acc.usage, acc.error) == ("m", {"total_tokens": 3}, None)
        assert backend.merge(sent)["model"] == "fast"


def test_the_other_implementations_accumulator(both: tuple[Backend, Backend]) -> None:
    pure, rust = both
    for filters, accumulates in ((pure, rust), (rust, pure)):
        acc = accumulates.ChatCompletionAccumulator()
        filters.StreamFilter(observe=acc).feed(b'data: {"model":"m"}\n\n')
        assert acc.model == "m"


class Broken:
    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.calls = 0

    def feed(self, piece: bytes) -> None:
        self.calls += 1
        raise self.error


def test_an_observer_that_raises_is_let_go(backend: Backend) -> None:
    observer = Broken(LookupError("mine"))
    relay = backend.StreamFilter(observe=observer, model="fast")
    assert relay.observe_error is None
    for _ in range(3):
        assert relay.feed(b'data: {"model":"m"}\n\n') == b'data: {"model":"fast"}\n\n'
    assert (relay.observe_error, observer.calls) == (observer.error, 1)


def test_a_closed_accumulator_is_let_go(backend: Backend) -> None:
    acc = backend.ChatCompletionAccumulator()
    acc.close()
    relay = backend.StreamFilter(observe=acc)
    assert relay.feed(b"data: 1\n\n") == b"data: 1\n\n"
    assert isinstance(relay.observe_error, ValueError)


def test_an_interrupt_is_no_fault_of_the_observer(backend: Backend) -> None:
    relay = backend.StreamFilter(observe=Broken(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        relay.feed(b"data: 1\n\n")


# Arguments and state


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"model": 1}, TypeError, "model must be a str or None, not int"),
        ({"id": b"x"}, TypeError, "id must be a str or None, not bytes"),
        ({"model": "\ud83d"}, ValueError, "surrogates not allowed"),
        ({"drop_usage_chunk": None}, TypeError, "drop_usage_chunk must be a bool, not NoneType"),
        ({"strip": "usage"}, TypeError, r"strip must be several names, such as \('usage',\), not one"),
        ({"strip": [1]}, TypeError, "a name in strip must be a str, not int"),
        ({"strip": ["a..b"]}, ValueError, r"'a\.\.b' in strip is no dotted path of names"),
        ({"strip": [""]}, ValueError, "'' in strip is no dotted path of names"),
        ({"strip": ["a.\ud83d"]}, ValueError, "surrogates not allowed"),
        ({"strip": None}, TypeError, "not iterable"),
        ({"set_usage": 1}, TypeError, "set_usage must be callable or None, not int"),
        ({"on_chunk": {}}, TypeError, "on_chunk must be callable or None, not dict"),
        ({"observe": 1}, TypeError, "observe must be an accumulator or None, not int"),
        ({"limits": 1}, TypeError, "limits must be a Limits or None, not int"),
    ],
)
def test_wrong_options(backend: Backend, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        backend.StreamFilter(**options)


def test_wrong_pieces(backend: Backend) -> None:
    relay = backend.StreamFilter()
    with pytest.raises(TypeError, match="a piece must be bytes, bytearray or memoryview, not str"):
        relay.feed("data")
    with pytest.raises(TypeError, match="an event must be bytes, bytearray or memoryview, not str"):
        relay.inject("data")
    with pytest.raises(TypeError):
        backend.StreamFilter("fast")


def test_closed(backend: Backend) -> None:
    relay = backend.StreamFilter()
    assert repr(relay) == "<StreamFilter open>"
    assert relay.close() == b""
    assert relay.close() == b""
    for call in (relay.feed, relay.inject):
        with pytest.raises(ValueError, match="the filter is closed"):
            call(b"")
    assert repr(relay) == "<StreamFilter closed>"


def test_copies_and_references(backend: Backend) -> None:
    relay = backend.StreamFilter()
    assert weakref.ref(relay)() is relay
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="a filter cannot be pickled or copied"):
            attempt(relay)


def test_a_cycle_is_collected(backend: Backend) -> None:
    class Owner:
        def __init__(self) -> None:
            self.relay = backend.StreamFilter(on_chunk=self.change, observe=self)

        def change(self, chunk: dict[str, Any]) -> dict[str, Any]:
            return chunk

        def feed(self, piece: bytes) -> None:
            pass

    owner = weakref.ref(Owner())
    gc.collect()
    assert owner() is None


def test_threads_with_a_filter_each(backend: Backend) -> None:
    body = b'data: {"model":"m","n":1}\n\n' * 50
    sent: list[bytes] = []

    def work() -> None:
        sent.append(filtered(backend, [body[i : i + 9] for i in range(0, len(body), 9)], **M))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sent == [body.replace(b'"m"', b'"fast"')] * 8


def test_it_is_exported() -> None:
    assert deltafold.StreamFilter is load(deltafold.BACKEND).StreamFilter


# Chunks that equal an earlier one but for their text, which are not read again


def chunk_event(text: str, **more: Any) -> bytes:
    chunk = {"model": "m", "choices": [{"index": 0, "delta": {"content": "#"}}], **more}
    return f"data: {json.dumps(chunk)}\n\n".replace("#", text).encode("utf-8", "surrogateescape")


ALIKE = ["a", "b", "", "x" * 300, '\\"}]', "\\\\", "\\u00e9\\ud83d", "é", "\udcff", "c", "c"]
NOT_ALIKE = [
    '"',
    "\\",
    "\\x",
    "\\u12",
    "\x01",
    "\t",
    "a\rb",
    "a\nb",
    "a\n\nb",
    '","model":"q","x":"',
    '"}}],"model":"q","y":[{"z":{"w":"',
]


@pytest.mark.parametrize("texts", [ALIKE + NOT_ALIKE + ALIKE, NOT_ALIKE])
@pytest.mark.parametrize(
    "extra", [{}, {"obfuscation": "k7"}, {"usage": {"total_tokens": 12}}, {"created": 1.5}, {"p": "ab"}]
)
def test_a_run_of_chunks_is_as_each_alone(backend: Backend, texts: list[str], extra: dict[str, Any]) -> None:
    events = [chunk_event(text, **extra) for text in texts]
    for options in (
        M,
        {"strip": ["choices.delta.content"]},
        {"strip": ["choices", "obfuscation"], **M},
        D,
        {"strip": ["usage"]},
    ):
        expected = b"".join(filtered(backend, [event], **options) for event in events if b"\r" not in event)
        whole = [event for event in events if b"\r" not in event]
        assert filtered(backend, whole, **options) == expected
        assert filtered(backend, [b"".join(whole)], **options) == expected
        assert filtered(backend, [*whole, *whole[::-1]], **options).startswith(expected)


NUMBERS = [
    "1",
    "0",
    "-0",
    "12e3",
    "1.50",
    "-7E-2",
    "9" * 30,
    "01",
    "1.",
    "-",
    "1e",
    "+1",
    "NaN",
    "-Infinity",
    "",
    "null",
    "1 ",
    "1,2",
]


def test_a_run_with_cr_lf(backend: Backend) -> None:
    body = b"".join(map(chunk_event, ALIKE)).replace(b"\n\n", b"\r\n\r\n")
    for parts in feeds(body):
        assert filtered(backend, parts, **M) == body.replace(b'"m"', b'"fast"')
    for end in (b"\r\n\r\n", b"\n\n", b"\r\r"):
        frame = b'data: {"model":"m"}' + end
        limits = Limits(max_event_bytes=len(frame) - (end == b"\r\n\r\n"))
        for parts in feeds(frame * 3):
            assert filtered(backend, parts, limits=limits, **M) == frame.replace(b'"m"', b'"fast"') * 3


def test_numbers_that_differ(backend: Backend) -> None:
    events = [
        b'data: {"model":"m","usage":{"a":%s,"b":3},"choices":[{"index":%s}]}\n\n' % (n, n)
        for n in map(str.encode, NUMBERS)
    ]
    expected = b"".join(filtered(backend, [event], **M) for event in events)
    assert filtered(backend, events, **M) == expected
    assert filtered(backend, events[::-1] + events, **M).endswith(expected)


def test_a_known_chunk_is_no_reason_to_exceed_the_limit(backend: Backend) -> None:
    limits = Limits(max_event_bytes=len(chunk_event("1234")))
    events = [chunk_event("1"), chunk_event("1234"), chunk_event("12345"), chunk_event("2")]
    expected = [event if b"12345" in event else event.replace(b'"m"', b'"fast"') for event in events]
    assert filtered(backend, events, model="fast", limits=limits) == b"".join(expected)


def test_an_error_that_differs_is_looked_at(backend: Backend) -> None:
    events = [b'data: {"usage":{"a":1},"error":%s}\n\n' % error for error in (b'"x"', b'""', b"1", b"0", b'"y"')]
    assert filtered(backend, events, **D) == events[0] + events[2] + events[4]
    objects = [b'data: {"usage":{},"object":"%s"}\n\n' % name for name in (b"error", b"x", b"error")]
    assert filtered(backend, objects, **D) == objects[0] + objects[2]


@pytest.mark.parametrize("member", ["error", "object"])
def test_what_decides_is_looked_at_however_often_it_differs(backend: Backend, member: str) -> None:
    decides = {"error": ("1", '"x"', "-7"), "object": ('"error"', '"err\\u006fr"')}[member]
    leaves = {"error": ("0", "0.0", '""', "-0"), "object": ('"x"', '"y"', '"z"', '"errors"')}[member]
    for values in (decides * 4 + leaves * 3, leaves * 3 + decides * 4, (*decides, *leaves) * 5):
        events = [b'data: {"usage":{"a":1},"%s":%s}\n\n' % (member.encode(), value.encode()) for value in values]
        kept = [event for event, value in zip(events, values) if value in decides]
        assert filtered(backend, events, **D) == b"".join(kept)


def test_ids_that_differ(backend: Backend) -> None:
    events = [b'data: {"id":"%d","x":"%d","model":"m%d"}\n\n' % (n, n, n) for n in range(12)]
    expected = [b'data: {"id":"%d","x":"%d","model":"fast"}\n\n' % (n, n) for n in range(12)]
    assert filtered(backend, events, **M) == b"".join(expected)
    expected = [b'data: {"id":"r","x":"%d","model":"fast"}\n\n' % n for n in range(12)]
    assert filtered(backend, events, id="r", **M) == b"".join(expected)


LOOKALIKES = [
    b'{"a":"\\"model\\":\\"m\\"","model":"m","choices":[{"model":"m","delta":{"content":"%s"}}]}',
    b'{"choices":[{"delta":{"content":"%s"},"model":"m"}],"x":{"model":"m"}}',
    b'{"choices":[{"delta":{"content":"%s"}}],"model":"m","mod\\u0065l":"n","model":null,"model" : "o"}',
    b'{"model":{"model":"%s"},"p":"%s","usage":{"model":"%s","a":[1,"%s"]}}',
    b'{"model":["%s"],"choices":"%s","usage":"%s","model":"%s"}',
]


@pytest.mark.parametrize("chunk", LOOKALIKES)
def test_what_only_looks_like_the_member(backend: Backend, chunk: bytes) -> None:
    texts = [b"", b"a", b'\\","model":\\"', b"}]}", b'\\"}],\\"model\\":\\"m\\"', "é😀".encode(), b"\\\\"]
    events = [b"data: " + chunk.replace(b"%s", text) + b"\n\n" for text in texts]
    alone = b"".join(filtered(backend, [event], fast=False, **M) for event in events)
    assert filtered(backend, events * 2, **M) == alone * 2
    for options in (
        {"strip": ["choices"], **M},
        {"strip": ["model", "usage"]},
        {"strip": ["choices.delta", "p"], **M},
        D,
    ):
        alone = b"".join(filtered(backend, [event], fast=False, **options) for event in events)
        assert filtered(backend, events * 2, **options) == alone * 2


def test_a_chunk_that_is_known_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    relay = load("pure").StreamFilter(model="fast")
    for text in ("a", "b"):
        relay.feed(chunk_event(text, created=1))
    monkeypatch.setattr("deltafold._pure.filter.read", lambda *_: pytest.fail("it was read"))
    for text in ("", "c", "\\n", "é"):
        assert relay.feed(chunk_event(text, created=1)) == chunk_event(text, created=1).replace(b'"m"', b'"fast"')
    with pytest.raises(pytest.fail.Exception):
        relay.feed(chunk_event("d", created=2))


# Properties

WORDS = [
    '"model":"m"', '"model" : "other"', '"model":null', '"id":"a"', '"id":7', '"usage":null', '"usage":{"a":1,"cost":0.5}',
    '"usage":{}', '"choices":[]', '"choices":null', '"choices":[{"index":0,"delta":{"content":"#"}}]',
    '"choices":[{"index":0,"delta":{"content":"#\\"\\ud83d","x":1}},{"delta":{"x":[1,{"y":2}]}}]', '"obfuscation":"#"',
    '"error":{"m":1}', '"error":null', '"object":"error"', '"mod\\u0065l":"e"', '"é":1', '"p":"#"', '"x":{"y":1,"z":[{"y":2},3]}',
    '"x":[{"y":1}]', '"n":NaN', '"\\ud83d":1', '"created":7',
]  # fmt: skip
TEXTS = ["", "a", "bcd", "é", "\\n", "\\", '"', "\udcff"]
PATHS = [
    "choices.delta.x",
    "choices",
    "usage",
    "x",
    "x.y",
    "x.z.y",
    "usage.a",
    "obfuscation",
    "é",
    "model",
    "choices.delta",
]
CHANGES: list[Callable[[dict[str, Any]], Any]] = [
    lambda value: value,
    lambda value: {**value, "new": "é\ud83d"},
    lambda value: {name: value[name] for name in value if name != "x"} or None,
]


def body_of(dice: random.Random) -> bytes:
    """Frames of chunks, in runs that differ in their text only, with all that servers and proxies do to them."""

    def chunk() -> str:
        inside = dice.choice([",", ", ", " ,\n"]).join(dice.choice(WORDS) for _ in range(dice.randint(0, 5)))
        return "{" + inside + dice.choice(["}", " }"])

    def data() -> str:
        other = [
            chunk()[:-1],
            "[DONE]",
            f"[{chunk()} , {chunk()}]",
            "\n".join([chunk(), chunk()]),
            "\n".join(["junk", chunk()]),
        ]
        return chunk() if dice.random() < 0.7 else dice.choice(other)

    parts = []
    for _ in range(dice.randint(0, 5)):
        lines = dice.choice(
            [[], [], [": ping"], ["event: error"], ["id: 1", "retry: 5"], ["foo: bar"], ['{"error":1}']]
        )
        lines = lines + [
            dice.choice(["data: ", "data: ", "data:", "data: data: "]) + line for line in data().split("\n")
        ]
        end = dice.choice(["\n", "\n", "\r\n", "\r"])
        frame = end.join(lines) + end + (end if dice.random() < 0.95 else "")
        parts += [frame.replace("#", dice.choice(TEXTS)) for _ in range(dice.choice([1, 1, 4]))]
    body = "".join(parts).encode("utf-8", "surrogateescape")
    return body if dice.random() < 0.8 else body[: dice.randint(0, len(body))]


def options_of(dice: random.Random) -> dict[str, Any]:
    choices: dict[str, Any] = {
        "model": dice.choice(["fast", 'é"\n', ""]),
        "id": "new",
        "drop_usage_chunk": True,
        "strip": dice.sample(PATHS, dice.randint(1, 3)),
        "set_usage": dice.choice(CHANGES[:2]),
        "on_chunk": dice.choice(CHANGES),
    }
    return {name: value for name, value in choices.items() if dice.random() < 0.4}


@settings(max_examples=400)
@given(st.integers(0, 2**64))
def test_both_send_the_same_for_every_cut(seed: int) -> None:
    dice = random.Random(seed)
    body, options = body_of(dice), options_of(dice)
    limits = Limits(max_event_bytes=dice.choice([20, 60, 10**6]), max_depth=dice.choice([3, 128]))
    cuts = [[body], [body[i : i + 1] for i in range(len(body))], list(pieces(body, dice, dice.choice([3, 40, 200])))]
    sent = {
        filtered(load(name), cut, fast, limits=limits, **options)
        for name in names()
        for cut in cuts
        for fast in (True, False)
    }
    assert len(sent) == 1
    if not options:
        assert sent == {body}


def names() -> list[str]:
    return ["pure"] if os.environ.get("DELTAFOLD_TEST_PURE_ONLY") == "1" else ["pure", "rust"]


@settings(max_examples=150)
@given(st.integers(0, 2**64))
def test_both_inject_at_the_same_places(seed: int) -> None:
    dice = random.Random(seed)
    body, options = body_of(dice), options_of(dice)
    parts = list(pieces(body, dice, 40))
    at = {dice.randint(0, len(parts)): b": p%d" % n for n in range(3)}
    sent = []
    for name in names():
        relay = load(name).StreamFilter(**options)
        sent.append([(relay.inject(at[n]) if n in at else b"", relay.feed(part)) for n, part in enumerate(parts)])
    assert all(one == sent[0] for one in sent)
    if not options:  # the same stream for a client that ignores comments
        data = [event.data for event in decoded(b"".join(map(b"".join, sent[0])))]
        assert data == [event.data for event in decoded(body)]


def decoded(body: bytes) -> list[Any]:
    return list(load("pure").SSEDecoder().feed(body))


def told(backend: Backend, body: bytes) -> dict[str, Any]:
    acc = backend.ChatCompletionAccumulator()
    acc.feed(body)
    acc.close()
    error = acc.error
    return {
        "result": acc.result(),
        "error": error and [error.kind, error.message, error.code],
        "finish": acc.finish_reasons,
        "complete": acc.complete,
        "usage": acc.usage,
    }


def same_but(before: dict[str, Any], after: dict[str, Any], **change: Any) -> bool:
    """As JSON, which knows 1 from 1.0 and one NaN as another."""
    wanted = {**before, "result": {**before["result"], **{n: v for n, v in change.items() if n in before["result"]}}}
    return json.dumps(wanted) == json.dumps(after)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.sse")), ids=lambda path: path.stem)
def test_the_merge_of_an_example_but_for_the_change(backend: Backend, path: Path) -> None:
    check_merge(backend, path.read_bytes())


def check_merge(backend: Backend, body: bytes) -> None:
    before = told(backend, body)
    parts = list(pieces(body, random.Random(len(body)), 1400))
    after = told(backend, filtered(backend, parts, model="fast", id="r-1"))
    assert same_but(before, after, model="fast", id="r-1")
    hidden = filtered(backend, parts, strip=["usage", "system_fingerprint"])
    gone = {name: value for name, value in before["result"].items() if name not in ("usage", "system_fingerprint")}
    kept = told(backend, hidden)["result"]
    assert {name: value for name, value in kept.items() if name != "usage"} == gone  # what x_groq had may be there now
    dropped = told(backend, filtered(backend, parts, drop_usage_chunk=True))
    for name in ("choices", "model", "id"):
        assert json.dumps(dropped["result"].get(name)) == json.dumps(before["result"].get(name))


@pytest.mark.skipif(not RECORDED, reason=f"no recorded streams in {FOLDER}")
def test_recorded_streams_pass_unchanged(backend: Backend) -> None:
    for path in RECORDED:
        body = path.read_bytes()
        dice = random.Random(path.name)
        for parts in ([body], list(pieces(body, dice, dice.choice([40, 700, 1400, 16384])))):
            assert filtered(backend, parts) == body, path
            assert filtered(backend, parts, strip=["no such name"], set_usage=lambda usage: None) == body, path


def recorded() -> Iterator[Path]:
    return (path for path in RECORDED if b"\ndata:" in b"\n" + path.read_bytes())


@pytest.mark.skipif(not RECORDED, reason=f"no recorded streams in {FOLDER}")
def test_recorded_streams_merge_to_the_same_but_for_the_change(both: tuple[Backend, Backend]) -> None:
    pure, rust = both
    for path in recorded():
        body = path.read_bytes()
        parts = list(pieces(body, random.Random(path.name), 1400))
        sent = filtered(rust, parts, model="fast", id="r-1", drop_usage_chunk=False)
        assert same_but(told(rust, body), told(rust, sent), model="fast", id="r-1"), path
        if len(body) < 100_000:
            assert filtered(pure, parts, model="fast", id="r-1") == sent, path
