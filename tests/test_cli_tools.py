"""``inspect``, ``verify``, ``split``, ``bench`` and ``completion``, as a person or a pipe meets them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from streams import chunk, sse
from test_cli import EXAMPLES, Run, environment, run  # noqa: F401  the fixtures

SECRET = "tell nobody"
CALL = {"index": 0, "id": "call_1", "function": {"name": "tide", "arguments": '{"a":'}}
BODY = (
    sse(
        {"id": "x", "model": "m", **chunk({"role": "assistant", "content": SECRET})},
        chunk({"reasoning": "hm"}),
        chunk({"tool_calls": [CALL]}),
    )
    + b": ping\n\n"
    + sse({"id": "y", **chunk(finish_reason="tool_calls")})
    + sse({"choices": [], "usage": {"prompt_tokens": 3, "total_time": 0.25}, "timings": {"prompt_ms": 1.5}})
    + b'data: {"choices":[{"delta":{"content":"nobody knows\n\n'
    + sse("[DONE]")
)


def offset(part: bytes) -> int:
    return BODY.index(part)


def inspect(run: Run, *options: str, body: bytes = BODY) -> tuple[int, Any]:  # noqa: F811
    done = run("inspect", "--json", *options, stdin=body)
    assert done.stderr == b""
    return done.returncode, json.loads(done.stdout)


def test_inspect(run: Run) -> None:  # noqa: F811
    status, found = inspect(run)
    assert status == 2
    assert (found["bytes"], found["id"], found["model"]) == (len(BODY), "x", "m")
    assert (found["counts"]["events"], found["counts"]["chunks"]) == (7, 5)
    assert (found["complete"], found["done_seen"]) == (True, True)
    bad = offset(b'data: {"choices":[{"delta":{"content":"nobody')
    assert found["error"] == {
        "kind": "bad-json",
        "message": "a payload is not a JSON object",
        "code": None,
        "offset": bad,
    }
    assert found["choices"] == [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "characters": {"content": 11, "reasoning": 2},
            "tool_calls": [{"id": "call_1", "name": "tide", "characters": 5, "whole": False}],
            "logprobs": 0,
        }
    ]
    assert found["usage"] == {"prompt_tokens": 3, "total_time": 0.25}
    assert found["usage_source"] == "reported"
    assert found["timings"] == {"usage.total_time": 0.25, "timings.prompt_ms": 1.5}
    assert found["diagnostics"] == [
        {"kind": "changed-id", "count": 1, "offsets": [offset(b'data: {"id":"y"')]},
        {"kind": "bad-json", "count": 1, "offsets": [bad]},
    ]
    assert found["bad_bytes"]["offset"] == bad
    assert found["bad_bytes"]["shown"].startswith('data: {"choices":[{"delta":{"content":"············')
    assert [event["kind"] for event in found["events"]] == [
        "content", "reasoning", "tool_call", "finish", "usage", "error", "done",
    ]  # fmt: skip
    assert found["events"][0]["characters"] == {"content": 11}
    assert sum(event["bytes"] for event in found["events"]) == len(BODY)


def test_inspect_keeps_texts_to_itself(run: Run, tmp_path: Path) -> None:  # noqa: F811
    words = (b"nobody", b'{\\"a\\":', b"hm")
    for options in ([], ["--json"], ["--html", "-"]):
        done = run("inspect", *options, stdin=BODY)
        assert not any(word in done.stdout for word in words), options
        done = run("inspect", *options, "--show-text", stdin=BODY)
        assert b"tell nobody" in done.stdout
        assert b"nobody knows" in done.stdout


def test_inspect_of_a_cut_and_of_nothing(run: Run) -> None:  # noqa: F811
    status, found = inspect(run, str(EXAMPLES / "cut.sse"))
    assert (status, found["error"]["kind"]) == (3, "truncated")
    assert found["bad_bytes"]["offset"] == 2957
    assert found["diagnostics"] == [{"kind": "incomplete-event", "count": 1, "offsets": [2957]}]
    assert (found["events"][-1]["offset"], found["events"][-1]["bytes"]) == (2957, 3069 - 2957)
    assert sum(event["bytes"] for event in found["events"]) == 3069
    status, found = inspect(run, body=b"")
    assert (status, found["error"]["kind"], found["choices"], found["bad_bytes"]) == (3, "truncated", [], None)
    status, found = inspect(run, body=b"<html>\x1b[31m\n")
    assert (status, found["bad_bytes"]) == (2, {"offset": 0, "shown": "<html>\\x1b[31m\\n"})
    status, found = inspect(run, body=sse("[DONE]") + b": \xff")
    assert found["bad_bytes"] == {"offset": 16, "shown": "\\xff"}


def test_inspect_for_people(run: Run) -> None:  # noqa: F811
    said = run("inspect", EXAMPLES / "parallel-tools.sse").stdout.decode()
    for words in ("state  ", "tide_at", "whole JSON", "usage (source: reported)", "events by what they brought"):
        assert words in said
    nasty = sse({"model": "\x1b[2J\u202e", **chunk({"content": "a"})})
    said = run("inspect", "--show-text", stdin=nasty).stdout.decode()
    assert all(character.isprintable() or character == "\n" for character in said)


class Page(HTMLParser):
    """Checks that tags are closed in order; keeps what a browser would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.loads += [
            str(value) for name, value in attrs if name in ("src", "href") or str(value).startswith("javascript")
        ]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page(run: Run, tmp_path: Path) -> None:  # noqa: F811
    """Its structure; a browser looks at it too where one is installed."""
    page = tmp_path / "page.html"
    body = BODY.replace(b'"m"', b'"<script>alert(1)</script>"')
    done = run("inspect", "--html", page, "-", stdin=body)
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"")
    text = page.read_text("utf-8")
    parsed = Page()
    parsed.feed(text)
    assert parsed.open == []
    assert parsed.loads == []
    assert "script" not in parsed.seen
    assert parsed.seen.count("svg") == 1
    assert parsed.seen.count("rect") == 1 + 7  # the ground, and one an event
    assert "first bad bytes" in text
    assert "changed-id" in text
    assert run("inspect", "--html", "no/where.html", stdin=BODY).returncode == 1
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no Chromium here: the structure of the page was checked, its looks were not")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", page.as_uri()]
    try:
        shown = subprocess.run(command, capture_output=True, timeout=60, cwd=tmp_path).stdout.decode()
    except subprocess.TimeoutExpired:
        pytest.skip("Chromium took more than a minute: the structure of the page was checked, its looks were not")
    assert shown.count("<rect") == 8
    assert "&lt;script&gt;alert(1)" in shown


def test_verify(run: Run, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "small.sse").write_bytes(BODY)
    done = run("verify", "small.sse", "absent.sse")
    assert done.returncode == 2
    version, line = done.stdout.decode().splitlines()
    assert version.startswith("deltafold ")
    assert re.fullmatch(
        rf"small\.sse: the same, {len(BODY)} bytes: pure {len(BODY) + 9} cuts(, rust {len(BODY) + 9} cuts)?", line
    )
    assert done.stderr.endswith(b"absent.sse: cannot be read: No such file or directory\n")


def test_verify_finds_a_difference(capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    from deltafold._pure import ChatCompletionAccumulator
    from deltafold.cli import _verify

    class Wrong:
        """Loses what comes in a piece of one byte."""

        def __init__(self) -> None:
            self.real = ChatCompletionAccumulator()

        def feed(self, piece: bytes) -> int:
            return self.real.feed(piece.replace(SECRET.encode(), b"told nobody") if len(piece) < len(BODY) else piece)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.real, name)

    assert not _verify._verify("it", BODY, {"pure": ChatCompletionAccumulator, "rust": Wrong}, True)
    sys.stdout.flush()
    said = capsysbinary.readouterr().out.decode()
    assert "it: DIFFERENT: rust, random pieces" in said or "it: DIFFERENT: rust, cut at" in said
    assert "\n  result, from character " in said


@pytest.mark.parametrize(
    "options", [[], ["--events"], ["--every", "1"], ["--at", "3,99999,7"], ["--random", "4", "--largest", "9"]]
)
def test_split_changes_no_byte(run: Run, options: list[str]) -> None:  # noqa: F811
    done = run("split", *options, stdin=BODY)
    assert (done.returncode, done.stdout, done.stderr) == (0, BODY, b"")
    assert run("split", *options).stdout == b""


def test_split_writes_each_piece_by_itself(environment: dict[str, str]) -> None:  # noqa: F811
    command = [
        sys.executable,
        "-m",
        "deltafold",
        "split",
        "--at",
        "10,500",
        "--delay",
        "0.3",
        str(EXAMPLES / "cut.sse"),
    ]
    data = (EXAMPLES / "cut.sse").read_bytes()
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0, env=environment) as process:
        assert process.stdout is not None
        pieces = []
        while piece := process.stdout.read(100_000):
            pieces.append(piece)
    assert pieces == [data[:10], data[10:500], data[500:]]


@pytest.mark.parametrize(
    "options", [["--every", "0"], ["--at", "1,x"], ["--delay", "-1"], ["--every", "3", "--at", "4"]]
)
def test_split_with_wrong_options(run: Run, options: list[str]) -> None:  # noqa: F811
    assert run("split", *options).returncode == 2


def test_bench(run: Run, tmp_path: Path) -> None:  # noqa: F811
    done = run(
        "bench", "--rounds", "1", "--only", "deltafold,orjson", "--svg", "speed.svg", EXAMPLES / "openai-text.sse"
    )
    assert done.returncode == 0
    said = done.stdout.decode().splitlines()
    assert said[0] == "1 stream, 27 events, 8,534 bytes"  # 26 chunks and [DONE]
    assert said[1].split() == ["µs", "a", "chunk", "MB/s", "grew", "by,", "MB", "times", "the", "first"]
    names = [line.split("  ")[0] for line in said[2:]]
    assert "deltafold pure" in names
    svg = (tmp_path / "speed.svg").read_text("utf-8")
    assert svg.count("<rect") == 1 + sum("  " in line for line in said[2:])
    done = run("bench", "absent.sse")
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_valid(run: Run, tmp_path: Path, shell: str) -> None:  # noqa: F811
    done = run("completion", shell)
    assert (done.returncode, done.stderr) == (0, b"")
    for word in (b"inspect", b"on-error", b"show-text"):
        assert word in done.stdout
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here: the script was made, not read")
    (tmp_path / "script").write_bytes(done.stdout)
    assert subprocess.run([shell, "-n", tmp_path / "script"], capture_output=True).stderr == b""


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("in", ["inspect"]),
        ("merge --on-", ["--on-error"]),
        ("merge --on-error s", ["skip"]),
        ("completion z", ["zsh"]),
        ("inspect reco", ["recorded.sse"]),
        ("split --every ", []),
    ],
)
def test_completion_in_bash(run: Run, tmp_path: Path, typed: str, offered: list[str]) -> None:  # noqa: F811
    (tmp_path / "recorded.sse").write_bytes(b"")
    script = run("completion", "bash").stdout.decode()
    words = ["deltafold", *typed.split(" ")]
    reply = "printf '%s\\n' \"${COMPREPLY[@]}\""
    ask = f"COMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1}; _deltafold; {reply}"
    done = subprocess.run(["bash", "-c", script + ask], capture_output=True, cwd=tmp_path, text=True)
    assert done.stdout.split() == offered
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["merge", "inspect", "verify", "split", "bench", "completion"])
def test_help(run: Run, command: str) -> None:  # noqa: F811
    done = run(command, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: deltafold {command}".encode())
    assert max(map(len, done.stdout.decode().splitlines())) <= 120
    if command != "completion":
        assert b"exit status" in done.stdout
        assert b"Ctrl-C" in done.stdout
    assert command.encode() in run("--help").stdout


@pytest.mark.parametrize("command", ["merge", "inspect", "verify", "split", "bench"])
def test_what_cannot_be_read(run: Run, tmp_path: Path, command: str) -> None:  # noqa: F811
    done = run(command, "absent.sse")
    assert done.returncode == 2
    assert b"absent.sse: cannot be read: No such file or directory\n" in done.stderr
    assert b"Traceback" not in done.stderr


def test_merge_loads_no_library_that_it_does_not_use(environment: dict[str, str]) -> None:  # noqa: F811
    code = (
        "import sys, deltafold.cli; deltafold.cli.main(['merge', '-q'])\n"
        "print([m for m in ('rich', 'zstandard', 'pyarrow', 'polars', 'openai', 'litellm') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], input=b"", capture_output=True, env=environment)
    assert done.stdout.splitlines()[-1] == b"[]"


def test_inspect_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts of all texts are taken as often for many events as for few."""
    from deltafold import ChatCompletionAccumulator
    from deltafold.cli import _report

    asked: list[str] = []

    class Counting:
        def __init__(self) -> None:
            self._real = ChatCompletionAccumulator()

        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return getattr(self._real, name)

    monkeypatch.setattr(_report, "ChatCompletionAccumulator", Counting)
    for many in (3, 300):
        asked.clear()
        found = _report.report(sse(*[chunk({"content": "ab", "reasoning": "c"})] * many, "[DONE]"), False)
        assert [event["characters"] for event in found["events"]] == [{"content": 2, "reasoning": 1}] * many + [{}]
        assert asked.count("counts") <= 5
        assert asked.count("result") == 1


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["mrege"], "did you mean merge?"),
        (["merge", "--on-eror", "keep"], "did you mean --on-error?"),
        (["split", "--delya=1"], "did you mean --delay?"),
        (["completion", "bsh"], "did you mean bash?"),
    ],
)
def test_a_word_that_is_nearly_right(run: Run, arguments: list[str], hint: str) -> None:  # noqa: F811
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().rstrip().endswith(hint)
    assert f"usage: deltafold {arguments[0] if arguments[1:] else '['}".encode() in done.stderr


def test_no_word_at_all_gets_the_help(run: Run) -> None:  # noqa: F811
    done = run()
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"print the merged chat.completion" in done.stderr


def test_what_is_read_is_not_written_over(run: Run, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "a.sse").write_bytes(BODY)
    for arguments in (["inspect", "--html", "a.sse", "./a.sse"], ["bench", "--svg", "a.sse", "a.sse"]):
        done = run(*arguments)
        assert (done.returncode, done.stderr) == (2, b"a.sse: cannot be written: it is what is read\n")
    assert (tmp_path / "a.sse").read_bytes() == BODY


@pytest.mark.parametrize("options", [["--rounds", "0"], ["--rounds", "-1"], ["--only", "nobody"]])
def test_bench_with_wrong_options(run: Run, options: list[str]) -> None:  # noqa: F811
    done = run("bench", *options)
    assert (done.returncode, done.stdout) == (2, b"")


def test_verify_takes_folders(run: Run, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "a.sse").write_bytes(sse("[DONE]"))
    done = run("verify", ".")
    assert (done.returncode, b"a.sse: the same" in done.stdout) == (0, True)
