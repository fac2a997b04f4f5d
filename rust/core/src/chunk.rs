//! Payload → chunks: what one event's data is before its meaning is asked.
//!
//! A [`Value`] is a place on the tape of a payload, borrowed from its text; nothing is converted before it is kept.
use crate::json::{
    ESCAPED, Fault, HALF, Kind, Node, Piece, SPACED, Step, Tape, compact, compact_len, unescape, write_canonical,
};
use std::borrow::Cow;

/// One JSON value of a payload.
#[derive(Clone, Copy)]
pub(crate) struct Value<'a> {
    pub tape: &'a Tape,
    pub text: &'a str,
    pub at: usize,
}

impl<'a> Value<'a> {
    #[inline]
    pub fn node(self) -> Node {
        self.tape.node(self.at)
    }

    #[inline]
    pub fn kind(self) -> Kind {
        self.node().kind
    }

    #[inline]
    pub fn is_null(self) -> bool {
        self.kind() == Kind::Null
    }

    #[inline]
    pub fn is_string(self) -> bool {
        self.kind() == Kind::String
    }

    #[inline]
    pub fn is_object(self) -> bool {
        self.kind() == Kind::Object
    }

    #[inline]
    pub fn is_array(self) -> bool {
        self.kind() == Kind::Array
    }

    pub fn is_number(self) -> bool {
        matches!(self.kind(), Kind::Int | Kind::Float | Kind::NonFinite)
    }

    /// A number other than zero.
    pub fn is_count(self) -> bool {
        self.is_number() && !self.node().is_zero(self.text)
    }

    /// An empty string, array or object.
    #[inline]
    pub fn is_empty(self) -> bool {
        let node = self.node();
        match node.kind {
            Kind::String => node.start == node.end,
            Kind::Array | Kind::Object => node.next as usize == self.at + 1,
            _ => false,
        }
    }

    /// Neither null nor empty.
    #[inline]
    pub fn says(self) -> bool {
        !self.is_null() && !self.is_empty()
    }

    /// True as Python sees it.
    pub fn is_truthy(self) -> bool {
        match self.kind() {
            Kind::Null | Kind::False => false,
            Kind::True => true,
            Kind::Int | Kind::Float | Kind::NonFinite => self.is_count(),
            _ => !self.is_empty(),
        }
    }

    /// The text of a string between its quotes, escapes included.
    #[inline]
    pub fn slice(self) -> &'a str {
        self.tape.slice(self.text, self.at)
    }

    /// A string's value, lone surrogate halves as U+FFFD; of anything else nothing.
    pub fn string(self) -> Cow<'a, str> {
        if self.is_string() { self.tape.string(self.text, self.at) } else { Cow::Borrowed("") }
    }

    #[inline]
    pub fn is_str(self, wanted: &str) -> bool {
        self.is_string() && (self.slice() == wanted || self.node().flags & ESCAPED != 0 && self.string() == wanted)
    }

    #[inline(always)]
    pub fn members(self) -> impl Iterator<Item = (Cow<'a, str>, Value<'a>)> {
        self.tape.members(self.at).map(move |(key, at)| (name(self.tape.node(key), self.text), Value { at, ..self }))
    }

    #[inline]
    pub fn items(self) -> impl Iterator<Item = Value<'a>> {
        self.tape.items(self.at).map(move |at| Value { at, ..self })
    }

    /// The member of that name.
    #[inline]
    pub fn get(self, name: &str) -> Option<Value<'a>> {
        let bytes = self.text.as_bytes();
        let same = |key: Node| {
            if key.flags & ESCAPED == 0 {
                bytes[key.start as usize..key.end as usize] == *name.as_bytes()
            } else {
                key.string(self.text) == name
            }
        };
        let (_, at) = self.tape.members(self.at).find(|&(key, _)| same(self.tape.node(key)))?;
        Some(Value { at, ..self })
    }

    /// An index of a choice, a tool call or a list's entry: an integer from 0 to 2^63-1, else none.
    #[inline]
    pub fn index(self) -> Option<u64> {
        if self.kind() != Kind::Int {
            return None;
        }
        match self.slice() {
            "-0" => Some(0),
            digits => digits.parse().ok().filter(|&index| index <= i64::MAX as u64),
        }
    }

    /// Bytes of the JSON text without the white space outside strings.
    #[inline]
    pub fn size(self) -> usize {
        let node = self.node();
        let length = (node.end - node.start) as usize;
        match node.kind {
            Kind::String => length + 2,
            Kind::Array | Kind::Object if node.flags & SPACED != 0 => compact_len(self.slice()),
            _ => length,
        }
    }

    /// Appends the JSON text without the white space outside strings, every other byte as it came.
    pub fn push_raw(self, out: &mut String) {
        let node = self.node();
        match node.kind {
            Kind::String => out.push_str(&self.text[node.start as usize - 1..node.end as usize + 1]),
            Kind::Array | Kind::Object if node.flags & SPACED != 0 => compact(self.slice(), out),
            _ => out.push_str(self.slice()),
        }
    }

    /// Whether the JSON text without white space is `raw`.
    pub fn is_raw(self, raw: &str) -> bool {
        let node = self.node();
        match node.kind {
            Kind::String => self.text[node.start as usize - 1..node.end as usize + 1] == *raw,
            Kind::Array | Kind::Object if node.flags & SPACED != 0 => self.raw() == raw,
            _ => self.slice() == raw,
        }
    }

    pub fn raw(self) -> String {
        let mut out = String::with_capacity(self.size());
        self.push_raw(&mut out);
        out
    }

    /// Canonical JSON text, for messages.
    pub fn canonical(self) -> String {
        let mut out = String::new();
        write_canonical(self.tape, self.text, self.at, &mut out);
        out
    }

    /// Lone surrogate halves in the strings of the value; those in names do not count.
    pub fn halves(self) -> usize {
        if self.node().flags & HALF == 0 {
            return 0;
        }
        let mut halves = 0;
        self.tape.walk(self.at, |step| {
            if let Step::Leaf(at) = step
                && self.tape.node(at).kind == Kind::String
            {
                halves += lone_halves(self.tape.slice(self.text, at));
            }
            true
        });
        halves
    }
}

/// What a key spells.
#[inline(always)]
fn name(key: Node, text: &str) -> Cow<'_, str> {
    if key.flags & ESCAPED == 0 { Cow::Borrowed(&text[key.start as usize..key.end as usize]) } else { key.string(text) }
}

/// Surrogate halves without their other half in a raw string.
pub(crate) fn lone_halves(raw: &str) -> usize {
    let mut halves = 0;
    unescape(raw, |piece| halves += usize::from(matches!(piece, Piece::Half(_))));
    halves
}

/// What one text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// `[DONE]`.
    Done,
    /// Nothing that counts: `null` or `{}`.
    Skipped,
    /// Nothing at all, or a comment.
    Blank,
    /// A JSON object, or a non-empty array of objects, now on the tape.
    Chunks,
    /// JSON, but no object; now on the tape.
    Scalar,
    /// No JSON.
    Bad,
    /// Deeper than allowed.
    TooDeep,
}

impl Reading {
    /// `[DONE]` or whole JSON.
    pub fn is_whole(self) -> bool {
        matches!(self, Reading::Done | Reading::Skipped | Reading::Chunks | Reading::Scalar)
    }
}

pub(crate) const WHITE: [char; 5] = ['\t', '\n', '\u{c}', '\r', ' '];

/// `text` without white space around and without repeated `data:` prefixes; whether there was one.
#[inline]
pub(crate) fn trim(text: &str) -> (&str, bool) {
    let bytes = text.as_bytes();
    if bytes.first() == Some(&b'{') && bytes.last() == Some(&b'}') {
        return (text, false);
    }
    let mut text = text.trim_matches(WHITE);
    let mut prefixed = false;
    while let Some(rest) = text.strip_prefix("data:") {
        text = rest.trim_matches(WHITE);
        prefixed = true;
    }
    (text, prefixed)
}

/// One trimmed payload, or one line of one.
#[inline]
pub(crate) fn read(text: &str, max_depth: usize, tape: &mut Tape) -> Reading {
    if text.len() <= 6 {
        match text {
            "[DONE]" => return Reading::Done,
            "null" | "{}" => return Reading::Skipped,
            "" => return Reading::Blank,
            _ => {}
        }
    }
    if text.as_bytes()[0] == b':' {
        return Reading::Blank;
    }
    match tape.parse(text, max_depth) {
        Err(Fault::TooDeep { .. }) => Reading::TooDeep,
        Err(Fault::Bad { .. }) => Reading::Bad,
        Ok(()) => {
            let root = Value { tape, text, at: 0 };
            let objects = root.is_object() || root.is_array() && !root.is_empty() && root.items().all(Value::is_object);
            if objects { Reading::Chunks } else { Reading::Scalar }
        }
    }
}

/// The lines of a payload that hold something.
pub(crate) fn lines(data: &str) -> impl DoubleEndedIterator<Item = &str> {
    data.split('\n').filter(|line| !line.trim_matches(WHITE).is_empty())
}

/// How an event's data is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// As one text, now on the tape.
    One(Reading),
    /// Line by line: a server forgot blank lines.
    Lines,
    /// Not JSON, but its last line is an object with an error: a proxy broke off.
    LastLineError,
    /// Not JSON.
    Bad,
}

/// Looks at the data of one event; the second fact is whether a repeated `data:` prefix was removed.
pub(crate) fn payload(data: &str, max_depth: usize, tape: &mut Tape) -> (Payload, bool) {
    let (text, mut prefixed) = trim(data);
    let reading = read(text, max_depth, tape);
    // Of a comment the lines behind may be more than one.
    let comment = reading == Reading::Blank && !text.is_empty() && text.contains('\n');
    if reading != Reading::Bad && !comment {
        return (Payload::One(reading), prefixed);
    }
    let otherwise = if comment { Payload::One(reading) } else { Payload::Bad };
    let (mut count, mut all, mut none) = (0, true, true);
    let mut line_prefixed = false;
    if data.contains('\n') {
        for line in lines(data) {
            let (text, prefix) = trim(line);
            line_prefixed |= prefix;
            count += 1;
            let line = read(text, max_depth, tape);
            all &= line != Reading::Bad;
            none &= matches!(line, Reading::Skipped | Reading::Blank);
        }
    }
    if count < 2 || comment && all && none {
        return (otherwise, prefixed);
    }
    if all {
        prefixed |= line_prefixed;
        return (Payload::Lines, prefixed);
    }
    let last = lines(data).next_back().map_or("", |line| trim(line).0);
    let is_error = read(last, max_depth, tape) == Reading::Chunks && {
        let root = Value { tape, text: last, at: 0 };
        root.get("error").is_some_and(Value::is_truthy)
    };
    (if is_error { Payload::LastLineError } else { otherwise }, prefixed)
}
