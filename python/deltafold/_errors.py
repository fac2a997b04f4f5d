"""The exceptions, defined once and raised by both implementations."""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "BadJson",
    "DeltafoldError",
    "InternalError",
    "LimitExceeded",
    "NotSse",
    "Truncated",
    "UpstreamError",
    "escape",
]

SHOWN = 200  # characters of upstream text in a message, a repr or a log line


class DeltafoldError(Exception):
    """What went wrong with one stream.

    Attributes:
        kind: ``upstream-error``, ``bad-json``, ``not-sse``, ``limit-exceeded``, ``truncated`` or ``internal-error``.
        message: what happened; for an upstream error its own text, unescaped, at most 4 KiB.
        code: upstream's ``error.code``, else its ``error.type``, as on the wire; None for every other kind.
        offset: bytes from the stream's first byte to the event at fault; None from ``feed_chunk``.
        body: upstream's parsed ``error`` member, else the whole object that was the error.
        partial: the merged ``chat.completion`` at the time the error was raised.

    ``str()`` and ``repr()`` escape control characters and shorten: they are safe for a log line or a terminal.
    """

    kind: ClassVar[str] = "error"

    def __init__(
        self,
        message: str = "",
        *,
        code: Any = None,
        offset: int | None = None,
        body: Any = None,
        partial: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.offset = offset
        self.body = body
        self.partial = partial

    def __str__(self) -> str:
        where = "" if self.offset is None else f" (at byte {self.offset})"
        return f"{self.kind}: {escape(self.message)}{where}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{escape(self.message)}', offset={self.offset})"

    def __reduce__(self) -> tuple[Any, ...]:
        state = {"code": self.code, "offset": self.offset, "body": self.body, "partial": self.partial}
        return type(self), (self.message,), state


class UpstreamError(DeltafoldError):
    """The server reported an error in the stream or instead of it."""

    kind = "upstream-error"


class BadJson(DeltafoldError):
    """A payload was not a JSON object; it was skipped."""

    kind = "bad-json"


class NotSse(DeltafoldError):
    """The body was neither an event stream nor a completion nor an error object."""

    kind = "not-sse"


class LimitExceeded(DeltafoldError):
    """A bound of ``Limits`` was passed; what lay beyond it was not kept."""

    kind = "limit-exceeded"


class Truncated(DeltafoldError):
    """The bytes ended before the stream did: no ``[DONE]`` and no finish reason for every choice."""

    kind = "truncated"


class InternalError(DeltafoldError):
    """A fault of deltafold itself; the accumulator is unusable, the stream is untouched."""

    kind = "internal-error"


def escape(text: str, limit: int = SHOWN) -> str:
    """``text`` for a log line or a terminal: controls, bidi marks and other invisible characters as ``\\x..``, ``\\u....``;
    cut to ``limit`` characters of the input with ``…`` behind."""
    shown = text[:limit]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)
    return shown + "…" if len(text) > limit else shown


def shown(value: object) -> str:
    """``repr``, which escapes as ``escape`` does, with a str, a list or a dict cut to ``SHOWN`` characters and ``…`` behind."""
    if isinstance(value, str):
        return repr(value[:SHOWN] + "…" if len(value) > SHOWN else value)
    text = repr(value)
    return text[:SHOWN] + "…" if isinstance(value, (list, dict)) and len(text) > SHOWN else text
