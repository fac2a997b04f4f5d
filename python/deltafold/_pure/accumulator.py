"""The public accumulator, pure Python."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, final, overload

from .._calls import ToolCall
from .._chunks import chunk_text
from .._errors import DeltafoldError
from .._types import Diagnostic, Limits
from . import json
from .stream import Stream
from .text import Text
from .usage import choose

if TYPE_CHECKING:
    from .._typed import Adapter, Decoder

__all__ = ["ChatCompletionAccumulator", "merge"]

T = TypeVar("T")
Piece = bytes | bytearray | memoryview
USUAL = Limits()  # one object for all streams without limits of their own


@final
class ChatCompletionAccumulator:
    """Merges the bytes of one Chat Completions response into the ``chat.completion`` it stands for.

    Args:
        limits: what the stream may cost; ``Limits()`` by default.
        n: 1 folds every choice into choice 0, for servers that count tokens in ``index``; None keeps choices apart.

    Example:
        >>> acc = ChatCompletionAccumulator()
        >>> acc.feed(b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}\\n\\n')
        65
        >>> acc.text()
        'Hi'
    """

    __slots__ = ("__weakref__", "_close_reason", "_events", "_stream")

    def __init__(self, limits: Limits | None = None, n: int | None = None) -> None:
        if limits is not None and not isinstance(limits, Limits):
            raise TypeError(f"limits must be a Limits or None, not {type(limits).__name__}")
        if n is not None and (type(n) is not int or n != 1):
            raise ValueError("n must be None or 1")
        self._stream = Stream(limits or USUAL, n)
        self._close_reason: str | None = None
        self._events: Any = None

    def feed(self, piece: Piece) -> int:
        """Takes the response's next bytes, cut anywhere; gives the ``Seen`` flags of what they brought, as a plain int.

        Never raises on content: what is wrong with the stream is in ``error`` and ``diagnostics``.

        Raises:
            TypeError: ``piece`` is not bytes, bytearray or memoryview.
            ValueError: the accumulator is closed.
        """
        if type(piece) is not bytes:
            if not isinstance(piece, (bytes, bytearray, memoryview)):
                raise TypeError(f"a piece must be bytes, bytearray or memoryview, not {type(piece).__name__}")
            piece = memoryview(piece).tobytes()
        if self._close_reason is not None:
            raise ValueError("the accumulator is closed")
        return self._stream.feed(piece)

    def feed_chunk(self, chunk: Any) -> int:
        """Takes one parsed chunk: a dict, or an object with ``model_dump`` (openai, litellm) or ``to_dict``.

        Raises:
            TypeError: ``chunk`` is none of these, or holds what JSON cannot say.
            ValueError: the accumulator is closed.
        """
        text = chunk_text(chunk)
        if self._close_reason is not None:
            raise ValueError("the accumulator is closed")
        return self._stream.feed_text(text)

    def events(self, piece: Piece | None = None) -> list[Any]:
        """The small typed events (``deltafold.events``) of the response's next bytes; without a piece it is closed, and these are
        the last."""
        if self._events is None:
            # written once over either implementation, so above both; paid for only here
            self._events = import_module("deltafold.events").EventStream(weakref.proxy(self))
        events: list[Any] = self._events.close() if piece is None else self._events.feed(piece)
        return events

    def close(self, reason: str = "eof") -> int:
        """Ends the stream and decides about an unfinished last event; gives the ``Seen`` flags of what that brought.

        Args:
            reason: the caller's own word for why the bytes ended, kept as ``close_reason``. A second call changes nothing.
        """
        if not isinstance(reason, str):
            raise TypeError(f"reason must be a str, not {type(reason).__name__}")
        if self._close_reason is not None:
            return 0
        self._close_reason = reason
        return self._stream.close()

    @overload
    def result(self, as_type: None = None) -> dict[str, Any]: ...
    @overload
    def result(self, as_type: type[T] | Adapter[T] | Decoder[T]) -> T: ...
    def result(self, as_type: Any = None) -> Any:
        """The merged ``chat.completion`` so far, at any moment: a fresh dict, or what ``as_type`` makes of ``result_json()``.

        Args:
            as_type: a ``pydantic.BaseModel`` or ``msgspec.Struct`` class; or a ready ``pydantic.TypeAdapter`` or
                ``msgspec.json.Decoder``, which may stand for any type that these know.

        Raises:
            TypeError: ``as_type`` is none of these.
            ValueError: pydantic's or msgspec's own ``ValidationError``: the result does not fit the type.
        """
        if as_type is None:
            return self._stream.completion.build()
        from .._typed import decoded

        return decoded(self.result_json(), as_type)

    def result_json(self) -> bytes:
        """``result()`` as one line of UTF-8 JSON without a final LF; NaN and infinities are null."""
        return json.dumps(self._stream.completion.build()).encode()

    def raise_for_error(self) -> None:
        """Raises ``error``, if any, with the result so far as its ``partial``."""
        error = self._stream.ledger.error
        if error is not None:
            error.partial = self.result()
            raise error.with_traceback(None)

    @property
    def error(self) -> DeltafoldError | None:
        """The first thing that went wrong; its ``partial`` is the result when this was first asked or last raised."""
        error = self._stream.ledger.error
        if error is not None and error.partial is None:
            error.partial = self.result()
        return error

    @property
    def complete(self) -> bool:
        """``[DONE]`` came, or every choice (at least one) has its finish reason and the last event was not cut."""
        return self._stream.complete

    @property
    def done_seen(self) -> bool:
        """``[DONE]`` came."""
        return self._stream.done_seen

    @property
    def close_reason(self) -> str | None:
        """The reason given to ``close``; None before."""
        return self._close_reason

    @property
    def finish_reasons(self) -> dict[int, str | None]:
        """Finish reason by choice index, None where none came yet."""
        return {choice.index: choice.finish_reason for choice in self._stream.completion.sorted()}

    @property
    def id(self) -> str | None:
        """The completion's id, None until one came."""
        return self._stream.completion.named("id")

    @property
    def model(self) -> str | None:
        """The model that served, None until one came."""
        return self._stream.completion.named("model")

    @property
    def usage(self) -> dict[str, Any] | None:
        """Usage as reported, never estimated; None without any."""
        completion = self._stream.completion
        return choose(completion.usage, completion.choice_usage, completion.groq_usage)[0]

    @property
    def usage_source(self) -> str:
        """Where ``usage`` comes from: ``reported``, ``choice``, ``x_groq`` or ``none``."""
        completion = self._stream.completion
        return choose(completion.usage, completion.choice_usage, completion.groq_usage)[1]

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """The leniencies that the stream needed, one entry for each kind, in order of first occurrence."""
        return self._stream.ledger.diagnostics()

    @property
    def counts(self) -> dict[str, int]:
        """Bytes, events and chunks so far, and the code points of content, reasoning, refusals and tool arguments."""
        stream = self._stream
        choices = stream.completion.sorted()
        return {
            "bytes": stream.machine.bytes,
            "events": stream.events,
            "chunks": stream.chunks,
            "after_done": stream.after_done,
            "content": sum(len(t) for c in choices for t in c.texts("content")),
            "reasoning": sum(len(t) for c in choices for t in c.reasoning()),
            "refusal": sum(len(t) for c in choices for t in c.texts("refusal")),
            "tool_arguments": sum(len(t) for c in choices for t in c.arguments()),
        }

    @property
    def retained_bytes(self) -> int:
        """Bytes that count against ``max_retained_bytes``."""
        return self._stream.ledger.retained

    def text(self, choice: int = 0) -> str:
        """The text of a choice's content, text parts joined; ``""`` for an unknown choice."""
        return "".join(t.build() for t in self._texts(choice))

    def text_since(self, cursor: Any = None, choice: int = 0) -> tuple[str, Any]:
        """The text that came after ``cursor``, and the next cursor. None begins; a cursor is opaque.

        A high surrogate half that still waits for the other one is withheld until it is decided.
        """
        return self._text_since("content", cursor, choice)

    def reasoning_text(self, choice: int = 0) -> str:
        """The reasoning of a choice: the first of its strings that is not empty, else thinking parts, else the text and
        summary of ``reasoning_details``; ``""`` for an unknown choice."""
        held = self._stream.completion.choices.get(choice)
        return "" if held is None else "".join(t.build() for t in held.reasoning())

    def tool_calls(self, choice: int = 0) -> list[ToolCall]:
        """The tool calls of a choice as they are so far, in the order of the result."""
        held = self._stream.completion.choices.get(choice)
        return [] if held is None else [
            ToolCall(call.id or None, call.kind, call.name or None, call.given) for call in held.calls()
        ]  # fmt: skip

    def _set_fast_path(self, on: bool) -> None:
        """Turns the fast path off or on, for tests: results are the same."""
        self._stream.shapes.clear(not on)

    def __repr__(self) -> str:
        state = "complete" if self.complete else "open" if self._close_reason is None else "incomplete"
        return f"<ChatCompletionAccumulator {state}, {self._stream.machine.bytes} bytes, {self._stream.chunks} chunks>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an accumulator cannot be pickled or copied; keep result_json()")

    def _texts(self, choice: int, name: str = "content") -> list[Text]:
        held = self._stream.completion.choices.get(choice)
        return [] if held is None else held.texts(name)

    def _text_since(self, name: str, cursor: Any, choice: int) -> tuple[str, Any]:
        """``text_since`` for any member of the message that is text; ``content.thinking`` for the thinking among the parts."""
        texts = self._texts(choice, name)
        start = 0 if cursor is None else cursor
        new, end = [], 0
        for text in texts:
            withheld = text is texts[-1] and self._close_reason is None
            length = text.nchars if withheld else len(text)
            if start < end + length:
                new.append(text.since(max(start - end, 0)))
                if text.half and not withheld:
                    new.append("\ufffd")
            end += length
        return "".join(new), max(start, end)

    def _calls_since(
        self, cursors: dict[int, int], choice: int, every: bool = False
    ) -> list[tuple[int, int, str | None, str, str | None, str]]:
        """The tool calls whose arguments grew: position in the result, number in order of opening, id, type, name, new text.

        ``cursors`` keeps how much of each call was given, and is changed. ``every``: all calls, grown or not. A bare ``{}``,
        which may be a placeholder for arguments to come, is withheld until ``every`` asks for it.
        """
        held = self._stream.completion.choices.get(choice)
        found = []
        for position, call in enumerate(() if held is None else held.calls()):
            arguments, cursor = call.arguments, cursors.get(call.before, 0)
            end = 0 if arguments is None or arguments.bare and not every else arguments.text.nchars
            if end > cursor or every:
                new = "" if arguments is None or end <= cursor else arguments.text.since(cursor)
                cursors[call.before] = max(cursor, end)
                found.append((position, call.before, call.id or None, call.kind, call.name or None, new))
        return found


ChatCompletionAccumulator.__module__ = "deltafold"  # where users meet it


def merge(data: Piece | Iterable[Piece], *, limits: Limits | None = None, n: int | None = None) -> dict[str, Any]:
    """Merges one whole response: its bytes, or an iterable of pieces.

    Raises:
        DeltafoldError: the stream's ``error``, with what could be merged as its ``partial``.
    """
    accumulator = ChatCompletionAccumulator(limits, n)
    for piece in (data,) if isinstance(data, (bytes, bytearray, memoryview)) else data:
        accumulator.feed(piece)  # pyright: ignore[reportArgumentType]: takes data for a memoryview of pieces
    accumulator.close()
    accumulator.raise_for_error()
    return accumulator.result()
