"""Types that both implementations share: limits, flags, records, and the objects of the API as TypedDicts."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from ._errors import escape, shown

__all__ = ["Diagnostic", "Limits", "Seen", "ServerSentEvent"]

DEEPEST = 128  # of max_depth: the pure implementation takes four of Python's thousand frames a level


class Seen(enum.IntFlag):
    """What one ``feed`` brought; ``feed`` returns a plain int, compare with ``&``."""

    CONTENT = 1
    REASONING = 2
    REFUSAL = 4
    TOOL_CALL = 8
    AUDIO = 16
    LOGPROBS = 32
    FINISH = 64
    USAGE = 128
    ERROR = 256
    DONE = 512


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one stream may cost; every bound is a positive integer.

    Attributes:
        max_event_bytes: bytes of one event. 16 MiB: room for an image or a minute of audio in base64, far above any text.
        max_retained_bytes: bytes one stream keeps (UTF-8 of the joined text, names and JSON text of the rest).
            64 MiB: ten thousand streams fit no machine at more, and no model writes as much text.
        max_choices: choices of one stream. 128: the most that OpenAI's ``n`` takes.
        max_tool_calls: tool calls of one choice. 1,024: eight times the tools one request may offer.
        max_depth: nesting of one chunk, the outermost object being 1. 128, also the largest: real chunks stay below 12,
            and beyond it a stack would be at risk.
    """

    max_event_bytes: int = 16 * 1024 * 1024
    max_retained_bytes: int = 64 * 1024 * 1024
    max_choices: int = 128
    max_tool_calls: int = 1024
    max_depth: int = 128

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be an int, not {type(value).__name__}")
            largest, shown = (DEEPEST, str(DEEPEST)) if name == "max_depth" else (2**62, "2**62")
            if not 1 <= value <= largest:
                raise ValueError(f"{name} must be between 1 and {shown}, not {value}")


class Diagnostic(NamedTuple):
    """One kind of leniency that a stream needed.

    Attributes:
        kind: which one, such as ``missing-call-index``.
        count: how often.
        offset: bytes from the stream's first byte to the first event that needed it; None from ``feed_chunk``.
    """

    kind: str
    count: int  # type: ignore[assignment]  # hides tuple.count
    offset: int | None


class Shown:
    """Of a dataclass with ``repr=False``: its ``repr``, in which what came from upstream is escaped and cut."""

    __slots__ = ()

    def __repr__(self) -> str:
        members = (f"{member.name}={shown(getattr(self, member.name))}" for member in fields(self))  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(members)})"


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event of a ``text/event-stream`` (WHATWG HTML, section 9.2).

    Attributes:
        event: the event's type, ``message`` unless the stream named one.
        data: the ``data`` lines joined by LF.
        id: the stream's last event id so far, ``""`` before any.
        retry: the last valid ``retry`` since the previous event, in milliseconds; None without one.
    """

    event: str = "message"
    data: str = ""
    id: str = ""
    retry: int | None = None

    def json(self) -> Any:
        """``data`` parsed as JSON; raises ``json.JSONDecodeError``."""
        return json.loads(self.data)

    def __repr__(self) -> str:
        parts = [f"event='{escape(self.event)}'", f"data='{escape(self.data)}'"]
        if self.id:
            parts.append(f"id='{escape(self.id)}'")
        if self.retry is not None:
            parts.append(f"retry={self.retry}")
        return f"ServerSentEvent({', '.join(parts)})"
