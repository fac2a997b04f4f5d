"""The fast path: the same results as without it, and right where a chunk must step aside."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import load
from deltafold import Seen

HEAD = '"id":"chatcmpl-1","object":"chat.completion.chunk","created":1760000000,"model":"m-1"'


def event(payload: str) -> bytes:
    return f"data: {payload}\n\n".encode()


def chunk(delta: str, more: str = "", choice: str = "") -> bytes:
    return event(f'{{{HEAD},"choices":[{{"index":0,"delta":{{{delta}}},"finish_reason":null{choice}}}]{more}}}')


def text(value: str, more: str = "", choice: str = "") -> bytes:
    return chunk(f'"content":"{value}"', more, choice)


DONE = event(f'{{{HEAD},"choices":[{{"index":0,"delta":{{}},"finish_reason":"stop"}}]}}') + event("[DONE]")
LEARNED = text("a") + text("b") + text("c")  # the second is judged quiet, the third matches


def outcome(backend: Any, pieces: list[bytes], fast: bool = True, **options: Any) -> tuple[Any, ...]:
    acc = backend.ChatCompletionAccumulator(**options)
    if not fast:
        acc._set_fast_path(False)
    seen = 0
    for piece in pieces:
        seen |= acc.feed(piece)
    seen |= acc.close()
    error = acc.error and (acc.error.kind, acc.error.message, acc.error.offset)
    facts = (acc.complete, acc.usage_source, acc.counts, [tuple(d) for d in acc.diagnostics], acc.retained_bytes, seen)
    return json.dumps(acc.result()), acc.result_json(), error, facts, acc.text(), acc.reasoning_text()


def merged(backend: Any, data: bytes, **options: Any) -> Any:
    """The accumulator after the stream, fed by event; whole and without the fast path the outcome is the same."""
    pieces = [piece + b"\n\n" for piece in data.split(b"\n\n")[:-1]]
    first = outcome(backend, pieces, **options)
    assert outcome(backend, [data], **options) == first
    assert outcome(backend, [data[i : i + 1] for i in range(len(data))], **options) == first
    assert outcome(backend, pieces, fast=False, **options) == first
    acc = backend.ChatCompletionAccumulator(**options)
    for piece in pieces:
        acc.feed(piece)
    acc.close()
    return acc


STEPS_ASIDE = {
    # name: (what comes behind a, b, c; the whole content; kinds of diagnostics)
    "an escape": (text("\\n"), "abc\n", []),
    "a character beyond ASCII": (text("é"), "abcé", []),
    "half a pair": (text("\\ud83d") + text("\\ude00"), "abc😀", []),
    "half a pair alone": (text("\\ud83d") + text("x"), "abc\ufffdx", ["lone-surrogate"]),
    "a whole pair": (text("\\ud83d\\ude00"), "abc😀", []),
    "ill-formed UTF-8": (text("x").replace(b'"x"', b'"\xff"'), "abc\ufffd", ["replaced-bytes"]),
    "ill-formed UTF-8 behind a quote": (
        text('\\"x').replace(b'x"}', b'\xc3"}'),
        'abc"\ufffd',
        ["replaced-bytes"],
    ),
    "a control character": (text("x").replace(b'"x"', b'"\x01"'), "abc", ["bad-json"]),
    "an empty fragment": (text("") + text("d"), "abcd", []),
    "null": (chunk('"content":null') + text("d"), "abcd", []),
    "content in parts": (
        chunk('"content":[{"type":"text","text":"d"}]') + text("e"),
        "abcde",
        [],
    ),
    "an unknown string": (chunk('"content":"d","x":"y"') * 2 + text("e"), "abcdde", []),
    "another id": (text("d").replace(b"chatcmpl-1", b"chatcmpl-2") + text("e"), "abcde", ["changed-id"]),
    "a wrong index": (text("d").replace(b'"index":0', b'"index":-1') + text("e"), "abcde", ["missing-choice-index"]),
    "a member twice": (chunk('"content":"x","content":"d"') + text("e"), "abcde", []),
    "CRLF": (text("d").replace(b"\n", b"\r\n").replace(b"\r\n\r\n", b"\r\n\r\n") + text("e"), "abcde", []),
    "an event name": (b"event: x\n" + text("d") + text("e"), "abcde", []),
    "two data lines": (text("d").replace(b',"object"', b'\ndata: ,"object"') + text("e"), "abcde", []),
    "a payload cut by LF": (text("d").replace(b',"object"', b'\n,"object"') + text("e"), "abce", ["bad-json"]),
    "a comment": (b": ping\n\n" + text("d"), "abcd", []),
    "a message": (text("d", choice=',"message":{"content":"abcd"}') + text("e"), "abcde", ["message-ignored"]),
}


@pytest.mark.parametrize("name", STEPS_ASIDE)
def test_what_steps_aside(backend: Any, name: str) -> None:
    behind, content, kinds = STEPS_ASIDE[name]
    acc = merged(backend, LEARNED + behind + DONE)
    assert acc.text() == content
    assert [d.kind for d in acc.diagnostics] == kinds


def test_flags_of_a_match(backend: Any) -> None:
    acc = backend.ChatCompletionAccumulator()
    assert [acc.feed(text(value)) for value in ("a", "b", "c", "", "d")] == [1, 1, 1, 0, 1]
    assert acc.counts["events"] == acc.counts["chunks"] == 5
    assert acc.counts["bytes"] == 5 * len(text("a")) - 1


REPEATED = {
    "audio-expires": ('"audio":{"expires_at":1760000001}', Seen.AUDIO),
    "audio-id-alone": ('"audio":{"id":"audio_1"}', Seen(0)),
    "detail-signature": ('"reasoning_details":[{"type":"t","index":0,"signature":"s"}]', Seen(0)),
    "detail-text-as-a-number": ('"reasoning_details":[{"type":"t","index":0,"text":5}]', Seen.REASONING),
    "thinking-as-a-number": ('"thinking":5', Seen.REASONING),
    "thinking-as-an-object": ('"thinking":{"a":1}', Seen.REASONING),
    "member-of-a-call": ('"tool_calls":[{"index":0,"extra":{"a":1}}]', Seen.TOOL_CALL),
    "member-of-a-function": ('"tool_calls":[{"index":0,"function":{"extra":1}}]', Seen.TOOL_CALL),
}


@pytest.mark.parametrize("name", REPEATED)
def test_flags_of_what_only_repeats(backend: Any, name: str) -> None:
    delta, flags = REPEATED[name]
    acc = backend.ChatCompletionAccumulator()
    acc.feed(chunk('"role":"assistant","content":"","tool_calls":[{"index":0,"id":"c","function":{"name":"f"}}]'))
    acc.feed(chunk(delta))
    assert [acc.feed(chunk(delta)) for _ in range(4)] == [flags] * 4


def test_reasoning_then_text(backend: Any) -> None:
    reasoning = [chunk(f'"content":"","reasoning_content":"{word}"') for word in ("x", "y", "z")]
    acc = merged(backend, b"".join(reasoning) + LEARNED + DONE)
    assert (acc.reasoning_text(), acc.text()) == ("xyz", "abc")


def test_a_model_that_changes_and_comes_back(backend: Any) -> None:
    other = text("d").replace(b"m-1", b"m-2")
    assert merged(backend, LEARNED + other + text("e")).model == "m-1"
    assert merged(backend, LEARNED + other * 3).model == "m-2"


@pytest.mark.parametrize("name", ["model", "system_fingerprint", "service_tier"])
@pytest.mark.parametrize("count", [7, 8])
def test_a_name_that_changes_to_and_fro(backend: Any, name: str, count: int) -> None:
    values = [("p", "q")[n % 2] for n in range(count)]
    data = b"".join(text("a").replace(b'"model":"m-1"', f'"{name}":"{value}"'.encode()) for value in values)
    acc = merged(backend, data)
    assert (acc.text(), acc.result()[name]) == ("a" * count, values[-1])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('"p"', '"q"'),
        ("true", "false"),
        ('["p"]', '["q"]'),
        ('[ "p" ]', '[ "q" ]'),
        ('{"k":"p"}', '{"k":"q"}'),
        ('{"k":["p"]}', '{"k":[ "q" ]}'),
    ],
)
@pytest.mark.parametrize("count", [7, 8])
def test_a_member_that_changes_to_and_fro(backend: Any, one: str, other: str, count: int) -> None:
    members = [f',"extra":{(one, other)[n % 2]}' for n in range(count)]
    last = json.loads((one, other)[(count - 1) % 2])
    top = merged(backend, b"".join(text("a", more) for more in members) + DONE)
    assert (top.text(), top.result()["extra"]) == ("a" * count, last)
    beside = merged(backend, b"".join(text("a", choice=choice) for choice in members) + DONE)
    assert (beside.text(), beside.result()["choices"][0]["extra"]) == ("a" * count, last)


def test_padding_is_dropped(backend: Any) -> None:
    data = b"".join(text(value, f',"obfuscation":"{pad}"') for value, pad in zip("abcd", ("x", "yy", "", "\\u0022")))
    acc = merged(backend, data + DONE)
    assert acc.text() == "abcd"
    assert "obfuscation" not in acc.result()


def test_the_text_null_as_a_finish_reason(backend: Any) -> None:
    acc = merged(backend, LEARNED.replace(b'"finish_reason":null', b'"finish_reason":"null"') + DONE)
    assert (acc.text(), acc.finish_reasons) == ("abc", {0: "stop"})


def test_usage_in_every_chunk(backend: Any) -> None:
    def usage(n: int, total: int) -> str:
        return f',"usage":{{"prompt_tokens":7,"completion_tokens":{n},"total_tokens":{total}}}'

    data = b"".join(text(value, usage(n, 7 + n)) for n, value in enumerate("abcde", 1))
    acc = merged(backend, data + DONE)
    assert acc.usage == {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    zeros = ',"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}'
    acc = merged(backend, data + text("f", zeros) + DONE)
    assert acc.usage == {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    assert [d.kind for d in acc.diagnostics] == ["zero-usage"]


def test_a_number_of_which_the_last_stays(backend: Any) -> None:
    data = b"".join(chunk(f'"token_id":{n},"content":"{value}"') for n, value in zip((5, 6, 7, 8.5), "abcd"))
    message = merged(backend, data + DONE).result()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "abcd", "token_id": 8.5}


def tool(arguments: str, more: str = "") -> bytes:
    return chunk(f'"tool_calls":[{{"index":0,{more}"function":{{"arguments":"{arguments}"}}}}]')


def test_arguments(backend: Any) -> None:
    opening = chunk('"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}]')
    data = opening + tool("{") + tool('\\"k\\":') + tool("1") + tool("}") + DONE
    assert [(c.id, c.name, c.arguments) for c in merged(backend, data).tool_calls()] == [("c1", "f", '{"k":1}')]


def test_bare_arguments_give_way(backend: Any) -> None:
    opening = chunk('"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}]')
    acc = merged(backend, opening + tool("{") + tool("}") + tool('{\\"k\\":') + tool("1}") + DONE)
    assert [c.arguments for c in acc.tool_calls()] == ['{"k":1}']
    assert [d.kind for d in acc.diagnostics] == ["placeholder-arguments"]


def test_a_call_opened_since(backend: Any) -> None:
    first = chunk('"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}]')
    second = first.replace(b"c1", b"c2")
    acc = merged(backend, first + tool("1") + tool("2") + tool("3") + second + tool("4") + tool("5") + DONE)
    assert [(c.id, c.arguments) for c in acc.tool_calls()] == [("c1", "123"), ("c2", "45")]


def opening(index: int, id: str) -> bytes:
    return chunk(
        f'"tool_calls":[{{"index":{index},"id":"{id}","type":"function","function":{{"name":"f","arguments":""}}}}]'
    )


@pytest.mark.parametrize("more", ["", '"id":null,', '"id":"",', '"type":"function",', '"type":null,'])
def test_two_calls_by_turns(backend: Any, more: str) -> None:
    data = b"".join(
        tool(f"{n}", more) + tool(f"<{n}>", more).replace(b'calls":[{"index":0', b'calls":[{"index":7')
        for n in range(6)
    )
    acc = merged(backend, opening(0, "c1") + opening(7, "c2") + data + DONE)
    assert [(c.id, c.name, c.arguments) for c in acc.tool_calls()] == [
        ("c1", "f", "012345"),
        ("c2", "f", "<0><1><2><3><4><5>"),
    ]
    assert acc.diagnostics == []


@pytest.mark.parametrize("name", ["", '"name":"f",', '"name":"",'])
def test_a_known_id_counts_before_its_index(backend: Any, name: str) -> None:
    fragments = [tool(f"{n}", '"id":"c2",').replace(b'"arguments"', name.encode() + b'"arguments"') for n in range(6)]
    acc = merged(backend, opening(0, "c1") + opening(7, "c2") + b"".join(fragments) + DONE)
    assert [(c.id, c.name, c.arguments) for c in acc.tool_calls()] == [("c1", "f", ""), ("c2", "f", "012345")]


def test_the_limits_hold(backend: Any) -> None:
    from deltafold import Limits

    plain = merged(backend, LEARNED)
    more = plain.retained_bytes + 2
    acc = merged(backend, LEARNED + text("d") + text("e") + text("f") + DONE, limits=Limits(max_retained_bytes=more))
    assert acc.text() == "abcde"
    assert acc.error.kind == "limit-exceeded"
    assert acc.error.offset == 5 * len(text("a"))
    largest = len(text("a")) - len("data: \n\n") + 1  # a value and its LF
    acc = merged(backend, LEARNED + text("dd") + text("e") + DONE, limits=Limits(max_event_bytes=largest))
    assert acc.text() == "abce"
    assert acc.error.kind == "limit-exceeded"


def test_nothing_is_merged_behind_done(backend: Any) -> None:
    acc = merged(backend, LEARNED + event("[DONE]") + text("d"))
    assert acc.text() == "abc"
    assert acc.counts["after_done"] == 1


def test_four_choices(backend: Any) -> None:
    data = b"".join(text(f"{n}{i}").replace(b'"index":0', b'"index":%d' % i) for n in range(5) for i in (0, 1, 2, 3))
    acc = merged(backend, data)
    assert [acc.text(i) for i in range(4)] == [f"0{i}1{i}2{i}3{i}4{i}" for i in range(4)]


FRAGMENTS = st.sampled_from(["a", " word", "", "é", "\\n", "{", "}", "{}", "\\ud83d", "\\ude00", '\\"', "😀", "x" * 40])
KINDS = st.sampled_from(
    [
        '"content":"%s"',
        '"role":"assistant","content":"%s"',
        '"content":"","reasoning":"%s"',
        '"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"%s"}}]',
        '"tool_calls":[{"index":0,"function":{"arguments":"%s"}}]',
        '"reasoning_details":[{"type":"reasoning.text","text":"%s","index":0}]',
        '"refusal":"%s"',
        '"audio":{"id":"au","transcript":"%s"}',
        '"x":"%s"',
    ]
)
MORE = st.sampled_from(
    ["", ',"usage":null', ',"obfuscation":"zz"', ',"usage":{"a":1,"b":0}', ',"usage":{"a":0,"b":0}', ',"provider":"p"']
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    shapes = draw(st.lists(st.tuples(KINDS, MORE), min_size=1, max_size=3))
    order = draw(st.lists(st.tuples(st.integers(0, len(shapes) - 1), FRAGMENTS), min_size=3, max_size=14))
    return b"".join(chunk(shapes[at][0].replace("%s", value), shapes[at][1]) for at, value in order)


@settings(max_examples=150)
@given(data=streams(), at=st.integers(0, 10**6), byte=st.integers(0, 255), flips=st.booleans())
def test_one_byte_changed(data: bytes, at: int, byte: int, flips: bool) -> None:
    if flips:
        at %= len(data)
        data = data[:at] + bytes([byte]) + data[at + 1 :]
    pieces = [piece + b"\n\n" for piece in data.split(b"\n\n")]
    pieces[-1] = pieces[-1][:-2]
    pure, rust = load("pure"), load("rust")
    first = outcome(pure, [data], fast=False)
    for backend in (pure, rust):
        for fast in (True, False):
            assert outcome(backend, pieces, fast=fast) == first
        assert outcome(backend, [data]) == first


@pytest.mark.parametrize("length", range(1850, 1990, 7))
def test_a_chunk_about_as_large_as_what_is_remembered(backend: Any, length: int) -> None:
    provider = f',"provider":"{"p" * length}"'
    acc = merged(backend, b"".join(text(value, provider) for value in "abcd") + DONE)
    assert acc.text() == "abcd"
    assert acc.result()["provider"] == "p" * length
