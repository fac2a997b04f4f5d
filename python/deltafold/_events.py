"""Events from any source of bytes, over either implementation."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator

from ._backend import SSEDecoder
from ._types import Limits, ServerSentEvent

__all__ = ["aiter_events", "iter_events"]

Piece = bytes | bytearray | memoryview


def iter_events(
    pieces: Iterable[Piece], limits: Limits | None = None, flush_incomplete: bool = False
) -> Iterator[ServerSentEvent]:
    """The events of a stream, each as soon as the pieces so far complete it.

    Args:
        pieces: the stream's bytes, cut anywhere: ``response.iter_bytes()``, an open file's ``iter(lambda: f.read(8192), b"")``.
        limits: as for ``SSEDecoder``.
        flush_incomplete: as for ``SSEDecoder``.

    Raises:
        TypeError: ``pieces`` is a single bytes-like object, or a piece is none.
        LimitExceeded: an event is larger than ``max_event_bytes``; the events before it were given.

    Example:
        >>> [event.data for event in iter_events([b"data: a\\n", b"\\ndata: b\\n\\n"])]
        ['a', 'b']
    """
    decoder = SSEDecoder(limits, flush_incomplete)
    refuse_single(pieces)
    return _events(decoder, pieces)


def aiter_events(
    pieces: AsyncIterable[Piece], limits: Limits | None = None, flush_incomplete: bool = False
) -> AsyncIterator[ServerSentEvent]:
    """``iter_events`` over an asynchronous source, such as ``response.aiter_bytes()``."""
    decoder = SSEDecoder(limits, flush_incomplete)
    refuse_single(pieces)
    return _aevents(decoder, pieces)


def refuse_single(pieces: object) -> None:
    if isinstance(pieces, (bytes, bytearray, memoryview, str)):
        raise TypeError(f"pieces must be an iterable of bytes, not {type(pieces).__name__}; put it in a list")


def _events(decoder: SSEDecoder, pieces: Iterable[Piece]) -> Iterator[ServerSentEvent]:
    for piece in pieces:
        yield from decoder.feed(piece)
    yield from decoder.close()


async def _aevents(decoder: SSEDecoder, pieces: AsyncIterable[Piece]) -> AsyncIterator[ServerSentEvent]:
    async for piece in pieces:
        for event in decoder.feed(piece):
            yield event
    for event in decoder.close():
        yield event
