"""Bodies in a column of an Arrow table, merged: the function that an engine calls on its own partitions.

DuckDB, Polars, Spark, Ray, Daft and others hand Arrow batches to Python and take them back; docs/bulk.md shows how. It needs
pyarrow, which these bring along.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ._backend import _merge_lines
from ._bodies import rows
from ._errors import DeltafoldError, escape
from ._types import Limits

if TYPE_CHECKING:
    import pyarrow

__all__ = ["COLUMNS", "merge_batch", "merge_batches"]

COLUMNS = ("completion", "error", "error_message")  # all of type string


def merge_batch(
    record_batch: Any,
    column: str = "body",
    *,
    threads: int = 1,
    limits: Limits | None = None,
    n: int | None = None,
) -> pyarrow.RecordBatch:
    """A record batch whose column of bodies is replaced by three columns of type string, the others staying as they are.

    - ``completion``: the merged ``chat.completion`` as JSON, what could be merged where there was an error. Null for null.
    - ``error``: null for a whole stream, else the kind: ``truncated``, ``upstream-error``, ``bad-json``, …
    - ``error_message``: null, or what happened, escaped and at most 200 characters of upstream's text.

    Args:
        record_batch: a ``pyarrow.RecordBatch``, or anything with ``__arrow_c_array__`` that is one.
        column: the name of the column of bodies, of binary or text.
        threads: 1, since engines call this on every core at once; 0 for one a core.
        limits: what each stream may cost.
        n: 1 folds every choice into choice 0.

    Raises:
        KeyError: there is no such column.
        TypeError: it is neither binary nor text. Nothing in a body raises.
        ValueError: two columns would have one name.

    Beside the batch its completions are held, never more than those; they must stay below 2 GiB, as Arrow's strings must.
    """
    import pyarrow as pa

    if not isinstance(record_batch, pa.RecordBatch):
        record_batch = pa.record_batch(record_batch)
    names = record_batch.schema.names
    if column not in names:
        raise KeyError(f"the batch has no column {escape(column)!r}, but {', '.join(map(escape, names))}")
    kept = [name for name in names if name != column]
    if taken := sorted({*kept} & {*COLUMNS}):
        raise ValueError(f"the batch has a column {taken[0]!r} already")
    merged = _merge_lines(rows(record_batch.column(names.index(column))), threads, limits, n)
    told = [(text, *_told(error)) for text, error, _ in merged]
    new = [pa.array(values, pa.string()) for values in zip(*told)] if told else [pa.array([], pa.string())] * 3
    arrays = [record_batch.column(names.index(name)) for name in kept]
    fields = [record_batch.schema.field(name) for name in kept] + [pa.field(name, pa.string()) for name in COLUMNS]
    return pa.RecordBatch.from_arrays([*arrays, *new], schema=pa.schema(fields))


def merge_batches(record_batches: Iterable[Any], column: str = "body", **options: Any) -> Iterator[pyarrow.RecordBatch]:
    """``merge_batch`` for each of many batches, one at a time: what ``mapInArrow`` of Spark takes."""
    for record_batch in record_batches:
        yield merge_batch(record_batch, column, **options)


def _told(error: DeltafoldError | str | None) -> tuple[str | None, str | None]:
    if isinstance(error, DeltafoldError):
        return error.kind, escape(error.message)
    return None, None  # none, or no body
