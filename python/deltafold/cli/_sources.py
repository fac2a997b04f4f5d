"""Files, folders, globs and standard input, packed or not, as bytes."""

from __future__ import annotations

import glob
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple, cast

from .._errors import escape

__all__ = ["LINES", "PIECE", "Problem", "Source", "sources"]

PIECE = 64 * 1024  # bytes of one read
LONGEST = 256 * 1024 * 1024  # bytes of a record; packed data may unpack to anything
LINES = (".jsonl", ".ndjson")
FOUND = (".sse", *LINES)  # what is taken of a folder
PACKED = (".gz", ".zst")
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class Problem(NamedTuple):
    """An argument that leads to nothing."""

    name: str
    reason: str


class Source:
    """One file or standard input; ``position`` is how much of it was read, before it is unpacked."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = "standard input" if path == "-" else escape(path)
        self.live = path == "-"
        self.position = 0

    @property
    def of_lines(self) -> bool:
        """Its name says, or may as well mean, that each line is a record."""
        return self.live or bare(self.path).endswith(LINES)

    @property
    def size(self) -> int:
        """Bytes, 0 when nobody knows."""
        try:
            return 0 if self.live else os.stat(self.path).st_size
        except OSError:
            return 0

    def pieces(self) -> Iterator[bytes]:
        """The unpacked bytes as they come; raises OSError."""
        with self._opened() as raw:
            plain = io.BufferedReader(cast(Any, _Counted(raw, self)), PIECE)
            magic = plain.peek(4)[:4]
            try:
                if magic.startswith(GZIP):
                    yield from _read(gzip.GzipFile(fileobj=plain))
                elif magic == ZSTD:
                    yield from _read(_zstd(plain))
                else:
                    while piece := plain.read1(PIECE):
                        yield piece
            except (EOFError, zlib.error) as error:
                raise OSError(f"broken gzip data: {error}") from None
            except OSError:
                raise
            except Exception as error:  # zstd's own classes differ from library to library
                if type(error).__name__ != "ZstdError":
                    raise
                raise OSError(f"broken zstd data: {error}") from None

    def lines(self) -> Iterator[bytes | None]:
        """The lines without their ends; None where all that has come was given and more is waited for."""
        held: list[bytes] = []
        size = 0
        for piece in self.pieces():
            first, *others = piece.split(b"\n")
            held.append(first)
            size += len(first)
            for line in others:
                yield b"".join(held)
                held, size = [line], len(line)
            if size > LONGEST:
                raise OSError(f"a line of more than {LONGEST >> 20} MiB")
            if self.live and len(piece) < PIECE:
                yield None
        if last := b"".join(held):
            yield last

    def _opened(self) -> IO[bytes]:
        if not self.live:
            return cast("IO[bytes]", open(self.path, "rb", buffering=0))
        if sys.stdin is None:
            raise OSError("standard input is closed")
        return cast("IO[bytes]", open(sys.stdin.fileno(), "rb", buffering=0, closefd=False))


class _Counted(io.RawIOBase):
    def __init__(self, raw: IO[bytes], source: Source) -> None:
        self._raw, self._source = raw, source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
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
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith(".") and bare(name).endswith(FOUND):
                empty = False
                yield Source(os.path.join(at, name))
    if empty:
        yield Problem(escape(folder), f"no file in it ends in {', '.join(FOUND)}, or these with .gz or .zst")


def bare(path: str) -> str:
    """The name in small letters, without ``.gz`` and ``.zst``."""
    name = path.lower()
    for suffix in PACKED:
        name = name.removesuffix(suffix)
    return name


def _read(file: Any) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece


def _zstd(file: Any) -> Any:
    if sys.version_info >= (3, 14):
        from compression.zstd import ZstdFile

        return ZstdFile(file)
    try:
        import zstandard
    except ModuleNotFoundError:
        raise OSError("zstd data needs a library: pip install 'deltafold[cli]'") from None
    return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
