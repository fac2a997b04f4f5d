"""The relays of the README against a server on this machine, and the README against the examples."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import random
import re
from types import ModuleType
from typing import Any

import pytest

from conftest import ROOT, pieces

BODY = (ROOT / "examples" / "openai-text.sse").read_bytes()
README = (ROOT / "README.md").read_text("utf-8")


def example(name: str) -> ModuleType:
    pytest.importorskip(name.removesuffix("_relay"))
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers any request with the stream, in chunks of random sizes."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    assert length
    await reader.readexactly(int(length[1]))
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for piece in pieces(BODY, random.Random(5), 700):
        if piece:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0)
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    writer.close()


async def relayed(module: ModuleType, gone_after: int | None = None) -> tuple[bytes, list[Any]]:
    """What the client got and what was recorded; the client goes away after so many bytes."""
    got, recorded = bytearray(), []
    module.record = lambda *told: recorded.extend(told)

    async def send(piece: bytes) -> None:
        got.extend(piece)
        if gone_after is not None and len(got) > gone_after:
            raise ConnectionResetError

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        with contextlib.suppress(ConnectionResetError):
            await through(module, base, send)
    return bytes(got), recorded


async def through(module: ModuleType, base: str, send: Any) -> None:
    body = {"stream": True}
    if hasattr(module, "httpx"):
        async with module.httpx.AsyncClient(base_url=base) as client:
            await module.relay(client, "request 1", body, send)
    else:
        async with module.aiohttp.ClientSession(base) as session:
            await module.relay(session, "request 1", body, send)


@pytest.mark.parametrize("name", ["httpx_relay", "aiohttp_relay"])
def test_a_relay_passes_on_every_byte_and_has_the_answer(name: str) -> None:
    got, (request, usage, source, error, completion) = asyncio.run(relayed(example(name)))
    assert got == BODY
    assert (request, source, error) == ("request 1", "reported", None)
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (14, 23, 37)
    assert completion["choices"][0]["message"]["content"].startswith("A delta is where a river lays down")


@pytest.mark.parametrize("name", ["httpx_relay", "aiohttp_relay"])
def test_a_relay_records_also_when_the_client_goes_away(name: str) -> None:
    got, (_, usage, source, error, completion) = asyncio.run(relayed(example(name), gone_after=4000))
    assert BODY.startswith(got)
    assert 4000 < len(got) < len(BODY)
    assert (usage, source, error.kind) == (None, "none", "truncated")
    assert completion["choices"][0]["message"]["content"].startswith("A delta is where")


def test_the_readme_shows_the_example_as_it_is() -> None:
    source = (ROOT / "examples" / "httpx_relay.py").read_text("utf-8")
    body = re.search(r"\n    accumulator = .*?accumulator\.result\(\)\)\n", source, re.DOTALL)
    assert body
    assert body[0] in README
