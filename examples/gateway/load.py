"""Many streams at once through the gateway: is anything lost, and what share of its CPU time is spent in deltafold?

    python examples/gateway/load.py --streams 1000 --rate 2

Starts the mock upstream, the gateway and, in this process, the clients. Each stream has a text of its own, each client uses
an alias and did not ask for usage. Every body that a client got and every line that the gateway wrote is compared with what
was sent.

The share is sampled in the gateway's process: after every few milliseconds of CPU time (``ITIMER_PROF``; how many, the kernel's
clock decides) the innermost Python frame is looked at. It counts as deltafold when it is in the package, or on a line of the
gateway that calls it: an extension has no frames, and a signal during a call into it is delivered on the caller's line.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import json
import linecache
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any

import deltafold

HERE = Path(__file__).resolve().parent
PACKAGE = str(Path(deltafold.__file__).parent)
CALLS = re.compile(r"\bacc\b|\.relay\.|StreamFilter\(|ChatCompletionAccumulator\(")
SECONDS = 600  # for the whole of it


def completion(i: int, model: str, tokens: int) -> dict[str, Any]:
    text = f"Stream {i}:" + "".join(f" {i + k:03d}" for k in range(tokens))
    return {
        "id": f"chatcmpl-{i}",
        "object": "chat.completion",
        "created": 1767225600,
        "model": model,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": i, "completion_tokens": tokens, "total_tokens": i + tokens},
    }


# The three processes


async def upstream(streams: int, rate: float, tokens: int) -> None:
    from upstream import Play, Upstream

    plays = {}
    for i in range(streams):
        body = b"".join(deltafold.unfold(completion(i, f"real-{i}", tokens), chunk_chars=4))
        plays[f"real-{i}"] = Play(body, rate=rate)
    server = await Upstream(plays).serve()
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


def gateway(base_url: str, streams: int, record: str) -> None:
    import uvicorn
    from gateway import create_app, line_writer

    samples: collections.Counter[str] = collections.Counter()
    started: list[float] = []

    def sample(number: int, frame: FrameType | None) -> None:
        if frame is None:
            return
        name = frame.f_code.co_filename
        ours = name.startswith(PACKAGE)
        if name.endswith("gateway.py"):
            ours = bool(CALLS.search(linecache.getline(name, frame.f_lineno)))
        where = "deltafold" if ours else Path(name).parts[-2] if "/" in name else "other"
        samples[where] += 1

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            print(self.servers[0].sockets[0].getsockname()[1], flush=True)
            started.append(cpu_seconds(os.getpid()))
            signal.signal(signal.SIGPROF, sample)
            signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)

    app = create_app(base_url, line_writer(record), {f"alias-{i}": f"real-{i}" for i in range(streams)})
    linecache.getline(str(HERE / "gateway.py"), 1)
    with contextlib.suppress(KeyboardInterrupt):
        Server(uvicorn.Config(app, port=0, log_level="error", access_log=False, ws="none", backlog=2048)).run()
    signal.setitimer(signal.ITIMER_PROF, 0)
    print(json.dumps({"cpu": cpu_seconds(os.getpid()) - started[0], "samples": samples.most_common()}), flush=True)


async def client(i: int, port: int, seen: list[tuple[float, float]]) -> bytes:
    """The body of one answer, byte for byte."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = json.dumps({"model": f"alias-{i}", "messages": [], "stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(request)}\r\n\r\n"
    writer.write(head.encode() + request)
    await reader.readuntil(b"\r\n\r\n")
    begun, body = time.monotonic(), bytearray()
    while True:
        size = int(await reader.readline(), 16)
        piece = await reader.readexactly(size + 2)
        if not size:
            break
        body += piece[:-2]
    seen.append((begun, time.monotonic()))
    writer.close()
    return bytes(body)


def cpu_seconds(pid: int) -> float:
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


# What they did


async def clients(streams: int, port: int) -> tuple[list[Any], int]:
    """All bodies or what was raised, and how many streams ran at one moment."""
    seen: list[tuple[float, float]] = []
    bodies = await asyncio.wait_for(
        asyncio.gather(*(client(i, port, seen) for i in range(streams)), return_exceptions=True), SECONDS
    )
    changes = sorted([(begun, 1) for begun, _ in seen] + [(ended, -1) for _, ended in seen])
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return bodies, most


def lost(bodies: list[Any], lines: list[dict[str, Any]], tokens: int) -> list[str]:
    """What differs from what was sent, for the client and in the record."""
    faults = []
    records = {line["result"].get("id"): line for line in lines}
    for i, body in enumerate(bodies):
        sent = completion(i, f"real-{i}", tokens)
        served = {k: v for k, v in sent.items() if k != "usage"} | {"model": f"alias-{i}"}
        if isinstance(body, BaseException):
            faults.append(f"stream {i}: {body!r}")
        elif deltafold.merge(body) != served:
            faults.append(f"stream {i}: the client got something else")
        line = records.get(f"chatcmpl-{i}")
        if line is None or line["result"] != sent or line["close_reason"] != "eof" or line["usage"] != sent["usage"]:
            faults.append(f"stream {i}: the record has something else")
    if len(lines) != len(bodies):
        faults.append(f"{len(lines)} lines for {len(bodies)} streams")
    return faults


def started(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """A process of this file, and the first line that it says."""
    process = subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def run(streams: int, rate: float, tokens: int) -> int:
    numbers = ["--streams", str(streams), "--rate", str(rate), "--tokens", str(tokens)]
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "requests.jsonl"
        behind, behind_port = started("--role", "upstream", *numbers)
        front, port = started("--role", "gateway", *numbers, "--port", behind_port, "--record", str(record))
        try:
            begun = time.monotonic()
            bodies, most = asyncio.run(clients(streams, int(port)))
            seconds = time.monotonic() - begun
            front.send_signal(signal.SIGINT)
            said = json.loads(front.communicate(timeout=60)[0].splitlines()[-1])
        finally:
            front.kill()
            behind.kill()
            front.wait()
            behind.wait()
        faults = lost(bodies, [json.loads(line) for line in record.read_bytes().splitlines()], tokens)
    events = streams * (tokens + 4)
    samples = dict(said["samples"])
    share = samples.get("deltafold", 0) / max(1, sum(samples.values()))
    print(f"{streams} streams, {most} at one moment, {events} events in {seconds:.1f} s; backend {deltafold.BACKEND}")
    print(f"the gateway's CPU time: {said['cpu']:.1f} s, {said['cpu'] / events * 1e6:.0f} µs an event")
    print(f"of {sum(samples.values())} samples, in deltafold: {share:.1%}; the rest:", end=" ")
    print(", ".join(f"{k} {v / sum(samples.values()):.0%}" for k, v in said["samples"] if k != "deltafold")[:200])
    print(f"lost: {len(faults)}", *faults[:10], sep="\n  ")
    return 1 if faults else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Many streams at once through the gateway.")
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=2, help="events a second in each stream")
    parser.add_argument("--tokens", type=int, default=40, help="events with text in each stream")
    parser.add_argument("--role", choices=["upstream", "gateway"], help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--record", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    needed, (soft, hard) = arguments.streams * 2 + 100, resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(needed, hard)), hard))
    if arguments.role == "upstream":
        asyncio.run(upstream(arguments.streams, arguments.rate, arguments.tokens))
    elif arguments.role == "gateway":
        gateway(f"http://127.0.0.1:{arguments.port}", arguments.streams, arguments.record)
    else:
        return run(arguments.streams, arguments.rate, arguments.tokens)
    return 0


if __name__ == "__main__":
    sys.exit(main())
