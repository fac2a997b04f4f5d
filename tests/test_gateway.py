"""The example gateway on the loopback, between a mock upstream and the openai client."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import importlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import aiohttp
import httpx
import openai
import pytest
import uvicorn

from conftest import ROOT, Backend
from deltafold import atap, unfold

FOLDER = ROOT / "examples" / "gateway"
TEXT = (ROOT / "examples" / "openai-text.sse").read_bytes()
TOOLS = (ROOT / "examples" / "parallel-tools.sse").read_bytes()
ANSWER = "A delta is where a river lays down what it carried; folded together, the grains are land again 🏞️."
QUESTION: Any = [{"role": "user", "content": "What is a delta?"}]
SECONDS = 30  # for anything that is waited for


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


upstream_example = example("upstream")
Play = upstream_example.Play


@pytest.fixture
def gateway(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module, implementation = example("gateway"), importlib.import_module(f"deltafold._{backend.name}")
    for name in ("ChatCompletionAccumulator", "StreamFilter"):
        monkeypatch.setattr(module, name, getattr(implementation, name))
    return module


class House:
    """The gateway, what stands behind it, and what it has recorded."""

    def __init__(self, upstream: Any, base_url: str) -> None:
        self.upstream = upstream
        self.base_url = base_url
        self.entries: list[dict[str, Any]] = []

    async def entry(self) -> dict[str, Any]:
        """The line of the only request so far, as soon as it is there."""
        await until(lambda: bool(self.entries))
        [entry] = self.entries
        return json.loads(json.dumps(entry, allow_nan=False))

    def client(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{self.base_url}/v1", api_key="sk-none", max_retries=0, timeout=SECONDS)


async def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


async def hear(stream: Any, texts: list[str]) -> None:
    async for chunk in stream:
        texts.append(chunk.choices[0].delta.content or "")  # noqa: PERF401 - what came before an error counts


async def read(pieces: Any, got: bytearray) -> None:
    async for piece in pieces:
        got += piece


@contextlib.asynccontextmanager
async def house(gateway: ModuleType, plays: dict[str, Any]) -> AsyncIterator[House]:
    upstream = upstream_example.Upstream(plays)
    behind = await upstream.serve()
    port = behind.sockets[0].getsockname()[1]
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    built = House(upstream, f"http://127.0.0.1:{listening.getsockname()[1]}")
    app = gateway.create_app(f"http://127.0.0.1:{port}", built.entries.append, {"fast": "gpt-4o-mini"})
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none", lifespan="on"))
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign]
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        await until(lambda: server.started or serving.done())
        yield built
    finally:
        server.should_exit = True
        await asyncio.wait_for(serving, SECONDS)
        behind.close()


def in_house(gateway: ModuleType, plays: dict[str, Any], visit: Callable[[House], Awaitable[None]]) -> None:
    async def main() -> None:
        async with house(gateway, plays) as built:
            await visit(built)

    asyncio.run(main())


def final(result: Any) -> dict[str, Any]:
    """What openai's own accumulation has, without the members that it adds."""
    completion = result.to_dict(mode="json")
    completion.pop("obfuscation", None)
    for choice in completion["choices"]:
        choice["message"].pop("parsed", None)
        for call in choice["message"].get("tool_calls") or []:
            call.pop("index", None)
            call["function"].pop("parsed_arguments", None)
    return without_nulls(completion)


def without_nulls(completion: dict[str, Any]) -> dict[str, Any]:
    """A message of the openai package has a null for each member that was not sent."""
    completion = copy.deepcopy(completion)
    for choice in completion["choices"]:
        choice["message"] = {name: value for name, value in choice["message"].items() if value is not None}
    return completion


@pytest.mark.parametrize(("body", "model"), [(TEXT, "gpt-4o-mini-2024-07-18"), (TOOLS, "gpt-4o-2024-08-06")])
@pytest.mark.parametrize("piece_bytes", [0, 7, 1000])
def test_the_client_has_what_was_recorded(gateway: ModuleType, body: bytes, model: str, piece_bytes: int) -> None:
    async def visit(built: House) -> None:
        async with built.client() as client:
            options = {"stream_options": {"include_usage": True}}
            async with client.chat.completions.stream(model="m", messages=QUESTION, **options) as stream:
                got = final(await stream.get_final_completion())
        entry = await built.entry()
        assert got == without_nulls(entry["result"])
        assert (entry["upstream_model"], entry["close_reason"], entry["complete"]) == (model, "eof", True)
        assert (entry["error"], entry["status"], entry["stream"]) == (None, 200, True)

    in_house(gateway, {"": Play(body, piece_bytes=piece_bytes)}, visit)


def test_what_is_recorded(gateway: ModuleType) -> None:
    async def visit(built: House) -> None:
        async with built.client() as client:
            stream = await client.chat.completions.create(model="m", messages=QUESTION, stream=True)
            assert "".join([c.choices[0].delta.content or "" async for c in stream]) == ANSWER
        entry = await built.entry()
        assert entry["result"]["choices"][0]["message"]["content"] == ANSWER
        assert (entry["usage_source"], entry["usage"]["total_tokens"]) == ("reported", 37)
        assert entry["usage"] == entry["result"]["usage"]
        assert entry["counts"]["content"] == len(ANSWER)
        assert entry["counts"]["bytes"] == len(TEXT)
        timing = entry["timing"]
        assert 0 < timing["first_byte"] <= timing["first_content"] <= timing["last_content"] <= timing["end"]
        assert sum(timing["gaps"]) <= 22, "of 23 pieces with content"

    in_house(gateway, {"": Play(TEXT)}, visit)


def test_usage_is_asked_for_and_hidden(gateway: ModuleType) -> None:
    async def visit(built: House) -> None:
        async with built.client() as client:
            stream = await client.chat.completions.create(model="m", messages=QUESTION, stream=True)
            chunks = [chunk async for chunk in stream]
        assert all(chunk.choices and chunk.usage is None for chunk in chunks)
        assert len(chunks) == TEXT.count(b"\n\n") - 2, "all but the usage chunk and [DONE]"
        assert built.upstream.requests[0]["stream_options"] == {"include_usage": True}
        assert (await built.entry())["usage"]["completion_tokens"] == 23

    in_house(gateway, {"": Play(TEXT)}, visit)


def test_usage_for_those_who_ask(gateway: ModuleType) -> None:
    async def visit(built: House) -> None:
        asked = {"include_usage": True, "include_obfuscation": False}
        async with httpx.AsyncClient(base_url=built.base_url, trust_env=False) as client:
            body = {"model": "m", "messages": QUESTION, "stream": True, "stream_options": asked}
            got = await client.post("/v1/chat/completions", json=body)
        assert got.content == TEXT, "nothing to change: the upstream's very bytes"
        assert got.headers["content-type"].startswith("text/event-stream")
        assert built.upstream.requests[0]["stream_options"] == asked

    in_house(gateway, {"": Play(TEXT, piece_bytes=11)}, visit)


@pytest.mark.parametrize("piece_bytes", [0, 7])
def test_a_model_by_another_name(gateway: ModuleType, piece_bytes: int) -> None:
    async def visit(built: House) -> None:
        async with built.client() as client, client.chat.completions.stream(model="fast", messages=QUESTION) as stream:
            models = {event.chunk.model async for event in stream if event.type == "chunk"}
            got = final(await stream.get_final_completion())
        assert models == {"fast"}
        assert built.upstream.requests[0]["model"] == "gpt-4o-mini"
        entry = await built.entry()
        assert (entry["model"], entry["upstream_model"]) == ("fast", "gpt-4o-mini-2024-07-18")
        assert entry["result"]["model"] == "gpt-4o-mini-2024-07-18", "accounts are kept on what served"
        assert entry["result"]["usage"]["total_tokens"] == 37
        assert got == without_nulls(entry["result"] | {"model": "fast", "usage": None}), (
            "equal but for the named changes"
        )

    in_house(gateway, {"gpt-4o-mini": Play(TEXT, piece_bytes=piece_bytes)}, visit)


def test_an_answer_that_is_no_stream(gateway: ModuleType, backend: Backend) -> None:
    whole = backend.merge(TEXT)

    async def visit(built: House) -> None:
        async with built.client() as client:
            got = (await client.chat.completions.create(model="fast", messages=QUESTION)).to_dict()
        assert got == whole | {"model": "fast"}
        assert "stream_options" not in built.upstream.requests[0]
        entry = await built.entry()
        assert (entry["result"], entry["stream"], entry["complete"]) == (whole, False, True)

    body = json.dumps(whole).encode()
    in_house(gateway, {"gpt-4o-mini": Play(body, piece_bytes=100, content_type="application/json")}, visit)


def test_a_cache_hit_unfolded(gateway: ModuleType, backend: Backend) -> None:
    whole = backend.merge(TEXT)

    async def visit(built: House) -> None:
        async with built.client() as client:
            options = {"stream_options": {"include_usage": True}}
            async with client.chat.completions.stream(model="m", messages=QUESTION, **options) as stream:
                assert final(await stream.get_final_completion()) == without_nulls(whole)

    in_house(gateway, {"": Play(b"".join(unfold(whole, chunk_chars=5)))}, visit)


# What goes wrong


def test_an_error_answer_keeps_its_status(gateway: ModuleType) -> None:
    error = b'{"error":{"message":"slow down","type":"requests","code":"rate_limit_exceeded"}}'

    async def visit(built: House) -> None:
        async with built.client() as client:
            with pytest.raises(openai.RateLimitError, match="slow down"):
                await client.chat.completions.create(model="m", messages=QUESTION, stream=True)
        entry = await built.entry()
        assert (entry["status"], entry["error"]["kind"]) == (429, "upstream-error")
        assert entry["usage_source"] == "none"

    in_house(gateway, {"": Play(error, status=429, content_type="application/json")}, visit)


def test_an_error_in_the_middle_of_a_stream(gateway: ModuleType) -> None:
    events = TEXT.split(b"\n\n")
    error = b'data: {"error":{"message":"overloaded","type":"server_error","code":503}}'
    body = b"\n\n".join([*events[:6], error, b""])

    async def visit(built: House) -> None:
        async with built.client() as client:
            texts: list[str] = []
            stream = await client.chat.completions.create(model="fast", messages=QUESTION, stream=True)
            with pytest.raises(openai.APIError, match="overloaded"):
                await hear(stream, texts)
        entry = await built.entry()
        assert entry["error"] == {
            "kind": "upstream-error",
            "message": f"upstream-error: overloaded (at byte {body.index(error)})",
        }
        assert (entry["complete"], entry["close_reason"]) == (False, "eof")
        assert "".join(texts) == entry["result"]["choices"][0]["message"]["content"] == "A delta is where a"

    in_house(gateway, {"": Play(body)}, visit)


def cut_after(events: int, more: int) -> int:
    return len(b"\n\n".join(TEXT.split(b"\n\n")[:events])) + 2 + more


@pytest.mark.parametrize("more", [0, 100])
def test_an_upstream_that_breaks_off(gateway: ModuleType, more: int) -> None:
    """The model's name is changed, so that an event is held until it is whole: what was sent ends between two events."""

    async def visit(built: House) -> None:
        async with built.client() as client:
            texts: list[str] = []
            stream = await client.chat.completions.create(model="fast", messages=QUESTION, stream=True)
            with pytest.raises(openai.APIError, match="the upstream broke off"):
                await hear(stream, texts)
        entry = await built.entry()
        assert (entry["close_reason"], entry["complete"], entry["error"]["kind"]) == ("error", False, "truncated")
        assert (entry["usage"], entry["usage_source"]) == (None, "none")
        assert "".join(texts) == entry["result"]["choices"][0]["message"]["content"] == "A delta is where a"

    in_house(gateway, {"": Play(TEXT, cut=cut_after(6, more))}, visit)


def test_an_upstream_that_breaks_off_in_an_event_that_was_half_sent(gateway: ModuleType) -> None:
    """Nothing is to be changed, so that every byte goes on at once: the client's connection breaks like the upstream's."""

    async def visit(built: House) -> None:
        body = {"model": "m", "messages": QUESTION, "stream": True, "stream_options": {"include_usage": True}}
        got = bytearray()
        client = httpx.AsyncClient(base_url=built.base_url, trust_env=False)
        async with client, client.stream("POST", "/v1/chat/completions", json=body) as response:
            with pytest.raises(httpx.RemoteProtocolError):
                await read(response.aiter_raw(), got)
        assert got == TEXT[: cut_after(6, 100)]
        assert (await built.entry())["close_reason"] == "error"

    in_house(gateway, {"": Play(TEXT, cut=cut_after(6, 100))}, visit)


def test_an_upstream_that_breaks_off_after_done(gateway: ModuleType) -> None:
    async def visit(built: House) -> None:
        async with built.client() as client:
            stream = await client.chat.completions.create(model="m", messages=QUESTION, stream=True)
            assert "".join([c.choices[0].delta.content or "" async for c in stream]) == ANSWER
        entry = await built.entry()
        assert (entry["complete"], entry["error"]) == (True, None)

    in_house(gateway, {"": Play(TEXT, cut=len(TEXT))}, visit)


def test_an_upstream_that_never_ends(gateway: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "LONGEST_STREAM", 0.1)

    async def visit(built: House) -> None:
        async with built.client() as client:
            texts: list[str] = []
            stream = await client.chat.completions.create(model="fast", messages=QUESTION, stream=True)
            with pytest.raises(openai.APIError, match="the upstream broke off"):
                await hear(stream, texts)
        entry = await built.entry()
        assert (entry["close_reason"], entry["complete"]) == ("timeout", False)
        assert "".join(texts) == entry["result"]["choices"][0]["message"]["content"]
        await until(lambda: built.upstream.left == 1)

    in_house(gateway, {"": Play(TEXT, rate=5)}, visit)


def test_an_answer_that_is_too_large(gateway: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "LARGEST_ANSWER", 1000)

    async def visit(built: House) -> None:
        async with httpx.AsyncClient(base_url=built.base_url, trust_env=False) as client:
            got = await client.post("/v1/chat/completions", json={"model": "m"})
        assert (got.status_code, got.json()["error"]["message"]) == (502, "the upstream's answer is too large")
        assert (await built.entry())["close_reason"] == "too-large"

    in_house(gateway, {"": Play(b" " * 5000, piece_bytes=500, content_type="application/json")}, visit)


def test_a_request_that_does_not_come(gateway: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "LONGEST_REQUEST", 0.05)

    async def visit(built: House) -> None:
        async def slow() -> AsyncIterator[bytes]:
            yield b"{"
            await asyncio.sleep(1)

        async with httpx.AsyncClient(base_url=built.base_url, trust_env=False) as client:
            got = await client.post("/v1/chat/completions", content=slow())
        assert got.status_code == 408

    in_house(gateway, {}, visit)


def test_a_request_that_is_too_large(gateway: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "LARGEST_REQUEST", 1000)

    async def visit(built: House) -> None:
        async with httpx.AsyncClient(base_url=built.base_url, trust_env=False) as client:
            got = await client.post("/v1/chat/completions", json={"model": "m" * 2000})
        assert (got.status_code, built.upstream.requests) == (400, [])

    in_house(gateway, {}, visit)


def test_an_upstream_that_is_not_there(gateway: ModuleType) -> None:
    async def main() -> None:
        async with house(gateway, {}) as built:
            pass  # its upstream is closed with it
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        entries: list[dict[str, Any]] = []
        app = gateway.create_app(f"http://127.0.0.1:{port}", entries.append)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url=built.base_url) as client:
                got = await client.post("/v1/chat/completions", json={"model": "m", "stream": True})
        assert got.status_code == 502
        assert got.json()["error"]["message"] == "the upstream cannot be reached: ConnectError"
        [entry] = entries
        assert (entry["close_reason"], entry["status"], entry["usage"]) == ("unreachable", 502, None)

    asyncio.run(main())


@pytest.mark.parametrize("body", [b"", b"[]", b'{"model":', b"\xff"])
def test_a_request_that_is_none(gateway: ModuleType, body: bytes) -> None:
    async def visit(built: House) -> None:
        async with httpx.AsyncClient(base_url=built.base_url, trust_env=False) as client:
            got = await client.post("/v1/chat/completions", content=body)
        assert (got.status_code, got.json()["error"]["type"]) == (400, "gateway_error")
        assert built.upstream.requests == []

    in_house(gateway, {}, visit)


@pytest.mark.parametrize("model", ["m", "fast"])
def test_a_client_that_leaves_in_the_middle(gateway: ModuleType, model: str) -> None:
    """The upstream has gone silent; the gateway lets go of it, and the line is written all the same."""

    async def visit(built: House) -> None:
        async with built.client() as client:
            stream = await client.chat.completions.create(model=model, messages=QUESTION, stream=True)
            texts = []
            async for chunk in stream:
                texts.append(chunk.choices[0].delta.content)
                if len(texts) == 6:
                    break
            await stream.close()
        entry = await built.entry()
        assert (entry["close_reason"], entry["complete"]) == ("client-disconnect", False)
        assert entry["result"]["choices"][0]["message"]["content"] == "".join(texts) == "A delta is where a"
        await until(lambda: built.upstream.left == 1)

    in_house(gateway, {"": Play(TEXT, stall=cut_after(6, 0))}, visit)


def test_two_hundred_streams_at_once(gateway: ModuleType) -> None:
    """Each with a text of its own; some are cut, some clients leave. Nobody's bytes reach another."""
    plays, expected = {}, {}
    for i in range(200):
        text = f"stream {i}: " + " ".join(f"{i}.{k}" for k in range(20))
        whole = {
            "id": f"chatcmpl-{i}",
            "object": "chat.completion",
            "created": 1767225600,
            "model": f"m{i}",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": i, "completion_tokens": 20, "total_tokens": i + 20},
        }
        body = b"".join(unfold(whole, chunk_chars=12))
        cut = len(body) // 2 if i % 10 == 3 else None
        plays[f"m{i}"] = Play(body, rate=200 if i % 2 else None, piece_bytes=(i % 7) * 30, cut=cut)
        expected[f"m{i}"] = whole

    async def visit(built: House) -> None:
        async with built.client() as client:

            async def one(i: int) -> tuple[str, bool]:
                text = ""
                stream = await client.chat.completions.create(model=f"m{i}", messages=QUESTION, stream=True)
                try:
                    async for chunk in stream:
                        assert chunk.id == f"chatcmpl-{i}"
                        text += chunk.choices[0].delta.content or ""
                        if i % 10 == 5 and len(text) > 50:
                            await stream.close()
                            return text, False
                except openai.APIError:
                    return text, False
                return text, True

            got = await asyncio.gather(*map(one, range(200)))
            await until(lambda: len(built.entries) == 200)
        lines = {entry["model"]: entry for entry in built.entries}
        for i, (text, whole) in enumerate(got):
            entry, result = lines[f"m{i}"], expected[f"m{i}"]
            recorded = entry["result"]["choices"][0]["message"]["content"]
            assert whole == (i % 10 not in (3, 5))
            if whole:
                assert entry["result"] == result
                assert text == recorded
                assert entry["close_reason"] == "eof"
            elif i % 10 == 3:
                assert text == recorded
                assert (entry["close_reason"], entry["complete"]) == ("error", False)
            else:
                assert recorded.startswith(text), "what the upstream had sent, delivered or not"
            assert result["choices"][0]["message"]["content"].startswith(recorded)

    in_house(gateway, plays, visit)


def test_lines_of_json(gateway: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    write = gateway.line_writer(str(path))
    write({"a": "ü\n"})
    write({"b": None})
    assert [json.loads(line) for line in path.read_bytes().splitlines()] == [{"a": "ü\n"}, {"b": None}]
    assert path.stat().st_mode & 0o077 == 0, "what people said is for nobody else"


def test_the_load_script(backend: Backend) -> None:
    ran = subprocess.run(
        [sys.executable, str(FOLDER / "load.py"), "--streams", "20", "--rate", "50", "--tokens", "5"],
        env=os.environ | {"DELTAFOLD_BACKEND": backend.name},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1] == "lost: 0"
    assert f"backend {backend.name}" in ran.stdout


# tap over the two clients


def test_atap_over_httpx_and_aiohttp(backend: Backend) -> None:
    async def main() -> None:
        server = await upstream_example.Upstream({"": Play(TEXT, piece_bytes=700)}).serve()
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat/completions"
        async with server, httpx.AsyncClient(trust_env=False) as client, aiohttp.ClientSession() as session:
            async with client.stream("POST", url, json={}) as response:
                acc = backend.ChatCompletionAccumulator()
                assert b"".join([piece async for piece in atap(response.aiter_bytes(), acc)]) == TEXT
                assert (acc.text(), acc.close_reason) == (ANSWER, "eof")
            async with session.post(url, json={}) as answer:
                acc = backend.ChatCompletionAccumulator()
                assert b"".join([piece async for piece in atap(answer.content.iter_any(), acc)]) == TEXT
                assert (acc.text(), acc.close_reason) == (ANSWER, "eof")
            async with session.post(url, json={}) as answer:
                acc = backend.ChatCompletionAccumulator()
                async with contextlib.aclosing(atap(answer.content.iter_any(), acc)) as pieces:
                    async for _ in pieces:
                        break
                assert acc.close_reason == "client-disconnect"

    asyncio.run(main())


@pytest.mark.parametrize("cut", [5000, 5001])
def test_atap_over_clients_whose_upstream_breaks_off(backend: Backend, cut: int) -> None:
    async def main() -> None:
        server = await upstream_example.Upstream({"": Play(TEXT, cut=cut)}).serve()
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat/completions"
        async with server, httpx.AsyncClient(trust_env=False) as client, aiohttp.ClientSession() as session:
            async with client.stream("POST", url, json={}) as response:
                acc, got = backend.ChatCompletionAccumulator(), bytearray()
                with pytest.raises(httpx.RemoteProtocolError):
                    await read(atap(response.aiter_bytes(), acc), got)
                assert (got, acc.close_reason, acc.error.kind) == (TEXT[:cut], "error", "truncated")
            async with session.post(url, json={}) as answer:
                acc = backend.ChatCompletionAccumulator()
                with pytest.raises(aiohttp.ClientPayloadError):
                    await read(atap(answer.content.iter_any(), acc), bytearray())
                assert (acc.close_reason, acc.error.kind) == ("error", "truncated")

    asyncio.run(main())
