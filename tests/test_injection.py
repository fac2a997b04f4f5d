"""Log and terminal injection: where a stream's text is shown, controls, ANSI and bidi marks are escaped, and it is cut."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from conftest import Backend, load
from deltafold import ServerSentEvent, ToolCall
from deltafold._errors import SHOWN, escape
from deltafold.cli import _bench, _verify, main
from deltafold.events import TextDelta, Usage

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


NAMED = {
    "id": EVIL, "model": LONG, "service_tier": EVIL, EVIL: EVIL, f"{EVIL}_time": 1.5,
    "usage": {EVIL: EVIL, "prompt_tokens": 3, "x": LONG},
    "choices": [
        {
            "index": 0,
            "delta": {
                "content": EVIL, "refusal": EVIL, "reasoning_content": EVIL, EVIL: LONG,
                "tool_calls": [{"index": 0, "id": LONG, "function": {"name": LONG, "arguments": EVIL}}],
            },
            "finish_reason": LONG,
        },
    ],
}  # fmt: skip
SEEN_BY_TOOLS = {**BODIES, "everything": b"data: " + json.dumps(NAMED).encode() + b"\n\ndata: [DONE]\n\n"}
LONGEST_LINE = 10 * SHOWN * 10  # of a table of ten columns, the longest escape of one character being ten


@pytest.mark.parametrize("name", SEEN_BY_TOOLS)
def test_inspect(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "body"
    path.write_bytes(SEEN_BY_TOOLS[name])
    main(["inspect", str(path)])
    told = capsys.readouterr()
    harmless(told.out, allowed="\n")
    harmless(told.err, allowed="\n")
    assert max(map(len, told.out.splitlines())) < LONGEST_LINE


@pytest.mark.parametrize("name", SEEN_BY_TOOLS)
def test_inspect_shows_asked_texts_whole_and_escaped(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "body"
    path.write_bytes(SEEN_BY_TOOLS[name])
    main(["inspect", "--show-text", str(path)])
    harmless(capsys.readouterr().out, allowed="\n")


def test_inspect_of_a_long_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "\x1b" + "word " * 50_000}}]}
    (tmp_path / "body").write_bytes(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    main(["inspect", "--show-text", str(tmp_path / "body")])
    assert "\\x1b" + "word " * 49_999 in capsys.readouterr().out


@pytest.mark.parametrize("name", SEEN_BY_TOOLS)
def test_inspect_as_json(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "body"
    path.write_bytes(SEEN_BY_TOOLS[name])
    main(["inspect", "--json", "--show-text", str(path)])
    [line] = capsys.readouterr().out.splitlines()
    harmless(line)
    assert json.loads(line)["bytes"] == len(SEEN_BY_TOOLS[name])


MARKUP = "<script>alert(1)</script><img src=x onerror='alert(1)'>\"&"


class Page(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(name for name, _ in attrs)}


@pytest.mark.parametrize("name", [*SEEN_BY_TOOLS, "markup", "markup error", "markup page"])
def test_inspect_as_a_page(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    markup = json.dumps(NAMED).replace(json.dumps(EVIL)[1:-1], json.dumps(MARKUP)[1:-1])
    bodies = {
        **SEEN_BY_TOOLS,
        "markup": f"data: {markup}\n\n".encode(),
        "markup error": b"data: " + json.dumps({"error": {"message": MARKUP, "code": MARKUP}}).encode() + b"\n\n",
        "markup page": f"<html>{MARKUP}".encode(),
    }
    path = tmp_path / "<script>body"
    path.write_bytes(bodies[name])
    main(["inspect", "--html", "-", "--show-text", str(path)])
    page = capsys.readouterr().out
    harmless(page, allowed="\n")
    assert not {"script", "img", "onerror", "src", "href"} & Page(page).found
    assert "<title>" in page


@pytest.mark.parametrize("name", ["error", "page", "everything"])
def test_verify(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "body"
    path.write_bytes(SEEN_BY_TOOLS[name][:3000])
    assert main(["verify", str(path)]) == 0
    told = capsys.readouterr()
    harmless(told.out + told.err, allowed="\n")


def test_verify_tells_a_difference(capsys: pytest.CaptureFixture[str]) -> None:
    pure = load("pure").ChatCompletionAccumulator

    class Other:
        """An implementation with a fault."""

        def __init__(self) -> None:
            self._true = pure()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._true, name)

        def result(self) -> dict[str, Any]:
            return {**self._true.result(), "id": LONG, "model": EVIL}

    assert not _verify._verify("it", SEEN_BY_TOOLS["everything"], {"pure": pure, "rust": Other}, False)
    said = capsys.readouterr().out
    harmless(said, allowed="\n")
    assert "it: DIFFERENT: rust, whole\n" in said
    assert max(map(len, said.splitlines())) < SHOWN * 10


@pytest.mark.parametrize("command", ["bench", "split", "merge"])
def test_what_the_others_say(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To standard error; what split writes is the stream itself."""
    path = tmp_path / "body"
    for body in SEEN_BY_TOOLS.values():
        path.write_bytes(body[:3000])
        main([command, *(["--rounds", "1", "--only", "deltafold"] if command == "bench" else []), str(path)])
        told = capsys.readouterr()
        harmless(told.err + (told.out if command != "split" else ""), allowed="\n")


def test_bench_tells_what_a_library_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> Any:
        raise RuntimeError(LONG)

    monkeypatch.setattr(_bench, "CONTESTANTS", {"it": fails})
    (tmp_path / "body").write_bytes(b"data: {}\n\n")
    main(["bench", str(tmp_path / "body")])
    said = capsys.readouterr().out
    harmless(said, allowed="\n")
    assert "it: fails: RuntimeError: \\x1b[2J" in said
    assert max(map(len, said.splitlines())) < SHOWN * 10


FILE = "a\x1b[2J\u202e\r\nok: \x9b"  # the name of a file


@pytest.mark.skipif(sys.platform == "win32", reason="no file may be named like this")
@pytest.mark.parametrize("command", ["merge", "inspect", "verify", "split", "bench", "completion"])
@pytest.mark.parametrize("exists", ["no such file", "a folder", "a bad body", "two"])
def test_names_of_files(command: str, exists: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / FILE
    if exists == "a folder":
        path.mkdir()
    elif exists != "no such file":
        path.write_bytes(b"data: {broken\n\n")
    with contextlib.suppress(SystemExit):  # a wrong command line
        few = ["--rounds", "1", "--only", "pure"] if command == "bench" else []
        main([command, *few, str(path), *([str(path)] if exists == "two" else [])])
    told = capfd.readouterr()
    harmless(told.out + told.err, allowed="\n")
    assert "ok: " not in [line[:4] for line in (told.out + told.err).splitlines()]


@pytest.mark.skipif(sys.platform == "win32", reason="no file may be named like this")
def test_names_of_outputs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "body").write_bytes(b"data: {}\n\n")
    bad = str(tmp_path / "none" / FILE)
    main(["inspect", "--html", bad, str(tmp_path / "body")])
    main(["bench", "--rounds", "1", "--only", "pure", "--svg", bad, str(tmp_path / "body")])
    told = capfd.readouterr()
    harmless(told.out + told.err, allowed="\n")
    assert told.err.count("cannot be written") == 2


def test_names_that_are_no_text(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = os.fsdecode(os.fsencode(str(tmp_path)) + b"/\xff\xfe.sse")
    for command in ("merge", "inspect", "verify", "split", "bench"):
        main([command, path])
    told = capfd.readouterr().err
    assert told.count("cannot be read: ") == 5
    told.encode()


def test_events_and_calls(backend: Backend) -> None:
    acc = backend.ChatCompletionAccumulator()
    events = acc.events(SEEN_BY_TOOLS["everything"]) + acc.events()
    assert {type(event).__name__ for event in events} >= {"TextDone", "ToolCallDone", "Finish", "UsageDone", "Done"}
    for shown in map(repr, [*events, *acc.tool_calls()]):
        harmless(shown)
        assert len(shown) < 5 * SHOWN * 10
    failed = backend.ChatCompletionAccumulator()
    for shown in map(repr, failed.events(BODIES["error"]) + failed.events()):
        harmless(shown)
        assert len(shown) < 5 * SHOWN * 10


def test_reprs_of_what_is_short_are_python() -> None:
    assert repr(TextDelta(0, "it's\n")) == 'TextDelta(choice=0, text="it\'s\\n")'
    assert repr(TextDelta(0, "x" * 201)) == f"TextDelta(choice=0, text='{'x' * 200}…')"
    assert repr(Usage({"a": 1}, "reported")) == "Usage(usage={'a': 1}, source='reported')"
    assert repr(Usage({"a": "x" * 500}, "none")) == "Usage(usage={'a': '" + "x" * 193 + "…, source='none')"
    call = ToolCall(None, "function", "f", "{}")
    assert repr(call) == "ToolCall(id=None, type='function', name='f', arguments='{}')"


def test_calls_that_fit_no_tool() -> None:
    with pytest.raises(ValueError, match="no function tool of this name") as caught:
        ToolCall("c", "function", LONG, "{}").parse([])
    harmless(str(caught.value))
    assert len(str(caught.value)) < SHOWN * 10 + 100
    for arguments in (EVIL, LONG, '{"a":'):
        with pytest.raises(ValueError, match="not whole JSON") as caught:
            ToolCall("c", "function", "f", arguments).parse()
        harmless(str(caught.value))
        assert len(str(caught.value)) < 100


@pytest.mark.parametrize("char", PARTS)
def test_escape(char: str) -> None:
    shown = escape(char)
    assert shown.startswith("\\")
    assert shown.isprintable()
    assert shown.encode("ascii").decode("unicode_escape") == char


def test_escape_cuts() -> None:
    assert escape("x" * SHOWN) == "x" * SHOWN
    assert escape("x" * (SHOWN + 1)) == "x" * SHOWN + "…"
