//! Chunk objects → the JSON text that the core reads.
use deltafold_core::accumulator::push_json_string;
use deltafold_core::json::write_float;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PySet, PyString};

/// Objects inside each other up to which this writes; Python's own writer, which has a limit too, does the rest.
const DEEPEST: usize = 100;

/// Dicts, lists and plain values are written here, and models whose members `deltafold._chunks.is_plain` says may be read;
/// whatever else a chunk is goes through `deltafold._chunks.chunk_text`.
pub fn chunk_text(chunk: &Bound<'_, PyAny>) -> PyResult<String> {
    let mut text = String::with_capacity(512);
    if !is_plain_value(chunk) && write(chunk, &mut text, DEEPEST) {
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
        return is_plain_model(value).unwrap_or(false) && write_model(value, out, depth).unwrap_or(false);
    }
    true
}

/// The members of a pydantic model that were set, then those that no type expected: `deltafold._chunks.members`.
fn write_model(model: &Bound<'_, PyAny>, out: &mut String, depth: usize) -> PyResult<bool> {
    let py = model.py();
    let were_set = model.getattr(intern!(py, "__pydantic_fields_set__"))?;
    let (Ok(were_set), Ok(held)) =
        (were_set.cast::<PySet>(), model.getattr(intern!(py, "__dict__"))?.cast_into::<PyDict>())
    else {
        return Ok(false);
    };
    let more = model.getattr(intern!(py, "__pydantic_extra__"))?;
    let more = more.cast_exact::<PyDict>().ok();
    out.push('{');
    let begun = out.len();
    for (name, member) in held.iter() {
        if were_set.contains(&name)? && !write_member(&name, &member, out, begun, depth) {
            return Ok(false);
        }
    }
    for (name, member) in more.into_iter().flat_map(|more| more.iter()) {
        if !write_member(&name, &member, out, begun, depth) {
            return Ok(false);
        }
    }
    out.push('}');
    Ok(true)
}

fn write_member(
    name: &Bound<'_, PyAny>,
    member: &Bound<'_, PyAny>,
    out: &mut String,
    begun: usize,
    depth: usize,
) -> bool {
    if out.len() > begun {
        out.push(',');
    }
    if !name.cast_exact::<PyString>().is_ok_and(|name| push_string(name, out)) {
        return false;
    }
    out.push(':');
    write(member, out, depth - 1)
}

/// As `deltafold._chunks.is_plain` says of the object's class, or has said.
fn is_plain_model(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    static KNOWN: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let (py, class) = (value.py(), value.get_type());
    let known = KNOWN.get_or_try_init(py, || {
        let known = py.import("deltafold._chunks")?.getattr(intern!(py, "_plain_models"))?;
        Ok::<_, PyErr>(known.cast_into::<PyDict>()?.unbind())
    })?;
    if let Some(known) = known.bind(py).get_item(&class)? {
        return known.is_truthy();
    }
    py.import("deltafold._chunks")?.getattr(intern!(py, "is_plain"))?.call1((class,))?.is_truthy()
}

/// What is no chunk, though it could be written.
fn is_plain_value(value: &Bound<'_, PyAny>) -> bool {
    value.is_none()
        || value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyInt>()
        || value.is_instance_of::<PyFloat>()
        || value.is_instance_of::<PyList>()
}

/// False when the string holds surrogate halves.
fn push_string(value: &Bound<'_, PyString>, out: &mut String) -> bool {
    value.to_cow().is_ok_and(|value| {
        push_json_string(&value, out);
        true
    })
}
