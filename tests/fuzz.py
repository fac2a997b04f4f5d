"""Any bytes, cuts, limits and options: both implementations and the ordinary path say the same, and nothing is raised.

Usage: python tests/fuzz.py [libFuzzer's options] [CORPUS...]; needs atheris, which guides itself by the branches that an
input takes in the pure implementation. An input is three bytes and a body, as those of rust/fuzz, whose seeds fit.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import atheris

with atheris.instrument_imports(include=["deltafold"]):
    from conftest import Backend, load
    from deltafold import LimitExceeded, Limits
    from streams import feed_all

    BACKENDS = load("pure"), load("rust")  # imported here, so that the branches are seen

PATHS = ("choices.delta.content", "usage", "x.y", "obfuscation")


def cut(body: bytes, state: int) -> list[bytes]:
    """The body in pieces of 0 to 31 bytes, or nearly whole."""
    longest, pieces, at = 1023 if state & 1 else 31, [], 0
    while at < len(body):
        state = (state * 1_664_525 + 1_013_904_223) % 2**32
        size = state >> 16 & longest
        pieces.append(body[at : at + size])
        at += size
    return pieces


def limits_of(bits: int, cuts: int) -> Limits:
    given = {
        "max_event_bytes": 300,
        "max_retained_bytes": cuts or 1,
        "max_choices": 2,
        "max_tool_calls": 2,
        "max_depth": 6,
    }
    return Limits(**{name: value for at, (name, value) in enumerate(given.items()) if bits >> at & 1})


def merged(backend: Backend, limits: Limits, n: int | None, pieces: list[bytes], fast: bool = True) -> str:
    accumulator = backend.ChatCompletionAccumulator(limits, n)
    accumulator._set_fast_path(fast)
    outcome = feed_all(accumulator, pieces)
    assert json.loads(outcome.result_json)["object"] == "chat.completion"
    assert (repr(accumulator) + repr(accumulator.error) + str(accumulator.error)).isprintable()
    return repr(outcome)


def sent(backend: Backend, limits: Limits, options: dict[str, Any], pieces: list[bytes]) -> bytes:
    relay = backend.StreamFilter(limits=limits, **options)
    return b"".join(map(relay.feed, pieces)) + relay.close()


def events(backend: Backend, limits: Limits, flush: bool, pieces: list[bytes]) -> str:
    decoder, found = backend.SSEDecoder(limits, flush), []
    try:
        for piece in pieces:
            found += decoder.feed(piece)
        found += decoder.close()
    except LimitExceeded as error:
        found.append(repr(error))
    return repr([(e, getattr(e, "data", None)) for e in found] + [decoder.last_event_id, decoder.retry, decoder.events])


def one(given: bytes) -> None:
    if len(given) < 3:
        return
    bits, cuts, more, body = given[0], given[1], given[2], given[3:]
    limits, n, pieces = limits_of(bits, cuts), 1 if more & 1 else None, cut(body, cuts * 2_654_435_761 | 1)
    ways = [(backend, parts, fast) for backend in BACKENDS for parts in ([body], pieces) for fast in (True, False)]
    outcomes = {merged(backend, limits, n, parts, fast) for backend, parts, fast in ways}
    assert len(outcomes) == 1, outcomes
    options = {
        "model": "fast" if more & 2 else None,
        "id": "r" if more & 4 else None,
        "drop_usage_chunk": bool(more & 8),
        "strip": [path for at, path in enumerate(PATHS) if more >> 4 + at & 1],
    }
    relayed = {sent(backend, limits, options, parts) for backend in BACKENDS for parts in ([body], pieces)}
    assert len(relayed) == 1, relayed
    if more < 2:
        assert relayed == {body}
    decoded = {events(backend, limits, bool(more & 1), parts) for backend in BACKENDS for parts in ([body], pieces)}
    assert len(decoded) == 1, decoded


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
