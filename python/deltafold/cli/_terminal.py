"""Standard input, output and error for a command: bytes out, text made safe, and streams that may be closed."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import stat
import sys
from typing import IO, TextIO

__all__ = [
    "UNWRITABLE",
    "ReaderGone",
    "Unwritable",
    "abandon",
    "flush",
    "interrupted",
    "is_output",
    "is_terminal",
    "output_file",
    "say",
    "visible",
    "visible_but",
    "write",
    "write_lines",
]

UNWRITABLE = 1  # the exit status when standard output takes no more, a full disk for one
UNUSUAL = re.compile(r"[^\n\x20-\x7e]+")
PIPE = getattr(select, "PIPE_BUF", 4096)
FEW = 16  # characters that are replaced one after the other


class ReaderGone(Exception):
    """Whoever read standard output has closed it. No OSError, which would be taken for one of the input."""


class Unwritable(Exception):
    """Standard output is closed or takes no more."""


def write(text: bytes) -> None:
    """Writes to standard output; raises ReaderGone, or Unwritable for any other reason."""
    try:
        if sys.stdout is None:
            raise Unwritable("standard output is closed")
        while text:  # without a buffer a part may be all that is written
            written = sys.stdout.buffer.write(text)
            if written is None:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            text = text[written:]
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as error:
        raise Unwritable(f"cannot write to standard output: {error.strerror}") from None


def write_lines(text: bytes) -> None:
    """Writes whole lines, as ``write``, and sends them on: to a file all at once, else so many as a pipe takes whole or not at
    all, for whoever reads it when Ctrl-C comes. Only a line that is longer than that may then lack its end.
    """
    start = 0
    many = len(text) if output_file() else PIPE
    while start < len(text):
        end = (text.rfind(b"\n", start, start + many) + 1) or (text.find(b"\n", start) + 1) or len(text)
        write(text[start:end])
        flush()
        start = end


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


def interrupted() -> None:
    """After Ctrl-C: a file still gets what was written. A pipe does not: nobody may be reading it, and the interpreter would
    wait for them at its end.
    """
    if output_file() is None:
        with contextlib.suppress(OSError, ValueError):  # no real file, as within a test
            abandon()


def output_file() -> tuple[int, int] | None:
    """Device and inode of the file that standard output is written to, if it is one."""
    if sys.stdout is None:
        return None
    try:
        written = os.fstat(sys.stdout.fileno())
    except (OSError, ValueError):  # no real file, as within a test
        return None
    return (written.st_dev, written.st_ino) if stat.S_ISREG(written.st_mode) else None


def is_output(file: IO[bytes]) -> bool:
    """Whether a file is the one that standard output is written to: what is read of it would never end."""
    output = output_file()
    if output is None:
        return False
    read = os.fstat(file.fileno())
    return (read.st_dev, read.st_ino) == output


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
