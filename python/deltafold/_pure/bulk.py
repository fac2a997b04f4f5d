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
    bodies: Iterable[Piece | None],
    threads: int,
    limits: Limits | None,
    n: int | None,
    path: Sequence[str] | None = None,
) -> list[tuple[bytes | None, DeltafoldError | str | None, list[Diagnostic]]]:
    """For each body ``result_json()``, the error and the diagnostics, for the command line and ``deltafold.arrow``; for a
    body that is none, None and the reason as a str.

    Args:
        path: the bodies are lines of JSON, and this leads to the text in each: names, or numbers in lists.
    """
    _check_threads(threads)
    lines: list[tuple[bytes | None, DeltafoldError | str | None, list[Diagnostic]]] = []
    for body in bodies:
        if body is None:
            lines.append((None, "no body", []))
            continue
        try:
            accumulator = _merged(body if path is None else _text_at(bytes(body), path), limits, n)
        except _NoText as reason:
            lines.append((None, str(reason), []))
        else:
            lines.append((accumulator.result_json(), accumulator.error, accumulator.diagnostics))
    return lines


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
