"""``deltafold inspect``: what is in a recorded stream."""

from __future__ import annotations

import argparse
import json
from html import escape as html
from typing import Any

from .._errors import escape
from . import _draw, _help, _terminal
from ._merge import STATUS, UNUSABLE
from ._report import report
from ._sources import Source, is_same

__all__ = ["add"]

DESCRIPTION = """\
Tells what is in FILE, a recorded stream: events and chunks, choices, tool calls, usage and where it came
from, times that the server told, every leniency that was needed with its place (byte offsets of the first
20), and the first bad bytes, escaped. Texts are told by their length alone, and masked in what is bad,
unless --show-text asks for them: what is printed may go into a report.
"""

EPILOG = """\
exit status: as of merge: 0 complete, 2 unusable, 3 truncated, 4 upstream error; 1 the output could not be
written, 130 Ctrl-C, 141 the reader of the output has gone

examples:
  deltafold inspect recorded.sse
  deltafold inspect --html stream.html recorded.sse.gz
  curl -sN … | deltafold inspect --json | jq .diagnostics
"""

STYLE = """
body{font:14px/1.5 system-ui,sans-serif;color:#24292f;max-width:1000px;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;margin:.5rem 0 1.5rem}td,th{border:1px solid #d0d7de;padding:.2rem .6rem;text-align:left}
th{background:#f6f8fa}pre{background:#f6f8fa;padding:.6rem;white-space:pre-wrap;word-break:break-all}
.bad{color:#cf222e}svg{width:100%;height:auto;border:1px solid #d0d7de}
"""


def add(commands: argparse._SubParsersAction[_help.Parser]) -> None:
    """Adds the subcommand to the parser."""
    parser = _help.command(commands, "inspect", "tell what is in a recorded stream", DESCRIPTION, EPILOG)
    parser.add_argument(
        "file", nargs="?", default="-", metavar="FILE", help="a recorded body; - is standard input, the default"
    )
    parser.add_argument("--show-text", action="store_true", help="show the texts, not only their lengths")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print everything as one JSON object, every event too")
    form.add_argument(
        "--html", metavar="PAGE", help="write one self-contained page with the timeline of the events; - prints it"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Inspects the file and gives the exit status."""
    source = Source(arguments.file)
    if arguments.html and is_same(arguments.html, source.path):
        _terminal.say(f"{escape(arguments.html)}: cannot be written: it is what is read")
        return UNUSABLE
    try:
        data = b"".join(source.pieces())
    except OSError as failure:
        _terminal.say(f"{source.name}: cannot be read: {failure.strerror or failure}")
        return UNUSABLE
    found = report(data, arguments.show_text)
    if arguments.json:
        _terminal.write(_terminal.visible(json.dumps(found, ensure_ascii=False)).encode() + b"\n")
    elif arguments.html:
        page = _page(source.name, found).encode()
        if arguments.html == "-":
            _terminal.write(page)
        else:
            try:
                with open(arguments.html, "wb") as file:
                    file.write(page)
            except OSError as failure:
                _terminal.say(f"{escape(arguments.html)}: cannot be written: {failure.strerror}")
                return _terminal.UNWRITABLE
    else:
        for title, head, rows in _tables(found):
            _draw.print_table(title, head, [[_shown(cell) for cell in row] for row in rows])
            _terminal.write(b"\n")
        if bad := found["bad_bytes"]:
            _terminal.write(f"first bad bytes, at byte {bad['offset']}:\n  {bad['shown']}\n".encode())
    return 0 if found["error"] is None else STATUS.get(found["error"]["kind"], UNUSABLE)


class Asked(str):
    """A text that ``--show-text`` asked for: not cut."""

    __slots__ = ()


Table = tuple[str, list[str], list[list[Any]]]


def _shown(cell: Any) -> str:
    if isinstance(cell, Asked):
        return escape(cell, len(cell))
    if isinstance(cell, str):
        return escape(cell)
    return "-" if cell is None else escape(f"{cell:,}" if type(cell) is int else json.dumps(cell))


def _tables(found: dict[str, Any]) -> list[Table]:
    counts, error = found["counts"], found["error"]
    stream = [
        ["state", "complete" if found["complete"] else "not complete"],
        ["[DONE]", "seen" if found["done_seen"] else "not seen"],
        ["bytes", found["bytes"]],
        ["events", counts["events"]],
        ["chunks", counts["chunks"]],
        ["events after [DONE]", counts["after_done"]],
        ["id", found["id"]],
        ["model", found["model"]],
        ["other members", ", ".join(found["members"]) or "-"],
        ["error", "-" if error is None else f"{error['kind']}: {error['message']}"],
        *([["error at byte", error["offset"]], ["error code", error["code"]]] if error else []),
    ]
    tables: list[Table] = [("stream", ["", "value"], stream)]
    choices, calls, texts = [], [], []
    for choice in found["choices"]:
        sizes = choice["characters"]
        row = [sizes.get(name, 0) for name in ("content", "reasoning", "refusal")]
        finish = choice["finish_reason"]
        choices.append([str(choice["index"]), finish, *row, len(choice["tool_calls"]), choice["logprobs"]])
        for call in choice["tool_calls"]:
            whole = "whole JSON" if call["whole"] else "not whole"
            calls.append([str(choice["index"]), call["name"], call["id"], call["characters"], whole])
            if "arguments" in call:
                texts.append([f"choice {choice['index']}, arguments of {call['name']}", Asked(call["arguments"])])
        for name, text in choice.get("texts", {}).items():
            texts.append([f"choice {choice['index']}, {name}", Asked(text)])
    if choices:
        head = ["choice", "finish reason", "content, characters", "reasoning", "refusal", "tool calls", "logprobs"]
        tables.append(("choices", head, choices))
    if calls:
        tables.append(("tool calls", ["choice", "name", "id", "arguments, characters", "are"], calls))
    if texts:
        tables.append(("texts", ["", "text"], texts))
    usage = [[name, value] for name, value in (found["usage"] or {}).items()]
    tables.append((f"usage (source: {found['usage_source']})", ["", "value"], usage or [["none reported", None]]))
    if found["timings"]:
        tables.append(("times told by the server", ["", "value"], [[k, v] for k, v in found["timings"].items()]))
    odd = [[d["kind"], d["count"], ", ".join(map(str, d["offsets"]))] for d in found["diagnostics"]]
    if odd:
        tables.append(("leniencies", ["kind", "times", "at bytes"], odd))
    brought: dict[str, list[int]] = {}
    for event in found["events"]:
        kept = brought.setdefault(event["kind"], [0, 0])
        kept[0] += 1
        kept[1] += event["bytes"]
    tables.append(("events by what they brought", ["", "events", "bytes"], [[k, *v] for k, v in brought.items()]))
    return tables


def _page(name: str, found: dict[str, Any]) -> str:
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html(name)} – deltafold inspect</title>',
        f"<style>{STYLE}</style></head><body><h1>{html(name)}</h1>",
        "<h2>timeline</h2>",
        _draw.timeline(found["events"], found["bytes"]),
    ]
    if bad := found["bad_bytes"]:
        parts.append(f'<h2 class="bad">first bad bytes, at byte {bad["offset"]:,}</h2><pre>{html(bad["shown"])}</pre>')
    for title, head, rows in _tables(found):
        parts.append(f"<h2>{html(title)}</h2><table><tr>{''.join(f'<th>{html(cell)}</th>' for cell in head)}</tr>")
        parts.extend(f"<tr>{''.join(f'<td>{html(_shown(cell))}</td>' for cell in row)}</tr>" for row in rows)
        parts.append("</table>")
    return "\n".join([*parts, "</body></html>\n"])
