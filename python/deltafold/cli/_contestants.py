"""Other ways from the bytes of a stream to its merged answer, for ``bench``: by hand, and by the libraries.

Each library is imported only when its contestant is asked for. A contestant takes the reads and gives the final object.
benches/ compares with more of them.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["Run", "by_hand", "expert_orjson", "litellm_builder", "openai_python", "payloads"]

Run = Callable[[list[bytes]], Any]


def payloads(reads: Iterable[bytes]) -> Iterable[bytes]:
    """What stands behind ``data: ``, for servers that end lines with LF and never write anything else: as fast as Python goes."""
    held = b""
    for read in reads:
        if held:
            read = held + read
        *lines, held = read.split(b"\n")
        for line in lines:
            if line and line != b"data: [DONE]":
                yield line[6:]


def expert_orjson() -> Run:
    loads = importlib.import_module("orjson").loads

    def run(reads: list[bytes]) -> dict[str, Any]:
        first: dict[str, Any] | None = None
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
                chunk = loads(line[6:])
                if first is None:
                    first = chunk
                if chunk.get("usage"):
                    usage = chunk["usage"]
                for entry in chunk["choices"]:
                    kept = choices.get(entry["index"])
                    if kept is None:
                        kept = choices[entry["index"]] = {
                            "content": [],
                            "reasoning": [],
                            "calls": {},
                            "finish": None,
                            "logprobs": [],
                        }
                    delta = entry.get("delta")
                    if delta:
                        text = delta.get("content")
                        if text:
                            kept["content"].append(text)
                        text = delta.get("reasoning_content")
                        if text:
                            kept["reasoning"].append(text)
                        fragments = delta.get("tool_calls")
                        if fragments:
                            for fragment in fragments:
                                call = kept["calls"].get(fragment["index"])
                                function = fragment["function"]
                                if call is None:
                                    kept["calls"][fragment["index"]] = [
                                        fragment["id"],
                                        function["name"],
                                        [function["arguments"]],
                                    ]
                                else:
                                    call[2].append(function["arguments"])
                    if entry.get("finish_reason"):
                        kept["finish"] = entry["finish_reason"]
                    probabilities = entry.get("logprobs")
                    if probabilities and probabilities.get("content"):
                        kept["logprobs"].extend(probabilities["content"])
        return by_hand(first or {}, usage, choices)

    return run


def by_hand(first: dict[str, Any], usage: Any, choices: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """The final object out of what the hand-written merges kept."""
    return {
        "id": first.get("id"),
        "object": "chat.completion",
        "created": first.get("created"),
        "model": first.get("model"),
        "choices": [
            {
                "index": index,
                "message": {
                    "role": "assistant",
                    "content": "".join(kept["content"]) or None,
                    "reasoning_content": "".join(kept["reasoning"]) or None,
                    "tool_calls": [
                        {"id": id, "type": "function", "function": {"name": name, "arguments": "".join(arguments)}}
                        for id, name, arguments in kept["calls"].values()
                    ],
                },
                "finish_reason": kept["finish"],
                "logprobs": {"content": kept["logprobs"]} if kept["logprobs"] else None,
            }
            for index, kept in sorted(choices.items())
        ],
        "usage": usage,
    }


def openai_python() -> Run:
    openai = importlib.import_module("openai")
    state_type = importlib.import_module("openai.lib.streaming.chat").ChatCompletionStreamState
    chunk_type = importlib.import_module("openai.types.chat").ChatCompletionChunk
    client = openai.OpenAI(api_key="none", base_url="http://localhost/v1")
    modules = [base.__module__.split(".")[0] for base in type(client._client).__mro__]
    http = importlib.import_module(
        next(name for name in modules if name.startswith("httpx"))
    )  # whichever it was built on
    request = http.Request("POST", "http://localhost/v1/chat/completions")

    def run(reads: list[bytes]) -> dict[str, Any]:
        headers = {"content-type": "text/event-stream"}
        response = http.Response(200, headers=headers, content=iter(reads), request=request)
        state = state_type()
        for chunk in openai.Stream(cast_to=chunk_type, response=response, client=client):
            state.handle_chunk(chunk)
        final: dict[str, Any] = state.get_final_completion().model_dump()
        return final

    return run


def litellm_builder() -> Run:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it asks the network for prices
    litellm: Any = importlib.import_module("litellm")
    loads = importlib.import_module("orjson").loads
    litellm.suppress_debug_info = True  # else it prints a hint for every model it does not know
    build = litellm.stream_chunk_builder
    response_type = importlib.import_module("litellm.types.utils").ModelResponseStream

    def run(reads: list[bytes]) -> dict[str, Any]:
        final: dict[str, Any] = build([response_type(**loads(payload)) for payload in payloads(reads)]).model_dump()
        return final

    return run
