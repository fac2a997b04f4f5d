"""``deltafold merge`` on many bodies: where they come from, in which order they leave, and what happens to bad ones."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from deltafold.cli import _sources, _terminal
from streams import END, chunk, sse
from test_cli import Run, environment, heed_ctrl_c, posix, run  # noqa: F401  the fixtures


def body(text: str) -> bytes:
    return sse(chunk({"content": text}), *END)


CUT = sse(chunk({"content": "half"}))


def texts(output: bytes) -> list[Any]:
    """The content of each line; None for null, and for a line without choices."""
    lines = [json.loads(line) for line in output.splitlines()]
    return [line["choices"][0]["message"]["content"] if line and line["choices"] else None for line in lines]


def records(*bodies: bytes | str) -> bytes:
    return b"".join(json.dumps({"a": {"b": b if isinstance(b, str) else b.decode()}}).encode() + b"\n" for b in bodies)


def test_folders_globs_and_packed_files(run: Run, tmp_path: Path) -> None:  # noqa: F811
    logs = tmp_path / "logs"
    (logs / "deep").mkdir(parents=True)
    (logs / "b.sse").write_bytes(body("b"))
    (logs / "a.SSE.gz").write_bytes(gzip.compress(body("a")) + gzip.compress(b""))
    (logs / "deep" / "c.sse").write_bytes(body("c"))
    (logs / "notes.txt").write_bytes(b"no stream")
    (logs / ".hidden.sse").write_bytes(body("h"))
    done = run("merge", "logs")
    assert (done.returncode, texts(done.stdout)) == (0, ["a", "b", "c"])
    assert done.stderr.decode().startswith("deltafold: 3 bodies, 3 without error; ")
    assert done.stderr.count(b"\n") == 1
    done = run("merge", "-q", "logs/**/*.sse", "logs/[a]*", "logs/z*")
    assert (done.returncode, texts(done.stdout)) == (2, ["b", "c", "a"])
    assert done.stderr.decode() == "logs/z*: cannot be read: no file matches\n"


def test_zstd(run: Run, tmp_path: Path) -> None:  # noqa: F811
    zstandard = pytest.importorskip("zstandard")
    packed = zstandard.compress(body("a"))
    (tmp_path / "a.zst").write_bytes(packed)
    done = run("merge", "a.zst")
    assert (done.returncode, texts(done.stdout)) == (0, ["a"])
    assert texts(run("merge", stdin=packed).stdout) == ["a"]
    (tmp_path / "bad.zst").write_bytes(packed[:8] + b"\xff" * 40)
    done = run("merge", "bad.zst")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"bad.zst: cannot be read: broken zstd data: ")


def test_broken_gzip(run: Run, tmp_path: Path) -> None:  # noqa: F811
    packed = gzip.compress(body("a"))
    (tmp_path / "short.gz").write_bytes(packed[:-12])
    (tmp_path / "wrong.gz").write_bytes(packed[:-8] + b"\0" * 8)
    (tmp_path / "good.sse").write_bytes(body("b"))
    done = run("merge", "short.gz", "wrong.gz", "good.sse")
    assert (done.returncode, texts(done.stdout)) == (2, ["b"])
    said = done.stderr.decode().splitlines()
    assert said[0].startswith("short.gz: cannot be read: broken gzip data: ")
    assert said[1].startswith("wrong.gz: cannot be read: CRC check failed")


def test_records(run: Run, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "log.jsonl").write_bytes(records(body("a"), CUT) + b'\n{"a":{}}\nnot json\n' + records(body("b"))[:-1])
    done = run("merge", "--field", "a.b", "log.jsonl")
    assert (done.returncode, texts(done.stdout)) == (2, ["a", "half", None, None, "b"])
    assert done.stdout.splitlines()[2:4] == [b"null", b"null"]
    said = done.stderr.decode().splitlines()
    assert said[0].startswith("log.jsonl:2: truncated: ")
    assert said[1:3] == ["log.jsonl:4: the line has no such member", "log.jsonl:5: the line is not JSON"]
    assert said[3].startswith("deltafold: 5 bodies, 2 without error; ")
    assert said[3].endswith("; errors: no-body 2, truncated 1")
    done = run("merge", "--field", "/a/b", "-", "-q", stdin=records(body("a"), body("b")))
    assert (done.returncode, texts(done.stdout), done.stderr) == (0, ["a", "b"], b"")
    done = run("merge", "--field", ".", stdin=json.dumps(body("a").decode()).encode())
    assert (done.returncode, texts(done.stdout)) == (0, ["a"])


def test_a_line_without_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_sources, "LONGEST", 1 << 20)
    (tmp_path / "bomb.jsonl.gz").write_bytes(gzip.compress(b'{"a":1}\n' + b" " * (3 << 20)))
    source = _sources.Source(str(tmp_path / "bomb.jsonl.gz"))
    blocks = source.blocks(1000)
    assert next(blocks) == (b"", b'{"a":1}\n' + b" " * 992)
    with pytest.raises(OSError, match="a line of more than 1 MiB"):
        next(blocks)


def test_without_field_lines_of_chunks_are_one_body(run: Run, tmp_path: Path) -> None:  # noqa: F811
    lines = [json.dumps({"object": "chat.completion.chunk", **part}) for part in (chunk({"content": "a"}), END[0])]
    (tmp_path / "chunks.jsonl").write_text("\n".join(lines))
    done = run("merge", "chunks.jsonl")
    assert (done.returncode, texts(done.stdout)) == (0, ["a"])


@pytest.mark.parametrize("how", ["keep", "skip", "fail"])
def test_on_error(run: Run, tmp_path: Path, how: str) -> None:  # noqa: F811
    (tmp_path / "log.jsonl").write_bytes(records(body("a"), "<html>", body("b")))
    done = run("merge", "--field", "a.b", "--on-error", how, "log.jsonl")
    assert texts(done.stdout) == {"keep": ["a", None, "b"], "skip": ["a", "b"], "fail": ["a"]}[how]
    assert done.returncode == 2
    assert b"log.jsonl:2: not-sse: " in done.stderr


def test_order_over_many_batches(run: Run, tmp_path: Path) -> None:  # noqa: F811
    wanted = [str(at) for at in range(1200)]
    (tmp_path / "log.jsonl.gz").write_bytes(gzip.compress(records(*map(body, wanted)), 1))
    done = run("merge", "--field", "a.b", "-j", "3", "log.jsonl.gz")
    assert (done.returncode, texts(done.stdout)) == (0, wanted)


def test_a_large_body_between_small_ones(run: Run, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "a.sse").write_bytes(body("a"))
    (tmp_path / "b.sse").write_bytes(b": " + b"x" * 5_000_000 + b"\n" + body("b"))
    done = run("merge", "a.sse", "b.sse", "a.sse")
    assert (done.returncode, texts(done.stdout)) == (0, ["a", "b", "a"])


def test_what_repeats_is_counted(run: Run, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "log.jsonl").write_bytes(records(*[CUT] * 30))
    done = run("merge", "--field", "a.b", "log.jsonl")
    assert len(done.stderr.splitlines()) == 22
    assert done.stderr.endswith(b"; errors: truncated 30\n")
    assert len(run("merge", "-v", "--field", "a.b", "log.jsonl").stderr.splitlines()) == 31


@pytest.mark.parametrize(
    "option", [["--field", "a..b"], ["-j", "x"], ["-j", "-1"], ["--on-error", "cry"], ["-q", "-v"]]
)
def test_wrong_options(run: Run, option: list[str]) -> None:  # noqa: F811
    done = run("merge", *option)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"usage: deltafold merge" in done.stderr


@posix
def test_ctrl_c_in_long_work(environment: dict[str, str], tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "log.jsonl").write_bytes(records(*[body("x" * 200)] * 20_000))
    command = [sys.executable, "-m", "deltafold", "merge", "--field", "a.b", "log.jsonl"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, env=environment, cwd=tmp_path, preexec_fn=heed_ctrl_c
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, b"")
    assert rest.count(b"\n") < 20_000


@posix
def test_a_terminal_sees_progress(environment: dict[str, str], tmp_path: Path) -> None:  # noqa: F811
    pty = pytest.importorskip("pty")
    code = (
        "import sys; from deltafold.cli import _progress, main; _progress.PATIENCE = _progress.EVERY = -1\n"
        "sys.exit(main(['merge', '--field', 'a.b', 'log.jsonl']))"
    )
    (tmp_path / "log.jsonl").write_bytes(records(*[body("a")] * 1100))
    for hidden in (False, True):
        start = "import sys; sys.modules['rich'] = None\n" if hidden else ""
        ours, theirs = pty.openpty()
        command = [sys.executable, "-c", start + code]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment, cwd=tmp_path) as process:
            os.close(theirs)
            shown = b""
            assert process.stdout is not None
            output = process.stdout.read()
            while True:
                try:
                    piece = os.read(ours, 4096)
                except OSError:
                    break
                if not piece:
                    break
                shown += piece
        os.close(ours)
        assert process.returncode == 0
        assert output.count(b"\n") == 1100
        assert b" bodies" in shown.split(b"deltafold: ")[0]
        assert b"deltafold: 1,100 bodies, 1,100 without error" in shown


def test_a_log_of_any_name(run: Run, tmp_path: Path) -> None:  # noqa: F811
    log = records(body("a"), body("b"))
    (tmp_path / "requests.log").write_bytes(b"\xef\xbb\xbf" + log.replace(b"\n", b"\r\n"))
    (tmp_path / "one.sse").write_bytes(body("c"))
    done = run("merge", "-q", "--field", "a.b", "requests.log", "one.sse", "/dev/stdin", stdin=log[:-1])
    assert (done.returncode, texts(done.stdout), done.stderr) == (0, ["a", "b", "c", "a", "b"], b"")


def test_a_log_without_field_is_told_of_it(run: Run, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "log.jsonl").write_bytes(records(body("a")))
    assert b"--field tells where their bodies are" in run("merge", "log.jsonl").stderr


@posix
def test_its_own_output_is_not_read(environment: dict[str, str], tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "a.sse").write_bytes(body("a"))
    command = [sys.executable, "-m", "deltafold", "merge", "."]
    with (tmp_path / "all.jsonl").open("wb") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, env=environment, cwd=tmp_path)
    assert done.returncode == 2
    assert b"all.jsonl: cannot be read: it is what is written to\n" in done.stderr
    assert texts((tmp_path / "all.jsonl").read_bytes()) == ["a"]


@posix
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read(run: Run, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "a.sse").write_bytes(body("a"))
    (tmp_path / "closed").mkdir(mode=0)
    done = run("merge", ".")
    assert (done.returncode, texts(done.stdout)) == (2, ["a"])
    assert b"closed: cannot be read: Permission denied\n" in done.stderr


def test_a_folder_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def walk(folder: str, onerror: Any) -> Any:
        onerror(PermissionError(13, "Permission denied", folder))
        yield folder, [], ["a.sse"]

    monkeypatch.setattr(_sources.os, "walk", walk)
    problem, source = _sources.sources([str(tmp_path)])
    assert problem == _sources.Problem(str(tmp_path), "Permission denied")
    assert isinstance(source, _sources.Source)


def test_as_many_threads_as_anybody_likes(run: Run, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "log.jsonl").write_bytes(records(body("a"), body("b")))
    done = run("merge", "-q", "-j", "999999999", "--field", "a.b", "log.jsonl")
    assert (done.returncode, texts(done.stdout)) == (0, ["a", "b"])


def test_a_bad_record_in_the_middle_of_blocks(run: Run, tmp_path: Path) -> None:  # noqa: F811
    wanted: list[Any] = [f"{at} {'x' * 3000}" for at in range(2000)]
    log = records(*map(body, wanted)).splitlines(keepends=True)
    log[1000] = b'{"a":{"b":"data: {"}\n'
    wanted[1000] = None
    (tmp_path / "log.jsonl").write_bytes(b"".join(log))
    for options in ([], ["--on-error", "skip"], ["--on-error", "fail"]):
        done = run("merge", "--field", "a.b", "-j", "2", *options, "log.jsonl")
        rest = {"": wanted, "skip": wanted[:1000] + wanted[1001:], "fail": wanted[:1000]}[(options or [""])[-1]]
        assert (done.returncode, texts(done.stdout)) == (2, rest)
        assert b"log.jsonl:1001: the line is not JSON\n" in done.stderr
    assert b"deltafold: 1,001 bodies, 1,000 without error" in done.stderr


def test_what_cannot_be_seen_is_escaped(run: Run, tmp_path: Path) -> None:  # noqa: F811
    text = "a\x7f\u202e\u200b\U000e0041漢"
    (tmp_path / "log.jsonl").write_bytes(json.dumps({"a": body(text).decode()}, ensure_ascii=False).encode() + b"\n")
    (tmp_path / "one.sse").write_bytes(body(text))
    for arguments in (["--field", "a", "log.jsonl"], ["one.sse"]):
        done = run("merge", *arguments)
        assert texts(done.stdout) == [text]
        assert '"a\\u007f\\u202e\\u200b\\udb40\\udc41漢"' in done.stdout.decode()


@posix
def test_files_of_all_kinds_keep_their_order(run: Run, tmp_path: Path) -> None:  # noqa: F811
    logs = tmp_path / "logs"
    logs.mkdir()
    wanted: list[Any] = [str(at) for at in range(300)]
    for text in wanted:
        (logs / f"{int(text):03}.sse").write_bytes(body(text))
    (logs / "100.sse").write_bytes(b": " + b"x" * 5_000_000 + b"\n" + body("100"))
    (logs / "120.sse").write_bytes(gzip.compress(body("120")))
    (logs / "130.sse").rename(logs / "130.sse.gz")
    (logs / "130.sse.gz").write_bytes(gzip.compress(body("130")))
    (logs / "150.sse").write_bytes(b"<html>")
    (logs / "170.sse").write_bytes(b"")
    (logs / "190.sse").write_bytes(gzip.compress(body("190"))[:-12])
    (logs / "210.sse").unlink()
    (logs / "210.sse").symlink_to("nowhere")
    wanted[150] = wanted[170] = None
    del wanted[210], wanted[190]
    for threads in ("1", "3"):
        done = run("merge", "-j", threads, "logs")
        assert (done.returncode, texts(done.stdout)) == (2, wanted)
        said = done.stderr.decode().splitlines()
        assert [line.split(": ", 1)[0] for line in said[:-1]] == [f"logs/{at}.sse" for at in (150, 170, 190, 210)]
        assert said[2].startswith("logs/190.sse: cannot be read: broken gzip data: ")
        assert said[3] == "logs/210.sse: cannot be read: No such file or directory"
        assert said[4].startswith("deltafold: 298 bodies, 296 without error; ")
    done = run("merge", "-q", "--on-error", "fail", "logs")
    assert (done.returncode, texts(done.stdout)) == (2, wanted[:150])


@posix
def test_a_named_pipe_is_left_to_who_can_wait(tmp_path: Path) -> None:
    rust = pytest.importorskip("deltafold._rust")
    os.mkfifo(tmp_path / "pipe.sse")
    (tmp_path / "a.sse").write_bytes(body("a"))
    about = (tmp_path / "a.sse").stat()
    size = about.st_size
    paths = [str(tmp_path / name) for name in ("pipe.sse", ".", "a.sse", "none.sse")]
    [pipe, folder, (read, (line, error, notes)), missing] = rust._merge_files(paths, size, None)
    assert (pipe, folder, missing) == (None, None, None)
    assert (read, texts(line), error, notes) == (size, ["a"], None, [])
    assert rust._merge_files(paths, size - 1, None)[2] is None
    assert rust._merge_files(paths, size, (about.st_dev, about.st_ino))[2] is None
    assert rust._merge_files(paths, size, (about.st_dev, about.st_ino + 1))[2] is not None


@posix
def test_what_large_results_are_behind_is_left(tmp_path: Path) -> None:
    rust = pytest.importorskip("deltafold._rust")
    (tmp_path / "a.sse").write_bytes(CUT)
    paths = [str(tmp_path / "a.sse")] * 3
    [(_, (line, *_)), *_] = rust._merge_files(paths, len(CUT), None)
    assert len(CUT) < len(line)
    for most, read in ((len(line) - 1, 1), (len(line), 2), (2 * len(line), 3)):
        assert [found is None for found in rust._merge_files(paths, most, None)] == [at >= read for at in range(3)]


@posix
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("stalled", [False, True], ids=["reads on", "stalled"])
def test_ctrl_c_leaves_whole_lines_in_a_pipe(
    environment: dict[str, str],  # noqa: F811
    tmp_path: Path,
    unbuffered: str,
    stalled: bool,
) -> None:
    """Also where the reader has stopped reading, with the pipe full."""
    (tmp_path / "log.jsonl").write_bytes(records(*[body("x" * 400)] * 20_000))
    command = [sys.executable, "-m", "deltafold", "merge", "--field", "a.b", "log.jsonl"]
    changed = environment | {"PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=changed, cwd=tmp_path, preexec_fn=heed_ctrl_c
    ) as process:
        assert process.stdout is not None
        read = process.stdout.read(1000)
        if stalled:
            time.sleep(0.3)  # now it waits for room in the pipe
        process.send_signal(signal.SIGINT)
        try:
            if stalled:
                process.wait(60)
            read += process.stdout.read()
            process.wait(60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert read.endswith(b"\n")
    assert read.count(b"\n") < 20_000


def test_what_is_written_in_part_is_written_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Few(io.BytesIO):
        def write(self, text: Any) -> int:
            return super().write(text[:3])

    for buffer in (Few(), io.BytesIO()):
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(buffer))
        monkeypatch.setattr(_terminal, "PIPE", 4)
        _terminal.write_lines(b"a\nb\nc\nlong line\nd")
        assert buffer.getvalue() == b"a\nb\nc\nlong line\nd"


def test_output_that_would_wait_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, text: Any) -> Any:
            return None

    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(Full()))
    with pytest.raises(_terminal.Unwritable, match="temporarily unavailable"):
        _terminal.write(b"a\n")
