//! The extension module `deltafold._rust`: converts between Python and `deltafold-core`, decides nothing.
use pyo3::prelude::*;

mod accumulator;
mod bulk;
mod chunks;
mod convert;
mod filter;
mod input;
mod sse;

#[pymodule]
fn _rust(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<sse::SSEDecoder>()?;
    module.add_class::<accumulator::ChatCompletionAccumulator>()?;
    module.add_class::<filter::StreamFilter>()?;
    module.add_function(wrap_pyfunction!(bulk::merge, module)?)?;
    module.add_function(wrap_pyfunction!(bulk::merge_many, module)?)?;
    module.add_function(wrap_pyfunction!(bulk::_merge_lines, module)?)?;
    Ok(())
}
