//! A line of JSON with a body in it → the body.
use crate::json::{Kind, Tape, byte, string_end};
use crate::limits::Limits;
use crate::repeat::Repeats;
use std::borrow::Cow;
use std::ops::Range;

/// Why a record holds no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoText {
    /// It is not JSON, or nested too deep.
    NotJson,
    /// The path leads to nothing.
    NoMember,
    /// What is there is neither a string nor an array of strings.
    NotText,
}

/// Reads records, one at a time; what it keeps is room for the next one.
#[derive(Debug, Default)]
pub struct Reader {
    tape: Tape,
    repeats: Repeats,
}

impl Reader {
    /// A reader that has read nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The text to which `path` leads in a line of JSON: names, and numbers in arrays. An array of texts is joined.
    /// Ill-formed UTF-8 and half surrogate pairs read as U+FFFD; the whole line is checked.
    ///
    /// ```
    /// use deltafold_core::record::{NoText, Reader};
    /// let path = ["a".to_owned(), "1".to_owned()];
    /// let mut reader = Reader::new();
    /// assert_eq!(reader.text_at(br#"{"a":["x","y\n"]}"#, &path).as_deref(), Ok(&b"y\n"[..]));
    /// assert_eq!(reader.text_at(br#"{"a":["x"]}"#, &path), Err(NoText::NoMember));
    /// assert_eq!(reader.text_at(br#"{"a":["x",7]}"#, &path), Err(NoText::NotText));
    /// assert_eq!(reader.text_at(br#"{"a":["x","y"]"#, &path), Err(NoText::NotJson));
    /// ```
    pub fn text_at(&mut self, line: &[u8], path: &[String]) -> Result<Cow<'_, [u8]>, NoText> {
        let line = simdutf8::basic::from_utf8(line).map_or_else(|_| String::from_utf8_lossy(line), Cow::Borrowed);
        let line: &str = &line;
        let (tape, repeats) = (&mut self.tape, &mut self.repeats);
        // The body is nearly all of the line: it is unescaped while it is checked. Strings that only look like it are too,
        // and of those the tape decides.
        let mut taken: Option<(usize, Range<usize>)> = None;
        tape.parse_with(line, Limits::default().max_depth, |bytes, at| {
            if !is_named(bytes, at - 1, path.last()) {
                return string_end(bytes, at);
            }
            let (end, flags, text) = repeats.unescape(bytes, at)?;
            taken = Some((at, text));
            Some((end, flags))
        })
        .map_err(|_| NoText::NotJson)?;
        let mut at = 0;
        for name in path {
            at = match tape.node(at).kind {
                Kind::Object => {
                    tape.members(at).find(|(key, _)| tape.key(line, *key) == name.as_str()).map(|(_, value)| value)
                }
                Kind::Array if name.len() < 20 && name.bytes().all(|byte| byte.is_ascii_digit()) => {
                    name.parse().ok().and_then(|number| tape.items(at).nth(number))
                }
                _ => None,
            }
            .ok_or(NoText::NoMember)?;
        }
        match tape.node(at).kind {
            Kind::String => Ok(match taken {
                Some((start, text)) if start == tape.node(at).start as usize => Cow::Borrowed(repeats.text(text)),
                _ => Cow::Owned(tape.string(line, at).into_owned().into_bytes()),
            }),
            Kind::Array if tape.items(at).all(|item| tape.node(item).kind == Kind::String) => {
                Ok(Cow::Owned(tape.items(at).map(|item| tape.string(line, item)).collect::<String>().into_bytes()))
            }
            _ => Err(NoText::NotText),
        }
    }
}

/// Whether the value whose quote is at `quote` has this name, as far as the bytes before it tell; without a name, whether it
/// is the outermost.
fn is_named(bytes: &[u8], quote: usize, name: Option<&String>) -> bool {
    let before = bytes[..quote].trim_ascii_end();
    let Some(name) = name else { return before.is_empty() };
    let Some(key) = before.strip_suffix(b":") else { return false };
    let key = key.trim_ascii_end();
    let key = key.strip_suffix(b"\"").and_then(|key| key.strip_suffix(name.as_bytes()));
    key.is_some_and(|rest| byte(rest, rest.len().wrapping_sub(1)) == b'"')
}
