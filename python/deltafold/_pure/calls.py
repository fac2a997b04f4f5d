"""Tool calls: which call a fragment belongs to, and what a call is made of.

Servers disagree on what identifies a call. ``Calls._find`` decides, in this order:

    known id                        that call
    known index                     that call, unless the fragment plainly opens another one
    no index                        a new id or another name opens a call, else the newest continues
    unseen index, no id, no name    the newest call continues
    otherwise                       a new call

A call past ``max_tool_calls`` is still followed, so that its fragments reach no other call, but nothing of it is kept.
"""

from __future__ import annotations

from typing import Any

from .._types import Seen
from .chunk import Chunk, Place
from .json import clean
from .ledger import Ledger
from .text import Text, cleaned
from .tree import DELTA, Members, valid_index


class Arguments:
    """The joined arguments (or input) of a call; knows whether they are a whole object."""

    __slots__ = ("_begun", "_braced", "_depth", "_escaped", "_in_string", "length", "text")

    def __init__(self) -> None:
        self.text = Text()
        self.length = 0  # characters so far, kept or not
        self._begun = False  # more than white space came
        self._braced = False
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def put(self, value: Any, place: Place, chunk: Chunk, ledger: Ledger, keep: bool) -> bool:
        """One fragment, or a whole value in the place of its JSON text; True when something came and was kept."""
        if value is None or value == "":
            return False
        if isinstance(value, str):
            fragment = value
        else:
            fragment = chunk.raw(place)
            if keep:
                ledger.note("object-arguments")
        if self.bare and fragment[0] == "{":
            if keep and not self._restart(fragment, ledger):
                return False
            self.length, self._begun, self._braced, self._depth = 0, False, False, 0
        elif keep and not self.text.add(fragment, ledger):
            return False
        self.follow(fragment)
        return keep

    @property
    def whole(self) -> bool:
        """An object whose braces are balanced outside strings."""
        return self._braced and self._depth == 0 and not self._in_string

    @property
    def bare(self) -> bool:
        """Nothing but ``{}``: perhaps a placeholder for arguments to come."""
        return self.length == 2 and self.whole

    def _restart(self, fragment: str, ledger: Ledger) -> bool:
        """The ``{}`` so far was a placeholder."""
        if not ledger.room(-2):
            return False
        text = Text()
        if not text.add(fragment, ledger):
            ledger.retained += 2
            return False
        ledger.note("placeholder-arguments")
        self.text = text
        return True

    def follow(self, fragment: str) -> None:
        """Follows the braces through text that was appended."""
        if not self._begun:
            start = fragment.lstrip(" \t\n\r")
            self._begun, self._braced = start != "", start[:1] == "{"
        self.length += len(fragment)
        if not self._braced:
            return
        at, end = 0, len(fragment)
        while at < end:
            c = fragment[at]
            if self._escaped:
                self._escaped = False
            elif self._in_string:
                quote, slash = fragment.find('"', at), fragment.find("\\", at)
                if slash >= 0 and (quote < 0 or slash < quote):
                    at, self._escaped = slash, True
                elif quote >= 0:
                    at, self._in_string = quote, False
                else:
                    return
            elif c == '"':
                self._in_string = True
            elif c == "{":
                self._depth += 1
            elif c == "}":
                self._depth -= 1
            at += 1


class Function:
    """``function``, ``custom`` or the old ``function_call``: a name and what the call is given."""

    __slots__ = ("arguments", "given", "name", "others")

    def __init__(self, given: str) -> None:
        self.given = given  # "arguments" | "input"
        self.name = ""
        self.arguments = Arguments()
        self.others = Members(DELTA)

    def merge(self, value: dict[str, Any], place: Place, chunk: Chunk, ledger: Ledger, keep: bool = True) -> bool:
        kept = "name" in value and self._rename(
            value["name"], ledger, keep
        )  # before its arguments, whatever their order
        for key, member in value.items():
            at = (place, key)
            if key == "name":
                continue
            if key == self.given:
                kept |= self.arguments.put(member, at, chunk, ledger, keep)
            elif keep:
                kept |= self.others.put(key, member, at, chunk, ledger)
        return kept

    def _rename(self, value: Any, ledger: Ledger, keep: bool) -> bool:
        """Equal: a repeat. Longer: the name grew. Else a fragment, as long as no arguments have come."""
        if value is None or value == "":
            return False
        if not isinstance(value, str):
            ledger.note("ignored-value")
            return False
        name, lone = clean(value)
        if not keep:
            self.name = self.name or name[:64]
            return False
        if name == self.name:
            return False
        if not name.startswith(self.name):
            if self.arguments.length:
                ledger.note("ignored-name")
                return False
            name = self.name + name
        if not ledger.room(len(name.encode()) - len(self.name.encode())):
            return False
        if lone:
            ledger.note("lone-surrogate", lone)
        self.name = name
        return True

    def build(self) -> dict[str, Any]:
        named = {"name": self.name} if self.name else {}
        return {**named, self.given: self.arguments.text.build(), **self.others.build()}


class Call:
    """One tool call. ``before``: calls opened before it; ``kept``: within the limit."""

    __slots__ = ("before", "functions", "id", "index", "kept", "others", "type")

    def __init__(self, before: int, index: int | None, kept: bool) -> None:
        self.before = before
        self.index = index
        self.kept = kept
        self.id = ""
        self.type = ""
        self.functions: dict[str, Function] = {}  # "function" and "custom"
        self.others = Members(DELTA)

    @property
    def name(self) -> str:
        return next((f.name for f in self.functions.values() if f.name), "")

    @property
    def arguments(self) -> Arguments | None:
        return next((f.arguments for f in self.functions.values() if f.arguments.length), None)

    @property
    def whole(self) -> bool:
        given = self.arguments
        return given is not None and given.whole

    @property
    def bare(self) -> bool:
        given = self.arguments
        return given is not None and given.bare

    @property
    def kind(self) -> str:
        return self.type or (
            "custom" if "custom" in self.functions and "function" not in self.functions else "function"
        )

    @property
    def given(self) -> str:
        """The text of the arguments or the input so far."""
        given = self.arguments
        return "" if given is None else given.text.build()

    def __bool__(self) -> bool:
        """It ever had an id, a name or arguments."""
        return bool(self.id or self.name or self.arguments is not None)

    def build(self) -> dict[str, Any]:
        head = {"id": self.id, "type": self.kind} if self.id else {"type": self.kind}
        functions: dict[str, Any] = {
            key: self.functions[key].build() for key in ("function", "custom") if key in self.functions
        }
        return {**head, **functions, **self.others.build()}


class Calls:
    """The tool calls of one choice."""

    __slots__ = ("_by_id", "_by_index", "_kept", "_newest", "_opened")

    def __init__(self) -> None:
        self._kept: list[Call] = []
        self._by_id: dict[str, Call] = {}
        self._by_index: dict[int, Call] = {}
        self._newest: Call | None = None
        self._opened = 0

    def put(self, value: Any, place: Place, chunk: Chunk, ledger: Ledger) -> int:
        """The ``tool_calls`` of one delta; the flag when a call came or grew."""
        if value is None or value == {}:
            return 0
        if isinstance(value, dict):  # a list of itself
            return Seen.TOOL_CALL.value if self._merge(value, place, chunk, ledger) else 0
        if not isinstance(value, list):
            ledger.note("ignored-value")
            return 0
        kept = False
        for i, fragment in enumerate(value):
            if ledger.over:
                break
            if isinstance(fragment, dict):
                kept |= self._merge(fragment, (place, i), chunk, ledger)
            elif fragment is not None:
                ledger.note("ignored-value")
        return Seen.TOOL_CALL.value if kept else 0

    def _merge(self, fragment: dict[str, Any], place: Place, chunk: Chunk, ledger: Ledger) -> bool:
        id, lone = "", 0
        if isinstance(fragment.get("id"), str):
            id, lone = clean(fragment["id"])
        elif fragment.get("id") is not None:
            ledger.note("ignored-value")
        name, braced = opening(fragment)
        index = valid_index(fragment.get("index"))
        if index is None:
            ledger.note("missing-call-index")
        call = self._find(id, name, index, braced, ledger)
        kept = False
        if id and not call.id:
            if not call.kept:
                call.id = id[:64]
            elif ledger.room(2 + chunk.size(fragment["id"], (place, "id"))):
                if lone:
                    ledger.note("lone-surrogate", lone)
                call.id = id
                self._by_id.setdefault(id, call)
                kept = True
        for key, member in fragment.items():
            at = (place, key)
            if key == "function" or key == "custom":
                if isinstance(member, dict):
                    given = "arguments" if key == "function" else "input"
                    function = call.functions.setdefault(key, Function(given))
                    kept |= function.merge(member, at, chunk, ledger, call.kept)
                elif member is not None:
                    ledger.note("ignored-value")
            elif key == "id" or key == "index" or not call.kept:
                continue
            elif key == "type":
                if isinstance(member, str):
                    if member and not call.type and ledger.room(4 + chunk.size(member, at)):
                        call.type = cleaned(member, ledger)
                elif member is not None:
                    ledger.note("ignored-value")
            else:
                kept |= call.others.put(key, member, at, chunk, ledger)
        return kept

    def _find(self, id: str, name: str, index: int | None, braced: bool, ledger: Ledger) -> Call:
        newest = self._newest
        call = self._by_id.get(id) if id else None
        if call is not None:
            self._point(index, call, ledger)
            return call
        call = None if index is None else self._by_index.get(index)
        if call is not None:
            if id and call.id and call.id != (id if call.kept else id[:64]):
                if not name:
                    ledger.note("changed-call-id")
                    return call
            elif not (name and braced and call.whole and (not call.bare or call.name != name)):
                return call
            ledger.note("reused-call-index")
            return self._open(index, ledger)
        if newest is None:
            return self._open(index, ledger)
        if index is None:
            if id:
                opens = bool(newest.id or name)
            elif name:
                opens = newest.name != name if newest.name else False
                opens = opens or (newest.name == name and newest.whole and not newest.bare)
            else:
                opens = False
            return self._open(None, ledger) if opens else newest
        if not id and not name:
            ledger.note("unseen-call-index")
            self._point(index, newest, ledger)
            return newest
        return self._open(index, ledger)

    def _open(self, index: int | None, ledger: Ledger) -> Call:
        kept = len(self._kept) < ledger.limits.max_tool_calls
        call = self._newest = Call(self._opened, index, kept)
        self._opened += 1
        if kept:
            self._kept.append(call)
        else:
            ledger.fail("limit-exceeded", f"more than max_tool_calls={ledger.limits.max_tool_calls} in one choice")
        if index is not None and (index in self._by_index or len(self._by_index) < ledger.limits.max_tool_calls):
            self._by_index[index] = call
        return call

    def _point(self, index: int | None, call: Call, ledger: Ledger) -> None:
        if index is not None and index not in self._by_index and len(self._by_index) < ledger.limits.max_tool_calls:
            self._by_index[index] = call

    def settled(self, fragment: dict[str, Any]) -> Call | None:
        """The call of a fragment, if finding it changes nothing and depends on no text: by an index that is known, and by
        an id that is known or neither id nor name."""
        index = valid_index(fragment.get("index"))
        call = None if index is None else self._by_index.get(index)
        id = fragment.get("id")
        if call is None or not (id is None or isinstance(id, str)):
            return None
        if id:
            call = self._by_id.get(id)
        elif opening(fragment)[0]:
            return None
        return call if call is not None and call.kept else None

    def sorted(self) -> list[Call]:
        """The calls of the result: by index, a call without one by the number of calls opened before it."""
        calls = [c for c in self._kept if c]
        return sorted(calls, key=lambda c: (c.before if c.index is None else c.index, c.before))

    def build(self) -> list[dict[str, Any]]:
        return [call.build() for call in self.sorted()]


def opening(fragment: dict[str, Any]) -> tuple[str, bool]:
    """The name that a fragment carries, and whether its arguments begin an object."""
    name, braced = "", False
    for key, given in (("function", "arguments"), ("custom", "input")):
        function = fragment.get(key)
        if isinstance(function, dict):
            if not name and isinstance(function.get("name"), str):
                name = clean(function["name"])[0]
            value = function.get(given)
            braced = braced or isinstance(value, dict) or (isinstance(value, str) and value.startswith("{"))
    return name, braced
