"""Standard input, output and error for a command: bytes out, text made safe, and streams that may be closed."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from typing import IO, TextIO

__all__ = [
    "UNWRITABLE",
    "ReaderGone",
    "Unwritable",
    "abandon",
    "flush",
    "is_output",
    "is_terminal",
    "say",
    "visible",
    "visible_but",
    "write",
]

UNWRITABLE = 1  # the exit status when standard output takes no more, a full disk for one
UNUSUAL = re.compile(r"[^\n\x20-\x7e]+")
FEW = 16  # characters that are replaced one after the other


class ReaderGone(Exception):
    """Whoever read standard output has closed it. No OSError, which would be taken for one of the input."""


class Unwritable(Exception):
    """Standard output is closed or takes no more."""


def write(line: bytes) -> None:
    """Writes to standard output; raises ReaderGone, or Unwritable for any other reason."""
    try:
        if sys.stdout is None:
            raise Unwritable("standard output is closed")
        sys.stdout.buffer.write(line)
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as error:
        raise Unwritable(f"cannot write to standard output: {error.strerror}") from None


def flush() -> None:
    """Sends on what was written; raises as ``write``."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as error:
        raise Unwritable(f"cannot write to standard output: {error.strerror}") from None


def abandon() -> None:
    """Gives up on standard output, so that the interpreter does not complain at its end."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_output(file: IO[bytes]) -> bool:
    """Whether a file is the one that standard output is written to: what is read of it would never end."""
    if sys.stdout is None:
        return False
    try:
        written, read = os.fstat(sys.stdout.fileno()), os.fstat(file.fileno())
    except (OSError, ValueError):  # no real file, as within a test
        return False
    return stat.S_ISREG(read.st_mode) and os.path.samestat(written, read)


def say(line: str) -> None:
    """Writes one line to standard error, when there is one."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(line, file=sys.stderr, flush=True)


def visible(text: str) -> str:
    """JSON text with every invisible or directional character as its escape: the same JSON, harmless on a terminal."""
    if text.isprintable():
        return text
    return UNUSUAL.sub(lambda found: found[0] if found[0].isprintable() else "".join(map(_escaped, found[0])), text)


def visible_but(text: bytes, unseen: str) -> bytes:
    """The same, in UTF-8, where it is known which characters may be invisible."""
    if len(unseen) > FEW:
        return visible(text.decode()).encode()
    for char in unseen:
        text = text.replace(char.encode(), _escaped(char).encode())
    return text


def _escaped(char: str) -> str:
    if char.isprintable():
        return char
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def is_terminal(file: TextIO | None) -> bool:
    """Whether a person reads it."""
    return file is not None and not file.closed and file.isatty()
