"""The fast path: chunks that equal an earlier one but for their text.

A shape is such a chunk as literal bytes with *holes* between them, each of which belongs to a text. To match is to
compare the literals and to find where each hole's string ends; to merge is to append. Nothing is parsed.

A match may stand for a merge because equal bytes parse equally, so that only the holes differ, and because ``_Quiet`` has
found, before the ordinary path merged the chunk, that merging its other members once more changes nothing and sets no flag.
That stays true as long as nothing but text is appended: every other merge moves ``version`` on, and a shape counts only
in the version in which it was judged. What ``_Quiet`` does not know is not quiet. Half a surrogate pair, ill-formed UTF-8, an
error, a finish reason, usage, lists that extend and content in parts all take the ordinary path.

The whole file may be deleted without changing a result.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from json import loads
from typing import TYPE_CHECKING, Any

from .._types import Seen
from .calls import Arguments, Calls
from .chunk import Chunk, Place
from .ledger import Ledger
from .merge import NO_REASON, REASONING, says
from .message import DETAIL, Audio, Content, Details, First, Refusal
from .text import Text
from .tree import Joined, Leaf, Members, is_null, valid_index

if TYPE_CHECKING:
    from .merge import Choice, Completion
    from .sse import Machine

BEFORE, BEHIND = b"data: ", b"\n\n"
SHAPES = 4
LONGEST = 2048  # characters of the literals of one shape
PATIENCE = 4  # chunks in a row that were not quiet after which only every eighth is looked at
HALF = re.compile(r"\\u[dD][89a-fA-F]")
RAW_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
CONTROL = re.compile("[\x00-\x1f]")
# up to the quote that ends it, but for one with more escapes: a pattern keeps a hundred bytes for each repetition
STRING = re.compile(rb'[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*){0,1000}')

Target = tuple[Text, "Arguments | None", int]  # where a hole's text goes, and the flag it sets


class Shapes:
    """The shapes of one stream."""

    __slots__ = ("_completion", "_loud", "_shapes", "merged", "off", "version")

    def __init__(self, completion: Completion) -> None:
        self._completion = completion
        self._shapes: list[_Shape] = []
        self._loud = 0
        self.version = 0
        self.merged = 0  # chunks
        self.off = False

    def merge_events(self, piece: bytes, start: int, machine: Machine) -> int:
        """Merges the events from ``start`` on as long as shapes know them; the bytes of these."""
        ledger, version, shapes = self._completion.ledger, self.version, self._shapes
        most = ledger.limits.max_event_bytes - 1 - len(machine.id) + len(BEFORE) + len(BEHIND)
        at, events, end, size = start, 0, 0, len(piece)
        while at < size:
            for shape in shapes:
                if shape.version == version:
                    end = shape.merge(piece, at, ledger, True, most)
                    if end:
                        break
            else:
                break
            at = end
            events += 1
        if events:
            machine.took(at - start, events)
            self.merged += events
        return at - start

    def merge_data(self, data: bytes) -> bool:
        """Whether a shape knows the event's data; then it is merged."""
        framed = BEFORE + data
        ledger = self._completion.ledger
        known = any(
            shape.version == self.version and shape.merge(framed, 0, ledger, False, len(framed))
            for shape in self._shapes
        )
        self.merged += known
        return known

    def judge(self, chunk: Chunk) -> list[tuple[Place, Target | None]] | None:
        """The holes of a chunk if to merge it, or to merge it once more, would only append to texts."""
        if self.off or chunk.place is not None or (self._loud >= PATIENCE and self._loud % 8):
            return None
        if "\n" in chunk.text or "\r" in chunk.text or HALF.search(chunk.text):
            return None
        quiet = _Quiet(chunk)
        return quiet.holes if quiet.check(self._completion) else None

    def forget(self) -> None:
        """The ordinary path has merged a chunk that was not quiet: what was judged so far counts no more."""
        self.version += 1

    def learn(self, chunk: Chunk, holes: list[tuple[Place, Target | None]] | None) -> None:
        """After the ordinary path has merged a chunk."""
        if holes is None:
            self._loud += 1
            return
        self._loud = 0
        literals, targets, at = [], [], 0
        for (start, end), target in sorted(
            ((chunk.span(place), target) for place, target in holes), key=lambda h: h[0]
        ):
            literals.append(chunk.text[at : start + 1].encode())
            targets.append(target)
            at = end - 1
        literals.append(chunk.text[at:].encode() + BEHIND)
        literals[0] = BEFORE + literals[0]
        if sum(map(len, literals)) <= LONGEST:
            shape = _Shape(self.version, literals, targets)
            others = [s for s in self._shapes if s.literals != literals]
            self._shapes = [shape, *others[: SHAPES - 1]]

    def clear(self, off: bool) -> None:
        """Forgets all shapes; ``off``: for good."""
        self._shapes, self.off = [], off


class _Shape:
    __slots__ = ("arguments", "holes", "last", "version")

    def __init__(self, version: int, literals: list[bytes], targets: list[Target | None]) -> None:
        self.version = version
        self.holes = tuple(zip(literals, targets))
        self.last = literals[-1]
        self.arguments = tuple(target[1] for target in targets if target is not None and target[1] is not None)

    @property
    def literals(self) -> list[bytes]:
        return [*(literal for literal, _ in self.holes), self.last]

    def merge(self, piece: bytes, at: int, ledger: Ledger, framed: bool, most: int) -> int:
        """Where the event at ``at``, of at ``most`` so many bytes, ends if it has this shape; then it is merged. Else 0.

        What is not ``framed`` has no blank line and ends with the piece.
        """
        start = at
        found: list[tuple[Target, str, bytes]] = []
        for literal, target in self.holes:
            if not piece.startswith(literal, at):
                return 0
            at += len(literal)
            end = piece.find(b'"', at)
            raw = piece[at:end]
            escaped = b"\\" in raw
            if escaped:  # the quote may be a part of the string
                match = STRING.match(piece, at)
                end = match.end() if match is not None else 0
                raw = piece[at:end]
                if piece[end : end + 1] != b'"' or RAW_HALF.search(raw):
                    return 0
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                return 0
            if escaped:
                text = loads(f'"{text}"')
                raw = text.encode()
            elif end < 0 or not (text.isprintable() or CONTROL.search(text) is None):
                return 0
            if text and target is not None:
                found.append((target, text, raw))
            at = end
        if framed:
            if not piece.startswith(self.last, at):
                return 0
            at += len(self.last)
        else:
            if piece[at:] != self.last[: -len(BEHIND)]:
                return 0
            at = len(piece)
        if ledger.over or at - start > most or (self.arguments and any(a.bare for a in self.arguments)):
            return 0
        size = 0
        for hole in found:
            size += len(hole[2])
        if ledger.retained + size > ledger.limits.max_retained_bytes:
            return 0
        ledger.chunk += 1
        for (joined, arguments, seen), text, utf8 in found:
            ledger.seen |= seen
            joined.append(utf8, len(text), ledger)
            if arguments is not None:
                arguments.follow(text)
        return at


class _Quiet:
    """Whether merging a chunk appends to texts and changes nothing else, and to which."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.holes: list[tuple[Place, Target | None]] = []

    def check(self, completion: Completion) -> bool:
        return all(self._top(name, value, completion) for name, value in self.chunk.value.items())

    def _hole(self, place: Place, text: Text, seen: Seen, arguments: Arguments | None = None) -> bool:
        self.holes.append((place, (text, arguments, seen.value)))
        return not text.half

    def _padding(self, value: Any, place: Place) -> bool:
        if isinstance(value, str):
            self.holes.append((place, None))
        return True

    def _top(self, name: str, value: Any, completion: Completion) -> bool:
        place = (None, name)
        if name == "object":
            return bool(value != "error")
        if name == "error":
            return not value
        if name == "obfuscation" or name == "p":
            return self._padding(value, place)
        if name == "created":
            return bool(completion.created.value) and (value is None or type(value) is int)
        if name == "usage":
            return value is None and (completion.usage.members is not None or completion.usage.null)
        if name == "choices":
            return value is None or (
                isinstance(value, list) and all(self._entry(e, i, completion, place) for i, e in enumerate(value))
            )
        if name in ("id", "model", "system_fingerprint", "service_tier"):
            held = getattr(completion, name)
            return held is not None and self._chosen(held, value, place)
        return name != "x_groq" and self._settled(completion.others, name, value, place)

    def _chosen(self, held: First, value: Any, place: Place) -> bool:
        """A value that ``held`` would not take, or takes without a change."""
        if value is None or value == "":
            return value is None or held.value is not None
        if held.value != value:
            return False
        return not held.last or held.nbytes == len(place[1].encode()) + self.chunk.size(value, place)

    def _entry(self, entry: Any, position: int, completion: Completion, parent: Place) -> bool:
        if not isinstance(entry, dict):
            return False
        index = 0 if completion.fold else valid_index(entry.get("index"))
        choice = None if index is None else completion.choices.get(index)
        if choice is None:
            return False
        place = (parent, position)
        return all(self._member(choice, name, value, (place, name)) for name, value in entry.items())

    def _member(self, choice: Choice, name: str, value: Any, place: Place) -> bool:
        if name == "index":
            return True
        if name == "finish_reason":
            return value is None or value in NO_REASON
        if name == "error":
            return not value
        if name == "message":
            return value is None
        if name == "logprobs":
            return value is None and choice.logprobs is not None
        if name == "delta":
            return value is None or (isinstance(value, dict) and choice.had_delta and self._delta(choice, value, place))
        if name == "text" and isinstance(value, str):
            held = None if choice.others is None else choice.others.slots.get("text")
            return isinstance(held, Joined) and self._hole(place, held.text, Seen(0))
        return name not in ("usage", "token_ids") and self._settled(choice.others, name, value, place)

    def _delta(self, choice: Choice, delta: dict[str, Any], parent: Place) -> bool:
        return all(self._in_delta(choice, name, value, (parent, name)) for name, value in delta.items())

    def _in_delta(self, choice: Choice, name: str, value: Any, place: Place) -> bool:
        if says(value) and not choice.brought(name):
            return False
        if name == "role":
            role = choice.role
            return bool(role.value) if isinstance(value, str) else value is None and role.nbytes > 0
        if name == "obfuscation":
            return choice.brought(name) and self._padding(value, place)
        held = choice.message.slots.get(name)
        if held is None or value is None:
            return held is not None
        if not choice.brought(name):
            return (name != "content" or choice.delta_text or not isinstance(value, str)) and empty_settled(held, value)
        if isinstance(value, str):
            if isinstance(held, Content):
                return held.parts is None and held.text is not None and self._hole(place, held.text, Seen.CONTENT)
            if isinstance(held, Refusal):
                return held.text is not None and self._hole(place, held.text, Seen.REFUSAL)
            if isinstance(held, Joined):
                return name in REASONING and self._hole(place, held.text, Seen.REASONING)
        elif isinstance(held, Calls) and isinstance(value, list):
            return all(self._fragment(held, f, (place, i)) for i, f in enumerate(value))
        elif isinstance(held, Details) and isinstance(value, list):
            return all(self._detail(held, e, (place, i)) for i, e in enumerate(value))
        elif isinstance(held, Audio) and isinstance(value, dict) and held.members is not None:
            return self._own(held.members, value, place, ("transcript",), Seen.AUDIO, value.keys() - {"id"})
        return not (name in REASONING and says(value)) and self._slot_settled(held, value, place)

    def _fragment(self, calls: Calls, fragment: Any, place: Place) -> bool:
        call = calls.settled(fragment) if isinstance(fragment, dict) else None
        if call is None:
            return False
        for key, value in fragment.items():
            at = (place, key)
            if key == "id" or key == "index" or value is None:
                continue
            if key == "type":
                if not isinstance(value, str) or (value and not call.type):
                    return False
            elif key == "function" and isinstance(value, dict):
                function = call.functions.get(key)
                if function is None:
                    return False
                for inner, member in value.items():
                    if inner == "name":
                        if member and member != function.name:
                            return False
                    elif inner == "arguments":
                        given = function.arguments
                        if member is not None and not (
                            isinstance(member, str) and self._hole((at, inner), given.text, Seen.TOOL_CALL, given)
                        ):
                            return False
                    elif says(member) or not self._settled(function.others, inner, member, (at, inner)):
                        return False
            elif key in ("custom", "function") or says(value) or not self._settled(call.others, key, value, at):
                return False
        return True

    def _detail(self, details: Details, entry: Any, place: Place) -> bool:
        detail = details.settled(entry) if isinstance(entry, dict) else None
        if detail is None:
            return False
        firsts = ("type", "id", "format")
        rest = {k: v for k, v in entry.items() if not (k in firsts and isinstance(v, str) and says_text(detail, k))}
        return self._own(detail, rest, place, DETAIL.always, Seen.REASONING, DETAIL.always)

    def _own(
        self,
        members: Members,
        value: dict[str, Any],
        place: Place,
        own: Collection[str],
        seen: Seen,
        telling: Collection[str],
    ) -> bool:
        """Members of which the ``own`` ones are text. The ``telling`` ones set the flag whenever they come."""
        for name, member in value.items():
            held = members.slots.get(name)
            if name in own and isinstance(member, str) and isinstance(held, Joined):
                if not self._hole((place, name), held.text, seen):
                    return False
            elif (name in telling and says(member)) or not self._settled(members, name, member, (place, name)):
                return False
        return True

    def _settled(self, members: Members | None, name: str, value: Any, place: Place) -> bool:
        """Putting ``value`` under ``name`` changes nothing."""
        held = None if members is None else members.slots.get(name)
        return held is not None and self._slot_settled(held, value, place)

    def _slot_settled(self, held: Any, value: Any, place: Place) -> bool:
        if value is None:
            return True
        if value == "" or value == [] or value == {}:
            return empty_settled(held, value)
        if isinstance(held, Members):
            return isinstance(value, dict) and all(
                self._settled(held, name, member, (place, name)) for name, member in value.items()
            )
        if not isinstance(held, Leaf) or isinstance(value, (list, dict)):
            return False
        return type(held.value) is type(value) and held.value == value and held.nbytes == self.chunk.size(value, place)


def empty_settled(held: Any, value: Any) -> bool:
    """Putting an empty string, list or object where ``held`` is changes nothing."""
    if isinstance(held, Content):
        return value == [] or (value == "" and (held.text is not None or held.parts is not None))
    if isinstance(held, Refusal):
        return value == "" and held.text is not None
    if isinstance(held, Calls):
        return bool(value == [])
    return isinstance(held, (Leaf, Joined, Members)) and not is_null(held)


def says_text(members: Members, name: str) -> bool:
    """A member holds a string that is not empty."""
    held = members.slots.get(name)
    return isinstance(held, Leaf) and isinstance(held.value, str) and held.value != ""
