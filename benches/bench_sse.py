"""The event-stream decoder alone, beside the peers that are installed: `pytest benches/bench_sse.py`.

Every reader turns the same pieces into the `data` of each event, and is first checked for the right answer. None does JSON.
"""

from __future__ import annotations

import codecs
import importlib
from collections.abc import Callable
from typing import Any

import pytest

Reader = Callable[[list[bytes]], list[str]]

TEXT = '{"id":"c-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"é%d"}}]}'
SMALL = [TEXT % number for number in range(2000)]
LARGE = ["x" * (1 << 20)]


def stream(texts: list[str], size: int | None) -> list[bytes]:
    """The texts as events: one event a piece, or cut every ``size`` bytes."""
    events = [f"data: {text}\n\n".encode() for text in texts]
    body = b"".join(events)
    return events if size is None else [body[at : at + size] for at in range(0, len(body), size)]


STREAMS: dict[str, tuple[list[str], list[bytes]]] = {
    "small events, one a piece": (SMALL, stream(SMALL, None)),
    "small events, 16 KiB pieces": (SMALL, stream(SMALL, 16384)),
    "one event of 1 MiB, 1,400-byte pieces": (LARGE, stream(LARGE, 1400)),
    "small events, one-byte pieces": (SMALL[:100], stream(SMALL[:100], 1)),
}


def deltafold(name: str) -> Reader:
    decoder = pytest.importorskip(name).SSEDecoder

    def read(pieces: list[bytes]) -> list[str]:
        fresh = decoder()
        return [event.data for piece in pieces for event in fresh.feed(piece)]

    return read


def httpx_sse() -> Reader:
    pytest.importorskip("httpx_sse")
    parts: Any = importlib.import_module("httpx_sse._decoders")

    def read(pieces: list[bytes]) -> list[str]:
        text = codecs.getincrementaldecoder("utf-8")("replace")
        lines, decoder = parts.SSELineDecoder(), parts.SSEDecoder()
        found = (decoder.decode(line) for piece in pieces for line in lines.decode(text.decode(piece)))
        return [event.data for event in found if event is not None]

    return read


def sseclient() -> Reader:
    client = pytest.importorskip("sseclient").SSEClient
    return lambda pieces: [event.data for event in client(pieces).events()]


def openai() -> Reader:
    pytest.importorskip("openai")
    streaming: Any = importlib.import_module("openai._streaming")
    return lambda pieces: [event.data for event in streaming.SSEDecoder().iter_bytes(iter(pieces))]


READERS: dict[str, Callable[[], Reader]] = {
    "deltafold rust": lambda: deltafold("deltafold._rust"),
    "deltafold pure": lambda: deltafold("deltafold._pure.sse"),
    "httpx-sse": httpx_sse,
    "sseclient-py": sseclient,
    "openai": openai,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("case", STREAMS)
def test_sse(benchmark: Any, case: str, reader: str) -> None:
    expected, pieces = STREAMS[case]
    read = READERS[reader]()
    if read(pieces) != expected:
        pytest.skip(f"{reader} gives a wrong answer here")
    benchmark.group = case
    benchmark.extra_info["bytes"] = sum(map(len, pieces))
    benchmark(read, pieces)
