"""Chunks → one completion. Knows no bytes.

The tables say which rule each member follows; a member without a rule of its own is kept by ``tree``.
"""

from __future__ import annotations

import math
from typing import Any

from .._types import Seen
from .calls import Call, Calls, Function
from .chunk import Chunk, Place
from .json import MAX_INTEGER_DIGITS, clean, parse
from .ledger import Ledger
from .message import Audio, Content, Details, First, Last, Refusal
from .text import Text, cleaned
from .tree import LAST, OVERLAY, Extend, Joined, Members, Policy, is_null, valid_index
from .usage import Usage, choose

FINISH, LOGPROBS, USAGE, TOOL_CALL, REASONED = (
    flag.value for flag in (Seen.FINISH, Seen.LOGPROBS, Seen.USAGE, Seen.TOOL_CALL, Seen.REASONING)
)

TOP = ("id", "object", "created", "model", "choices", "usage", "service_tier", "system_fingerprint")
MESSAGE = (
    "role", "content", "refusal", "reasoning_content", "reasoning", "reasoning_details", "reasoning_text", "thinking",
    "tool_calls", "function_call", "audio", "annotations",
)  # fmt: skip
REASONING = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
DELTA = Policy(True, LAST, frozenset(REASONING))
BITS = {name: 1 << i for i, name in enumerate((*MESSAGE, "obfuscation"))}
PADDING = frozenset({"obfuscation", "p"})  # of a chunk; a delta's only the first
ERROR_MEMBERS = frozenset({"message", "code", "type", "param", "detail", "status"})
NO_REASON = ("", "null")
LONGEST_FINISH = 64  # bytes of a finish reason that is still followed past max_retained_bytes


class Completion:
    """What the chunks of one stream have become."""

    __slots__ = (
        "choice_usage", "choices", "created", "fold", "groq_usage", "id", "ledger", "model", "others", "service_tier",
        "system_fingerprint", "usage",
    )  # fmt: skip

    def __init__(self, ledger: Ledger, n: int | None) -> None:
        self.ledger = ledger
        self.fold = n == 1
        self.id: First | None = None
        self.model: First | None = None
        self.service_tier: First | None = None
        self.system_fingerprint: First | None = None
        self.created: Created = Created()
        self.choices: dict[int, Choice] = {}
        self.others: Members | None = None
        self.usage, self.choice_usage, self.groq_usage = Usage(True), Usage(False), Usage(False)

    def merge(self, chunk: Chunk, is_error: bool = False) -> None:
        """One chunk; of one that ``is_error`` itself, the error's own members stay out."""
        ledger = self.ledger
        ledger.chunk += 1
        for name, value in chunk.value.items():
            place = (chunk.place, name)
            if name == "choices":
                self._merge_choices(value, place, chunk)
            elif name == "usage":
                if self.usage.put(value, place, chunk, ledger):
                    ledger.seen |= USAGE
            elif name == "id":
                self._put_head(First, name, value, place, chunk)
            elif name == "model" or name == "system_fingerprint" or name == "service_tier":
                self._put_head(Last, name, value, place, chunk)
            elif name == "created":
                self.created.put(value, place, chunk, ledger)
            elif name == "object" or name == "error" or name in PADDING or is_error and name in ERROR_MEMBERS:
                continue
            else:
                if self.others is None:
                    self.others = Members(OVERLAY)
                self.others.put(name, value, place, chunk, ledger)
                if name == "x_groq" and isinstance(value, dict) and isinstance(value.get("usage"), dict):
                    if self.groq_usage.put(value["usage"], (place, "usage"), chunk, ledger):
                        ledger.seen |= USAGE

    def _put_head(self, kind: type[First], name: str, value: Any, place: Place, chunk: Chunk) -> None:
        held: First | None = getattr(self, name)
        if held is None:
            held = kind()
            held.put(value, place, chunk, self.ledger)
            if held.nbytes:
                setattr(self, name, held)
            return
        held.put(value, place, chunk, self.ledger)
        if name == "id" and value and isinstance(value, str) and clean(value)[0] != held.value:
            self.ledger.note("changed-id")

    def _merge_choices(self, value: Any, place: Place, chunk: Chunk) -> None:
        if value is None:
            return
        if not isinstance(value, list):
            self.ledger.note("ignored-value")
            return
        for position, entry in enumerate(value):
            if isinstance(entry, dict):
                choice = self._choice(entry, position)
                if choice is not None:
                    choice.merge(entry, (place, position), chunk, self)
                elif isinstance(entry.get("usage"), dict) and self.choice_usage.follow(entry["usage"]):
                    self.ledger.seen |= USAGE
            elif entry is not None:
                self.ledger.note("ignored-value")

    def _choice(self, entry: dict[str, Any], position: int) -> Choice | None:
        """The choice of an entry; None past ``max_choices``."""
        index = 0 if self.fold else valid_index(entry.get("index"))
        if index is None:
            self.ledger.note("missing-choice-index")
            index = position
        choice = self.choices.get(index)
        if choice is None:
            limit = self.ledger.limits.max_choices
            if len(self.choices) >= limit:
                self.ledger.fail("limit-exceeded", f"more than max_choices={limit} in one stream")
                return None
            choice = self.choices[index] = Choice(index)
        return choice

    @property
    def finished(self) -> bool:
        """There is a choice, and every choice has its finish reason."""
        return bool(self.choices) and all(c.finish_reason for c in self.choices.values())

    def sorted(self) -> list[Choice]:
        return [self.choices[i] for i in sorted(self.choices)]

    def build(self) -> dict[str, Any]:
        result: dict[str, Any] = {}
        usage, _ = choose(self.usage, self.choice_usage, self.groq_usage)
        for name in TOP:
            if name == "object":
                result[name] = "chat.completion"
            elif name == "choices":
                result[name] = [choice.build() for choice in self.sorted()]
            elif name == "created":
                if self.created.came:
                    result[name] = self.created.value
            elif name == "usage":
                if usage is not None or self.usage.null:
                    result[name] = usage
            elif getattr(self, name) is not None:
                result[name] = self.named(name)
        return result if self.others is None else {**result, **self.others.build()}

    def named(self, name: str) -> str | None:
        """``id``, ``model``, ``service_tier`` or ``system_fingerprint`` as far as it came."""
        held: First | None = getattr(self, name)
        return None if held is None else held.build()


class Created:
    """``created``: the first that is not zero, as an int."""

    __slots__ = ("came", "nbytes", "value")

    def __init__(self) -> None:
        self.came = False
        self.value: int | None = None
        self.nbytes = 0

    def put(self, value: Any, place: Place, chunk: Chunk, ledger: Ledger) -> None:
        if value == "":
            return
        number, converted = whole_number(value)
        if value is not None and number is None:
            ledger.note("ignored-value")
            return
        if self.value or (self.came and (number is None or self.value is not None and not number)):
            return
        nbytes = len("created") + chunk.size(value, place)
        if not ledger.room(nbytes - self.nbytes):
            return
        if converted:
            ledger.note("converted-created")
        self.came, self.value, self.nbytes = True, number, nbytes


class Choice:
    """One choice and its message."""

    __slots__ = (
        "_brought", "_brought_beside", "_brought_unknown", "delta_text", "finish_nbytes", "finish_reason", "had_delta", "index",
        "logprobs", "message", "others", "role",
    )  # fmt: skip

    def __init__(self, index: int) -> None:
        self.index = index
        self.finish_reason: str | None = None
        self.finish_nbytes = 0
        self.role = First()
        self.message = Members(DELTA)  # its slots hold the members with rules of their own too, as they came
        self.logprobs: Logprobs | None = None
        self.others: Members | None = None
        self.had_delta = False
        self.delta_text = False  # a delta brought a string of content
        self._brought = 0  # members that came with something in them in a delta: the sum of their BITS
        self._brought_unknown: set[str] | None = None  # and those that have none
        self._brought_beside: tuple[str, ...] = ()  # of an entry without a message: `text`, `token_ids`

    def merge(self, entry: dict[str, Any], place: Place, chunk: Chunk, completion: Completion) -> None:
        """One entry of ``choices``. Its delta is read before its message, whatever their order."""
        ledger = completion.ledger
        by_message = not isinstance(entry.get("delta"), dict) and isinstance(entry.get("message"), dict)
        lacking_only = by_message and self.had_delta
        ignored = False
        for name, value in entry.items():
            at = (place, name)
            if name == "delta":
                if isinstance(value, dict):
                    self.had_delta = True
                    self._merge_delta(value, at, chunk, ledger)
                elif value is not None:
                    ledger.note("ignored-value")
            elif name == "finish_reason":
                self._finish(value, at, chunk, ledger)
            elif name == "index" or name == "error" or name == "message":
                continue
            elif name == "logprobs":
                ignored |= self._merge_logprobs(value, at, chunk, ledger, lacking_only, by_message)
            elif name == "text" or name == "token_ids":
                if lacking_only and name in self._brought_beside:
                    ignored |= says(value)
                    continue
                if not (by_message or ledger.over) and says(value) and name not in self._brought_beside:
                    self._brought_beside += (name,)
                self._put_joining(name, value, at, chunk, ledger)
            else:
                self._others().put(name, value, at, chunk, ledger)
                if name == "usage" and isinstance(value, dict):
                    if completion.choice_usage.put(value, at, chunk, ledger):
                        ledger.seen |= USAGE
        message = entry.get("message")
        if isinstance(message, dict):
            ignored |= self._merge_message(message, (place, "message"), chunk, ledger)
        elif message is not None:
            ledger.note("ignored-value")
        if ignored:
            ledger.note("message-ignored")

    def _merge_delta(self, delta: dict[str, Any], place: Place, chunk: Chunk, ledger: Ledger) -> None:
        for name, value in delta.items():
            if name == "content" and isinstance(value, str):
                self.delta_text = True
            if says(value) and not ledger.over:
                bit = BITS.get(name)
                if bit is not None:
                    self._brought |= bit
                elif self._brought_unknown is None:
                    self._brought_unknown = {name}
                else:
                    self._brought_unknown.add(name)
            self._put(name, value, (place, name), chunk, ledger)

    def brought(self, name: str) -> bool:
        """A delta brought this member with something in it."""
        bit = BITS.get(name)
        if bit is not None:
            return self._brought & bit > 0
        return self._brought_unknown is not None and name in self._brought_unknown

    def _others(self) -> Members:
        if self.others is None:
            self.others = Members(OVERLAY)
        return self.others

    def _merge_message(self, message: dict[str, Any], place: Place, chunk: Chunk, ledger: Ledger) -> bool:
        """A message is a piece; after a delta it adds only what the deltas lacked. True when something was left out."""
        ignored = False
        for name, value in message.items():
            if self.brought(name) or name == "content" and self.delta_text:
                ignored |= says(value)
            else:
                self._put(name, value, (place, name), chunk, ledger)
        return ignored

    def _put(self, name: str, value: Any, place: Place, chunk: Chunk, ledger: Ledger) -> None:
        """One member of a delta or a message."""
        if name == "role":
            self.role.put(value, place, chunk, ledger)
        elif name == "obfuscation" or ledger.over:
            return
        elif name in RULES:
            slot = self.message.slots.get(name)
            if slot is None:
                slot = RULES[name]()
            seen = slot.put(value, place, chunk, ledger)  # which may write to ledger.seen itself
            ledger.seen |= seen
            if not ledger.over:
                self.message.slots[name] = slot
        elif self.message.put(name, value, place, chunk, ledger) and name in REASONING:
            ledger.seen |= REASONED

    def _put_joining(self, name: str, value: Any, place: Place, chunk: Chunk, ledger: Ledger) -> None:
        """``text`` joins, ``token_ids`` extends; in any other shape they are overlaid like the rest."""
        slots = self._others().slots
        fits = isinstance(value, str) if name == "text" else isinstance(value, list)
        held = slots.get(name)
        if fits and not isinstance(held, (Joined, Extend)) and (held is None or is_null(held) or value):
            if ledger.room(len(name) if held is None else -held.size()):
                held = slots[name] = Joined(always=True) if name == "text" else Extend()
        if fits and isinstance(held, Joined):
            held.add(value, ledger)
        elif fits and isinstance(held, Extend):
            held.add(value, place, chunk, ledger)
        else:
            self._others().put(name, value, place, chunk, ledger)

    def _finish(self, value: Any, place: Place, chunk: Chunk, ledger: Ledger) -> None:
        """The last reason that is not empty; a ``stop`` replaces no other. The text ``null`` is none."""
        if value is None or value in NO_REASON:
            return
        if not isinstance(value, str):
            ledger.note("ignored-value")
            return
        ledger.seen |= FINISH
        if value == "stop" and self.finish_reason:
            return
        nbytes = len("finish_reason") + chunk.size(value, place)
        if ledger.room(nbytes - self.finish_nbytes):
            self.finish_nbytes = nbytes
        elif len(clean(value)[0].encode()) > LONGEST_FINISH:
            return
        self.finish_reason = cleaned(value, ledger)

    def _merge_logprobs(
        self, value: Any, place: Place, chunk: Chunk, ledger: Ledger, lacking_only: bool, by_message: bool
    ) -> bool:
        """Lists extend, other members are overlaid. True when a message's were left out."""
        if ledger.over:
            return False
        if self.logprobs is None:
            self.logprobs = Logprobs()
        return self.logprobs.put(value, place, chunk, ledger, lacking_only, by_message)

    def build(self) -> dict[str, Any]:
        result: dict[str, Any] = {
            "index": self.index,
            "message": self._build_message(),
            "finish_reason": self.finish_reason,
        }
        if self.logprobs is not None:
            result["logprobs"] = self.logprobs.build()
        return result if self.others is None else {**result, **self.others.build()}

    def _build_message(self) -> dict[str, Any]:
        slots = self.message.slots
        content = slots.get("content")
        message = {"role": self.role.build() or "assistant", "content": None if content is None else content.build()}
        for name in (*MESSAGE[2:], *(name for name in slots if name not in MESSAGE)):
            if name in slots:
                value = slots[name].build()
                if name != "tool_calls" or value:
                    message[name] = value
        return message

    def texts(self, name: str) -> list[Text]:
        """The texts behind one member of the message; ``content.thinking`` are those of the thinking among the parts."""
        if name == "content.thinking":
            content = self.message.slots.get("content")
            return content.parts.texts("thinking") if isinstance(content, Content) and content.parts else []
        slot = self.message.slots.get(name)
        if isinstance(slot, Joined):
            return [slot.text]
        return slot.texts() if isinstance(slot, (Content, Details, Refusal)) else []

    def reasoning(self) -> list[Text]:
        """The first of the reasoning strings that is not empty, else the thinking parts, else the reasoning details."""
        for name in (*REASONING, "content.thinking"):
            texts = self.texts(name)
            if any(texts):
                return texts
        return self.texts("reasoning_details")

    def calls(self) -> list[Call]:
        """The tool calls in the order of the result."""
        calls = self.message.slots.get("tool_calls")
        return calls.sorted() if isinstance(calls, Calls) else []

    def arguments(self) -> list[Text]:
        """All that tool calls and the old function call are given."""
        functions = [f for call in self.calls() for f in call.functions.values()]
        old = self.message.slots.get("function_call")
        if isinstance(old, FunctionCall) and old.function is not None:
            functions.append(old.function)
        return [f.arguments.text for f in functions]


class Logprobs:
    """``logprobs``: lists extend, other members are overlaid; null, absent and empty are kept apart."""

    __slots__ = ("by_delta", "entries", "members")

    def __init__(self) -> None:
        self.by_delta: set[str] = set()  # what came with something in it without a message; "" for the entries
        self.members: Members | None = None
        self.entries: Extend | None = None  # of a server that sends a list in the place of the object

    def put(self, value: Any, place: Place, chunk: Chunk, ledger: Ledger, lacking_only: bool, by_message: bool) -> bool:
        """True when members were left out because a delta had brought them."""
        if value is None:
            return False
        if isinstance(value, list):
            if self._lacks_nothing("", value, lacking_only, by_message):
                return says(value)
            if self.entries is None:
                self.entries = Extend()
            if self.entries.add(value, place, chunk, ledger):
                ledger.seen |= LOGPROBS
            return False
        if not isinstance(value, dict):
            ledger.note("ignored-value")
            return False
        if self.members is None:
            self.members = Members(OVERLAY)
        ignored = False
        for name, member in value.items():
            if self._lacks_nothing(name, member, lacking_only, by_message):
                ignored |= says(member)
            elif not isinstance(member, list):
                self.members.put(name, member, (place, name), chunk, ledger)
            else:
                self._extend(name, member, (place, name), chunk, ledger)
        return ignored

    def _lacks_nothing(self, name: str, value: Any, lacking_only: bool, by_message: bool) -> bool:
        if lacking_only and name in self.by_delta:
            return True
        if not by_message and says(value):
            self.by_delta.add(name)
        return False

    def _extend(self, name: str, values: list[Any], place: Place, chunk: Chunk, ledger: Ledger) -> None:
        assert self.members is not None
        held = self.members.slots.get(name)
        if not isinstance(held, Extend):
            if not ledger.room(len(name.encode()) if held is None else -held.size()):
                return
            held = self.members.slots[name] = Extend()
        if held.add(values, place, chunk, ledger):
            ledger.seen |= LOGPROBS

    def build(self) -> Any:
        if self.members is not None:
            return self.members.build()
        return None if self.entries is None else self.entries.build()


class FunctionCall:
    """``function_call``: the old form of one tool call. Of nothing but ``{}`` no arguments are made up."""

    __slots__ = ("function", "said")

    def __init__(self) -> None:
        self.function: Function | None = None
        self.said = False  # an object came that is not empty

    def put(self, value: Any, place: Place, chunk: Chunk, ledger: Ledger) -> int:
        if value is None:
            return 0
        if not isinstance(value, dict):
            ledger.note("ignored-value")
            return 0
        if self.function is None:
            self.function = Function("arguments")
        self.said |= bool(value)
        return TOOL_CALL if self.function.merge(value, place, chunk, ledger) else 0

    def build(self) -> dict[str, Any] | None:
        if self.function is None:
            return None
        return self.function.build() if self.said else {}


RULES: dict[str, Any] = {
    "content": Content,
    "refusal": Refusal,
    "reasoning_details": Details,
    "tool_calls": Calls,
    "function_call": FunctionCall,
    "audio": Audio,
}


def says(value: Any) -> bool:
    """Neither null nor empty."""
    return value is not None and value != "" and value != [] and value != {}


def whole_number(value: Any) -> tuple[int | None, bool]:
    """``created`` as an int, and whether it had to be converted."""
    if type(value) is int:
        return value, False
    if isinstance(value, float) and math.isfinite(value):
        return int(value), True
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= MAX_INTEGER_DIGITS:
        return parse(value.lstrip("0") or "0", 1)[0], True
    return None, False
