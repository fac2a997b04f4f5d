//! The core of deltafold: bytes of a Chat Completions stream in, the merged `chat.completion` out.
//!
//! One module a stage, no I/O, no Python. Bytes flow one way: piece → event ([`sse`]) → chunk ([`json`]) → completion.
pub mod accumulator;
mod calls;
mod chunk;
pub mod filter;
pub mod json;
pub mod ledger;
pub mod limits;
mod merge;
mod message;
pub mod record;
mod repeat;
pub mod result;
mod shape;
pub mod sse;
mod stream;
mod text;
mod tree;
mod usage;
