"""A stream as small typed events, for agents and user interfaces: bytes in, events out.

``EventStream`` follows an accumulator. It costs nothing where it is not used, and per piece what the piece brought.

Deltas come with the piece that brought them, and so do ``Usage`` and ``Finish``, once more when they change: how often depends
on the pieces, what they say together does not. The others come once, the same for every cut:

- ``ToolCallStarted`` with the first text of its arguments, or at the end: the name is whole by then; an id or a type that some
  server gives only later is in ``ToolCallDone``
- ``Error`` for the first error
- the ``…Done`` events when nothing more can come: at ``[DONE]``, or when the stream is closed
- ``Done`` last

The ``…Done`` events wait for the end because streams go on behind a finish reason: with usage, with the expiry of audio, on some
servers with more text. Whoever cannot wait takes ``Finish`` for the word of the server that a choice is complete.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ._backend import ChatCompletionAccumulator
from ._calls import ToolCall
from ._cursors import Cursors
from ._errors import DeltafoldError
from ._types import Seen, Shown

__all__ = [
    "AudioDone",
    "Done",
    "Error",
    "Event",
    "EventStream",
    "Finish",
    "ReasoningDelta",
    "ReasoningDone",
    "RefusalDelta",
    "RefusalDone",
    "TextDelta",
    "TextDone",
    "ToolCallArgumentsDelta",
    "ToolCallDone",
    "ToolCallStarted",
    "Usage",
    "UsageDone",
]

CONTENT, REASONING, REFUSAL, TOOL_CALL, FINISH, USAGE, ERROR, DONE = (
    flag.value
    for flag in (
        Seen.CONTENT,
        Seen.REASONING,
        Seen.REFUSAL,
        Seen.TOOL_CALL,
        Seen.FINISH,
        Seen.USAGE,
        Seen.ERROR,
        Seen.DONE,
    )
)
OF_CHOICES = CONTENT | REASONING | REFUSAL | TOOL_CALL | FINISH


@dataclass(frozen=True, slots=True, repr=False)
class TextDelta(Shown):
    """New text of a choice's content."""

    type: ClassVar[Literal["text.delta"]] = "text.delta"
    choice: int
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class TextDone(Shown):
    """The whole text of a choice's content, if it had any."""

    type: ClassVar[Literal["text.done"]] = "text.done"
    choice: int
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class ReasoningDelta(Shown):
    """New reasoning of a choice, under whatever name the server gives it."""

    type: ClassVar[Literal["reasoning.delta"]] = "reasoning.delta"
    choice: int
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class ReasoningDone(Shown):
    """The whole reasoning of a choice, if it had any: the accumulator's ``reasoning_text``."""

    type: ClassVar[Literal["reasoning.done"]] = "reasoning.done"
    choice: int
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class RefusalDelta(Shown):
    """New text of a refusal."""

    type: ClassVar[Literal["refusal.delta"]] = "refusal.delta"
    choice: int
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class RefusalDone(Shown):
    """The whole refusal of a choice, if it had any."""

    type: ClassVar[Literal["refusal.done"]] = "refusal.done"
    choice: int
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class ToolCallStarted(Shown):
    """A tool call. ``call`` numbers the calls of a choice in the order in which they were opened; ``id`` and ``name`` are None
    where the server gave none so far."""

    type: ClassVar[Literal["tool_call.started"]] = "tool_call.started"
    choice: int
    call: int
    id: str | None
    name: str | None
    kind: str


@dataclass(frozen=True, slots=True, repr=False)
class ToolCallArgumentsDelta(Shown):
    """New text of a call's arguments (of a custom tool's input)."""

    type: ClassVar[Literal["tool_call.arguments.delta"]] = "tool_call.arguments.delta"
    choice: int
    call: int
    arguments: str


@dataclass(frozen=True, slots=True, repr=False)
class ToolCallDone(Shown):
    """A tool call as it is in the result; ``tool_call.parse(tools)`` checks it."""

    type: ClassVar[Literal["tool_call.done"]] = "tool_call.done"
    choice: int
    call: int
    tool_call: ToolCall


@dataclass(frozen=True, slots=True, repr=False)
class AudioDone(Shown):
    """The audio of a choice as it is in the result: ``id``, ``data`` (base64), ``transcript``, ``expires_at``."""

    type: ClassVar[Literal["audio.done"]] = "audio.done"
    choice: int
    audio: dict[str, Any]


@dataclass(frozen=True, slots=True, repr=False)
class Finish(Shown):
    """A choice has a finish reason."""

    type: ClassVar[Literal["finish"]] = "finish"
    choice: int
    reason: str


@dataclass(frozen=True, slots=True, repr=False)
class Usage(Shown):
    """Usage as reported so far, and where (the accumulator's ``usage_source``)."""

    type: ClassVar[Literal["usage"]] = "usage"
    usage: dict[str, Any]
    source: str


@dataclass(frozen=True, slots=True, repr=False)
class UsageDone(Shown):
    """What the stream reported; None when it reported nothing, which is not zero."""

    type: ClassVar[Literal["usage.done"]] = "usage.done"
    usage: dict[str, Any] | None
    source: str


@dataclass(frozen=True, slots=True, repr=False)
class Error(Shown):
    """The stream's first error; it is not raised, and the stream may go on behind it."""

    type: ClassVar[Literal["error"]] = "error"
    error: DeltafoldError


@dataclass(frozen=True, slots=True, repr=False)
class Done(Shown):
    """The end; ``complete`` as the accumulator says."""

    type: ClassVar[Literal["done"]] = "done"
    complete: bool


Event = (
    TextDelta
    | TextDone
    | ReasoningDelta
    | ReasoningDone
    | RefusalDelta
    | RefusalDone
    | ToolCallStarted
    | ToolCallArgumentsDelta
    | ToolCallDone
    | AudioDone
    | Finish
    | Usage
    | UsageDone
    | Error
    | Done
)


class EventStream:
    """Feeds an accumulator and tells what each piece brought.

    Args:
        accumulator: a fresh one; feed it only through this from now on. It has the result, as ever.

    Example:
        >>> stream = EventStream(ChatCompletionAccumulator())
        >>> stream.feed(b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\\n\\n')
        [TextDelta(choice=0, text='Hi')]
    """

    __slots__ = ("_choices", "_ended", "_error_told", "_usage", "accumulator")

    def __init__(self, accumulator: ChatCompletionAccumulator) -> None:
        self.accumulator = accumulator
        self._choices: dict[int, Following] = {}
        self._usage: dict[str, Any] | None = None
        self._error_told = False
        self._ended = False

    def feed(self, piece: bytes | bytearray | memoryview) -> list[Event]:
        """The events of the response's next bytes; as the accumulator's ``feed``, it never raises on content."""
        return self._told(self.accumulator.feed(piece))

    def feed_chunk(self, chunk: Any) -> list[Event]:
        """The events of one parsed chunk, as the accumulator's ``feed_chunk`` takes them."""
        return self._told(self.accumulator.feed_chunk(chunk))

    def close(self, reason: str = "eof") -> list[Event]:
        """Ends the stream: the last events, ``Done`` behind them. A second call gives none."""
        self.accumulator.close(reason)
        events = self._told(OF_CHOICES | USAGE)  # whatever the last event brought, and whoever closed it
        return events if self._ended else events + self._end()

    def over(self, pieces: Iterable[bytes | bytearray | memoryview]) -> Iterator[Event]:
        """The events of all pieces, and of the end behind them."""
        for piece in pieces:
            yield from self.feed(piece)
        yield from self.close()

    async def aover(self, pieces: AsyncIterable[bytes | bytearray | memoryview]) -> AsyncIterator[Event]:
        """``over`` an asynchronous source, such as ``response.aiter_bytes()``."""
        async for piece in pieces:
            for event in self.feed(piece):
                yield event
        for event in self.close():
            yield event

    def _told(self, seen: int) -> list[Event]:
        events: list[Event] = []
        if not seen or self._ended:
            return events
        if seen & OF_CHOICES:
            for index, reason in self.accumulator.finish_reasons.items():
                choice = self._choices.get(index)
                if choice is None:
                    choice = self._choices[index] = Following(self.accumulator, index)
                choice.tell(seen, reason, events)
        if seen & USAGE:
            usage = self.accumulator.usage
            if usage is not None and usage != self._usage:
                self._usage = usage
                events.append(Usage(usage, self.accumulator.usage_source))
        if seen & ERROR:
            self._tell_error(events)
        return events + self._end() if seen & DONE else events

    def _tell_error(self, events: list[Event]) -> None:
        error = self.accumulator.error
        if error is not None and not self._error_told:
            self._error_told = True
            events.append(Error(error))

    def _end(self) -> list[Event]:
        self._ended = True
        events: list[Event] = []
        for entry in self.accumulator.result()["choices"]:
            choice = self._choices.get(entry["index"])
            if choice is None:
                choice = Following(self.accumulator, entry["index"])
            choice.end(entry["message"], events)
        events.append(UsageDone(self.accumulator.usage, self.accumulator.usage_source))
        self._tell_error(events)
        events.append(Done(self.accumulator.complete))
        return events


class Following:
    """One choice, and how much of it was told."""

    __slots__ = ("_accumulator", "_cursors", "_given", "_index", "_reason", "_started")

    def __init__(self, accumulator: ChatCompletionAccumulator, index: int) -> None:
        self._accumulator = accumulator
        self._index = index
        self._cursors = Cursors(accumulator, index)
        self._given: dict[Any, int] = {}  # characters told of each kind of text, and of each call
        self._reason: str | None = None
        self._started: set[int] = set()

    def tell(self, seen: int, reason: str | None, events: list[Event]) -> None:
        if seen & REASONING:
            self._tell_text(ReasoningDelta, self._cursors.reasoning(), events)
        if seen & CONTENT:
            self._tell_text(TextDelta, self._cursors.text("content"), events)
        if seen & REFUSAL:
            self._tell_text(RefusalDelta, self._cursors.text("refusal"), events)
        if seen & TOOL_CALL:
            self._tell_calls(False, events)
        if reason is not None and reason != self._reason:
            self._reason = reason
            events.append(Finish(self._index, reason))

    def end(self, message: dict[str, Any], events: list[Event]) -> None:
        """What was withheld, then what is done."""
        done: list[Event] = []
        for delta, whole in (
            (ReasoningDelta, self._accumulator.reasoning_text(self._index)),
            (TextDelta, self._accumulator.text(self._index)),
            (RefusalDelta, message.get("refusal") or ""),
        ):
            if whole:
                self._tell_text(delta, whole[self._given.get(delta, 0) :], events)
                done.append(DONES[delta](self._index, whole))
        calls = self._accumulator.tool_calls(self._index)
        numbers = [grown.number for grown in self._tell_calls(True, events)]
        for number, call in zip(numbers, calls):
            rest = call.arguments[self._given.get(number, 0) :]
            if rest:  # a half of a surrogate pair that stayed alone
                events.append(ToolCallArgumentsDelta(self._index, number, rest))
        if isinstance(message.get("audio"), dict):
            done.append(AudioDone(self._index, message["audio"]))
        done += [ToolCallDone(self._index, number, call) for number, call in zip(numbers, calls)]
        events += done

    def _tell_text(self, delta: Any, text: str, events: list[Event]) -> None:
        if text:
            self._given[delta] = self._given.get(delta, 0) + len(text)
            events.append(delta(self._index, text))

    def _tell_calls(self, every: bool, events: list[Event]) -> list[Any]:
        calls = self._cursors.calls(every)
        for call in calls:
            if call.number not in self._started:
                self._started.add(call.number)
                events.append(ToolCallStarted(self._index, call.number, call.id, call.name, call.type))
            if call.new:
                self._given[call.number] = self._given.get(call.number, 0) + len(call.new)
                events.append(ToolCallArgumentsDelta(self._index, call.number, call.new))
        return calls


DONES: dict[Any, Any] = {ReasoningDelta: ReasoningDone, TextDelta: TextDone, RefusalDelta: RefusalDone}
