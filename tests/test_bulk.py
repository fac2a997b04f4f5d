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


Outcome = tuple[Any, Any, list[Any]]  # of a record: its object, its error, its diagnostics


def merge_records(backend: Backend, log: bytes, path: list[str], cut: int = 0) -> list[Outcome]:
    """Every record of a log whose first ``cut`` bytes came before; what the function says twice must agree."""
    module = sys.modules[f"deltafold._{backend.name}"]
    lines, records, size, output, noted = module._merge_records(log[:cut], log[cut:], path)
    whole = log.split(b"\n")[:-1]
    assert lines == len(whole)
    told = output.splitlines(keepends=True)
    assert records == len(told) == sum(bool(line.strip()) for line in whole)
    assert size == sum(len(line) for line in whole if line.strip())
    outcomes: list[Outcome] = [(json.loads(line), None, []) for line in told]
    for number, start, end, error, notes, unseen in noted:
        nth = sum(bool(line.strip()) for line in whole[:number])
        assert output[start:end] == told[nth]
        outcomes[nth] = (outcomes[nth][0], error, notes)
        assert error or notes or unseen
        assert {char for char in told[nth].decode()[:-1] if not char.isprintable()} <= {*unseen}
    seen = {nth for nth, line in enumerate(told) if line.decode()[:-1].isprintable()}
    unnoted = {*range(records)} - {sum(bool(line.strip()) for line in whole[:number]) for number, *_ in noted}
    assert unnoted <= seen
    return outcomes


def lines_of(*records: bytes) -> bytes:
    return b"".join(record + b"\n" for record in records)


def in_record(text: bytes) -> bytes:
    return b'{"a":' + text + b"}"


def test_records(backend: Backend) -> None:
    text = body("é").decode()
    log = lines_of(
        json.dumps({"a": {"b": [0, text]}}).encode(),
        json.dumps({"a": {"b": [0, [text[:20], text[20:]]]}}, ensure_ascii=False).encode(),
        b'{"a":1,"a":{"b":[0,"data: {\\ud800}\\n\\n"]}}',
        b'{"a":{"b":[0,17]}}',
        b'{"a":{"b":[0]}}',
        b'{"a":{"b":{}}}',
        b"{oops",
        b"[" * 200,
        b"\xff",
    )
    found = merge_records(backend, log, ["a", "b", "1"])
    assert [one for one, *_ in found[:2]] == [completion("é")] * 2
    assert [error for _, error, _ in found[:2]] == [None, None]
    assert found[2][1].kind == "bad-json"
    assert found[2][1].message == "a payload is not a JSON object: {\ufffd}"
    assert [d.kind for d in found[2][2]] == ["bad-json"]
    reasons = ["the member is not text", *["the line has no such member"] * 2, *["the line is not JSON"] * 3]
    assert [(one, error) for one, error, _ in found[3:]] == [(None, reason) for reason in reasons]


def test_numbers_with_many_zeros_lead_nowhere(backend: Backend) -> None:
    log = lines_of(b'{"a":["x",%s]}' % json.dumps(body("a").decode()).encode())
    assert merge_records(backend, log, ["a", "0" * 18 + "1"])[0][0] == completion("a")
    assert merge_records(backend, log, ["a", "0" * 19 + "1"])[0][1] == "the line has no such member"


GOOD = json.dumps(body("a").decode()).encode()
OTHER = json.dumps(body("z").decode()).encode()
NO_JSON, NO_MEMBER, NO_TEXT = "the line is not JSON", "the line has no such member", "the member is not text"


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param(b'{"a":%s,"a":%s}' % (OTHER, GOOD), "a", id="the last of equal keys"),
        pytest.param(b'{"a":%s,"a":7}' % GOOD, NO_TEXT, id="the last is no text"),
        pytest.param(b'{"a":%s,"x":{"a":%s}}' % (GOOD, OTHER), "a", id="the same name elsewhere, behind"),
        pytest.param(b'{"x":[{"a":%s}],"a":%s}' % (OTHER, GOOD), "a", id="the same name elsewhere, before"),
        pytest.param(b'{"x\\"a":%s,"a":%s}' % (OTHER, GOOD), "a", id="a key that ends like it"),
        pytest.param(b'{"x":"\\"a","a":%s}' % GOOD, "a", id="a text that ends like it"),
        pytest.param(b'{"\\u0061":%s}' % GOOD, "a", id="an escape in the key"),
        pytest.param(b'{"\\u0061":%s,"a":%s}' % (OTHER, GOOD), "a", id="equal keys, one escaped"),
        pytest.param(b'\t{ "a" :\r %s }\r' % GOOD, "a", id="white space and CR LF"),
        pytest.param(b'{"a":[%s]}' % GOOD, "a", id="an array of one text"),
        pytest.param(b'{"a":["",%s,""]}' % GOOD, "a", id="an array of texts"),
        pytest.param(b'{"a":[%s,1]}' % GOOD, NO_TEXT, id="an array of something else"),
        pytest.param(b'{"a":null}', NO_TEXT, id="null"),
        pytest.param(b'{"b":%s}' % GOOD, NO_MEMBER, id="no member"),
        pytest.param(b"[%s]" % GOOD, NO_MEMBER, id="no object"),
        pytest.param(GOOD, NO_MEMBER, id="a text alone"),
        pytest.param(b'{"a":%s' % GOOD, NO_JSON, id="cut behind the body"),
        pytest.param(b'{"a":%s' % GOOD[:-1], NO_JSON, id="cut in the body"),
        pytest.param(b'{"a":%s}}' % GOOD, NO_JSON, id="one bracket more"),
        pytest.param(b'{"a":%s,}' % GOOD, NO_JSON, id="one comma more"),
        pytest.param(b'{"a":%s,"b":"\\x"}' % GOOD, NO_JSON, id="a bad escape behind the body"),
        pytest.param(b'{"a":%s,"b":"\t"}' % GOOD, NO_JSON, id="a control character behind the body"),
        pytest.param(b'{"a":%s,"b":01}' % GOOD, NO_JSON, id="a bad number behind the body"),
        pytest.param(b'{"b":tru,"a":%s}' % GOOD, NO_JSON, id="a bad word before the body"),
        pytest.param(b"{\"a\":'%s'}" % GOOD, NO_JSON, id="wrong quotes"),
        pytest.param(b"\xef\xbb\xbf" + in_record(GOOD), NO_JSON, id="a BOM"),
        pytest.param(b'{"b":"\xff","a":%s}' % GOOD, "a", id="ill-formed UTF-8 beside the body"),
        pytest.param(b'{"b":"\\ud800","a":%s}' % GOOD, "a", id="half a surrogate pair beside the body"),
    ],
)
def test_odd_records(backend: Backend, record: bytes, expected: str) -> None:
    for cut in (0, 1, len(record) // 2, len(record)):
        [(one, error, _)] = merge_records(backend, record + b"\n", ["a"], cut)
        if len(expected) == 1:
            assert (one["choices"][0]["message"]["content"], error) == (expected, None)
        else:
            assert (one, error) == (None, expected)


def test_lines_that_are_none(backend: Backend) -> None:
    log = b"\n \t\r\n" + lines_of(in_record(GOOD)) + b"\n" + lines_of(b"x") + b"not ended"
    found = merge_records(backend, log, ["a"])
    assert [error for _, error, _ in found] == [None, NO_JSON]
    assert merge_records(backend, b"\n", ["a"]) == []


ESCAPES = [
    pytest.param(b"\\n", "\\n", id="a line feed"),
    pytest.param(b'\\"', '\\"', id="quotes"),
    pytest.param(b"\\\\", "\\\\", id="backslashes"),
    pytest.param(b"\\u00e9", "é", id="a character"),
    pytest.param("é".encode(), "é", id="the character itself"),
    pytest.param(b"\\ud83d\\ude00", "\U0001f600", id="a pair"),
    pytest.param(b"\\ud83d", "\ufffd", id="a high half"),
    pytest.param(b"\\ude00\\ud83d", "\ufffd\ufffd", id="halves the wrong way round"),
    pytest.param(b"\\/\\b\\f\\t", "/\\b\\f\\t", id="short escapes"),
    pytest.param(b"\\r", "\\r", id="a carriage return"),
    pytest.param(b"\xff", "\ufffd", id="ill-formed UTF-8"),
]


@pytest.mark.parametrize(("escaped", "inner"), ESCAPES)
def test_a_body_that_repeats_itself(backend: Backend, escaped: bytes, inner: str) -> None:
    """Many events that differ in a text and a number, one of them with something odd in its text."""
    event = (
        b'data: {\\"id\\":\\"x\\",\\"created\\":%d,\\"choices\\":'
        b'[{\\"index\\":0,\\"delta\\":{\\"content\\":\\"%s\\"},\\"n\\":%d}]}\\n\\n'
    )
    for odd in (0, 1, 2, 3, 7, 9):
        # In the text of the chunk the odd character stands behind a backslash more where it has one.
        chunks, wanted = [], ""
        for at in range(10):
            text = b"t%d" % at
            if at == odd:
                one = {b"\\n": b"\\\\n", b'\\"': b'\\\\\\"', b"\\\\": b"\\\\\\\\", b"\\r": b"\\\\r"}.get(
                    escaped, escaped
                )
                one = b"\\\\/\\\\b\\\\f\\\\t" if escaped.startswith(b"\\/") else one
                text = one + text
                wanted += json.loads(f'"{inner}"')
            wanted += f"t{at}"
            chunks.append(event % (170 + at % 3, text, at))
        record = b'{"a":"%sdata: [DONE]\\n\\n"}\n' % b"".join(chunks)
        [(one, error, _)] = merge_records(backend, record, ["a"])
        assert error is None, error
        assert one["choices"][0]["message"]["content"] == wanted
        assert one["choices"][0]["n"] == 9


@pytest.mark.parametrize("bad", [b"\\x", b"\\u12g4", b"\\u123", b"\t", b"\\ "])
def test_a_bad_escape_anywhere_in_a_body_that_repeats_itself(backend: Backend, bad: bytes) -> None:
    event = b'data: {\\"choices\\":[{\\"delta\\":{\\"content\\":\\"%s\\"}}]}\\n\\n'
    for odd in (0, 1, 2, 3, 7):
        chunks = [event % ((bad if at == odd else b"") + b"t%d" % at) for at in range(8)]
        whole = b'{"a":"%s"}\n' % b"".join(chunks)
        assert merge_records(backend, whole, ["a"]) == [(None, NO_JSON, [])]


def test_the_whole_line_may_be_the_body(backend: Backend) -> None:
    [(one, error, notes)] = merge_records(backend, json.dumps(body("a").decode()).encode() + b"\n", [])
    assert (one, error, notes) == (completion("a"), None, [])


def test_characters_that_cannot_be_seen(backend: Backend) -> None:
    """Every character there is: what Python calls unprintable is told of; the common ones alone cause no word."""
    every = [chr(code) for code in range(0x20, 0x110000) if not 0xD800 <= code < 0xE000]
    parts = ["".join(every[at : at + 997]) for at in range(0, len(every), 997)]
    log = lines_of(*(json.dumps({"a": body(part).decode()}, ensure_ascii=False).encode() for part in parts))
    found = merge_records(backend, log, ["a"])
    assert "".join(one["choices"][0]["message"]["content"] for one, *_ in found) == "".join(every)
    module = sys.modules[f"deltafold._{backend.name}"]
    common = "naïve – “quoted” 漢字、かな カナ 한글 Привет → ✓ 🙂 ½ €"
    record = json.dumps({"a": body(common).decode()}, ensure_ascii=False).encode() + b"\n"
    assert module._merge_records(b"", record, ["a"])[4] == []
    [(*_, unseen)] = module._merge_records(b"", record.replace(b"na", "\u202e\x7f\u202e".encode()), ["a"])[4]
    assert unseen == "\x7f\u202e"


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8), st.just(body("a").decode())),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("a0é"), inner, max_size=3)),
    max_leaves=8,
)


def same_for_both(log: bytes, path: list[str], cut: int = 0) -> None:
    told = [
        [(one, str(error), notes) for one, error, notes in merge_records(backend, log, path, cut)]
        for backend in (load("pure"), load("rust"))
    ]
    assert told[0] == told[1]


@settings(max_examples=150)
@given(
    st.lists(st.tuples(VALUES, st.booleans(), st.integers(0, 3)), max_size=5),
    st.lists(st.sampled_from(["a", "0", "1", "é", "-1", "²", ""]), max_size=3),
    st.integers(0, 40),
)
def test_records_of_any_kind(values: list[tuple[Any, bool, int]], path: list[str], head: int) -> None:
    lines = [
        json.dumps(value, ensure_ascii=ascii).encode("utf-8", "replace")[cut // 3 :] for value, ascii, cut in values
    ]
    same_for_both(lines_of(*lines), path, min(head, len(lines[0])) if lines else 0)


UNITS = st.lists(
    st.tuples(
        st.sampled_from(["data: ", "event: x\ndata: ", ": ping\n\ndata: ", ""]),
        st.sampled_from(
            ['{"choices":[{"index":%d,"delta":{"content":"%s"},"b":null}]}', '{"i":%d,"t":"%s","u":"%s"}', "%d%s"]
        ),
        st.sampled_from([0, 1, 7, 12]),
        st.text(st.sampled_from('ab"\\\n\r\u00e9\u2028\U0001f600\x00{}:,1'), max_size=5),
        st.sampled_from(["\n\n", "\r\n\r\n", "\n", "\n\r\n"]),
    ),
    max_size=12,
)


@settings(max_examples=200)
@given(
    UNITS,
    st.booleans(),
    st.integers(0, 2**32),
    st.sampled_from([b"", b'"', b"\\", b"\\u", b"u", b"\xff", b"\\ud83d", b"1"]),
)
def test_bodies_of_any_kind(units: list[tuple[str, str, int, str, str]], ascii: bool, place: int, odd: bytes) -> None:
    """Bodies that repeat themselves, more or less, with a byte or two put anywhere."""
    text = ""
    for start, form, number, letters, end in units:
        inner = json.dumps(letters, ensure_ascii=ascii)[1:-1]
        text += start + form.replace("%d", str(number)).replace("%s", inner) + end
    record = json.dumps({"a": text}, ensure_ascii=ascii).encode("utf-8", "replace")
    at = place % (len(record) + 1)
    same_for_both(record[:at] + odd + record[at:] + b"\n", ["a"])
