"""A relay of ten lines with aiohttp: every piece goes on to the client at once, and the merged object is there at the end.

    python examples/aiohttp_relay.py https://upstream.example/ model-name "What is a delta?"

The key, where the upstream wants one, is taken from the variable UPSTREAM_KEY.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

import deltafold


async def relay(
    session: aiohttp.ClientSession, request: str, body: dict[str, Any], send: Callable[[bytes], Awaitable[None]]
) -> None:
    accumulator = deltafold.ChatCompletionAccumulator()
    reason = "interrupted"
    try:
        async with session.post("/v1/chat/completions", json=body) as upstream:
            async for piece in upstream.content.iter_any():
                accumulator.feed(piece)
                await send(piece)
            reason = "eof"
    finally:
        accumulator.close(reason)
        record(request, accumulator.usage, accumulator.usage_source, accumulator.error, accumulator.result())


def record(request: str, usage: Any, source: str, error: deltafold.DeltafoldError | None, completion: Any) -> None:
    print(f"\n{request}: {error or 'complete'}; usage ({source}): {usage}; id {completion.get('id')}", file=sys.stderr)


async def main(upstream: str, model: str, question: str) -> None:
    async def send(piece: bytes) -> None:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()

    headers = {"authorization": f"Bearer {os.environ.get('UPSTREAM_KEY', '')}"}
    body = {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    timeout = aiohttp.ClientTimeout(total=None, sock_read=60)
    async with aiohttp.ClientSession(upstream, headers=headers, timeout=timeout) as session:
        await relay(session, "request 1", body, send)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
