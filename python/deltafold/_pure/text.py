"""Text that arrives in fragments.

A fragment may end in one half of a UTF-16 surrogate pair (``\\ud83d`` as a JSON escape) and the next begin with the
other: together they are one character. A half that stays alone becomes U+FFFD. While it waits it is booked as U+FFFD.
"""

from __future__ import annotations

from typing import Any

from .json import clean
from .ledger import Ledger

LOOSE = 256  # a short str costs 50 bytes, so many fragments are joined


class Text:
    """Joined fragments; they stay apart until somebody reads, or ``LOOSE`` of them have come."""

    __slots__ = ("_fragments", "_joined", "half", "nbytes", "nchars")

    def __init__(self) -> None:
        self._fragments: list[str] = []
        self._joined = 0  # of the fragments, how many are long ones
        self.nbytes = 0  # UTF-8, a waiting half included as U+FFFD
        self.nchars = 0  # code points, without a waiting half
        self.half = ""

    def add(self, fragment: str, ledger: Ledger) -> bool:
        """Appends; False when the fragment does not fit and nothing of it was kept."""
        if not self.half:
            try:
                nbytes = len(fragment) if fragment.isascii() else len(fragment.encode())
            except UnicodeEncodeError:
                pass
            else:
                if not ledger.room(nbytes):
                    return False
                self._append(fragment)
                self.nbytes += nbytes
                return True
        return not fragment or self._add_halves(fragment, ledger)

    def append(self, fragment: str, nbytes: int, ledger: Ledger) -> None:
        """Appends text of ``nbytes`` for which there is room, where no half waits."""
        ledger.retained += nbytes
        self._append(fragment)
        self.nbytes += nbytes

    def _add_halves(self, fragment: str, ledger: Ledger) -> bool:
        whole, half = self.half + fragment, ""
        if "\ud800" <= whole[-1] <= "\udbff":
            whole, half = whole[:-1], whole[-1]
        whole, lone = clean(whole)
        nbytes = len(whole.encode()) + (3 if half else 0) - (3 if self.half else 0)
        if not ledger.room(nbytes):
            return False
        if lone:
            ledger.note("lone-surrogate", lone)
        ledger.halves += bool(half) - bool(self.half)
        self._append(whole)
        self.half = half
        self.nbytes += nbytes
        return True

    def build(self) -> str:
        return self.decided() + ("\ufffd" if self.half else "")

    def decided(self) -> str:
        """The text without a half that still waits."""
        if len(self._fragments) > 1:
            self._fragments = ["".join(self._fragments)]
            self._joined = 0
        return self._fragments[0] if self._fragments else ""

    @property
    def last(self) -> str:
        """The last character."""
        return self._fragments[-1][-1] if self._fragments else ""

    def since(self, cursor: int) -> str:
        """What came after ``cursor`` code points, in time proportional to it."""
        wanted, tail = self.nchars - cursor, []
        for fragment in reversed(self._fragments):
            if wanted <= 0:
                break
            tail.append(fragment[-wanted:] if len(fragment) > wanted else fragment)
            wanted -= len(fragment)
        return "".join(reversed(tail))

    def __bool__(self) -> bool:
        return self.nbytes > 0

    def __len__(self) -> int:
        return self.nchars + bool(self.half)

    def _append(self, whole: str) -> None:
        if whole:
            self._fragments.append(whole)
            self.nchars += len(whole)
            if len(self._fragments) - self._joined >= LOOSE:
                self._fragments[self._joined :] = ["".join(self._fragments[self._joined :])]
                self._joined += 1


def cleaned(value: Any, ledger: Ledger) -> Any:
    """A whole value that is kept as it is: lone surrogate halves become U+FFFD and are counted."""
    if isinstance(value, str):
        if value.isascii():
            return value
        text, lone = clean(value)
        if lone:
            ledger.note("lone-surrogate", lone)
        return text
    if isinstance(value, list):
        return [cleaned(v, ledger) for v in value]
    if isinstance(value, dict):
        return {k: cleaned(v, ledger) for k, v in value.items()}
    return value
