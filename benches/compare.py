"""Prints how many times more CPU time than deltafold each other way of merging takes, on streams of the kinds that servers send.

    python benches/compare.py [--streams chat] [--reads event,16384] [--only rust,orjson] [--runs 3] [--quick] [--plot FILE.svg]

Within a run all contestants take turns, round after round, and the least CPU time of each counts: what disturbs one disturbs
all, and the least is what is disturbed least. A ratio stands when the runs agree within a tenth, and is followed by ? when they
do not. Every contestant's answer is compared with what the generator of the stream knows: a wrong one is marked, its time still
shown. What is not installed is absent. Times in microseconds are for orientation only, ratios are what to quote.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass

import plot
from contestants import CONTESTANTS, Run, answer
from streams import READS, STREAMS, Answer, Stream, cut

AGREE = 1.1  # the largest ratio of the runs over the least
SLICE = 0.004  # seconds of one contestant's turn, at least
SLOW = 0.05  # seconds of one merge from which two rounds a run must do, and one from ten times as many
SINGLE = 300_000  # bytes of the largest stream that is read byte by byte


@dataclass
class Figure:
    """One contestant on one stream: its time a chunk in each run, and its ratio to the base in each run."""

    micros: list[float]
    ratios: list[float]
    wrong: str

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def __str__(self) -> str:
        agree = max(self.ratios) <= AGREE * min(self.ratios)
        return f"{self.ratio:.3g}{'' if agree else '?'}{' WRONG' if self.wrong else ''}"


def main() -> int:
    options = parse()
    runs = load(options.only)
    if not runs:
        print("no contestant is installed")
        return 1
    base = next(iter(runs))
    collected: dict[str, dict[tuple[str, str], Figure]] = {read: {} for read in options.reads}
    for read in options.reads:
        print(
            f"\nreads: {'one event' if read == 'event' else f'{read} bytes'}; times the CPU time of {base}\n",
            flush=True,
        )
        rows = [["stream", "bytes a chunk", f"{base}, µs a chunk", *list(runs)[1:]]]
        for name in options.streams:
            stream = STREAMS[name]()
            if read == "1" and len(stream.data) > SINGLE:
                continue
            figures = compare(stream, cut(stream, read), runs, options.runs, options.rounds)
            for contestant, figure in figures.items():
                collected[read][contestant, name] = figure
                if figure.wrong:
                    print(f"{contestant} is wrong on {name}: {figure.wrong}", file=sys.stderr)
            own = figures[base]
            shown = f"{min(own.micros):.3f}{' WRONG' if own.wrong else ''}"
            others = [str(figures[contestant]) for contestant in list(runs)[1:]]
            rows.append([name, str(len(stream.data) // stream.chunks), shown, *others])
        table(rows)
    if options.plot:
        draw(options.plot, collected[options.reads[0]], base, options.reads[0])
        print(f"\nwrote {options.plot}")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", default="", help="only the streams with one of these in their name")
    parser.add_argument("--reads", default="event,1400,16384,1", help=f"of {','.join(READS)}")
    parser.add_argument(
        "--only", default="", help="only the contestants with one of these in their name; the first is the base"
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=9, help="turns of each contestant in a run")
    parser.add_argument(
        "--quick", action="store_true", help="one run of three rounds, reads of one event: a look, no measurement"
    )
    parser.add_argument("--plot", metavar="FILE.svg", help="draw the ratios of the first kind of reads")
    options = parser.parse_args()
    wanted = options.streams.split(",")
    options.streams = [name for name in STREAMS if any(part in name for part in wanted)]
    options.only = options.only.split(",")
    options.reads = options.reads.split(",")
    if options.quick:
        options.runs, options.rounds, options.reads = 1, 3, options.reads[:1]
    if not options.streams or not set(options.reads) <= set(READS):
        parser.error(f"streams are {', '.join(STREAMS)}; reads are {', '.join(READS)}")
    return options


def load(only: Iterable[str]) -> dict[str, Run]:
    runs = {}
    for name, make in CONTESTANTS.items():
        if any(part in name for part in only):
            try:
                runs[name] = make()
            except (
                ImportError,
                AttributeError,
            ) as error:  # not installed, or a release that has moved what is used here
                print(f"absent: {name} ({error})", file=sys.stderr)
    return runs


def compare(stream: Stream, reads: list[bytes], runs: dict[str, Run], times: int, rounds: int) -> dict[str, Figure]:
    figures = {name: Figure([], [], mark(run, reads, stream.answer)) for name, run in runs.items()}
    base = next(iter(runs))
    for _ in range(times):
        least = measure(reads, runs, rounds)
        for name, seconds in least.items():
            figures[name].micros.append(seconds / stream.chunks * 1e6)
            figures[name].ratios.append(seconds / least[base])
    return figures


def measure(reads: list[bytes], runs: dict[str, Run], rounds: int) -> dict[str, float]:
    """The least CPU seconds of one merge by each contestant."""
    loops: dict[str, int] = {}
    for name, run in runs.items():
        once = timed(run, reads, 1)
        loops[name] = max(1, int(SLICE / max(once, 1e-9)))
    least = dict.fromkeys(runs, float("inf"))
    for at in range(rounds):
        for name, run in runs.items():
            if least[name] < SLOW or at < (2 if least[name] < 10 * SLOW else 1):
                least[name] = min(least[name], timed(run, reads, loops[name]))
    return least


def timed(run: Run, reads: list[bytes], loops: int) -> float:
    gc.collect()
    gc.disable()
    start = time.process_time()
    for _ in range(loops):
        run(reads)
    took = time.process_time() - start
    gc.enable()
    return took / loops


def mark(run: Run, reads: list[bytes], expected: Answer) -> str:
    """Empty for the right answer, else what is wrong with it."""
    try:
        given = answer(run(reads))
    except Exception as error:  # whatever a library raises is its answer
        return f"raises {type(error).__name__}: {error}"[:160]
    if given == expected:
        return ""
    if given.usage != expected.usage:
        return f"usage {given.usage}, not {expected.usage}"
    for index, choice in expected.choices.items():
        other = given.choices.get(index)
        if other is None:
            return f"no choice {index}"
        for member, value in vars(choice).items():
            if getattr(other, member) != value:
                return f"choice {index}: {member} differs"
    return "more choices than there are"


def table(rows: list[list[str]]) -> None:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        print(
            "  ".join(
                cell.ljust(width) if not at else cell.rjust(width) for at, (cell, width) in enumerate(zip(row, widths))
            )
        )


def draw(path: str, figures: dict[tuple[str, str], Figure], base: str, read: str) -> None:
    """Only right answers are drawn; the note says how many were not."""
    points: dict[str, list[tuple[str, float]]] = {}
    wrong: dict[str, int] = {}
    for (contestant, stream), figure in figures.items():
        if figure.wrong:
            wrong[contestant] = wrong.get(contestant, 0) + 1
        else:
            points.setdefault(contestant, []).append((stream, figure.ratio))
    notes = {contestant: f", wrong on {count}" for contestant, count in wrong.items()}
    by_reads = "one event a read" if read == "event" else f"{read} bytes a read"
    title = f"CPU time from bytes to the merged answer, as a multiple of {base}; {by_reads}"
    with open(path, "w", encoding="utf-8") as file:
        file.write(plot.strips(title, points, notes))


if __name__ == "__main__":
    sys.exit(main())
