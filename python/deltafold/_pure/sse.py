"""Bytes to events: ``text/event-stream`` as the WHATWG HTML standard parses it (section 9.2).

How it works
------------
``Machine`` takes the bytes in pieces of any size and never looks back. At any moment it holds three things: the event so
far (``data`` lines, event name, id, retry), at most one unfinished line, and a few facts about the bytes just before.

A line end is LF, CR or CR LF. A CR ends its line when it arrives, without waiting for an LF; ``_swallow`` then remembers
that an LF directly behind it belongs to it. A BOM is removed at the first byte of the stream only; its own first
bytes are held as an unfinished line, which is what they are when the third does not come.

What a line is shows within its first six bytes (``_decide``): a comment, a known field, or another line. Until then the
line is OPEN and its few bytes are kept. Comments and other lines are then counted and not kept, whatever their length;
a field's line is kept from its first byte, so that its value is a slice of ``_line``.

An event's size is the ``data`` values with one LF each, the event name, the current id, and the unfinished field's
value. ``_excess`` compares it with the limit *before* a part is kept, and the part is cut at the byte that passes it:
so the verdict falls on the same byte of the stream however that was cut, and what is kept never exceeds the limit.
The event is then skipped to its blank line, its lines still told apart but no longer kept.

In raw-lines mode (the accumulator's) a body may turn out not to be an event stream at all. So other lines
are handed out whole until the first ``data`` field, under the same limit; afterwards only lines that begin with ``{`` are,
up to 64 KiB each, since a server may drop a bare JSON error into its stream. ``error: …`` lines are events of their own.

An event of one ``data`` line, ended by LF LF and whole in its piece, is what streams are made of: where nothing is pending
(``plain``) it is read in one step, to the same effect.

Work is linear: the next LF and the next CR are each looked for once and remembered, an unfinished line grows by appending,
and no line end is ever looked for in bytes that were searched before (but once more after a limit).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias, final

from .._errors import LimitExceeded
from .._types import Limits, ServerSentEvent

__all__ = ["ErrorField", "Event", "Item", "Machine", "Oversize", "RawLine", "Rest", "SSEDecoder"]

LF, CR = 10, 13
BOM = b"\xef\xbb\xbf"
RAW_LINE_BYTES = 64 * 1024  # of a `{` line in the middle of a stream: no error object is larger
RETRY_MAX = 2**64 - 1

bytes_ = bytes  # for annotations in classes that have a member `bytes`

DATA, EVENT, ID, RETRY, ERROR = b"data", b"event", b"id", b"retry", b"error"
STANDARD = DATA, EVENT, ID, RETRY
ACCUMULATED = *STANDARD, ERROR
OPEN, COMMENT, OTHER = b"?", b":", b"*"  # what a line is when it is no known field; no field has these names


@final
class SSEDecoder:
    """A strict, bounded, incremental parser of ``text/event-stream`` (WHATWG HTML, section 9.2).

    Args:
        limits: its ``max_event_bytes`` bounds what one event may hold; 16 MiB by default.
        flush_incomplete: let ``close`` dispatch a last event that has no blank line, its last line finished or not.
            The standard drops it.

    Example:
        >>> decoder = SSEDecoder()
        >>> decoder.feed(b"event: greeting\\ndata: hel")
        []
        >>> decoder.feed(b"lo\\n\\n")
        [ServerSentEvent(event='greeting', data='hello')]
    """

    __slots__ = ("_closed", "_failed_at", "_flush_incomplete", "_id", "_id_bytes", "_limit", "_machine")

    def __init__(self, limits: Limits | None = None, flush_incomplete: bool = False) -> None:
        if limits is not None and not isinstance(limits, Limits):
            raise TypeError(f"limits must be a Limits or None, not {type(limits).__name__}")
        if not isinstance(flush_incomplete, bool):
            raise TypeError(f"flush_incomplete must be a bool, not {type(flush_incomplete).__name__}")
        self._limit = (limits or Limits()).max_event_bytes
        self._flush_incomplete = flush_incomplete
        self._closed = False
        self._failed_at: int | None = None
        self._id_bytes, self._id = b"", ""
        self._machine = Machine(self._limit)

    def feed(self, piece: bytes | bytearray | memoryview) -> list[ServerSentEvent]:
        """Takes the stream's next bytes, cut anywhere; gives the events that they complete.

        Raises:
            TypeError: ``piece`` is not bytes, bytearray or memoryview.
            ValueError: the decoder is closed.
            LimitExceeded: an earlier piece held an event larger than ``max_event_bytes``. The call that met it still gave
                the events before it; from then on every call raises, until ``reset``. ``offset`` is the event's.
        """
        if not isinstance(piece, (bytes, bytearray, memoryview)):
            raise TypeError(f"a piece must be bytes, bytearray or memoryview, not {type(piece).__name__}")
        data = piece if type(piece) is bytes else memoryview(piece).tobytes()
        self._raise_if_failed()
        if self._closed:
            raise ValueError("the decoder is closed; reset() makes it ready for a new stream")
        return self._collect(self._machine.feed(data))

    def close(self) -> list[ServerSentEvent]:
        """Ends the stream; gives the incomplete last event if ``flush_incomplete`` asks for it. Again: nothing.

        Raises:
            LimitExceeded: as in ``feed``.
        """
        self._raise_if_failed()
        if self._closed:
            return []
        self._closed = True
        return self._collect(self._machine.flush()) if self._flush_incomplete else []

    def reset(self) -> None:
        """Forgets everything, the last event id and the counters too: ready for a new stream."""
        self._closed = False
        self._failed_at = None
        self._id_bytes, self._id = b"", ""
        self._machine = Machine(self._limit)

    @property
    def last_event_id(self) -> str:
        """The last event id as of the last blank line: what a client sends as ``Last-Event-ID`` when it reconnects."""
        return self._text_of_id(self._machine.last_event_id)

    @property
    def retry(self) -> int | None:
        """The last valid ``retry`` value so far, in milliseconds; None before any."""
        return self._machine.retry

    @property
    def events(self) -> int:
        """Events given out so far."""
        return self._machine.events

    @property
    def comments(self) -> int:
        """Comment lines so far."""
        return self._machine.comments

    @property
    def ignored_lines(self) -> int:
        """Lines so far without effect: unknown fields, an ``id`` with NUL, a ``retry`` that is no number."""
        return self._machine.ignored_lines

    @property
    def bytes(self) -> int:
        """Bytes of the stream so far; past the limit, up to the byte that passed it."""
        return self._machine.bytes

    def __repr__(self) -> str:
        state = "past its limit" if self._failed_at is not None else "closed" if self._closed else "open"
        return f"<deltafold.SSEDecoder: {self.bytes} bytes, {self.events} events, {state}>"

    def _collect(self, items: Iterator[Item]) -> list[ServerSentEvent]:
        events = []
        for item in items:
            if isinstance(item, Event):
                name = item.event.decode("utf-8", "replace") or "message"
                data = item.data.decode("utf-8", "replace")
                events.append(ServerSentEvent(name, data, self._text_of_id(item.id), item.retry))
            elif isinstance(item, Oversize):
                self._failed_at = item.offset
                break
        return events

    def _text_of_id(self, value: bytes_) -> str:
        if value is not self._id_bytes:
            self._id_bytes, self._id = value, value.decode("utf-8", "replace")
        return self._id

    def _raise_if_failed(self) -> None:
        if self._failed_at is not None:
            raise LimitExceeded(f"an event is larger than max_event_bytes, {self._limit} bytes", offset=self._failed_at)


SSEDecoder.__module__ = "deltafold"  # where users meet it


class Event(NamedTuple):
    """A dispatched event, undecoded. ``offset`` is that of its first ``data`` line in the stream."""

    data: bytes
    event: bytes
    offset: int
    id: bytes
    retry: int | None


class ErrorField(NamedTuple):
    """The value, never empty, of an ``error:`` line."""

    value: bytes
    offset: int


class RawLine(NamedTuple):
    """A whole line, never empty, that is neither a comment nor a known field."""

    line: bytes
    offset: int


class Oversize(NamedTuple):
    """A limit was passed at the byte just read. ``offset``: the event's first ``data`` line, else the line at fault."""

    offset: int


Item: TypeAlias = Event | ErrorField | RawLine | Oversize


class Rest(NamedTuple):
    """What is left when the bytes end.

    Attributes:
        data: the finished ``data`` lines joined by LF; None without any.
        event: the event name so far.
        data_offset: of the first ``data`` line; None without any.
        line: the unfinished line as far as it came; None if there is none or it was not kept.
        line_offset: of the unfinished line; without any, the stream's length.
        line_comment: there is one and it is a comment.
        line_skipped: there is one, it is no comment, and it was not kept.
        oversize: the end came inside an event that is being skipped.
    """

    data: bytes | None
    event: bytes
    data_offset: int | None
    line: bytes | None
    line_offset: int
    line_comment: bool
    line_skipped: bool
    oversize: bool


class Machine:
    """The parser proper.

    Args:
        max_event_bytes: size of one event, see the top of this file.
        raw_lines: the accumulator's mode, see there.

    Attributes:
        bytes: bytes read so far.
        comments: comment lines.
        ignored_lines: other lines not handed out, ids with NUL and invalid retry values.
        events: ``Event`` and ``ErrorField`` items given.
        blocks_oversize: skipped events that had a ``data`` (or ``error:``) line and met their blank line.
        field_seen: a known field's line was finished.
        data_seen: a ``data`` (or ``error:``) line was finished.
        raw_kept: total length of the ``RawLine`` items given; the consumer takes off what it no longer holds.
        last_event_id: as of the last blank line.
        id: the current id.
        begun: the question of a BOM is settled.
        plain: the stream stands at the very start of an event, with LF line ends so far.
        retry: the last valid value, as of the last finished line.
    """

    __slots__ = (
        "_data", "_data_offset", "_data_size", "_event", "_event_retry", "_keep", "_kind", "_limit", "_line", "_line_offset",
        "_names", "_raw_lines", "_raw_over", "_skip", "_skip_data", "_swallow", "begun", "blocks_oversize", "bytes", "comments",
        "data_seen", "events", "field_seen", "id", "ignored_lines", "last_event_id", "plain", "raw_kept", "retry",
    )  # fmt: skip

    def __init__(self, max_event_bytes: int, raw_lines: bool = False) -> None:
        self.bytes = 0
        self.comments = 0
        self.ignored_lines = 0
        self.events = 0
        self.blocks_oversize = 0
        self.field_seen = False
        self.data_seen = False
        self.raw_kept = 0
        self.last_event_id = b""
        self.retry: int | None = None
        self._limit = max_event_bytes
        self._raw_lines = raw_lines
        self._names = ACCUMULATED if raw_lines else STANDARD
        self._raw_over = False
        self.begun = False
        self._swallow = False
        self.plain = True
        self._line: bytes | bytearray = b""
        self._line_offset = 0
        self._kind: bytes | None = None
        self._keep = False
        self._data: bytes | bytearray | None = None
        self._data_size = 0
        self._data_offset = 0
        self._event = b""
        self.id = b""
        self._event_retry: int | None = None
        self._skip = False
        self._skip_data = False

    def feed(self, piece: bytes) -> Iterator[Item]:
        """Reads ``piece``, lazily; must be exhausted before the next ``feed``."""
        start, size = self.bytes, len(piece)
        at = 0 if self.begun else self._bom(piece)
        lf = cr = -1
        while at < size:
            if self._swallow:
                self._swallow = False
                if piece[at] == LF:
                    at += 1
                    continue
            if lf < at:
                lf = piece.find(b"\n", at)
                if lf < 0:
                    lf = size
            if cr < at:
                cr = piece.find(b"\r", at)
                if cr < 0:
                    cr = size
            if self.plain and lf < cr and piece.startswith(b"data:", at) and piece.startswith(b"\n", lf + 1):
                value = piece[at + 5 + piece.startswith(b" ", at + 5) : lf]
                if len(value) + 1 + len(self.id) <= self._limit:
                    offset, at = start + at, lf + 2
                    self.bytes = start + at
                    self.events += 1
                    self.field_seen = self.data_seen = True
                    yield Event(value, b"", offset, self.id, None)
                    continue
            end = lf if lf < cr else cr
            ended = end < size
            part = piece[at:end]
            whole = ended and not self._line

            if self._kind is None:
                self._line_offset = start + at
            if part or self._kind:
                self.plain = False
                if self._kind is None or self._kind is OPEN:
                    self._decide(part, ended)
                if self._keep:
                    excess = self._excess(part)
                    if excess > 0:
                        at += min(max(len(part) - excess + 1, 1), len(part))
                        self.bytes = start + at
                        oversize = self._pass_limit()
                        if oversize is not None:
                            yield oversize
                        continue
                    if type(self._line) is bytearray:
                        self._line += part
                    else:
                        self._line = bytearray(self._line + part) if self._line else part
            at = end
            if ended:
                at += 1
                self._swallow = end == cr
                self.bytes = start + at
                item = self._end_line(part if whole else bytes(self._line))
                if item is not None:
                    yield item
        self.bytes = start + size

    def took(self, length: int, events: int) -> None:
        """Moves behind events of one ``data`` line each, of ``length`` bytes together, that the caller has read."""
        self.bytes += length
        self.events += events
        self.field_seen = self.data_seen = True

    def flush(self) -> Iterator[Item]:
        """Ends the unfinished line and the event as a blank line would; for the very end of the bytes."""
        length, self._limit = self.bytes, 2**63
        yield from self.feed(b"\n\n")
        self.bytes = length

    def rest(self) -> Rest:
        """What is left now that the bytes have ended."""
        return Rest(
            data=None if self._data is None else bytes(self._data),
            event=self._event,
            data_offset=None if self._data is None else self._data_offset,
            line=bytes(self._line) if self._keep else None,
            line_offset=self.bytes if self._kind is None else self._line_offset,
            line_comment=self._kind is COMMENT,
            line_skipped=self._kind is not None and self._kind is not COMMENT and not self._keep,
            oversize=self._skip,
        )

    def _bom(self, piece: bytes) -> int:
        at = 0
        while at < len(piece):
            if piece[at] != BOM[len(self._line)]:
                self.begun = True
                break
            self._line += piece[at : at + 1]
            self.plain = False
            self._kind, self._keep = OPEN, True
            at += 1
            if len(self._line) == len(BOM):
                self.begun = True
                self._new_line()
                break
        return at

    def _decide(self, part: bytes, ended: bool) -> None:
        head = bytes(self._line) + part[:6]
        name, colon, _ = head.partition(b":")
        if head[0] == 58:
            self._kind = COMMENT
        elif name in self._names and (colon or (ended and len(part) <= 6 and name != ERROR)):
            self._kind = self._names[self._names.index(name)]
        elif not ended and not colon and len(head) < 6 and any(known.startswith(head) for known in self._names):
            self._kind = OPEN
        else:
            self._kind = OTHER

        if self._kind is OPEN:
            self._keep = True
        elif self._kind is COMMENT or self._skip:
            self._keep = False
        elif self._kind is OTHER:
            self._keep = self._raw_lines and (head[0] == 123 if self.data_seen else not self._raw_over)
        else:
            self._keep = True
        if not self._keep:
            self._line = b""

    def _excess(self, part: bytes) -> int:
        length = len(self._line) + len(part)
        if self._kind is None or self._kind is OPEN:
            return 0
        if self._kind is OTHER:
            return length - (RAW_LINE_BYTES if self.data_seen else self._limit - self.raw_kept)
        before = len(self._kind) + 1
        if before < len(self._line):
            space = self._line[before] == 32
        else:
            space = part.startswith(b" ", before - len(self._line))
        return length - before - space + self._size() - self._limit

    def _size(self) -> int:
        return self._data_size + len(self._event) + len(self.id)

    def _pass_limit(self) -> Oversize | None:
        self._keep = False
        self._line = b""
        if self._kind is OTHER:
            if self.data_seen:
                return None
            self._raw_over = True
            return Oversize(self._line_offset)
        return self._skip_event()

    def _skip_event(self) -> Oversize:
        offset = self._line_offset if self._data is None else self._data_offset
        had_data = self._data is not None
        self._new_event()
        self._skip, self._skip_data = True, had_data
        return Oversize(offset)

    def _end_line(self, line: bytes) -> Item | None:
        kind, kept = self._kind, self._keep
        self._new_line()
        if kind is None:
            return self._end_event()
        if kind is COMMENT:
            self.comments += 1
            return None
        if kind is OTHER:
            if not kept:
                self.ignored_lines += 1
                return None
            self.raw_kept += len(line)
            return RawLine(line, self._line_offset)

        self.field_seen = True
        if kind is DATA or kind is ERROR:
            self.data_seen = True
            self._skip_data |= self._skip
        if not kept:
            return None
        start = len(kind) + 1
        value = line[start + line.startswith(b" ", start) :]
        if kind is DATA:
            return self._add_data(value)
        if kind is EVENT:
            self._event = value
        elif kind is ID:
            if 0 in value:
                self.ignored_lines += 1
            elif value != self.id:
                self.id = value
        elif kind is RETRY:
            number = int(value.lstrip(b"0")[:21] or b"0") if value.isdigit() else RETRY_MAX + 1
            if number > RETRY_MAX:
                self.ignored_lines += 1
            else:
                self.retry = self._event_retry = number
        elif value:
            self.events += 1
            return ErrorField(value, self._line_offset)
        return None

    def _add_data(self, value: bytes) -> Oversize | None:
        if self._size() + len(value) + 1 > self._limit:
            oversize = self._skip_event()
            self._skip_data = True
            return oversize
        self._data_size += len(value) + 1
        if self._data is None:
            self._data = value
            self._data_offset = self._line_offset
        else:
            if type(self._data) is bytes:
                self._data = bytearray(self._data)
            self._data += b"\n"
            self._data += value
        return None

    def _end_event(self) -> Event | None:
        self.last_event_id = self.id
        event = None
        if self._data is not None:
            event = Event(bytes(self._data), self._event, self._data_offset, self.id, self._event_retry)
            self.events += 1
            self._event_retry = None
        elif self._skip:
            self.blocks_oversize += self._skip_data
            self._event_retry = None
        self._new_event()
        self.plain = not self._swallow and self._event_retry is None
        return event

    def _new_event(self) -> None:
        self._data = None
        self._data_size = 0
        self._event = b""
        self._skip = False
        self._skip_data = False

    def _new_line(self) -> None:
        self._line = b""
        self._kind = None
        self._keep = False
