"""``deltafold verify``: one stream through both implementations and every cut."""

from __future__ import annotations

import argparse
import importlib
import random
from collections.abc import Iterator
from typing import Any

from .._errors import escape
from . import _help, _terminal
from ._merge import UNUSABLE
from ._progress import Progress
from ._sources import Problem, sources

__all__ = ["add"]

DIFFERS = 5
BYTEWISE = 1024 * 1024  # bytes up to which a stream is also fed byte by byte
BUDGET = {"pure": 4_000_000, "rust": 400_000_000}  # bytes that are merged for single cuts, unless --all

DESCRIPTION = """\
Merges each FILE in both implementations, whole, byte by byte, in random pieces, and cut once at every
place, and compares all that an accumulator tells: the result, its JSON, error, diagnostics, counts, usage,
finish reasons. They must not differ; if they do, what is printed belongs into a bug report, with the
stream (shorten it, and replace what is a person's). Where a stream is so long that every cut would take
minutes, as many places as fit are spread over it, and the line says how many; --all takes them all.
"""

EPILOG = """\
exit status:
  0    no difference
  1    the output could not be written
  2    a file cannot be read; a wrong command line
  5    a difference: a fault of deltafold
  130  interrupted by Ctrl-C
  141  the reader of the output has gone

example:
  deltafold verify recorded.sse
"""


def add(commands: argparse._SubParsersAction[_help.Parser]) -> None:
    """Adds the subcommand to the parser."""
    parser = _help.command(commands, "verify", "compare both implementations and every cut", DESCRIPTION, EPILOG)
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a recorded body, a folder or a pattern; - is standard input"
    )
    parser.add_argument("--all", action="store_true", help="really every cut, however long that takes")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Verifies every file and gives the exit status."""
    from . import version_line

    _terminal.write(version_line().encode() + b"\n")
    backends = {}
    for name in ("pure", "rust"):
        try:
            backends[name] = importlib.import_module(f"deltafold._{name}").ChatCompletionAccumulator
        except ModuleNotFoundError:
            _terminal.say("deltafold: this installation has no extension: only the pure implementation is verified")
    status = 0
    for source in sources(arguments.files):
        try:
            if isinstance(source, Problem):
                raise OSError(source.reason)
            data = b"".join(source.pieces())
        except OSError as failure:
            _terminal.say(f"{source.name}: cannot be read: {failure.strerror or failure}")
            status = max(status, UNUSABLE)
            continue
        if not _verify(source.name, data, backends, arguments.all):
            status = DIFFERS
        _terminal.flush()
    return status


def _verify(name: str, data: bytes, backends: dict[str, Any], every: bool) -> bool:
    expected = _told(backends["pure"], [data])
    told = []
    for backend, accumulator in backends.items():
        step = 1 if every else max(1, -(-len(data) * len(data) // BUDGET[backend]))
        progress = Progress()
        count = 0
        for how, pieces in _cuts(data, step):
            found = _told(accumulator, pieces)
            count += 1
            if found != expected:
                progress.close()
                _terminal.write(f"{name}: DIFFERENT: {backend}, {how}\n".encode())
                for member, value in expected.items():
                    if found[member] != value:
                        differ = (i for i, (a, b) in enumerate(zip(value, found[member])) if a != b)
                        at = max(next(differ, 0) - 40, 0)
                        lines = f"  {member}, from character {at}\n    pure, whole: {escape(value[at:])}\n"
                        lines += f"    {backend}, {how}: {escape(found[member][at:])}\n"
                        _terminal.write(lines.encode())
                return False
            progress.at(0, count)
        progress.close()
        told.append(f"{backend} {count:,} cuts" + ("" if step == 1 else f" (one place in {step:,})"))
    _terminal.write(f"{name}: the same, {len(data):,} bytes: {', '.join(told)}\n".encode())
    return True


def _cuts(data: bytes, step: int) -> Iterator[tuple[str, list[bytes]]]:
    yield "whole", [data]
    if len(data) <= BYTEWISE:
        yield "byte by byte", [data[at : at + 1] for at in range(len(data))]
    for seed in range(8):
        dice = random.Random(seed)
        pieces, at = [], 0
        while at < len(data):
            size = dice.randint(0, dice.choice((3, 40, 700, 16384)))
            pieces.append(data[at : at + size])
            at += size
        yield f"random pieces, seed {seed}", pieces
    for at in range(1, len(data), step):
        yield f"cut at {at}", [data[:at], data[at:]]


def _told(make: Any, pieces: list[bytes]) -> dict[str, str]:
    accumulator = make()
    seen = 0
    for piece in pieces:
        seen |= accumulator.feed(piece)
    seen |= accumulator.close()
    error = accumulator.error
    facts = {
        "result": accumulator.result(),
        "result_json": accumulator.result_json(),
        "error": error and {name: getattr(error, name) for name in ("kind", "message", "code", "offset", "body")},
        "diagnostics": list(accumulator.diagnostics),
        "seen": seen,
    }
    for name in ("counts", "usage", "usage_source", "finish_reasons", "complete", "done_seen", "retained_bytes"):
        facts[name] = getattr(accumulator, name)
    return {name: repr(fact) for name, fact in facts.items()}
