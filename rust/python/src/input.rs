//! Arguments that several functions take.
use deltafold_core::limits::Limits;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyType};
use std::convert::Infallible;

/// An argument that was left out, or given: None is a value like any other.
pub struct Given<'py>(pub Option<Bound<'py, PyAny>>);

impl<'py> FromPyObject<'_, 'py> for Given<'py> {
    type Error = Infallible;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> Result<Self, Infallible> {
        Ok(Self(Some(value.to_owned())))
    }
}

/// A piece as bytes; what is not `bytes` already is copied.
pub fn as_bytes<'py>(piece: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    if let Ok(bytes) = piece.cast::<PyBytes>() {
        return Ok(bytes.clone());
    }
    if is_bytes_like(piece) {
        let view = PyMemoryView::from(piece)?;
        return Ok(view.call_method0(intern!(piece.py(), "tobytes"))?.cast_into::<PyBytes>()?);
    }
    let name = piece.get_type().name()?;
    Err(PyTypeError::new_err(format!("a piece must be bytes, bytearray or memoryview, not {name}")))
}

pub fn is_bytes_like(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyBytes>() || value.is_instance_of::<PyByteArray>() || value.is_instance_of::<PyMemoryView>()
}

/// `deltafold.Limits`, or None for the defaults.
pub fn limits_of(py: Python<'_>, limits: Option<&Bound<'_, PyAny>>) -> PyResult<Limits> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let Some(limits) = limits else { return Ok(Limits::default()) };
    if !limits.is_instance(TYPE.import(py, "deltafold._types", "Limits")?)? {
        let name = limits.get_type().name()?;
        return Err(PyTypeError::new_err(format!("limits must be a Limits or None, not {name}")));
    }
    Ok(Limits {
        max_event_bytes: limits.getattr(intern!(py, "max_event_bytes"))?.extract()?,
        max_retained_bytes: limits.getattr(intern!(py, "max_retained_bytes"))?.extract()?,
        max_choices: limits.getattr(intern!(py, "max_choices"))?.extract()?,
        max_tool_calls: limits.getattr(intern!(py, "max_tool_calls"))?.extract()?,
        max_depth: limits.getattr(intern!(py, "max_depth"))?.extract()?,
    })
}
