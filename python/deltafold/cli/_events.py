"""Where the events of a recorded body are, and what each brought."""

from __future__ import annotations

from .. import ChatCompletionAccumulator
from .._cursors import Cursors
from .._types import Limits, Seen

__all__ = ["Growth", "places", "starts"]

COUNTED = ("content", "reasoning", "refusal", "tool_arguments")
CONTENT, REASONING, REFUSAL, TOOL_CALL = (
    flag.value for flag in (Seen.CONTENT, Seen.REASONING, Seen.REFUSAL, Seen.TOOL_CALL)
)
TEXTS = CONTENT | REASONING | REFUSAL | TOOL_CALL


def starts(data: bytes) -> list[int]:
    """The offsets of the events and of raw lines, in order, without 0."""
    return sorted({*places(data)} - {0})


def places(data: bytes) -> dict[int, bool]:
    """The offsets of events, of raw lines and of what passes a limit; True for events."""
    from .._pure.sse import ErrorField, Event, Machine  # the whole pure implementation comes along

    machine = Machine(Limits().max_event_bytes, raw_lines=True)
    return {item.offset: isinstance(item, (Event, ErrorField)) for item in machine.feed(data)}


class Growth:
    """The code points by which the texts of a stream grow, in time proportional to them."""

    def __init__(self, accumulator: ChatCompletionAccumulator) -> None:
        self._accumulator = accumulator
        self._cursors: dict[int, Cursors] = {}
        self._told = dict.fromkeys(COUNTED, 0)

    def since(self, seen: int) -> dict[str, int]:
        """What a piece brought whose ``feed`` gave these flags."""
        if not seen & TEXTS:
            return {}
        before = dict(self._told)
        for index in self._accumulator.finish_reasons:
            cursors = self._cursors.get(index)
            if cursors is None:
                cursors = self._cursors[index] = Cursors(self._accumulator, index)
            if seen & CONTENT:
                self._told["content"] += len(cursors.text("content"))
            if seen & REASONING:
                self._told["reasoning"] += len(cursors.reasoning())
            if seen & REFUSAL:
                self._told["refusal"] += len(cursors.text("refusal"))
            if seen & TOOL_CALL:
                self._told["tool_arguments"] += sum(len(call.new) for call in cursors.calls(every=True))
        return {name: count - before[name] for name, count in self._told.items() if count > before[name]}

    def rest(self) -> dict[str, int]:
        """What was not told yet at the end of the stream: text that had waited for more."""
        counts = self._accumulator.counts
        return {name: counts[name] - self._told[name] for name in COUNTED if counts[name] > self._told[name]}
