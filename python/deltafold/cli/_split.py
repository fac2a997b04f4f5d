"""``deltafold split``: replays a recorded stream as a network would deliver it."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator

from . import _events, _help, _terminal
from ._merge import UNUSABLE
from ._sources import Source

__all__ = ["add"]

DESCRIPTION = """\
Writes FILE to standard output in pieces, each at once and by itself, with a pause between: what a program
that reads streams must cope with. The bytes are not changed.
"""

EPILOG = """\
exit status: 0 all was written, 1 the output could not be written, 2 FILE cannot be read or a wrong command
line, 130 Ctrl-C, 141 the reader of the output has gone

examples:
  deltafold split --delay 0.05 recorded.sse             an event each 50 ms
  deltafold split --every 1 recorded.sse | my-reader    byte by byte
  deltafold split --at 10,11,4000 recorded.sse          three cuts
  deltafold split --random 7 --delay 0.01 --jitter 0.02 recorded.sse
"""


def add(commands: argparse._SubParsersAction[_help.Parser]) -> None:
    """Adds the subcommand to the parser."""
    parser = _help.command(commands, "split", "replay a stream in pieces, with pauses", DESCRIPTION, EPILOG)
    parser.add_argument(
        "file", nargs="?", default="-", metavar="FILE", help="a recorded body; - is standard input, the default"
    )
    cuts = parser.add_mutually_exclusive_group()
    cuts.add_argument("--events", action="store_true", help="cut at each event (the default)")
    cuts.add_argument("--every", type=_positive, metavar="BYTES", help="cut after so many bytes, again and again")
    cuts.add_argument("--at", type=_places, metavar="N,N,…", help="cut at these bytes")
    cuts.add_argument(
        "--random", type=int, metavar="SEED", help="cut at random places, the same ones for the same seed"
    )
    parser.add_argument(
        "--largest", type=_positive, default=1400, metavar="BYTES", help="the largest piece of --random (default 1400)"
    )
    parser.add_argument(
        "--delay", type=_seconds, default=0.0, metavar="SECONDS", help="the pause before each piece but the first"
    )
    parser.add_argument("--jitter", type=_seconds, default=0.0, metavar="SECONDS", help="up to so much more, by chance")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Replays the file and gives the exit status."""
    source = Source(arguments.file)
    try:
        data = b"".join(source.pieces())
    except OSError as failure:
        _terminal.say(f"{source.name}: cannot be read: {failure.strerror or failure}")
        return UNUSABLE
    dice = random.Random(arguments.random)
    start = 0
    for end in _ends(arguments, data, dice):
        if start:
            time.sleep(arguments.delay + dice.random() * arguments.jitter)
        _terminal.write(data[start:end])
        _terminal.flush()
        start = end
    return 0


def _ends(arguments: argparse.Namespace, data: bytes, dice: random.Random) -> Iterator[int]:
    """Where the pieces end."""
    if arguments.every:
        yield from range(arguments.every, len(data), arguments.every)
    elif arguments.at:
        yield from (at for at in arguments.at if at < len(data))
    elif arguments.random is not None:
        at = dice.randint(1, arguments.largest)
        while at < len(data):
            yield at
            at += dice.randint(1, arguments.largest)
    else:
        yield from _events.starts(data)
    if data:
        yield len(data)


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:18])):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes")
    return int(text)


def _places(text: str) -> list[int]:
    return sorted({_positive(part) for part in text.split(",")})


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds up to 3600")
    return seconds
