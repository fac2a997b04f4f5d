"""What is new in an accumulator since it was last asked, for whatever follows a stream while it runs.

Cost is proportional to what is new, plus the number of choices and calls.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ._backend import ChatCompletionAccumulator

REASONING = ("reasoning_content", "reasoning", "reasoning_text", "thinking", "content.thinking", "reasoning_details")


class Grown(NamedTuple):
    """A tool call that grew.

    Attributes:
        position: its place in ``tool_calls`` of the result so far.
        number: its number in order of opening, which never changes.
        new: what its arguments grew by.
    """

    position: int
    number: int
    id: str | None
    type: str
    name: str | None
    new: str


class Cursors:
    """How much of one choice was given already."""

    __slots__ = ("_accumulator", "_calls", "_choice", "_names", "_texts")

    def __init__(self, accumulator: ChatCompletionAccumulator, choice: int) -> None:
        self._accumulator = accumulator
        self._choice = choice
        self._texts: dict[str, Any] = {}
        self._names: tuple[str, ...] = REASONING
        self._calls: dict[Any, int] = {}

    def text(self, name: str) -> str:
        """New text of ``content`` or ``refusal``."""
        new, self._texts[name] = self._text_since(name, self._texts.get(name))
        return new

    def reasoning(self) -> str:
        """New reasoning: of the first member that had some, whatever others come later."""
        for name in self._names:
            new = self.text(name)
            if new:
                self._names = (name,)
                return new
        return ""

    def calls(self, every: bool = False) -> list[Grown]:
        """The calls whose arguments grew; a bare ``{}``, which may be a placeholder, is withheld. ``every``: all as they are."""
        since = getattr(self._accumulator, "_calls_since", None)
        if since is not None:
            return [Grown(*found) for found in since(self._calls, self._choice, every)]
        return list(self._calls_looked_through(every))

    def _text_since(self, name: str, cursor: Any) -> tuple[str, Any]:
        since = getattr(self._accumulator, "_text_since", None)
        if since is not None:
            found: tuple[str, Any] = since(name, cursor, self._choice)
            return found
        if name == "content":
            return self._accumulator.text_since(cursor, self._choice)
        whole = self._looked_through(name)
        return whole[cursor or 0 :], max(len(whole), cursor or 0)

    # An implementation without cursors of its own is looked through: right as well, but each look costs the whole.

    def _looked_through(self, name: str) -> str:
        if name != "refusal":
            return self._accumulator.reasoning_text(self._choice) if name == REASONING[0] else ""
        for choice in self._accumulator.result()["choices"]:
            if choice["index"] == self._choice:
                return choice["message"].get("refusal") or ""
        return ""

    def _calls_looked_through(self, every: bool) -> list[Grown]:
        found = []
        for position, call in enumerate(self._accumulator.tool_calls(self._choice)):
            key = call.id or position
            number = self._calls.setdefault(("number", key), sum(type(held) is tuple for held in self._calls))
            cursor = self._calls.get(number, 0)
            end = 0 if call.arguments == "{}" and not every else len(call.arguments)
            if end > cursor or every:
                self._calls[number] = max(end, cursor)
                found.append(Grown(position, number, call.id, call.type, call.name, call.arguments[cursor:end]))
        return found
