"""``deltafold bench``: the user's own streams through deltafold and what else is installed."""

from __future__ import annotations

import argparse
import gc
import importlib
import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from .._errors import escape
from . import _draw, _events, _help, _terminal
from ._contestants import Run, expert_orjson, litellm_builder, openai_python
from ._merge import UNUSABLE
from ._sources import Problem, is_same, sources

__all__ = ["add"]

TURN = 0.02  # seconds of one contestant's turn, at least

DESCRIPTION = """\
Merges each FILE, cut at its events as a network delivers them, with deltafold (both implementations) and,
where they are installed, with openai-python, litellm, and orjson with a merge written by hand: CPU time a
chunk, throughput, and how much the process grew while merging. All take turns, and the least time of each
counts, so that a busy machine hardly shows. Without FILE: a stream of 500 chunks made for this.

The others do not do the same: openai and litellm know fewer members, the merge by hand the common ones
alone, and none of them survives what deltafold calls a leniency. One that fails on a stream says so.
"""

EPILOG = """\
exit status: 0 done, 1 the output could not be written, 2 a file cannot be read or a wrong command line,
130 Ctrl-C, 141 the reader of the output has gone

examples:
  deltafold bench recorded.sse
  deltafold bench --svg speed.svg logs/
"""


def _deltafold(backend: str) -> Callable[[], Run]:
    def make() -> Run:
        accumulator = importlib.import_module(f"deltafold._{backend}").ChatCompletionAccumulator

        def run(reads: list[bytes]) -> Any:
            acc = accumulator()
            for read in reads:
                acc.feed(read)
            acc.close()
            return acc.result()

        return run

    return make


CONTESTANTS: dict[str, Callable[[], Run]] = {
    "deltafold rust": _deltafold("rust"),
    "deltafold pure": _deltafold("pure"),
    "orjson + merge by hand": expert_orjson,
    "openai-python": openai_python,
    "litellm": litellm_builder,
}


def add(commands: argparse._SubParsersAction[_help.Parser]) -> None:
    """Adds the subcommand to the parser."""
    parser = _help.command(commands, "bench", "measure deltafold and others on your streams", DESCRIPTION, EPILOG)
    parser.add_argument("files", nargs="*", metavar="FILE", help="a recorded body, a folder or a pattern")
    parser.add_argument("--rounds", type=_rounds, default=7, metavar="N", help="turns of each (default 7)")
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="only those with one of these words, with commas between"
    )
    parser.add_argument("--svg", metavar="PAGE", help="draw the times a chunk into this file")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def _rounds(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:9])):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of turns")
    return int(text[:9])


def run(arguments: argparse.Namespace) -> int:
    """Measures and gives the exit status."""
    words = arguments.only.split(",")
    if not any(word in name for word in words for name in CONTESTANTS):
        _terminal.say(f"deltafold bench: none of {', '.join(CONTESTANTS)} has {escape(arguments.only)} in its name")
        return UNUSABLE
    bodies = []
    for source in sources(arguments.files):
        if arguments.svg and not isinstance(source, Problem) and is_same(arguments.svg, source.path):
            _terminal.say(f"{escape(arguments.svg)}: cannot be written: it is what is read")
            return UNUSABLE
        try:
            if isinstance(source, Problem):
                raise OSError(source.reason)
            bodies.append(b"".join(source.pieces()))
        except OSError as failure:
            _terminal.say(f"{source.name}: cannot be read: {failure.strerror or failure}")
            return UNUSABLE
    streams = [_reads(body) for body in bodies or [_made()]]
    if arguments.memory_of:
        _terminal.write(json.dumps(_growth(CONTESTANTS[arguments.memory_of](), streams)).encode())
        return 0
    runs, failed = {}, {}
    for name, make in CONTESTANTS.items():
        if any(word in name for word in words):
            try:
                runs[name] = make()
                for stream in streams:
                    runs[name](stream)
            except ModuleNotFoundError as error:
                runs.pop(name, None)
                failed[name] = f"not installed ({error.name})"
            except Exception as error:  # whatever a library raises is its answer
                runs.pop(name, None)
                failed[name] = f"fails: {escape(f'{type(error).__name__}: {error}', 90)}"
    chunks = max(sum(map(len, streams)), 1)
    size = sum(len(read) for stream in streams for read in stream)
    least = _measure(runs, streams, arguments.rounds)
    rows = []
    for name, seconds in least.items():
        grown = _memory(name, arguments.files)
        memory = "-" if grown is None else f"{grown / 1e6:.1f}"
        rate, ratio = size / seconds / 1e6, seconds / next(iter(least.values()))
        rows.append([name, f"{seconds / chunks * 1e6:.2f}", f"{rate:,.0f}", memory, f"{ratio:.1f}"])
    title = f"{len(streams)} stream{'s' * (len(streams) != 1)}, {chunks:,} events, {size:,} bytes"
    _draw.print_table(title, ["", "µs a chunk", "MB/s", "grew by, MB", "times the first"], rows)
    for name, reason in failed.items():
        _terminal.write(f"{name}: {reason}\n".encode())
    if arguments.svg and least:
        drawing = _draw.bars(f"CPU time, {title}", {n: s / chunks * 1e6 for n, s in least.items()}, "µs a chunk")
        try:
            with open(arguments.svg, "w", encoding="utf-8") as file:
                file.write(drawing)
        except OSError as failure:
            _terminal.say(f"{escape(arguments.svg)}: cannot be written: {failure.strerror}")
            return _terminal.UNWRITABLE
    return 0


def _made() -> bytes:
    from ..unfold import unfold

    words = " ".join(f"word{at}" for at in range(1500))
    message = {"role": "assistant", "content": words}
    usage = {"prompt_tokens": 9, "completion_tokens": 1500, "total_tokens": 1509}
    head = {"id": "chatcmpl-bench", "object": "chat.completion", "created": 1767225600, "model": "gpt-4o"}
    choices = [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}]
    return b"".join(unfold({**head, "choices": choices, "usage": usage}, chunk_chars=27))


def _reads(body: bytes) -> list[bytes]:
    bounds = [0, *_events.starts(body), len(body)] if body else []
    return [body[start:end] for start, end in itertools.pairwise(bounds)]


def _measure(runs: dict[str, Run], streams: list[list[bytes]], rounds: int) -> dict[str, float]:
    """The least CPU seconds that each needed for all streams."""

    def timed(run: Run, loops: int) -> float:
        gc.collect()
        gc.disable()
        start = time.process_time()
        for _ in range(loops):
            for stream in streams:
                run(stream)
        took = time.process_time() - start
        gc.enable()
        return max(took / loops, 1e-9)

    least = {name: timed(run, 1) for name, run in runs.items()}
    loops = {name: max(1, int(TURN / seconds)) for name, seconds in least.items()}
    for _ in range(max(rounds - 1, 0)):
        for name, run in runs.items():
            least[name] = min(least[name], timed(run, loops[name]))
    return least


def _memory(name: str, files: list[str]) -> float | None:
    """Bytes by which a process of its own grew while it merged; None where the system does not tell."""
    if not os.path.exists("/proc/self/clear_refs") or "-" in files:
        return None
    import subprocess

    command = [sys.executable, "-m", "deltafold", "bench", "--memory-of", name, "--", *files]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    try:
        return float(done.stdout)
    except ValueError:
        return None


def _growth(run: Run, streams: list[list[bytes]]) -> int | None:
    """How far the peak of the resident memory lies above what was used before."""
    run(_reads(_made()))  # what a library loads at its first use is not the stream's

    def kib(name: str) -> int:
        with open("/proc/self/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(name))

    gc.collect()
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # resets the peak
        before = kib("VmRSS")
        for stream in streams:
            run(stream)
        return max(kib("VmHWM") - before, 0) * 1024
    except OSError:
        return None
