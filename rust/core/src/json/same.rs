//! Values → fingerprints, equal when the values are.
use super::{Kind, Node, Step, Tape};
use std::hash::{BuildHasher, Hasher, RandomState};

/// A hash of the value at `index` that two values share exactly when they are of the same types and equal, the members
/// of objects in any order. An integer equals no float; integers are compared by value, floats as Python's `repr`
/// spells them (`-0.0` is not `0.0`, NaN is NaN), strings as they read with surrogate halves as U+FFFD.
///
/// 128 bits keyed by `state`: values that differ collide by chance only, whoever made them.
#[must_use]
pub fn fingerprint(tape: &Tape, text: &str, index: usize, state: &RandomState) -> u128 {
    let mut open: Vec<Folded> = Vec::new();
    let mut result = 0;
    tape.walk(index, |step| {
        let done = match step {
            Step::Open(_) => {
                open.push(Folded::default());
                return true;
            }
            Step::Key(at) => {
                if let Some(object) = open.last_mut() {
                    object.key = Some(hash(state, b'k', tape.key(text, at).as_bytes()));
                }
                return true;
            }
            Step::Leaf(at) => leaf(state, tape.node(at), text),
            Step::Close(at) => {
                let tag = if tape.node(at).kind == Kind::Object { b'{' } else { b'[' };
                let folded = open.pop().unwrap_or_default();
                hash(state, tag, &folded.value.to_le_bytes())
            }
        };
        match open.last_mut() {
            None => result = done,
            Some(folded) => folded.add(state, done),
        }
        true
    });
    result
}

/// What of an open container has been hashed: a sum over members, so that their order is lost; a chain over entries.
#[derive(Default)]
struct Folded {
    value: u128,
    key: Option<u128>,
}

impl Folded {
    fn add(&mut self, state: &RandomState, child: u128) {
        let mut pair = [0; 32];
        pair[16..].copy_from_slice(&child.to_le_bytes());
        if let Some(key) = self.key.take() {
            pair[..16].copy_from_slice(&key.to_le_bytes());
            self.value = self.value.wrapping_add(hash(state, b'm', &pair));
        } else {
            pair[..16].copy_from_slice(&self.value.to_le_bytes());
            self.value = hash(state, b'e', &pair);
        }
    }
}

fn leaf(state: &RandomState, node: Node, text: &str) -> u128 {
    match node.kind {
        Kind::String => hash(state, b's', node.string(text).as_bytes()),
        Kind::Int if node.is_zero(text) => hash(state, b'i', b"0"),
        Kind::Int => hash(state, b'i', node.slice(text).as_bytes()),
        Kind::Float | Kind::NonFinite => {
            let value = node.number(text);
            let bits = if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() };
            hash(state, b'f', &bits.to_le_bytes())
        }
        _ => hash(state, b'w', node.slice(text).as_bytes()),
    }
}

fn hash(state: &RandomState, tag: u8, bytes: &[u8]) -> u128 {
    let half = |salt: u8| {
        let mut hasher = state.build_hasher();
        hasher.write(&[tag, salt]);
        hasher.write(bytes);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}
