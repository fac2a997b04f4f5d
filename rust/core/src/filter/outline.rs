//! One chunk's members without a tape: where its names and values are, and which of its tokens may become holes.
//!
//! It reads the same language as [`Tape::parse`](crate::json::Tape::parse), with the same functions for strings and
//! numbers, but remembers nothing of what is deeper: for most changes the outermost members are enough.
use crate::json::scan::{byte, has, number_end, skip_white, string_end};
use std::ops::Range;

/// Levels that are told apart; no more than `Limits` allows. What is deeper is left to the tape.
const LEVELS: usize = 128;
/// Tokens of one chunk that may become holes; those behind them do not.
pub(super) const HOLES: usize = 24;
/// Members inside of `choices` that are mostly the same in every chunk.
const STEADY: [&[u8]; 5] = [b"role", b"type", b"format", b"id", b"name"];

/// The outermost members of one object.
#[derive(Debug, Default)]
pub(super) struct Outline {
    /// As they stand there, those given again too.
    pub members: Vec<Member>,
    /// What may differ in the next chunk without a change to its edits.
    pub holes: Vec<Hole>,
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    /// Between the quotes.
    pub name: Range<usize>,
    pub escaped: bool,
    pub value: Range<usize>,
}

/// A token inside of a chunk: a string without its quotes, or a number.
#[derive(Clone, Debug)]
pub(super) struct Hole {
    pub span: Range<usize>,
    pub number: bool,
    /// It seldom differs.
    pub steady: bool,
}

/// Where holes are in an outermost member's value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holes {
    Nowhere,
    /// The value itself, and it seldom differs.
    Head,
    /// The value itself.
    Padding,
    /// At any depth; a number or a name there seldom differs.
    Choices,
    /// At any depth.
    Usage,
}

impl Holes {
    fn of(name: &[u8]) -> Self {
        match name {
            b"choices" => Self::Choices,
            b"usage" => Self::Usage,
            b"obfuscation" | b"p" => Self::Padding,
            // what these hold decides whether a chunk brings nothing but usage
            b"error" | b"object" => Self::Nowhere,
            _ => Self::Head,
        }
    }

    fn reach(self, depth: usize) -> bool {
        match self {
            Self::Nowhere => false,
            Self::Head | Self::Padding => depth == 1,
            Self::Choices | Self::Usage => true,
        }
    }
}

impl Member {
    /// From the name's quote on.
    pub fn span(&self) -> Range<usize> {
        self.name.start - 1..self.value.end
    }
}

impl Outline {
    /// Reads the object that `bytes` hold from `at` to their end; false where they hold anything else.
    pub fn read(&mut self, bytes: &[u8], at: usize, max_depth: usize) -> bool {
        self.members.clear();
        self.holes.clear();
        byte(bytes, at) == b'{' && self.read_members(bytes, at, max_depth.min(LEVELS)).is_some()
    }

    fn read_members(&mut self, bytes: &[u8], start: usize, max_depth: usize) -> Option<()> {
        let mut white = 0;
        // One bit a level, the innermost lowest: whether it is an object.
        let (mut objects, mut depth) = (0u128, 0);
        let mut at = start;
        let (mut name, mut holes) = (0..0, Holes::Nowhere);
        loop {
            let value = at;
            match byte(bytes, at) {
                b'"' => {
                    at = string_end(bytes, at + 1)?.0;
                    if holes.reach(depth) && self.holes.len() <= HOLES {
                        let steady = holes == Holes::Head
                            || holes == Holes::Choices && objects & 1 == 1 && STEADY.contains(&&bytes[name.clone()]);
                        self.holes.push(Hole { span: value + 1..at, number: false, steady });
                    }
                    at += 1;
                }
                opening @ (b'{' | b'[') => {
                    if depth == max_depth {
                        return None;
                    }
                    depth += 1;
                    objects = objects << 1 | u128::from(opening == b'{');
                    at = skip_white(bytes, at + 1, &mut white);
                    if byte(bytes, at) != opening + 2 {
                        if opening == b'{' {
                            (name, at) = self.read_name(bytes, at, depth == 1, &mut holes)?;
                        }
                        continue;
                    }
                    at += 1;
                    objects >>= 1;
                    depth -= 1;
                }
                b'0'..=b'9' | b'-' => {
                    at = number_end(bytes, at).ok()?.0;
                    if holes.reach(depth) && self.holes.len() <= HOLES {
                        self.holes.push(Hole { span: value..at, number: true, steady: holes != Holes::Usage });
                    }
                }
                b'n' if has(bytes, at, b"null") => at += 4,
                b't' if has(bytes, at, b"true") => at += 4,
                b'f' if has(bytes, at, b"false") => at += 5,
                b'N' if has(bytes, at, b"NaN") => at += 3,
                b'I' if has(bytes, at, b"Infinity") => at += 8,
                _ => return None,
            }
            loop {
                if depth <= 1 {
                    if depth == 0 {
                        return (at == bytes.len()).then_some(());
                    }
                    if let Some(member) = self.members.last_mut() {
                        member.value.end = at;
                    }
                }
                at = skip_white(bytes, at, &mut white);
                let found = byte(bytes, at);
                if found == b',' {
                    at = skip_white(bytes, at + 1, &mut white);
                    if objects & 1 == 1 {
                        (name, at) = self.read_name(bytes, at, depth == 1, &mut holes)?;
                    }
                    break;
                }
                if found != (if objects & 1 == 1 { b'}' } else { b']' }) {
                    return None;
                }
                at += 1;
                objects >>= 1;
                depth -= 1;
            }
        }
    }

    /// Reads `"name" :`; gives the name and where the value begins.
    #[inline(always)]
    fn read_name(
        &mut self,
        bytes: &[u8],
        at: usize,
        outermost: bool,
        holes: &mut Holes,
    ) -> Option<(Range<usize>, usize)> {
        if byte(bytes, at) != b'"' {
            return None;
        }
        let (end, flags) = string_end(bytes, at + 1)?;
        let mut white = 0;
        let colon = skip_white(bytes, end + 1, &mut white);
        if byte(bytes, colon) != b':' {
            return None;
        }
        let (name, value) = (at + 1..end, skip_white(bytes, colon + 1, &mut white));
        if outermost {
            *holes = if flags == 0 { Holes::of(&bytes[name.clone()]) } else { Holes::Nowhere };
            self.members.push(Member { name: name.clone(), escaped: flags != 0, value: value..value });
        }
        Some((name, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Value;
    use crate::json::Tape;

    /// The names and values that the tape knows; None where it knows of no object.
    fn by_tape(text: &str) -> Option<Vec<(&str, &str)>> {
        let mut tape = Tape::new();
        tape.parse(text, 5).ok()?;
        let root = Value { tape: &tape, text, at: 0 };
        let quoted = |at: usize| {
            let (node, quote) = (tape.node(at), usize::from(Value { at, ..root }.is_string()));
            &text[node.start as usize - quote..node.end as usize + quote]
        };
        let pairs =
            super::super::edits::pairs(root).map(|(name, value)| (tape.slice(text, name.0.at), quoted(value.at)));
        (root.is_object() && text.starts_with('{') && text.ends_with('}')).then(|| pairs.collect())
    }

    fn by_outline(text: &str) -> Option<Vec<(&str, &str)>> {
        let mut outline = Outline::default();
        let found = outline.read(text.as_bytes(), 0, 5);
        found.then(|| outline.members.iter().map(|m| (&text[m.name.clone()], &text[m.value.clone()])).collect())
    }

    #[test]
    fn it_reads_what_the_tape_reads() {
        let texts = [
            r#"{"a":1,"b":"x","a":null}"#,
            "{ \"a\" :\t[ ] ,\"b\":{ } , \"c\":[1,[2,{\"d\":[]}],true,false,NaN,-Infinity,Infinity] }",
            r#"{"\u00e9\"":{"x":"\\"},"é":-0.5e+3}"#,
            r#"{"a":[[[[1]]]]}"#,
            r#"{"a":[[[[[]]]]]}"#,
            r#"{"a":{"b":[{"c":{}}]}}"#,
            "{}",
            "{ }",
        ];
        let bytes = b"{}[]\",: \\1-.eutNn\n";
        for text in texts {
            assert_eq!(by_outline(text), by_tape(text), "{text}");
            for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
                let (head, tail) = text.split_at(at);
                let next = tail.chars().next().map_or(0, char::len_utf8);
                assert_eq!(by_outline(head), by_tape(head), "{head}");
                let without = format!("{head}{}", &tail[next..]);
                assert_eq!(by_outline(&without), by_tape(&without), "{without}");
                for byte in bytes {
                    for tail in [tail, &tail[next..]] {
                        let other = format!("{head}{}{tail}", char::from(*byte));
                        assert_eq!(by_outline(&other), by_tape(&other), "{other}");
                    }
                }
            }
        }
    }

    #[test]
    fn which_tokens_are_holes() {
        let text = r#"{"id":"i","object":"o","created":7,"error":"e","x":["y"],"p":"q","choices":[{"index":0,"delta":{"role":"r",
            "content":"c"}}],"usage":{"a":[1],"name":"n"},"\u0070":"z"}"#;
        let mut outline = Outline::default();
        assert!(outline.read(text.as_bytes(), 0, 128));
        let found: Vec<_> =
            outline.holes.iter().map(|hole| (&text[hole.span.clone()], hole.number, hole.steady)).collect();
        let (string, number) = (false, true);
        assert_eq!(
            found,
            [
                ("i", string, true),
                ("7", number, true),
                ("q", string, false),
                ("0", number, true),
                ("r", string, true),
                ("c", string, false),
                ("1", number, false),
                ("n", string, false),
            ]
        );
    }
}
