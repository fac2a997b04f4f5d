"""Usage: leaf by leaf the last value that is not null; never summed, recomputed or estimated.

Three places can report it: the chunk (``usage``), a choice, and ``x_groq``. Each has a ``Usage``; which one is the
answer is decided when somebody reads.
"""

from __future__ import annotations

from typing import Any

from .chunk import Chunk, Place
from .ledger import Ledger
from .tree import OVERLAY, Leaf, Members

DETAILS = {
    "prompt_tokens_details": ("cached_tokens", "cache_write_tokens", "audio_tokens", "image_tokens", "text_tokens"),
    "completion_tokens_details": (
        "reasoning_tokens",
        "audio_tokens",
        "text_tokens",
        "accepted_prediction_tokens",
        "rejected_prediction_tokens",
    ),
}
COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
LONGEST_COUNT = 64  # bytes of a number that is still followed past max_retained_bytes


class Usage:
    """What one place reported. ``booked``: its bytes count as retained (a choice's usage is booked with the choice)."""

    __slots__ = ("booked", "members", "null")

    def __init__(self, booked: bool) -> None:
        self.booked = booked
        self.members: Members | None = None
        self.null = False

    def put(self, value: Any, place: Place, chunk: Chunk, ledger: Ledger) -> bool:
        """True when a number or another member came."""
        if value is None:
            if self.members is None and not self.null:
                self.null = not self.booked or ledger.room(len("usage") + 4)
            return False
        if not isinstance(value, dict):
            ledger.note("ignored-value")
            return False
        if ledger.over:
            return self.follow(value)
        if self.members is None:
            if self.booked and not ledger.room(len("usage") + 2 - (len("usage") + 4) * self.null):
                return False
            self.members = Members(OVERLAY)
        book = ledger if self.booked else Ledger(ledger.limits)
        numbers, counts = census(value)
        protected = self._overlay(self.members, value, place, chunk, book, numbers > 0 and counts == 0)
        if protected:
            ledger.note("zero-usage")
        return says(value)

    def _overlay(
        self, members: Members, value: dict[str, Any], place: Place, chunk: Chunk, ledger: Ledger, zeros: bool
    ) -> bool:
        """All of ``value``; where it is all ``zeros``, without the leaves that are counts already."""
        protected = False
        for name, member in value.items():
            held = members.slots.get(name)
            at = (place, name)
            if isinstance(held, Members) and isinstance(member, dict):
                protected |= self._overlay(held, member, at, chunk, ledger, zeros)
            elif zeros and (is_number(member) or isinstance(member, dict) and member) and counted(held):
                protected = True
            else:
                members.put(name, member, at, chunk, ledger)
        return protected

    def follow(self, value: dict[str, Any]) -> bool:
        """Past a limit: the numbers of OpenAI's own members, and nothing else."""
        kept = False
        numbers, counts = census(value)
        zeros = numbers > 0 and counts == 0
        for name in (*COUNTS, *DETAILS):
            member = value.get(name)
            if name in DETAILS:
                if isinstance(member, dict):
                    for inner in DETAILS[name]:
                        kept |= self._follow_number(name, inner, member.get(inner), zeros)
            else:
                kept |= self._follow_number(None, name, member, zeros)
        return kept

    def _follow_number(self, parent: str | None, name: str, member: Any, zeros: bool) -> bool:
        if not is_number(member) or (isinstance(member, int) and abs(member) >= 10**LONGEST_COUNT):
            return False
        if self.members is None:
            self.members = Members(OVERLAY)
        members = self.members
        if parent is not None:
            held = members.slots.get(parent)
            if not isinstance(held, Members):
                held = members.slots[parent] = Members(OVERLAY)
            members = held
        held = members.slots.get(name)
        if not (zeros and isinstance(held, Leaf) and is_count(held.value)):
            members.slots[name] = Leaf(member, 0)
        return True

    @property
    def counts(self) -> bool:
        """A number other than zero came."""
        return counted(self.members)

    def build(self) -> dict[str, Any] | None:
        return None if self.members is None else self.members.build()


def counted(slot: Any) -> bool:
    """What one name holds is a count, or an object with one."""
    return is_count(slot.value) if isinstance(slot, Leaf) else isinstance(slot, Members) and census(slot.build())[1] > 0


def census(value: dict[str, Any]) -> tuple[int, int]:
    """How many numbers an object holds, at any depth of objects, and how many of them are not zero."""
    numbers = counts = 0
    for member in value.values():
        if is_number(member):
            numbers += 1
            counts += member != 0
        elif isinstance(member, dict):
            inner = census(member)
            numbers, counts = numbers + inner[0], counts + inner[1]
    return numbers, counts


def says(value: dict[str, Any]) -> bool:
    """A leaf is there that is not null."""
    return any(says(m) if isinstance(m, dict) else m is not None for m in value.values())


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    return is_number(value) and value != 0


def choose(top: Usage, choice: Usage, groq: Usage) -> tuple[dict[str, Any] | None, str]:
    """The usage of the stream and where it came from; a source of zeros only gives way to a lower one with counts."""
    sources = ((top, "reported"), (choice, "choice"), (groq, "x_groq"))
    for usage, name in sources:
        if usage.counts:
            return usage.build(), name
    for usage, name in sources:
        if usage.members is not None and usage.members.slots:
            return usage.build(), name
    return top.build(), "none"
