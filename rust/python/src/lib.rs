//! The extension module `deltafold._rust`: converts between Python and `deltafold-core`, decides nothing.
use pyo3::prelude::*;

mod sse;

#[pymodule]
fn _rust(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<sse::SSEDecoder>()?;
    Ok(())
}
