"""Recorded streams of real servers, where a checkout has them beside it or DELTAFOLD_STREAMS names their folder."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, Backend, pieces

FOLDER = Path(os.environ.get("DELTAFOLD_STREAMS") or ROOT.parent / "shared" / "streams")
STREAMS = sorted(FOLDER.rglob("*.sse"))


def outcome(backend: Backend, parts: list[bytes]) -> str:
    accumulator = backend.ChatCompletionAccumulator()
    for part in parts:
        accumulator.feed(part)
    accumulator.close()
    error = accumulator.error
    told: list[Any] = [
        accumulator.result(),
        error and [error.kind, error.message, error.code, error.offset, error.body],
        [accumulator.complete, accumulator.done_seen, accumulator.usage_source],
        list(accumulator.finish_reasons.items()),
        accumulator.counts,
        list(accumulator.diagnostics),
    ]
    return json.dumps(told)  # text: the order of members counts, and a NaN is never equal to another


@pytest.mark.skipif(not STREAMS, reason=f"no recorded streams in {FOLDER}")
def test_any_cut_gives_the_same_in_both(both: tuple[Backend, Backend]) -> None:
    differ = []
    for path in STREAMS:
        data, name = path.read_bytes(), str(path.relative_to(FOLDER))
        dice = random.Random(name)
        parts = list(pieces(data, dice, dice.choice([40, 700, 1400, 16384])))
        told = {outcome(backend, cut) for backend in both for cut in ([data], parts)}
        if len(told) != 1:
            differ.append(name)
    assert not differ


@pytest.mark.skipif(not STREAMS, reason=f"no recorded streams in {FOLDER}")
def test_most_are_complete(backend: Backend) -> None:
    complete = 0
    for path in STREAMS:
        accumulator = backend.ChatCompletionAccumulator()
        accumulator.feed(path.read_bytes())
        accumulator.close()
        complete += accumulator.complete
    assert complete > 0.9 * len(STREAMS)
