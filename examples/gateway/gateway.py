"""A small gateway for Chat Completions: relays, renames models, always knows the usage, and writes down what was served.

    python examples/gateway/gateway.py http://127.0.0.1:9000 --alias fast=gpt-4o-mini --record requests.jsonl

For a stream it asks the upstream for usage, and hides the chunk that brings it from a client who did not ask. When the
upstream breaks off, the client gets an error event, if what it has so far ends between two events, and else a broken
connection; never half an event and an orderly end. Each request becomes one line of JSON, however it ended.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from deltafold import ChatCompletionAccumulator, StreamFilter, Timing, atap

PATH = "/v1/chat/completions"
LARGEST_REQUEST = 16 * 1024 * 1024  # bytes
LARGEST_ANSWER = 64 * 1024 * 1024  # bytes of an answer that is no stream
TIMEOUT = httpx.Timeout(10, read=120)  # seconds; read: of silence
LONGEST_REQUEST = 60.0  # seconds for the client to send it
LONGEST_STREAM = 3600.0  # seconds, whatever still comes
BROKEN_OFF = {"error": {"message": "the upstream broke off", "type": "upstream_error", "code": "upstream_cut"}}

Entry = dict[str, Any]


def create_app(upstream: str, record: Callable[[Entry], None], aliases: Mapping[str, str] | None = None) -> Starlette:
    """The gateway as an ASGI application.

    Args:
        upstream: the base URL of the server behind.
        record: is given one JSON object for each request when it has ended.
        aliases: the model to ask the upstream for, by the name that clients use.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        async with httpx.AsyncClient(base_url=upstream, limits=limits, timeout=TIMEOUT, trust_env=False) as client:
            app.state.gateway = Gateway(client, record, aliases or {})
            yield

    return Starlette(routes=[Route(PATH, answer, methods=["POST"])], lifespan=lifespan)


async def answer(request: Request) -> Response:
    gateway: Gateway = request.app.state.gateway
    return await gateway.answer(request)


class Gateway:
    def __init__(self, client: httpx.AsyncClient, record: Callable[[Entry], None], aliases: Mapping[str, str]) -> None:
        self.client = client
        self.record = record
        self.aliases = aliases

    async def answer(self, request: Request) -> Response:
        arrived = time.perf_counter()
        try:
            body = await asyncio.wait_for(read_request(request), LONGEST_REQUEST)
        except (asyncio.TimeoutError, ClientDisconnect):
            return refusal(408, "the request did not come")
        if body is None:
            return refusal(400, "the request is no JSON object, or too large")
        asked = body.get("model")
        alias = asked if isinstance(asked, str) and asked in self.aliases else None
        if alias is not None:
            body["model"] = self.aliases[alias]
        wants_usage = ask_for_usage(body)
        acc = ChatCompletionAccumulator()
        entry = {"time": time.time(), "model": asked, "stream": body.get("stream") is True, "status": 502}
        try:
            upstream = await self.client.send(
                self.client.build_request("POST", PATH, json=body, headers=passed_on(request)), stream=True
            )
        except httpx.HTTPError as error:
            acc.close("unreachable")
            self.record(entry | outcome(acc, None))
            return refusal(502, f"the upstream cannot be reached: {type(error).__name__}")
        entry["status"] = upstream.status_code

        def on_close(acc: ChatCompletionAccumulator, timing: Timing) -> None:
            self.record(entry | outcome(acc, timing))

        pieces = atap(upstream.aiter_bytes(), acc, on_close, timing=True, start=arrived)
        if upstream.headers.get("content-type", "").startswith("text/event-stream"):
            relay = StreamFilter(model=alias, drop_usage_chunk=not wants_usage)
            return Relay(upstream, pieces, relay, acc)
        return await whole_answer(upstream, pieces, alias)


class Relay(StreamingResponse):
    """The upstream's stream as the response. Whatever becomes of it, the upstream's connection is given back."""

    def __init__(
        self, upstream: httpx.Response, pieces: Any, relay: StreamFilter, acc: ChatCompletionAccumulator
    ) -> None:
        super().__init__(self.relayed(), upstream.status_code, {"cache-control": "no-cache"}, "text/event-stream")
        self.upstream = upstream
        self.pieces = pieces
        self.relay = relay
        self.acc = acc

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self.pieces.aclose()  # the client left, unless the stream had ended before
            await self.upstream.aclose()

    async def relayed(self) -> AsyncIterator[bytes]:
        end = time.monotonic() + LONGEST_STREAM
        try:
            async for piece in self.pieces:
                ready = self.relay.feed(piece)
                if ready:
                    yield ready
                if time.monotonic() > end and not self.acc.done_seen:
                    await self.pieces.aclose("timeout")
                    yield self.broken_off()
                    return
        except httpx.HTTPError:
            if not self.acc.done_seen:
                yield self.broken_off()
        else:
            rest = self.relay.close()
            if rest:
                yield rest

    def broken_off(self) -> bytes:
        event = self.relay.inject(b"data: " + json.dumps(BROKEN_OFF).encode() + b"\n\n")
        if not event:
            raise BrokenOff("the upstream broke off in the middle of an event")
        return event


class BrokenOff(Exception):
    """Makes the server break the connection to the client."""


async def whole_answer(upstream: httpx.Response, pieces: Any, alias: str | None) -> Response:
    """An answer that is no stream: a completion, or an error."""
    body = bytearray()
    try:
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                body += piece
                if len(body) > LARGEST_ANSWER:
                    await pieces.aclose("too-large")
                    return refusal(502, "the upstream's answer is too large")
    except httpx.HTTPError:
        return refusal(502, "the upstream broke off")
    finally:
        await upstream.aclose()
    answer = parsed(body)
    if alias is not None and answer is not None and "model" in answer:
        return JSONResponse(answer | {"model": alias}, upstream.status_code)
    return Response(bytes(body), upstream.status_code, media_type=upstream.headers.get("content-type"))


async def read_request(request: Request) -> dict[str, Any] | None:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_REQUEST:
            return None
    return parsed(body)


def parsed(body: bytes | bytearray) -> dict[str, Any] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def ask_for_usage(body: dict[str, Any]) -> bool:
    """Makes a request for a stream ask for usage; whether it did before."""
    if body.get("stream") is not True:
        return True
    options = body.get("stream_options")
    options = options if isinstance(options, dict) else {}
    body["stream_options"] = options | {"include_usage": True}
    return options.get("include_usage") is True


def passed_on(request: Request) -> dict[str, str]:
    """The client's credentials; and no compression, which would have to be undone to look inside."""
    headers = {"accept-encoding": "identity"}
    if "authorization" in request.headers:
        headers["authorization"] = request.headers["authorization"]
    return headers


def refusal(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": "gateway_error", "code": None}}, status)


def outcome(acc: ChatCompletionAccumulator, timing: Timing | None) -> Entry:
    """What became of a request, all of it JSON."""
    result = json.loads(acc.result_json())
    error = acc.error
    return {
        "upstream_model": acc.model,
        "close_reason": acc.close_reason,
        "complete": acc.complete,
        "error": None if error is None else {"kind": error.kind, "message": str(error)},
        "usage": result.get("usage"),
        "usage_source": acc.usage_source,
        "counts": acc.counts,
        "timing": None if timing is None else asdict(timing),
        "result": result,
    }


def line_writer(path: str) -> Callable[[Entry], None]:
    """Appends lines to a file, each in one write."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(entry: Entry) -> None:
        os.write(file, json.dumps(entry, ensure_ascii=False).encode() + b"\n")

    return write


def main() -> None:
    parser = argparse.ArgumentParser(description="A small gateway for Chat Completions.")
    parser.add_argument("upstream", help="base URL of the server behind, without /v1")
    parser.add_argument(
        "--alias", action="append", default=[], metavar="NAME=MODEL", help="ask for MODEL where a client says NAME"
    )
    parser.add_argument("--record", default="requests.jsonl", help="file to append a line to for each request")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    aliases = dict(alias.split("=", 1) for alias in arguments.alias)
    app = create_app(arguments.upstream, line_writer(arguments.record), aliases)
    uvicorn.run(app, host=arguments.host, port=arguments.port, access_log=False, backlog=2048)


if __name__ == "__main__":
    main()
