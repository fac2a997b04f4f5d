"""Payload → chunks: what one event's data is before its meaning is asked.

``read`` answers for one text: the JSON objects in it, or why there are none. ``payload`` is the lenient reading of an
event's data: padding skipped, doubled ``data:`` prefixes and forgotten blank lines undone. A ``Chunk`` is one JSON
object with the way back to its text: a *place* is a chain ``(parent place, key)`` from the text's root, resolved only
when somebody needs the very bytes (arguments sent as an object) or their length (spelled in more than one way).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import json
from .ledger import Ledger

Place = tuple[Any, Any]  # (parent place or None for the text's root, key or position)

WHITE = "\t\n\f\r "
DONE = "[DONE]"


class Chunk:
    """One JSON object of the stream."""

    __slots__ = ("_plain", "_spans", "place", "text", "value")

    def __init__(self, value: dict[str, Any], text: str, place: Place | None = None) -> None:
        self.value = value
        self.text = text
        self.place = place
        self._plain: bool | None = None
        self._spans: dict[Any, Any] = {}

    def size(self, value: Any, place: Place) -> int:
        """Bytes of the JSON text of ``value``, which stands at ``place``, without the white space outside strings."""
        if value is None or value is True:
            return 4
        if value is False:
            return 5
        if type(value) is int and 0 < value < 10**18:
            return len(str(value))
        if type(value) is str and "\\" not in self.text:
            return 2 + (len(value) if value.isascii() else len(value.encode()))
        if self._plain is None:
            self._plain = json.plain(self.text)
        return json.size(value) if self._plain else len(self.raw(place).encode())

    def raw(self, place: Place) -> str:
        """The JSON text at ``place``, white space outside strings removed, every other character as it came."""
        start, end = self.span(place)
        return json.compact(self.text[start:end])

    def span(self, place: Place | None) -> tuple[int, int]:
        """Where in the text the value at ``place`` stands."""
        if place is None:
            return 0, len(self.text)
        parent, key = place
        start, _ = self.span(parent)
        table: Any = self._spans.get(start)
        if table is None:
            table = json.elements(self.text, start) if isinstance(key, int) else json.members(self.text, start)
            self._spans[start] = table
        span: tuple[int, int] = table[key]
        return span


class Reading(NamedTuple):
    """What one text is: ``chunks`` (possibly none: padding), or a ``fault``."""

    text: str
    chunks: list[Chunk]
    fault: str | None = None  # "bad-json" | "limit-exceeded"
    words: int = 0  # NaN, Infinity, -Infinity
    done: bool = False
    skipped: bool = False  # nothing that counts: empty, null, {} or a comment
    blank: bool = False  # of these, empty or a comment
    prefixed: bool = False  # a repeated data: prefix was removed
    scalar: bool = False  # JSON, but no object
    scalar_string: str | None = None  # of these, a string

    @property
    def whole(self) -> bool:
        """``[DONE]`` or whole JSON."""
        return not self.blank and (self.fault is None or self.scalar)


def trim(text: str) -> tuple[str, bool]:
    """``text`` without white space around and without repeated ``data:`` prefixes; whether there was one."""
    text = text.strip(WHITE)
    start = 0
    while text.startswith("data:", start):
        start += 5
        while text[start : start + 1] and text[start] in WHITE:
            start += 1
    return text[start:], start > 0


def read(text: str, max_depth: int) -> Reading:
    """One payload or one line of one."""
    text, prefixed = trim(text)
    if text == DONE:
        return Reading(text, [], done=True, prefixed=prefixed)
    if not text or text[0] == ":" or text == "null" or text == "{}":
        return Reading(text, [], skipped=True, blank=not text or text[0] == ":", prefixed=prefixed)
    try:
        value, words = json.parse(text, max_depth)
    except json.TooDeep:
        return Reading(text, [], "limit-exceeded", prefixed=prefixed)
    except json.Bad:
        return Reading(text, [], "bad-json", prefixed=prefixed)
    if isinstance(value, dict):
        return Reading(text, [Chunk(value, text)], words=words, prefixed=prefixed)
    if isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
        chunks = [Chunk(v, text, (None, i)) for i, v in enumerate(value)]
        return Reading(text, chunks, words=words, prefixed=prefixed)
    string = value if isinstance(value, str) else None
    return Reading(text, [], "bad-json", prefixed=prefixed, scalar=True, scalar_string=string)


def payload(data: str, max_depth: int, ledger: Ledger | None = None) -> list[Reading] | None:
    """The readings of an event's data, one unless blank lines were forgotten; None when it is not JSON.

    With a ``ledger`` the repairs are noted.
    """
    whole = read(data, max_depth)
    readings: list[Reading] | None = [whole]
    missing_blank_line = False
    comment = whole.blank and whole.text != ""  # of which a line behind may be more than one
    if comment or (whole.fault == "bad-json" and not whole.scalar):
        readings = [whole] if comment and (last_line_error(data, max_depth) is None) else None
        if "\n" in data:
            lines = [read(line, max_depth) for line in data.split("\n") if line.strip(WHITE)]
            if len(lines) > 1 and all(line.fault != "bad-json" or line.scalar for line in lines):
                if not comment or not all(line.skipped for line in lines):
                    readings, missing_blank_line = lines, True
    if ledger is not None:
        if whole.prefixed or (readings is not None and any(r.prefixed for r in readings)):
            ledger.note("repeated-data-prefix")
        if missing_blank_line:
            ledger.note("missing-blank-line")
    return readings


def last_line_error(data: str, max_depth: int) -> Reading | None:
    """The last line, if it is a JSON object with a truthy ``error``: a proxy broke off and wrote its own line."""
    lines = [line for line in data.split("\n") if line.strip(WHITE)]
    if len(lines) < 2:
        return None
    last = read(lines[-1], max_depth)
    return (
        last if len(last.chunks) == 1 and last.chunks[0].place is None and last.chunks[0].value.get("error") else None
    )


def compact(value: Any) -> str:
    """Canonical JSON text on one line, for messages."""
    return json.dumps(value)
