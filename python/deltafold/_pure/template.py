"""The filter's fast path: frames that equal an earlier one but for some of their strings and numbers.

Consecutive chunks mostly differ in nothing but their text. So a frame that was read in full leaves a template: its bytes
outside of *holes*, and where its edits lie between them. Holes are strings in ``choices``, strings and numbers in
``usage``, and the padding; where that did not do also numbers in ``choices``, what is seldom another (a role, a type) and
all other outermost strings and numbers but ``error`` and ``object``. The next frame is one of the template when its bytes
outside the holes are the same and each hole is the inside of a JSON string, or a number. That is enough, by construction:

* It is a frame, and ends where the template ends: no JSON string or number holds a line end, so the lines are the same.
* It parses to the same tree: the same tokens, but for the content of some strings and numbers that are values.
* It gets the same edits: they depend on names, on where values begin and end, on the kind of values, on whether
  ``choices`` is empty, ``error`` is truthy and ``object`` is ``error``, and never on the content of a hole. No edit begins
  or ends in a hole; one that lies inside an edit is removed with it, as another would be.
* No template is learned from a frame whose change a caller's function decides, or that was dropped.

The whole file may be deleted without changing a result.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable

from .shape import STRING

TEMPLATES = 2
HOLES = 24  # tokens of one chunk that may become holes
LONGEST = 16 * 1024  # characters of a template outside of its holes
LARGEST = 64 * 1024  # ... of a frame that becomes one: a pattern keeps a hundred bytes for each escape in a string
STEADY = 2  # templates learned in vain after which steady tokens become holes too
PATIENCE = 8  # ... and after which only every eighth frame is one
NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]{0,4000})(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")  # longer ones may be no JSON
# of a text that is JSON: a string, key or number
TOKEN = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"([ \t]*:)?|-?[0-9][0-9.eE+-]*')
STEADY_NAMES = {"role", "type", "format", "id", "name"}  # inside of choices

Edit = tuple[int, int, str]  # start, end, what stands there instead
Cut = tuple[int, int, int, int, bytes]  # an edit whose ends are so many bytes behind the end of the hole of that number
# a token of a chunk, of a string what is in it; whether it is a number; whether it seldom differs
Hole = tuple[int, int, bool, bool]
Pair = tuple[str, int, int, int]  # a member as ``json.pairs`` gives it


class Templates:
    """The templates of one stream, the one that was of use last in front."""

    __slots__ = ("_known", "_learned", "off")

    def __init__(self) -> None:
        self._known: list[_Template] = []
        self._learned = 0  # since one was last of use
        self.off = False

    def find(self, piece: bytes, at: int) -> tuple[int, bytes | None]:
        """Where the frame at ``at`` ends, and what takes its place if it changes; 0 if no template knows it."""
        for template in self._known:
            ends = template.match(piece, at)
            if ends is not None:
                if template is not self._known[0]:
                    self._known.remove(template)
                    self._known.insert(0, template)
                self._learned = 0
                return ends[-1], template.written(piece, ends) if template.cuts else None
        return 0, None

    def learn(self, frame: str, data: int, members: list[Pair], edits: list[Edit]) -> None:
        """Remembers a frame: where its data begins, the members of the only chunk there, its edits in ascending order."""
        self._learned += 1
        if self.off or len(frame) > LARGEST or (self._learned > PATIENCE and self._learned % 8):
            return
        steady = self._learned > STEADY
        holes, most = [], len(frame) - LONGEST
        for hole in holes_of(frame, data, members):
            if steady or not hole[3]:
                holes.append(hole)
                most -= hole[1] - hole[0]
        if len(holes) <= HOLES and most <= 0:
            self._known = [_Template(frame, holes, edits), *self._known[: TEMPLATES - 1]]


class _Template:
    __slots__ = ("cuts", "last", "parts")

    def __init__(self, frame: str, holes: list[Hole], edits: list[Edit]) -> None:
        self.parts: list[tuple[bytes, int, Callable[[bytes, int], re.Match[bytes] | None]]] = []
        ends = [0]
        for start, end, number, _ in holes:
            literal = _bytes(frame[ends[-1] : start])
            self.parts.append((literal, len(literal), (NUMBER if number else STRING).match))
            ends.append(end)
        self.last = _bytes(frame[ends[-1] :])

        def spot(at: int) -> tuple[int, int]:
            hole = bisect_right(ends, at) - 1
            return hole, len(_bytes(frame[ends[hole] : at]))

        self.cuts: list[Cut] = [(*spot(start), *spot(end), _bytes(new)) for start, end, new in edits]

    def match(self, piece: bytes, at: int) -> list[int] | None:
        """Where the frame at ``at`` begins, where each of its holes ends, and where it ends, if it is one of these."""
        ends = [at]
        for literal, length, hole in self.parts:
            if not piece.startswith(literal, at):
                return None
            found = hole(piece, at + length)
            if found is None:
                return None
            at = found.end()
            ends.append(at)
        if not piece.startswith(self.last, at):
            return None
        ends.append(at + len(self.last))
        return ends

    def written(self, piece: bytes, ends: list[int]) -> bytes:
        """The frame that was just matched, with its edits."""
        parts: list[bytes] = []
        at = ends[0]
        for hole, offset, end_hole, end_offset, new in self.cuts:
            parts += (piece[at : ends[hole] + offset], new)
            at = ends[end_hole] + end_offset
        parts.append(piece[at : ends[-1]])
        return b"".join(parts)


def holes_of(text: str, shift: int, members: list[Pair]) -> list[Hole]:
    """The tokens of a chunk whose content never matters for its edits, the first few of them."""
    holes: list[Hole] = []
    for name, _, at, end in members:
        at, end = at + shift, end + shift
        if name == "choices" or name == "usage":
            seldom, key = name == "choices", ""
            for token in TOKEN.finditer(text, at, end):
                if len(holes) > HOLES:
                    return holes
                value, colon = token.groups()
                if colon:
                    key = value
                elif value is None:
                    holes.append((*token.span(), True, seldom))
                else:
                    holes.append((*token.span(1), False, seldom and key in STEADY_NAMES))
        elif name != "error" and name != "object":  # these decide whether a chunk brings nothing but usage
            if text[at] == '"':
                holes.append((at + 1, end - 1, False, name != "obfuscation" and name != "p"))
            elif text[at] in "-0123456789" and text[end - 1] != "y":
                holes.append((at, end, True, True))
    return holes


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
