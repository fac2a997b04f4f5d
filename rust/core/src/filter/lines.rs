//! A frame's `data` lines, and edits of their joined values as edits of the frame.
use super::edits::{Edit, New};
use memchr::memchr2;
use std::borrow::Cow;

/// Where a `data` line of a frame is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub start: usize,
    pub value: usize,
    pub value_end: usize,
    /// Of its line end.
    pub end: usize,
}

/// Finds the `data` lines of a frame; whether it is an `error` event.
pub(super) fn data_lines(text: &str, lines: &mut Vec<Line>) -> bool {
    lines.clear();
    let bytes = text.as_bytes();
    let (mut at, mut is_error) = (0, false);
    while at < bytes.len() {
        let (end, _) = line_end(bytes, at);
        let line = text[at..end].trim_end_matches(['\r', '\n']);
        let value_end = at + line.len();
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => lines.push(Line { start: at, value: value_end - value.len(), value_end, end }),
            "event" => is_error = value == "error",
            _ => {}
        }
        at = end;
    }
    is_error
}

/// The values of `data` lines, joined by LF; of one line where they lie.
pub(super) fn joined<'a>(text: &'a str, lines: &[Line]) -> Cow<'a, str> {
    match lines {
        [line] => Cow::Borrowed(&text[line.value..line.value_end]),
        _ => lines.iter().map(|line| &text[line.value..line.value_end]).collect::<Vec<_>>().join("\n").into(),
    }
}

pub(super) fn joined_bytes<'a>(frame: &'a [u8], lines: &[Line]) -> Cow<'a, [u8]> {
    match lines {
        [line] => Cow::Borrowed(&frame[line.value..line.value_end]),
        _ => lines.iter().map(|line| &frame[line.value..line.value_end]).collect::<Vec<_>>().join(&b'\n').into(),
    }
}

/// Edits of the joined values of `lines` as edits of the frame, both in ascending order.
pub(super) fn on_lines(edits: &mut Vec<Edit>, lines: &[Line]) {
    if let [line] = lines {
        for edit in edits {
            (edit.start, edit.end) = (edit.start + line.value, edit.end + line.value);
        }
        return;
    }
    let mut found = Vec::with_capacity(edits.len());
    let (mut place, mut shift) = (0, 0); // the line, and where its value begins in the data
    for Edit { start, end, mut new } in edits.drain(..) {
        while start > shift + lines[place].value_end - lines[place].value {
            shift += lines[place].value_end - lines[place].value + 1;
            place += 1;
        }
        let mut base = shift;
        for line in &lines[place..] {
            if base >= end {
                break;
            }
            let (low, high) = (start.saturating_sub(base), (end - base).min(line.value_end - line.value));
            if low < high {
                let new = std::mem::replace(&mut new, New::Nothing);
                found.push(Edit { start: line.value + low, end: line.value + high, new });
            }
            base += line.value_end - line.value + 1;
        }
    }
    *edits = found;
}

/// The bytes as text of the same length: DEL, which JSON knows only in strings, for each byte that is not UTF-8.
pub(super) fn readable(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = simdutf8::basic::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    for part in bytes.utf8_chunks() {
        text.push_str(part.valid());
        text.extend(part.invalid().iter().map(|_| '\u{7f}'));
    }
    Cow::Owned(text)
}

/// The end of the line end that comes next, or of the piece; whether it is the former.
#[inline]
pub(super) fn line_end(piece: &[u8], at: usize) -> (usize, bool) {
    memchr2(b'\n', b'\r', &piece[at..]).map_or((piece.len(), false), |found| {
        let end = at + found + 1;
        (end + usize::from(piece[end - 1] == b'\r' && piece.get(end) == Some(&b'\n')), true)
    })
}
