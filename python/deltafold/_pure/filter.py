"""Bytes to rewritten bytes, for a relay: a chunk is changed where it changes, and all other bytes are the upstream's.

How it works
------------
The stream is cut into *frames*: from the first known field after a blank line up to and with the next blank line. Only
frames are ever held back, and only one, since its last byte may still decide what becomes of its first. All that stands
between frames (blank lines, comments, lines that are no field, so also a whole body that never was an event stream) goes
out as it comes. Without an option that changes anything nothing is held at all.

A frame's data is read as the accumulator reads it (``chunk.payload``: padding, doubled ``data:`` prefixes, several
``data`` lines, forgotten blank lines). Each chunk in it gives *edits*, spans of the data and what takes their place;
what is between them is not touched. A span of the data lies on one or more ``data`` lines, and is edited on each by
itself (``_on_lines``): the line ends between them are white space between two tokens, as no JSON token holds one.

The frame is decoded with ``surrogateescape``, so that ill-formed UTF-8 comes out as it went in.

A blank line's CR ends its frame at once; an LF that the next piece brings shares the frame's fate (``_dropped``). A frame that
passes the limit, or ends without its blank line and is no JSON, goes out as it is.

Injected events wait until what was sent ends between frames. While a frame is held, it does.

A frame that equals an earlier one but for its text takes a shorter way: see ``template``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn, final

from .._filtering import changed_chunk, changed_usage, options, whole_event
from .._types import Limits
from . import json
from .chunk import WHITE, Reading, last_line_error, payload
from .template import Pair, Templates

__all__ = ["StreamFilter"]

LF, CR, COLON = 10, 13, 58
BOM = b"\xef\xbb\xbf"
FIELDS = (b"data:", b"event:", b"id:", b"retry:")
FIELD = re.compile(rb"(?:data|event|id|retry)[:\r\n]")
HEAD = 6  # bytes that show whether a line is a field
LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")

BETWEEN, OTHER_LINE, HELD, PASSING = range(4)  # where the next byte is; PASSING: in a frame that nobody may change

Names = dict[str, Any]  # what to strip: for each name None, or the names inside of it
Edit = tuple[int, int, str]  # start, end, what stands there instead
Span = tuple[int, int]


@final
class StreamFilter:
    """Relays the bytes of one Chat Completions stream and changes what it is told to, byte for byte the same elsewhere.

    Chunks are edited where they change: the value of a member, or a member with its comma. Every other byte of a changed
    event, and every event without a change, comment, line ending and odd spacing goes out as it came. An event is held
    back until it is whole, one at the most; without any of the options that change something nothing is, and ``feed``
    returns the very piece that it was given. What cannot be read as a chunk is passed on: ``[DONE]``, text, broken JSON,
    a body that is no event stream, and an event larger than ``max_event_bytes``.

    Args:
        model: what every chunk with a string as its top-level ``model`` gets in its place.
        id: the same for the top-level ``id``.
        drop_usage_chunk: drop the event of the chunk that brings nothing but usage: ``usage`` is an object, ``choices``
            is ``[]``, null or missing, and there is no error. Usage in a chunk with choices stays, so does
            ``"usage":null``; ``strip=("usage",)`` removes these.
        strip: names of members to remove, or dotted paths of names: ``"choices.delta.reasoning_content"``. A list on the
            way stands for each object in it. A member that is given twice is removed twice.
        set_usage: called with the usage of each chunk whose top-level ``usage`` is an object, as a dict. What it returns
            takes its place; None, or an equal dict, leaves it as it came. Not called for usage that is dropped or stripped.
        on_chunk: called with each chunk as a dict, after all of the above; for whatever else there is to change. It
            returns the chunk, which is written anew if it was changed, or JSON on one line as bytes, or None to drop it.
        observe: an accumulator, fed the upstream's own bytes before they are filtered. It is not closed. If it raises, it
            is let go and the stream goes on: see ``observe_error``.
        limits: ``max_event_bytes`` bounds what is held back of one event, ``max_depth`` what is read as JSON.

    ``set_usage`` and ``on_chunk`` may raise: the exception leaves ``feed``, that event is left out, and the next call goes on
    behind it, and brings what was ready.

    Example:
        >>> relay = StreamFilter(model="fast")
        >>> relay.feed(b'data: {"model": "m-2026-01-31-fp8", "choices": []}\\n\\ndata: [DO')
        b'data: {"model": "fast", "choices": []}\\n\\n'
        >>> relay.feed(b"NE]\\n\\n")
        b'data: [DONE]\\n\\n'
    """

    __slots__ = (
        "__weakref__", "_between", "_blank", "_bom", "_busy", "_closed", "_depth", "_drop_usage_chunk", "_dropped",
        "_held", "_holds", "_id", "_led", "_left", "_limit", "_members", "_model", "_names", "_observe", "_observe_error",
        "_on_chunk", "_out", "_place", "_set_usage", "_strip", "_swallow", "_templates", "_waiting",
    )  # fmt: skip

    def __init__(
        self,
        *,
        model: str | None = None,
        id: str | None = None,
        drop_usage_chunk: bool = False,
        strip: Iterable[str] = (),
        set_usage: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None,
        on_chunk: Callable[[dict[str, Any]], dict[str, Any] | bytes | None] | None = None,
        observe: Any = None,
        limits: Limits | None = None,
    ) -> None:
        if limits is not None and not isinstance(limits, Limits):
            raise TypeError(f"limits must be a Limits or None, not {type(limits).__name__}")
        limits = limits or Limits()
        alias, id_alias, paths = options(model, id, drop_usage_chunk, strip, set_usage, on_chunk, observe)
        self._model = alias
        self._id = id_alias
        self._drop_usage_chunk = drop_usage_chunk
        self._strip = tree(paths)
        self._names = [name for name, on in (("model", alias), ("id", id_alias), ("usage", set_usage)) if on] + [
            *self._strip
        ]
        self._set_usage = set_usage
        self._on_chunk = on_chunk
        self._observe = observe
        self._observe_error: Exception | None = None
        self._limit = limits.max_event_bytes
        self._depth = limits.max_depth
        self._templates = Templates()
        self._members: list[Pair] | None = None  # of the chunk whose edits were asked for last
        self._holds = bool(alias or id_alias or drop_usage_chunk or paths or set_usage or on_chunk)
        self._place = BETWEEN
        self._bom = 0  # bytes of a BOM that came; all when it is too late for one
        self._led = False  # something was injected before the first byte, so that a BOM would be in mid-stream
        self._between = True  # what was sent ends between frames, but for a line that is being sent
        self._blank = True  # the line has no byte yet
        self._swallow = False  # an LF belongs to the CR before it
        self._dropped = False  # ... and that is not sent
        self._held = bytearray()
        self._left = b""  # bytes that nothing is decided about
        self._out: list[bytes] = []  # bytes that a caller's exception kept from being sent
        self._waiting = b""
        self._busy = False
        self._closed = False

    def feed(self, piece: bytes | bytearray | memoryview) -> bytes:
        """Takes the upstream's next bytes, cut anywhere; gives those to send on, ``piece`` itself if nothing changed.

        Raises:
            TypeError: ``piece`` is not bytes, bytearray or memoryview, or a function returned what it may not.
            ValueError: the filter is closed.
        """
        if type(piece) is not bytes:
            if not isinstance(piece, (bytes, bytearray, memoryview)):
                raise TypeError(f"a piece must be bytes, bytearray or memoryview, not {type(piece).__name__}")
            piece = memoryview(piece).tobytes()
        self._check_open()
        if self._observe is not None:
            try:
                self._observe.feed(piece)
            except Exception as error:
                self._observe, self._observe_error = None, error
        return self._work(self._run, piece)

    def inject(self, event: bytes | bytearray | memoryview) -> bytes:
        """Puts an event or a comment between the upstream's: a ping, an error, a usage chunk.

        It is not filtered and not observed; the blank line behind it may be left out. Gives the bytes to send now:
        ``event``, or nothing while a frame is half sent: the event then comes with the bytes of the ``feed`` that ends the
        frame. What still waits at ``close`` is not sent.

        Raises:
            TypeError: ``event`` is not bytes, bytearray or memoryview.
            ValueError: the filter is closed.
        """
        whole = whole_event(event)
        self._check_open()
        if not self._between or self._place == OTHER_LINE or 0 < self._bom < len(BOM):
            self._waiting += whole
            return b""
        self._led = self._led or bool(whole)
        ready, self._out = b"".join(self._out), []
        return ready + whole

    def close(self) -> bytes:
        """Ends the stream; gives what was held back: as it came, unless only its blank line is missing. Again: nothing."""
        self._check_free()
        if self._closed:
            return b""
        self._out = [self._work(self._run, b"")]
        self._out.append(self._work(self._end, b""))
        self._closed = True
        return b"".join(self._out)

    @property
    def observe_error(self) -> Exception | None:
        """What ``observe`` raised; it was fed nothing after that. None while all is well."""
        return self._observe_error

    def _set_fast_path(self, on: bool) -> None:
        """Turns the fast path off or on, for tests: results are the same."""
        self._templates = Templates()
        self._templates.off = not on

    def __repr__(self) -> str:
        return f"<StreamFilter {'closed' if self._closed else 'open'}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a filter cannot be pickled or copied")

    def _check_free(self) -> None:
        if self._busy:
            raise RuntimeError("the filter is in use by another thread; give each stream its own")

    def _check_open(self) -> None:
        self._check_free()
        if self._closed:
            raise ValueError("the filter is closed")

    def _work(self, work: Callable[[bytes], bytes], piece: bytes) -> bytes:
        self._busy = True
        try:
            return work(piece)
        finally:
            self._busy = False

    # Bytes to frames

    def _run(self, piece: bytes) -> bytes:
        if self._left:
            piece, self._left = self._left + piece, b""
        if not self._holds and self._bom == len(BOM) and not self._waiting and piece.endswith(b"\n\n"):
            # whatever came before, this ends a blank line
            self._place, self._between, self._blank, self._swallow = BETWEEN, True, True, False
            return piece
        sink = Sink(piece, self._out)
        at = self._skip_bom(sink) if self._bom < len(BOM) else 0
        while at < len(piece):
            if self._place == BETWEEN:
                at = self._by_template(sink, at) or self._between_frames(sink, at)
            elif self._place == HELD:
                at = self._in_held(sink, at)
            elif self._place == PASSING:
                at = self._in_passing(sink, at)
            else:
                at = self._in_other_line(sink, at)
        self._out = []
        return sink.joined()

    def _skip_bom(self, sink: Sink) -> int:
        at = 0
        while at < len(sink.piece) and self._bom < len(BOM):
            if sink.piece[at] != BOM[self._bom]:
                if self._bom:
                    self._place, self._between = OTHER_LINE, False
                    if self._led:
                        sink.put(BOM[: self._bom])
                self._bom = len(BOM)
                break
            self._bom += 1
            at += 1
        if not self._led:
            sink.same(0, at)
        return at

    def _between_frames(self, sink: Sink, at: int) -> int:
        piece = sink.piece
        byte = piece[at]
        if self._swallow:
            self._swallow = False
            if byte == LF:
                if not self._dropped:
                    sink.same(at, at + 1)
                return at + 1
        if byte in (LF, CR):
            end, _ = line_end(piece, at)
            sink.same(at, end)
            self._swallow, self._dropped = piece[end - 1] == CR, False
            self._boundary(sink)
            return end
        head = piece[at : at + HEAD]
        if not self._holds:
            self._place, self._between = PASSING, False
        elif FIELD.match(head):
            self._place = HELD
        elif len(head) < HEAD and any(field.startswith(head) for field in FIELDS):
            self._left = head
            return len(piece)
        else:
            self._place = OTHER_LINE
            self._between = self._between and byte == COLON
        return at

    def _by_template(self, sink: Sink, at: int) -> int:
        """The end of the frame at ``at``, if a template knows it; it is then dealt with. Else 0."""
        if self._swallow:
            return 0
        piece = sink.piece
        end, changed = self._templates.find(piece, at)
        if not end or end - at - piece.startswith(b"\r\n", end - 2) > self._limit:
            return 0
        if changed is None:
            sink.same(at, end)
        else:
            sink.put(changed)
        self._dropped = False
        self._boundary(sink)
        return end

    def _in_other_line(self, sink: Sink, at: int) -> int:
        end, ended = line_end(sink.piece, at)
        sink.same(at, end)
        if ended:
            self._place = BETWEEN
            self._swallow, self._dropped = sink.piece[end - 1] == CR, False
            if self._between:
                self._boundary(sink)
        return end

    def _in_passing(self, sink: Sink, at: int) -> int:
        end, ended = self._frame_end(sink.piece, at)
        sink.same(at, end)
        if ended:
            self._place, self._dropped = BETWEEN, False
            self._boundary(sink)
        return end

    def _in_held(self, sink: Sink, at: int) -> int:
        end, ended = self._frame_end(sink.piece, at)
        part = sink.piece[at:end]
        if not ended:
            self._held += part
            if len(self._held) > self._limit:
                sink.put(bytes(self._held))
                self._held.clear()
                self._place, self._between = PASSING, False
            return end
        frame = bytes(self._held) + part if self._held else part
        self._held.clear()
        self._place, self._dropped = BETWEEN, True
        try:
            # whether the LF of a last CR LF is there is a matter of cuts
            small = len(frame) - frame.endswith(b"\r\n") <= self._limit
            changed = self._rewrite(frame) if small else frame
        except BaseException:
            self._left = sink.piece[end:]
            self._between = True
            sink.flush()
            raise
        self._dropped = changed is None
        if changed is part:
            sink.same(at, end)
        elif changed is not None:
            sink.put(changed)
        self._boundary(sink)
        return end

    def _frame_end(self, piece: bytes, at: int) -> tuple[int, bool]:
        """The end of the blank line that ends a frame, or of the piece; whether it is the former."""
        while at < len(piece):
            byte = piece[at]
            if self._swallow:
                self._swallow = False
                if byte == LF:
                    at += 1
                    continue
            ends = self._blank and byte in (LF, CR)
            at, self._blank = line_end(piece, at)
            self._swallow = self._blank and piece[at - 1] == CR
            if ends:
                return at, True
        return at, False

    def _boundary(self, sink: Sink) -> None:
        self._between = True
        if self._waiting:
            sink.put(self._waiting)
            self._waiting = b""

    def _end(self, _: bytes) -> bytes:
        rest, self._held = bytes(self._held), bytearray()
        return (self._rewrite(rest, whole=False) or b"") if rest else self._left

    # Frames to changed frames

    def _rewrite(self, frame: bytes, whole: bool = True) -> bytes | None:
        """The frame with its chunks changed, itself when nothing changes, None when it goes."""
        text = frame.decode("utf-8", "surrogateescape")
        lines, is_error = data_lines(text)
        found = read(text, lines, self._depth)
        if found is None and not whole and len(lines) > 1 and lines[-1].end == lines[-1].value_end:
            lines.pop()  # the unfinished line is no part of what came before it
            found = read(text, lines, self._depth)
        edits: list[Edit] = []
        gone = 0
        self._members = None
        for data, line, chunks in found or ():
            changes = [self._edits(data, value, span, is_error) for value, span in chunks]
            dropped = {at for at, change in enumerate(changes) if change is None}
            if chunks and len(dropped) == len(chunks):
                if line is None:
                    return None
                gone += 1
                edits.append((lines[line].start, lines[line].end, ""))
                continue
            here = [edit for change in changes for edit in change or ()]
            here += removals([span for _, span in chunks], dropped)
            edits += on_lines(sorted(here), lines if line is None else lines[line : line + 1])
        if whole and found and self._teaches(frame, lines, found):
            data, _, chunks = found[0]
            members = json.pairs(data, chunks[0][1][0]) if self._members is None else self._members
            self._templates.learn(text, lines[0].value, members, edits)
        if not edits:
            return frame
        return None if gone == len(lines) else applied(text, edits).encode("utf-8", "surrogateescape")

    def _teaches(self, frame: bytes, lines: list[Line], found: list[Group]) -> bool:
        """Whether the frame is one chunk on one line, and nobody was asked about it."""
        if self._on_chunk is not None or len(lines) != 1 or len(found[0][2]) != 1 or not frame.endswith(b"\n"):
            return False
        return self._set_usage is None or not isinstance(found[0][2][0][0].get("usage"), dict)

    def _edits(self, data: str, value: dict[str, Any], span: Span, is_error: bool) -> list[Edit] | None:
        """The changes to one chunk, whose value stands at ``span`` of the data; None when it goes."""
        if self._drop_usage_chunk and not is_error and only_usage(value):
            return None
        start, end = span
        edits = self._member_edits(data, start) if any(name in value for name in self._names) else []
        if self._on_chunk is None:
            return edits
        changed = changed_chunk(self._on_chunk, applied_bytes(data, span, edits))
        if isinstance(changed, bytes):
            return [(start, end, changed.decode("utf-8", "surrogateescape"))]
        return edits if changed else None

    def _member_edits(self, data: str, start: int) -> list[Edit]:
        edits: list[Edit] = []
        members = self._members = json.pairs(data, start)
        usage = None
        if self._set_usage is not None:
            usage = max((place for place, member in enumerate(members) if member[0] == "usage"), default=None)
        removed = set()
        for place, (name, _, at, end) in enumerate(members):
            inside = self._strip.get(name, {})
            if inside is None:
                removed.add(place)
            elif name == "model" and self._model is not None and data[at] == '"':
                edits.append((at, end, self._model))
            elif name == "id" and self._id is not None and data[at] == '"':
                edits.append((at, end, self._id))
            else:
                stripped = strip_inside(data, at, inside)
                if self._set_usage is not None and place == usage and data[at] == "{":
                    changed = changed_usage(self._set_usage, applied_bytes(data, (at, end), stripped))
                    if changed is not None:
                        stripped = [(at, end, changed.decode())]
                edits += stripped
        return edits + removals([(begin, end) for _, begin, _, end in members], removed)


StreamFilter.__module__ = "deltafold"  # where users meet it


class Sink:
    """What to send of one piece: parts, and behind them a stretch of the piece that goes out as it is."""

    __slots__ = ("end", "parts", "piece", "start")

    def __init__(self, piece: bytes, parts: list[bytes]) -> None:
        self.piece = piece
        self.parts = parts
        self.start = self.end = 0

    def same(self, start: int, end: int) -> None:
        if start != self.end:
            self.flush()
            self.start = start
        self.end = end

    def put(self, part: bytes) -> None:
        self.flush()
        self.parts.append(part)

    def flush(self) -> None:
        if self.start < self.end:
            self.parts.append(self.piece[self.start : self.end])
        self.start = self.end

    def joined(self) -> bytes:
        if not self.parts and self.start == 0 and self.end == len(self.piece):
            return self.piece
        self.flush()
        return b"".join(self.parts)


class Line(NamedTuple):
    """Where a ``data`` line of a frame is: its start, the span of its value, the end of its line end."""

    start: int
    value: int
    value_end: int
    end: int


Group = tuple[str, int | None, list[tuple[dict[str, Any], Span]]]  # data, one of its lines or None for all, its chunks


def line_end(piece: bytes, at: int) -> tuple[int, bool]:
    """The end of the line end that comes next, or of the piece; whether it is the former."""
    lf = piece.find(b"\n", at)
    cr = piece.find(b"\r", at, len(piece) if lf < 0 else lf)
    end = cr if 0 <= cr != lf - 1 else lf
    return (len(piece), False) if end < 0 else (end + 1, True)


def data_lines(text: str) -> tuple[list[Line], bool]:
    """The ``data`` lines of a frame; whether it is an ``error`` event."""
    lines, at, is_error = [], 0, False
    while at < len(text):
        found = LINE.match(text, at)
        assert found is not None  # it matches the empty text too
        name, _, value = found[1].partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            lines.append(Line(at, found.end(1) - len(value), found.end(1), found.end()))
        elif name == "event":
            is_error = value == "error"
        at = found.end()
    return lines, is_error


def read(text: str, lines: list[Line], max_depth: int) -> list[Group] | None:
    """The chunks of a frame's data; None when it is not JSON."""
    if not lines:
        return None
    values = [text[line.value : line.value_end] for line in lines]
    data = "\n".join(values)
    readings = payload(data, max_depth)
    if readings is not None and len(readings) == 1:
        return [group(data, None, readings[0])]
    if readings is None:
        error = last_line_error(data, max_depth)
        if error is None:
            return None
        readings = [error]
    filled = [place for place, value in enumerate(values) if value.strip(WHITE)]
    return [group(values[p], p, reading) for p, reading in zip(filled[-len(readings) :], readings)]


def group(data: str, line: int | None, reading: Reading) -> Group:
    start = len(data.rstrip(WHITE)) - len(reading.text)
    if not reading.chunks:
        return data, line, []
    spans = [(0, len(reading.text))] if reading.chunks[0].place is None else json.elements(reading.text)
    return data, line, [(c.value, (start + a, start + b)) for c, (a, b) in zip(reading.chunks, spans)]


def only_usage(value: dict[str, Any]) -> bool:
    bare = value.get("choices") is None or value["choices"] == []
    return bare and isinstance(value.get("usage"), dict) and not value.get("error") and value.get("object") != "error"


def tree(paths: list[list[str]]) -> Names:
    """Paths as one tree; where one leads to all of an object, others into it say nothing more."""
    names: Names = {}
    for path in paths:
        inside = names
        for name in path[:-1]:
            inside = inside.setdefault(name, {})
            if inside is None:
                break
        else:
            inside[path[-1]] = None
    return names


def strip_inside(data: str, at: int, names: Names) -> list[Edit]:
    """The edits that remove ``names`` from the object at ``at``, or from the objects in the list there."""
    if not names or data[at] not in "{[":
        return []
    if data[at] == "[":
        starts = [start for start, _ in json.elements(data, at) if data[start] == "{"]
        return [edit for start in starts for edit in strip_inside(data, start, names)]
    edits, removed = [], set()
    members = json.pairs(data, at)
    for place, (name, _, value, _) in enumerate(members):
        inside = names.get(name, {})
        if inside is None:
            removed.add(place)
        else:
            edits += strip_inside(data, value, inside)
    return edits + removals([(begin, end) for _, begin, _, end in members], removed)


def removals(spans: list[Span], removed: set[int]) -> list[Edit]:
    """The edits that remove some of an object's members or an array's entries, each with one comma."""
    if not removed:
        return []
    kept = next((place for place in range(len(spans)) if place not in removed), len(spans))
    edits = []
    for place in sorted(removed):
        start, end = spans[place]
        if place > kept:
            start = spans[place - 1][1]
        elif place + 1 < len(spans):
            end = spans[place + 1][0]
        edits.append((start, end, ""))
    return edits


def on_lines(edits: list[Edit], lines: list[Line]) -> list[Edit]:
    """Edits of the joined values of ``lines`` as edits of the frame, both in ascending order."""
    found = []
    place, shift = 0, 0  # the line, and where its value begins in the data
    for start, end, new in edits:
        while start > shift + lines[place].value_end - lines[place].value:
            shift += lines[place].value_end - lines[place].value + 1
            place += 1
        here, base = place, shift
        while here < len(lines) and base < end:
            line = lines[here]
            length = line.value_end - line.value
            low, high = max(start - base, 0), min(end - base, length)
            if low < high:
                found.append((line.value + low, line.value + high, new))
                new = ""
            base += length + 1
            here += 1
    return found


def applied(text: str, edits: list[Edit]) -> str:
    """``text`` with edits in ascending order."""
    parts: list[str] = []
    at = 0
    for start, end, new in edits:
        parts += (text[at:start], new)
        at = end
    return "".join(parts) + text[at:]


def applied_bytes(data: str, span: Span, edits: list[Edit]) -> bytes:
    """A part of the data with the edits in it."""
    start, end = span
    text = applied(data[start:end], [(a - start, b - start, new) for a, b, new in sorted(edits)])
    return text.encode("utf-8", "surrogateescape")
