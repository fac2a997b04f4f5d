//! The core of deltafold: bytes of a Chat Completions stream in, the merged `chat.completion` out.
//!
//! One module a stage, no I/O, no Python: [`sse`] splits bytes into events, [`json`] reads one payload.
pub mod json;
pub mod limits;
pub mod sse;
