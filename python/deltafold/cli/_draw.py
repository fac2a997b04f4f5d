"""Tables for terminals and pipes, and drawings as SVG."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from . import _terminal

__all__ = ["COLOURS", "bars", "print_table", "timeline"]

WIDTH, LEFT, ROW = 960, 200, 26  # pixels
INK, FAINT = "#24292f", "#d0d7de"
COLOURS = {
    "content": "#2f7d5b", "reasoning": "#8a63d2", "tool_call": "#c77c1e", "refusal": "#b3528a", "audio": "#2b8fa8",
    "logprobs": "#7f8c4a", "finish": "#24292f", "usage": "#0b62c4", "done": "#57606a", "error": "#cf222e", "other": "#b6c2cf",
}  # fmt: skip


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on standard output: rich's for a person who has it, plain columns elsewhere. Without a name for the first of
    two columns it is a list of facts, whose values may be long.
    """
    facts = len(head) == 2 and not head[0]
    if _terminal.is_terminal(sys.stdout):
        try:
            from rich.console import Console
            from rich.table import Table
            from rich.text import Text
        except ModuleNotFoundError:
            pass
        else:
            table = Table(title=title or None, title_justify="left", show_header=not facts)
            for at, name in enumerate(head):
                table.add_column(name, justify="right" if at and not facts else "left")
            for row in rows:
                table.add_row(*map(Text, row))
            Console(file=sys.stdout).print(table)
            return
    if title:
        _terminal.write(f"{title}\n".encode())
    lines = [list(row) for row in (rows if facts else [head, *rows])]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    for line in lines:
        cells = [
            cell.rjust(width) if at and not facts else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths))
        ]
        _terminal.write(("  ".join(cells).rstrip() + "\n").encode())


def timeline(events: Sequence[Mapping[str, Any]], total: int) -> str:
    """Each event where its bytes are, in the row of what it brought."""
    kinds = [kind for kind in COLOURS if any(event["kind"] == kind for event in events)]
    height = ROW * len(kinds) + 40
    scale = (WIDTH - LEFT - 20) / max(total, 1)
    out = [_svg("Events by their place in the stream, in bytes", height)]
    for row, kind in enumerate(kinds):
        y = 10 + ROW * row
        count = sum(event["kind"] == kind for event in events)
        out.append(f'<text x="{LEFT - 12}" y="{y + 14}" text-anchor="end" fill="{INK}">{kind} ({count:,})</text>')
        out.append(f'<line x1="{LEFT}" y1="{y + 20}" x2="{WIDTH - 20}" y2="{y + 20}" stroke="{FAINT}"/>')
        drawn = -1.0
        for event in events:
            x = LEFT + event["offset"] * scale
            if event["kind"] != kind or x < drawn:
                continue
            width = max(event["bytes"] * scale - 0.5, 1)
            drawn = x + 0.5
            said = ", ".join(f"{count} characters of {name}" for name, count in event["characters"].items())
            about = f"byte {event['offset']:,}, {event['bytes']:,} bytes" + (f": {said}" if said else "")
            out.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="18" fill="{COLOURS[kind]}">'
                f"<title>{escape(about)}</title></rect>"
            )
    for part in range(5):
        x = LEFT + (WIDTH - LEFT - 20) * part / 4
        out.append(f'<text x="{x:.0f}" y="{height - 8}" text-anchor="middle" fill="{INK}">{total * part // 4:,}</text>')
    return "\n".join([*out, "</svg>"])


def bars(title: str, values: Mapping[str, float], unit: str) -> str:
    """One bar a name, on a logarithmic scale."""
    low = math.floor(math.log10(min(values.values())))
    high = max(low + 1, math.ceil(math.log10(max(values.values()))))
    height = ROW * len(values) + 70

    def x(value: float) -> float:
        return LEFT + (math.log10(value) - low) / (high - low) * (WIDTH - LEFT - 120)

    out = [_svg(title, height), f'<text x="12" y="22" font-size="14" fill="{INK}">{escape(title)}</text>']
    for power in range(low, high + 1):
        at = x(10.0**power)
        out.append(f'<line x1="{at:.1f}" y1="34" x2="{at:.1f}" y2="{height - 26}" stroke="{FAINT}"/>')
        out.append(f'<text x="{at:.1f}" y="{height - 8}" text-anchor="middle" fill="{INK}">{10.0**power:g}</text>')
    for row, (name, value) in enumerate(values.items()):
        y = 40 + ROW * row
        out.append(f'<text x="{LEFT - 12}" y="{y + 14}" text-anchor="end" fill="{INK}">{escape(name)}</text>')
        colour = COLOURS["content"] if name.startswith("deltafold") else COLOURS["other"]
        out.append(f'<rect x="{LEFT}" y="{y}" width="{max(x(value) - LEFT, 1):.1f}" height="18" fill="{colour}"/>')
        out.append(f'<text x="{x(value) + 6:.1f}" y="{y + 14}" fill="{INK}">{value:.3g} {escape(unit)}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def _svg(title: str, height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" '
        f'role="img"><title>{escape(title)}</title><rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
    )
