"""A model of a server: a final chat.completion, streamed in a random legal way, comes back the same.

The second test inserts what must change nothing.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import load, pieces
from streams import spelled

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["ha ha ha", "\U0001f600\U0001f600", '{"a"', "\0\u2028\r\n"]
)
numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
names = st.sampled_from(["alpha", "beta", "gamma", "délta"])
# What a server may add: without lists of objects in messages and with something in every string, see below.
values = st.recursive(
    st.booleans() | numbers | texts.filter(bool),
    lambda inner: st.dictionaries(names, inner, min_size=1, max_size=2) | st.lists(numbers, min_size=1, max_size=2),
    max_leaves=4,
)
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def members(required: dict[str, Any], optional: dict[str, Any]) -> Any:
    return st.fixed_dictionaries(required, optional=optional)


# A `{}` that another object follows is a placeholder by the contract, and not in the result.
arguments = texts.filter(lambda text: not text.startswith("{}{"))
functions = st.fixed_dictionaries(
    {"name": st.sampled_from(["look_up", "send"]), "arguments": arguments | values.map(json.dumps)}
)
customs = st.fixed_dictionaries({"name": st.sampled_from(["shell", "sql"]), "input": arguments})
calls = st.lists(
    st.one_of(
        members({"type": st.just("function"), "function": functions}, {"extra_content": values}),
        members({"type": st.just("custom"), "custom": customs}, {}),
    ),
    min_size=1,
    max_size=3,
).map(lambda found: [{"id": f"call_{i}", **call} for i, call in enumerate(found)])
tokens = st.lists(
    st.fixed_dictionaries(
        {
            "token": texts,
            "logprob": st.floats(-9, 0),
            "bytes": st.none() | st.lists(st.integers(0, 255), max_size=3),
            "top_logprobs": st.just([]),
        }
    ),
    max_size=4,
)
audio = members(
    {"id": st.just("audio_1")},
    {
        "data": st.text(st.sampled_from(ALPHABET), max_size=16).map(lambda text: text[: len(text) // 4 * 4]),
        "transcript": texts,
        "expires_at": st.integers(0, 2**40),
    },
)
details = st.lists(
    members(
        {"type": st.sampled_from(["reasoning.text", "reasoning.summary"])},
        {"text": texts, "signature": texts.filter(bool)},
    ),
    max_size=2,
).map(lambda found: [{**detail, "index": i} for i, detail in enumerate(found)])
parts = st.lists(
    members({"type": st.just("image_url"), "image_url": st.just({"url": "data:,x"})}, {"note": values})
    | members({"type": st.just("text"), "text": texts.filter(bool)}, {}),
    min_size=1,
    max_size=3,
).filter(lambda found: all(a["type"] != "text" or b["type"] != "text" for a, b in pairwise(found)))
annotations = st.lists(
    st.fixed_dictionaries(
        {"type": st.just("url_citation"), "url_citation": st.fixed_dictionaries({"start_index": numbers})}
    ),
    max_size=2,
)
messages = members(
    {"role": st.just("assistant"), "content": st.none() | texts | parts},
    {
        "refusal": st.none() | texts,
        "reasoning_content": st.none() | texts,
        "reasoning": texts,
        "reasoning_details": details,
        "tool_calls": calls,
        "function_call": functions,
        "audio": audio,
        "annotations": annotations,
        "extra": values,
        "channel": texts,
        "nothing": st.none(),
    },
)
counts = st.integers(0, 10**6)
usage = members(
    {"prompt_tokens": counts.filter(bool), "completion_tokens": counts, "total_tokens": counts},
    {"prompt_tokens_details": st.none() | st.fixed_dictionaries({"cached_tokens": counts}), "cost": st.floats(0, 1)},
)
choices = st.lists(
    members(
        {"message": messages, "finish_reason": st.sampled_from(["stop", "length", "tool_calls", "content_filter"])},
        {
            "logprobs": st.none() | st.fixed_dictionaries({"content": tokens, "refusal": st.none()}),
            "content_filter_results": st.fixed_dictionaries({"hate": values}),
            "token_ids": st.lists(st.integers(0, 9), max_size=3),
        },
    ),
    min_size=1,
    max_size=3,
).map(lambda found: [{"index": i, **choice} for i, choice in enumerate(found)])
completions = members(
    {
        "id": st.just("chatcmpl-1"),
        "object": st.just("chat.completion"),
        "created": st.integers(1, 2**40),
        "model": texts.filter(bool),
        "choices": choices,
    },
    {
        "usage": usage,
        "service_tier": st.none() | texts.filter(bool),
        "system_fingerprint": st.just("fp_1"),
        "metadata": values,
        "citations": st.lists(texts, min_size=1, max_size=2),
    },
)
JOINED = {"content", "refusal", "reasoning_content", "reasoning", "text", "arguments", "input", "data", "transcript"}


class Server:
    """Streams one completion; the dice decide wherever a server is free."""

    def __init__(self, completion: dict[str, Any], dice: random.Random) -> None:
        self.completion = completion
        self.dice = dice

    def chunks(self) -> list[dict[str, Any]]:
        """Every choice's own pieces keep their order; choices, usage and the rest are shuffled together."""
        lanes = [list(self.choice(choice)) for choice in self.completion["choices"]]
        rest = [name for name in self.completion if name not in ("id", "object", "created", "model", "choices")]
        lanes += [[{name: self.completion[name]}] for name in rest]
        found = []
        while lanes:
            lane = self.dice.choice(lanes)
            found.append(lane.pop(0))
            lanes = [lane for lane in lanes if lane]
        return [self.envelope(chunk, i == 0) for i, chunk in enumerate(found)]

    def envelope(self, chunk: dict[str, Any], first: bool) -> dict[str, Any]:
        head = {"id": self.completion["id"], "object": "chat.completion.chunk"}
        head |= {name: self.completion[name] for name in ("created", "model")}
        if not first:
            head = {name: value for name, value in head.items() if self.dice.random() < 0.8}
        whole = head | chunk
        if "usage" in self.completion and "usage" not in whole and self.dice.random() < 0.5:
            whole["usage"] = None
        if "choices" not in whole:
            whole["choices"] = self.dice.choice([[], None])
        order = list(whole)
        self.dice.shuffle(order)
        return {name: whole[name] for name in order}

    def choice(self, choice: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The chunks of one choice."""
        deltas = list(self.message(choice["message"]))
        entries: list[dict[str, Any]] = [{"delta": delta} for delta in deltas]
        for name in sorted(choice.keys() - {"index", "message", "finish_reason"}):
            value = choice[name]
            where = self.dice.sample(range(len(entries)), self.dice.randint(1, min(3, len(entries))))
            for at, part in zip(sorted(where), self.shares(name, value, len(where))):
                entries[at][name] = part
        if self.dice.random() < 0.5:
            entries.append({"delta": {}})
        for entry in entries[:-1]:
            if self.dice.random() < 0.7:
                entry["finish_reason"] = None
        entries[-1]["finish_reason"] = choice["finish_reason"]
        for entry in entries:
            yield {"choices": [{"index": choice["index"], **entry}]}

    def shares(self, name: str, value: Any, number: int) -> list[Any]:
        """``value`` in so many parts; what does not extend comes whole, with nulls before and behind."""
        if name == "token_ids":
            return self.split(value, number)
        if name == "logprobs" and value is not None:
            return [{"content": part, "refusal": None} for part in self.split(value["content"], number)]
        at = self.dice.randrange(number)
        return [value if i == at else None for i in range(number)]

    def split(self, value: Any, number: int) -> list[Any]:
        edges = sorted(self.dice.randint(0, len(value)) for _ in range(number - 1))
        return [value[a:b] for a, b in zip([0, *edges], [*edges, len(value)])]

    def message(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The deltas of one message, each member's pieces in order."""
        lanes = []
        for name in sorted(message.keys() - {"role"}):
            lane = [{name: piece} for piece in self.member(name, message[name])]
            lanes.append(lane)
        yield {"role": "assistant"} | (
            {"content": ""} if isinstance(message["content"], str) and self.dice.random() < 0.5 else {}
        )
        while lanes:
            lane = self.dice.choice(lanes)
            delta = lane.pop(0)
            if self.dice.random() < 0.3:  # two members in one delta
                other = self.dice.choice(lanes)
                if other is not lane and other:
                    delta |= other.pop(0)
            if self.dice.random() < 0.3:
                delta |= {name: None for name in self.dice.sample(sorted(message), 1) if name not in delta}
            lanes = [lane for lane in lanes if lane]
            yield delta

    def member(self, name: str, value: Any) -> Iterator[Any]:
        if name == "tool_calls":
            yield from self.calls(value)
        elif isinstance(value, str) and name in JOINED:
            yield from self.fragments(value)
        elif name == "function_call":
            yield {"name": value["name"]}
            for fragment in self.fragments(value["arguments"]):
                yield {"arguments": fragment}
        elif name == "audio":
            yield {"id": value["id"]}
            for key in sorted(value.keys() - {"id"}):
                for fragment in self.fragments(value[key]) if key in JOINED else [value[key]]:
                    yield {key: fragment}
        elif name == "reasoning_details":
            yield []
            for detail in value:
                head = {key: detail[key] for key in ("type", "index")}
                for fragment in self.fragments(detail["text"]) if "text" in detail else [None]:
                    yield [head | ({} if fragment is None else {"text": fragment})]
                if "signature" in detail:
                    yield [head | {"signature": detail["signature"]}]
        elif name == "content" and isinstance(value, list):
            for part in value:
                if part["type"] == "text" and self.dice.random() < 0.5:
                    for fragment in self.fragments(part["text"]):
                        # beside another part a string is text; alone it would be a content that is a string
                        plain = len(value) > 1 and self.dice.random() < 0.5
                        yield fragment if plain else [{"type": "text", "text": fragment}]
                else:
                    yield self.dice.choice([part, [part]])
        else:
            yield value

    def calls(self, calls: list[dict[str, Any]]) -> Iterator[Any]:
        """Parallel calls: each opens with id and name, then fragments by index in any interleaving."""
        lanes = []
        for index, call in enumerate(calls):
            key, given = ("custom", "input") if call["type"] == "custom" else ("function", "arguments")
            head = {k: v for k, v in call.items() if k != key}
            lane = [{"index": index, **head, key: {"name": call[key]["name"], given: ""}}]
            for fragment in self.fragments(call[key][given]):
                lane.append({"index": index, key: {given: fragment}})
                if self.dice.random() < 0.2:
                    lane[-1] |= {"id": call["id"], "type": call["type"]}
            lanes.append(lane)
        while lanes:
            yield [self.dice.choice(lanes).pop(0)]
            lanes = [lane for lane in lanes if lane]

    def fragments(self, text: str) -> list[str]:
        return self.split(text, self.dice.randint(1, 4))


def frame(chunks: list[dict[str, Any]], dice: random.Random) -> bytes:
    """Any legal spelling of the events and of their JSON."""
    out = [dice.choice([b"", b"", b"\xef\xbb\xbf"])]
    for chunk in [*chunks, None]:
        end = dice.choice([b"\n", b"\r\n", b"\r"])
        text = (
            "[DONE]"
            if chunk is None
            else json.dumps(
                chunk,
                ensure_ascii=dice.random() < 0.5,
                separators=dice.choice([(",", ":"), (", ", ": ")]),
                indent=dice.choice([None, None, 1]),
            )
        )
        space = b" " if text[0] == " " else dice.choice([b"", b" "])
        lines = [b"data:" + space + line.encode() for line in text.split("\n")]
        lines = (
            dice.choice([[], [b": ping"], [b"id: 7"], [b"event: message"], [b"retry: 10", b"unknown: x"]]) + lines
            if out[1:]
            else lines
        )
        out.append(end.join(lines) + end + end)
    return b"".join(out)


def result_of(name: str, data: bytes, dice: random.Random) -> dict[str, Any]:
    accumulator = load(name).ChatCompletionAccumulator()
    for piece in pieces(data, dice, dice.choice([1, 7, 100, 10**6])):
        accumulator.feed(piece)
    accumulator.close()
    assert accumulator.error is None
    assert accumulator.diagnostics == []
    assert accumulator.complete
    assert json.loads(accumulator.result_json()) == accumulator.result()
    result: dict[str, Any] = accumulator.result()
    return result


@pytest.mark.thread_unsafe(
    reason="CPython 3.11 counts the recursion of ast.parse, by which hypothesis shows lambdas, for all threads at once"
)
@pytest.mark.parametrize("name", ["pure", "rust"])
@settings(max_examples=100)
@given(completions, st.integers(0, 2**32))
def test_a_streamed_completion_comes_back(name: str, completion: dict[str, Any], seed: int) -> None:
    dice = random.Random(seed)
    data = frame(Server(completion, dice).chunks(), dice)
    assert spelled(result_of(name, data, dice)) == spelled(completion)


def noise(chunks: list[dict[str, Any]], dice: random.Random) -> Iterator[dict[str, Any]]:
    """The chunks, with what says nothing between and within."""
    for chunk in chunks:
        while dice.random() < 0.4:
            yield dice.choice(
                [
                    {"choices": []},
                    {"choices": None},
                    {"obfuscation": "xyz", "choices": []},
                    {"p": "abc"},
                    {"error": None},
                    {"usage": None},
                ]
            )
        for entry in chunk.get("choices") or ():
            if dice.random() < 0.4:
                yield {
                    "choices": [
                        {
                            "index": entry["index"],
                            "delta": dice.choice([{}, {"role": "assistant"}, {"role": ""}, {"content": None}, None]),
                        }
                    ]
                }
            if dice.random() < 0.4:
                entry["delta"] = entry["delta"] | {"obfuscation": "x" * dice.randint(0, 9)}
            if dice.random() < 0.4:
                entry["delta"] = {"role": "assistant"} | entry["delta"]
            if dice.random() < 0.4:
                entry["delta"] |= {name: None for name in ("content", "tool_calls") if name not in entry["delta"]}
        yield {"obfuscation": "abc", **chunk} if dice.random() < 0.4 else chunk


@pytest.mark.thread_unsafe(
    reason="CPython 3.11 counts the recursion of ast.parse, by which hypothesis shows lambdas, for all threads at once"
)
@pytest.mark.parametrize("name", ["pure", "rust"])
@settings(max_examples=100)
@given(completions.filter(lambda c: "usage" in c), st.integers(0, 2**32))
def test_what_says_nothing_changes_nothing(name: str, completion: dict[str, Any], seed: int) -> None:
    dice = random.Random(seed)
    chunks = Server(completion, dice).chunks()
    data = frame(list(noise(chunks, dice)), dice)
    data = data.replace(b"\n\n", b"\n\n: keep-alive\n\n")
    assert spelled(result_of(name, data, dice)) == spelled(completion)
