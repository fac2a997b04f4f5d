"""``deltafold merge``: recorded streams in, one merged object a line out.

This thread writes, and reads logs and what is packed; the threads of a pool take a batch each, of bodies, of the lines of a log
or of files, which they read too, and merge it without the lock of the interpreter. What is held at most: a batch for each
thread, and two. A body that is larger than a batch is fed as it is read, and so is standard input.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import BACKEND, ChatCompletionAccumulator, DeltafoldError, Diagnostic, NotSse
from .._backend import _merge_lines, _merge_records
from . import _help, _terminal
from ._progress import Progress
from ._sources import LINES, Problem, Source, sources

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = ["STATUS", "UNUSABLE", "add"]

COMPLETE, UNUSABLE, TRUNCATED, UPSTREAM = 0, 2, 3, 4
STATUS = {"truncated": TRUNCATED, "upstream-error": UPSTREAM}  # every other kind: UNUSABLE
RANK = (COMPLETE, TRUNCATED, UPSTREAM, UNUSABLE)
# Pure Python merges on this thread, so that Ctrl-C finds it: small batches.
BATCH_BYTES = 2 * 1024 * 1024 if BACKEND == "rust" else 64 * 1024
BATCH_BODIES = 256
BATCH_FILES = 64
# Where the threads read files too; elsewhere they would not know the file that is written to.
READS = BACKEND == "rust" and os.name == "posix"
AHEAD = 2  # batches more than threads
MOST_THREADS = 64
SHOWN = 20  # lines about what was odd, and as many about errors, before the rest is only counted

DESCRIPTION = """\
Merges recorded bodies of streamed Chat Completions responses into the chat.completion objects that the
server would have returned without streaming, and prints each as one line of JSON, in the order of the
input. A stream with an error gives what it brought until then. What was odd goes to standard error; of
more than one body there is a summary at the end.

A FILE is one body. With --field, each line of it is a record of JSON which has a body in it, of 256 MiB at
most, unless its name ends in .sse. A folder stands for all .sse, .jsonl and .ndjson files in it and below,
by name; patterns with *, ? and ** are understood also where the shell leaves them.
gzip and zstd data is unpacked, whatever its name (zstd before Python 3.14: pip install 'deltafold[cli]').
"""

EPILOG = """\
exit status:
  0    every stream is complete
  1    the output could not be written
  2    unusable input: a file that cannot be read, a record without a body, a body that is neither an event
       stream nor a JSON answer (not-sse), a payload that is no JSON object (bad-json), a limit passed
       (limit-exceeded); also a wrong command line
  3    truncated: a stream ended before [DONE] and before every choice had its finish reason
  4    upstream error: the server reported an error in the stream or instead of it
  130  interrupted by Ctrl-C; every line before is whole
  141  the reader of the output has gone
A stream counts by its first error. Of several the worst counts: 2, then 4, then 3.

examples:
  deltafold merge --pretty recorded.sse
  curl -sN … | deltafold merge
  deltafold merge logs/ > completions.jsonl
  deltafold merge --field response.body 'kafka/**/*.jsonl.gz' --on-error skip > completions.jsonl
"""


def add(commands: argparse._SubParsersAction[_help.Parser]) -> None:
    """Adds the subcommand to the parser."""
    parser = _help.command(
        commands, "merge", "print the merged chat.completion of recorded streams", DESCRIPTION, EPILOG
    )
    parser.add_argument(
        "files",
        nargs="*",
        default=["-"],
        metavar="FILE",
        help="a file, folder or pattern; - is standard input, the default",
    )
    parser.add_argument(
        "--field",
        metavar="PATH",
        type=_path,
        help="where a record has its body: names and numbers with dots between, such as response.body or choices.0.raw; "
        "a JSON pointer (/a/b) for names with dots; . for a record that is the body. The body is a text, or a list of texts",
    )
    parser.add_argument(
        "--on-error",
        choices=("keep", "skip", "fail"),
        default="keep",
        help="a body with an error: keep what it brought (the default; a record without a body gives null), skip it, "
        "or fail, which ends the work there",
    )
    parser.add_argument("-j", "--threads", type=_count, default=0, metavar="N", help="threads that merge; one a core")
    parser.add_argument("--pretty", action="store_true", help="indent the JSON for people")
    volume = parser.add_mutually_exclusive_group()
    volume.add_argument("-q", "--quiet", action="store_true", help="say nothing but what keeps a file from being read")
    volume.add_argument(
        "-v", "--verbose", action="store_true", help=f"say all that was odd, not the first {SHOWN} lines"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Merges everything and gives the exit status."""
    return _Run(arguments).run()


def _path(text: str) -> list[str]:
    if text.startswith("/"):
        return [name.replace("~1", "/").replace("~0", "~") for name in text[1:].split("/")]
    path = [] if text == "." else text.split(".")
    if "" in path:
        raise argparse.ArgumentTypeError(f"{text!r} has an empty name in it")
    return path


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of threads")
    return int(text)


Outcome = tuple[bytes | None, DeltafoldError | str | None, list[Diagnostic]]
_NotedRecord = tuple[int, int, int, DeltafoldError | str | None, list[Diagnostic], str]


class _Bodies(NamedTuple):
    names: list[str]
    merged: Callable[[], list[Outcome]]


class _Files(NamedTuple):
    sources: list[Source]
    merged: Callable[[], list[tuple[int, Outcome] | None]]


class _Records(NamedTuple):
    log: _Log
    merged: Callable[[], Any]


_Batch = _Bodies | _Files | _Records


class _Log:
    """A file of records, and how many of its lines were told of."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines = 0


class _Failed(Exception):
    """A bad body ends the work."""


class _Run:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.progress = Progress(not arguments.quiet)
        self.found: Iterable[Source | Problem] = sources(arguments.files)
        if self.progress.on:  # else a folder of a million files need not be known beforehand
            self.found = list(self.found)
            self.progress.total = sum(each.size for each in self.found if isinstance(each, Source))
        self.pool: ThreadPoolExecutor | None = None
        self.threads = min(arguments.threads or _cores(), MOST_THREADS) if BACKEND == "rust" else 0
        self.ahead = self.threads + AHEAD if self.threads else 0
        self.names: list[str] = []
        self.bodies: list[bytes] = []
        self.held = 0
        self.files: list[Source] = []
        self.waiting: deque[_Batch] = deque()
        self.printed: list[bytes] = []
        self.status = COMPLETE
        self.count = self.bytes = self.read = 0
        self.errors: Counter[str] = Counter()
        self.odd: Counter[str] = Counter()
        self.lines = {"error": 0, "odd": 0}
        self.start = time.monotonic()

    def run(self) -> int:
        try:
            for source in self.found:
                if isinstance(source, Problem):
                    self._flush()
                    self._unreadable(source.name, source.reason)
                    continue
                try:
                    self._take(source)
                except OSError as failure:
                    self._flush()
                    self._unreadable(source.name, failure.strerror or str(failure))
                self.read += source.position
            self._flush()
        except _Failed:
            pass
        finally:
            self.progress.close()
            if self.pool is not None:
                self.pool.shutdown(wait=False, cancel_futures=True)
        self._send()
        if self.count > 1 and not self.arguments.quiet:
            _terminal.say(self._summary())
        return self.status

    # Reading

    def _take(self, source: Source) -> None:
        path = self.arguments.field
        if path is not None and source.of_lines:
            self._submit_held()
            log = _Log(source.name)
            for block in source.blocks(BATCH_BYTES):
                if block is None:
                    self._flush()
                else:
                    self._submit(lambda merged: _Records(log, merged), _merge_records, *block, path)
                    self._write(self.ahead)
                    self.progress.at(self.read + source.position, self.count)
            return
        if READS and not source.live and not source.is_packed:
            if self.bodies:
                self._submit_held()
            self.files.append(source)
            if len(self.files) >= BATCH_FILES:
                self._submit_held()
                self._write(self.ahead)
                self.progress.at(self.read, self.count)
            return
        if source.live:
            self._flush()
        held, pieces = [], source.pieces()
        size = 0
        for piece in pieces:
            held.append(piece)
            size += len(piece)
            if source.live or size > BATCH_BYTES:
                break
        else:
            self._add(source.name, b"".join(held), self.read + source.position)
            return
        self._flush()
        self._stream(source, held, pieces)

    def _stream(self, source: Source, held: list[bytes], pieces: Iterator[bytes]) -> None:
        accumulator = ChatCompletionAccumulator()
        for start in held:
            accumulator.feed(start)
            self.bytes += len(start)
        held.clear()
        for piece in pieces:
            accumulator.feed(piece)
            self.bytes += len(piece)
            self.progress.at(self.read + source.position, self.count)
        accumulator.close()
        self._tell_body(source.name, (accumulator.result_json(), accumulator.error, accumulator.diagnostics))
        self._send()

    def _add(self, name: str, body: bytes, position: int) -> None:
        if self.files:
            self._submit_held()
        self.names.append(name)
        self.bodies.append(body)
        self.held += len(body)
        self.bytes += len(body)
        if self.held >= BATCH_BYTES or len(self.bodies) >= BATCH_BODIES:
            self._submit_held()
            self._write(self.ahead)
            self.progress.at(position, self.count)

    def _submit_held(self) -> None:
        if self.files:
            from .._rust import _merge_files

            files, self.files = self.files, []
            paths = [source.path for source in files]
            output = _terminal.output_file()
            self._submit(lambda merged: _Files(files, merged), _merge_files, paths, BATCH_BYTES, output)
        if self.bodies:
            names = self.names
            self._submit(lambda merged: _Bodies(names, merged), _merge_lines, self.bodies, 1, None, None)
            self.names, self.bodies, self.held = [], [], 0

    def _submit(self, batch: Callable[[Callable[[], Any]], _Batch], merge: Callable[..., Any], *arguments: Any) -> None:
        if self.threads and self.pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self.pool = ThreadPoolExecutor(self.threads, "deltafold")
            # glibc gives what is freed back to the system, to ask for it again with the next batch, unless as much was freed
            # at once before. Of this nothing is touched.
            bytes(4 * BATCH_BYTES)
        if self.pool is not None:
            self.waiting.append(batch(self.pool.submit(merge, *arguments).result))
        else:
            merged = merge(*arguments)
            self.waiting.append(batch(lambda: merged))

    # Writing

    def _flush(self) -> None:
        """Writes everything that has come."""
        self._submit_held()
        self._write(0)
        self._send()

    def _write(self, keep: int) -> None:
        """Writes what is done, until only so many batches wait."""
        while len(self.waiting) > keep:
            batch = self.waiting.popleft()
            if isinstance(batch, _Records):
                self._tell_records(batch.log, *batch.merged())
            elif isinstance(batch, _Files):
                for source, read in zip(batch.sources, batch.merged()):
                    self._tell_file(source, read)
            else:
                for name, outcome in zip(batch.names, batch.merged()):
                    self._tell_body(name, outcome)
            self._send()

    def _tell_file(self, source: Source, read: tuple[int, Outcome] | None) -> None:
        if read is not None:
            size, outcome = read
            self.bytes += size
            self.read += size
            self._tell_body(source.name, outcome)
            return
        try:
            self._stream(source, [], source.pieces())
        except OSError as failure:
            self._send()
            self._unreadable(source.name, failure.strerror or str(failure))
        self.read += source.position

    def _tell_body(self, name: str, outcome: Outcome) -> None:
        line, error, notes = outcome
        self.count += 1
        if error is None or self.arguments.on_error == "keep":
            line = b"null" if line is None else line
            self._print(line + b"\n", None)
        self._tell(name, error, notes)

    def _tell_records(
        self, log: _Log, lines: int, records: int, size: int, output: bytes, noted: list[_NotedRecord]
    ) -> None:
        self.bytes += size
        self.count += records
        written = 0
        for line, start, end, error, notes, unseen in noted:
            self._print(output[written:start])
            if error is None or self.arguments.on_error == "keep":
                self._print(output[start:end], unseen)
            written = end
            try:
                self._tell(f"{log.name}:{log.lines + line + 1}", error, notes)
            except _Failed:
                self.count -= output.count(b"\n", end)
                raise
        self._print(output[written:])
        log.lines += lines

    def _tell(self, name: str, error: DeltafoldError | str | None, notes: list[Diagnostic]) -> None:
        for note in notes:
            self.odd[note.kind] += 1
        if not self.arguments.quiet and (notes or error):
            self._send()
            for note in notes:
                where = "" if note.offset is None else f", first at byte {note.offset}"
                self._say("odd", f"{name}: {note.kind}: {note.count}{where}")
        if error is None:
            return
        hint = ""
        if isinstance(error, NotSse) and name.lower().endswith(LINES):
            hint = "; if its lines are records: --field tells where their bodies are"
        kind = error.kind if isinstance(error, DeltafoldError) else "no-body"
        self.errors[kind] += 1
        if not self.arguments.quiet:
            self._say("error", f"{name}: {error}{hint}")
        self._worse(STATUS.get(kind, UNUSABLE))

    def _print(self, lines: bytes, unseen: str | None = "") -> None:
        """Prints whole lines; ``unseen``: the characters in them that may be invisible, None when nobody knows."""
        if self.arguments.pretty:
            texts = [json.dumps(json.loads(line), indent=2, ensure_ascii=False) for line in lines.splitlines()]
            lines = "".join(f"{text}\n" for text in texts).encode()
        if unseen is None and (not lines.isascii() or b"\x7f" in lines):
            lines = _terminal.visible(lines.decode()).encode()
        elif unseen:
            lines = _terminal.visible_but(lines, unseen)
        self.printed.append(lines)

    def _send(self) -> None:
        """Writes what was printed."""
        lines = b"".join(self.printed)
        self.printed.clear()
        _terminal.write_lines(lines)

    def _unreadable(self, name: str, reason: str) -> None:
        self.errors["unreadable"] += 1
        self.progress.say(f"{name}: cannot be read: {reason}")
        self._worse(UNUSABLE)

    def _worse(self, status: int) -> None:
        self.status = max(self.status, status, key=RANK.index)
        if self.arguments.on_error == "fail":
            self._send()
            raise _Failed

    def _say(self, what: str, line: str) -> None:
        self.lines[what] += 1
        if self.arguments.verbose or self.lines[what] <= SHOWN:
            self.progress.say(line)
        elif self.lines[what] == SHOWN + 1:
            self.progress.say(f"(more of this kind is only counted; --verbose tells each {what} line)")

    def _summary(self) -> str:
        took = max(time.monotonic() - self.start, 1e-3)
        good = self.count - (self.errors.total() - self.errors["unreadable"])
        parts = [
            f"deltafold: {self.count:,} bodies, {good:,} without error; "
            f"{self.bytes / 1e6:,.1f} MB in {took:.1f} s, {self.bytes / took / 1e6:,.0f} MB/s"
        ]
        for title, counted in (("errors", self.errors), ("odd", self.odd)):
            if counted:
                parts.append(f"{title}: {', '.join(f'{kind} {count:,}' for kind, count in counted.most_common())}")
        return "; ".join(parts)


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1
