//! Any bytes, any cut, any limits: what is merged is that of the whole.
#![no_main]

use deltafold_fuzz::{Input, outcome};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some(input) = Input::new(input) else { return };
    assert_eq!(outcome(input.accumulator(), &input.pieces()), outcome(input.accumulator(), &[input.body]));
});
