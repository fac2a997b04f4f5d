"""A relay that gives the stream another model name, beside what is usually written by hand, and a relay that changes nothing.

``pytest benches/bench_filter.py``; one round is a whole stream, with the relay made for it and closed behind it. Each way is
first checked for what its client would read. With ``DELTAFOLD_STREAMS=folder`` one round is also all ``.sse`` files there.
"""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streams import READS, STREAMS, cut

Change = Callable[[bytes], bytes]
Way = Callable[[], tuple[Change, Callable[[], Any]]]  # for one stream: what to send for a piece, and what ends it
ALIAS = "alias"


def by_hand(loads: Callable[[bytes], Any], dumps: Callable[[Any], bytes]) -> Way:
    """One whole event a read: nobody who writes this by hand looks for less."""

    def change(piece: bytes) -> bytes:
        if not piece.startswith(b"data: {"):
            return piece
        chunk = loads(piece[6:-2])
        chunk["model"] = ALIAS
        return b"data: " + dumps(chunk) + b"\n\n"

    return lambda: (change, bytes)


def stdlib() -> Way:
    return by_hand(json.loads, lambda chunk: json.dumps(chunk).encode())


def orjson() -> Way:
    module = pytest.importorskip("orjson")
    return by_hand(module.loads, module.dumps)


def deltafold(backend: str, observed: bool = False, **options: Any) -> Way:
    module = pytest.importorskip(f"deltafold._{backend}")

    def make() -> tuple[Change, Callable[[], bytes]]:
        relay = module.StreamFilter(observe=module.ChatCompletionAccumulator() if observed else None, **options)
        return relay.feed, relay.close

    return make


def accumulator(backend: str) -> Way:
    module = pytest.importorskip(f"deltafold._{backend}")

    def make() -> tuple[Change, Callable[[], int]]:
        acc = module.ChatCompletionAccumulator()
        return acc.feed, acc.close

    return make


def pass_on(way: Way, pieces: list[bytes]) -> None:
    """Each piece is let go when the next one comes, as one that was sent is."""
    change, end = way()
    deque(map(change, pieces), maxlen=0)
    end()


def sent(way: Way, pieces: list[bytes]) -> bytes:
    change, end = way()
    return b"".join([*map(change, pieces), end()])


ALIASING: dict[str, Callable[[], Way]] = {
    "json": stdlib,
    "orjson": orjson,
    "deltafold rust": lambda: deltafold("rust", model=ALIAS),
    "deltafold pure": lambda: deltafold("pure", model=ALIAS),
    "deltafold rust, observed": lambda: deltafold("rust", True, model=ALIAS),
}
UNTOUCHED: dict[str, Callable[[], Way]] = {
    "accumulator rust": lambda: accumulator("rust"),
    "filter rust, observed": lambda: deltafold("rust", True),
    "filter rust, observed, drop_usage_chunk": lambda: deltafold("rust", True, drop_usage_chunk=True),
    "filter rust": lambda: deltafold("rust"),
    "accumulator pure": lambda: accumulator("pure"),
    "filter pure, observed": lambda: deltafold("pure", True),
}


def models(body: bytes) -> set[str]:
    return {json.loads(e[6:])["model"] for e in body.split(b"\n\n") if e and e != b"data: [DONE]"}


@pytest.mark.parametrize("name", list(STREAMS))
@pytest.mark.parametrize("way", list(ALIASING))
def test_alias(benchmark: Any, way: str, name: str) -> None:
    relay = ALIASING[way]()
    stream = STREAMS[name]()
    assert models(sent(relay, stream.events)) == {ALIAS}
    benchmark.group = f"model alias, one event a read: {name}"
    benchmark.extra_info["chunks"] = stream.chunks
    benchmark(pass_on, relay, stream.events)


@pytest.mark.parametrize("read", [read for read in READS if read != "1"])
@pytest.mark.parametrize("name", list(STREAMS))
@pytest.mark.parametrize("way", list(UNTOUCHED))
def test_untouched(benchmark: Any, way: str, name: str, read: str) -> None:
    relay = UNTOUCHED[way]()
    stream = STREAMS[name]()
    pieces = cut(stream, read)
    if way.startswith("filter") and "drop" not in way:
        assert sent(relay, pieces) == stream.data
    benchmark.group = f"nothing changed, reads of {read}: {name}"
    benchmark.extra_info["chunks"] = stream.chunks
    benchmark(pass_on, relay, pieces)


def recorded() -> list[list[bytes]]:
    """The events of each stream of a folder of one's own, but for those on which the hand-written relays raise."""
    streams = []
    for path in sorted(Path(os.environ.get("DELTAFOLD_STREAMS", os.devnull)).rglob("*.sse")):
        events = [event for event in re.split(rb"(?<=\n\n)|(?<=\r\n\r\n)", path.read_bytes()) if event]
        try:
            chunks = [json.loads(event[6:]) for event in events if event.startswith(b"data: {")]
        except ValueError:
            continue
        streams += [events] if chunks else []
    return streams


@pytest.mark.skipif("DELTAFOLD_STREAMS" not in os.environ, reason="DELTAFOLD_STREAMS=folder: no folder of streams")
@pytest.mark.parametrize("way", list(ALIASING))
def test_alias_of_recorded_streams(benchmark: Any, way: str) -> None:
    relay = ALIASING[way]()
    streams = recorded()
    benchmark.group = f"model alias, one event a read: {len(streams)} streams of a folder"
    benchmark.extra_info["chunks"] = sum(event.startswith(b"data: {") for events in streams for event in events)
    benchmark(lambda: [pass_on(relay, events) for events in streams] and None)
