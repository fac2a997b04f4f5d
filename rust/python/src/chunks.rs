//! Chunk objects → the JSON text that the core reads.
use deltafold_core::accumulator::json_string;
use deltafold_core::json::write_float;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString};

/// Objects inside each other up to which this writes; Python's own writer, which has a limit too, does the rest.
const DEEPEST: usize = 100;

/// A dict of plain values is written here; whatever else a chunk is goes through `deltafold._chunks.chunk_text`.
pub fn chunk_text(chunk: &Bound<'_, PyAny>) -> PyResult<String> {
    let mut text = String::new();
    if chunk.is_exact_instance_of::<PyDict>() && write(chunk, &mut text, DEEPEST) {
        return Ok(text);
    }
    static WRITER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = chunk.py();
    let writer = WRITER.get_or_try_init(py, || {
        py.import("deltafold._chunks")?.getattr(intern!(py, "chunk_text")).map(Bound::unbind)
    })?;
    writer.bind(py).call1((chunk,))?.extract()
}

/// False when the value is not plain.
fn write(value: &Bound<'_, PyAny>, out: &mut String, depth: usize) -> bool {
    if depth == 0 {
        return false;
    }
    if value.is_none() {
        out.push_str("null");
    } else if value.is_exact_instance_of::<PyString>() {
        return value.cast::<PyString>().is_ok_and(|value| push_string(value, out));
    } else if let Ok(value) = value.cast_exact::<PyBool>() {
        out.push_str(if value.is_true() { "true" } else { "false" });
    } else if value.is_exact_instance_of::<PyInt>() {
        let Ok(value) = value.extract::<i64>() else { return false };
        out.push_str(&value.to_string());
    } else if let Ok(value) = value.cast_exact::<PyFloat>() {
        match value.value() {
            number if number.is_finite() => write_float(number, out),
            number if number.is_nan() => out.push_str("NaN"),
            number => out.push_str(if number > 0.0 { "Infinity" } else { "-Infinity" }),
        }
    } else if let Ok(list) = value.cast_exact::<PyList>() {
        out.push('[');
        for (at, item) in list.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            if !write(&item, out, depth - 1) {
                return false;
            }
        }
        out.push(']');
    } else if let Ok(dict) = value.cast_exact::<PyDict>() {
        out.push('{');
        for (at, (key, value)) in dict.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            if !key.cast_exact::<PyString>().is_ok_and(|key| push_string(key, out)) {
                return false;
            }
            out.push(':');
            if !write(&value, out, depth - 1) {
                return false;
            }
        }
        out.push('}');
    } else {
        return false;
    }
    true
}

/// False when the string holds surrogate halves.
fn push_string(value: &Bound<'_, PyString>, out: &mut String) -> bool {
    value.to_cow().is_ok_and(|value| {
        out.push_str(&json_string(&value));
        true
    })
}
