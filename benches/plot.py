"""Draws ratios as SVG: one line a contestant, one dot a stream, a bar to the median, on a logarithmic scale."""

from __future__ import annotations

import math
import statistics
from html import escape

__all__ = ["strips"]

LEFT, RIGHT, TOP, ROW = 215, 130, 52, 34  # pixels
WIDTH = 860
INK, FAINT, BAR, OWN = "#24292f", "#d0d7de", "#b6c2cf", "#2f7d5b"


def strips(title: str, rows: dict[str, list[tuple[str, float]]], notes: dict[str, str]) -> str:
    """``rows``: for each contestant (stream, ratio) pairs, the first being the base; ``notes``: what to add to its median."""
    rows = {name: points for name, points in rows.items() if points}
    largest = max(ratio for points in rows.values() for _, ratio in points)
    least = min(ratio for points in rows.values() for _, ratio in points)
    low, high = math.floor(math.log10(least)), max(1, math.ceil(math.log10(largest)))

    def x(ratio: float) -> float:
        return LEFT + (math.log10(ratio) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    bottom = TOP + ROW * len(rows)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 30}" font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{bottom + 30}" fill="#ffffff"/>',
        f'<text x="12" y="24" font-size="14" fill="{INK}">{escape(title)}</text>',
    ]
    for power in range(low, high + 1):
        at = x(10**power)
        out.append(f'<line x1="{at:.1f}" y1="{TOP - 8}" x2="{at:.1f}" y2="{bottom}" stroke="{FAINT}"/>')
        out.append(f'<text x="{at:.1f}" y="{bottom + 18}" text-anchor="middle" fill="{INK}">×{10**power:g}</text>')
    for row, (name, points) in enumerate(rows.items()):
        y = TOP + ROW * row + ROW / 2
        middle = statistics.median(ratio for _, ratio in points)
        start, end = sorted((x(1), x(middle)))
        colour = BAR if row else OWN
        out.append(f'<text x="{LEFT - 12}" y="{y + 4:.1f}" text-anchor="end" fill="{INK}">{escape(name)}</text>')
        out.append(
            f'<rect x="{start:.1f}" y="{y - 9:.1f}" width="{max(end - start, 2):.1f}" height="18" fill="{colour}"/>'
        )
        for stream, ratio in points:
            label = escape(f"{name}, {stream}: ×{ratio:.3g}")
            dot = f'<circle cx="{x(ratio):.1f}" cy="{y:.1f}" r="3.5" fill="{INK}" fill-opacity="0.55">'
            out.append(f"{dot}<title>{label}</title></circle>")
        right = max(x(ratio) for _, ratio in points)
        out.append(
            f'<text x="{right + 9:.1f}" y="{y + 4:.1f}" fill="{INK}">{middle:.3g}{escape(notes.get(name, ""))}</text>'
        )
    out.append("</svg>")
    return "\n".join(out) + "\n"
