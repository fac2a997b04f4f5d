//! One JSON payload → a flat tape of nodes; knows nothing of OpenAI.
//!
//! [`Tape::parse`] passes over the bytes once and leaves one 16-byte [`Node`] for each value and each key, in the
//! order of the text. A node holds offsets into the text, never a copy of it, so a reused tape allocates nothing;
//! numbers and escapes are checked now and converted only when somebody asks. There is no recursion: open
//! containers lie on a stack of frames, so depth costs memory and not the machine's stack.
//!
//! The grammar is RFC 8259 plus the words `NaN`, `Infinity` and `-Infinity`. Three things are decided here once:
//!
//! * *Strings* are scanned eight bytes at a time. `stops` marks quotes, backslashes and control characters in a
//!   word with one expression; only its lowest mark is exact, and only that is used.
//! * *Equal keys.* Each frame has a 64-bit set of key hashes. A new key whose bit is free equals no earlier one, which
//!   settles nearly every object. Otherwise a small object is searched, and one that is large or has escaped keys is
//!   settled when it closes, by sorting keyed hashes. The first of equal keys is then redirected to the last value and
//!   the others are marked [`DEAD`]; [`Tape::members`] follows.
//! * *Flags* of a container are the union of all flags beneath it, so that one test tells whether its slice of the
//!   text already is its compact text, or its canonical one.
use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};

mod same;
pub(crate) mod scan;
#[cfg(test)]
mod tests;
mod text;
mod write;

pub(crate) use scan::{byte, find_stop, hole_end, number_end, stops, string_end, word};
use scan::{has, key_hash, skip_white};

pub use same::fingerprint;
pub(crate) use text::escape;
pub use text::{Piece, compact, compact_len, unescape};
pub(crate) use write::write_readable;
pub use write::{write_canonical, write_float, write_string};

/// The string has a backslash.
pub const ESCAPED: u8 = 1;
/// The string has half a surrogate pair, as `\ud83d`, without its other half.
pub const HALF: u8 = 2;
/// There is white space between tokens: the compact text differs from the slice.
pub const SPACED: u8 = 4;
/// A number is not spelled as Python's `repr` spells it, a word stands for a non-finite number, or a key came twice:
/// the canonical text differs from the slice, or may.
pub const RAW: u8 = 8;
/// A key that came before in its object: it is no member, its value belongs to the first of its name.
pub const DEAD: u8 = 16;

/// Digits of the longest integer that is read; as many as CPython converts unless told otherwise.
pub const MAX_INTEGER_DIGITS: usize = 4300;

/// Members up to which a possible repeat is settled by comparing with each earlier key.
const FEW: u32 = 16;

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Kind {
    Null,
    False,
    True,
    /// A number without fraction and exponent.
    Int,
    /// A number with either; it may be too large for a double.
    Float,
    /// One of the words `NaN`, `Infinity`, `-Infinity`.
    NonFinite,
    String,
    /// A member's name; the node after it is its value.
    Key,
    Array,
    Object,
}

/// One value or key of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// First byte: of a string or key behind its quote, of a container its bracket.
    pub start: u32,
    /// The byte after the last: of a string or key its closing quote, of a container behind its bracket.
    pub end: u32,
    /// Index of the node after this value and all beneath it; of a key, of its value.
    pub next: u32,
    /// What it is.
    pub kind: Kind,
    /// [`ESCAPED`], [`HALF`], [`SPACED`], [`RAW`], [`DEAD`]; of a container the union of those beneath.
    pub flags: u8,
}

/// Why a text was refused; of several reasons the first in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not JSON, or an integer of more than [`MAX_INTEGER_DIGITS`] digits.
    Bad {
        /// Offset of the first byte of the token that cannot stand there.
        at: usize,
    },
    /// More containers inside each other than were allowed.
    TooDeep {
        /// Offset of the bracket that was one too many.
        at: usize,
    },
}

/// The nodes of one text, kept for reuse.
#[derive(Debug, Default)]
pub struct Tape {
    nodes: Vec<Node>,
    frames: Vec<Frame>,
    words: usize,
    hashes: Vec<(u64, u32)>,
    state: RandomState,
}

impl Tape {
    /// An empty tape.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads one JSON text; its root becomes node 0. After a fault the tape is empty.
    ///
    /// The outermost container has depth 1; one at `max_depth + 1` is [`Fault::TooDeep`]. A text of 4 GiB or more is
    /// [`Fault::Bad`].
    ///
    /// ```
    /// use deltafold_core::json::{Fault, Kind, Tape};
    /// let mut tape = Tape::new();
    /// let text = r#"{"n": [1, 2]}"#;
    /// tape.parse(text, 128).unwrap();
    /// let (key, value) = tape.members(0).next().unwrap();
    /// assert_eq!(tape.key(text, key), "n");
    /// assert_eq!(tape.node(value).kind, Kind::Array);
    /// assert_eq!(tape.parse("[1,]", 128), Err(Fault::Bad { at: 3 }));
    /// ```
    pub fn parse(&mut self, text: &str, max_depth: usize) -> Result<(), Fault> {
        self.parse_with(text, max_depth, string_end)
    }

    /// The same where `string` finds the ends of the values that are strings, as `string_end` does: for whoever can check
    /// one while doing something else with it.
    pub(crate) fn parse_with(
        &mut self,
        text: &str,
        max_depth: usize,
        string: impl FnMut(&[u8], usize) -> Option<(usize, u8)>,
    ) -> Result<(), Fault> {
        self.nodes.clear();
        self.frames.clear();
        self.words = 0;
        let read =
            if text.len() > u32::MAX as usize { Err(Fault::Bad { at: 0 }) } else { self.read(text, max_depth, string) };
        if read.is_err() {
            self.nodes.clear();
        }
        read
    }

    /// Nodes that there is room for, also after a fault.
    pub(crate) fn room(&self) -> usize {
        self.nodes.capacity()
    }

    /// How often the last text had `NaN`, `Infinity` or `-Infinity`, in overridden members too.
    #[must_use]
    pub fn words(&self) -> usize {
        self.words
    }

    /// The node at `index`.
    #[must_use]
    #[inline]
    pub fn node(&self, index: usize) -> Node {
        self.nodes[index]
    }

    /// All nodes, in the order of the text.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The part of `text` that the node spans; of a string or key without its quotes.
    #[must_use]
    #[inline]
    pub fn slice<'a>(&self, text: &'a str, index: usize) -> &'a str {
        self.nodes[index].slice(text)
    }

    /// The name that the key at `index` spells; half a surrogate pair reads as U+FFFD.
    #[must_use]
    #[inline]
    pub fn key<'a>(&self, text: &'a str, index: usize) -> Cow<'a, str> {
        self.nodes[index].string(text)
    }

    /// The value of the string at `index`; half a surrogate pair reads as U+FFFD.
    #[must_use]
    #[inline]
    pub fn string<'a>(&self, text: &'a str, index: usize) -> Cow<'a, str> {
        self.nodes[index].string(text)
    }

    /// The members of the object at `index` as pairs of key and value node; each name once, where it first came and
    /// with the value it had last. Of anything else: none.
    #[inline]
    pub fn members(&self, index: usize) -> impl Iterator<Item = (usize, usize)> + use<'_> {
        let node = self.nodes[index];
        let end = if node.kind == Kind::Object { node.next as usize } else { 0 };
        let mut at = index + 1;
        std::iter::from_fn(move || {
            while at < end {
                let (key, node) = (at, self.nodes[at]);
                at = self.nodes[key + 1].next as usize;
                if node.flags & DEAD == 0 {
                    return Some((key, node.next as usize));
                }
            }
            None
        })
    }

    /// The entries of the array at `index`. Of anything else: none.
    #[inline]
    pub fn items(&self, index: usize) -> impl Iterator<Item = usize> + use<'_> {
        let node = self.nodes[index];
        let end = if node.kind == Kind::Array { node.next as usize } else { 0 };
        let mut at = index + 1;
        std::iter::from_fn(move || {
            let item = at;
            (item < end).then(|| {
                at = self.nodes[item].next as usize;
                item
            })
        })
    }

    /// Shows the value at `index` and all that is beneath it, overridden members left out. `on` says of each
    /// [`Step::Open`] whether to go inside; without going inside there is no [`Step::Close`] either.
    pub(crate) fn walk(&self, index: usize, mut on: impl FnMut(Step) -> bool) {
        let mut open: Vec<(usize, usize)> = Vec::new();
        let mut value = index;
        loop {
            let node = self.nodes[value];
            if !matches!(node.kind, Kind::Array | Kind::Object) {
                on(Step::Leaf(value));
            } else if on(Step::Open(value)) {
                open.push((value, value + 1));
            }
            value = loop {
                let Some((container, at)) = open.last_mut() else {
                    return;
                };
                let child = *at;
                if child == self.nodes[*container].next as usize {
                    on(Step::Close(*container));
                    open.pop();
                    continue;
                }
                let node = self.nodes[child];
                if node.kind != Kind::Key {
                    *at = node.next as usize;
                    break child;
                }
                *at = self.nodes[child + 1].next as usize;
                if node.flags & DEAD == 0 {
                    on(Step::Key(child));
                    break node.next as usize;
                }
            };
        }
    }

    fn read(
        &mut self,
        text: &str,
        max_depth: usize,
        mut string: impl FnMut(&[u8], usize) -> Option<(usize, u8)>,
    ) -> Result<(), Fault> {
        let bytes = text.as_bytes();
        let mut frame = Frame::default();
        let mut at = skip_white(bytes, 0, &mut frame.flags);
        loop {
            let start = at;
            match byte(bytes, at) {
                b'"' => {
                    let (end, flags) = string(bytes, at + 1).ok_or(Fault::Bad { at })?;
                    self.push(&mut frame, start + 1, end, Kind::String, flags);
                    at = end + 1;
                }
                opening @ (b'{' | b'[') => {
                    if self.frames.len() >= max_depth {
                        return Err(Fault::TooDeep { at });
                    }
                    let object = opening == b'{';
                    let node = self.nodes.len() as u32;
                    let kind = if object { Kind::Object } else { Kind::Array };
                    self.nodes.push(Node { start: start as u32, end: 0, next: 0, kind, flags: 0 });
                    self.frames.push(frame);
                    frame = Frame { node, object, ..Frame::default() };
                    at = skip_white(bytes, at + 1, &mut frame.flags);
                    if byte(bytes, at) != opening + 2 {
                        if object {
                            at = self.read_key(bytes, at, &mut frame)?;
                        }
                        continue;
                    }
                    at += 1;
                    self.close(text, at, &mut frame);
                }
                b'0'..=b'9' | b'-' => {
                    let (end, kind, flags) = number_end(bytes, at)?;
                    self.words += usize::from(kind == Kind::NonFinite);
                    self.push(&mut frame, start, end, kind, flags);
                    at = end;
                }
                first => {
                    let (length, kind) = match first {
                        b'n' if has(bytes, at, b"null") => (4, Kind::Null),
                        b't' if has(bytes, at, b"true") => (4, Kind::True),
                        b'f' if has(bytes, at, b"false") => (5, Kind::False),
                        b'N' if has(bytes, at, b"NaN") => (3, Kind::NonFinite),
                        b'I' if has(bytes, at, b"Infinity") => (8, Kind::NonFinite),
                        _ => return Err(Fault::Bad { at }),
                    };
                    at += length;
                    self.words += usize::from(kind == Kind::NonFinite);
                    self.push(&mut frame, start, at, kind, if kind == Kind::NonFinite { RAW } else { 0 });
                }
            }
            loop {
                at = skip_white(bytes, at, &mut frame.flags);
                if self.frames.is_empty() {
                    return if at == bytes.len() { Ok(()) } else { Err(Fault::Bad { at }) };
                }
                let found = byte(bytes, at);
                if found == b',' {
                    at = skip_white(bytes, at + 1, &mut frame.flags);
                    if frame.object {
                        at = self.read_key(bytes, at, &mut frame)?;
                    }
                    break;
                }
                if found != (if frame.object { b'}' } else { b']' }) {
                    return Err(Fault::Bad { at });
                }
                at += 1;
                self.close(text, at, &mut frame);
            }
        }
    }

    #[inline(always)]
    fn push(&mut self, frame: &mut Frame, start: usize, end: usize, kind: Kind, flags: u8) {
        frame.flags |= flags;
        let next = self.nodes.len() as u32 + 1;
        self.nodes.push(Node { start: start as u32, end: end as u32, next, kind, flags });
    }

    /// Reads `"key" :` and gives the offset of the value.
    #[inline(always)]
    fn read_key(&mut self, bytes: &[u8], at: usize, frame: &mut Frame) -> Result<usize, Fault> {
        if byte(bytes, at) != b'"' {
            return Err(Fault::Bad { at });
        }
        let start = at + 1;
        let (end, flags) = string_end(bytes, start).ok_or(Fault::Bad { at })?;
        let bit = 1 << key_hash(bytes, start, end);
        if flags != 0 {
            frame.unsettled = true;
        } else if frame.seen & bit != 0 && !frame.unsettled {
            frame.unsettled = self.may_repeat(&bytes[start..end], bytes, frame);
        }
        frame.seen |= bit;
        frame.members += 1;
        self.push(frame, start, end, Kind::Key, flags);
        let at = skip_white(bytes, end + 1, &mut frame.flags);
        if byte(bytes, at) != b':' {
            return Err(Fault::Bad { at });
        }
        Ok(skip_white(bytes, at + 1, &mut frame.flags))
    }

    #[cold]
    fn may_repeat(&self, name: &[u8], bytes: &[u8], frame: &Frame) -> bool {
        if frame.members > FEW {
            return true;
        }
        let mut at = frame.node as usize + 1;
        while at < self.nodes.len() {
            let key = self.nodes[at];
            if &bytes[key.start as usize..key.end as usize] == name {
                return true;
            }
            at = self.nodes[at + 1].next as usize;
        }
        false
    }

    #[inline(always)]
    fn close(&mut self, text: &str, end: usize, frame: &mut Frame) {
        if frame.unsettled {
            self.settle(text, frame);
        }
        let next = self.nodes.len() as u32;
        let node = &mut self.nodes[frame.node as usize];
        node.end = end as u32;
        node.next = next;
        node.flags = frame.flags;
        let flags = frame.flags;
        *frame = self.frames.pop().unwrap_or_default();
        frame.flags |= flags;
    }

    /// Redirects the first of equal keys to the last value and marks the others.
    #[cold]
    fn settle(&mut self, text: &str, frame: &mut Frame) {
        let mut hashes = std::mem::take(&mut self.hashes);
        hashes.clear();
        let mut at = frame.node as usize + 1;
        while at < self.nodes.len() {
            hashes.push((self.state.hash_one(self.key(text, at)), at as u32));
            at = self.nodes[at + 1].next as usize;
        }
        hashes.sort_unstable();
        for run in hashes.chunk_by(|one, other| one.0 == other.0) {
            for (nth, &(_, later)) in run.iter().enumerate().skip(1) {
                let later = later as usize;
                let name = self.key(text, later);
                let first = run[..nth].iter().map(|&(_, key)| key as usize).find(|&key| self.key(text, key) == name);
                if let Some(first) = first {
                    self.nodes[first].next = later as u32 + 1;
                    self.nodes[later].flags |= DEAD;
                    frame.flags |= RAW;
                }
            }
        }
        self.hashes = hashes;
    }
}

impl Node {
    /// The part of `text` that the node spans; of a string or key without its quotes.
    #[must_use]
    #[inline]
    pub fn slice(self, text: &str) -> &str {
        &text[self.start as usize..self.end as usize]
    }

    /// The value of a string or key; half a surrogate pair reads as U+FFFD.
    #[must_use]
    #[inline]
    pub fn string(self, text: &str) -> Cow<'_, str> {
        let raw = self.slice(text);
        if self.flags & ESCAPED == 0 {
            return Cow::Borrowed(raw);
        }
        let mut value = String::with_capacity(raw.len());
        unescape(raw, |piece| match piece {
            Piece::Run(run) => value.push_str(run),
            Piece::Char(char) => value.push(char),
            Piece::Half(_) => value.push('\u{fffd}'),
        });
        Cow::Owned(value)
    }

    /// The nearest double of a number or non-finite word; NaN of anything else.
    #[must_use]
    pub fn number(self, text: &str) -> f64 {
        match (self.kind, self.slice(text)) {
            (Kind::NonFinite, "Infinity") => f64::INFINITY,
            (Kind::NonFinite, "-Infinity") => f64::NEG_INFINITY,
            (Kind::Int | Kind::Float, digits) => digits.parse().unwrap_or(f64::NAN),
            _ => f64::NAN,
        }
    }

    /// Whether it is a number equal to zero; `1e-400` is.
    #[must_use]
    pub fn is_zero(self, text: &str) -> bool {
        self.number(text) == 0.0
    }
}

/// What [`Tape::walk`] meets, with the node's index.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    Leaf(usize),
    Open(usize),
    Key(usize),
    Close(usize),
}

/// An open container.
#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    /// One bit for each hash of a key.
    seen: u64,
    node: u32,
    members: u32,
    object: bool,
    unsettled: bool,
    flags: u8,
}
