"""For code that uses openai-python: its stream state with its names, over deltafold's merging.

``ChatCompletionStreamState`` takes the place of ``openai.lib.streaming.chat.ChatCompletionStreamState``: the same methods and the
same events in the same order, where openai's are right. Where they differ, and why, is in ``docs/openai.md``. openai itself
(``deltafold[openai]``) is imported at the first call that makes one of its objects.

Events are light: a snapshot, or what is parsed of it, is made when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ._backend import ChatCompletionAccumulator
from ._calls import ToolCall
from ._chunks import chunk_text
from ._cursors import Cursors
from ._types import Limits

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionTokenLogprob, ParsedChatCompletion
    from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall

__all__ = [
    "ChatCompletionStreamState",
    "ChunkEvent",
    "ContentDeltaEvent",
    "ContentDoneEvent",
    "FunctionToolCallArgumentsDeltaEvent",
    "FunctionToolCallArgumentsDoneEvent",
    "LogprobsContentDeltaEvent",
    "LogprobsContentDoneEvent",
    "LogprobsRefusalDeltaEvent",
    "LogprobsRefusalDoneEvent",
    "RefusalDeltaEvent",
    "RefusalDoneEvent",
    "to_openai",
]


def to_openai(result: Mapping[str, Any]) -> ChatCompletion:
    """A merged result as openai's client would have returned it without streaming.

    Made as the client makes it: nothing is checked, unknown members and values are let through, ``usage`` that never came is None.

    Example:
        >>> to_openai({"object": "chat.completion", "choices": [], "model": "m"}).model
        'm'
    """
    from openai.types.chat import ChatCompletion

    return ChatCompletion.construct(**result)


class ChatCompletionStreamState:
    """Merges ``ChatCompletionChunk`` objects and tells what each brought.

    Args:
        input_tools: the request's ``tools``; arguments of strict ones are parsed.
        response_format: a pydantic model or dataclass to parse content into; a dict, as the API takes it, parses nothing.
        limits: as for ``ChatCompletionAccumulator``.

    Attributes:
        accumulator: what merges; ask it for ``usage_source``, ``error``, ``diagnostics`` and the rest.

    Example:
        >>> state = ChatCompletionStreamState()
        >>> for chunk in client.chat.completions.create(..., stream=True):  # doctest: +SKIP
        ...     for event in state.handle_chunk(chunk):
        ...         if event.type == "content.delta":
        ...             print(event.delta, end="")
        >>> state.get_final_completion().usage  # doctest: +SKIP
    """

    def __init__(self, *, input_tools: Any = None, response_format: Any = None, limits: Limits | None = None) -> None:
        self.accumulator = ChatCompletionAccumulator(limits)
        self._tools: dict[str, Mapping[str, Any]] = functions(input_tools) if isinstance(input_tools, Iterable) else {}
        self._format = response_format if isinstance(response_format, type) else None
        self._parses = self._format is not None or any(parseable(function) for function in self._tools.values())
        self._choices: dict[int, ChoiceState] = {}
        self._snapshot: ParsedChatCompletion[Any] | None = None

    def handle_chunk(self, chunk: ChatCompletionChunk) -> list[Any]:
        """Merges one chunk; gives its events, ``ChunkEvent`` first.

        Raises:
            openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError: a choice ended so, and there is something to
                parse: a ``response_format`` class or a strict tool.
            ValueError: what is to be parsed at its end does not parse (json's or pydantic's own error).
            TypeError: not a chunk.
        """
        self.accumulator.feed_chunk(chunk)
        try:
            choices = chunk.choices
        except AttributeError:
            from openai.types.chat import ChatCompletionChunk

            chunk = ChatCompletionChunk.construct(**json.loads(chunk_text(chunk)))
            choices = chunk.choices
        self._snapshot = None
        events: list[Any] = [ChunkEvent(chunk, self)]
        for position, entry in enumerate(choices if isinstance(choices, list) else ()):
            index = getattr(entry, "index", None)
            if type(index) is not int or index < 0:
                index = position
            choice = self._choices.get(index)
            if choice is None:
                choice = self._choices[index] = ChoiceState(self, index)
            choice.handle(entry, events)
        return events

    @property
    def current_completion_snapshot(self) -> ParsedChatCompletion[Any]:
        """The completion so far; finish reasons that did not come yet are None, what parses of content and arguments is parsed,
        from its done-event on into the type that was asked for."""
        if self._snapshot is None:
            self._snapshot = self._completion(so_far=True)
        return self._snapshot

    def get_final_completion(self) -> ParsedChatCompletion[Any]:
        """The whole completion, parsed where there is something to parse; to be called when the stream has ended.

        Raises:
            openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError, ValueError: as ``handle_chunk``.
        """
        if self._parses:
            for reason in self.accumulator.finish_reasons.values():
                self.refuse(reason)
        return self._completion(so_far=False)

    def refuse(self, reason: str | None) -> None:
        """Raises for a finish reason behind which nothing can be parsed."""
        if not self._parses or reason not in ("length", "content_filter"):
            return
        import openai

        completion = self.current_completion_snapshot
        if reason == "length":
            raise openai.LengthFinishReasonError(completion=completion)
        try:
            error = openai.ContentFilterFinishReasonError(completion=completion)
        except TypeError:  # older ones take nothing
            error = openai.ContentFilterFinishReasonError()
        raise error

    def parsed(self, content: Any, refusal: Any) -> Any:
        """Whole content in the type that was asked for."""
        if self._format is None or not content or refusal or not isinstance(content, str):
            return None
        if hasattr(self._format, "model_validate_json"):
            return self._format.model_validate_json(content)
        from pydantic import TypeAdapter

        return TypeAdapter(self._format).validate_json(content)

    def parsed_so_far(self, content: Any, refusal: Any, ended: Mapping[Any, Any] | None = None) -> Any:
        """Content that may be unfinished, as plain objects unless it is among what has ``ended``."""
        if self._format is None or refusal or not isinstance(content, str) or not content.strip():
            return None
        return ended[content] if ended and content in ended else partial(content)

    def parsed_arguments(self, name: str | None, arguments: str) -> Any:
        """Whole arguments of a strict tool."""
        function = self._tools.get(name or "")
        if function is None or not parseable(function):
            return None
        model = getattr(function, "model", None)
        return json.loads(arguments) if model is None else model.model_validate_json(arguments)

    def arguments_so_far(self, name: str | None, arguments: str, ended: Mapping[Any, Any] | None = None) -> Any:
        """Arguments of a strict tool that may be unfinished, as plain objects unless they are among what has ``ended``."""
        if ended and (name, arguments) in ended:
            return ended[name, arguments]
        function = self._tools.get(name or "")
        return partial(arguments) if arguments and function is not None and function.get("strict") else None

    def _completion(self, so_far: bool) -> ParsedChatCompletion[Any]:
        from openai.types.chat import ParsedChatCompletion

        result = self.accumulator.result()
        for choice in result["choices"]:
            message, told = choice["message"], self._choices.get(choice["index"])
            ended = None if told is None else told.ended
            text = message["content"], message.get("refusal")
            message["parsed"] = self.parsed_so_far(*text, ended) if so_far else self.parsed(*text)
            for call in message.setdefault("tool_calls", None) or ():
                function = call.get("function")
                if function is not None:
                    named = function.get("name"), function["arguments"]
                    parsed = self.arguments_so_far(*named, ended) if so_far else self.parsed_arguments(*named)
                    function["parsed_arguments"] = parsed
        return ParsedChatCompletion.construct(**result)


class ChoiceState:
    """What was told of one choice. ``ended``: what the done-events parsed, by content and by name and arguments of a call."""

    __slots__ = (
        "_by_index",
        "_calls",
        "_content_done",
        "_current",
        "_finished",
        "_index",
        "_logprobs",
        "_logprobs_done",
        "_refusal_done",
        "_refused",
        "_state",
        "_written",
        "ended",
    )

    def __init__(self, state: ChatCompletionStreamState, index: int) -> None:
        self._state = state
        self._index = index
        self._written = 0  # characters of content
        self._refused: int | None = None  # characters of the refusal
        self._finished = False
        self._content_done = False
        self._refusal_done = False
        self._logprobs: dict[str, list[ChatCompletionTokenLogprob]] = {}
        self._logprobs_done: set[str] = set()
        self._calls: list[CallState] = []  # in the order of the result
        self._by_index: dict[int, CallState] = {}
        self._current: CallState | None = None
        self.ended: dict[Any, Any] = {}

    def handle(self, entry: Any, events: list[Any]) -> None:
        try:
            delta, reason, logprobs = entry.delta, entry.finish_reason, entry.logprobs
            content, refusal, fragments = delta.content, delta.refusal, delta.tool_calls
        except AttributeError:  # a server's members of other types, or another library's objects
            delta, reason, logprobs = members(entry, "delta", "finish_reason", "logprobs")
            content, refusal, fragments = members(delta, "content", "refusal", "tool_calls")
        if content is not None and type(content) is not str:  # a list of parts, of which only some are text
            content = self.text("content")[self._written :] or None
        if content is not None:
            self._written += len(content)
            events.append(ContentDeltaEvent(content, self, self._written))
        if isinstance(refusal, str):
            self._refused = (self._refused or 0) + len(refusal)
            events.append(RefusalDeltaEvent(refusal, self, self._refused))
        touched = None
        if fragments:
            touched = self._call_deltas(fragments if type(fragments) is list else one_call(fragments), events)
        if reason and isinstance(reason, str) and reason != "null":  # which some servers send as text
            self._finished = True
            self._state.refuse(reason)
        if logprobs is not None:
            self._logprob_deltas(logprobs, events)
        if self._finished:
            self._content_ends(events)
            for call in self._calls:
                self._call_ends(call, events)
        for call in touched or ():
            if call is not self._current:
                self._content_ends(events)
                if self._current is not None and whole(self.call(self._current).arguments):
                    self._call_ends(self._current, events)
                self._current = call

    def text(self, name: str) -> str:
        return Cursors(self._state.accumulator, self._index).text(name)

    def parsed_so_far(self, content: str) -> Any:
        return self._state.parsed_so_far(content, self._refused and self.text("refusal"))

    def logprobs(self, name: str) -> list[ChatCompletionTokenLogprob]:
        return self._logprobs[name]

    def call(self, call: CallState) -> ToolCall:
        """The call as it is so far."""
        return self._state.accumulator.tool_calls(self._index)[call.position]

    def arguments_so_far(self, name: str, arguments: str) -> Any:
        return self._state.arguments_so_far(name, arguments)

    def _call_deltas(self, fragments: list[Any], events: list[Any]) -> list[CallState]:
        touched: list[CallState] = []
        for fragment in fragments:
            try:
                index, id, function = fragment.index, fragment.id, fragment.function
                name, given = function.name, function.arguments
            except AttributeError:  # no function, or an object as above
                if not hasattr(fragment, "function"):
                    continue
                index, id, function = members(fragment, "index", "id", "function")
                name, given = members(function, "name", "arguments")
            call = self._call_of(index, id, name)
            if call is None:
                continue
            text = given if isinstance(given, str) else ""
            call.written += len(text) if given is None or text else len(self.call(call).arguments) - call.written
            events.append(FunctionToolCallArgumentsDeltaEvent(call.name, call.position, self, call, call.written, text))
            if call not in touched:
                touched.append(call)
        return touched

    def _call_of(self, index: Any, id: Any, name: Any) -> CallState | None:
        """The function call that a fragment went to, by the accumulator's rules; None for a custom tool's."""
        if type(index) is not int or index < 0:
            index = None
        known = None if index is None else self._by_index.get(index)
        if id or name or not self._calls:
            known = self._look_up(id, known)
        elif known is None:
            known = max(self._calls, key=lambda call: call.number)
        if known is not None and index is not None:
            self._by_index[index] = known
        return known if known is None or known.kind == "function" else None

    def _look_up(self, id: str | None, known: CallState | None) -> CallState | None:
        """The same, of a fragment that may have opened a call."""
        held = {call.id or call.number: call for call in self._calls}
        calls: list[CallState] = []
        fresh: list[CallState] = []
        for position, found in enumerate(self._state.accumulator.tool_calls(self._index)):
            call = held.get(found.id) if found.id else None
            if call is None and position < len(self._calls) and not self._calls[position].id:
                call = self._calls[position]
            if call is None:
                call = CallState(len(held) + len(fresh), found.type)
                fresh.append(call)
            call.id, call.name, call.position = found.id, found.name or "", position
            calls.append(call)
        self._calls = calls
        same = next((call for call in calls if id and call.id == id), None)
        return same or (fresh[0] if fresh else known or (max(calls, key=lambda call: call.number) if calls else None))

    def _logprob_deltas(self, logprobs: Any, events: list[Any]) -> None:
        for name, event in (("content", LogprobsContentDeltaEvent), ("refusal", LogprobsRefusalDeltaEvent)):
            new = getattr(logprobs, name, None)
            if isinstance(new, list):
                held = self._logprobs.setdefault(name, [])
                held += new
                if new:
                    events.append(event(new, self, len(held)))

    def _content_ends(self, events: list[Any]) -> None:
        refusal = None if self._refused is None else self.text("refusal")
        if not self._content_done:
            content = self._state.accumulator.text(self._index)
            if content:
                self._content_done = True
                parsed = self._state.parsed(content, refusal)
                if parsed is not None:
                    self.ended[content] = parsed
                events.append(ContentDoneEvent(content, parsed))
        if refusal is not None and not self._refusal_done:
            self._refusal_done = True
            events.append(RefusalDoneEvent(refusal))
        for name, event in (("content", LogprobsContentDoneEvent), ("refusal", LogprobsRefusalDoneEvent)):
            if name in self._logprobs and name not in self._logprobs_done:
                self._logprobs_done.add(name)
                events.append(event(list(self._logprobs[name])))

    def _call_ends(self, call: CallState, events: list[Any]) -> None:
        if call.done == call.written or call.kind != "function":
            return
        call.done = call.written
        arguments = self.call(call).arguments
        parsed = self._state.parsed_arguments(call.name, arguments)
        if parsed is not None:
            self.ended[call.name, arguments] = parsed
        events.append(FunctionToolCallArgumentsDoneEvent(call.name, call.position, arguments, parsed))


class CallState:
    """What was told of one tool call. ``number``: calls opened before it; ``done``: characters at its done-event."""

    __slots__ = ("done", "id", "kind", "name", "number", "position", "written")

    def __init__(self, number: int, kind: str) -> None:
        self.number = number
        self.kind = kind
        self.id: str | None = None
        self.name = ""
        self.position = 0
        self.written = 0
        self.done: int | None = None


# Events. ``type`` and the attributes are those of the classes of the same name in openai.lib.streaming.chat.


@dataclass(slots=True, eq=False, repr=False)
class ChunkEvent:
    """Every chunk, as it came. ``snapshot`` is the state's ``current_completion_snapshot``."""

    type: ClassVar[str] = "chunk"
    chunk: ChatCompletionChunk
    _state: ChatCompletionStreamState

    @property
    def snapshot(self) -> ParsedChatCompletion[Any]:
        """The completion as it is when this is read."""
        return self._state.current_completion_snapshot


@dataclass(slots=True, eq=False, repr=False)
class ContentDeltaEvent:
    """New text. ``snapshot``: the text so far; ``parsed``: what parses of it, where there is a ``response_format`` class."""

    type: ClassVar[str] = "content.delta"
    delta: str
    _choice: ChoiceState
    _length: int

    @property
    def snapshot(self) -> str:
        """All so far, as it was with this event."""
        return self._choice.text("content")[: self._length]

    @property
    def parsed(self) -> Any:
        """What parses of ``snapshot``."""
        return self._choice.parsed_so_far(self.snapshot)


@dataclass(slots=True, eq=False, repr=False)
class ContentDoneEvent:
    """The whole text, and it in the ``response_format`` class."""

    type: ClassVar[str] = "content.done"
    content: str
    parsed: Any


@dataclass(slots=True, eq=False, repr=False)
class RefusalDeltaEvent:
    """New text of a refusal. ``snapshot``: the refusal so far."""

    type: ClassVar[str] = "refusal.delta"
    delta: str
    _choice: ChoiceState
    _length: int

    @property
    def snapshot(self) -> str:
        """All so far, as it was with this event."""
        return self._choice.text("refusal")[: self._length]


@dataclass(slots=True, eq=False, repr=False)
class RefusalDoneEvent:
    """The whole refusal."""

    type: ClassVar[str] = "refusal.done"
    refusal: str


@dataclass(slots=True, eq=False, repr=False)
class FunctionToolCallArgumentsDeltaEvent:
    """New text of a call's arguments. ``index``: the call's place in ``tool_calls``; ``arguments``: the text so far;
    ``parsed_arguments``: what parses of it, for a strict tool."""

    type: ClassVar[str] = "tool_calls.function.arguments.delta"
    name: str
    index: int
    _choice: ChoiceState
    _call: CallState
    _length: int
    arguments_delta: str

    @property
    def arguments(self) -> str:
        """All so far, as it was with this event."""
        return self._choice.call(self._call).arguments[: self._length]

    @property
    def parsed_arguments(self) -> Any:
        """What parses of ``arguments``."""
        return self._choice.arguments_so_far(self.name, self.arguments)


@dataclass(slots=True, eq=False, repr=False)
class FunctionToolCallArgumentsDoneEvent:
    """The whole arguments of a call; ``parsed_arguments`` for a strict tool."""

    type: ClassVar[str] = "tool_calls.function.arguments.done"
    name: str
    index: int
    arguments: str
    parsed_arguments: Any


@dataclass(slots=True, eq=False, repr=False)
class LogprobsContentDeltaEvent:
    """New log probabilities of content. ``snapshot``: all so far."""

    type: ClassVar[str] = "logprobs.content.delta"
    content: list[ChatCompletionTokenLogprob]
    _choice: ChoiceState
    _length: int

    @property
    def snapshot(self) -> list[ChatCompletionTokenLogprob]:
        """All so far, as it was with this event."""
        return self._choice.logprobs("content")[: self._length]


@dataclass(slots=True, eq=False, repr=False)
class LogprobsContentDoneEvent:
    """All log probabilities of content."""

    type: ClassVar[str] = "logprobs.content.done"
    content: list[ChatCompletionTokenLogprob]


@dataclass(slots=True, eq=False, repr=False)
class LogprobsRefusalDeltaEvent:
    """New log probabilities of a refusal. ``snapshot``: all so far."""

    type: ClassVar[str] = "logprobs.refusal.delta"
    refusal: list[ChatCompletionTokenLogprob]
    _choice: ChoiceState
    _length: int

    @property
    def snapshot(self) -> list[ChatCompletionTokenLogprob]:
        """All so far, as it was with this event."""
        return self._choice.logprobs("refusal")[: self._length]


@dataclass(slots=True, eq=False, repr=False)
class LogprobsRefusalDoneEvent:
    """All log probabilities of a refusal."""

    type: ClassVar[str] = "logprobs.refusal.done"
    refusal: list[ChatCompletionTokenLogprob]


def one_call(fragment: Any) -> list[ChoiceDeltaToolCall]:
    """The fragment that a server sent in the place of a list of them, as openai-python leaves it."""
    from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall

    return [ChoiceDeltaToolCall.construct(**fragment)] if isinstance(fragment, dict) else []


def functions(tools: Iterable[Any]) -> dict[str, Mapping[str, Any]]:
    """The function definitions of a request's tools by name."""
    found: dict[str, Mapping[str, Any]] = {}
    for tool in tools:
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            found.setdefault(function["name"], function)
    return found


def parseable(function: Mapping[str, Any]) -> bool:
    """Strict, or made by ``openai.pydantic_function_tool``, which keeps the model."""
    return bool(function.get("strict")) or hasattr(function, "model")


def members(value: Any, *names: str) -> list[Any]:
    """Those of any object; None for what it does not have."""
    return [getattr(value, name, None) for name in names]


def partial(text: str) -> Any:
    """What parses of unfinished JSON."""
    from jiter import from_json

    return from_json(text.encode("utf-8", "replace"), partial_mode=True)


def whole(arguments: str) -> bool:
    """Whole JSON: a call that is followed by another one is done only then, since servers may go on with it later."""
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True
