"""``deltafold merge``: recorded streams in, one merged object a line out."""

from __future__ import annotations

import argparse
import json

from .. import ChatCompletionAccumulator
from .._errors import escape
from . import _terminal

__all__ = ["add"]

COMPLETE, UNUSABLE, TRUNCATED, UPSTREAM = 0, 2, 3, 4
STATUS = {"truncated": TRUNCATED, "upstream-error": UPSTREAM}  # every other kind: UNUSABLE
RANK = (COMPLETE, TRUNCATED, UPSTREAM, UNUSABLE)

DESCRIPTION = """\
Merges each FILE, the recorded body of a streamed Chat Completions response, into the chat.completion
that the server would have returned without streaming, and prints it as one line of JSON.
A stream with an error gives what it brought until then. What was odd goes to standard error.
"""

EPILOG = """\
exit status:
  0    every stream is complete
  1    the output could not be written
  2    unusable input: a file that cannot be read, a body that is neither an event stream nor a JSON
       answer (not-sse), a payload that is no JSON object (bad-json), a limit passed (limit-exceeded);
       also a wrong command line
  3    truncated: a stream ended before [DONE] and before every choice had its finish reason
  4    upstream error: the server reported an error in the stream or instead of it
  130  interrupted by Ctrl-C
  141  the reader of the output has gone
A stream counts by its first error. Of several files the worst counts: 2, then 4, then 3.

examples:
  deltafold merge --pretty recorded.sse
  curl -sN … | deltafold merge
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand to the parser."""
    parser = commands.add_parser(
        "merge",
        help="print the merged chat.completion of recorded streams",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "files", nargs="*", default=["-"], metavar="FILE", help="a recorded body; - is standard input, the default"
    )
    parser.add_argument("--pretty", action="store_true", help="indent the JSON for people")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Merges every file and gives the exit status."""
    return max((_merge(path, arguments.pretty) for path in arguments.files), key=RANK.index)


def _merge(path: str, pretty: bool) -> int:
    name = "standard input" if path == "-" else escape(path)
    accumulator = ChatCompletionAccumulator()
    try:
        for piece in _terminal.pieces(path):
            accumulator.feed(piece)
    except OSError as failure:
        _terminal.say(f"{name}: cannot be read: {failure.strerror or failure}")
        return UNUSABLE
    accumulator.close()
    _print(accumulator.result_json(), pretty)
    _report(name, accumulator)
    return COMPLETE if accumulator.error is None else STATUS.get(accumulator.error.kind, UNUSABLE)


def _print(line: bytes, pretty: bool) -> None:
    text = json.dumps(json.loads(line), indent=2, ensure_ascii=False) if pretty else line.decode()
    _terminal.write(_terminal.visible(text).encode() + b"\n")
    _terminal.flush()


def _report(name: str, accumulator: ChatCompletionAccumulator) -> None:
    for kind, count, offset in accumulator.diagnostics:
        where = "" if offset is None else f", first at byte {offset}"
        _terminal.say(f"{name}: {kind}: {count}{where}")
    if accumulator.error is not None:
        _terminal.say(f"{name}: {accumulator.error}")
