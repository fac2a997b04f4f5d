//! Any text: the reader and its naive twin agree on the value, on the place of a fault, and on the words that are no JSON.
#![no_main]

use deltafold_core::json::{self, Tape, write_canonical};
use libfuzzer_sys::fuzz_target;

#[path = "../../core/src/json/tests/naive.rs"]
mod naive;

fuzz_target!(|text: &str| {
    let mut tape = Tape::new();
    let read = tape.parse(text, 12).map(|()| {
        let mut out = String::new();
        write_canonical(&tape, text, 0, &mut out);
        (out, tape.words())
    });
    assert_eq!(read, naive::canonical(text, 12));
});
