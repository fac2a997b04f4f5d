"""tap and atap: the same pieces, the right end, and no fault of the observer in the stream."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import logging
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import deltafold
from conftest import Backend, feeds
from deltafold import Timing, atap, tap


def chunk(delta: str, finish_reason: str = "null") -> bytes:
    return b'data: {"choices":[{"index":0,"delta":%b,"finish_reason":%b}]}\n\n' % (
        delta.encode(),
        finish_reason.encode(),
    )


HELLO = chunk('{"role":"assistant","content":""}')
PIECES = [HELLO, chunk('{"content":"Hel"}'), chunk('{"content":"lo"}'), chunk("{}", '"stop"'), b"data: [DONE]\n\n"]


class Source:
    """Gives pieces, then perhaps raises; knows whether it was closed."""

    def __init__(self, pieces: list[Any], error: BaseException | None = None) -> None:
        self.pieces = iter(pieces)
        self.error = error
        self.closed = 0

    def __iter__(self) -> Source:
        return self

    def __next__(self) -> Any:
        for piece in self.pieces:
            return piece
        raise StopIteration if self.error is None else self.error

    def close(self) -> None:
        self.closed += 1


class AsyncSource(Source):
    def __aiter__(self) -> AsyncSource:
        return self

    async def __anext__(self) -> Any:
        for piece in self.pieces:
            return piece
        raise StopAsyncIteration if self.error is None else self.error

    async def aclose(self) -> None:
        self.closed += 1


def run_sync(source: Any, acc: Any, stop_after: int | None = None, **options: Any) -> list[Any]:
    got = []
    with contextlib.closing(tap(source, acc, **options)) as pieces:
        for piece in pieces:
            got.append(piece)
            if len(got) == stop_after:
                break
    return got


def run_async(source: Any, acc: Any, stop_after: int | None = None, **options: Any) -> list[Any]:
    async def main() -> list[Any]:
        got = []
        async with contextlib.aclosing(atap(source, acc, **options)) as pieces:
            async for piece in pieces:
                got.append(piece)
                if len(got) == stop_after:
                    break
        return got

    return asyncio.run(main())


BOTH = pytest.mark.parametrize(
    ("run", "source_of"), [pytest.param(run_sync, Source, id="tap"), pytest.param(run_async, AsyncSource, id="atap")]
)


@BOTH
def test_the_very_same_pieces_and_the_answer(
    backend: Backend, run: Callable[..., Any], source_of: type[Source]
) -> None:
    for pieces in feeds(b"".join(PIECES)):
        acc, closed = backend.ChatCompletionAccumulator(), []
        got = run(source_of(pieces), acc, on_close=closed.append)
        assert len(got) == len(pieces)
        assert all(a is b for a, b in zip(got, pieces))
        assert closed == [acc]
        assert (acc.close_reason, acc.complete, acc.error, acc.text()) == ("eof", True, None, "Hello")


@BOTH
def test_each_kind_of_bytes(backend: Backend, run: Callable[..., Any], source_of: type[Source]) -> None:
    pieces = [bytearray(HELLO), memoryview(PIECES[1]), *PIECES[2:]]
    acc = backend.ChatCompletionAccumulator()
    assert [type(piece) for piece in run(source_of(pieces), acc)] == [bytearray, memoryview, bytes, bytes, bytes]
    assert acc.text() == "Hello"


@BOTH
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param(ConnectionResetError("cut"), "error", id="cut"),
        pytest.param(TimeoutError(), "error", id="timeout"),
        pytest.param(KeyboardInterrupt(), "error", id="interrupt"),
        pytest.param(asyncio.CancelledError(), "client-disconnect", id="cancelled"),
        pytest.param(GeneratorExit(), "client-disconnect", id="generator-exit"),
    ],
)
def test_what_the_source_raises_passes(
    backend: Backend, run: Callable[..., Any], source_of: type[Source], error: BaseException, reason: str
) -> None:
    acc, closed, source = backend.ChatCompletionAccumulator(), [], source_of(PIECES[:2], error)
    with pytest.raises(type(error)) as caught:
        run(source, acc, on_close=closed.append)
    if run is run_sync:
        assert caught.value is error
    assert (acc.close_reason, acc.text(), acc.error.kind) == (reason, "Hel", "truncated")
    assert closed == [acc]
    assert source.closed == 1


@BOTH
def test_a_consumer_that_stops_is_a_client_that_left(
    backend: Backend, run: Callable[..., Any], source_of: type[Source]
) -> None:
    acc, closed, source = backend.ChatCompletionAccumulator(), [], source_of(PIECES)
    assert run(source, acc, stop_after=2, on_close=closed.append) == PIECES[:2]
    assert (acc.close_reason, acc.text()) == ("client-disconnect", "Hel")
    assert closed == [acc]
    assert source.closed == 1


@BOTH
def test_close_is_forwarded_also_after_the_end(run: Callable[..., Any], source_of: type[Source]) -> None:
    acc, source = deltafold.ChatCompletionAccumulator(), source_of(PIECES)
    run(source, acc)
    assert source.closed == 1
    assert acc.close_reason == "eof"


def test_close_before_the_first_piece_and_twice(backend: Backend) -> None:
    acc, closed, source = backend.ChatCompletionAccumulator(), [], Source(PIECES)
    pieces = tap(source, acc, closed.append)
    pieces.close()
    pieces.close()
    assert (acc.close_reason, closed, source.closed) == ("client-disconnect", [acc], 1)
    assert list(pieces) == []


def test_close_with_a_word_of_ones_own(backend: Backend) -> None:
    async def main() -> None:
        acc = backend.ChatCompletionAccumulator()
        await atap(AsyncSource(PIECES), acc).aclose("timeout")
        assert acc.close_reason == "timeout"

    acc = backend.ChatCompletionAccumulator()
    pieces = tap(PIECES, acc)
    pieces.close("budget")
    assert acc.close_reason == "budget"
    acc = backend.ChatCompletionAccumulator()
    pieces = tap(PIECES, acc)
    list(pieces)
    pieces.close("budget")
    assert acc.close_reason == "eof", "the stream had ended before"
    asyncio.run(main())


def test_aclose_before_the_first_piece_and_twice(backend: Backend) -> None:
    async def main() -> None:
        acc, closed, source = backend.ChatCompletionAccumulator(), [], AsyncSource(PIECES)
        pieces = atap(source, acc, closed.append)
        await pieces.aclose()
        await pieces.aclose()
        assert (acc.close_reason, closed, source.closed) == ("client-disconnect", [acc], 1)
        assert [piece async for piece in pieces] == []

    asyncio.run(main())


def test_an_iterable_that_is_closed_apart_from_its_iterator() -> None:
    class Body(Source):
        """As WSGI has it: close() is the iterable's."""

        def __iter__(self) -> Any:
            return iter(PIECES)

    body = Body([])
    run_sync(body, deltafold.ChatCompletionAccumulator(), stop_after=1)
    assert body.closed == 1


def test_a_source_whose_close_raises_is_not_hushed_up() -> None:
    class Stubborn(Source):
        def close(self) -> None:
            raise OSError("no")

    acc = deltafold.ChatCompletionAccumulator()
    pieces = tap(Stubborn(PIECES), acc)
    with pytest.raises(OSError, match="no"):
        pieces.close()
    assert acc.close_reason == "client-disconnect"


def test_a_tap_that_is_let_go_closes(backend: Backend) -> None:
    acc, closed, source = backend.ChatCompletionAccumulator(), [], Source(PIECES)
    for _ in tap(source, acc, closed.append):
        break
    gc.collect()
    assert (acc.close_reason, closed, source.closed) == ("client-disconnect", [acc], 1)


def test_an_asynchronous_tap_that_is_let_go_closes(backend: Backend) -> None:
    ended = []

    async def source() -> AsyncIterator[bytes]:
        try:
            for piece in PIECES:
                yield piece
        finally:
            ended.append(True)

    async def main() -> None:
        acc, closed = backend.ChatCompletionAccumulator(), []
        async for _ in atap(source(), acc, closed.append):
            break
        gc.collect()
        assert (acc.close_reason, closed) == ("client-disconnect", [acc])
        await asyncio.sleep(0.01)  # the loop closes the generator
        assert ended == [True]

    asyncio.run(main())


def test_a_task_that_is_cancelled_while_it_waits(backend: Backend) -> None:
    ended = []

    async def source() -> AsyncIterator[bytes]:
        yield PIECES[1]
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def main() -> None:
        acc, got = backend.ChatCompletionAccumulator(), asyncio.Event()

        async def consume() -> None:
            async for _ in atap(source(), acc):
                got.set()

        task = asyncio.create_task(consume())
        await got.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (acc.close_reason, acc.text(), ended) == ("client-disconnect", "Hel", [True])

    asyncio.run(main())


# Faults of the observer


class Broken:
    """An accumulator that raises."""

    def feed(self, piece: bytes) -> int:
        raise RuntimeError("feed")

    def close(self, reason: str) -> int:
        raise RuntimeError("close")


@BOTH
def test_an_accumulator_that_raises(
    run: Callable[..., Any], source_of: type[Source], caplog: pytest.LogCaptureFixture
) -> None:
    closed: list[Any] = []
    acc = Broken()
    assert run(source_of(PIECES), acc, on_close=closed.append) == PIECES
    assert closed == [acc]
    assert [(r.name, r.levelno, str(r.exc_info[1])) for r in caplog.records if r.exc_info] == [
        ("deltafold", logging.ERROR, "feed")
    ]


@BOTH
def test_an_on_close_that_raises(
    backend: Backend, run: Callable[..., Any], source_of: type[Source], caplog: pytest.LogCaptureFixture
) -> None:
    def on_close(acc: Any) -> None:
        raise ZeroDivisionError

    acc = backend.ChatCompletionAccumulator()
    assert run(source_of(PIECES), acc, on_close=on_close) == PIECES
    assert acc.close_reason == "eof"
    assert ["observing a stream failed" in r.getMessage() for r in caplog.records] == [True]


@BOTH
@pytest.mark.parametrize("odd", ["text", None, 7, ["x"]])
def test_a_piece_of_another_type_passes_and_is_told(
    backend: Backend, run: Callable[..., Any], source_of: type[Source], odd: Any, caplog: pytest.LogCaptureFixture
) -> None:
    acc = backend.ChatCompletionAccumulator()
    pieces = [PIECES[0], odd, *PIECES[1:], odd]
    assert run(source_of(pieces), acc) == pieces
    assert (acc.close_reason, acc.text(), acc.complete) == ("observer-error", "Hello", True)
    assert len(caplog.records) == 1, "once, not for each piece"


def test_the_fault_is_kept_without_its_frames() -> None:
    pieces = tap(["text"], deltafold.ChatCompletionAccumulator())
    assert pieces.fault is None
    assert list(pieces) == ["text"]
    assert isinstance(pieces.fault, TypeError)
    assert pieces.fault.__traceback__ is None


def test_a_log_handler_that_raises_breaks_nothing() -> None:
    class Filter(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise OSError

    log, broken = logging.getLogger("deltafold"), Filter()
    log.addFilter(broken)
    try:
        assert list(tap(["text"], deltafold.ChatCompletionAccumulator())) == ["text"]
    finally:
        log.removeFilter(broken)


def test_an_accumulator_that_its_owner_closed() -> None:
    acc = deltafold.ChatCompletionAccumulator()
    acc.close("mine")
    assert list(tap(PIECES, acc)) == PIECES
    assert acc.close_reason == "mine"


@pytest.mark.parametrize("function", [tap, atap])
def test_wrong_arguments_are_told_at_once(function: Any) -> None:
    async def on_close(acc: Any) -> None: ...

    acc = deltafold.ChatCompletionAccumulator()
    with pytest.raises(TypeError, match="plain function"):
        function([], acc, on_close)
    with pytest.raises(TypeError, match="not bytes"):
        function(b"data: ", acc)


def test_nothing_is_held_longer_than_needed() -> None:
    class Piece(bytearray):
        pass

    class OnClose:
        def __call__(self, acc: Any) -> None: ...

    def source() -> Iterator[Piece]:
        for piece in PIECES:
            yield Piece(piece)

    acc, on_close = deltafold.ChatCompletionAccumulator(), OnClose()
    watched, told = weakref.ref(acc), weakref.ref(on_close)
    pieces = tap(map(Piece, PIECES), acc, on_close)
    del acc, on_close
    for piece in pieces:
        seen = weakref.ref(piece)
        del piece
        assert seen() is None, "the consumer let the piece go"
        assert watched() is not None
    assert watched() is None
    assert told() is None


# Timing


class Clock:
    """Ticks when told."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


PLAN = [  # seconds to wait, piece
    (0.5, b": ping\n\n"),
    (0.5, HELLO),
    (1.0, chunk('{"reasoning_content":"Hm"}')),
    (1 / 1024, chunk('{"content":"a"}') + chunk('{"content":"b"}')),
    (1 / 32, chunk('{"tool_calls":[{"index":0,"id":"c","function":{"name":"f"}}]}')),
    (60.0, chunk('{"content":"c"}')),
    (0.25, chunk("{}", '"stop"')),
    (0.25, b""),
]


def played(clock: Clock) -> Iterator[bytes]:
    for wait, piece in PLAN:
        clock.now += wait
        yield piece
    clock.now += 2


def test_timing(backend: Backend) -> None:
    clock, told = Clock(), []
    pieces = tap(
        played(clock),
        backend.ChatCompletionAccumulator(),
        lambda acc, timing: told.append((acc.text(), timing)),
        timing=True,
        clock=clock,
    )
    assert pieces.timing is None
    for _ in pieces:
        pass
    timing = pieces.timing
    assert told == [("abc", timing)]
    assert isinstance(timing, Timing)
    times = [timing.first_byte, timing.first_content, timing.last_content, timing.last_byte, timing.end]
    assert times == [0.5, 2.0, 62 + 33 / 1024, 62.25 + 33 / 1024, 64.5 + 33 / 1024]
    assert timing.bounds == (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    assert len(timing.gaps) == len(timing.bounds) + 1
    assert {i: n for i, n in enumerate(timing.gaps) if n} in (
        {0: 1, 5: 1, 13: 1},
        {1: 1, 5: 1, 13: 1},
    )  # 0.001 in floats
    with pytest.raises(dataclasses.FrozenInstanceError):
        timing.end = 0.0  # type: ignore[misc]


def test_a_gap_of_just_the_bound_is_within_it() -> None:
    clock = Clock()
    clock.now = 0.0

    def source() -> Iterator[bytes]:
        for now in (0.0, 0.5, 1.5, 3.5, 8.5, 18.5, 28.75):  # gaps of 0.5, 1, 2, 5, 10 and 10.25
            clock.now = now
            yield chunk('{"content":"a"}')

    pieces = tap(source(), deltafold.ChatCompletionAccumulator(), timing=True, clock=clock)
    list(pieces)
    assert pieces.timing is not None
    assert pieces.timing.gaps == (0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1)


def test_timing_from_the_arrival_of_the_request() -> None:
    async def main() -> Timing | None:
        clock = Clock()

        async def source() -> AsyncIterator[bytes]:
            for piece in played(clock):
                yield piece

        acc = deltafold.ChatCompletionAccumulator()
        pieces = atap(source(), acc, timing=True, clock=clock, start=90.0)
        async for _ in pieces:
            pass
        return pieces.timing

    timing = asyncio.run(main())
    assert timing is not None
    assert timing.first_byte == 10.5


def test_timing_of_nothing() -> None:
    pieces = tap([], deltafold.ChatCompletionAccumulator(), timing=True, clock=Clock())
    assert list(pieces) == []
    assert pieces.timing == Timing(None, None, None, None, 0.0, (0,) * 14)


def test_a_clock_that_breaks_disturbs_nothing() -> None:
    ticks = iter([0.0])
    pieces = tap(PIECES, deltafold.ChatCompletionAccumulator(), timing=True, clock=lambda: next(ticks))
    assert list(pieces) == PIECES
    assert isinstance(pieces.fault, StopIteration)
