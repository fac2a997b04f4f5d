"""A mock upstream: plays a stream file to whoever asks, at a chosen rate, with chosen cuts.

    python examples/gateway/upstream.py examples/openai-text.sse --rate 50 --cut 4000 --port 9000

One TCP connection for each request and no framework, so that a cut is a cut: the connection ends in the middle of the body.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LARGEST_HEAD = 64 * 1024  # bytes of a request's header
LARGEST_BODY = 16 * 1024 * 1024


@dataclass(frozen=True)
class Play:
    """What a model's requests are answered with.

    Attributes:
        body: the whole response body.
        rate: pieces a second, None for as fast as they are taken.
        piece_bytes: bytes of a piece; 0 for one event a piece.
        cut: the connection is closed after so many bytes of the body, None for never.
        stall: after these bytes nothing comes, for at most a minute, until the client leaves; None for never.
        status: HTTP status.
        content_type: of the response.
    """

    body: bytes
    rate: float | None = None
    piece_bytes: int = 0
    cut: int | None = None
    stall: int | None = None
    status: int = 200
    content_type: str = "text/event-stream"

    def pieces(self) -> Iterator[bytes]:
        body = self.body[: self.cut if self.stall is None else self.stall]
        if self.piece_bytes:
            for at in range(0, len(body), self.piece_bytes):
                yield body[at : at + self.piece_bytes]
        else:
            yield from filter(None, re.split(rb"(?<=\n\n)", body))


@dataclass
class Upstream:
    """Answers by the request's ``model``; counts what it sees.

    Attributes:
        plays: what to play for each model; ``""`` is for every other.
        requests: the bodies of all requests so far.
        finished: responses that were played to their end or their cut.
        left: clients that went away before it.
    """

    plays: dict[str, Play]
    requests: list[dict[str, Any]] = field(default_factory=list)
    finished: int = 0
    left: int = 0

    async def serve(self, host: str = "127.0.0.1", port: int = 0) -> asyncio.Server:
        return await asyncio.start_server(self._answer, host, port, limit=LARGEST_HEAD, backlog=2048)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await self._request(reader)
            self.requests.append(request)
            play = self.plays.get(request.get("model", ""), self.plays.get(""))
            if play is None:
                play = Play(
                    b'{"error":{"message":"no such model","code":"model_not_found"}}',
                    status=404,
                    content_type="application/json",
                )
            await self._play(play, reader, writer)
            self.finished += 1
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left += 1
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _request(self, reader: asyncio.StreamReader) -> dict[str, Any]:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)\ncontent-length: *(\d+)", head)
        body = await reader.readexactly(min(int(length[1]), LARGEST_BODY) if length else 0)
        request = json.loads(body or b"{}")
        return request if isinstance(request, dict) else {}

    async def _play(self, play: Play, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {play.status} Mock\r\ncontent-type: {play.content_type}\r\nconnection: close\r\n"
        writer.write(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
        gone = asyncio.create_task(reader.read(1))  # ends when the client closes
        try:
            for piece in play.pieces():
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
                if play.rate is not None:
                    await asyncio.wait([gone], timeout=1 / play.rate)
                if gone.done():
                    raise ConnectionResetError
            if play.stall is not None:
                await asyncio.wait([gone], timeout=60)
                raise ConnectionResetError
            if play.cut is None:
                writer.write(b"0\r\n\r\n")
                await writer.drain()
        finally:
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await gone


async def main(arguments: argparse.Namespace) -> None:
    play = Play(arguments.file.read_bytes(), arguments.rate, arguments.piece_bytes, arguments.cut, arguments.stall)
    server = await Upstream({"": play}).serve(arguments.host, arguments.port)
    print("listening on port", server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A mock upstream that plays a stream file.")
    parser.add_argument("file", type=Path, help="the body of every answer")
    parser.add_argument("--rate", type=float, help="pieces a second")
    parser.add_argument("--piece-bytes", type=int, default=0, help="bytes of a piece; by default an event")
    parser.add_argument("--cut", type=int, help="close the connection after so many bytes")
    parser.add_argument("--stall", type=int, help="say nothing more after so many bytes")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9000)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(parser.parse_args()))
