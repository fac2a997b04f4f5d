"""One merge a benchmark: ``pytest benches/bench_merge.py --benchmark-group-by=param:name``."""

from __future__ import annotations

from typing import Any

import pytest

from contestants import CONTESTANTS, answer
from streams import STREAMS, cut

KINDS = [
    "deltafold rust",
    "deltafold rust, result_json",
    "deltafold pure",
    "orjson + expert merge",
    "msgspec + expert merge",
]


@pytest.mark.parametrize("read", ["event", "16384"])
@pytest.mark.parametrize("name", list(STREAMS))
@pytest.mark.parametrize("kind", KINDS)
def test_merge(benchmark: Any, kind: str, name: str, read: str) -> None:
    try:
        run = CONTESTANTS[kind]()
    except ImportError as error:
        pytest.skip(f"absent: {error}")
    stream = STREAMS[name]()
    reads = cut(stream, read)
    benchmark.extra_info["chunks"] = stream.chunks
    assert answer(benchmark(run, reads)) == stream.answer
