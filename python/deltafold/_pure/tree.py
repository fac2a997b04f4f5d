"""Members without a rule of their own.

Two kinds of objects grow here. ``Members`` of the top level, of a choice and of usage *overlay*: the last value that
says something stays, objects member by member, lists are replaced. Those of a delta or a tool call *join*: strings are
fragments unless they were the same every time, lists extend. Null, absent and empty never erase, in either.

A slot is what one name holds: it can ``build()`` its value and tell its ``size()`` in retained bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from . import json
from .chunk import Chunk, Place
from .ledger import Ledger
from .text import Text, cleaned

LARGEST_INDEX = 2**63 - 1


class Policy(NamedTuple):
    """How the members of an object grow. Objects within grow by ``inner``."""

    joins: bool
    last: frozenset[str] = frozenset()  # strings that never join
    always: frozenset[str] = frozenset()  # strings that join even if they are the same every time

    def fragments(self, name: str) -> bool:
        """Strings under ``name`` are fragments."""
        return name in self.always or (self.joins and name not in self.last)

    @property
    def inner(self) -> Policy:
        return DELTA if self.joins else OVERLAY


LAST = frozenset({"id", "type", "name", "channel", "format", "status"})
OVERLAY = Policy(joins=False)
DELTA = Policy(joins=True, last=LAST)


class Slot(Protocol):
    def build(self) -> Any: ...
    def size(self) -> int: ...


class Leaf:
    """A value kept whole; None for a member that was only ever null."""

    __slots__ = ("nbytes", "value")

    def __init__(self, value: Any, nbytes: int) -> None:
        self.value = value
        self.nbytes = nbytes

    def build(self) -> Any:
        return fresh(self.value)

    def size(self) -> int:
        return self.nbytes


class Joined:
    """A string in fragments; the same one every time is a constant, unless it ``always`` joins."""

    __slots__ = ("always", "first", "repeats", "text")

    def __init__(self, always: bool = False) -> None:
        self.always = always
        self.text = Text()
        self.first = ""
        self.repeats = 0

    def add(self, fragment: str, ledger: Ledger) -> bool:
        if self.always or not self.first:
            kept = self.text.add(fragment, ledger)
            if kept and not self.always:
                self.first = fragment
            return kept
        if self.repeats >= 0 and fragment == self.first:
            self.repeats += 1
            return not ledger.over
        if not fragment:
            return not ledger.over
        repeats = max(self.repeats, 0)
        if len(self.first) * repeats > ledger.limits.max_retained_bytes:
            return ledger.room(len(self.first) * repeats)  # no need to spell it out
        kept = self.text.add(self.first * repeats + fragment, ledger)
        if kept:
            self.repeats = -1  # no constant any more
        return kept

    def build(self) -> str:
        return self.text.build()

    def size(self) -> int:
        return self.text.nbytes


class Extend:
    """A list that extends; entries are kept whole."""

    __slots__ = ("nbytes", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.nbytes = 0

    def add(self, values: list[Any], place: Place, chunk: Chunk, ledger: Ledger) -> bool:
        """True when an entry was kept."""
        before = len(self.values)
        for i, value in enumerate(values):
            if not self.append(value, chunk.size(value, (place, i)), ledger):
                break
        return len(self.values) > before

    def append(self, value: Any, nbytes: int, ledger: Ledger) -> bool:
        if not ledger.room(nbytes):
            return False
        self.values.append(cleaned(value, ledger))
        self.nbytes += nbytes
        return True

    def build(self) -> list[Any]:
        return [fresh(v) for v in self.values]

    def size(self) -> int:
        return self.nbytes


class Entries:
    """A list of a delta: entries with an index merge by it, others extend, whole repeats of earlier chunks stay out."""

    __slots__ = ("_seen", "indexed", "others")

    def __init__(self) -> None:
        self.indexed: dict[int, Members] = {}
        self.others = Extend()
        self._seen: dict[Any, int] = {}  # fingerprint of an object → the chunk that brought it first

    def add(self, values: list[Any], place: Place, chunk: Chunk, ledger: Ledger) -> bool:
        kept = False
        for i, value in enumerate(values):
            if ledger.over:
                break
            at = (place, i)
            if not isinstance(value, dict):
                kept |= self.others.append(value, chunk.size(value, at), ledger)
                continue
            index = valid_index(value.get("index"))
            if index is not None:
                kept |= self._merge(index, value, at, chunk, ledger)
                continue
            fingerprint = json.fingerprint(value)
            if self._seen.get(fingerprint, ledger.chunk) == ledger.chunk:
                if self.others.append(value, chunk.size(value, at), ledger):
                    self._seen.setdefault(fingerprint, ledger.chunk)
                    kept = True
        return kept

    def _merge(self, index: int, value: dict[str, Any], at: Place, chunk: Chunk, ledger: Ledger) -> bool:
        entry = self.indexed.get(index)
        if entry is None:
            if not ledger.room(2):
                return False
            entry = self.indexed[index] = Members(DELTA)
        return entry.merge(value, at, chunk, ledger)

    def build(self) -> list[Any]:
        return [self.indexed[i].build() for i in sorted(self.indexed)] + self.others.build()

    def size(self) -> int:
        return sum(e.size() for e in self.indexed.values()) + self.others.nbytes


class Members:
    """An object that grows; names in order of first arrival."""

    __slots__ = ("policy", "slots")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.slots: dict[str, Any] = {}

    def merge(self, value: dict[str, Any], place: Place | None, chunk: Chunk, ledger: Ledger) -> bool:
        """Every member of ``value``; True when one of them said something."""
        kept = False
        for name, member in value.items():
            kept |= self.put(name, member, (place, name), chunk, ledger)
        return kept

    def put(self, name: str, value: Any, place: Place, chunk: Chunk, ledger: Ledger) -> bool:
        """One member; True when it was kept and is neither null nor empty."""
        held = self.slots.get(name)
        if held is None:
            return self._first(name, value, place, chunk, ledger)
        if value is None or (value == "" or value == {} or value == []) and not is_null(held):
            return False
        if isinstance(value, dict):
            if isinstance(held, Members):
                return held.merge(value, place, chunk, ledger)
            if not self._replace(name, held, Members(self.policy.inner), 2, ledger):
                return False
            self.slots[name].merge(value, place, chunk, ledger)
            return bool(value)
        if self.policy.joins and isinstance(value, list):
            if isinstance(held, Entries):
                return held.add(value, place, chunk, ledger)
            if not self._replace(name, held, Entries(), 0, ledger):
                return False
            self.slots[name].add(value, place, chunk, ledger)
            return bool(value)
        if isinstance(value, str) and self.policy.fragments(name):
            if isinstance(held, Joined):
                return held.add(value, ledger) and value != ""
            return self._to_string(name, held, value, ledger)
        nbytes = chunk.size(value, place)
        return self._replace(name, held, Leaf(value, nbytes), nbytes, ledger)

    def _first(self, name: str, value: Any, place: Place, chunk: Chunk, ledger: Ledger) -> bool:
        named = len(name.encode())
        if isinstance(value, dict):
            if not ledger.room(named + 2):
                return False
            members = self.slots[name] = Members(self.policy.inner)
            members.merge(value, place, chunk, ledger)
        elif self.policy.joins and isinstance(value, list):
            if not ledger.room(named):
                return False
            entries = self.slots[name] = Entries()
            entries.add(value, place, chunk, ledger)
        elif isinstance(value, str) and self.policy.fragments(name):
            if not ledger.room(named):
                return False
            joined = self.slots[name] = Joined(name in self.policy.always)
            return joined.add(value, ledger) and value != ""
        else:
            nbytes = chunk.size(value, place)
            if not ledger.room(named + nbytes):
                return False
            self.slots[name] = Leaf(cleaned(value, ledger), nbytes)
        return value is not None and value != "" and value != [] and value != {}

    def _replace(self, name: str, held: Any, slot: Any, nbytes: int, ledger: Ledger) -> bool:
        """Another value in the place of ``held``: booked as the difference."""
        if not ledger.room(nbytes - held.size()):
            return False
        if self.policy.joins and not is_null(held) and category(held) != category(slot):
            ledger.note("changed-type")
        forget(held, ledger)
        if isinstance(slot, Leaf):
            slot.value = cleaned(slot.value, ledger)
        self.slots[name] = slot
        return True

    def _to_string(self, name: str, held: Any, fragment: str, ledger: Ledger) -> bool:
        """A first string in the place of something else; ``held`` stays when it does not fit."""
        size, joined = held.size(), Joined(name in self.policy.always)
        if not ledger.room(-size):
            return False
        if not joined.add(fragment, ledger):
            ledger.retained += size
            return False
        return self._replace(name, held, joined, size, ledger) and fragment != ""

    def build(self) -> dict[str, Any]:
        return {name: slot.build() for name, slot in self.slots.items()}

    def size(self) -> int:
        nbytes: int = 2 + sum(len(name.encode()) + slot.size() for name, slot in self.slots.items())
        return nbytes


def valid_index(value: Any) -> int | None:
    """An index of a choice, a tool call or a list's entry: an integer from 0 to 2**63-1, else none."""
    return value if type(value) is int and 0 <= value <= LARGEST_INDEX else None


def is_null(slot: Any) -> bool:
    return isinstance(slot, Leaf) and slot.value is None


def category(slot: Any) -> str:
    if isinstance(slot, Joined):
        return "string"
    if isinstance(slot, Members):
        return "object"
    if isinstance(slot, Entries):
        return "array"
    return kind_of(slot.value)


def kind_of(value: Any) -> str:
    """The JSON type of a parsed value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def forget(slot: Any, ledger: Ledger) -> None:
    """Takes back the surrogate halves that wait in a slot that is about to go."""
    if isinstance(slot, Joined):
        ledger.halves -= bool(slot.text.half)
    elif isinstance(slot, Members):
        for inner in slot.slots.values():
            forget(inner, ledger)
    elif isinstance(slot, Entries):
        for entry in slot.indexed.values():
            forget(entry, ledger)


def fresh(value: Any) -> Any:
    """A copy that the caller may change."""
    if isinstance(value, list):
        return [fresh(v) for v in value]
    if isinstance(value, dict):
        return {k: fresh(v) for k, v in value.items()}
    return value
