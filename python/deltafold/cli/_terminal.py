"""Standard input, output and error for a command: bytes out, text made safe, and streams that may be closed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from typing import TextIO

__all__ = ["UNWRITABLE", "Unwritable", "abandon", "flush", "is_terminal", "say", "visible", "write"]

UNWRITABLE = 1  # the exit status when standard output takes no more, a full disk for one
UNUSUAL = re.compile(r"[^\n\x20-\x7e]")


class Unwritable(Exception):
    """Standard output is closed or takes no more."""


def write(line: bytes) -> None:
    """Writes to standard output; raises BrokenPipeError when the reader has gone, Unwritable for any other reason."""
    try:
        if sys.stdout is None:
            raise Unwritable("standard output is closed")
        sys.stdout.buffer.write(line)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unwritable(f"cannot write to standard output: {error.strerror}") from None


def flush() -> None:
    """Sends on what was written; raises as ``write``."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unwritable(f"cannot write to standard output: {error.strerror}") from None


def abandon() -> None:
    """Gives up on standard output, so that the interpreter does not complain at its end."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(line: str) -> None:
    """Writes one line to standard error, when there is one."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(line, file=sys.stderr, flush=True)


def visible(text: str) -> str:
    """JSON text with every invisible or directional character as its escape: the same JSON, harmless on a terminal."""
    if text.isprintable():
        return text
    return UNUSUAL.sub(lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1], text)


def is_terminal(file: TextIO | None) -> bool:
    """Whether a person reads it."""
    return file is not None and not file.closed and file.isatty()
