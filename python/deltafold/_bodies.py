"""Arrow columns in and out of ``merge_many``, through whichever library for them is installed.

A column is whatever speaks the Arrow PyCapsule protocol: ``__arrow_c_stream__`` or ``__arrow_c_array__``. Reading the C
structures takes a library, of which a user who has such a column has one already: no code of ours would read them faster, for
the bytes of a body are copied once (a memory copy beside a merge that is many times as long).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

__all__ = ["rows", "strings"]

ROWS = 1024  # that are made Python objects at a time
LIBRARIES = ("pyarrow", "polars", "nanoarrow")


def rows(bodies: Any) -> Iterable[Any]:
    """The bodies one by one: bytes and None of an Arrow column, and any other iterable as it is."""
    if not hasattr(bodies, "__arrow_c_stream__") and not hasattr(bodies, "__arrow_c_array__"):
        found: Iterable[Any] = bodies
        return found
    library = _library()
    return {"pyarrow": _pyarrow, "polars": _polars, "nanoarrow": _nanoarrow}[library.__name__](library, bodies)


def strings(results: list[Any]) -> Any:
    """An Arrow array of JSON texts, null for what is no bytes."""
    library = _library()
    texts = [result if isinstance(result, bytes) else None for result in results]
    if library.__name__ == "pyarrow":
        return library.array(texts, library.large_string())
    decoded = [None if text is None else text.decode() for text in texts]
    if library.__name__ == "polars":
        return library.Series("completion", decoded, library.String)
    return library.Array(decoded, library.large_string())


def _library() -> Any:
    for name in LIBRARIES:
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
    raise ImportError(
        "Arrow columns need pyarrow, polars or nanoarrow, none of which is installed: pip install 'deltafold[arrow]'"
    )


def _pyarrow(pa: Any, column: Any) -> Iterator[Any]:
    for array in _pyarrow_arrays(pa, column):
        if pa.types.is_struct(array.type):
            array = _only(array.flatten())
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        kind = str(array.type)
        if kind not in ("binary", "large_binary", "binary_view", "string", "large_string", "string_view"):
            if not pa.types.is_fixed_size_binary(array.type) and not pa.types.is_null(array.type):
                raise _wrong(kind)
        for at in range(0, len(array), ROWS):
            yield from array.slice(at, ROWS).cast(pa.large_binary()).to_pylist()


def _pyarrow_arrays(pa: Any, column: Any) -> Iterator[Any]:
    if not hasattr(column, "__arrow_c_stream__"):
        yield pa.array(column)
        return
    try:
        reader = pa.RecordBatchReader.from_stream(column)  # a stream of tables is read batch by batch
    except (pa.ArrowInvalid, TypeError):
        yield from pa.chunked_array(column).chunks
        return
    for batch in reader:
        yield _only(batch.columns)


def _polars(pl: Any, column: Any) -> Iterator[Any]:
    series = pl.Series(column)
    if series.dtype == pl.Struct:
        series = _only(series.struct.unnest().get_columns())
    if series.dtype in (pl.Categorical, pl.Enum):
        series = series.cast(pl.String)
    if series.dtype not in (pl.Binary, pl.String, pl.Null):
        raise _wrong(str(series.dtype))
    for at in range(0, len(series), ROWS):
        yield from series.slice(at, ROWS).cast(pl.Binary).to_list()


def _nanoarrow(na: Any, column: Any) -> Iterator[Any]:
    stream = na.ArrayStream(column) if hasattr(column, "__arrow_c_stream__") else na.Array(column)
    for array in stream.iter_chunks():
        if array.schema.type == na.Type.STRUCT:
            array = array.child(0) if array.n_children == 1 else _only([None] * array.n_children)
        for value in array.iter_py():
            if value is not None and not isinstance(value, (bytes, str)):
                raise _wrong(array.schema.type.name.lower())
            yield value.encode() if isinstance(value, str) else value


def _only(columns: list[Any]) -> Any:
    if len(columns) != 1:
        raise TypeError(f"bodies must be one column, not a table of {len(columns)}")
    return columns[0]


def _wrong(kind: str) -> TypeError:
    return TypeError(f"a column of bodies must be of binary or text, not {kind}")
