//! The extension module `deltafold._rust`: converts between Python and `deltafold-core`, decides nothing.
use pyo3::prelude::*;

#[pymodule]
fn _rust(_module: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
