"""The command line, as a person or a pipe meets it; every expected object is written by hand."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import BACKENDS, ROOT, load

EXAMPLES = ROOT / "examples"
Run = Callable[..., "subprocess.CompletedProcess[bytes]"]

TEXT = {
    "id": "chatcmpl-DfExampleText01",
    "object": "chat.completion",
    "created": 1767225600,
    "model": "gpt-4o-mini-2024-07-18",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "A delta is where a river lays down what it carried; "
                "folded together, the grains are land again \U0001f3de\ufe0f.",
                "refusal": None,
            },
            "finish_reason": "stop",
            "logprobs": None,
        }
    ],
    "usage": {
        "prompt_tokens": 14,
        "completion_tokens": 23,
        "total_tokens": 37,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    },
    "service_tier": "default",
    "system_fingerprint": "fp_5e1a2b3c4d",
}
TOOLS = {
    "id": "chatcmpl-DfExampleTools2",
    "object": "chat.completion",
    "created": 1767225660,
    "model": "gpt-4o-2024-08-06",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_tideAt3kQ",
                        "type": "function",
                        "function": {"name": "tide_at", "arguments": '{"place":"Hook of Holland","hours":12}'},
                    },
                    {
                        "id": "call_windZ9pR",
                        "type": "function",
                        "function": {"name": "wind_at", "arguments": '{"place":"Vlieland"}'},
                    },
                ],
            },
            "finish_reason": "tool_calls",
            "logprobs": None,
        }
    ],
    "usage": {"prompt_tokens": 96, "completion_tokens": 41, "total_tokens": 137},
    "service_tier": "default",
    "system_fingerprint": "fp_0a9b8c7d6e",
}
REASONING = {
    "id": "gen-1767225720-DfExampleReason",
    "object": "chat.completion",
    "created": 1767225720,
    "model": "example/thinker-32b",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "17 × 23 = **391**.",
                "reasoning": "The user asks for 17 × 23. 17 × 20 = 340, 17 × 3 = 51.",
                "reasoning_details": [
                    {
                        "type": "reasoning.text",
                        "text": "The user asks for 17 × 23. 17 × 20 = 340, 17 × 3 = 51.",
                        "format": "unknown",
                        "index": 0,
                    }
                ],
            },
            "finish_reason": "stop",
            "logprobs": None,
            "native_finish_reason": "stop",
        }
    ],
    "usage": {
        "prompt_tokens": 21,
        "completion_tokens": 34,
        "total_tokens": 55,
        "cost": 0.0000187,
        "completion_tokens_details": {"reasoning_tokens": 21},
    },
    "provider": "Example",
}
CUT = {
    "id": "chatcmpl-DfExampleCut004",
    "object": "chat.completion",
    "created": 1767225780,
    "model": "served-model-8b",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "The line was good until the proxy gave up in the mid"},
            "finish_reason": None,
            "logprobs": None,
            "token_ids": None,
        }
    ],
}


@pytest.fixture(params=BACKENDS)
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    load(request.param)
    return {**os.environ, "DELTAFOLD_BACKEND": request.param}


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path) -> Run:
    def run(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "deltafold", *map(str, arguments)]
        return subprocess.run(command, input=stdin, capture_output=True, env=environment, cwd=tmp_path, timeout=60)

    return run


@pytest.mark.parametrize(
    ("name", "expected"), [("openai-text", TEXT), ("parallel-tools", TOOLS), ("reasoning-comments", REASONING)]
)
def test_a_complete_stream(run: Run, name: str, expected: object) -> None:
    done = run("merge", EXAMPLES / f"{name}.sse")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.endswith(b"}\n")
    assert done.stdout.count(b"\n") == 1
    assert json.loads(done.stdout) == expected
    assert list(json.loads(done.stdout)) == list(expected)


def test_a_cut_stream(run: Run) -> None:
    done = run("merge", EXAMPLES / "cut.sse")
    assert done.returncode == 3
    assert json.loads(done.stdout) == CUT
    said = done.stderr.decode().splitlines()
    assert said[0] == f"{EXAMPLES}/cut.sse: incomplete-event: 1, first at byte 2957"
    assert re.fullmatch(re.escape(f"{EXAMPLES}/cut.sse: truncated: ") + r".+ \(at byte 3069\)", said[1])
    assert len(said) == 2


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_standard_input(run: Run, arguments: tuple[str, ...]) -> None:
    done = run("merge", *arguments, stdin=(EXAMPLES / "openai-text.sse").read_bytes())
    assert (done.returncode, json.loads(done.stdout)) == (0, TEXT)


def test_pretty_is_the_same_object_on_many_lines(run: Run) -> None:
    done = run("merge", "--pretty", EXAMPLES / "openai-text.sse")
    assert json.loads(done.stdout) == TEXT
    assert done.stdout.decode().startswith('{\n  "id": "chatcmpl-DfExampleText01",\n')
    assert done.returncode == 0


def test_several_files_give_a_line_each_and_the_worst_status(run: Run, tmp_path: Path) -> None:
    done = run("merge", EXAMPLES / "openai-text.sse", EXAMPLES / "cut.sse", EXAMPLES / "parallel-tools.sse")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [TEXT, CUT, TOOLS]
    assert done.returncode == 3
    done = run("merge", EXAMPLES / "cut.sse", "nowhere.sse", EXAMPLES / "openai-text.sse")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [CUT, TEXT]
    assert b"nowhere.sse: cannot be read: No such file or directory\n" in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        pytest.param(b'data: {"error":{"message":"no room"}}\n\ndata: [DONE]\n\n', 4, "upstream-error", id="upstream"),
        pytest.param(b'{"error":{"message":"no key","code":401}}', 4, "upstream-error", id="error-body"),
        pytest.param(b"<html><body>502 Bad Gateway</body></html>\n", 2, "not-sse", id="html"),
        pytest.param(b"data: {oops\n\ndata: [DONE]\n\n", 2, "bad-json", id="bad-json"),
        pytest.param(b"", 3, "truncated", id="empty"),
        pytest.param(b"data: " + b"[" * 200 + b"\n\ndata: [DONE]\n\n", 2, "", id="deep"),
    ],
)
def test_status_tells_the_first_error(run: Run, body: bytes, status: int, kind: str) -> None:
    done = run("merge", stdin=body)
    assert done.returncode == status
    assert json.loads(done.stdout) == {"object": "chat.completion", "choices": []}
    assert f"standard input: {kind}" in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_an_empty_folder(run: Run, tmp_path: Path) -> None:
    done = run("merge", tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == (
        f"{tmp_path}: cannot be read: no file in it ends in .sse, .jsonl, .ndjson, or these with .gz or .zst\n"
    )


def test_a_terminal_is_safe_from_what_upstream_sends(run: Run, tmp_path: Path) -> None:
    nasty = "\x1b[2J\x9b31m\u202e\u2066\x00\u2028"
    answer = {"choices": [{"index": 0, "delta": {"content": nasty}, "finish_reason": "stop"}]}
    failure = {"error": {"message": nasty}}
    body = "".join(f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in (answer, failure)).encode()
    for options in ([], ["--pretty"]):
        done = run("merge", *options, stdin=body)
        assert all(c.isprintable() or c == "\n" for c in (done.stdout + done.stderr).decode())
        assert json.loads(done.stdout)["choices"][0]["message"]["content"] == nasty
        assert done.returncode == 4
    name = "evil\x1b[31m\u202e.sse"
    done = run("merge", name)
    assert done.stderr.decode() == "evil\\x1b[31m\\u202e.sse: cannot be read: no file matches\n"


def test_version(run: Run, environment: dict[str, str]) -> None:
    done = run("--version")
    assert done.returncode == 0
    backend = environment["DELTAFOLD_BACKEND"]
    assert re.fullmatch(rf"deltafold \d+\.\d+\.\d+\S* \({backend} backend, build .+\)\n", done.stdout.decode())


def test_help_documents_every_status(run: Run) -> None:
    done = run("merge", "--help")
    assert done.returncode == 0
    for status in ("0", "1", "2", "3", "4", "130", "141"):
        assert re.search(rf"^  {status} ", done.stdout.decode(), re.MULTILINE)


@pytest.mark.parametrize("arguments", [(), ("mash",), ("merge", "--prety")])
def test_a_wrong_command_line(run: Run, arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"usage: deltafold" in done.stderr


def test_a_fault_of_its_own_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from deltafold import cli
    from deltafold.cli import _merge

    def fail(_: object) -> int:
        raise LookupError("lost\x1b")

    monkeypatch.setattr(_merge, "run", fail)
    monkeypatch.setattr(_merge, "_Run", fail)
    monkeypatch.delenv("DELTAFOLD_TRACEBACK", raising=False)
    assert cli.main(["merge", "a.sse"]) == 70
    said = capsys.readouterr().err
    assert said.startswith("deltafold: a fault of its own, please report it: LookupError: lost\\x1b (")
    monkeypatch.setenv("DELTAFOLD_TRACEBACK", "1")
    with pytest.raises(LookupError):
        cli.main(["merge", "a.sse"])


def test_the_installed_command(environment: dict[str, str]) -> None:
    command = Path(sys.executable).with_name("deltafold")
    if not command.exists():
        pytest.skip("deltafold is not installed beside this interpreter")
    done = subprocess.run([command, "merge", EXAMPLES / "cut.sse"], capture_output=True, env=environment)
    assert (done.returncode, json.loads(done.stdout)) == (3, CUT)


posix = pytest.mark.skipif(os.name != "posix", reason="signals and shells as POSIX has them")


def heed_ctrl_c() -> None:
    """For a child: a shell starts what is to run behind it with Ctrl-C ignored, and that is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@posix
def test_a_reader_that_goes_away(environment: dict[str, str]) -> None:
    files = [str(EXAMPLES / "openai-text.sse")] * 400
    command = [sys.executable, "-m", "deltafold", "merge", *files]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@posix
def test_ctrl_c(environment: dict[str, str]) -> None:
    command = [sys.executable, "-u", "-m", "deltafold", "merge", str(EXAMPLES / "openai-text.sse"), "-"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, preexec_fn=heed_ctrl_c
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # now it waits for its standard input
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, b"")


@posix
@pytest.mark.parametrize(
    ("redirection", "status", "said"),
    [
        pytest.param(
            ">/dev/full", 1, "deltafold: cannot write to standard output: No space left on device\n", id="full"
        ),
        pytest.param(">&-", 1, "deltafold: standard output is closed\n", id="no-output"),
        pytest.param("<&-", 2, "standard input: cannot be read: standard input is closed\n", id="no-input"),
        pytest.param("2>&- <&-", 2, "", id="no-input-no-error"),
    ],
)
def test_streams_that_are_closed_or_full(environment: dict[str, str], redirection: str, status: int, said: str) -> None:
    if "/dev/full" in redirection and not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    file = "-" if "<&-" in redirection else EXAMPLES / "openai-text.sse"
    command = f"{sys.executable} -m deltafold merge {file} {redirection}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, env=environment)
    assert (done.returncode, done.stderr.decode()) == (status, said)
