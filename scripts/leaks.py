"""Memory of accumulators, in this process's RSS: what one alive costs beside its text, and what thousands leave behind.

Usage: DELTAFOLD_BACKEND=rust scripts/leaks.py [--dropped 1000000] [--alive 10000]; Linux only. Exit status 1 past a bound.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

import deltafold

CHUNK = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":'
    b'[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n'
)
FED = 40  # chunks of each stream, and half of another
MOST = 4 * 1024  # bytes of one half-fed stream, text excluded
GROWTH = 4 * 1024 * 1024  # bytes that all dropped ones together may leave


def rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def half_fed() -> deltafold.ChatCompletionAccumulator:
    accumulator = deltafold.ChatCompletionAccumulator()
    for _ in range(FED):
        accumulator.feed(CHUNK)
    accumulator.feed(CHUNK[:90])
    return accumulator


def whole() -> None:
    accumulator = deltafold.ChatCompletionAccumulator()
    accumulator.feed(CHUNK)
    accumulator.feed(b"data: {broken\n\n")
    accumulator.close()
    accumulator.result()
    assert accumulator.error is not None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dropped", type=int, default=100_000, help="accumulators created and dropped")
    parser.add_argument("--alive", type=int, default=10_000, help="accumulators alive at once, half fed")
    options = parser.parse_args()

    gc.collect()
    gc.disable()  # what needs the collector is a reference cycle, and there shall be none
    for _ in range(options.dropped // 20):
        whole()
    before = rss()
    for _ in range(options.dropped):
        whole()
    growth = rss() - before

    before = rss()
    alive = [half_fed() for _ in range(options.alive)]
    each = (rss() - before) // max(options.alive, 1) - alive[0].retained_bytes
    cycles = gc.collect()

    print(f"{deltafold.BACKEND}: {options.dropped:,} created and dropped: RSS grew by {growth / 1024:,.0f} KiB")
    print(
        f"{deltafold.BACKEND}: {options.alive:,} alive after {FED} chunks: {each:,} bytes each beside what they retain"
    )
    print(f"{deltafold.BACKEND}: {cycles} objects in reference cycles")
    return int(growth > GROWTH or each > MOST or cycles > 0)


if __name__ == "__main__":
    sys.exit(main())
