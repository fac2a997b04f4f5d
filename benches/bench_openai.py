"""Prints the CPU time per chunk of merging openai-python's chunk objects, beside openai-python's own accumulator.

    python benches/bench_openai.py [--rounds 7] [--chunks 500]

All take turns, round after round, and the least CPU time of each counts. ``handle_chunk`` makes the events as well, as openai's
does; ``merge_chunks`` and ``feed_chunk`` only merge.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from typing import Any

from openai.lib.streaming.chat import ChatCompletionStreamState as Theirs
from openai.types.chat import ChatCompletionChunk

import deltafold
from deltafold.openai import ChatCompletionStreamState as Ours
from streams import STREAMS

KINDS = ("chat-long", "chat-long-padded", "reasoning", "tool-arguments", "logprobs-5", "usage-every")


def theirs(chunks: list[Any]) -> None:
    state = Theirs()
    for chunk in chunks:
        state.handle_chunk(chunk)


def ours(chunks: list[Any]) -> None:
    state = Ours()
    for chunk in chunks:
        state.handle_chunk(chunk)


def fed(chunks: list[Any]) -> None:
    accumulator = deltafold.ChatCompletionAccumulator()
    for chunk in chunks:
        accumulator.feed_chunk(chunk)


WAYS: dict[str, Callable[[list[Any]], Any]] = {
    "openai handle_chunk": theirs,
    "deltafold handle_chunk": ours,
    "merge_chunks": deltafold.merge_chunks,
    "feed_chunk": fed,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--chunks", type=int, default=500, help="theirs costs more per chunk the longer the stream")
    options = parser.parse_args()
    print(f"backend {deltafold.BACKEND}; µs of CPU per chunk, in brackets how many times less than openai-python\n")
    print("  ".join(["stream".ljust(17), *(name.rjust(24) for name in WAYS)]))
    for kind in KINDS:
        chunks = chunks_of(kind, options.chunks)
        least = dict.fromkeys(WAYS, float("inf"))
        for _ in range(options.rounds):
            for name, way in WAYS.items():
                least[name] = min(least[name], timed(way, chunks))
        micros = {name: seconds / len(chunks) * 1e6 for name, seconds in least.items()}
        base = micros["openai handle_chunk"]
        shown = [
            f"{micro:.2f} ({base / micro:.1f})" if name in list(WAYS)[1:] else f"{micro:.1f}"
            for name, micro in micros.items()
        ]
        print("  ".join([kind.ljust(17), *(cell.rjust(24) for cell in shown)]), flush=True)


def chunks_of(kind: str, count: int) -> list[Any]:
    """The first events of a stream and its end, as openai's client makes objects of them."""
    events = STREAMS[kind]().events[:-1]
    events = events if len(events) <= count else events[: count - 2] + events[-2:]
    return [ChatCompletionChunk.construct(**json.loads(event[6:])) for event in events]


def timed(way: Callable[[list[Any]], Any], chunks: list[Any]) -> float:
    gc.collect()
    gc.disable()
    start = time.process_time()
    way(chunks)
    took = time.process_time() - start
    gc.enable()
    return took


if __name__ == "__main__":
    main()
