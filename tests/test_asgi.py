"""TapMiddleware: every message passes as it came, and the callback has the answer."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import FileResponse, JSONResponse, StreamingResponse
from starlette.routing import Route

from conftest import ROOT, Backend, feeds
from deltafold import Limits, Timing
from deltafold.asgi import TapMiddleware, TappedResponse

SSE = [(b"content-type", b"text/event-stream; charset=utf-8")]
PIECES = [
    b'data: {"id":"r1","choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"},"finish_reason":null}]}\n\n',
    b'data: {"id":"r1","choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}\n\n',
    b"data: [DONE]\n\n",
]
WHOLE = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}


def start(headers: Any = SSE, status: int = 200) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": headers}


def body(piece: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": piece, "more_body": more}


def stream(pieces: list[bytes] = PIECES) -> list[dict[str, Any]]:
    return [start(), *map(body, pieces), {"type": "http.response.body"}]


class Server:
    """Runs an application once; what it received, what it sent, what it was told."""

    def __init__(
        self, scope: dict[str, Any] | None = None, gone: bool = False, send_fails_at: int | None = None
    ) -> None:
        self.scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": []} | (scope or {})
        self.messages = [{"type": "http.request", "body": b"{}"}]
        if gone:
            self.messages.append({"type": "http.disconnect"})
        self.sent: list[dict[str, Any]] = []
        self.fails_at = send_fails_at

    async def receive(self) -> dict[str, Any]:
        return self.messages.pop(0)

    async def send(self, message: dict[str, Any]) -> None:
        if len(self.sent) == self.fails_at:
            raise OSError("gone")
        self.sent.append(message)

    def run(self, app: Any) -> None:
        asyncio.run(app(self.scope, self.receive, self.send))


def application(messages: list[dict[str, Any]], error: BaseException | None = None, receives: int = 0) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)
        for _ in range(receives):
            await receive()
        if error is not None:
            raise error

    return app


def tapped(
    backend: Backend, app: Any, server: Server | None = None, **options: Any
) -> tuple[list[dict[str, Any]], list[TappedResponse]]:
    server, told = server or Server(), list[TappedResponse]()
    server.run(TapMiddleware(app, told.append, accumulator=backend.ChatCompletionAccumulator, **options))
    return server.sent, told


def test_a_stream_passes_and_is_told(backend: Backend) -> None:
    for pieces in feeds(b"".join(PIECES)):
        messages = stream(pieces)
        sent, [response] = tapped(backend, application(messages))
        assert len(sent) == len(messages)
        assert all(a is b for a, b in zip(sent, messages))
        acc = response.accumulator
        assert acc is not None
        assert (acc.text(), acc.complete, acc.close_reason, acc.error) == ("Hello", True, "eof", None)
        assert (response.status, response.skipped, response.timing) == (200, None, None)
        assert response.scope["path"] == "/v1/chat/completions"


def test_each_message_goes_on_before_the_next_comes(backend: Backend) -> None:
    server = Server()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for i, message in enumerate(stream()):
            await send(message)
            assert len(server.sent) == i + 1

    tapped(backend, app, server)


def test_a_json_answer(backend: Backend) -> None:
    text = b'{"id":"r2","object":"chat.completion","choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop"}]}'
    messages = [start([(b"Content-Type", b"Application/JSON")], 200), body(text[:30]), body(text[30:], False)]
    _, [response] = tapped(backend, application(messages))
    assert response.accumulator is not None
    assert (response.accumulator.id, response.accumulator.text()) == ("r2", "Hi")
    assert response.accumulator.error is None


def test_an_error_answer_has_its_status(backend: Backend) -> None:
    messages = [start([(b"content-type", b"application/json")], 429), body(b'{"error":{"message":"slow down"}}', False)]
    _, [response] = tapped(backend, application(messages))
    assert response.status == 429
    assert response.accumulator is not None
    assert response.accumulator.error.message == "slow down"


@pytest.mark.parametrize("kind", [b"text/html", b"application/jsonlines", b"text/event-streams", b""])
def test_other_types_pass_without_a_word(backend: Backend, kind: bytes) -> None:
    messages = [start([(b"content-type", kind)]), body(b"data: [DONE]\n\n", False)]
    sent, told = tapped(backend, application(messages))
    assert sent == messages
    assert told == []


@pytest.mark.parametrize("encoding", [b"gzip", b" BR ", b"gzip, zstd"])
def test_a_compressed_body_is_left_alone_and_told(backend: Backend, encoding: bytes) -> None:
    messages = [start([*SSE, (b"content-encoding", encoding)]), body(gzip.compress(b"".join(PIECES)), False)]
    sent, [response] = tapped(backend, application(messages))
    assert sent == messages
    assert response.accumulator is None
    assert response.skipped == f"content-encoding: {encoding.decode().strip().lower()}"


def test_identity_is_no_compression(backend: Backend) -> None:
    messages = [start([*SSE, (b"content-encoding", b"identity")]), body(b"".join(PIECES), False)]
    _, [response] = tapped(backend, application(messages))
    assert response.accumulator is not None
    assert response.accumulator.text() == "Hello"


def test_headers_that_can_be_read_only_once_still_reach_the_server(backend: Backend) -> None:
    messages = [start(iter(SSE)), *stream()[1:]]
    sent, [response] = tapped(backend, application(messages))
    assert sent[0]["headers"] == SSE
    assert response.accumulator is not None
    assert response.accumulator.text() == "Hello"


@pytest.mark.parametrize("kind", ["http.response.pathsend", "http.response.zerocopysend"])
def test_a_body_from_a_file_is_left_alone_and_told(backend: Backend, kind: str) -> None:
    messages = [start(), {"type": kind, "path": "/answer.sse", "file": 3}]
    sent, [response] = tapped(backend, application(messages))
    assert all(a is b for a, b in zip(sent, messages))
    assert (response.accumulator, response.skipped) == (None, kind)


def test_messages_of_extensions_pass(backend: Backend) -> None:
    early = {"type": "http.response.early_hint", "links": []}
    trailers = {"type": "http.response.trailers", "headers": [], "more_trailers": False}
    messages = [early, *stream(), trailers]
    sent, [response] = tapped(backend, application(messages))
    assert all(a is b for a, b in zip(sent, messages))
    assert response.accumulator is not None
    assert response.accumulator.close_reason == "eof"


@pytest.mark.parametrize(
    ("error", "gone", "reason"),
    [
        pytest.param(RuntimeError("broken"), False, "error", id="raises"),
        pytest.param(RuntimeError("broken"), True, "client-disconnect", id="raises-after-the-client-left"),
        pytest.param(asyncio.CancelledError(), False, "client-disconnect", id="cancelled"),
        pytest.param(None, True, "client-disconnect", id="returns-after-the-client-left"),
        pytest.param(None, False, "error", id="returns-without-an-end"),
    ],
)
def test_a_response_without_its_end(backend: Backend, error: BaseException | None, gone: bool, reason: str) -> None:
    told: list[TappedResponse] = []
    app = application(stream()[:2], error, receives=2 if gone else 0)
    middleware = TapMiddleware(app, told.append, accumulator=backend.ChatCompletionAccumulator)
    server = Server(gone=gone)
    if error is None:
        server.run(middleware)
    else:
        with pytest.raises(type(error)):
            server.run(middleware)
    [response] = told
    assert response.accumulator is not None
    assert (response.accumulator.close_reason, response.accumulator.text()) == (reason, "Hel")
    assert server.sent == stream()[:2]


def test_a_server_that_says_so_by_an_error(backend: Backend) -> None:
    told: list[TappedResponse] = []
    server = Server(send_fails_at=2)
    with pytest.raises(OSError, match="gone"):
        server.run(TapMiddleware(application(stream()), told.append, accumulator=backend.ChatCompletionAccumulator))
    [response] = told
    assert response.accumulator is not None
    assert response.accumulator.close_reason == "client-disconnect"
    assert response.accumulator.text() == "Hello", "what came from upstream counts, also when it could not be delivered"


def test_a_client_that_leaves_after_the_end_has_not_left_before_it(backend: Backend) -> None:
    _, [response] = tapped(backend, application(stream(), receives=2), Server(gone=True))
    assert response.accumulator is not None
    assert response.accumulator.close_reason == "eof"


def test_an_error_before_the_start_is_no_response(backend: Backend) -> None:
    told: list[TappedResponse] = []
    with pytest.raises(RuntimeError):
        Server().run(TapMiddleware(application([], RuntimeError()), told.append))
    assert told == []


@pytest.mark.parametrize("scope", [{"type": "lifespan"}, {"type": "websocket"}, {"method": "HEAD"}])
def test_other_connections_get_the_very_same_channels(backend: Backend, scope: dict[str, Any]) -> None:
    seen = []

    async def app(*given: Any) -> None:
        seen.append(given)

    server = Server(scope)
    receive, send = server.receive, server.send
    asyncio.run(TapMiddleware(app, lambda response: None)(server.scope, receive, send))
    assert seen == [(server.scope, receive, send)]


def test_timing_begins_with_the_request(backend: Backend) -> None:
    ticks = iter([10.0, 12.0, 12.5, 13.0, 14.0, 16.0, 17.0])  # request, three pieces, the empty one, the end
    _, [response] = tapped(backend, application(stream()), timing=True, clock=lambda: next(ticks))
    assert response.timing == Timing(2.0, 2.0, 2.5, 3.0, 6.0, (0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0))


def test_limits_and_n(backend: Backend) -> None:
    told: list[TappedResponse] = []
    make = partial(backend.ChatCompletionAccumulator, Limits(max_event_bytes=64))
    Server().run(TapMiddleware(application(stream()), told.append, accumulator=make))
    [response] = told
    assert response.accumulator is not None
    assert response.accumulator.error.kind == "limit-exceeded"


def raising(*arguments: Any) -> Any:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"on_close": raising}, id="callback"),
        pytest.param({"accumulator": raising}, id="accumulator"),
        pytest.param({"timing": True, "clock": raising}, id="clock"),
    ],
)
def test_no_fault_of_the_observer_reaches_the_client(options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    server.run(TapMiddleware(application(stream()), **({"on_close": print} | options)))
    assert server.sent == stream()
    assert [type(r.exc_info[1]) for r in caplog.records if r.exc_info] == [ZeroDivisionError]


def test_a_compressed_body_and_a_callback_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    messages = [start([*SSE, (b"content-encoding", b"gzip")]), body(b"", False)]
    server = Server()
    server.run(TapMiddleware(application(messages), raising))
    assert server.sent == messages
    assert len(caplog.records) == 1


def test_the_callback_is_a_plain_function() -> None:
    async def on_close(response: TappedResponse) -> None: ...

    with pytest.raises(TypeError, match="plain function"):
        TapMiddleware(application([]), on_close)


# With a framework


def starlette(told: list[TappedResponse], backend: Backend, *outer: Middleware) -> Starlette:
    async def answer(request: Any) -> StreamingResponse:
        async def pieces() -> Any:
            for piece in PIECES:
                yield piece

        return StreamingResponse(pieces(), media_type="text/event-stream")

    async def whole(request: Any) -> JSONResponse:
        return JSONResponse(WHOLE)

    async def file(request: Any) -> FileResponse:
        return FileResponse(ROOT / "examples" / "openai-text.sse", media_type="text/event-stream")

    tap: Callable[..., Any] = partial(Middleware, TapMiddleware, on_close=told.append)
    return Starlette(
        routes=[Route("/stream", answer), Route("/whole", whole), Route("/file", file)],
        middleware=[*outer, tap(accumulator=backend.ChatCompletionAccumulator)],
    )


def get(app: Starlette, path: str, **headers: str) -> Any:
    import httpx

    async def main() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(main())


@pytest.mark.parametrize(("path", "text"), [("/stream", "Hello"), ("/whole", "Hi")])
def test_in_starlette(backend: Backend, path: str, text: str) -> None:
    told: list[TappedResponse] = []
    assert get(starlette(told, backend), path).status_code == 200
    [response] = told
    assert response.accumulator is not None
    assert (response.accumulator.text(), response.accumulator.complete) == (text, True)


def test_a_client_that_leaves_a_real_server(backend: Backend) -> None:
    told: list[TappedResponse] = []

    async def answer(request: Any) -> StreamingResponse:
        async def pieces() -> Any:
            yield PIECES[0]
            await asyncio.sleep(30)  # until the client has left

        return StreamingResponse(pieces(), media_type="text/event-stream")

    tap = Middleware(TapMiddleware, on_close=told.append, accumulator=backend.ChatCompletionAccumulator)
    app = Starlette(routes=[Route("/", answer)], middleware=[tap])

    async def main() -> None:
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none", lifespan="off"))
        server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign]
        with socket.create_server(("127.0.0.1", 0)) as listening:
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            while not server.started:
                await asyncio.sleep(0.005)
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            await reader.readuntil(PIECES[0])
            writer.close()
            for _ in range(1000):
                if told:
                    break
                await asyncio.sleep(0.01)
            server.should_exit = True
            await asyncio.wait_for(serving, 30)

    asyncio.run(main())
    [response] = told
    assert response.accumulator is not None
    assert (response.accumulator.close_reason, response.accumulator.text()) == ("client-disconnect", "Hel")


def test_a_file_that_starlette_sends_itself(backend: Backend) -> None:
    told: list[TappedResponse] = []
    got = get(starlette(told, backend), "/file")
    [response] = told
    assert got.content == (ROOT / "examples" / "openai-text.sse").read_bytes()
    assert response.accumulator is not None
    assert response.accumulator.usage["completion_tokens"] == 23


def test_inside_of_a_middleware_that_compresses(backend: Backend) -> None:
    told: list[TappedResponse] = []
    app = starlette(told, backend, Middleware(GZipMiddleware, minimum_size=1))
    got = get(app, "/whole", **{"accept-encoding": "gzip"})
    assert got.headers["content-encoding"] == "gzip"
    assert got.json() == WHOLE
    assert told[0].accumulator is not None
    assert told[0].accumulator.text() == "Hi"
