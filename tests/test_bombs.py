"""Bombs: small on the wire, and meant to be large in memory or slow. Memory here, by tracemalloc and by the extension's RSS.

`rust/memory` counts the Rust implementation's allocations.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc

import pytest

from conftest import Backend
from deltafold import Limits

INTRO = b'data: {"choices":[{"index":0,"delta":{"content":"kept"}}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def event(text: str) -> bytes:
    return b"data: " + text.encode() + b"\n\n"


def choices(indexes: range) -> str:
    return ",".join(f'{{"index":{i},"delta":{{"content":"x"}}}}' for i in indexes)


def calls(indexes: range) -> str:
    return ",".join(f'{{"index":{i},"id":"{i}","function":{{"name":"f","arguments":""}}}}' for i in indexes)


# name → the pieces, the bytes that may stay, the error
BOMBS: dict[str, tuple[list[bytes], int, str | None]] = {
    "choice 10**9": (
        [event('{"choices":[{"index":1000000000,"delta":{"content":"x"},"finish_reason":"stop"}]}')],
        20_000,
        None,
    ),
    "tool index 2**40": (
        [event('{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1099511627776,"id":"a"}]}}]}')],
        20_000,
        None,
    ),
    "choices": (
        [event('{"choices":[' + choices(range(i, i + 100)) + "]}") for i in range(1, 10_000, 100)],
        200_000,
        "limit-exceeded",
    ),
    "calls": (
        [
            event('{"choices":[{"index":0,"delta":{"tool_calls":[' + calls(range(i, i + 100)) + "]}}]}")
            for i in range(0, 5_000, 100)
        ],
        3_000_000,
        "limit-exceeded",
    ),
    "one id for all": ([b"id: " + b"x" * 92_160 + b"\n", *[b"data: {}\n\n" * 10] * 350], 200_000, None),
    "nested": ([event('{"a":' * 200_000 + "1" + "}" * 200_000)], 50_000, "limit-exceeded"),
    "nested, open": ([event("[" * 200_000)], 50_000, "limit-exceeded"),
    "a long integer": ([event('{"a":' + "1" * 2_000_000 + "}")], 50_000, "bad-json"),
    "a long comment": ([b":", *[b"x" * 65_536] * 64, b"\n"], 20_000, None),
    "a long field": ([b"foo:", *[b"x" * 65_536] * 64, b"\n"], 20_000, None),
    "comments": ([b":\n" * 10_000] * 5, 20_000, None),
    "one member again and again": ([event("{" + ",".join(['"k":1'] * 200_000) + "}")], 20_000, None),
    "kinds of trouble": ([event(t) for t in ("1", "[]", '"x"', "{", '{"error":"x"}') * 2000], 50_000, "bad-json"),
    "replaced again and again": ([event('{"model":"%s"}' % (c * 50_000)) for c in "abcdefgh" * 10], 300_000, None),
}


@pytest.mark.thread_unsafe(reason="tracemalloc is everybody's")
@pytest.mark.parametrize("name", BOMBS)
def test_what_stays_is_small_and_the_rest_counts(backend: Backend, name: str) -> None:
    pieces, most, kind = BOMBS[name]
    tracemalloc.start()
    acc = backend.ChatCompletionAccumulator()
    acc.feed(INTRO)
    for piece in pieces:
        acc.feed(piece)
    gc.collect()  # Python's store of dead tuples and dicts too
    stays = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    acc.feed(END)
    acc.close()
    assert stays < most
    assert (acc.error and acc.error.kind) == kind
    assert acc.text() == "kept"
    assert acc.finish_reasons[0] == "stop"
    assert acc.complete
    assert acc.retained_bytes < 64 * 1024 * 1024


@pytest.mark.parametrize("members", ['"k%d":1', '"k%d":"v"', '"k%d":{}', '"k%d":[]'])
@pytest.mark.parametrize("where", ["{%s}", '{"choices":[{"index":0,"delta":{%s}}]}', '{"usage":{%s}}'])
def test_distinct_members_stop_at_the_limit(backend: Backend, members: str, where: str) -> None:
    acc = backend.ChatCompletionAccumulator(Limits(max_retained_bytes=10_000))
    acc.feed(INTRO)
    acc.feed(event(where % ",".join(members % i for i in range(20_000))))
    acc.feed(END)
    assert acc.retained_bytes <= 10_000
    assert len(acc.result_json()) < 40_000
    assert acc.error.kind == "limit-exceeded"
    assert acc.finish_reasons == {0: "stop"}
    assert acc.complete


RSS = """
import sys
import deltafold
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
bombs = [b"data: {" + b",".join(b'"k%d":1' % i for i in range(5000)) + b"}\\n\\n",
         b"data: " + b'{"a":' * 20000 + b"\\n\\n",
         b"a\\n" * 10000]
def once():
    for bomb in bombs:
        acc = deltafold.ChatCompletionAccumulator(deltafold.Limits(max_retained_bytes=10000))
        acc.feed(bomb)
        acc.close()
        acc.result_json()
for _ in range(3):
    once()
before = rss()
for _ in range(10):
    once()
print(rss() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_is_left_of_a_bomb(backend: Backend) -> None:
    """RSS, in a process of its own: the same bombs again and again leave it where it was."""
    done = subprocess.run(
        [sys.executable, "-c", RSS], capture_output=True, text=True, check=True, env={"DELTAFOLD_BACKEND": backend.name}
    )
    assert int(done.stdout) < 4 * 1024 * 1024


@pytest.mark.parametrize("text", ["a" * 300_000 + "\\n", "\\n" * 150_000])
def test_escapes_in_a_chunk_that_is_known(backend: Backend, text: str) -> None:
    # a pattern that repeats a group keeps something for each repetition
    def chunk(text: str) -> bytes:
        return event(f'{{"model":"m","choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}')

    acc, relay = backend.ChatCompletionAccumulator(), backend.StreamFilter(model="fast")
    for watch in (acc.feed, relay.feed):
        for known in "abc":
            watch(chunk(known))
        large = chunk(text)
        tracemalloc.start()
        try:
            watch(large)
            assert tracemalloc.get_traced_memory()[1] < 25 * len(large)
        finally:
            tracemalloc.stop()
    assert len(acc.text()) == 3 + (300_001 if text[0] == "a" else 150_000)
