"""What one stream has cost so far, what it needed and what went wrong.

Every stage writes here: bytes kept against ``max_retained_bytes``, leniencies, the first error, and the ``Seen`` flags
of the piece at hand. ``offset`` is that of the event being merged.
"""

from __future__ import annotations

from typing import Any

from .._errors import BadJson, DeltafoldError, LimitExceeded, NotSse, Truncated, UpstreamError
from .._types import Diagnostic, Limits, Seen

ERRORS: dict[str, type[DeltafoldError]] = {
    e.kind: e for e in (UpstreamError, BadJson, NotSse, LimitExceeded, Truncated)
}


class Ledger:
    __slots__ = ("_counts", "chunk", "error", "halves", "limits", "notes", "offset", "over", "retained", "seen")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.offset: int | None = 0
        self.seen = 0
        self.chunk = 0  # number of the chunk being merged
        self.retained = 0
        self.over = False
        self.halves = 0  # high surrogate halves that still wait for the other one
        self.error: DeltafoldError | None = None
        self.notes = 0  # how often `note` was called
        self._counts: dict[str, list[Any]] | None = None  # of most streams nothing is to be said

    def room(self, more: int) -> bool:
        """Books ``more`` bytes (fewer, when a value is replaced); False once they do not fit, and ever after."""
        if self.over:
            return False
        if more > 0 and self.retained + more > self.limits.max_retained_bytes:
            self.over = True
            self.fail("limit-exceeded", f"more than max_retained_bytes={self.limits.max_retained_bytes} to keep")
            return False
        self.retained += more
        return True

    def note(self, kind: str, count: int = 1) -> None:
        self.notes += 1
        if self._counts is None:
            self._counts = {}
        entry = self._counts.get(kind)
        if entry is None:
            self._counts[kind] = [count, self.offset]
        else:
            entry[0] += count

    def fail(self, kind: str, message: str, *, code: Any = None, body: Any = None) -> None:
        """Records an error at the present offset; the first one in time stays."""
        self.seen |= Seen.ERROR.value
        if self.error is None:
            self.error = ERRORS[kind](message, code=code, offset=self.offset, body=body)

    def diagnostics(self) -> list[Diagnostic]:
        return [Diagnostic(kind, count, offset) for kind, (count, offset) in (self._counts or {}).items()]
