"""Text that arrives in fragments.

A fragment may end in one half of a UTF-16 surrogate pair (``\\ud83d`` as a JSON escape) and the next begin with the
other: together they are one character. A half that stays alone becomes U+FFFD. While it waits it is booked as U+FFFD.
"""

from __future__ import annotations

from typing import Any

from .json import clean
from .ledger import Ledger


class Text:
    """Joined fragments, kept as UTF-8: as a ``str`` each would cost fifty bytes more than it has characters."""

    __slots__ = ("_utf8", "half", "nchars")

    def __init__(self) -> None:
        self._utf8 = bytearray()
        self.nchars = 0  # code points, without a waiting half
        self.half = ""

    @property
    def nbytes(self) -> int:
        """UTF-8, a waiting half included as U+FFFD."""
        return len(self._utf8) + (3 if self.half else 0)

    def add(self, fragment: str, ledger: Ledger) -> bool:
        """Appends; False when the fragment does not fit and nothing of it was kept."""
        if not self.half:
            try:
                utf8 = fragment.encode()
            except UnicodeEncodeError:
                pass
            else:
                if not ledger.room(len(utf8)):
                    return False
                self._utf8 += utf8
                self.nchars += len(fragment)
                return True
        return not fragment or self._add_halves(fragment, ledger)

    def append(self, utf8: bytes, nchars: int, ledger: Ledger) -> None:
        """Appends text of ``nchars`` code points for which there is room, where no half waits."""
        ledger.retained += len(utf8)
        self._utf8 += utf8
        self.nchars += nchars

    def _add_halves(self, fragment: str, ledger: Ledger) -> bool:
        whole, half = self.half + fragment, ""
        if "\ud800" <= whole[-1] <= "\udbff":
            whole, half = whole[:-1], whole[-1]
        whole, lone = clean(whole)
        utf8 = whole.encode()
        if not ledger.room(len(utf8) + (3 if half else 0) - (3 if self.half else 0)):
            return False
        if lone:
            ledger.note("lone-surrogate", lone)
        ledger.halves += bool(half) - bool(self.half)
        self._utf8 += utf8
        self.nchars += len(whole)
        self.half = half
        return True

    def build(self) -> str:
        return self._utf8.decode() + ("\ufffd" if self.half else "")

    def endswith(self, suffix: bytes) -> bool:
        return self._utf8.endswith(suffix)

    def since(self, cursor: int) -> str:
        """What came after ``cursor`` code points, in time proportional to it."""
        wanted = self.nchars - cursor
        if wanted <= 0:
            return ""
        # A code point has up to four bytes; of one that the slice cuts in two the rest is ignored.
        return self._utf8[-4 * wanted :].decode("utf-8", "ignore")[-wanted:]

    def __bool__(self) -> bool:
        return self.nbytes > 0

    def __len__(self) -> int:
        return self.nchars + bool(self.half)


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
