"""The members of a message that have rules of their own: content, refusal, reasoning details, audio.

Each slot has ``put(value, place, chunk, ledger)`` → the ``Seen`` flags of what it kept, and ``build()``.
"""

from __future__ import annotations

import binascii
import re
from typing import Any

from .._types import Seen
from .chunk import Chunk, Place
from .json import clean
from .ledger import Ledger
from .text import Text, cleaned
from .tree import LAST, OVERLAY, Joined, Leaf, Members, Policy, valid_index

CONTENT, REASONING, REFUSAL, AUDIO = (flag.value for flag in (Seen.CONTENT, Seen.REASONING, Seen.REFUSAL, Seen.AUDIO))
TEXT_PART = OVERLAY._replace(always=frozenset({"text"}))
THINKING_PART = OVERLAY._replace(always=frozenset({"thinking"}))
DETAIL = Policy(True, LAST | {"signature"}, frozenset({"text", "summary", "data"}))
DETAIL_FIRST = frozenset({"type", "id", "format"})
SOUND = Policy(True, LAST, frozenset({"data", "transcript"}))
SEGMENT = re.compile(r"[^=]*=+|[^=]+")
BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")


class First:
    """A string of which the first that is not empty stays; null and empty count as long as nothing better came."""

    __slots__ = ("nbytes", "value")
    last = False

    def __init__(self) -> None:
        self.value: str | None = None
        self.nbytes = 0

    def put(self, value: Any, place: Place, chunk: Chunk, ledger: Ledger) -> None:
        if value is not None and not isinstance(value, str):
            ledger.note("ignored-value")
            return
        if self.nbytes and (not value and (value is None or self.value is not None) or self.value and not self.last):
            return
        nbytes = len(place[1].encode()) + chunk.size(value, place)
        if not ledger.room(nbytes - self.nbytes):
            return
        self.nbytes = nbytes
        self.value = cleaned(value, ledger)

    def build(self) -> str | None:
        return self.value


class Last(First):
    """A string of which the last that is not empty stays."""

    __slots__ = ()
    last = True


class Content:
    """``content``: a string, a list of parts, or null."""

    __slots__ = ("parts", "text")

    def __init__(self) -> None:
        self.text: Text | None = None
        self.parts: Parts | None = None

    def put(self, value: Any, place: Place, chunk: Chunk, ledger: Ledger) -> int:
        if value is None or value == []:
            return 0
        if isinstance(value, str):
            if self.parts is not None:
                return self.parts.add_text(value, place, chunk, ledger)
            text = Text() if self.text is None else self.text
            if not text.add(value, ledger):
                return 0
            self.text = text
            return CONTENT if value else 0
        if not isinstance(value, (list, dict)):
            ledger.note("ignored-value")
            return 0
        if self.parts is None:
            self.parts = Parts()
            if self.text:
                self.parts.open_text().text = self.text
        if isinstance(value, dict):
            return self.parts.add_part(value, place, chunk, ledger)
        return self.parts.add(value, place, chunk, ledger)

    def texts(self) -> list[Text]:
        if self.parts is not None:
            return self.parts.texts("text")
        return [] if self.text is None else [self.text]

    def build(self) -> Any:
        if self.parts is not None:
            return self.parts.build() or ""
        return None if self.text is None else self.text.build()


class Parts:
    """Content parts. Neighbours that are both ``text`` or both ``thinking`` become one; others never merge."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[Part] = []

    def add(self, values: list[Any], place: Place, chunk: Chunk, ledger: Ledger) -> int:
        seen = 0
        for i, value in enumerate(values):
            if ledger.over:
                break
            if isinstance(value, str):
                seen |= self.add_text(value, (place, i), chunk, ledger)
            elif isinstance(value, dict):
                seen |= self.add_part(value, (place, i), chunk, ledger)
            elif value is not None:
                ledger.note("ignored-value")
        return seen

    def add_text(self, fragment: str, place: Place, chunk: Chunk, ledger: Ledger) -> int:
        """A string among parts is text."""
        if not fragment:
            return 0
        last = self._last("text")
        if last is None:
            kept = self.open_text().add(fragment, ledger)
        else:
            kept = last.members.put("text", fragment, place, chunk, ledger)
        return CONTENT if kept else 0

    def open_text(self) -> Joined:
        """A text part that no chunk spelled out."""
        part = Part("text")
        self.parts.append(part)
        part.members.slots["type"] = Leaf("text", 0)
        joined = part.members.slots["text"] = Joined(always=True)
        return joined

    def add_part(self, value: dict[str, Any], place: Place, chunk: Chunk, ledger: Ledger) -> int:
        kind = value["type"] if isinstance(value.get("type"), str) else ""
        last = self._last(kind)
        if last is None or kind not in ("text", "thinking"):
            if not ledger.room(2):
                return 0
            last = Part(kind)
            self.parts.append(last)
        return last.merge(value, place, chunk, ledger)

    def _last(self, kind: str) -> Part | None:
        """The last part, if it is of this kind."""
        return self.parts[-1] if self.parts and self.parts[-1].kind == kind else None

    def build(self) -> list[Any]:
        return [part.members.build() for part in self.parts if not part.empty]

    def size(self) -> int:
        return sum(part.members.size() for part in self.parts)

    def texts(self, kind: str) -> list[Text]:
        """The texts of all parts of one kind, those inside a ``thinking`` part too."""
        found: list[Text] = []
        for part in self.parts:
            own = part.members.slots.get(kind) if part.kind == kind else None
            if isinstance(own, Joined):
                found.append(own.text)
            elif isinstance(own, Parts):
                found += own.texts("text")
        return found


class Part:
    """One content part. The member named like its kind is its own: text that joins, or inner parts."""

    __slots__ = ("kind", "members")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.members = Members({"text": TEXT_PART, "thinking": THINKING_PART}.get(kind, OVERLAY))

    def merge(self, value: dict[str, Any], place: Place, chunk: Chunk, ledger: Ledger) -> int:
        seen = 0
        for name, member in value.items():
            at = (place, name)
            if name == self.kind == "thinking" and self._takes_parts(member, ledger):
                inner = self.members.slots["thinking"]
                members = member if isinstance(member, list) else [member]
                seen |= REASONING if inner.add(members, at, chunk, ledger) else 0
            elif self.members.put(name, member, at, chunk, ledger):
                if self.kind == "thinking":
                    seen |= REASONING if name == "thinking" else 0
                elif name == "text" or self.kind != "text":
                    seen |= CONTENT
        return seen

    def _takes_parts(self, member: Any, ledger: Ledger) -> bool:
        slots = self.members.slots
        held = slots.get("thinking")
        if isinstance(member, list) and member and not isinstance(held, Parts):
            if ledger.room(len("thinking") if held is None else 0 if isinstance(held, Joined) else -held.size()):
                parts = slots["thinking"] = Parts()
                if isinstance(held, Joined) and held.text:
                    parts.open_text().text = held.text
        return isinstance(slots.get("thinking"), Parts) and isinstance(member, (list, str))

    @property
    def empty(self) -> bool:
        """It holds nothing but empty text."""
        if self.kind not in ("text", "thinking") or not self.members.slots.keys() <= {"type", self.kind}:
            return False
        own = self.members.slots.get(self.kind)
        if isinstance(own, Parts):
            return all(part.empty for part in own.parts)
        return own is None or not own.build()


class Refusal:
    """``refusal``: joined text, or null."""

    __slots__ = ("text",)

    def __init__(self) -> None:
        self.text: Text | None = None

    def put(self, value: Any, place: Place, chunk: Chunk, ledger: Ledger) -> int:
        if value is None:
            return 0
        if not isinstance(value, str):
            ledger.note("ignored-value")
            return 0
        text = Text() if self.text is None else self.text
        if not text.add(value, ledger):
            return 0
        self.text = text
        return REFUSAL if value else 0

    def texts(self) -> list[Text]:
        return [] if self.text is None else [self.text]

    def build(self) -> str | None:
        return None if self.text is None else self.text.build()


class Details:
    """``reasoning_details``: by (type, index), else joined to the previous entry of the same type and id until that is signed.

    Where one of the two has no type the index alone decides.
    """

    __slots__ = ("_indexed", "_latest", "_others", "listed")

    def __init__(self) -> None:
        self._indexed: dict[tuple[str, int], Members] = {}
        self._latest: dict[int, Members] = {}  # by index alone
        self._others: list[Members] = []
        self.listed = False

    def put(self, value: Any, place: Place, chunk: Chunk, ledger: Ledger) -> int:
        if value is None:
            return 0
        if not isinstance(value, list):
            ledger.note("ignored-value")
            return 0
        self.listed = True
        seen = 0
        for i, entry in enumerate(value):
            if ledger.over:
                break
            if isinstance(entry, dict):
                detail = self._find(entry, ledger)
                if detail is not None:
                    seen |= self._merge(detail, entry, (place, i), chunk, ledger)
            elif entry is not None:
                ledger.note("ignored-value")
        return seen

    def _find(self, entry: dict[str, Any], ledger: Ledger) -> Members | None:
        kind = string_at(entry, "type")
        index = valid_index(entry.get("index"))
        if index is not None:
            found = self._by_index(kind, index)
            if found is None and ("", index) in self._indexed:
                found = self._indexed[kind, index] = self._indexed.pop(("", index))
        else:
            found = self._others[-1] if self._others else None
            if found is not None and (
                text_of(found, "type") != kind
                or text_of(found, "id") != string_at(entry, "id")
                or text_of(found, "signature")
            ):
                found = None
        if found is None and ledger.room(2):
            found = Members(DETAIL)
            if index is not None:
                self._indexed[kind, index] = self._latest[index] = found
            else:
                self._others.append(found)
        return found

    def _by_index(self, kind: str, index: int) -> Members | None:
        return self._indexed.get((kind, index)) if kind else self._latest.get(index)

    def settled(self, entry: dict[str, Any]) -> Members | None:
        """The entry that an entry of a chunk belongs to, if finding it changes nothing."""
        kind = entry.get("type") if isinstance(entry.get("type"), str) else ""
        index = valid_index(entry.get("index"))
        if index is not None:
            return self._by_index(str(kind), index)
        id = entry.get("id") if isinstance(entry.get("id"), str) else ""
        last = self._others[-1] if self._others else None
        if last is None or text_of(last, "signature"):
            return None
        return last if text_of(last, "type") == kind and text_of(last, "id") == id else None

    def _merge(self, detail: Members, entry: dict[str, Any], place: Place, chunk: Chunk, ledger: Ledger) -> int:
        seen = 0
        for name, member in entry.items():
            if name in DETAIL_FIRST and isinstance(member, str) and text_of(detail, name):
                continue
            if detail.put(name, member, (place, name), chunk, ledger) and name in DETAIL.always:
                seen = REASONING
        return seen

    def texts(self) -> list[Text]:
        slots = (d.slots.get(name) for d in self._sorted() for name in ("text", "summary"))
        return [slot.text for slot in slots if isinstance(slot, Joined)]

    def build(self) -> Any:
        return [detail.build() for detail in self._sorted()] if self.listed else None

    def _sorted(self) -> list[Members]:
        indexed = sorted(self._indexed.items(), key=lambda item: item[0][1])
        return [detail for _, detail in indexed] + self._others


class Audio:
    """``audio``: id first, data and transcript joined, the rest last."""

    __slots__ = ("members",)

    def __init__(self) -> None:
        self.members: Members | None = None

    def put(self, value: Any, place: Place, chunk: Chunk, ledger: Ledger) -> int:
        if value is None:
            return 0
        if not isinstance(value, dict):
            ledger.note("ignored-value")
            return 0
        if self.members is None:
            self.members = Members(SOUND)
        seen = 0
        for name, member in value.items():
            if name == "id" and isinstance(member, str) and text_of(self.members, "id"):
                continue
            held = self.members.slots.get("data")
            padded = name == "data" and isinstance(held, Joined) and held.text.endswith(b"=")
            if self.members.put(name, member, (place, name), chunk, ledger):
                seen = AUDIO
                if name == "data" and isinstance(member, str):
                    if padded and member[0] != "=" or "=" in member.rstrip("="):
                        ledger.note("recoded-audio")
        return seen

    def build(self) -> Any:
        if self.members is None:
            return None
        audio = self.members.build()
        if isinstance(audio.get("data"), str):
            audio["data"] = recoded(audio["data"])
        return audio


def recoded(data: str) -> str:
    """Base64 of all segments together, where padding stood inside; ``data`` itself when a segment does not decode."""
    if "=" not in data.rstrip("="):
        return data
    decoded = []
    for segment in SEGMENT.findall(data):
        if len(segment) % 4 or not BASE64.fullmatch(segment):
            return data
        decoded.append(binascii.a2b_base64(segment))
    return binascii.b2a_base64(b"".join(decoded), newline=False).decode("ascii")


def string_at(entry: dict[str, Any], name: str) -> str:
    """A string as it would be held; ``""`` for anything else."""
    value = entry.get(name)
    return clean(value)[0] if isinstance(value, str) else ""


def text_of(members: Members, name: str) -> str:
    """The string that a member holds, else ``""``."""
    slot = members.slots.get(name)
    value = slot.build() if slot is not None else ""
    return value if isinstance(value, str) else ""
