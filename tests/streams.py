"""Streams made by hand, and all that an accumulator tells about one: for tests of the merging rules."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from conftest import Backend, feeds
from deltafold import Diagnostic, Limits


def payload(chunk: Any) -> str:
    """A chunk as a server would spell it; a string stands for itself."""
    return chunk if isinstance(chunk, str) else json.dumps(chunk, separators=(",", ":"))


def event(chunk: Any) -> bytes:
    return b"data: " + payload(chunk).encode() + b"\n\n"


def sse(*chunks: Any) -> bytes:
    """One event for each chunk."""
    return b"".join(event(chunk) for chunk in chunks)


def offset_of(chunks: list[Any], at: int) -> int:
    """The byte at which the event of chunk number ``at`` begins in ``sse(*chunks)``."""
    return len(sse(*chunks[:at]))


def entry(delta: Any = None, index: Any = 0, **members: Any) -> dict[str, Any]:
    """One entry of ``choices``."""
    return {"index": index, "delta": {} if delta is None else delta, **members}


def chunk(delta: Any = None, index: Any = 0, **members: Any) -> dict[str, Any]:
    """A chunk with one entry."""
    return {"choices": [entry(delta, index, **members)]}


END: list[Any] = [chunk(finish_reason="stop"), "[DONE]"]


@dataclass(frozen=True)
class Outcome:
    """What one stream came to."""

    result: dict[str, Any]
    result_json: bytes
    error: dict[str, Any] | None
    diagnostics: list[Diagnostic]
    counts: dict[str, int]
    seen: int
    complete: bool
    done_seen: bool
    usage: dict[str, Any] | None
    usage_source: str
    finish_reasons: dict[int, str | None]
    id: str | None
    model: str | None
    texts: dict[int, str]
    reasoning: dict[int, str]
    since: dict[int, str]
    calls: dict[int, list[Any]]
    retained_bytes: int

    @property
    def choice(self) -> dict[str, Any]:
        [choice] = self.result["choices"]
        return choice

    @property
    def message(self) -> dict[str, Any]:
        return self.choice["message"]

    @property
    def kinds(self) -> dict[str, int]:
        """Count by kind of diagnostic."""
        return {d.kind: d.count for d in self.diagnostics}


def tell(accumulator: Any, seen: int, since: dict[int, str]) -> Outcome:
    error = accumulator.error
    choices = list(accumulator.finish_reasons)
    return Outcome(
        accumulator.result(),
        accumulator.result_json(),
        None if error is None else {k: getattr(error, k) for k in ("kind", "message", "code", "offset", "body")},
        list(accumulator.diagnostics),
        accumulator.counts,
        seen,
        accumulator.complete,
        accumulator.done_seen,
        accumulator.usage,
        accumulator.usage_source,
        accumulator.finish_reasons,
        accumulator.id,
        accumulator.model,
        {i: accumulator.text(i) for i in choices},
        {i: accumulator.reasoning_text(i) for i in choices},
        dict(sorted(since.items())),
        {i: [(c.id, c.type, c.name, c.arguments) for c in accumulator.tool_calls(i)] for i in choices},
        accumulator.retained_bytes,
    )


def feed_all(accumulator: Any, parts: list[bytes]) -> Outcome:
    """Feeds the parts and closes, reading the text on the way."""
    seen, cursors, since = 0, {}, {}
    for part in parts:
        seen |= accumulator.feed(part)
        if len(parts) < 200:
            for i in accumulator.finish_reasons:
                new, cursors[i] = accumulator.text_since(cursors.get(i), i)
                since[i] = since.get(i, "") + new
    seen |= accumulator.close()
    for i in accumulator.finish_reasons:
        new, cursors[i] = accumulator.text_since(cursors.get(i), i)
        since[i] = since.get(i, "") + new
    return tell(accumulator, seen, since)


def merged(backend: Backend, *chunks: Any, limits: dict[str, int] | None = None, n: int | None = None) -> Outcome:
    """The outcome of a stream, the same whole, byte by byte and at some random cuts."""
    data = chunks[0] if len(chunks) == 1 and isinstance(chunks[0], bytes) else sse(*chunks)
    outcomes = []
    for parts in feeds(data, rounds=2):
        accumulator = backend.ChatCompletionAccumulator(Limits(**limits) if limits else None, n)
        outcomes.append(feed_all(accumulator, parts))
    # repr: members in order, 1 is not True, and NaN is NaN
    assert len({repr(outcome) for outcome in outcomes}) == 1
    return outcomes[0]


def message_of(backend: Backend, *deltas: Any, **options: Any) -> dict[str, Any]:
    """The message that the deltas of one choice come to; nothing may have been odd about them."""
    outcome = merged(backend, *(chunk(delta) for delta in deltas), *END, **options)
    assert outcome.error is None
    assert outcome.diagnostics == []
    return outcome.message


def same(actual: Any, expected: Any) -> bool:
    """Equal in values and types, members in any order."""
    return spelled(actual) == spelled(expected)


def spelled(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
