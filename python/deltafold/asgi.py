"""Watching the responses of an ASGI application: ``TapMiddleware``. Needs no framework.

Each message goes on to the server as it came and when it came; nothing is buffered. What the end of a response looks like
from here decides the accumulator's ``close_reason``:

    the last body message                                                   ``eof``
    the client left before it, or the application was cancelled             ``client-disconnect``
    the application raised, or returned without a last body message         ``error``
    a piece could not be fed                                                ``observer-error``
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any

from ._backend import ChatCompletionAccumulator
from ._errors import escape
from .tap import Clock, Observer, Stopwatch, Timing, end_of, report

__all__ = ["TapMiddleware", "TappedResponse"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MEDIA_TYPES = frozenset({b"text/event-stream", b"application/json"})
UNSEEN = frozenset({"http.response.pathsend", "http.response.zerocopysend"})  # the server reads the body from a file


@dataclass(frozen=True)
class TappedResponse:
    """One response that went by.

    Attributes:
        scope: the request's ASGI scope: ``scope["path"]``, ``scope["headers"]``, ``scope["state"]``.
        status: the response's HTTP status.
        accumulator: closed, with the answer; None when the body was left alone.
        timing: when things came, in seconds from the arrival of the request; None without ``timing=True``.
        skipped: why the body was left alone, such as ``content-encoding: gzip`` or ``http.response.pathsend``; else None.
    """

    scope: Scope
    status: int
    accumulator: ChatCompletionAccumulator | None
    timing: Timing | None = None
    skipped: str | None = None


class TapMiddleware:
    """Feeds an accumulator with each ``text/event-stream`` or ``application/json`` response of an ASGI application.

    Responses of another type pass without a word. A body with a ``content-encoding`` is left alone: put this middleware
    inside of one that compresses. To watch some paths only, put it around these routes.

    Args:
        app: the ASGI application.
        on_close: called once for each watched or skipped response at its end, with a ``TappedResponse``; a plain function,
            run on the event loop. What it raises is logged by the logger ``deltafold`` and reaches no client.
        accumulator: makes the accumulator of one response, such as ``partial(ChatCompletionAccumulator, limits, n=1)``.
        timing: measure when bytes and content came.
        clock: gives seconds that only grow.

    Example:
        >>> async def app(scope, receive, send): ...
        >>> app = TapMiddleware(app, lambda response: print(response.status, response.accumulator.usage))
    """

    def __init__(
        self,
        app: App,
        on_close: Callable[[TappedResponse], object],
        *,
        accumulator: Callable[[], ChatCompletionAccumulator] = ChatCompletionAccumulator,
        timing: bool = False,
        clock: Clock = time.perf_counter,
    ) -> None:
        if iscoroutinefunction(on_close):
            raise TypeError("on_close must be a plain function, not a coroutine function")
        self.app = app
        self._on_close = on_close
        self._accumulator = accumulator
        self._clock = clock if timing else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection; only those of type ``http`` are watched."""
        if scope["type"] != "http" or scope.get("method") == "HEAD":
            await self.app(scope, receive, send)
            return
        stopwatch = None
        try:
            if self._clock is not None:
                stopwatch = Stopwatch(self._clock, None)
        except Exception as error:
            report(error)
        exchange = _Exchange(scope, receive, send, self._on_close, self._accumulator, stopwatch)
        end = "error"  # an application that returns early has not sent its response
        try:
            await self.app(scope, exchange.receive, exchange.send)
        except BaseException as error:
            end = end_of(error)
            raise
        finally:
            exchange.finish(end)


class _Exchange:
    """One request and its response."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        on_close: Callable[[TappedResponse], object],
        accumulator: Callable[[], ChatCompletionAccumulator],
        stopwatch: Stopwatch | None,
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._on_close: Callable[[TappedResponse], object] | None = on_close
        self._accumulator = accumulator
        self._stopwatch = stopwatch
        self._client_left = False
        self._status = 0
        self._skipped: str | None = None
        self._observer: Observer | None = None

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._client_left = True
        return message

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            if not isinstance(message.get("headers", ()), (list, tuple)):  # an iterator can be read only once
                message = {**message, "headers": list(message["headers"])}
            guarded(self._start, message)
        elif kind == "http.response.body":
            if self._observer is not None:
                self._observer.feed(message.get("body", b""))
        elif kind in UNSEEN and self._observer is not None:
            self._observer, self._skipped = None, kind
        try:
            await self._send(message)
        except OSError:  # how a server tells that the client has left
            self._client_left = True
            raise
        if kind == "http.response.body" and not message.get("more_body", False):
            self.finish("eof")

    def finish(self, end: str) -> None:
        """The first call counts."""
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.finish("client-disconnect" if self._client_left else end)
        elif self._skipped is not None:
            guarded(self._tell, None)

    def _start(self, message: Message) -> None:
        headers = {bytes(name).lower(): bytes(value) for name, value in message.get("headers", ())}
        if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() not in MEDIA_TYPES:
            return
        self._status = message["status"]
        encoding = headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding not in (b"identity", b""):
            self._skipped = f"content-encoding: {escape(encoding.decode('latin-1'))}"
        else:
            self._observer = Observer(self._accumulator(), self._tell, self._stopwatch)

    def _tell(self, accumulator: ChatCompletionAccumulator | None, timing: Timing | None = None) -> None:
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close(TappedResponse(self._scope, self._status, accumulator, timing, self._skipped))


def guarded(function: Callable[[Any], object], argument: Any) -> None:
    """Calls; what it raises is logged."""
    try:
        function(argument)
    except Exception as error:
        report(error)
