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
    // The default hook prints the message of a panic, which may hold text of the stream. Nobody else's panics come here.
    std::panic::set_hook(Box::new(|fault| match fault.location() {
        Some(at) => eprintln!("deltafold: a fault at {at}; please report it"),
        None => eprintln!("deltafold: a fault; please report it"),
    }));
    module.add_class::<sse::SSEDecoder>()?;
    module.add_class::<accumulator::ChatCompletionAccumulator>()?;
    module.add_class::<filter::StreamFilter>()?;
    module.add_function(wrap_pyfunction!(bulk::merge, module)?)?;
    module.add_function(wrap_pyfunction!(bulk::merge_many, module)?)?;
    module.add_function(wrap_pyfunction!(bulk::_merge_lines, module)?)?;
    module.add_function(wrap_pyfunction!(bulk::_merge_files, module)?)?;
    module.add_function(wrap_pyfunction!(bulk::_merge_records, module)?)?;
    Ok(())
}
