"""Ways from the bytes of a stream to its merged answer: deltafold, what an expert writes by hand, and the libraries.

Each library is imported only when its contestant is asked for; one that is not installed is absent. A contestant takes the
reads and gives the final object; ``answer`` turns that into what ``streams.Answer`` holds, so that it can be marked.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable
from typing import Any

from deltafold.cli._contestants import by_hand, expert_orjson, litellm_builder, openai_python, payloads
from streams import Answer, ChoiceAnswer

__all__ = ["CONTESTANTS", "Run", "answer"]

Run = Callable[[list[bytes]], Any]


def deltafold(backend: str, as_json: bool = False) -> Run:
    accumulator = importlib.import_module(f"deltafold._{backend}").ChatCompletionAccumulator

    def run(reads: list[bytes]) -> Any:
        acc = accumulator()
        feed = acc.feed
        for read in reads:
            feed(read)
        acc.close()
        return acc.result_json() if as_json else acc.result()

    return run


def expert_msgspec() -> Run:
    msgspec = importlib.import_module("msgspec")
    struct = msgspec.defstruct
    function = struct("Function", [("name", str | None, None), ("arguments", str | None, None)])
    call = struct("Call", [("index", int), ("id", str | None, None), ("function", function | None, None)])
    delta = struct(
        "Delta",
        [
            ("content", str | None, None),
            ("reasoning_content", str | None, None),
            ("tool_calls", list[call] | None, None),
        ],
    )
    probabilities = struct("Logprobs", [("content", list[dict] | None, None)])
    entry = struct(
        "Choice",
        [
            ("index", int, 0),
            ("delta", delta | None, None),
            ("finish_reason", str | None, None),
            ("logprobs", probabilities | None, None),
        ],
    )
    chunk_type = struct(
        "Chunk",
        [
            ("choices", list[entry]),
            ("id", str, ""),
            ("created", int, 0),
            ("model", str, ""),
            ("usage", dict | None, None),
        ],
    )
    decode = msgspec.json.Decoder(chunk_type).decode

    def run(reads: list[bytes]) -> dict[str, Any]:
        first = None
        usage = None
        choices: dict[int, dict[str, Any]] = {}
        held = b""
        for read in reads:
            if held:
                read = held + read
            *lines, held = read.split(b"\n")
            for line in lines:
                if not line or line == b"data: [DONE]":
                    continue
                chunk = decode(line[6:])
                if first is None:
                    first = chunk
                if chunk.usage:
                    usage = chunk.usage
                for entry in chunk.choices:
                    kept = choices.get(entry.index)
                    if kept is None:
                        kept = choices[entry.index] = {
                            "content": [],
                            "reasoning": [],
                            "calls": {},
                            "finish": None,
                            "logprobs": [],
                        }
                    delta = entry.delta
                    if delta is not None:
                        if delta.content:
                            kept["content"].append(delta.content)
                        if delta.reasoning_content:
                            kept["reasoning"].append(delta.reasoning_content)
                        if delta.tool_calls:
                            for fragment in delta.tool_calls:
                                call = kept["calls"].get(fragment.index)
                                function = fragment.function
                                if call is None:
                                    kept["calls"][fragment.index] = [fragment.id, function.name, [function.arguments]]
                                else:
                                    call[2].append(function.arguments)
                    if entry.finish_reason:
                        kept["finish"] = entry.finish_reason
                    if entry.logprobs is not None and entry.logprobs.content:
                        kept["logprobs"].extend(entry.logprobs.content)
        head = {} if first is None else {"id": first.id, "created": first.created, "model": first.model}
        return by_hand(head, usage, choices)

    return run


def httpx_sse() -> Run:
    httpx, sse = importlib.import_module("httpx"), importlib.import_module("httpx_sse")

    def run(reads: list[bytes]) -> dict[str, Any]:
        response = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=iter(reads))
        chunks = (json.loads(event.data) for event in sse.EventSource(response).iter_sse() if event.data != "[DONE]")
        return plain_merge(chunks)

    return run


def plain_merge(chunks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What one writes without a thought for speed."""
    first: dict[str, Any] = {}
    usage = None
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        first = first or chunk
        usage = chunk.get("usage") or usage
        for entry in chunk["choices"]:
            new = {"content": [], "reasoning": [], "calls": {}, "finish": None, "logprobs": []}
            kept = choices.setdefault(entry["index"], new)
            delta = entry.get("delta") or {}
            kept["content"].append(delta.get("content") or "")
            kept["reasoning"].append(delta.get("reasoning_content") or "")
            for fragment in delta.get("tool_calls") or []:
                function = fragment["function"]
                call = kept["calls"].setdefault(fragment["index"], [fragment.get("id"), function.get("name"), []])
                call[2].append(function["arguments"])
            kept["finish"] = entry.get("finish_reason") or kept["finish"]
            kept["logprobs"].extend((entry.get("logprobs") or {}).get("content") or [])
    return by_hand(first, usage, choices)


def langchain() -> Run:
    chunk_type = importlib.import_module("langchain_core.messages").AIMessageChunk
    model = importlib.import_module("langchain_openai").ChatOpenAI(model="none", api_key="none", stream_usage=True)
    loads = importlib.import_module("orjson").loads

    def run(reads: list[bytes]) -> dict[str, Any]:
        merged = None
        for payload in payloads(reads):
            made = model._convert_chunk_to_generation_chunk(loads(payload), chunk_type, None)
            if made is not None:
                merged = made if merged is None else merged + made
        message, about = merged.message, merged.generation_info or {}
        used = message.usage_metadata
        calls = [
            {"id": call["id"], "function": {"name": call["name"], "arguments": call["args"]}}
            for call in message.tool_call_chunks
        ]
        return {
            "choices": [
                {
                    "index": 0,
                    "message": {"content": message.content or None, "tool_calls": calls},
                    "finish_reason": about.get("finish_reason"),
                    "logprobs": about.get("logprobs"),
                }
            ],
            "usage": used
            and {
                "prompt_tokens": used["input_tokens"],
                "completion_tokens": used["output_tokens"],
                "total_tokens": used["total_tokens"],
            },
        }

    return run


CONTESTANTS: dict[str, Callable[[], Run]] = {
    "deltafold rust": lambda: deltafold("rust"),
    "deltafold rust, result_json": lambda: deltafold("rust", as_json=True),
    "deltafold pure": lambda: deltafold("pure"),
    "orjson + expert merge": expert_orjson,
    "msgspec + expert merge": expert_msgspec,
    "httpx-sse + json + merge": httpx_sse,
    "openai-python": openai_python,
    "litellm stream_chunk_builder": litellm_builder,
    "langchain-openai": langchain,
}


def answer(final: Any) -> Answer:
    """What a final object says, in the words of ``streams.Answer``."""
    if isinstance(final, bytes):
        final = json.loads(final)
    choices = {}
    for entry in final["choices"]:
        message = entry["message"]
        calls = [
            (call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls") or []
        ]
        choices[entry["index"]] = ChoiceAnswer(
            message.get("content") or None,
            message.get("reasoning_content") or None,
            calls,
            entry["finish_reason"],
            len((entry.get("logprobs") or {}).get("content") or []),
        )
    used = final.get("usage")
    counts = used and (used["prompt_tokens"], used["completion_tokens"], used["total_tokens"])
    return Answer(choices, counts or None)
