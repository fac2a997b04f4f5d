"""Arbitrary streams: both implementations say the same of them, at every cut and at every moment."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Backend, load
from deltafold import Limits
from streams import event, feed_all, sse, tell

NAMES = [
    *"id object created model choices usage service_tier system_fingerprint metadata x_groq error message code".split(),
    *"type detail obfuscation p extra timings".split(),
]
ENTRY_NAMES = "index delta message finish_reason logprobs usage text token_ids error extra".split()
DELTA_NAMES = [
    *"role content refusal reasoning_content reasoning thinking reasoning_text reasoning_details tool_calls".split(),
    *"function_call audio annotations images obfuscation extra name p".split(),
]
CALL_NAMES = "id index type function custom extra".split()
# Escapes that json.dumps would not write come as they are, between these marks.
RAW = "\ue000{}\ue001"

words = st.sampled_from(
    ["", "a", "b", "stop", "length", "text", "thinking", "get", "get_time", "{", "}", "{}", '{"a":1}', '"']
)
halves = st.sampled_from(
    ["\ud83d", "\ude00", "x\ud83d", "\ude00x", "\ud83d\ude00", "\ufffd", "\x00", "\u2028", "é", "QQ==", "QUJD"]
)
strings = words | halves | st.text(max_size=4)
indexes = st.sampled_from([0, 0, 0, 1, 1, 2, 7, None, -1, 1.0, "1", True, 2**40, 2**63 - 1, 2**63])
numbers = st.sampled_from(
    [
        0,
        1,
        -1,
        5,
        0.0,
        -0.0,
        1.5,
        1e16,
        1e-7,
        5e-324,
        2**53,
        2**64,
        -(2**70),
        10**30,
        float("nan"),
        float("inf"),
        float("-inf"),
    ]
) | st.sampled_from(["1E400", "-0", "1.50", "1e5", "0.1000000000000000055", "-0.0", "1E-7", "0e9"]).map(RAW.format)
scalars = st.none() | st.booleans() | numbers | strings
names = st.sampled_from(["a", "b", "id", "type", "index", "text", "status", "\ud83d", "\ude00", "é", ""])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3), max_leaves=5
)


def objects(wanted: list[str], known: dict[str, Any], most: int) -> Any:
    """Objects of some of the wanted names; each mostly holds what belongs there, sometimes anything."""
    member = st.sampled_from(wanted).flatmap(
        lambda name: st.tuples(st.just(name), st.one_of(*[known.get(name, values)] * 4, values))
    )
    return st.lists(member, max_size=most).map(Members)


class Members(list):
    """The members of an object, in which a name may come twice."""


def spell(value: Any) -> str:
    """JSON text of a value; surrogate halves as escapes, numbers as they are spelled."""
    if isinstance(value, Members):
        return "{" + ",".join(f"{spell(name)}:{spell(member)}" for name, member in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(spell, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{spell(name)} : {spell(member)}" for name, member in value.items()) + "}"
    if isinstance(value, str) and value.startswith("\ue000"):
        return value[1:-1]
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if not "\ud800" <= c <= "\udfff" else f"\\u{ord(c):04x}" for c in text)


numerals = st.sampled_from([0, 0, 1, 3, 7, None, 0.0, 2.5]) | numbers
details = st.dictionaries(st.sampled_from(["cached_tokens", "reasoning_tokens", "odd"]), numerals, max_size=2)
usages = objects(
    ["prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "cost"],
    dict.fromkeys(["prompt_tokens", "completion_tokens", "total_tokens", "cost"], numerals)
    | {"prompt_tokens_details": details},
    3,
)
functions = objects(["name", "arguments", "input", "extra"], {"name": words, "arguments": strings | values}, 3)
fragments = objects(
    CALL_NAMES,
    {
        "id": st.sampled_from(["", "c1", "c2", "c3"]),
        "index": indexes,
        "type": words,
        "function": functions,
        "custom": functions,
    },
    4,
)
parts = objects(
    ["type", "text", "thinking", "extra"],
    {"type": st.sampled_from(["text", "thinking", "image_url"]), "text": strings, "thinking": strings | values},
    3,
)
entries_of_lists = objects(
    ["index", "type", "id", "text", "summary", "data", "signature", "format"], {"index": indexes}, 4
)
lists = st.lists(entries_of_lists | values, max_size=2)
deltas = objects(
    DELTA_NAMES,
    {
        "role": words,
        "content": strings | st.lists(parts | strings, max_size=2) | parts,
        "tool_calls": st.lists(fragments, max_size=2),
        "function_call": functions,
        "reasoning_details": lists,
        "annotations": lists,
        "images": lists,
        "audio": objects(
            ["id", "data", "transcript", "expires_at"], {"data": st.sampled_from(["QQ==", "Q", "=", "QUJD", "Zg=="])}, 3
        ),
    }
    | dict.fromkeys(["refusal", "reasoning_content", "reasoning", "thinking", "extra"], strings),
    3,
)
logprobs = objects(
    ["content", "refusal", "extra"], dict.fromkeys(["content", "refusal"], st.lists(values, max_size=2)), 2
)
entries = objects(
    ENTRY_NAMES,
    {
        "index": indexes,
        "delta": deltas,
        "message": deltas,
        "finish_reason": words,
        "logprobs": logprobs | lists,
        "usage": usages,
        "text": strings,
        "token_ids": st.lists(numbers, max_size=2),
        "error": st.none(),
    },
    4,
)
# Most entries have an index and a delta, else few of them would ever meet.
common = st.builds(lambda i, d, e: Members([("index", i), ("delta", d), *e]), indexes, deltas, entries)
chunks = objects(
    NAMES,
    {
        "choices": st.lists(common | entries, max_size=2),
        "usage": usages,
        "x_groq": st.builds(lambda u: {"usage": u}, usages),
    }
    | {"created": numbers | st.sampled_from(["17", "007", ""]), "error": st.none(), "object": words | st.just("error")},
    3,
)
mostly_choices = st.builds(lambda c, o: Members([("choices", c), *o]), st.lists(common, min_size=1, max_size=2), chunks)
payloads = st.one_of(*[mostly_choices] * 6, chunks, st.lists(chunks, max_size=2)).map(spell)
garbage = st.sampled_from(
    [
        *[
            "[DONE]",
            "",
            "null",
            "{}",
            ": x",
            "data: [DONE]",
            "{",
            '{"a":',
            "17",
            '"x"',
            "[]",
            "[1]",
            "<html>",
            "\ufeff",
        ],
        *['{"a":1}\ndata: {"b":2}', 'half\ndata: {"error":"x"}', '{"a":{"b":{"c":{"d":{}}}}}'],
    ]
)
blocks = st.one_of(
    *[payloads.map(lambda text: f"data: {text}\n\n".encode())] * 8,
    payloads.map(lambda text: f"event: error\ndata: {text}\n\n".encode()),
    payloads.map(lambda text: f"error: {text}\n".encode()),
    payloads.map(lambda text: f"{text}\n".encode()),
    payloads.map(lambda text: f"data: data: {text}\r\n\r\n".encode()),
    garbage.map(lambda text: f"data: {text}\n\n".encode()),
    st.sampled_from(
        [
            b": note\n",
            b"\n",
            b"id: 1\n",
            b"retry: 5\n",
            b"data\n\n",
            b"event: error\n",
            b'data: {"choices":[{"delta":{"content":"\xff\xe2\x82"}}]}\n\n',
        ]
    ),
    st.binary(max_size=6),
)
bodies = st.lists(blocks, max_size=7).map(b"".join)
limits = st.none() | st.builds(
    Limits,
    max_event_bytes=st.integers(1, 400),
    max_retained_bytes=st.integers(1, 300),
    max_choices=st.integers(1, 3),
    max_tool_calls=st.integers(1, 3),
    max_depth=st.integers(1, 9),
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted(place % (len(data) + 1) for place in places)
    return [data[a:b] for a, b in zip([0, *edges], [*edges, len(data)])]


def moments(backend: Backend, parts: list[bytes], bounds: Limits | None, n: int | None) -> list[str]:
    """What is told after each part, its own flags too."""
    accumulator = backend.ChatCompletionAccumulator(bounds, n)
    return [repr(tell(accumulator, accumulator.feed(part), {})) for part in parts] + [
        repr(tell(accumulator, accumulator.close("timeout"), {}))
    ]


@settings(max_examples=300)
@given(bodies, st.lists(st.integers(0, 10**6), max_size=4), limits, st.sampled_from([None, None, 1]))
def test_any_stream(data: bytes, places: list[int], bounds: Limits | None, n: int | None) -> None:
    pure, rust = load("pure"), load("rust")
    parts = cut(data, places)
    cuts = [[data], parts, [data[i : i + 1] for i in range(len(data))]]
    told = {repr(feed_all(b.ChatCompletionAccumulator(bounds, n), cut_)) for b in (pure, rust) for cut_ in cuts}
    assert len(told) == 1
    assert moments(pure, parts, bounds, n) == moments(rust, parts, bounds, n)


# Chunks that are equal but for a few values: what streams are made of, and what invites to take a short way.
HEAD = '{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
TEMPLATES = [
    HEAD + '{"content":"?"},"finish_reason":null}]}',
    HEAD + '{"content":"?"},"finish_reason":null}],"obfuscation":"?"}',
    HEAD + '{"role":"assistant","content":"?","refusal":null},"logprobs":null}],"usage":null}',
    HEAD + '{"reasoning_content":"?","content":null}}]}',
    HEAD + '{"reasoning":"?","content":""}}],"provider":"p"}',
    HEAD + '{"content":"?"}}],"usage":{"prompt_tokens":7,"completion_tokens":#,"total_tokens":#}}',
    HEAD + '{"content":"?"}}],"x_groq":{"usage":{"total_tokens":#}}}',
    HEAD + '{"refusal":"?"}}],"timings":{"ms":#}}',
    HEAD + '{"extra":"?"}}]}',
    HEAD + '{"content":[{"type":"text","text":"?"}]}}]}',
    HEAD + '{"content":"?","content":"?"}}]}',
    HEAD + '{"tool_calls":[{"index":0,"function":{"arguments":"?"}}]}}]}',
    HEAD + '{"tool_calls":[{"index":1,"id":"c","type":"function","function":{"name":"f","arguments":"?"}}]}}]}',
    HEAD + '{"tool_calls":[{"id":"?","function":{"name":"f","arguments":"?"}}]}}]}',
    HEAD + '{"tool_calls":[{"function":{"arguments":"?"}}]}}]}',
    HEAD + '{"function_call":{"arguments":"?"}}}]}',
    HEAD + '{"audio":{"data":"?"}}}]}',
    HEAD + '{"content":"?"},"finish_reason":"?"}]}',
    HEAD + '{"content":"?"},"token_ids":[#],"text":"?"}]}',
    HEAD + '{"content":"?"},"logprobs":{"content":[{"token":"?","logprob":#}]}}]}',
    '{"created":#,"choices":[{"index":0,"delta":{"content":"?"}},{"index":1,"delta":{"content":"?"}}]}',
    '{"id":"?","choices":[{"index":#,"delta":{"content":"?"}}]}',
    '{"choices":[{"index":0,"delta":{"content":"?"},"message":{"content":"?"}}]}',
]
strings_raw = st.sampled_from(
    [
        "a",
        "bc",
        "",
        " d",
        "é",
        "\\n",
        '\\"',
        "\\ud83d",
        "\\ude00",
        "\\ud83d\\ude00",
        "{",
        "}",
        "{}",
        "x" * 40,
        "\\u0041",
        "\x01",
        '"',
        "=",
    ]
)
numbers_raw = st.sampled_from(
    ["1", "2", "3", "10", "0", "1.5", "-1", "1e2", "null", "-0.0", "01", "12345678901234567890", '"4"', "x"]
)


@st.composite
def repetitive(draw: Any) -> bytes:
    templates = draw(st.lists(st.sampled_from(TEMPLATES), min_size=1, max_size=2))
    end = draw(st.sampled_from([b"\n\n", b"\n\n", b"\n\n", b"\r\n\r\n", b"\r\r"]))
    body = []
    for _ in range(draw(st.integers(2, 10))):
        if draw(st.integers(0, 9)) == 0:
            body.append(draw(blocks))
        text = draw(st.sampled_from(templates))
        while "?" in text:
            text = text.replace("?", draw(strings_raw), 1)
        while "#" in text:
            text = text.replace("#", draw(numbers_raw), 1)
        data = text.encode()
        if draw(st.integers(0, 29)) == 0:
            data = data.replace(b"a", b"\xe2\x82", 1)
        body.append(draw(st.sampled_from([b"data: "] * 9 + [b"data:"])) + data + end)
    return b"".join(body)


@settings(max_examples=200)
@given(repetitive(), st.lists(st.integers(0, 10**6), max_size=4), limits, st.sampled_from([None, None, 1]))
def test_repetitive_streams(data: bytes, places: list[int], bounds: Limits | None, n: int | None) -> None:
    pure, rust = load("pure"), load("rust")
    parts = cut(data, places)
    cuts = [
        [data],
        parts,
        [data[i : i + 1] for i in range(len(data))],
        [line + b"\n\n" for line in data.split(b"\n\n")],
    ]
    cuts[-1][-1] = cuts[-1][-1][:-2]  # event by event, as networks bring them
    told = {repr(feed_all(b.ChatCompletionAccumulator(bounds, n), cut_)) for b in (pure, rust) for cut_ in cuts}
    assert len(told) == 1
    assert moments(pure, cuts[-1], bounds, n) == moments(rust, cuts[-1], bounds, n)


@settings(max_examples=100)
@given(st.lists(payloads, max_size=5), st.sampled_from([None, 1]))
def test_chunks_that_come_as_objects(texts: list[str], n: int | None) -> None:
    told = []
    for backend in (load("pure"), load("rust")):
        accumulator = backend.ChatCompletionAccumulator(n=n)
        flags = []
        for text in texts:
            value = json.loads(text)
            if isinstance(value, dict):
                flags.append(accumulator.feed_chunk(value))
        told.append((flags, repr(tell(accumulator, accumulator.close(), {}))))
    assert told[0] == told[1]


@settings(max_examples=60)
@given(st.lists(st.lists(blocks, max_size=4).map(b"".join), max_size=4), limits)
def test_many_bodies(bodies: list[bytes], bounds: Limits | None) -> None:
    told = []
    for backend in (load("pure"), load("rust")):
        outcomes = backend.merge_many(bodies, limits=bounds)
        told.append(
            [
                repr(o) if isinstance(o, dict) else repr((o.kind, o.message, o.code, o.offset, o.body, o.partial))
                for o in outcomes
            ]
        )
    assert told[0] == told[1]


@settings(max_examples=100)
@given(st.lists(st.one_of(payloads, garbage.filter(lambda text: "\n" not in text)), min_size=1, max_size=6))
def test_framing_changes_nothing(texts: list[str]) -> None:
    """CRLF, no space behind the colon, comments between: only offsets and counts of bytes differ."""
    framings = [
        sse(*texts),
        b"".join(event(text).replace(b"\n", b"\r\n") for text in texts),
        b"".join(
            b": ping\n\nid: 7\n" + event(text).replace(b"data: ", b"data:", 1) for text in texts if text[:1] != " "
        ),
    ]
    for backend in (load("pure"), load("rust")):
        told = [feed_all(backend.ChatCompletionAccumulator(), [data]) for data in framings]
        assert (
            len({repr((o.result, o.texts, o.complete, o.usage_source, o.kinds, o.counts["events"])) for o in told}) == 1
        )
