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
        self._calls: dict[int, int] = {}

    def text(self, name: str) -> str:
        """New text of ``content`` or ``refusal``."""
        new, self._texts[name] = self._accumulator._text_since(name, self._texts.get(name), self._choice)
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
        return [Grown(*found) for found in self._accumulator._calls_since(self._calls, self._choice, every)]
