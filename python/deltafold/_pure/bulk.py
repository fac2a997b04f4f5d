"""Many bodies at once, one after the other: the interpreter's lock leaves pure Python no better."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, overload

from .._bodies import rows, strings
from .._errors import DeltafoldError
from .._types import Diagnostic, Limits
from . import json
from .accumulator import ChatCompletionAccumulator

__all__ = ["merge_many"]

Piece = bytes | bytearray | memoryview
OUTPUTS = ("dict", "json", "arrow")


@overload
def merge_many(
    bodies: Any,
    threads: int = 0,
    *,
    limits: Limits | None = None,
    n: int | None = None,
    output: Literal["dict"] = "dict",
) -> list[dict[str, Any] | DeltafoldError]: ...
@overload
def merge_many(
    bodies: Any, threads: int = 0, *, limits: Limits | None = None, n: int | None = None, output: Literal["json"]
) -> list[bytes | DeltafoldError]: ...
@overload
def merge_many(
    bodies: Any, threads: int = 0, *, limits: Limits | None = None, n: int | None = None, output: Literal["arrow"]
) -> Any: ...
def merge_many(
    bodies: Any, threads: int = 0, *, limits: Limits | None = None, n: int | None = None, output: str = "dict"
) -> Any:
    """Merges many whole responses: for each, in order, its result, or its error with what could be merged as ``partial``.

    Args:
        bodies: bytes-like bodies in a list or any other iterable; or an Arrow column of binary or text, which is whatever
            has ``__arrow_c_stream__`` or ``__arrow_c_array__`` and one column, read with the first installed of pyarrow,
            polars and nanoarrow. A None (a null) gives a None.
        threads: how many to use at the most, 0 for one a core. The pure implementation uses one.
        output: ``dict`` for a list of dicts; ``json`` for a list of ``result_json()``, which are made without the lock of
            the interpreter; ``arrow`` for an Arrow array of strings, of the same library, with nulls for errors
            (``deltafold.arrow.merge_batch`` keeps these).

    Bodies are taken as they are needed, up to 16 MiB or 8,192 ahead: beside these only what is returned takes memory.

    Raises:
        TypeError: a body is not bytes-like, or a column holds something else. Nothing in a body raises.
        ImportError: an Arrow column, and no library for it.
    """
    _check_threads(threads)
    if not isinstance(output, str):
        raise TypeError(f"output must be a str, not {type(output).__name__}")
    if output not in OUTPUTS:
        raise ValueError("output must be dict, json or arrow")
    ChatCompletionAccumulator(limits, n)  # they are checked also where there is no body
    results: list[Any] = []
    for body in rows(bodies):
        if body is None:
            results.append(None)
            continue
        accumulator = _merged(body, limits, n)
        error = accumulator.error
        if error is not None:
            results.append(error)
        else:
            results.append(accumulator.result() if output == "dict" else accumulator.result_json())
    return strings(results) if output == "arrow" else results


def _merge_lines(
    bodies: Iterable[Piece | None], threads: int, limits: Limits | None, n: int | None
) -> list[tuple[bytes | None, DeltafoldError | str | None, list[Diagnostic]]]:
    """For each body ``result_json()``, the error and the diagnostics, for the command line and ``deltafold.arrow``; for None
    the reason as a str.
    """
    _check_threads(threads)
    lines: list[tuple[bytes | None, DeltafoldError | str | None, list[Diagnostic]]] = []
    for body in bodies:
        if body is None:
            lines.append((None, "no body", []))
            continue
        accumulator = _merged(body, limits, n)
        lines.append((accumulator.result_json(), accumulator.error, accumulator.diagnostics))
    return lines


Noted = tuple[int, int, int, "DeltafoldError | str | None", "list[Diagnostic]", str]


def _merge_records(head: bytes, block: bytes, path: Sequence[str]) -> tuple[int, int, int, bytes, list[Noted]]:
    """The bodies in the records of a log, merged.

    Args:
        head: the begin of the first line.
        block: the rest of it, and more lines; what comes after the last line feed is not read.
        path: what leads to the text in each line of JSON: names, or numbers in lists.

    Returns:
        How many lines there were; how many records, which are the lines that are not blank; their length in bytes; for
        each record a line of JSON, ``null`` where it has no body, all in one; and a list of those on which something is
        to be said: the number of the line from 0 on, where in the JSON its own begins and ends, the error (a str where
        there is no body, or None), the diagnostics, and the different characters that ``str.isprintable`` may deny.
    """
    lines = (head + block).split(b"\n")[:-1]
    output = bytearray()
    noted: list[Noted] = []
    records = size = 0
    for number, line in enumerate(lines):
        if not line.strip(b" \t\r\f"):
            continue
        records += 1
        size += len(line)
        start = len(output)
        error: DeltafoldError | str | None
        try:
            accumulator = _merged(_text_at(line, path), None, None)
        except _NoText as reason:
            text, error, notes = b"null", str(reason), []
        else:
            text, error, notes = accumulator.result_json(), accumulator.error, accumulator.diagnostics
        output += text + b"\n"
        unseen = "".join(sorted({char for char in text.decode() if not char.isprintable()}))
        if error is not None or notes or unseen:
            noted.append((number, start, len(output), error, notes, unseen))
    return len(lines), records, size, bytes(output), noted


class _NoText(Exception):
    """A line holds no body where it should."""


def _text_at(line: bytes, path: Sequence[str]) -> bytes:
    """The text in a line of JSON; an array of texts is joined."""
    try:
        value, _ = json.parse(line.decode("utf-8", "replace"), Limits().max_depth)
    except (json.Bad, json.TooDeep):
        raise _NoText("the line is not JSON") from None
    for name in path:
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif (
            isinstance(value, list) and name.isascii() and name.isdigit() and len(name) < 20 and int(name) < len(value)
        ):
            value = value[int(name)]
        else:
            raise _NoText("the line has no such member")
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise _NoText("the member is not text")
    return "".join(json.clean(text)[0] for text in texts).encode()


def _merged(body: Piece, limits: Limits | None, n: int | None) -> ChatCompletionAccumulator:
    accumulator = ChatCompletionAccumulator(limits, n)
    accumulator.feed(body)
    accumulator.close()
    return accumulator


def _check_threads(threads: int) -> None:
    if type(threads) is not int or threads < 0:
        raise ValueError("threads must be 0 or a positive int")
