"""Arrow columns into ``merge_many``, ``deltafold.arrow``, and the recipes of docs/bulk.md with the engines that are installed."""

from __future__ import annotations

import json
import re
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from conftest import ROOT, Backend, recipes
from deltafold import _bodies
from streams import END, chunk, sse

pa = pytest.importorskip("pyarrow")


def body(text: str) -> bytes:
    return sse(chunk({"content": text}), *END)


CUT = sse(chunk({"content": "half"}))
BODIES = [body("a"), None, CUT, body("é")]


def contents(results: list[Any]) -> list[Any]:
    return [r and (r["choices"][0]["message"]["content"] if isinstance(r, dict) else r.kind) for r in results]


class Only:
    """Nothing but one of the protocol's methods."""

    def __init__(self, array: Any, name: str) -> None:
        setattr(type(self), name, lambda self, requested_schema=None: getattr(array, name)(requested_schema))


def only(array: Any, name: str) -> Any:
    return type("Only", (Only,), {})(array, name)


@pytest.mark.parametrize("library", _bodies.LIBRARIES)
@pytest.mark.parametrize(
    "kind",
    ["binary", "large_binary", "string", "large_string", "chunked", "stream", "array", "sliced", "batch", "reader"],
)
def test_columns(backend: Backend, monkeypatch: pytest.MonkeyPatch, library: str, kind: str) -> None:
    pytest.importorskip(library)
    monkeypatch.setattr(_bodies, "LIBRARIES", (library,))
    array = pa.array(BODIES, getattr(pa, kind)() if "bin" in kind or "string" in kind else pa.binary())
    batch = pa.RecordBatch.from_arrays([array], ["any"])
    column = {
        "chunked": lambda: pa.chunked_array([array[:1], array[1:]]),
        "stream": lambda: only(pa.chunked_array([array[:1], array[1:]]), "__arrow_c_stream__"),
        "array": lambda: only(array, "__arrow_c_array__"),
        "sliced": lambda: pa.array([b"x", *BODIES, b"y"])[1:-1],
        "batch": lambda: batch,
        "reader": lambda: pa.RecordBatchReader.from_batches(batch.schema, [batch[:1], batch[1:]]),
    }.get(kind, lambda: array)()
    assert contents(backend.merge_many(column)) == ["a", None, "truncated", "é"]


@pytest.mark.parametrize("library", _bodies.LIBRARIES)
def test_texts_out(backend: Backend, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    pytest.importorskip(library)
    monkeypatch.setattr(_bodies, "LIBRARIES", (library,))
    texts = backend.merge_many(BODIES, output="arrow")
    assert type(texts).__module__.split(".")[0] == library
    array = pa.chunked_array(texts) if hasattr(texts, "__arrow_c_stream__") else pa.array(texts)
    assert pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type)
    given = [text and json.loads(text)["choices"][0]["message"]["content"] for text in array.to_pylist()]
    assert given == ["a", None, None, "é"]
    assert len(backend.merge_many([], output="arrow")) == 0


def test_polars_and_duckdb_hand_over_their_own(backend: Backend) -> None:
    pl, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    frame = pl.DataFrame({"body": BODIES})
    assert contents(backend.merge_many(frame["body"])) == contents(backend.merge_many(frame))
    assert contents(backend.merge_many(frame)) == ["a", None, "truncated", "é"]
    relation = duckdb.sql("select 'data: [DONE]\n\n'::blob as body from range(3)")
    assert backend.merge_many(relation) == [{"object": "chat.completion", "choices": []}] * 3


@pytest.mark.parametrize("library", _bodies.LIBRARIES)
def test_what_is_no_column_of_bodies(backend: Backend, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    pytest.importorskip(library)
    monkeypatch.setattr(_bodies, "LIBRARIES", (library,))
    with pytest.raises(TypeError, match=r"a column of bodies must be of binary or text, not (?i:int64)"):
        backend.merge_many(pa.array([1]))
    with pytest.raises(TypeError, match="bodies must be one column, not a table of 2"):
        backend.merge_many(pa.table({"a": [b""], "b": [b""]}))


def test_without_any_library(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _bodies.LIBRARIES:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'deltafold\[arrow\]'"):
        backend.merge_many(pa.array([b""]))
    assert len(backend.merge_many([body("a")])) == 1


def test_merge_batch() -> None:
    from deltafold.arrow import COLUMNS, merge_batch, merge_batches

    batch = pa.RecordBatch.from_pydict({"id": [1, 2, 3, 4], "raw": BODIES, "at": ["w", "x", "y", "z"]})
    done = merge_batch(batch, column="raw")
    assert done.schema == pa.schema(
        [("id", pa.int64()), ("at", pa.string()), *((name, pa.string()) for name in COLUMNS)]
    )
    rows = done.to_pylist()
    assert [row["at"] for row in rows] == ["w", "x", "y", "z"]
    assert [row["error"] for row in rows] == [None, None, "truncated", None]
    assert [row["error_message"] for row in rows] == [None, None, "the stream ended before it was complete", None]
    given = [row["completion"] and json.loads(row["completion"]) for row in rows]
    assert [one and one["choices"][0]["message"]["content"] for one in given] == ["a", None, "half", "é"]
    [again] = merge_batches([batch], "raw")
    assert again == done
    assert merge_batch(batch[:0], "raw").num_rows == 0
    with pytest.raises(KeyError, match="the batch has no column 'body', but id, raw, at"):
        merge_batch(batch)
    with pytest.raises(ValueError, match="the batch has a column 'error' already"):
        merge_batch(pa.RecordBatch.from_pydict({"raw": [b""], "error": [1]}), "raw")


ENGINES = re.findall(r"^```python (\w+)\n(.*?)^```$", (ROOT / "docs" / "bulk.md").read_text(), re.MULTILINE | re.DOTALL)


def test_the_page() -> None:
    """All blocks for one machine, in order, as a reader would run them."""
    for name in ("duckdb", "polars"):
        pytest.importorskip(name)
    names: dict[str, Any] = {}
    for block in recipes("bulk.md"):
        exec(block, names)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["spark", "ray"])
def test_the_pages_engines(engine: str) -> None:
    if find_spec({"spark": "pyspark", "ray": "ray"}[engine]) is None:
        pytest.skip(f"{engine} is not installed")
    names: dict[str, Any] = {}
    exec(recipes("bulk.md")[0], names)
    exec(dict(ENGINES)[engine], names)
