"""Log and terminal injection: where a stream's text is shown, controls, ANSI and bidi marks are escaped, and it is cut."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from conftest import Backend
from deltafold import ServerSentEvent
from deltafold._errors import SHOWN, escape
from deltafold.cli import main

EVIL = "\x1b[2J\x1b]0;pwned\x07\r\nroot: ok\u202e\u2066\u200b\u2028\x85\x00\x7f\x9b31m\ufeff\U000e0041"
PARTS = [
    "\x1b",
    "\x07",
    "\r",
    "\n",
    "\u202e",
    "\u2066",
    "\u200b",
    "\u2028",
    "\x85",
    "\x00",
    "\x7f",
    "\x9b",
    "\ufeff",
    "\U000e0041",
]
LONG = EVIL + "x" * 100_000


def harmless(shown: str, allowed: str = "") -> None:
    assert [c for c in PARTS if c in shown and c not in allowed] == []
    assert shown.encode() == shown.encode("utf-8", "strict")


BODIES = {
    "error": b"data: " + json.dumps({"error": {"message": LONG, "code": LONG, "type": LONG}}).encode() + b"\n\n",
    "error string": b"data: " + json.dumps({"error": LONG}).encode() + b"\n\n",
    "error event": b"event: error\ndata: " + LONG.replace("\r\n", "").encode() + b"\n\n",
    "error field": b"error: " + LONG.replace("\r\n", "").encode() + b"\n\n",
    "bad json": b"data: " + LONG.replace("\r\n", "").encode() + b"\n\n",
    "page": b"<p>" + LONG.encode(),
    "short page": EVIL.encode(),
    "nothing": b"",
    "names": b"data: "
    + json.dumps({"id": EVIL, "model": EVIL, EVIL: EVIL, "choices": [{"index": EVIL}]}).encode()
    + b"\n\n",
}


@pytest.mark.parametrize("name", BODIES)
def test_errors_and_reprs(backend: Backend, name: str, caplog: pytest.LogCaptureFixture) -> None:
    acc = backend.ChatCompletionAccumulator()
    acc.feed(BODIES[name])
    acc.close(EVIL)
    error = acc.error
    for shown in (str(error), repr(error), repr(acc), repr(acc.diagnostics)):
        harmless(shown)
        assert len(shown) < SHOWN * 10 + 100  # 200 characters, the longest escape of one being ten
    logging.getLogger("gateway").error("stream failed: %s", error)
    harmless(caplog.messages[0])
    with pytest.raises(type(error)) as caught:
        acc.raise_for_error()
    harmless(str(caught.value))


def test_upstream_text_itself_is_as_it_came(backend: Backend) -> None:
    acc = backend.ChatCompletionAccumulator()
    acc.feed(b"data: " + json.dumps({"error": {"message": EVIL}}).encode() + b"\n\n")
    assert acc.error.message == EVIL


def test_decoder(backend: Backend) -> None:
    decoder = backend.SSEDecoder()
    evil = EVIL.replace("\r\n", "").replace("\x00", "")
    [event] = decoder.feed(f"id: {evil}\nevent: {evil}\ndata: {evil}{'x' * 9999}\n\n".encode())
    harmless(repr(event))
    harmless(repr(decoder))
    assert len(repr(event)) < 3 * SHOWN * 10


def test_an_event_made_by_hand() -> None:
    harmless(repr(ServerSentEvent(EVIL, EVIL, EVIL)))


@pytest.mark.parametrize("name", [name for name in BODIES if name != "names"])
def test_command_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "body"
    path.write_bytes(BODIES[name])
    main(["merge", str(path)])
    said = capsys.readouterr().err
    harmless(said, allowed="\n")
    assert len(said) < SHOWN * 10 + len(str(path)) + 200


@pytest.mark.parametrize("char", PARTS)
def test_escape(char: str) -> None:
    shown = escape(char)
    assert shown.startswith("\\")
    assert shown.isprintable()
    assert shown.encode("ascii").decode("unicode_escape") == char


def test_escape_cuts() -> None:
    assert escape("x" * SHOWN) == "x" * SHOWN
    assert escape("x" * (SHOWN + 1)) == "x" * SHOWN + "…"
