"""A stream as typed events, on both implementations, whole and at every cut."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

import deltafold
from conftest import Backend, feeds, recipes
from deltafold import ToolCall
from deltafold.events import (
    AudioDone,
    Done,
    Error,
    Event,
    EventStream,
    Finish,
    ReasoningDelta,
    ReasoningDone,
    RefusalDelta,
    RefusalDone,
    TextDelta,
    TextDone,
    ToolCallArgumentsDelta,
    ToolCallDone,
    ToolCallStarted,
    Usage,
    UsageDone,
)
from streams import chunk, sse

END = b"data: [DONE]\n\n"
NO_USAGE = UsageDone(None, "none")
JOINED = {TextDelta: "text", ReasoningDelta: "text", RefusalDelta: "text", ToolCallArgumentsDelta: "arguments"}


def fragment(index: int | None = None, arguments: str | None = None, **members: Any) -> dict[str, Any]:
    function = {"name": members.pop("name")} if "name" in members else {}
    if arguments is not None:
        function["arguments"] = arguments
    return ({} if index is None else {"index": index}) | members | ({"function": function} if function else {})


def calls(*fragments: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return chunk({"tool_calls": list(fragments)}, index)


def told(backend: Backend, pieces: list[bytes]) -> list[Event]:
    stream = EventStream(backend.ChatCompletionAccumulator())
    events = [event for piece in pieces for event in stream.feed(piece)]
    return events + stream.close()


def squeezed(events: list[Event]) -> list[Event]:
    """Neighbours of one kind, choice and call joined."""
    out: list[Any] = []
    for event in events:
        name = JOINED.get(type(event))
        if (
            name
            and out
            and type(out[-1]) is type(event)
            and all(getattr(out[-1], key) == getattr(event, key) for key in ("choice", "call") if hasattr(event, key))
        ):
            whole = getattr(out[-1], name) + getattr(event, name)
            rest = (event.choice, event.call) if hasattr(event, "call") else (event.choice,)
            out[-1] = type(event)(*rest, whole)
        else:
            out.append(event)
    return out


def by_events(data: bytes) -> list[bytes]:
    return [part + b"\n\n" for part in data.split(b"\n\n")[:-1]]


CASES: dict[str, tuple[list[dict[str, Any]], list[Event]]] = {
    "text": (
        [
            chunk({"role": "assistant", "content": ""}),
            chunk({"content": "a"}),
            chunk({"content": "é"}, finish_reason="stop"),
        ],
        [TextDelta(0, "aé"), Finish(0, "stop"), TextDone(0, "aé"), NO_USAGE, Done(True)],
    ),
    "reasoning-then-text": (
        [
            chunk({"reasoning_content": "hm"}),
            chunk({"reasoning_content": "hm"}),
            chunk({"content": "so"}, finish_reason="stop"),
        ],
        [
            ReasoningDelta(0, "hmhm"),
            TextDelta(0, "so"),
            Finish(0, "stop"),
            ReasoningDone(0, "hmhm"),
            TextDone(0, "so"),
            NO_USAGE,
            Done(True),
        ],
    ),
    "refusal": (
        [chunk({"refusal": "I "}), chunk({"refusal": "can't"}, finish_reason="stop")],
        [RefusalDelta(0, "I can't"), Finish(0, "stop"), RefusalDone(0, "I can't"), NO_USAGE, Done(True)],
    ),
    "a-call": (
        [
            calls(fragment(0, "", id="c0", name="f", type="function")),
            calls(fragment(0, '{"a"')),
            calls(fragment(0, ":1}")),
            chunk({}, finish_reason="tool_calls"),
            {"choices": [], "usage": {"total_tokens": 9}},
        ],
        [
            ToolCallStarted(0, 0, "c0", "f", "function"),
            ToolCallArgumentsDelta(0, 0, '{"a":1}'),
            Finish(0, "tool_calls"),
            Usage({"total_tokens": 9}, "reported"),
            ToolCallDone(0, 0, ToolCall("c0", "function", "f", '{"a":1}')),
            UsageDone({"total_tokens": 9}, "reported"),
            Done(True),
        ],
    ),
    "a-name-in-fragments": (
        [
            calls(fragment(0, id="c0", name="look")),
            calls(fragment(0, name="_up")),
            calls(fragment(0, "{}")),
            chunk({}, finish_reason="stop"),
        ],
        [
            Finish(0, "stop"),
            ToolCallStarted(0, 0, "c0", "look_up", "function"),
            ToolCallArgumentsDelta(0, 0, "{}"),
            ToolCallDone(0, 0, ToolCall("c0", "function", "look_up", "{}")),
            NO_USAGE,
            Done(True),
        ],
    ),
    "a-placeholder": (
        [
            calls(fragment(0, "{}", id="c0", name="f")),
            calls(fragment(0, '{"a":')),
            calls(fragment(0, "2}")),
            chunk({}, finish_reason="stop"),
        ],
        [
            ToolCallStarted(0, 0, "c0", "f", "function"),
            ToolCallArgumentsDelta(0, 0, '{"a":2}'),
            Finish(0, "stop"),
            ToolCallDone(0, 0, ToolCall("c0", "function", "f", '{"a":2}')),
            NO_USAGE,
            Done(True),
        ],
    ),
    "a-call-without-arguments": (
        [calls(fragment(0, "", id="c0", name="f")), chunk({}, finish_reason="tool_calls")],
        [
            Finish(0, "tool_calls"),
            ToolCallStarted(0, 0, "c0", "f", "function"),
            ToolCallDone(0, 0, ToolCall("c0", "function", "f", "")),
            NO_USAGE,
            Done(True),
        ],
    ),
    "audio": (
        [
            chunk({"audio": {"id": "au", "transcript": "h"}}),
            chunk({"audio": {"data": "AAAA", "transcript": "i"}}, finish_reason="stop"),
            chunk({"audio": {"expires_at": 7}}),
        ],
        [
            Finish(0, "stop"),
            AudioDone(0, {"id": "au", "transcript": "hi", "data": "AAAA", "expires_at": 7}),
            NO_USAGE,
            Done(True),
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_events(backend: Backend, name: str) -> None:
    chunks, expected = CASES[name]
    data = sse(*chunks) + END
    for pieces in [by_events(data), *feeds(data)]:
        assert squeezed(told(backend, pieces)) == expected
    stream = EventStream(backend.ChatCompletionAccumulator())
    events = [event for value in chunks for event in stream.feed_chunk(value)]
    assert squeezed(events + stream.close()) == expected


def test_over_a_source(backend: Backend) -> None:
    chunks, expected = CASES["a-call"]
    pieces = by_events(sse(*chunks) + END)

    async def source() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def collected() -> list[Event]:
        return [event async for event in EventStream(backend.ChatCompletionAccumulator()).aover(source())]

    assert squeezed(list(EventStream(backend.ChatCompletionAccumulator()).over(pieces))) == expected
    assert squeezed(asyncio.run(collected())) == expected


def test_an_accumulator_that_was_closed_or_fed_by_others(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    stream = EventStream(weakref.proxy(accumulator))  # so that an accumulator can keep its own stream of events
    assert stream.feed(sse(chunk({"content": "a"}))) == [TextDelta(0, "a")]
    accumulator.feed(sse(chunk({"content": "b"})))
    assert stream.feed(sse(chunk({"content": "c"}))) == [TextDelta(0, "bc")]
    accumulator.feed(sse(chunk({"content": "d"}, finish_reason="stop")).rstrip())
    accumulator.close("timeout")
    assert stream.close() == [TextDelta(0, "d"), Finish(0, "stop"), TextDone(0, "abcd"), NO_USAGE, Done(True)]
    assert accumulator.close_reason == "timeout"


def test_one_piece_brings_its_own_deltas(backend: Backend) -> None:
    stream = EventStream(backend.ChatCompletionAccumulator())
    assert stream.feed(b"data: {") == []
    assert stream.feed(b'"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n') == [TextDelta(0, "a")]
    assert stream.feed(b": comment\n\n") == []
    assert stream.feed(sse(chunk({"content": "b"}), chunk({"content": "c"}))) == [TextDelta(0, "bc")]
    assert stream.feed(sse(chunk({"content": ""}))) == []
    assert stream.close("timeout") == [
        TextDone(0, "abc"),
        NO_USAGE,
        Error(stream.accumulator.error),
        Done(False),
    ]
    assert stream.accumulator.close_reason == "timeout"
    assert stream.accumulator.error.kind == "truncated"
    assert stream.close() == []


def test_several_choices(backend: Backend) -> None:
    data = sse(
        chunk({"content": "b"}, 1),
        chunk({"content": "a"}),
        chunk({}, 1, finish_reason="length"),
        chunk({}, finish_reason="stop"),
    )
    assert told(backend, by_events(data + END)) == [
        TextDelta(1, "b"),
        TextDelta(0, "a"),
        Finish(1, "length"),
        Finish(0, "stop"),
        TextDone(0, "a"),
        TextDone(1, "b"),
        NO_USAGE,
        Done(True),
    ]


def test_interleaved_calls(backend: Backend) -> None:
    """Calls keep their number, whatever the order in which they grow."""
    data = sse(
        calls(fragment(0, "", id="a", name="f"), fragment(1, "", id="b", name="g")),
        calls(fragment(1, "[")),
        calls(fragment(0, "(")),
        calls(fragment(1, "]"), fragment(0, ")")),
        chunk({}, finish_reason="tool_calls"),
    )
    events = told(backend, by_events(data + END))
    for call, arguments in ((0, "()"), (1, "[]")):
        deltas = [e.arguments for e in events if isinstance(e, ToolCallArgumentsDelta) and e.call == call]
        assert "".join(deltas) == arguments
        (done,) = (e.tool_call for e in events if isinstance(e, ToolCallDone) and e.call == call)
        assert done.arguments == arguments
    assert sum(isinstance(e, ToolCallStarted) for e in events) == 2


def test_a_half_of_a_pair_waits(backend: Backend) -> None:
    stream = EventStream(backend.ChatCompletionAccumulator())
    assert stream.feed(b'data: {"choices":[{"index":0,"delta":{"content":"x\\ud83d"}}]}\n\n') == [TextDelta(0, "x")]
    assert stream.feed(b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00"}}]}\n\n') == [TextDelta(0, "😀")]
    assert stream.feed(b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n') == []
    assert stream.close()[:2] == [TextDelta(0, "\ufffd"), TextDone(0, "x😀\ufffd")]


def test_a_half_in_arguments(backend: Backend) -> None:
    data = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"arguments":"x\\ud83d"}}]}}]}\n\n'
    events = told(backend, by_events(data))
    assert "".join(e.arguments for e in events if isinstance(e, ToolCallArgumentsDelta)) == "x\ufffd"
    assert ToolCallDone(0, 0, ToolCall("c", "function", None, "x\ufffd")) in events


def test_nothing_after_done(backend: Backend) -> None:
    stream = EventStream(backend.ChatCompletionAccumulator())
    events = stream.feed(sse(chunk({"content": "a"}, finish_reason="stop")) + END)
    assert events[-1] == Done(True)
    assert stream.feed(sse(chunk({"content": "late"}))) == []
    assert stream.close() == []


def test_a_finish_reason_in_every_chunk(backend: Backend) -> None:
    """Some servers send ``stop`` with each: the reason is told once, and what comes behind it is not lost."""
    data = sse(*(chunk({"content": text}, finish_reason="stop") for text in "abc"))
    assert told(backend, by_events(data)) == [
        TextDelta(0, "a"),
        Finish(0, "stop"),
        TextDelta(0, "b"),
        TextDelta(0, "c"),
        TextDone(0, "abc"),
        NO_USAGE,
        Done(True),
    ]


def test_usage_that_grows(backend: Backend) -> None:
    usages = [{"completion_tokens": n} for n in (0, 1, 1, 2)]
    data = sse(*(chunk({"content": "a"}) | {"usage": usage} for usage in usages))
    events = told(backend, by_events(data))
    assert [e.usage["completion_tokens"] for e in events if isinstance(e, Usage)] == [0, 1, 2]
    assert UsageDone({"completion_tokens": 2}, "reported") in events


def test_an_error_is_told_once_and_the_stream_goes_on(backend: Backend) -> None:
    data = sse({"error": {"message": "first"}}, {"error": {"message": "second"}}, chunk({"content": "a"}))
    events = told(backend, by_events(data))
    errors = [e.error for e in events if isinstance(e, Error)]
    assert [(e.kind, e.message, e.offset) for e in errors] == [("upstream-error", "first", 0)]
    assert events[1] == TextDelta(0, "a")


@pytest.mark.parametrize("body", [b"", b"<html>no</html>", b"data: {bad\n\n"])
def test_a_body_that_is_no_stream(backend: Backend, body: bytes) -> None:
    for pieces in feeds(body):
        usage, error, done = sorted(told(backend, pieces), key=lambda e: e.type, reverse=True)
        assert (usage, done) == (NO_USAGE, Done(False))
        assert isinstance(error, Error)


def test_a_whole_completion_instead_of_a_stream(backend: Backend) -> None:
    body = b'{"object":"chat.completion","choices":[{"index":0,"message":{"content":"whole"},"finish_reason":"stop"}]}'
    for pieces in feeds(body):
        assert squeezed(told(backend, pieces)) == [
            TextDelta(0, "whole"),
            Finish(0, "stop"),
            TextDone(0, "whole"),
            NO_USAGE,
            Done(True),
        ]


def test_reasoning_under_two_names_is_told_once(backend: Backend) -> None:
    data = sse(
        *(chunk({"reasoning": text, "reasoning_details": [{"type": "reasoning.text", "text": text}]}) for text in "ab")
    )
    events = told(backend, by_events(data))
    assert [e.text for e in events if isinstance(e, ReasoningDelta)] == ["a", "b"]
    assert ReasoningDone(0, "ab") in events


def test_a_piece_costs_what_it_brings(backend: Backend) -> None:
    """No event holds, and no look asks for, what earlier pieces brought."""

    class Counting:
        def __init__(self) -> None:
            self.inner = backend.ChatCompletionAccumulator()
            self.asked: dict[str, int] = {}

        def __getattr__(self, name: str) -> Any:
            self.asked[name] = self.asked.get(name, 0) + 1
            return getattr(self.inner, name)

    counting = Counting()
    stream = EventStream(counting)  # type: ignore[arg-type]
    for _ in range(50):
        assert stream.feed(sse(chunk({"content": "abc"}))) == [TextDelta(0, "abc")]
    assert not counting.asked.keys() & {"text", "result", "tool_calls", "reasoning_text", "usage", "error", "counts"}


@pytest.mark.parametrize("end", [END, b""])
def test_the_recipe(backend: Backend, monkeypatch: pytest.MonkeyPatch, end: bytes) -> None:
    """docs/agents.md, word for word."""
    monkeypatch.setattr(deltafold, "ChatCompletionAccumulator", backend.ChatCompletionAccumulator)
    heard: list[Any] = []
    data = sse(chunk({"reasoning": "hm"}), chunk({"content": "so"}), calls(fragment(0, "[1]", id="c", name="f"))) + end
    names: dict[str, Any] = {
        "pieces": by_events(data),
        "request": {"tools": [{"type": "function", "function": {"name": "f"}}]},
        "think": lambda text: heard.append(("think", text)),
        "say": lambda text: heard.append(("say", text)),
        "run": lambda *told: heard.append(told),
        "warn": lambda error: heard.append(error.kind),
    }
    exec(next(code for code in recipes("agents.md") if "EventStream" in code), names)
    assert heard == [("think", "hm"), ("say", "so"), ("f", [1]), *([] if end else ["truncated"])]


def test_events_of_an_accumulator(backend: Backend) -> None:
    accumulator = backend.ChatCompletionAccumulator()
    assert accumulator.events(sse(chunk({"content": "a"}))) == [TextDelta(0, "a")]
    last = bytearray(sse(chunk({"content": "b"}, finish_reason="stop")))
    assert accumulator.events(last) == [TextDelta(0, "b"), Finish(0, "stop")]
    assert accumulator.events() == [TextDone(0, "ab"), NO_USAGE, Done(True)]
    assert accumulator.events() == []
    assert accumulator.close_reason == "eof"
    with pytest.raises(ValueError, match="closed"):
        accumulator.events(b"data")
    with pytest.raises(TypeError):
        accumulator.events("data")
    gone = weakref.ref(accumulator)
    del accumulator
    assert gone() is None
