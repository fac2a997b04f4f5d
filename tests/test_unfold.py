"""unfold: a whole completion as a stream, and back again."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deltafold
from conftest import Backend, feeds, load
from deltafold import unfold

HEAD = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1767225600, "model": "m-1"}


def completion(*choices: dict[str, Any], **top: Any) -> dict[str, Any]:
    return HEAD | {"choices": list(choices)} | top


def choice(
    message: dict[str, Any], index: int = 0, finish_reason: str | None = "stop", **others: Any
) -> dict[str, Any]:
    message = {"role": "assistant", "content": None} | message
    return {"index": index, "message": message, "finish_reason": finish_reason} | others


def call(id: str, name: str, arguments: str, **others: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}} | others


def logprob(token: str) -> dict[str, Any]:
    return {"token": token, "logprob": -0.25, "bytes": list(token.encode()), "top_logprobs": []}


def chunks(body: bytes) -> list[dict[str, Any]]:
    events = body.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(event.startswith("data: ") and "\n" not in event for event in events[:-1])
    return [json.loads(event[6:]) for event in events[:-2]]


def test_the_events_of_a_plain_answer() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    whole = completion(choice({"content": "Hello", "refusal": None}), usage=usage, system_fingerprint="fp_1")
    head = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1767225600,
        "model": "m-1",
        "system_fingerprint": "fp_1",
    }

    def entry(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        return {"index": 0, "delta": delta, "finish_reason": finish_reason}

    assert chunks(b"".join(unfold(whole, chunk_chars=3))) == [
        head | {"choices": [entry({"role": "assistant", "content": "", "refusal": None})]},
        head | {"choices": [entry({"content": "Hel"})]},
        head | {"choices": [entry({"content": "lo"})]},
        head | {"choices": [entry({}, "stop")]},
        head | {"choices": [], "usage": usage},
    ]


def test_usage_only_for_those_who_asked() -> None:
    whole = completion(choice({"content": "Hi"}), usage={"total_tokens": 5})
    assert b"usage" not in b"".join(unfold(whole, include_usage=False))
    assert b"usage" not in b"".join(unfold(whole | {"usage": None}, include_usage=False))


def test_a_tool_call_begins_with_its_name_and_keeps_its_index() -> None:
    whole = completion(
        choice({"tool_calls": [call("c1", "f", '{"a":1}'), call("c2", "g", "{}")]}, finish_reason="tool_calls")
    )
    deltas = [c["choices"][0]["delta"] for c in chunks(b"".join(unfold(whole, chunk_chars=4)))]
    assert [d["tool_calls"][0] for d in deltas if "tool_calls" in d] == [
        {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"a"'}},
        {"index": 0, "function": {"arguments": ":1}"}},
        {"index": 1, "id": "c2", "type": "function", "function": {"name": "g", "arguments": ""}},
        {"index": 1, "function": {"arguments": "{}"}},
    ]


def test_log_probabilities_come_with_their_text() -> None:
    tokens = [logprob(t) for t in ("Hel", "lo", " you", "!")]
    whole = completion(choice({"content": "Hello you!"}, logprobs={"content": tokens, "refusal": None}))
    entries = [c["choices"][0] for c in chunks(b"".join(unfold(whole, chunk_chars=5)))]
    assert entries[0]["logprobs"] == {"content": [], "refusal": None}
    assert [(e["delta"]["content"], e["logprobs"]["content"]) for e in entries[1:-1]] == [
        ("Hello", tokens[:2]),
        (" you!", tokens[2:]),
    ]


def test_base64_is_cut_where_each_piece_decodes() -> None:
    sound = bytes(range(256)) * 200
    audio = {"id": "a1", "data": base64.b64encode(sound).decode(), "transcript": "la la", "expires_at": 5}
    whole = completion(choice({"audio": audio}))
    deltas = [c["choices"][0]["delta"].get("audio", {}) for c in chunks(b"".join(unfold(whole)))]
    data = [d["data"] for d in deltas if "data" in d]
    assert len(data) > 2
    assert b"".join(base64.b64decode(d, validate=True) for d in data) == sound


WHOLE = {
    "no choices": HEAD | {"choices": []},
    "nothing at all": {"object": "chat.completion", "choices": []},
    "no text": completion(choice({})),
    "empty text": completion(choice({"content": ""})),
    "no finish reason": completion(choice({"content": "cut of"}, finish_reason=None)),
    "equal pieces": completion(choice({"content": "hahahaha", "reasoning_content": "....", "refusal": "nono"})),
    "outside the BMP": completion(choice({"content": "🏞️ é\u2028\ufffd\x00"})),
    "every reasoning name": completion(
        choice({"content": "a", "reasoning_content": "b", "reasoning": "", "reasoning_text": None, "thinking": "cc"})
    ),
    "reasoning details": completion(
        choice(
            {
                "reasoning_details": [
                    {"type": "reasoning.text", "index": 0, "text": "tt", "signature": "s"},
                    {"type": "reasoning.text", "index": 4, "text": "uu"},
                    {"type": "reasoning.encrypted", "id": "x", "data": "dd"},
                ]
            }
        )
    ),
    "content parts": completion(
        choice(
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "hm hm"}], "signature": "s"},
                    {"type": "text", "text": "first", "annotations": [1]},
                    {"type": "image_url", "image_url": {"url": "u"}},
                    {"type": "image_url", "image_url": {"url": "u"}},
                    {"type": "text", "text": "last"},
                ]
            }
        )
    ),
    "equal neighbours": completion(
        choice(
            {
                "content": [
                    {"type": "text", "text": "aa"},
                    {"type": "text", "text": "bb"},
                    {"type": "thinking", "thinking": "cc"},
                    {"type": "thinking", "thinking": [{"type": "text", "text": "d"}, {"type": "text", "text": "e"}]},
                ]
            }
        )
    ),
    "tool calls": completion(
        choice(
            {
                "tool_calls": [
                    call("c1", "f", '{"a": "}{"}', extra_content={"thought_signature": "xx"}),
                    call("c2", "f", ""),
                    {"type": "function", "function": {"name": "f", "arguments": "{}"}},
                    {"id": "c4", "type": "custom", "custom": {"name": "g", "input": "{}{}{}"}},
                    {"id": "c5", "type": "function"},
                ]
            },
            finish_reason="tool_calls",
        )
    ),
    "a call without id and name": completion(
        choice({"tool_calls": [call("c1", "f", "{}"), {"type": "function", "function": {"arguments": "{}{}"}}]})
    ),
    "old function call": completion(
        choice({"function_call": {"name": "f", "arguments": "{}{"}}, finish_reason="function_call")
    ),
    "nulls": completion(
        choice({"refusal": None, "function_call": None, "audio": None, "reasoning_details": None}, logprobs=None),
        usage=None,
    ),
    "empty lists": completion(
        choice({"annotations": [], "reasoning_details": [], "images": []}, logprobs={"content": []})
    ),
    "padded audio": completion(choice({"audio": {"data": "AAA=!AAA=", "transcript": "", "expires_at": 9}})),
    "log probabilities beside other text": completion(
        choice(
            {"content": "ab"}, logprobs={"content": [logprob("x")] * 70, "refusal": [logprob("y")], "extra": {"k": 1}}
        )
    ),
    "log probabilities as a list": completion(choice({"content": "ab"}, logprobs=[logprob("ab")])),
    "several choices": completion(
        choice({"content": "a"}), choice({"content": "b"}, 3, "length"), choice({"content": "c"}, 2**63 - 1, None)
    ),
    "members nobody knows": completion(
        choice(
            {
                "content": "x",
                "hue": "lala",
                "deep": {"er": {"est": [{"index": 2, "v": "ww"}, "s", {"v": 1}, {"v": 1}]}},
            },
            content_filter_results={"hate": {"filtered": False}},
            token_ids=[1, 2, 2],
            text="tt",
            stop_reason=None,
        ),
        citations=["u", "u"],
        timings={"prompt_ms": 0.5, "none": {}},
        provider="",
    ),
    "usage of other places": completion(
        choice({"content": "x"}, usage={"total_tokens": 7}),
        usage={"total_tokens": 7},
        x_groq={"id": "r", "usage": {"total_tokens": 8}},
    ),
    "usage of zeros": completion(choice({"content": "x"}), usage={"total_tokens": 0, "prompt_tokens_details": None}),
    "usage that is empty": completion(choice({"content": "x"}), usage={}),
}


@pytest.mark.parametrize("chunk_chars", [1, 2, 3, 100])
@pytest.mark.parametrize("name", WHOLE)
def test_and_back(backend: Backend, name: str, chunk_chars: int) -> None:
    whole = WHOLE[name]
    before = json.dumps(whole)
    events = list(unfold(whole, chunk_chars=chunk_chars))
    assert json.dumps(whole) == before, "unfold must not change what it was given"
    assert backend.merge(events) == whole
    chunks(b"".join(events))


def test_and_back_whatever_the_cuts(backend: Backend) -> None:
    for pieces in feeds(b"".join(unfold(WHOLE["tool calls"], chunk_chars=2))):
        assert backend.merge(pieces) == WHOLE["tool calls"]


def test_what_json_cannot_say_is_null() -> None:
    whole = completion(choice({"content": "x"}, score=math.nan), timings=[math.inf, 1.5])
    merged = deltafold.merge(unfold(whole))
    assert merged["choices"][0]["score"] is None
    assert merged["timings"] == [None, 1.5]


@pytest.mark.parametrize(
    "wrong", [None, [], {}, {"choices": None}, {"choices": [{"index": 0}]}, {"choices": [{"message": {}}]}]
)
def test_only_completions(wrong: Any) -> None:
    with pytest.raises(TypeError, match="completion must be a chat"):
        unfold(wrong)


def test_chunk_chars_is_a_positive_int() -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        unfold(WHOLE["no text"], chunk_chars=0)
    with pytest.raises(TypeError, match="not str"):
        unfold(WHOLE["no text"], chunk_chars="3")  # type: ignore[arg-type]


# Chunks of any kind, to find completions that nobody thought of

words = st.text(st.sampled_from('a b{}"\\,:=é🏞\ufffd\n\x00'), max_size=6)
leaves = st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats(allow_nan=False, allow_infinity=False) | words
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["index", "id", "type", "text", "v", "w"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def objects(odd: bool = True, **members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={k: v | values if odd else v for k, v in members.items()})


ids = st.sampled_from(["", "c1", "c2", "c3"])
indexes = st.sampled_from([0, 1, 2, 7, -1, None, "0"])
functions = objects(name=st.sampled_from(["", "f", "fo", "g"]), arguments=words | st.just("{}"), x=values)
calls = objects(
    index=indexes,
    id=ids,
    type=st.sampled_from(["function", "custom"]),
    function=functions,
    custom=objects(name=words, input=words),
    y=values,
)
inner_parts = objects(type=st.sampled_from(["text", "thinking"]), text=words, thinking=words)
content_parts = objects(
    type=st.sampled_from(["text", "thinking", "image_url"]),
    text=words,
    thinking=words | st.lists(inner_parts, max_size=3),
    signature=words,
)
details = objects(
    type=st.sampled_from(["a", "b"]), index=indexes, id=ids, text=words, summary=words, data=words, signature=words
)
tokens = objects(token=words, logprob=st.just(-1.5))
messages = objects(
    role=st.just("assistant"),
    content=words | st.lists(content_parts, max_size=4),
    refusal=words,
    reasoning_content=words,
    thinking=words,
    reasoning_details=st.lists(details, max_size=3),
    tool_calls=st.lists(calls, max_size=3),
    function_call=functions,
    audio=objects(id=ids, data=st.text("AB=", max_size=6), transcript=words, expires_at=st.integers()),
    annotations=st.lists(values, max_size=3),
    hue=values,
)
choices = objects(
    odd=False,  # two choices whose usage differs in type are told apart by their order alone
    index=indexes,
    delta=messages,
    message=messages,
    finish_reason=st.sampled_from(["", "stop", "length"]),
    logprobs=objects(content=st.lists(tokens, max_size=3), refusal=st.lists(tokens, max_size=2))
    | st.lists(tokens, max_size=2),
    usage=st.dictionaries(st.sampled_from(["total_tokens", "x"]), st.none() | st.integers(), max_size=2),
    text=words,
    token_ids=st.lists(st.integers(), max_size=3),
    hue=values,
)
streams = st.lists(
    objects(
        id=ids,
        created=st.integers(0, 5),
        model=words,
        service_tier=words,
        choices=st.lists(choices, max_size=3),
        usage=st.dictionaries(st.sampled_from(["total_tokens", "x"]), leaves | values, max_size=2),
        x_groq=objects(usage=st.dictionaries(st.just("total_tokens"), leaves)),
        citations=values,
    ),
    max_size=5,
)


@pytest.mark.parametrize("name", ["pure", "rust"])
@settings(max_examples=100)
@given(stream=streams, chunk_chars=st.integers(1, 4))
def test_and_back_for_whatever_was_merged(name: str, stream: list[Any], chunk_chars: int) -> None:
    backend = load(name)
    accumulator = backend.ChatCompletionAccumulator()
    for chunk in stream:
        accumulator.feed(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    accumulator.close()
    whole = accumulator.result()
    again = backend.merge(b"".join(unfold(whole, chunk_chars=chunk_chars)))
    assert again == whole
    assert json.dumps(again) == json.dumps(whole), "members in the same order"
