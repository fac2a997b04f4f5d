//! The value of a JSON string that holds a recorded stream, much faster than by undoing one escape after another.
//!
//! In such a string every sixth byte is an escape (`\"id\":\"…`), and undoing these costs as much as merging the stream. But
//! its events repeat, and equal bytes have equal values. So the string is taken in *units*, up to an empty line each. A unit
//! that had to be unescaped is compared with the one before it, and what was equal becomes the literals of a [`Form`], what
//! was not its holes. For a unit that fits the form the literals are compared, which checks them too, and their values
//! copied from where they were unescaped before; only the holes are looked at byte by byte.
//!
//! A hole begins behind an escaped quote and ends before an escaped quote or line feed. A quote within a string is always
//! the second byte of an escape, so that neither end can fall within one, nor between the halves of a surrogate pair. Whatever
//! a hole holds, a form is only a guess about where the equal bytes are: each byte was compared, or unescaped.
use crate::json::{ESCAPED, Piece, byte, escape, find_stop, stops, word};
use std::ops::Range;

/// Forms that are kept; the last used is tried first.
const FORMS: usize = 2;
/// Literals of a form.
const PARTS: usize = 10;
/// Bytes of a unit that is learned.
const LONGEST: usize = 16 * 1024;
/// Units in a row that fitted nothing after which only every eighth is looked at.
const PATIENCE: u32 = 4;
/// Bytes before the value, for a look back, and behind it, for what is written eight bytes at a time.
const MARGIN: usize = 16;

/// Room for a value, reused; the forms are those of one string.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    out: Vec<u8>,
    forms: [Form; FORMS],
    misses: u32,
    /// Behind each quote and line feed of the last unit, in as much of it as may be learned.
    marks: Vec<Place>,
}

/// Literals with a hole between any two.
#[derive(Clone, Copy, Debug, Default)]
struct Form {
    parts: [Part; PARTS],
    length: usize,
}

/// Where a literal came first, and where its value is.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    raw: usize,
    raw_length: usize,
    value: usize,
    value_length: usize,
}

/// How far the string has been read, and its value written.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: usize,
    to: usize,
}

impl Repeats {
    /// Unescapes the string whose text begins at `at`: the offset of its closing quote, its flags, and where
    /// [`Repeats::text`] finds the value, until the next string is read. None where it is no valid JSON string.
    pub fn unescape(&mut self, bytes: &[u8], at: usize) -> Option<(usize, u8, Range<usize>)> {
        let room = bytes.len() - at + 2 * MARGIN;
        if self.out.len() < room {
            self.out.resize(room, 0);
        }
        self.forms = [Form::default(); FORMS];
        self.misses = 0;
        let mut place = Place { at, to: MARGIN };
        let mut before = at..at;
        loop {
            if let Some(next) = self.known(bytes, place) {
                place = next;
                continue;
            }
            let unit = place;
            self.misses += 1;
            let looked_at = self.misses <= PATIENCE || self.misses.is_multiple_of(8);
            let out = &mut self.out;
            let more = if looked_at {
                self.marks.clear();
                unescape_unit(bytes, &mut place, out, |place| {
                    if place.at - unit.at <= LONGEST {
                        self.marks.push(place);
                    }
                })?
            } else {
                unescape_unit(bytes, &mut place, out, |_| ())?
            };
            if !more {
                return Some((place.at, ESCAPED, MARGIN..place.to));
            }
            if looked_at && let Some(form) = learn(bytes, before, unit, place, &self.marks) {
                self.forms.rotate_right(1);
                self.forms[0] = form;
            }
            before = unit.at..place.at;
        }
    }

    /// The value that was unescaped last.
    pub fn text(&self, place: Range<usize>) -> &[u8] {
        &self.out[place]
    }

    #[inline]
    fn known(&mut self, bytes: &[u8], place: Place) -> Option<Place> {
        for nth in 0..FORMS {
            if let Some(next) = self.forms[nth].take(bytes, place, &mut self.out) {
                self.forms[..=nth].rotate_right(1);
                self.misses = 0;
                return Some(next);
            }
        }
        None
    }
}

impl Form {
    #[inline]
    fn take(&self, bytes: &[u8], mut place: Place, out: &mut [u8]) -> Option<Place> {
        let (last, parts) = self.parts[..self.length].split_last()?;
        for part in parts {
            place = part.take(bytes, place, out)?;
            place = take_hole(bytes, place, out)?;
        }
        last.take(bytes, place, out)
    }
}

impl Part {
    #[inline]
    fn take(self, bytes: &[u8], place: Place, out: &mut [u8]) -> Option<Place> {
        let end = place.at + self.raw_length;
        if bytes.get(place.at..end)? != &bytes[self.raw..self.raw + self.raw_length] {
            return None;
        }
        out.copy_within(self.value..self.value + self.value_length, place.to);
        Some(Place { at: end, to: place.to + self.value_length })
    }
}

/// Unescapes up to the next escaped quote or line feed.
#[inline]
fn take_hole(bytes: &[u8], mut place: Place, out: &mut [u8]) -> Option<Place> {
    loop {
        copy_run(bytes, &mut place, out);
        match (byte(bytes, place.at), byte(bytes, place.at + 1)) {
            (b'\\', b'"' | b'n') => return Some(place),
            (b'\\', escaped) => {
                unescape_one(bytes, &mut place, out)?;
                // In the text that is in the string a backslash escapes the next character.
                if escaped == b'\\' && byte(bytes, place.at) == b'\\' {
                    unescape_one(bytes, &mut place, out)?;
                }
            }
            _ => return None,
        }
    }
}

/// Unescapes up to the end of the next empty line, or to the end of the string, which is no more to come. Tells each place
/// behind a quote or line feed.
#[inline(always)]
fn unescape_unit(bytes: &[u8], place: &mut Place, out: &mut [u8], mut mark: impl FnMut(Place)) -> Option<bool> {
    loop {
        copy_run(bytes, place, out);
        match byte(bytes, place.at) {
            b'"' => return Some(false),
            b'\\' => {
                let escaped = byte(bytes, place.at + 1);
                unescape_one(bytes, place, out)?;
                if matches!(escaped, b'"' | b'n') {
                    mark(*place);
                    if escaped == b'n' && matches!(out[..place.to - 1], [.., b'\n'] | [.., b'\n', b'\r']) {
                        return Some(true);
                    }
                }
            }
            _ => return None,
        }
    }
}

/// Copies what needs no unescaping.
#[inline(always)]
fn copy_run(bytes: &[u8], place: &mut Place, out: &mut [u8]) {
    while let (Some(word), Some(room)) = (word(bytes, place.at), out.get_mut(place.to..place.to + 8)) {
        room.copy_from_slice(&word.to_le_bytes());
        let stops = stops(word);
        if stops != 0 {
            let length = (stops.trailing_zeros() / 8) as usize;
            place.at += length;
            place.to += length;
            return;
        }
        place.at += 8;
        place.to += 8;
    }
    let end = find_stop(bytes, place.at);
    out[place.to..place.to + end - place.at].copy_from_slice(&bytes[place.at..end]);
    place.to += end - place.at;
    place.at = end;
}

/// Unescapes the escape at the place.
#[inline(always)]
fn unescape_one(bytes: &[u8], place: &mut Place, out: &mut [u8]) -> Option<()> {
    out[place.to] = match byte(bytes, place.at + 1) {
        b'n' => b'\n',
        byte @ (b'"' | b'\\' | b'/') => byte,
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 8,
        b'f' => 12,
        b'u' => return unescape_unicode(bytes, place, out),
        _ => return None,
    };
    place.at += 2;
    place.to += 1;
    Some(())
}

fn unescape_unicode(bytes: &[u8], place: &mut Place, out: &mut [u8]) -> Option<()> {
    let char = match escape(bytes, place.at) {
        (_, 1) => return None,
        (Piece::Char(char), length) => {
            place.at += length;
            char
        }
        (_, length) => {
            place.at += length;
            char::REPLACEMENT_CHARACTER
        }
    };
    place.to += char.encode_utf8(&mut out[place.to..]).len();
    Some(())
}

/// The form of the unit from `unit` to `end`, which was just unescaped, by what is equal in the one `before`. The places behind
/// its quotes and line feeds are the `marks`.
#[cold]
fn learn(bytes: &[u8], before: Range<usize>, unit: Place, end: Place, marks: &[Place]) -> Option<Form> {
    let (mut one, mut other) = (&bytes[before], &bytes[unit.at..end.at]);
    if one.len().max(other.len()) > LONGEST {
        return None;
    }
    let mut nth = 0;
    let mut mark_at = |at: usize| {
        nth += marks[nth..].iter().position(|mark| mark.at >= at)?;
        Some(marks[nth]).filter(|mark| mark.at == at)
    };
    let mut form = Form::default();
    let mut from = unit;
    loop {
        let same = same_length(one, other);
        let last = same == one.len() && same == other.len();
        let literal = if last { same } else { 1 + memchr::memrchr(b'"', &other[..same])? };
        let behind = mark_at(from.at + literal)?;
        *form.parts.get_mut(form.length)? =
            Part { raw: from.at, raw_length: literal, value: from.to, value_length: behind.to - from.to };
        form.length += 1;
        if last {
            return Some(form);
        }
        let hole = hole_length(&other[literal..])?;
        one = &one[literal + hole_length(&one[literal..])?..];
        other = &other[literal + hole..];
        // The escape behind the hole has two bytes, and its value one.
        let at = behind.at + hole;
        let behind = mark_at(at + 2)?;
        from = Place { at, to: behind.to - 1 };
    }
}

/// The length of what both begin with.
fn same_length(one: &[u8], other: &[u8]) -> usize {
    let mut at = 0;
    while let (Some(left), Some(right)) = (word(one, at), word(other, at)) {
        if left != right {
            return at + ((left ^ right).trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    at + one[at..].iter().zip(&other[at..]).take_while(|(left, right)| left == right).count()
}

/// The length of the hole that the rest of a unit begins with, as [`take_hole`] reads it.
fn hole_length(rest: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at = find_stop(rest, at);
        match (byte(rest, at), byte(rest, at + 1)) {
            (b'\\', b'"' | b'n') => return Some(at),
            (b'\\', b'\\') if byte(rest, at + 2) == b'\\' => at += 4,
            (b'\\', _) => at += 2,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_differ_in_two_places_are_known_by_the_third() {
        let mut text = String::new();
        for at in 0..20 {
            text += &format!(r#"data: {{\"created\":{},\"text\":\"t{}\"}}\n\n"#, 1000 + at * 500, "x".repeat(at));
        }
        text.push('"');
        let mut repeats = Repeats::default();
        let (end, _, value) = repeats.unescape(text.as_bytes(), 0).unwrap();
        assert_eq!(end, text.len() - 1);
        assert_eq!(
            repeats.text(value),
            text.trim_end_matches('"').replace("\\n", "\n").replace("\\\"", "\"").as_bytes()
        );
        assert_eq!(repeats.forms[0].length, 3);
        assert_eq!(repeats.misses, 1, "the end of the string is all that fitted nothing");
    }

    #[test]
    fn of_a_unit_too_long_to_learn_little_is_kept() {
        let text = format!("{}\"", r#"\""#.repeat(LONGEST));
        let mut repeats = Repeats::default();
        let (_, _, value) = repeats.unescape(text.as_bytes(), 0).unwrap();
        assert_eq!(repeats.text(value), "\"".repeat(LONGEST).as_bytes());
        assert_eq!(repeats.marks.len(), LONGEST / 2);
    }
}
