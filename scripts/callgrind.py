"""Counts instructions a chunk of the Rust implementation, from Python, under valgrind's callgrind.

    python scripts/callgrind.py --check     compare with benches/instructions.json; status 1 when a stream got dearer
    python scripts/callgrind.py --write     store the counts there
    python scripts/callgrind.py --keep DIR  leave callgrind's files there, for callgrind_annotate

Counts are exactly repeatable for one binary, interpreter and set of processor features, whatever else the machine does. A
count is the difference between two numbers of merges, so that the interpreter's start is not in it. One merge is: an
accumulator, one feed for each event, close, result.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STORED = ROOT / "benches" / "instructions.json"
TOLERANCE = 0.02  # of a count: what another build of the same sources may differ by
CHUNKS = 2000  # at least so many between the two numbers of merges
WORKER = """
import gc, sys
from deltafold._rust import ChatCompletionAccumulator
sizes = list(map(int, open(sys.argv[1] + '.sizes').read().split()))
body, at, reads = open(sys.argv[1], 'rb').read(), 0, []
for size in sizes:
    reads.append(body[at:at + size])
    at += size
gc.disable()
for _ in range(int(sys.argv[2])):
    accumulator = ChatCompletionAccumulator()
    for read in reads:
        accumulator.feed(read)
    accumulator.close()
    accumulator.result()
"""

sys.path.insert(0, str(ROOT / "benches"))
from streams import STREAMS, Stream  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--keep", metavar="DIR", type=Path)
    parser.add_argument("--streams", default="", help="only the streams with one of these in their name")
    options = parser.parse_args()
    if not shutil.which("valgrind"):
        print("callgrind: valgrind is not installed")
        return 2
    wanted = options.streams.split(",")
    counts: dict[str, int] = {}
    for name, make in STREAMS.items():
        if any(part in name for part in wanted):
            counts[name] = count(make(), options.keep)
            print(f"{name:20} {counts[name]:8,} instructions a chunk", flush=True)
    machine = f"CPython {platform.python_version()}, {platform.machine()}, {rustc()}"
    if options.write:
        STORED.write_text(json.dumps({"machine": machine, "instructions": counts}, indent=2) + "\n", encoding="utf-8")
    return check(counts, machine) if options.check else 0


def count(stream: Stream, keep: Path | None) -> int:
    with tempfile.TemporaryDirectory() as folder:
        body = Path(folder, stream.name)
        body.write_bytes(stream.data)
        Path(f"{body}.sizes").write_text(" ".join(str(len(event)) for event in stream.events), encoding="ascii")
        first, more = 2, -(-CHUNKS // stream.chunks)
        once = instructions(body, first, Path(folder, "out"))
        again = instructions(body, first + more, keep / f"callgrind.{stream.name}" if keep else Path(folder, "out"))
    return round((again - once) / (more * stream.chunks))


def instructions(body: Path, merges: int, out: Path) -> int:
    out.parent.mkdir(parents=True, exist_ok=True)
    valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
    worker = [sys.executable, "-S", "-c", WORKER, str(body), str(merges)]
    clean = {"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0", "PYTHONPATH": package(), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([*valgrind, *worker], env=clean, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"callgrind: {done.stderr.strip()}")
    with open(out, encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(("summary:", "totals:")))


def package() -> str:
    """The folder that holds the installed deltafold: -S leaves the site packages out of the path."""
    import deltafold

    return str(Path(deltafold.__file__).parent.parent)


def rustc() -> str:
    return subprocess.run(["rustc", "--version"], capture_output=True, text=True).stdout.strip() or "unknown rustc"


def check(counts: dict[str, int], machine: str) -> int:
    if not STORED.exists():
        print(f"callgrind: no {STORED.relative_to(ROOT)} to compare with; store one with --write")
        return 2
    stored = json.loads(STORED.read_text("utf-8"))
    if stored["machine"] != machine:
        print(f"stored with {stored['machine']}; this is {machine}")
    dearer = 0
    for name, now in counts.items():
        before = stored["instructions"].get(name)
        if before is None:
            print(f"{name:20} is not stored")
        elif abs(now - before) > TOLERANCE * before:
            dearer += now > before
            print(f"{name:20} {before:,} -> {now:,}: {now / before - 1:+.1%}")
    print(f"callgrind: {dearer} of {len(counts)} dearer by more than {TOLERANCE:.0%}")
    return 1 if dearer else 0


if __name__ == "__main__":
    sys.exit(main())
