"""Accumulators and threads: each stream its own accumulator; one that is shared is right or says so, and is never corrupt."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from conftest import Backend
from streams import END, chunk, sse

WORDS = [f"word{n} " for n in range(200)]
STREAM = sse(*(chunk({"content": word}) for word in WORDS), *END)


def on_threads(number: int, work: Callable[[int], Any]) -> list[Any]:
    """``work`` on so many threads, begun together; whatever they give or raise."""
    barrier = threading.Barrier(number)

    def run(at: int) -> Any:
        barrier.wait()
        return work(at)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(run, range(number)))


def test_many_accumulators_on_many_threads(backend: Backend) -> None:
    def work(at: int) -> list[str]:
        texts = []
        for _ in range(5):
            acc = backend.ChatCompletionAccumulator()
            for start in range(0, len(STREAM), 100 + at):
                acc.feed(STREAM[start : start + 100 + at])
            acc.close()
            assert acc.error is None
            texts.append(acc.text())
        return texts

    assert on_threads(8, work) == [["".join(WORDS)] * 5] * 8


def test_one_accumulator_read_while_it_is_fed(backend: Backend) -> None:
    """What another thread reads is the merged beginning at some moment, or it is told that it came at a bad one."""
    acc = backend.ChatCompletionAccumulator()
    whole = "".join(WORDS)
    done = threading.Event()

    def work(at: int) -> None:
        if at == 0:
            try:
                for start in range(0, len(STREAM), 64):
                    retry(lambda start=start: acc.feed(STREAM[start : start + 64]))
            finally:
                done.set()
        else:
            while not done.is_set():
                assert whole.startswith(retry(acc.text))
                retry(acc.result_json).decode()

    on_threads(3, work)
    assert acc.text() == whole
    assert acc.complete


def test_one_accumulator_fed_by_two_threads(backend: Backend) -> None:
    """Whole events from two threads: in some order, each once."""
    if backend.name == "pure":
        pytest.skip("the pure implementation has no lock: one thread at a time, as its documentation says")
    acc = backend.ChatCompletionAccumulator()
    event = sse(chunk({"content": "x"}))
    on_threads(2, lambda at: [retry(lambda: acc.feed(event)) for _ in range(500)])
    assert acc.text() == "x" * 1000
    assert acc.counts["chunks"] == 1000


def test_other_threads_run_while_a_large_piece_is_merged(backend: Backend) -> None:
    """They find the accumulator in use, which only they can see who run meanwhile."""
    if backend.name == "pure":
        pytest.skip("the pure implementation runs under the interpreter's lock")
    piece = sse(*[chunk({"content": "x"}, padding="y" * 10_000)] * 2000)

    def overlaps() -> bool:
        acc = backend.ChatCompletionAccumulator()
        feeding = threading.Thread(target=lambda: retry(lambda: acc.feed(piece)))
        feeding.start()
        met = False
        while feeding.is_alive():
            try:
                acc.complete  # noqa: B018
            except RuntimeError:
                met = True
        assert acc.text() == "x" * 2000
        return met

    assert any(overlaps() for _ in range(50))


def retry(work: Callable[[], Any]) -> Any:
    while True:
        try:
            return work()
        except RuntimeError as error:
            if str(error) != "the accumulator is in use by another thread; give each stream its own":
                raise


@pytest.mark.parametrize("way", [pickle.dumps, copy.copy, copy.deepcopy])
def test_pickle_and_copy_are_refused(backend: Backend, way: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"an accumulator cannot be pickled or copied; keep result_json\(\)"):
        way(backend.ChatCompletionAccumulator())


def test_an_accumulator_dies_with_its_last_name(backend: Backend) -> None:
    """No reference cycles: not after results, errors and a raised error either."""
    gc.collect()
    gc.disable()
    try:
        acc = backend.ChatCompletionAccumulator()
        acc.feed(STREAM[:500])
        acc.feed(b'\n\ndata: {"error":"e"}\n\n')
        acc.close()
        acc.result()
        acc.text_since()
        assert acc.error is not None
        gone = weakref.ref(acc)
        del acc
        assert gone() is None
    finally:
        gc.enable()
