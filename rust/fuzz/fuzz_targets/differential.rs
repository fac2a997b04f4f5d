//! Any bytes, any cut, any limits: the fast path says what the ordinary one says.
#![no_main]

use deltafold_fuzz::{Input, outcome};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some(input) = Input::new(input) else { return };
    let mut ordinary = input.accumulator();
    ordinary.set_fast_path(false);
    let expected = outcome(ordinary, &[input.body]);
    assert_eq!(outcome(input.accumulator(), &[input.body]), expected);
    assert_eq!(outcome(input.accumulator(), &input.pieces()), expected);
});
