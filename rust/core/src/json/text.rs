//! Raw text of valid JSON: escapes undone, white space left out.
use super::scan::find_stop;

/// A part of a string's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Text without escapes; never empty.
    Run(&'a str),
    /// What one escape, or two that make a surrogate pair, stand for.
    Char(char),
    /// A surrogate half (0xD800–0xDFFF) without its other half.
    Half(u16),
}

/// Gives the value of a string, piece by piece, from the raw text between its quotes.
///
/// ```
/// use deltafold_core::json::{Piece, unescape};
/// let mut pieces = Vec::new();
/// unescape(r"a\n\ud83d\ude00\ud83d", |piece| pieces.push(piece));
/// assert_eq!(pieces, [Piece::Run("a"), Piece::Char('\n'), Piece::Char('😀'), Piece::Half(0xd83d)]);
/// ```
pub fn unescape<'a>(raw: &'a str, mut on: impl FnMut(Piece<'a>)) {
    let bytes = raw.as_bytes();
    let mut start = 0;
    while let Some(length) = memchr::memchr(b'\\', &bytes[start..]) {
        let slash = start + length;
        if length > 0 {
            on(Piece::Run(&raw[start..slash]));
        }
        let (piece, length) = escape(bytes, slash);
        on(piece);
        start = slash + length;
    }
    if start < raw.len() {
        on(Piece::Run(&raw[start..]));
    }
}

/// The escape whose backslash is at `at`, and its length. What is no escape reads as U+FFFD.
pub(crate) fn escape(bytes: &[u8], at: usize) -> (Piece<'static>, usize) {
    let char = match bytes.get(at + 1) {
        Some(b'n') => '\n',
        Some(b'"') => '"',
        Some(b'\\') => '\\',
        Some(b'/') => '/',
        Some(b't') => '\t',
        Some(b'r') => '\r',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'u') => match hex4(bytes, at + 2) {
            Some(unit) => return unicode_escape(bytes, at, unit),
            None => return (Piece::Char('\u{fffd}'), 1),
        },
        _ => return (Piece::Char('\u{fffd}'), 1),
    };
    (Piece::Char(char), 2)
}

fn unicode_escape(bytes: &[u8], at: usize, unit: u16) -> (Piece<'static>, usize) {
    if let Some(char) = char::from_u32(unit.into()) {
        return (Piece::Char(char), 6);
    }
    let low = if unit < 0xdc00 { low_half(bytes, at + 6) } else { None };
    match low.and_then(|low| char::decode_utf16([unit, low]).next()) {
        Some(Ok(char)) => (Piece::Char(char), 12),
        _ => (Piece::Half(unit), 6),
    }
}

/// The low surrogate that is escaped at `at`.
pub(super) fn low_half(bytes: &[u8], at: usize) -> Option<u16> {
    let unit = if bytes.get(at..at + 2)? == b"\\u" {
        hex4(bytes, at + 2)?
    } else {
        return None;
    };
    (0xdc00..=0xdfff).contains(&unit).then_some(unit)
}

/// The four hexadecimal digits at `at`.
pub(super) fn hex4(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 4)?.iter().try_fold(0, |unit, &byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => return None,
        };
        Some(unit << 4 | u16::from(digit))
    })
}

/// Appends a JSON text without the white space outside its strings; every other byte stays as it is.
///
/// ```
/// let mut out = String::new();
/// deltafold_core::json::compact(r#"{ "a b": [1.50, 2] }"#, &mut out);
/// assert_eq!(out, r#"{"a b":[1.50,2]}"#);
/// ```
pub fn compact(raw: &str, out: &mut String) {
    runs(raw, |run| out.push_str(run));
}

/// The length in bytes of what [`compact`] appends.
#[must_use]
pub fn compact_len(raw: &str) -> usize {
    let mut length = 0;
    runs(raw, |run| length += run.len());
    length
}

fn runs<'a>(raw: &'a str, mut on: impl FnMut(&'a str)) {
    let bytes = raw.as_bytes();
    let (mut start, mut at) = (0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = behind_string(bytes, at + 1),
            b' ' | b'\t' | b'\n' | b'\r' => {
                on(&raw[start..at]);
                at += 1;
                start = at;
            }
            _ => at += 1,
        }
    }
    on(&raw[start..]);
}

fn behind_string(bytes: &[u8], mut at: usize) -> usize {
    loop {
        at = find_stop(bytes, at);
        match bytes.get(at) {
            Some(b'"') => return at + 1,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
            None => return bytes.len(),
        }
    }
}
