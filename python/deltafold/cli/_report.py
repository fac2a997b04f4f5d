"""What is in one recorded stream, as plain data: for ``inspect``, as text, JSON or a page."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

from .. import ChatCompletionAccumulator, DeltafoldError, Seen
from .._errors import escape
from . import _events

__all__ = ["KINDS", "report"]

# What an event is shown as: the first of these that it brought.
KINDS = (
    "error",
    "done",
    "usage",
    "finish",
    "tool_call",
    "audio",
    "refusal",
    "reasoning",
    "content",
    "logprobs",
    "other",
)
UNFINISHED = ("incomplete-event", "unterminated-event")
OFFSETS = 20  # of one leniency
EXCERPT = 120  # bytes of what is bad
STRING = re.compile(r'"((?:[^"\\]|\\.)*)("\s*:|"|\\?$)', re.DOTALL)
TIMING = re.compile(r"(?:_time|_ms|_seconds|_per_second|latency)$|^(?:timings|time_info|ttft)$")


def report(data: bytes, show_text: bool) -> dict[str, Any]:
    """Events, choices, usage, leniencies and the first bad bytes; of texts only their lengths, unless they are asked for."""
    accumulator = ChatCompletionAccumulator()
    events, odd = _walk(accumulator, data)
    error = accumulator.error
    result = accumulator.result()
    return {
        "bytes": len(data),
        "counts": accumulator.counts,
        "complete": accumulator.complete,
        "done_seen": accumulator.done_seen,
        "id": accumulator.id,
        "model": accumulator.model,
        "error": None if error is None else _error(error, show_text),
        "choices": [_choice(accumulator, choice, show_text) for choice in result["choices"]],
        "usage": accumulator.usage,
        "usage_source": accumulator.usage_source,
        "timings": _timings(result),
        "members": [name for name in result if name not in ("id", "object", "model", "choices", "usage")],
        "diagnostics": [
            {"kind": note.kind, "count": note.count, "offsets": odd.get(note.kind, [note.offset])}
            for note in accumulator.diagnostics
        ],
        "bad_bytes": _bad_bytes(data, accumulator, show_text),
        "events": events,
    }


def _walk(accumulator: ChatCompletionAccumulator, data: bytes) -> tuple[list[dict[str, Any]], dict[str, list[int]]]:
    """Feeds event by event; what each brought, and where each leniency was needed."""
    places = _events.places(data)
    bounds = [0, *sorted({*places} - {0}), len(data)]
    growth = _events.Growth(accumulator)
    events: list[dict[str, Any]] = []
    odd: dict[str, list[int]] = {}
    known: dict[str, int] = {}
    brought_by: dict[int, list[str]] = {}

    def note_down(start: int, end: int, seen: int, counts: bool, new: dict[str, int]) -> None:
        if counts or seen:
            if seen not in brought_by:
                brought_by[seen] = [flag.name.lower() for flag in Seen if seen & flag and flag.name]
            brought = brought_by[seen]
            kind = next(kind for kind in KINDS if kind in brought or kind == "other")
            events.append({"offset": start, "bytes": end - start, "kind": kind, "brought": brought, "characters": new})
        for note in accumulator.diagnostics:
            if note.count > known.get(note.kind, 0):
                known[note.kind] = note.count
                at = start if note.kind in odd or note.offset is None else note.offset
                if len(told := odd.setdefault(note.kind, [])) < OFFSETS:
                    told.append(at)

    for start, end in itertools.pairwise(bounds):
        seen = accumulator.feed(data[start:end])
        note_down(start, end, seen, places.get(start, False), growth.since(seen))
    before = accumulator.counts["events"]
    seen = accumulator.close()
    tail = next((n.offset for n in accumulator.diagnostics if n.kind in UNFINISHED and n.offset is not None), len(data))
    if events and tail < len(data):
        events[-1]["bytes"] = max(tail - events[-1]["offset"], 0)
    note_down(tail, len(data), seen, accumulator.counts["events"] > before, growth.rest())
    return events, odd


def _error(error: DeltafoldError, show_text: bool) -> dict[str, Any]:
    message = escape(error.message)
    if not show_text and error.kind == "bad-json":
        message = message.partition(": ")[0]
    return {"kind": error.kind, "message": message, "code": error.code, "offset": error.offset}


def _choice(accumulator: ChatCompletionAccumulator, choice: dict[str, Any], show_text: bool) -> dict[str, Any]:
    index = choice["index"]
    texts = {"content": accumulator.text(index), "reasoning": accumulator.reasoning_text(index)}
    refusal = choice["message"].get("refusal")
    texts["refusal"] = refusal if isinstance(refusal, str) else ""
    probabilities = (choice.get("logprobs") or {}).get("content") if isinstance(choice.get("logprobs"), dict) else None
    calls = []
    for call in accumulator.tool_calls(index):
        told = {"id": call.id, "name": call.name, "characters": len(call.arguments), "whole": _is_json(call.arguments)}
        calls.append({**told, "arguments": call.arguments} if show_text else told)
    return {
        "index": index,
        "finish_reason": choice["finish_reason"],
        "characters": {name: len(text) for name, text in texts.items() if text},
        "tool_calls": calls,
        "logprobs": len(probabilities) if isinstance(probabilities, list) else 0,
        **({"texts": {name: text for name, text in texts.items() if text}} if show_text else {}),
    }


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _timings(result: dict[str, Any]) -> dict[str, float]:
    """Times that the server told: numbers under names that mean one, anywhere outside the choices."""
    found: dict[str, float] = {}

    def walk(value: Any, path: str, timed: bool, depth: int) -> None:
        if isinstance(value, dict) and depth < 8:
            for name, member in value.items():
                walk(member, f"{path}.{name}" if path else name, timed or bool(TIMING.search(name)), depth + 1)
        elif timed and isinstance(value, (int, float)) and not isinstance(value, bool):
            found[path] = value

    walk({name: value for name, value in result.items() if name != "choices"}, "", False, 0)
    return found


def _bad_bytes(data: bytes, accumulator: ChatCompletionAccumulator, show_text: bool) -> dict[str, Any] | None:
    """The first bytes that are at fault, escaped; the values of JSON strings are masked unless texts are asked for."""
    error = accumulator.error
    offset = None
    if error is not None and error.kind in ("bad-json", "not-sse", "limit-exceeded", "upstream-error"):
        offset = error.offset
    for note in accumulator.diagnostics:
        if offset is None and note.kind in ("incomplete-event", "bad-json"):
            offset = note.offset
    if offset is None:
        try:
            data.decode()
        except UnicodeDecodeError as wrong:
            return {"offset": wrong.start, "shown": "".join(f"\\x{byte:02x}" for byte in data[wrong.start : wrong.end])}
        return None
    part = data[offset : offset + EXCERPT].decode("utf-8", "backslashreplace")
    if not show_text and '"' in part and "<" not in part[:12]:
        part = STRING.sub(lambda found: f'"{"·" * len(found[1])}{found[2]}' if ":" not in found[2] else found[0], part)
    return {"offset": offset, "shown": escape(part, 4 * EXCERPT) + ("…" if offset + EXCERPT < len(data) else "")}
