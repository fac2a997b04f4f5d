"""Files, folders, globs and standard input, packed or not, as bytes."""

from __future__ import annotations

import glob
import gzip
import io
import os
import select
import sys
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple, cast

from .._errors import escape
from . import _terminal

__all__ = ["LINES", "PIECE", "Problem", "Source", "is_same", "sources"]

PIECE = 64 * 1024  # bytes of one read
LONGEST = 256 * 1024 * 1024  # bytes of a record; packed data may unpack to anything
BODY = ".sse"
LINES = (".jsonl", ".ndjson")
FOUND = (BODY, *LINES)  # what is taken of a folder
PACKED = (".gz", ".zst")
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
BOM = b"\xef\xbb\xbf"


class Problem(NamedTuple):
    """An argument that leads to nothing."""

    name: str
    reason: str


class Source:
    """One file or standard input; ``position`` is how much of it was read, before it is unpacked."""

    def __init__(self, path: str) -> None:
        path = "-" if path in ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0") else path
        self.path = path
        self.name = "standard input" if path == "-" else escape(path)
        self.live = path == "-"
        self.position = 0

    @property
    def of_lines(self) -> bool:
        """Each line may be a record: its name does not say that it is a body."""
        return not bare(self.path).endswith(BODY)

    @property
    def is_packed(self) -> bool:
        """Its name says that it is packed."""
        return self.path.lower().endswith(PACKED)

    @property
    def size(self) -> int:
        """Bytes, 0 when nobody knows."""
        try:
            return 0 if self.live else os.stat(self.path).st_size
        except OSError:
            return 0

    def pieces(self, size: int = PIECE) -> Iterator[bytes]:
        """The unpacked bytes as they come, at most ``size`` at a time; raises OSError."""
        with self._opened() as raw:
            first = raw.read(size) or b""
            while first and len(first) < len(ZSTD) and (more := raw.read(size)):
                first += more
            self.position += len(first)
            try:
                if first.startswith(GZIP):
                    yield from _read(gzip.GzipFile(fileobj=self._after(first, raw)), size)
                elif first.startswith(ZSTD):
                    yield from _read(_zstd(self._after(first, raw)), size)
                elif first:
                    yield first
                    while piece := raw.read(size):
                        self.position += len(piece)
                        yield piece
            except (EOFError, zlib.error) as error:
                raise OSError(f"broken gzip data: {error}") from None
            except OSError:
                raise
            except Exception as error:  # zstd's own classes differ from library to library
                if type(error).__name__ != "ZstdError":
                    raise
                raise OSError(f"broken zstd data: {error}") from None

    def blocks(self, size: int) -> Iterator[tuple[bytes, bytes] | None]:
        """The lines, many at a time: the begin of a line, and bytes that end it and may hold more lines; what is behind
        their last line feed begins the next ones. None where all that has come was given and more is waited for.
        """
        held: list[bytes] = []
        length = 0
        for piece in self._gathered(size):
            if piece is None:
                yield None
                continue
            if not held and piece.startswith(BOM):
                piece = piece[len(BOM) :]
            end = piece.rfind(b"\n") + 1
            if end:
                yield b"".join(held), piece
                held, length = [], 0
            held.append(piece[end:])
            length += len(piece) - end
            if length > LONGEST:
                raise OSError(f"a line of more than {LONGEST >> 20} MiB")
        if last := b"".join(held):
            yield last, b"\n"

    def _gathered(self, size: int) -> Iterator[bytes | None]:
        """Pieces of about this size also where a pipe gives less; None where it is waited for."""
        if not self.live:
            yield from self.pieces(size)
            return
        held: list[bytes] = []
        length = 0
        for piece in self.pieces(size):
            held.append(piece)
            length += len(piece)
            waits = not _has_more()
            if waits or length >= size:
                yield b"".join(held)
                held, length = [], 0
            if waits:
                yield None
        if held:
            yield b"".join(held)

    def _after(self, first: bytes, raw: IO[bytes]) -> IO[bytes]:
        return cast("IO[bytes]", io.BufferedReader(cast(Any, _Rest(first, raw, self)), PIECE))

    def _opened(self) -> IO[bytes]:
        if not self.live:
            file = cast("IO[bytes]", open(self.path, "rb", buffering=0))  # noqa: SIM115  the caller closes it
            if _terminal.is_output(file):
                file.close()
                raise OSError("it is what is written to")
            return file
        if sys.stdin is None:
            raise OSError("standard input is closed")
        if _terminal.is_terminal(sys.stdin):
            _terminal.say("deltafold: reading from the terminal; Ctrl-D ends it")
        return cast("IO[bytes]", open(sys.stdin.fileno(), "rb", buffering=0, closefd=False))


class _Rest(io.RawIOBase):
    """The bytes that were read to know what they are, and those behind."""

    def __init__(self, first: bytes, raw: IO[bytes], source: Source) -> None:
        self._first, self._raw, self._source = first, raw, source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._first:
            data, self._first = self._first[: len(buffer)], self._first[len(buffer) :]
        else:
            data = self._raw.read(len(buffer)) or b""
            self._source.position += len(data)
        buffer[: len(data)] = data
        return len(data)


def sources(arguments: Sequence[str]) -> Iterator[Source | Problem]:
    """What the arguments name, folders and globs in the order of their names."""
    for argument in arguments:
        if argument != "-" and os.path.isdir(argument):
            yield from _folder(argument)
        elif glob.has_magic(argument) and not os.path.lexists(argument):
            found = sorted(path for path in glob.iglob(argument, recursive=True) if not os.path.isdir(path))
            yield from map(Source, found)
            if not found:
                yield Problem(escape(argument), "no file matches")
        else:
            yield Source(argument)


def _folder(folder: str) -> Iterator[Source | Problem]:
    empty = True
    closed: list[OSError] = []
    for at, folders, files in os.walk(folder, onerror=closed.append):
        yield from _closed(closed)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith(".") and bare(name).endswith(FOUND):
                empty = False
                yield Source(os.path.join(at, name))
    yield from _closed(closed)
    if empty:
        yield Problem(escape(folder), f"no file in it ends in {', '.join(FOUND)}, or these with .gz or .zst")


def _closed(failures: list[OSError]) -> Iterator[Problem]:
    """The folders that could not be read."""
    while failures:
        failure = failures.pop(0)
        yield Problem(escape(str(failure.filename)), failure.strerror or str(failure))


def is_same(one: str, other: str) -> bool:
    """Whether two paths are of one file."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def bare(path: str) -> str:
    """The name in small letters, without ``.gz`` and ``.zst``."""
    name = path.lower()
    for suffix in PACKED:
        name = name.removesuffix(suffix)
    return name


def _read(file: Any, size: int) -> Iterator[bytes]:
    while piece := file.read(size):
        yield piece


def _has_more() -> bool:
    """Whether standard input has bytes, or an end, that can be read at once."""
    try:
        return bool(select.select([sys.stdin.fileno()], [], [], 0)[0])
    except (OSError, ValueError):  # Windows asks only sockets
        return False


def _zstd(file: Any) -> Any:
    if sys.version_info >= (3, 14):
        from compression.zstd import ZstdFile

        return ZstdFile(file)
    try:
        import zstandard
    except ModuleNotFoundError:
        raise OSError("zstd data needs a library: pip install 'deltafold[cli]'") from None
    return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
