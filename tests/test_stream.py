"""Bodies → outcome: padding, forgotten blank lines, bodies that are no event stream, errors, the end of the bytes."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import pytest

import deltafold
from conftest import Backend
from deltafold import Seen
from streams import END, Outcome, chunk, event, merged, offset_of, same, sse

HI, STOP = chunk({"content": "hi"}), chunk(finish_reason="stop")
TEXT, STOP_TEXT = json.dumps(HI), json.dumps(STOP)


def error_of(outcome: Outcome) -> tuple[Any, ...]:
    assert outcome.error is not None
    return tuple(outcome.error[name] for name in ("kind", "message", "code", "offset"))


# Padding


@pytest.mark.parametrize("skipped", ["null", "{}", ": ping", ":", "  ", "\t\f", " null ", "\t{}\f"])
def test_padding_is_skipped(backend: Backend, skipped: str) -> None:
    outcome = merged(backend, HI, skipped, STOP, "[DONE]")
    assert outcome.texts == {0: "hi"}
    assert outcome.diagnostics == []
    assert outcome.error is None
    assert outcome.counts["chunks"] == 2
    assert outcome.counts["events"] == 4


@pytest.mark.parametrize("white", [" ", "\t", "\f", "  \t"])
def test_white_space_around_a_payload(backend: Backend, white: str) -> None:
    outcome = merged(backend, white + TEXT + white, STOP, white + "[DONE]" + white)
    assert (outcome.texts, outcome.done_seen, outcome.diagnostics) == ({0: "hi"}, True, [])


@pytest.mark.parametrize("white", [" ", "\t", "\f"])
def test_white_space_behind_a_payload(backend: Backend, white: str) -> None:
    outcome = merged(backend, TEXT + white, STOP, "[DONE]")
    assert (outcome.texts, outcome.done_seen, outcome.diagnostics) == ({0: "hi"}, True, [])


@pytest.mark.parametrize("prefix", ["data:", "data: ", "data: data: ", "data:data:\t"])
def test_a_repeated_prefix(backend: Backend, prefix: str) -> None:
    chunks = [STOP, prefix + TEXT, prefix + "[DONE]"]
    outcome = merged(backend, *chunks)
    assert (outcome.texts, outcome.done_seen) == ({0: "hi"}, True)
    assert outcome.diagnostics == [("repeated-data-prefix", 2, offset_of(chunks, 1))]


def test_nothing_is_merged_behind_done(backend: Backend) -> None:
    chunks = [HI, "[DONE]", HI, "not json", "[DONE]", {"error": "x"}, "null"]
    outcome = merged(backend, *chunks)
    assert (outcome.texts, outcome.complete, outcome.done_seen, outcome.error) == ({0: "hi"}, True, True, None)
    assert outcome.diagnostics == [("data-after-done", 5, offset_of(chunks, 2))]
    assert outcome.counts | {"bytes": 0} == {
        "bytes": 0,
        "events": 7,
        "chunks": 1,
        "after_done": 5,
        "content": 2,
        "reasoning": 0,
        "refusal": 0,
        "tool_arguments": 0,
    }
    assert outcome.seen == Seen.CONTENT | Seen.DONE


@pytest.mark.parametrize("word", ["[done]", "[DONE", "DONE", '"[DONE]"', "[DONE] "])
def test_only_done_is_done(backend: Backend, word: str) -> None:
    assert merged(backend, HI, STOP, word).done_seen == (word == "[DONE] ")


# Forgotten blank lines


def test_one_chunk_for_each_line(backend: Backend) -> None:
    data = f"data: {TEXT}\ndata: {TEXT}\ndata: null\ndata: {STOP_TEXT}\ndata: [DONE]\n\n".encode()
    outcome = merged(backend, data)
    assert (outcome.texts, outcome.done_seen, outcome.error) == ({0: "hihi"}, True, None)
    assert outcome.diagnostics == [("missing-blank-line", 1, 0)]
    assert outcome.counts["chunks"] == 3
    assert outcome.counts["events"] == 1


def test_lines_that_are_all_skipped(backend: Backend) -> None:
    outcome = merged(backend, sse(HI) + b"data: null\ndata: {}\n\n" + sse(STOP, "[DONE]"))
    assert (outcome.texts, outcome.error) == ({0: "hi"}, None)
    assert outcome.kinds == {"missing-blank-line": 1}
    assert outcome.counts["chunks"] == 2


def test_a_repeated_prefix_in_a_later_line(backend: Backend) -> None:
    outcome = merged(backend, f"data: {TEXT}\ndata: data: {STOP_TEXT}\n\n".encode())
    assert (outcome.texts, outcome.finish_reasons) == ({0: "hi"}, {0: "stop"})
    assert outcome.kinds == {"repeated-data-prefix": 1, "missing-blank-line": 1}


def test_an_object_over_several_lines_is_one(backend: Backend) -> None:
    lines = "\n".join(f"data: {line}" for line in json.dumps(HI, indent=1).split("\n"))
    outcome = merged(backend, lines.encode() + b"\n\n" + sse(*END))
    assert (outcome.texts, outcome.diagnostics) == ({0: "hi"}, [])


def test_a_broken_line_and_an_error(backend: Backend) -> None:
    data = event(HI) + b'data: {"id":"x\ndata: {"error":{"message":"gone","code":502}}\n\n'
    outcome = merged(backend, data)
    at = offset_of([HI], 1)
    assert error_of(outcome) == ("upstream-error", "gone", 502, at)
    assert outcome.diagnostics == [("bad-json", 1, at)]
    assert outcome.texts == {0: "hi"}


@pytest.mark.parametrize("last", ['{"error":null}', '{"a":1}', "x", '["error"]', '"error"'])
def test_a_broken_line_without_an_error(backend: Backend, last: str) -> None:
    outcome = merged(backend, event(HI) + b'data: {"id":"x\ndata: ' + last.encode() + b"\n\n" + sse(*END))
    assert error_of(outcome)[0] == "bad-json"
    assert outcome.kinds == {"bad-json": 1}
    assert outcome.complete


@pytest.mark.parametrize(
    ("word", "is_error"),
    [
        ("\\u0065rror", True),
        ("erro\\u0072", True),
        ("\\u0045rror", False),
        ("error\\u0020", False),
        ("chat\\u002ecompletion.chunk", False),
    ],
)
def test_a_word_is_what_its_escapes_spell(backend: Backend, word: str, is_error: bool) -> None:
    outcome = merged(backend, HI, '{"object":"' + word + '","message":"gone"}', *END)
    if is_error:
        assert error_of(outcome)[:2] == ("upstream-error", "gone")
        assert "message" not in outcome.result
    else:
        assert outcome.error is None
        assert outcome.result["message"] == "gone"


@pytest.mark.parametrize("name", ["error", "\\u0065rror", "erro\\u0072"])
def test_a_name_is_what_its_escapes_spell(backend: Backend, name: str) -> None:
    outcome = merged(backend, HI, '{"\\u0078":{"y":1},"' + name + '":{"m\\u0065ssage":"gone"}}', *END)
    assert error_of(outcome)[:2] == ("upstream-error", "gone")
    assert outcome.result["x"] == {"y": 1}


# Bodies that are no event stream

WHOLE = {
    "id": "x",
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\n\n"])
@pytest.mark.parametrize("before", [b"", b": note\n", b"\n\n"])
def test_a_whole_completion(backend: Backend, indent: int | None, end: bytes, before: bytes) -> None:
    outcome = merged(backend, before + json.dumps(WHOLE, indent=indent).encode() + end)
    assert same(outcome.result, WHOLE)
    assert (outcome.complete, outcome.done_seen, outcome.error) == (True, False, None)
    assert outcome.diagnostics == [("json-body", 1, len(before))]


def test_lines_of_json(backend: Backend) -> None:
    data = f"{TEXT}\n\n{TEXT}\n{STOP_TEXT}\n[DONE]\n".encode()
    outcome = merged(backend, data)
    assert (outcome.texts, outcome.done_seen, outcome.error) == ({0: "hihi"}, True, None)
    assert outcome.diagnostics == [("json-lines", 3, 0)]


def test_a_line_of_json_that_is_cut(backend: Backend) -> None:
    data = f"{TEXT}\n{STOP_TEXT}\n".encode()
    outcome = merged(backend, data + b'{"choices":[')
    assert outcome.texts == {0: "hi"}
    assert error_of(outcome)[0] == "truncated"
    assert outcome.diagnostics == [("json-lines", 2, 0), ("incomplete-event", 1, len(data))]


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        ({"error": {"message": "m", "code": "c", "type": "t"}}, "m", "c"),
        ({"error": {"message": "m", "code": None, "type": "t"}}, "m", "t"),
        ({"error": "m", "code": 7}, "m", 7),
        ({"object": "error", "message": "m", "type": "t"}, "m", "t"),
        ({"message": "m", "status": 401}, "m", None),
        ({"detail": "m"}, "m", None),
        ({"detail": [{"loc": ["body"], "msg": "é"}]}, '[{"loc":["body"],"msg":"é"}]', None),
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_an_error_body(backend: Backend, body: dict[str, Any], message: str, code: Any, indent: int | None) -> None:
    outcome = merged(backend, json.dumps(body, indent=indent).encode())
    assert error_of(outcome) == ("upstream-error", message, code, 0)
    assert outcome.error is not None
    assert same(outcome.error["body"], body.get("error", body))
    assert outcome.diagnostics == [("json-body", 1, 0)]
    assert outcome.result["choices"] == []
    assert not outcome.complete


@pytest.mark.parametrize(
    "body", ["<html>\n<body>502", "Bad Gateway", '{"ok":true}', "[]", '"x"', "17", '{"a":', "event stream"]
)
def test_what_is_nothing_we_know(backend: Backend, body: str) -> None:
    outcome = merged(backend, body.encode())
    assert outcome.error is not None
    assert (outcome.error["kind"], outcome.error["offset"], outcome.error["code"]) == ("not-sse", 0, None)
    assert body[:8].replace("\n", "\\n") in outcome.error["message"]
    assert not outcome.complete


def test_the_excerpt_is_short_and_escaped(backend: Backend) -> None:
    outcome = merged(backend, b"<\x1b[31m\xe2\x80\xae" + b"x" * 500)
    assert outcome.error is not None
    assert "<\\x1b[31m\\u202exxx" in outcome.error["message"]
    assert "x" * 80 not in outcome.error["message"]


@pytest.mark.parametrize(
    "body", [b"", b"\n", b": ping\n\n: ping\n\n", b"\xef\xbb\xbf", b"id: 1\n\n", b"event: ping\n\n"]
)
def test_an_empty_body_is_truncated(backend: Backend, body: bytes) -> None:
    outcome = merged(backend, body)
    assert outcome.error is not None
    assert (outcome.error["kind"], outcome.error["offset"]) == ("truncated", len(body))
    assert outcome.diagnostics == []


def test_text_before_the_first_event_is_dropped(backend: Backend) -> None:
    outcome = merged(backend, b"HTTP ok\n" + sse(HI, *END))
    assert (outcome.texts, outcome.error, outcome.diagnostics) == ({0: "hi"}, None, [])


def test_a_bare_error_between_events(backend: Backend) -> None:
    line = b'{"error":{"message":"down","type":"server_error"}}\n'
    outcome = merged(backend, event(HI) + line + sse(*END))
    assert error_of(outcome) == ("upstream-error", "down", "server_error", offset_of([HI], 1))
    assert outcome.diagnostics == [("raw-error-line", 1, offset_of([HI], 1))]
    assert outcome.complete


@pytest.mark.parametrize(
    "line", [b'{"error":null}\n', b'{"a":1}\n', b'["error"]\n', b"error\n", b'{"error":1\n', b' {"error":1}\n']
)
def test_other_lines_between_events_are_skipped(backend: Backend, line: bytes) -> None:
    outcome = merged(backend, event(HI) + line + sse(*END))
    assert (outcome.error, outcome.diagnostics, outcome.texts) == (None, [], {0: "hi"})


@pytest.mark.parametrize(("filler", "found"), [(65536 - 14, True), (65536 - 13, False)])
def test_a_bare_error_of_64_kib(backend: Backend, filler: int, found: bool) -> None:
    line = b'{"error":"' + b"x" * (filler + 2) + b'"}'
    assert len(line) == filler + 14
    outcome = merged(backend, event(HI) + line + b"\n" + sse(*END))
    assert (outcome.error is not None) == found


# Error events and error fields


@pytest.mark.parametrize(
    ("data", "message", "code", "body"),
    [
        ('{"message":"m","code":5}', "m", 5, {"message": "m", "code": 5}),
        ('{"error":{"message":"m","type":"t"}}', "m", "t", {"message": "m", "type": "t"}),
        ('"m"', "m", None, "m"),
        ("plain m", "plain m", None, "plain m"),
        ("17", "17", None, "17"),
        ('{"a":1}', '{"a":1}', None, {"a": 1}),
    ],
)
def test_error_event(backend: Backend, data: str, message: str, code: Any, body: Any) -> None:
    frame = f"event: error\ndata: {data}\n\n".encode()
    outcome = merged(backend, event(HI) + frame + sse(*END))
    assert error_of(outcome) == ("upstream-error", message, code, offset_of([HI], 1) + len("event: error\n"))
    assert outcome.error is not None
    assert same(outcome.error["body"], body)
    assert (outcome.complete, outcome.texts) == (True, {0: "hi"})
    assert "message" not in outcome.result


def test_the_members_of_an_error_are_not_merged(backend: Backend) -> None:
    members = {name: name for name in ("message", "code", "type", "param", "detail", "status")}
    for data in (
        b"event: error\ndata: " + json.dumps(members | {"more": 1, "id": "i"}).encode() + b"\n\n",
        event({"object": "error", **members, "more": 1, "id": "i"}),
    ):
        outcome = merged(backend, data)
        assert same(outcome.result, {"id": "i", "object": "chat.completion", "choices": [], "more": 1})
    kept = merged(backend, {"error": "x", **members}).result
    assert {name: kept[name] for name in members} == members


@pytest.mark.parametrize(
    ("value", "message", "code"),
    [
        (' {"code":500,"message":"m","type":"t"}', "m", 500),
        (' {"error":{"message":"m"}}', "m", None),
        ("m", "m", None),
        (' "m"', "m", None),
    ],
)
def test_error_field(backend: Backend, value: str, message: str, code: Any) -> None:
    outcome = merged(backend, event(HI) + f"error:{value}\n".encode() + sse(*END))
    assert error_of(outcome) == ("upstream-error", message, code, offset_of([HI], 1))
    assert outcome.diagnostics == [("error-field", 1, offset_of([HI], 1))]
    assert outcome.counts["events"] == 4


@pytest.mark.parametrize("line", ["error:", "error: ", "error"])
def test_an_empty_error_field(backend: Backend, line: str) -> None:
    assert merged(backend, event(HI) + line.encode() + b"\n" + sse(*END)).error is None


# JSON


@pytest.mark.parametrize(("word", "value"), [("NaN", math.nan), ("Infinity", math.inf), ("-Infinity", -math.inf)])
def test_words_for_numbers(backend: Backend, word: str, value: float) -> None:
    outcome = merged(backend, '{"x":[' + word + "," + word + "]}", *END)
    assert [repr(v) for v in outcome.result["x"]] == [repr(value)] * 2
    assert b'"x":[null,null]' in outcome.result_json
    assert outcome.diagnostics == [("non-finite-number", 2, 0)]


def test_a_float_beyond_all_is_infinity(backend: Backend) -> None:
    outcome = merged(backend, '{"x":1E400,"y":-1e999}', *END)
    assert (outcome.result["x"], outcome.result["y"]) == (math.inf, -math.inf)
    assert b'"x":null,"y":null' in outcome.result_json
    assert outcome.diagnostics == []


@pytest.mark.parametrize("word", ["nan", "inf", "+Infinity", "-NaN", "Infinit", "undefined", "True"])
def test_other_words_are_bad_json(backend: Backend, word: str) -> None:
    assert error_of(merged(backend, '{"x":' + word + "}", *END))[0] == "bad-json"


def test_the_last_of_equal_keys(backend: Backend) -> None:
    result = merged(backend, '{"x":1,"id":"a","x":2,"id":"b","choices":[{"index":9}],"choices":[]}', *END).result
    assert same(result["x"], 2)
    assert result["id"] == "b"
    assert [c["index"] for c in result["choices"]] == [0]


@pytest.mark.parametrize(
    ("wire", "value"),
    [
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("-9223372036854775809", -9223372036854775809),
        ("18446744073709551616", 2**64),
        ("-0", 0),
        ("-0.0", -0.0),
        ("0.1000000000000000055511151231257827", 0.1),
        ("2.2250738585072014e-308", 2.2250738585072014e-308),
        ("9007199254740993.0", 9007199254740992.0),
        ("1.7976931348623157e308", sys.float_info.max),
        ("5e-324", 5e-324),
        ("1e-400", 0.0),
        ("1e5", 100000.0),
        ("1E+2", 100.0),
    ],
)
def test_numbers(backend: Backend, wire: str, value: Any) -> None:
    outcome = merged(backend, '{"x":' + wire + "}", *END)
    assert repr(outcome.result["x"]) == repr(value)
    assert json.loads(outcome.result_json)["x"] == value
    assert outcome.diagnostics == []


@pytest.mark.parametrize(("digits", "fits"), [(4300, True), (4301, False)])
def test_integers_of_4300_digits(backend: Backend, digits: int, fits: bool) -> None:
    before = sys.get_int_max_str_digits() if hasattr(sys, "get_int_max_str_digits") else None
    accumulator = backend.ChatCompletionAccumulator()
    accumulator.feed(sse('{"x":' + "7" * digits + "}"))
    assert ("x" in accumulator.result()) == fits
    if fits:
        assert accumulator.result()["x"] == (10**digits - 1) // 9 * 7
    else:
        assert accumulator.error.kind == "bad-json"
    if before is not None:
        assert sys.get_int_max_str_digits() == before


@pytest.mark.parametrize(
    ("fragments", "expected", "lone"),
    [
        (["\\ud83d", "\\ude00"], "\U0001f600", 0),
        (["\\ud83d", "", "\\ude00"], "\U0001f600", 0),
        (["\\ud83d\\ude00"], "\U0001f600", 0),
        (["\\ud83d", "x"], "\ufffdx", 1),
        (["\\ude00", "\\ud83d"], "\ufffd\ufffd", 2),
        (["\\ud83d", "\\ud83d", "\\ude00"], "\ufffd\U0001f600", 1),
        (["a\\ud83d"], "a\ufffd", 1),
        (["\\ude00\\ude00"], "\ufffd\ufffd", 2),
        (["\\u0000"], "\0", 0),
        (["\u2028\u2029\u0085"], "\u2028\u2029\u0085", 0),
    ],
)
@pytest.mark.parametrize("name", ["content", "refusal", "reasoning_content", "extra"])
def test_surrogate_halves(backend: Backend, fragments: list[str], expected: str, lone: int, name: str) -> None:
    outcome = merged(backend, *('{"choices":[{"index":0,"delta":{"%s":"%s"}}]}' % (name, f) for f in fragments), *END)  # noqa: UP031
    assert outcome.message[name] == expected
    assert outcome.kinds == ({"lone-surrogate": lone} if lone else {})
    outcome.result_json.decode()


def test_when_a_half_is_decided(backend: Backend) -> None:
    texts = ["\\ud83d", "", "x", "\\udc00", "\\ud83d"]
    chunks = ['{"choices":[{"index":0,"delta":{"content":"' + text + '"}}]}' for text in texts]
    first = merged(backend, *chunks, *END)
    assert first.diagnostics == [("lone-surrogate", 3, offset_of(chunks, 2))]
    assert first.texts == {0: "\ufffdx\ufffd\ufffd"}
    pending = merged(backend, chunks[0])
    assert pending.diagnostics == [("lone-surrogate", 1, len(sse(chunks[0])))]


def test_halves_in_whole_values_and_keys(backend: Backend) -> None:
    outcome = merged(backend, '{"id":"\\ud83d","\\ude00":["\\udfff",{"\\ud83d":1}]}', *END)
    assert outcome.result["id"] == "\ufffd"
    assert outcome.result["\ufffd"] == ["\ufffd", {"\ufffd": 1}]
    json.dumps(outcome.result, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("value", "lone"),
    [
        ('["\\ud83d","\\ude00 \\udfff"]', 3),
        ('[["\\ud83d\\ude00",{"k":"\\ud83d"}],"\\ud83d\\ud83d\\ude00"]', 2),
        ('[{"\\ud83d":1}]', 0),
        ('["\\u0041"]', 0),
    ],
)
def test_every_half_in_a_whole_value_counts(backend: Backend, value: str, lone: int) -> None:
    outcome = merged(backend, '{"x":' + value + "}", *END)
    assert outcome.kinds == ({"lone-surrogate": lone} if lone else {})


def test_pairs_of_escapes_in_keys(backend: Backend) -> None:
    assert merged(backend, '{"\\ud83d\\ude00":1,"\U0001f600":2}', *END).result["\U0001f600"] == 2


@pytest.mark.parametrize(
    "payload",
    [
        "{",
        "{'a':1}",
        '{"a":1,}',
        "x",
        '{"a":1} x',
        '{"a":01}',
        '{"a":"\t"}',
        "17",
        '"x"',
        "[]",
        "[1]",
        "[{},1]",
        "true",
    ],
)
def test_bad_json_is_skipped(backend: Backend, payload: str) -> None:
    chunks = [HI, payload, payload, *END]
    outcome = merged(backend, *chunks)
    assert outcome.error is not None
    assert (outcome.error["kind"], outcome.error["offset"], outcome.error["code"]) == (
        "bad-json",
        offset_of(chunks, 1),
        None,
    )
    assert outcome.diagnostics == [("bad-json", 2, offset_of(chunks, 1))]
    assert (outcome.complete, outcome.texts) == (True, {0: "hi"})


def test_an_array_of_objects_stands_for_its_entries(backend: Backend) -> None:
    outcome = merged(backend, json.dumps([HI, HI, STOP]))
    assert (outcome.texts, outcome.complete, outcome.error) == ({0: "hihi"}, True, None)
    assert outcome.counts["chunks"] == 3
    assert outcome.counts["events"] == 1


@pytest.mark.parametrize(
    ("bad", "replaced"),
    [
        (b"\xff", 1),
        (b"\xe2\x82", 1),
        (b"\xf0\x9f\x98x", 1),
        (b"\xc0\xaf", 2),
        (b"\xed\xa0\x80", 3),
        (b"\xf5\x80", 2),
        (b"\xe2\x28", 1),
    ],
)
def test_ill_formed_utf8(backend: Backend, bad: bytes, replaced: int) -> None:
    frame = event(HI).replace(b"hi", b"a" + bad + b"b" + bad)
    outcome = merged(backend, frame + event(STOP).replace(b"stop", b"\xff") + b"data: [DONE]\n\n")
    assert outcome.texts[0].count("\ufffd") == 2 * replaced
    assert outcome.texts[0] == b"".join([b"a", bad, b"b", bad]).decode("utf-8", "replace")
    assert outcome.choice["finish_reason"] == "\ufffd"
    assert outcome.diagnostics == [("replaced-bytes", 2, 0)]


def nested(depth: int) -> str:
    return '{"x":' + "[" * (depth - 1) + "]" * (depth - 1) + "}"


@pytest.mark.parametrize("limit", [1, 3, 128])
def test_depth(backend: Backend, limit: int) -> None:
    chunks = [nested(limit) if limit > 1 else '{"x":1}', nested(limit + 1), '{"y":1}']
    outcome = merged(backend, *chunks, limits={"max_depth": limit})
    assert "x" in outcome.result
    assert "y" in outcome.result
    assert error_of(outcome)[0] == "limit-exceeded"
    assert error_of(outcome)[3] == offset_of(chunks, 1)
    assert outcome.counts["chunks"] == 2


@pytest.mark.parametrize(
    ("payload", "kind"), [('{"a":[[[', "limit-exceeded"), ('{"a":x[[[', "bad-json"), ('{"a":[[[]]]', "limit-exceeded")]
)
def test_the_first_fault_in_the_text_decides(backend: Backend, payload: str, kind: str) -> None:
    assert error_of(merged(backend, payload, *END, limits={"max_depth": 3}))[0] == kind


# Errors


@pytest.mark.parametrize(
    ("error", "message", "code", "body"),
    [
        ({"message": "m", "code": "c", "type": "t"}, "m", "c", ...),
        ({"message": "m", "code": 429}, "m", 429, ...),
        ({"message": "m", "code": 0, "type": "t"}, "m", 0, ...),
        ({"message": "m", "code": "", "type": "t"}, "m", "t", ...),
        ({"message": "", "detail": "d"}, "d", None, ...),
        ({"message": None, "detail": {"a": 1}}, '{"a":1}', None, ...),
        ({"message": {"a": 1}}, '{"message":{"a":1}}', None, ...),
        ({"code": "c"}, '{"code":"c"}', "c", ...),
        ("m", "m", "beside", "m"),
        (["x", 1], '["x",1]', "beside", ["x", 1]),
        (True, "true", "beside", True),
        (1.5, "1.5", "beside", 1.5),
    ],
)
@pytest.mark.parametrize("where", ["top", "choice"])
def test_error_member(backend: Backend, error: Any, message: str, code: Any, body: Any, where: str) -> None:
    members = {"error": error, "code": "beside"}
    chunks = [
        HI,
        {**HI, **members, "usage": {"total_tokens": 3}}
        if where == "top"
        else {"choices": [HI["choices"][0] | members], "usage": {"total_tokens": 3}},
        *END,
    ]
    outcome = merged(backend, *chunks)
    assert outcome.error is not None
    assert same(
        list(outcome.error.values()),
        ["upstream-error", message, code, offset_of(chunks, 1), error if body is ... else body],
    )
    assert (outcome.texts, outcome.usage, outcome.complete) == ({0: "hihi"}, {"total_tokens": 3}, True)
    assert outcome.seen & Seen.ERROR
    assert outcome.diagnostics == []


@pytest.mark.parametrize("error", [None, False, 0, 0.0, "", [], {}])
def test_no_error(backend: Backend, error: Any) -> None:
    outcome = merged(backend, {"error": error}, chunk({"content": "a"}, error=error), *END)
    assert (outcome.error, outcome.texts) == (None, {0: "a"})
    assert not outcome.seen & Seen.ERROR


def test_long_messages_are_cut_between_characters(backend: Backend) -> None:
    outcome = merged(backend, {"error": {"message": "a" + "é" * 3000}})
    assert outcome.error is not None
    assert outcome.error["message"] == "a" + "é" * 2047


def test_the_first_error_stays(backend: Backend) -> None:
    chunks = [HI, "bad", {"error": "x"}, {"error": "y"}]
    outcome = merged(backend, *chunks)
    assert error_of(outcome)[::3] == ("bad-json", offset_of(chunks, 1))
    assert not outcome.complete


def test_errors_are_exceptions(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    assert accumulator.error is None
    accumulator.raise_for_error()
    accumulator.feed(sse(HI, {"error": {"message": "\x1b[1mno\u202e", "code": 7}}))
    error = accumulator.error
    assert type(error) is deltafold.UpstreamError
    assert isinstance(error, deltafold.DeltafoldError)
    assert error.partial["choices"][0]["message"]["content"] == "hi"
    accumulator.feed(sse(HI))
    with pytest.raises(deltafold.UpstreamError) as raised:
        accumulator.raise_for_error()
    assert raised.value is error
    assert raised.value.partial["choices"][0]["message"]["content"] == "hihi"
    assert raised.value.message == "\x1b[1mno\u202e"
    for shown in (str(error), repr(error)):
        assert "\\x1b[1mno\\u202e" in shown
        assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (sse(HI), deltafold.Truncated),
        (sse("x"), deltafold.BadJson),
        (b"<html>", deltafold.NotSse),
        (sse({"error": "x"}), deltafold.UpstreamError),
        (sse(nested(200)), deltafold.LimitExceeded),
    ],
)
def test_merge_raises(backend: Backend, data: bytes, error: type[deltafold.DeltafoldError]) -> None:
    with pytest.raises(error) as raised:
        backend.merge(data)
    assert raised.value.partial is not None
    assert raised.value.kind == error.kind


def test_merge_takes_pieces(backend: Backend) -> None:
    data = sse(HI, *END)
    assert backend.merge(data) == backend.merge([data[:9], bytearray(data[9:]), b""]) == backend.merge(memoryview(data))
    assert backend.merge(iter([data]))["choices"][0]["message"]["content"] == "hi"


# The end of the bytes


def test_complete_before_close(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    states = []
    for piece in (HI, STOP, chunk({"content": "x"}, 1), chunk(index=1, finish_reason="length"), "[DONE]"):
        accumulator.feed(event(piece))
        states.append((accumulator.complete, accumulator.done_seen))
    assert states == [(False, False), (True, False), (False, False), (True, False), (True, True)]


def test_done_alone_is_complete(backend: Backend) -> None:
    outcome = merged(backend, HI, "[DONE]")
    assert (outcome.complete, outcome.error, outcome.finish_reasons) == (True, None, {0: None})


def test_no_choice_is_not_complete(backend: Backend) -> None:
    outcome = merged(backend, {"id": "x"})
    assert error_of(outcome)[0] == "truncated"
    assert error_of(outcome)[3] == outcome.counts["bytes"]


def test_close(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    assert accumulator.close_reason is None
    data = event(HI)[:-2]
    accumulator.feed(data)
    assert accumulator.close("client-disconnect") == Seen.CONTENT | Seen.ERROR
    assert accumulator.close("eof") == 0
    assert accumulator.close_reason == "client-disconnect"
    with pytest.raises(ValueError, match="the accumulator is closed"):
        accumulator.feed(b"")
    with pytest.raises(ValueError, match="the accumulator is closed"):
        accumulator.feed_chunk({})


@pytest.mark.parametrize("reason", [None, 7, b"eof"])
def test_a_reason_is_a_str(backend: Backend, reason: Any) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    with pytest.raises(TypeError, match=f"reason must be a str, not {type(reason).__name__}"):
        accumulator.close(reason)
    assert accumulator.close_reason is None
    accumulator.feed(sse(HI))


@pytest.mark.parametrize("end", [b"", b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize(("last", "text"), [(HI, "hihi"), ("[DONE]", "hi")])
def test_a_last_event_without_its_blank_line(backend: Backend, end: bytes, last: Any, text: str) -> None:
    data = sse(HI, STOP) + event(last)[:-2] + end
    outcome = merged(backend, data)
    assert (outcome.texts, outcome.complete, outcome.error) == ({0: text}, True, None)
    assert outcome.done_seen == (last == "[DONE]")
    assert outcome.diagnostics == [("unterminated-event", 1, len(sse(HI, STOP)))]
    assert outcome.counts["events"] == 3


@pytest.mark.parametrize(
    "cut",
    [
        b"d",
        b"data",
        b"data:",
        b"data: ",
        b'data: {"choices":[',
        b"data: [DON",
        b"eve",
        b"event: x",
        b"i",
        b"\xef",
        b"x",
    ],
)
def test_a_cut_last_event(backend: Backend, cut: bytes) -> None:
    data = sse(HI, STOP)
    outcome = merged(backend, data + cut)
    assert (outcome.texts, outcome.complete, outcome.done_seen) == ({0: "hi"}, False, False)
    assert error_of(outcome)[::3] == ("truncated", len(data + cut))
    assert outcome.diagnostics == [("incomplete-event", 1, len(data))]


@pytest.mark.parametrize("rest", [b":", b": comment", b"\n", b"event: x\n", b"id: 1\n", b"retry: 1\r"])
def test_what_is_no_cut(backend: Backend, rest: bytes) -> None:
    outcome = merged(backend, sse(HI, STOP) + rest)
    assert (outcome.complete, outcome.error, outcome.diagnostics) == (True, None, [])


def test_whole_lines_before_an_unfinished_one(backend: Backend) -> None:
    data = sse(STOP)
    outcome = merged(backend, data + event(HI)[:-1] + b'data: {"id":')
    assert outcome.texts == {0: "hi"}
    assert error_of(outcome)[0] == "truncated"
    assert outcome.diagnostics == [("unterminated-event", 1, len(data)), ("incomplete-event", 1, len(data))]


# Offsets


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b": note\n\n", b"\n\r\n", b"id: 4\n\n"])
@pytest.mark.parametrize("lines", [b"", b"event: x\n", b"id: 1\nretry: 5\n: note\n"])
def test_offsets_are_those_of_the_first_data_line(backend: Backend, before: bytes, lines: bytes) -> None:
    outcome = merged(backend, before + lines + b"data: x\ndata: y\n\n" + sse(*END))
    assert error_of(outcome)[::3] == ("bad-json", len(before + lines))


def test_no_offset_from_feed_chunk(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    accumulator.feed(sse(HI))
    accumulator.feed_chunk({"id": 7, "error": "x"})
    assert accumulator.error.offset is None
    assert accumulator.diagnostics == [("ignored-value", 1, None)]
