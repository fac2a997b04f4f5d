"""Bytes → completion: what each event, stray line and leftover of a body means.

Most bodies are event streams whose payloads are chunks. This file is about the others: padding, ``[DONE]``, errors in
every place that servers put them, bodies of plain JSON, HTML pages, and bytes that end too early.
"""

from __future__ import annotations

from typing import Any

from .._errors import escape
from .._types import Limits, Seen
from .chunk import DONE, Chunk, Reading, compact, last_line_error, payload, read
from .ledger import Ledger
from .merge import Completion, says
from .shape import Shapes
from .sse import ErrorField, Event, Machine, RawLine, Rest
from .text import cleaned

LONGEST_MESSAGE = 4096  # bytes of upstream's text in an error
EXCERPT = 80  # characters of a payload in a message


class Stream:
    """One response body."""

    __slots__ = (
        "_chunks", "_depth", "_json_lines", "_kept", "_kept_offset", "_kept_over", "_late_events", "after_done", "completion",
        "cut", "done_seen", "ledger", "machine", "shapes",
    )  # fmt: skip

    def __init__(self, limits: Limits, n: int | None) -> None:
        self.ledger = Ledger(limits)
        self.completion = Completion(self.ledger, n)
        self.shapes = Shapes(self.completion)
        self.machine = Machine(limits.max_event_bytes, raw_lines=True)
        self.done_seen = False
        self.cut = False  # the last event is not whole
        self._chunks = 0  # that the ordinary path merged
        self.after_done = 0
        self._late_events = 0  # counted at the end of the bytes
        self._depth = limits.max_depth
        self._kept: bytearray | None = None  # lines, an LF behind each, of what may be no event stream
        self._kept_offset = 0
        self._kept_over = False
        self._json_lines = False  # whole lines of JSON were taken already

    @property
    def complete(self) -> bool:
        return self.done_seen or (self.completion.finished and not self.cut)

    @property
    def chunks(self) -> int:
        return self._chunks + self.shapes.merged

    @property
    def events(self) -> int:
        return self.machine.events + self.machine.blocks_oversize + self._late_events

    def feed(self, piece: bytes) -> int:
        self.ledger.seen = 0
        machine, at, size = self.machine, 0, len(piece)
        while at < size:
            if machine.plain and machine.begun and not self.done_seen:
                at += self.shapes.merge_events(piece, at, machine)
                if at == size:
                    break
            # Up to the next blank line, behind which a shape may match again.
            end = piece.find(b"\n\n", at) + 2
            end = size if end < 2 else end
            self._feed(piece[at:end])
            at = end
        return self.ledger.seen

    def _feed(self, piece: bytes) -> None:
        for item in self.machine.feed(piece):
            if isinstance(item, Event):
                self._event(item.data, item.event == b"error", item.offset)
            elif isinstance(item, ErrorField):
                self._error_field(item.value, item.offset)
            elif isinstance(item, RawLine):
                self._raw_line(item)
            elif not self.done_seen:
                self.ledger.offset = item.offset
                limit = self.ledger.limits.max_event_bytes
                self.ledger.fail("limit-exceeded", f"an event of more than max_event_bytes={limit}")
                self._kept_over = True
            if self._kept and (self.machine.data_seen or self._kept_over):
                self._kept, self.machine.raw_kept = None, 0

    def feed_text(self, text: str) -> int:
        """One chunk that came as an object."""
        self.ledger.seen = 0
        self.ledger.offset = None
        if self.done_seen:
            self.ledger.note("data-after-done")
        elif not self.shapes.merge_data(text.encode()):
            self._text(text, False)
        return self.ledger.seen

    def close(self) -> int:
        self.ledger.seen = 0
        if not self.done_seen:
            self._end(self.machine.rest())
        self.ledger.offset = self.machine.bytes
        if self.ledger.halves:
            self.ledger.note("lone-surrogate", self.ledger.halves)
        if not self.complete:
            self.ledger.fail("truncated", "the stream ended before it was complete")
        return self.ledger.seen

    # Events

    def _event(self, data: bytes, is_error: bool, offset: int) -> None:
        self.ledger.offset = offset
        if self.done_seen:
            self.after_done += 1
            self.ledger.note("data-after-done")
        elif is_error or not self.shapes.merge_data(data):
            self._text(self._decode(data), is_error)

    def _decode(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            self.ledger.note("replaced-bytes")
            return data.decode("utf-8", "replace")

    def _text(self, text: str, is_error: bool) -> None:
        readings = payload(text, self._depth, self.ledger)
        if is_error and (readings is None or all(not r.chunks and not r.done for r in readings)):
            self._error_text(text)
        elif readings is not None:
            for reading in readings:
                self._reading(reading, is_error)
        else:
            last = last_line_error(text, self._depth)
            if last is None:
                self._bad_json(text)
            else:
                self.ledger.note("bad-json")
                self._reading(last, is_error)

    def _reading(self, reading: Reading, is_error: bool = False) -> None:
        if self.done_seen:
            self.ledger.note("data-after-done")
        elif reading.done:
            self.done_seen = True
            self.ledger.seen |= Seen.DONE.value
        elif reading.fault == "limit-exceeded":
            self.ledger.fail("limit-exceeded", f"a chunk deeper than max_depth={self._depth}")
        elif reading.fault is not None:
            self._bad_json(reading.text)
        else:
            if reading.words:
                self.ledger.note("non-finite-number", reading.words)
            for chunk in reading.chunks:
                self._merge(chunk, is_error, quiet=not reading.words)

    def _bad_json(self, text: str) -> None:
        self.ledger.note("bad-json")
        self.ledger.fail("bad-json", f"a payload is not a JSON object: {text[:EXCERPT]}")

    def _merge(self, chunk: Chunk, is_error: bool, quiet: bool = False) -> None:
        """The chunk's own content first, then its error. ``quiet``: nothing about it was noted yet."""
        self._chunks += 1
        value = chunk.value
        error, beside = value.get("error"), value
        if not error:
            entries = value.get("choices")
            for entry in entries if isinstance(entries, list) else ():
                if isinstance(entry, dict) and entry.get("error"):
                    error, beside = entry["error"], entry
                    break
        named = value.get("object") == "error"
        is_error = not error and (is_error or named)
        quiet = quiet and not is_error and not error
        holes = self.shapes.judge(chunk) if quiet else None
        notes = self.ledger.notes
        self.completion.merge(chunk, is_error or named)
        quiet = quiet and notes == self.ledger.notes and not self.ledger.over
        if holes is None or not quiet:
            self.shapes.forget()
            holes = self.shapes.judge(chunk) if quiet else None  # what is not the first time may well be from now on
        self.shapes.learn(chunk, holes)
        if error:
            self._upstream_error(error, beside)
        elif is_error:
            self._upstream_error(value, value)

    # Errors

    def _error_field(self, value: bytes, offset: int) -> None:
        self.ledger.offset = offset
        self.ledger.note("error-field")
        if self.done_seen:
            self.after_done += 1
            self.ledger.note("data-after-done")
            return
        text = self._decode(value)
        reading = read(text, self._depth)
        if reading.chunks:
            self._reading(reading, True)
        elif not reading.skipped or reading.blank:
            self._error_text(text)

    def _error_text(self, text: str) -> None:
        """An error whose body is no object: plain text, or a JSON string."""
        reading = read(text, self._depth)
        body = reading.scalar_string if reading.scalar_string is not None else text
        self._fail_upstream(body, None, body)

    def _upstream_error(self, error: Any, beside: dict[str, Any]) -> None:
        """``error``: the error member, or the whole object where that is the error. Its text may stand beside a flag."""
        told = error if isinstance(error, dict) else beside
        message: Any = error
        if isinstance(error, list):
            message = compact(error)
        elif not isinstance(error, str):
            message = told.get("message")
            if not message or not isinstance(message, str):
                detail = told.get("detail")
                message = detail if detail and isinstance(detail, str) else compact(detail or error)
        code = next((told[key] for key in ("code", "type") if says(told.get(key))), None)
        self._fail_upstream(message, code, error)

    def _fail_upstream(self, message: str, code: Any, body: Any) -> None:
        if self.ledger.error is not None:
            self.ledger.seen |= Seen.ERROR.value
            return
        scratch = Ledger(self.ledger.limits)
        message = cleaned(message, scratch).encode()[:LONGEST_MESSAGE].decode("utf-8", "ignore")
        self.ledger.fail("upstream-error", message, code=cleaned(code, scratch), body=cleaned(body, scratch))

    # Bodies that are no event stream

    def _raw_line(self, item: RawLine) -> None:
        """A line that is no field. Between events it may be an error; before any it may be the body."""
        if self.done_seen or self._kept_over:
            self.machine.raw_kept = 0
        elif self._take_line(item):
            self.machine.raw_kept -= len(item.line)
        elif self.machine.data_seen:
            self.machine.raw_kept = 0
        else:
            if self._kept is None:
                self._kept, self._kept_offset = bytearray(), item.offset
            self._kept += item.line
            self._kept += b"\n"

    def _take_line(self, item: RawLine) -> bool:
        """Whether the line counts at once."""
        if self.machine.field_seen:
            return self._take_raw_error(item)
        if self._kept:
            return False
        if self._json_lines and item.line.strip() == DONE.encode():
            self.done_seen = True
            self.ledger.seen |= Seen.DONE.value
            return True
        return self._take_body(item.line, item.offset)

    def _take_raw_error(self, item: RawLine) -> bool:
        """A JSON object with an error, written between events."""
        if item.line[:1] != b"{":
            return False
        text = item.line.decode("utf-8", "replace")
        reading = read(text, self._depth)
        if len(reading.chunks) != 1 or not reading.chunks[0].value.get("error"):
            return False
        self.ledger.offset = item.offset
        self._decode(item.line)
        self.ledger.note("raw-error-line")
        self._reading(reading)
        return True

    def _take_body(self, body: bytes, offset: int) -> bool:
        """A whole completion, chunk or error that stands for itself."""
        if body.lstrip(b" \t\n\f\r")[:1] not in (b"{", b"["):
            return False
        reading = read(body.decode("utf-8", "replace"), self._depth)
        kinds = [body_kind(chunk.value) for chunk in reading.chunks]
        if not kinds or None in kinds:
            return False
        self.ledger.offset = offset
        self._decode(body)
        self._json_lines = True
        if reading.words:
            self.ledger.note("non-finite-number", reading.words)
        for chunk, kind in zip(reading.chunks, kinds):
            self.ledger.note("json-lines" if kind == "chunk" else "json-body")
            self._merge(chunk, kind == "error")
        return True

    # The end of the bytes

    def _end(self, rest: Rest) -> None:
        if self.machine.data_seen:
            self._kept = None
        line = rest.line
        field = field_of(line) if line is not None else None
        unfinished = line is not None and not rest.line_comment or rest.line_skipped
        offset = rest.line_offset if rest.data_offset is None else rest.data_offset
        if rest.oversize:
            self._cut(offset)
        elif rest.data is not None or field == "data":
            self._end_event(rest, line if field == "data" else None, unfinished, offset)
        elif self.machine.data_seen or field is not None or rest.line_skipped:
            if unfinished:
                self._end_line(line, field, rest.line_offset)
        elif not self._kept_over and (self._kept or unfinished):
            self._end_body(line if unfinished else None, rest.line_offset)

    def _end_event(self, rest: Rest, line: bytes | None, unfinished: bool, offset: int) -> None:
        """An event without its blank line counts if its data is whole."""
        is_error = rest.event == b"error"
        before = rest.data
        if line is not None:
            value = value_of(line)
            if self._end_data(value if before is None else before + b"\n" + value, is_error, offset):
                return
        taken = before is not None and self._end_data(before, is_error, offset, finished=not unfinished)
        if line is None and unfinished and rest.line is not None and rest.line[:1] == b"{":
            if self._take_raw_error(RawLine(rest.line, rest.line_offset)):
                return
        if unfinished or not taken:
            self._cut(offset)

    def _end_data(self, data: bytes, is_error: bool, offset: int, finished: bool = False) -> bool:
        """Whether the data is whole, then merged; of an error's event any ``finished`` lines are."""
        text = data.decode("utf-8", "replace")
        readings = payload(text, self._depth)
        if readings is None:
            whole = last_line_error(text, self._depth) is not None
        else:  # comments among the lines are no part of it
            whole = any(r.whole for r in readings) and all(r.whole or r.blank for r in readings)
        if not whole and not (is_error and finished):
            return False
        self._late_events += 1
        self.ledger.offset = offset
        self.ledger.note("unterminated-event")
        self._event(data, is_error, offset)
        return True

    def _end_line(self, line: bytes | None, field: str | None, offset: int) -> None:
        """An unfinished line that is no data: an error if it is whole, else a cut."""
        if field == "error" and line is not None and read(value_of(line).decode("utf-8", "replace"), self._depth).whole:
            self._late_events += 1
            self.ledger.offset = offset
            self.ledger.note("unterminated-event")
            self._error_field(value_of(line), offset)
        elif line is None or not self._take_raw_error(RawLine(line, offset)):
            self._cut(offset)

    def _end_body(self, line: bytes | None, offset: int) -> None:
        """The kept lines and an unfinished one are the body: one JSON object, or nothing we know."""
        if self._json_lines and not self._kept and line is not None:
            if not self._take_line(RawLine(line, offset)):
                self._cut(offset)
            return
        first = self._kept_offset if self._kept else offset
        kept, self._kept = self._kept or b"", None
        body = bytes(kept[:-1] if line is None else kept + line)
        if self._take_body(body, first):
            return
        self.ledger.offset = first
        text = self._decode(body)
        if read(text, self._depth).fault == "limit-exceeded":
            self.ledger.fail("limit-exceeded", f"a chunk deeper than max_depth={self._depth}")
        else:
            self.ledger.fail("not-sse", f"the body is no event stream: {escape(text, EXCERPT)}")

    def _cut(self, offset: int) -> None:
        self.cut = True
        self.ledger.offset = offset
        self.ledger.note("incomplete-event")


def body_kind(value: dict[str, Any]) -> str | None:
    """What an object is that came without an event: ``completion``, ``chunk``, ``error``, or none of these."""
    kind = value.get("object")
    if value.get("error") or kind == "error":
        return "error"
    if isinstance(kind, str) and kind.startswith("chat.completion") or "choices" in value:
        if kind == "chat.completion.chunk":
            return "chunk"
        entries = value.get("choices")
        whole = any(isinstance(e, dict) and "message" in e for e in (entries if isinstance(entries, list) else ()))
        return "completion" if kind == "chat.completion" or whole else "chunk"
    return "error" if value.get("message") or value.get("detail") else None


def field_of(line: bytes) -> str | None:
    """The known field that a line gives."""
    name = line.partition(b":")[0]
    if name == b"error" and b":" not in line:
        return None
    return name.decode() if name in (b"data", b"event", b"id", b"retry", b"error") else None


def value_of(line: bytes) -> bytes:
    value = line.partition(b":")[2]
    return value[1:] if value[:1] == b" " else value
