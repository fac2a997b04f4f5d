"""The command ``deltafold``, also ``python -m deltafold``. It needs nothing but the standard library."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from .. import BACKEND
from .._errors import escape
from . import _help, _terminal

__all__ = ["main"]

INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it
CLOSED_PIPE = 141  # 128 + SIGPIPE
FAULT = 70  # EX_SOFTWARE
WRONG = 2  # as argparse ends
COMMANDS = ("merge", "inspect", "verify", "split", "bench", "completion")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and gives its exit status; ``arguments`` are those after the program's name."""
    try:
        arguments = sys.argv[1:] if arguments is None else arguments
        parsed = _parsed(arguments)
        status: int = parsed.run(parsed)
        _terminal.flush()
    except KeyboardInterrupt:
        _terminal.interrupted()
        return INTERRUPTED
    except _terminal.ReaderGone:
        _terminal.abandon()
        return CLOSED_PIPE
    except _terminal.Unwritable as error:
        _terminal.abandon()
        _terminal.say(f"deltafold: {error}")
        return _terminal.UNWRITABLE
    except Exception as error:
        if os.environ.get("DELTAFOLD_TRACEBACK") == "1":
            raise
        what = escape(f"{type(error).__name__}: {error}")
        _terminal.say(f"deltafold: a fault of its own, please report it: {what} (DELTAFOLD_TRACEBACK=1 shows where)")
        return FAULT
    return status


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser, commands = _parser(arguments[:1])
    if not arguments:
        parser.print_help(sys.stderr)
        parser.exit(WRONG)
    parsed, others = parser.parse_known_args(arguments)
    if others:  # of a command: it has the usage to be shown
        commands.choices[parsed.command].error(f"unrecognized arguments: {' '.join(others)}")
    return parsed


def _parser(
    first: Sequence[str],
) -> tuple[argparse.ArgumentParser, argparse._SubParsersAction[_help.Parser]]:
    """The parser of all commands, or of the one that the first word names: the others need not be loaded."""
    parser = _help.Parser(
        prog="deltafold",
        description="Merges recorded Chat Completions streams, and tells what is in them.",
        epilog="Each command has its own help: deltafold COMMAND --help. "
        "It tells the exit statuses; everywhere 0 is good, and 70 a fault of deltafold itself.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="tell version, backend and build, and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_help.Parser)
    for name in first if first[:1] != ["completion"] and {*first} & {*COMMANDS} else COMMANDS:
        importlib.import_module(f"._{name}", __name__).add(commands)
    return parser, commands


class _Version(argparse.Action):
    """``--version``: looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        _terminal.write(version_line().encode() + b"\n")
        _terminal.flush()
        parser.exit()


def version_line() -> str:
    """``deltafold VERSION (BACKEND backend, BUILD, PYTHON)``; the build is the tag of the wheel that was installed."""
    import platform
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        installed = distribution("deltafold")
        number = installed.version
        tags = [line[5:] for line in (installed.read_text("WHEEL") or "").splitlines() if line.startswith("Tag: ")]
    except PackageNotFoundError:
        number, tags = "of a source tree", []
    python = f"{platform.python_implementation()} {platform.python_version()}"
    build = f"build {' '.join(tags) or 'unknown'}"
    return f"deltafold {number} ({BACKEND} backend, {build}, {python} on {platform.system()} {platform.machine()})"
