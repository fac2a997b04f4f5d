"""The code of docs/gateways.md and docs/billing.md, run as it stands."""

from __future__ import annotations

import asyncio
import importlib
import re
from typing import Any

import aiohttp
import httpx
import pytest

import deltafold
from conftest import ROOT, Backend
from test_gateway import TEXT, Play, upstream_example

NAMES = ("ChatCompletionAccumulator", "StreamFilter", "merge")


def run(page: str, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that a page's blocks leave behind, run one after another."""
    implementation = importlib.import_module(f"deltafold._{backend.name}")
    for name in NAMES:
        monkeypatch.setattr(deltafold, name, getattr(implementation, name))
    text = (ROOT / "docs" / page).read_text("utf-8")
    names: dict[str, Any] = {}
    for found in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, found.start(1))
        exec(compile("\n" * line + found[1], page, "exec"), names)
    return names


def test_billing(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(run("billing.md", backend, monkeypatch)["charged"])


def test_gateways(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run("gateways.md", backend, monkeypatch)

    async def main() -> None:
        transport = httpx.ASGITransport(names["app"])
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            got = await client.post("/v1/chat/completions", json={})
        assert got.content == b"".join(names["upstream"])
        usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
        assert names["lines"] == [("/v1/chat/completions", usage, "eof")]

        server = await upstream_example.Upstream({"": Play(TEXT, piece_bytes=300)}).serve()
        base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            async with httpx.AsyncClient(base_url=base, trust_env=False) as client:
                await relayed(names["relay_httpx"], client)
            async with aiohttp.ClientSession(base) as session:
                await relayed(names["relay_aiohttp"], session)

    asyncio.run(main())


async def relayed(relay: Any, client: Any) -> None:
    got, closed = bytearray(), []

    async def send(piece: bytes) -> None:
        got.extend(piece)

    await relay(client, {}, send, closed.append)
    assert got == TEXT
    assert [(acc.close_reason, acc.usage["total_tokens"]) for acc in closed] == [("eof", 37)]


def test_a_relay_whose_client_is_gone(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    names, closed = run("gateways.md", backend, monkeypatch), []

    async def send(piece: bytes) -> None:
        raise ConnectionResetError

    async def main() -> None:
        server = await upstream_example.Upstream({"": Play(TEXT)}).serve()
        base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, httpx.AsyncClient(base_url=base, trust_env=False) as client:
            with pytest.raises(ConnectionResetError):
                await names["relay_httpx"](client, {}, send, closed.append)

    asyncio.run(main())
    assert [acc.close_reason for acc in closed] == ["client-disconnect"]
