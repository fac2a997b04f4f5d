"""Watching a stream on its way: the pieces pass untouched, the accumulator sees them, and knows how it ended.

Whoever consumes a tap decides how the stream ends, and each way has its ``close_reason``:

    the source is exhausted                                             ``eof``
    the source raises                                                   ``error``
    the consumer calls ``close()`` or ``aclose()``, is cancelled while
    it waits, or lets the tap go before the end (the client is gone)    ``client-disconnect``
    the consumer calls ``close(reason)`` or ``aclose(reason)``          that reason
    one of these, but a piece could not be fed                          ``observer-error``

No fault of the observer reaches the stream: what the accumulator, the clock or ``on_close`` raises is logged once, by the
logger ``deltafold``, and kept as the tap's ``fault``. What the source raises is the stream's own and passes.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, Generic, Literal, TypeVar, overload

from ._backend import ChatCompletionAccumulator
from ._events import refuse_single
from ._types import Seen

__all__ = ["AsyncTap", "Tap", "Timing", "atap", "tap"]

T = TypeVar("T")
Clock = Callable[[], float]
OnClose = Callable[[ChatCompletionAccumulator], object]
OnCloseTimed = Callable[[ChatCompletionAccumulator, "Timing"], object]

GAP_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
CONTENT = int(Seen.CONTENT | Seen.REASONING | Seen.REFUSAL | Seen.TOOL_CALL | Seen.AUDIO)


@dataclass(frozen=True)
class Timing:
    """When things came, in seconds from the start: the call of ``tap``, unless it was given another ``start``.

    Content is text, reasoning, a refusal, a tool call or audio. Chunks that came in one piece came at one moment.

    Attributes:
        first_byte: the first piece that was not empty; None when none came.
        first_content: the first piece with content; None when none came.
        last_content: the last piece with content; None when none came.
        last_byte: the last piece that was not empty; None when none came.
        end: the end of the stream, however it came.
        gaps: how many gaps between one piece with content and the next fell into each bucket: ``gaps[i]`` are those of at
            most ``bounds[i]`` and more than ``bounds[i - 1]`` seconds, the last those of more than every bound.
        bounds: the buckets' upper bounds in seconds, the same for every stream.
    """

    first_byte: float | None
    first_content: float | None
    last_content: float | None
    last_byte: float | None
    end: float
    gaps: tuple[int, ...]
    bounds: tuple[float, ...] = GAP_BOUNDS


@overload
def tap(
    iterable: Iterable[T],
    acc: ChatCompletionAccumulator,
    on_close: OnClose | None = None,
    *,
    timing: Literal[False] = False,
) -> Tap[T]: ...
@overload
def tap(
    iterable: Iterable[T],
    acc: ChatCompletionAccumulator,
    on_close: OnCloseTimed | None = None,
    *,
    timing: Literal[True],
    clock: Clock = time.perf_counter,
    start: float | None = None,
) -> Tap[T]: ...
def tap(
    iterable: Iterable[T],
    acc: ChatCompletionAccumulator,
    on_close: Callable[..., object] | None = None,
    *,
    timing: bool = False,
    clock: Clock = time.perf_counter,
    start: float | None = None,
) -> Tap[T]:
    """The very pieces of ``iterable``, each fed to ``acc`` on its way; ``acc`` is closed however the stream ends.

    Args:
        iterable: anything that gives bytes: ``response.iter_bytes()``, a file, a list.
        acc: a fresh accumulator.
        on_close: called once at the end, with the closed accumulator; with ``timing=True`` also with the ``Timing``.
        timing: measure when bytes and content came.
        clock: gives seconds that only grow.
        start: the reading of ``clock`` that counts as 0, such as the arrival of the request; by default now.

    Returns:
        An iterator with ``close()``, which is forwarded to the source. Close it (``contextlib.closing``) to be sure when
        the end comes; one that is let go is closed when it is collected.

    Raises:
        TypeError: ``iterable`` is no iterable or a single bytes-like object, or ``on_close`` is a coroutine function.

    Example:
        >>> acc = ChatCompletionAccumulator()
        >>> b"".join(tap([b"data: [DO", b"NE]\\n\\n"], acc))
        b'data: [DONE]\\n\\n'
        >>> acc.done_seen, acc.close_reason
        (True, 'eof')
    """
    refuse_single(iterable)
    return Tap(iterable, Observer(acc, on_close, Stopwatch(clock, start) if timing else None))


@overload
def atap(
    aiterable: AsyncIterable[T],
    acc: ChatCompletionAccumulator,
    on_close: OnClose | None = None,
    *,
    timing: Literal[False] = False,
) -> AsyncTap[T]: ...
@overload
def atap(
    aiterable: AsyncIterable[T],
    acc: ChatCompletionAccumulator,
    on_close: OnCloseTimed | None = None,
    *,
    timing: Literal[True],
    clock: Clock = time.perf_counter,
    start: float | None = None,
) -> AsyncTap[T]: ...
def atap(
    aiterable: AsyncIterable[T],
    acc: ChatCompletionAccumulator,
    on_close: Callable[..., object] | None = None,
    *,
    timing: bool = False,
    clock: Clock = time.perf_counter,
    start: float | None = None,
) -> AsyncTap[T]:
    """``tap`` over an asynchronous source, such as ``response.aiter_bytes()``; its end is ``aclose()``.

    ``on_close`` is a plain function all the same: it also runs where nothing can be awaited.
    """
    refuse_single(aiterable)
    return AsyncTap(aiterable, Observer(acc, on_close, Stopwatch(clock, start) if timing else None))


class Observer:
    """The accumulator at a stream's side: feeds it, closes it once, and keeps its faults to itself."""

    __slots__ = ("_acc", "_on_close", "_stopwatch", "_torn", "fault", "timing")

    def __init__(
        self, acc: ChatCompletionAccumulator, on_close: Callable[..., object] | None, stopwatch: Stopwatch | None
    ) -> None:
        if iscoroutinefunction(on_close):
            raise TypeError("on_close must be a plain function, not a coroutine function")
        self._acc: ChatCompletionAccumulator | None = acc
        self._on_close = on_close
        self._stopwatch = stopwatch
        self._torn = False  # the accumulator lacks a piece
        self.fault: Exception | None = None
        self.timing: Timing | None = None

    def feed(self, piece: Any) -> None:
        acc = self._acc
        if acc is None:
            return
        try:
            if self._stopwatch is None:
                acc.feed(piece)
            else:
                now = self._stopwatch.read()
                self._stopwatch.note(now, acc.feed(piece), len(piece))
        except Exception as error:
            self._torn = True
            self._fail(error)

    def finish(self, reason: str) -> None:
        """The first call counts; what is not needed any more is let go."""
        acc, on_close, stopwatch = self._acc, self._on_close, self._stopwatch
        if acc is None:
            return
        self._acc = self._on_close = self._stopwatch = None
        try:
            acc.close("observer-error" if self._torn else reason)
        except Exception as error:
            self._fail(error)
        try:
            if stopwatch is not None:
                self.timing = stopwatch.timing()
        except Exception as error:
            self._fail(error)
        try:
            if on_close is not None:
                if stopwatch is None:
                    on_close(acc)
                else:
                    on_close(acc, self.timing)
        except Exception as error:
            self._fail(error)

    @property
    def finished(self) -> bool:
        return self._acc is None

    def _fail(self, error: Exception) -> None:
        if self.fault is None:
            self.fault = error
            report(error)
            error.with_traceback(None)  # its frames hold the piece


def report(error: Exception) -> None:
    """Logs a fault of the observer."""
    try:
        import logging

        logging.getLogger("deltafold").error("observing a stream failed; the stream goes on", exc_info=error)
    except Exception:
        pass  # a broken log handler is no reason to break the stream either


class Stopwatch:
    """Collects a ``Timing``."""

    __slots__ = ("_clock", "_first_byte", "_first_content", "_gaps", "_last_byte", "_last_content", "_start")

    def __init__(self, clock: Clock, start: float | None) -> None:
        self._clock = clock
        self._start = clock() if start is None else start
        self._first_byte: float | None = None
        self._first_content: float | None = None
        self._last_content: float | None = None
        self._last_byte: float | None = None
        self._gaps = [0] * (len(GAP_BOUNDS) + 1)

    def read(self) -> float:
        return self._clock() - self._start

    def note(self, now: float, seen: int, nbytes: int) -> None:
        if not nbytes:
            return
        if self._first_byte is None:
            self._first_byte = now
        self._last_byte = now
        if seen & CONTENT:
            if self._last_content is None:
                self._first_content = now
            else:
                self._gaps[bisect_left(GAP_BOUNDS, now - self._last_content)] += 1
            self._last_content = now

    def timing(self) -> Timing:
        return Timing(
            self._first_byte, self._first_content, self._last_content, self._last_byte, self.read(), tuple(self._gaps)
        )


class _Tapped:
    """What both kinds of tap tell about their observer."""

    __slots__ = ("__weakref__", "_observer")
    _observer: Observer

    @property
    def timing(self) -> Timing | None:
        """The ``Timing`` once the stream has ended; None before, and without ``timing=True``."""
        return self._observer.timing

    @property
    def fault(self) -> Exception | None:
        """The first thing that the accumulator, the clock or ``on_close`` raised."""
        return self._observer.fault


class Tap(_Tapped, Generic[T]):
    """What ``tap`` gives: an iterator over the source's pieces."""

    __slots__ = ("_iterable", "_iterator")

    def __init__(self, iterable: Iterable[T], observer: Observer) -> None:
        self._iterator: Iterator[T] | None = iter(iterable)
        self._iterable: Iterable[T] | None = iterable
        self._observer = observer

    def __iter__(self) -> Tap[T]:
        return self

    def __next__(self) -> T:
        if self._iterator is None:
            raise StopIteration
        try:
            piece = next(self._iterator)
        except BaseException as error:
            self._observer.finish(end_of(error))
            raise
        self._observer.feed(piece)
        return piece

    def close(self, reason: str = "client-disconnect") -> None:
        """Ends the stream: closes the accumulator, then the source. A second call does nothing.

        Args:
            reason: the accumulator's ``close_reason``, unless the stream has ended before.
        """
        iterator, iterable = self._iterator, self._iterable
        self._iterator = self._iterable = None
        self._observer.finish(reason)
        try:
            close(iterator)
        finally:
            if iterable is not iterator:
                close(iterable)

    def __del__(self) -> None:
        if getattr(self, "_observer", None) is not None and not self._observer.finished:
            self.close()


class AsyncTap(_Tapped, Generic[T]):
    """What ``atap`` gives: an asynchronous iterator over the source's pieces."""

    __slots__ = ("_aiterable", "_aiterator")

    def __init__(self, aiterable: AsyncIterable[T], observer: Observer) -> None:
        self._aiterator: AsyncIterator[T] | None = aiterable.__aiter__()
        self._aiterable: AsyncIterable[T] | None = aiterable
        self._observer = observer

    def __aiter__(self) -> AsyncTap[T]:
        return self

    async def __anext__(self) -> T:
        if self._aiterator is None:
            raise StopAsyncIteration
        try:
            piece = await self._aiterator.__anext__()
        except BaseException as error:
            self._observer.finish(end_of(error))
            raise
        self._observer.feed(piece)
        return piece

    async def aclose(self, reason: str = "client-disconnect") -> None:
        """Ends the stream: closes the accumulator, then the source. A second call does nothing.

        Args:
            reason: the accumulator's ``close_reason``, unless the stream has ended before.
        """
        aiterator, aiterable = self._aiterator, self._aiterable
        self._aiterator = self._aiterable = None
        self._observer.finish(reason)
        try:
            await aclose(aiterator)
        finally:
            if aiterable is not aiterator:
                await aclose(aiterable)

    def __del__(self) -> None:
        # nothing can be awaited here; an asynchronous generator that is let go with this is closed by its event loop
        if getattr(self, "_observer", None) is not None:
            self._observer.finish("client-disconnect")


def end_of(error: BaseException) -> str:
    """The ``close_reason`` for what came out of a source."""
    if isinstance(error, (StopIteration, StopAsyncIteration)):
        return "eof"
    if isinstance(error, (Exception, KeyboardInterrupt, SystemExit)):
        return "error"
    return "client-disconnect"  # GeneratorExit, and the cancellation of asyncio and trio


def close(source: Any) -> None:
    forward = getattr(source, "close", None)
    if forward is not None:
        forward()


async def aclose(source: Any) -> None:
    forward = getattr(source, "aclose", None)
    if forward is not None:
        await forward()
