//! The fast path: frames that equal an earlier one but for some of their strings and numbers.
//!
//! Consecutive chunks mostly differ in nothing but their text. So a frame that was read in full leaves a [`Template`]: its
//! bytes outside of *holes*, and where its edits lie between them. Holes are strings anywhere in `choices`, strings and
//! numbers in `usage`, and the padding; where that did not do also numbers in `choices`, what is seldom another (a role, a
//! type) and all other outermost strings and numbers but `error` and `object`. The next frame is one of the template when
//! its bytes outside the holes are the same and each hole is the inside of a JSON string, or a number. That is enough, by
//! construction:
//!
//! * It is a frame, and ends where the template ends: no JSON string or number holds a line end, so the lines are the same.
//! * It parses to the same tree: the same tokens, but for the content of some strings and numbers that are values.
//! * It gets the same edits: they depend on names, on where values begin and end, on the kind of values, on whether
//!   `choices` is empty, `error` is truthy and `object` is `error`, and never on the content of a hole. No edit begins or
//!   ends in a hole; one that lies inside an edit is removed with it, as another would be.
//! * No template is learned from a frame whose change a caller's function decides, or that was dropped.
use super::edits::{Changes, Edit};
use super::outline::{HOLES, Hole};
use crate::json::{hole_end, number_end};

/// Templates of one stream.
const TEMPLATES: usize = 2;
/// Bytes of a template outside of its holes.
const BYTES: usize = 16 * 1024;
/// Templates learned in vain after which steady tokens become holes too: a hole costs a few nanoseconds, a template without
/// use more.
const STEADY: u32 = 2;
/// Templates learned in vain after which only every eighth frame is one.
const PATIENCE: u32 = 8;

/// The templates of one stream, the one that was of use last in front.
#[derive(Debug, Default)]
pub(super) struct Templates {
    known: Vec<Template>,
    /// Learned since one was last of use.
    learned: u32,
    ends: Ends,
}

#[derive(Debug, Default)]
struct Template {
    /// The literals, one after the other, and behind them what the cuts bring.
    bytes: Vec<u8>,
    literals: usize,
    parts: Vec<Part>,
    cuts: Vec<Cut>,
}

/// A literal and the hole behind it; behind the last one comes a literal more.
#[derive(Clone, Copy, Debug)]
struct Part {
    length: u32,
    number: bool,
}

/// What an edit removes, and how many bytes it brings.
#[derive(Clone, Copy, Debug)]
struct Cut {
    start: Spot,
    end: Spot,
    brings: u32,
}

/// A place outside of the holes: so many bytes behind the end of a hole, or with none before it of the frame's start.
#[derive(Clone, Copy, Debug)]
struct Spot {
    holes: u32,
    offset: u32,
}

/// Where the holes of a frame end; 0 before the first.
type Ends = [u32; HOLES + 1];

impl Templates {
    /// The length of the frame that `bytes` begin with, if a template knows it.
    #[inline]
    pub fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        let (known, length) = self
            .known
            .iter()
            .enumerate()
            .find_map(|(known, template)| Some((known, template.find(bytes, &mut self.ends)?)))?;
        if known > 0 {
            self.known[..=known].rotate_right(1);
        }
        self.learned = 0;
        Some(length)
    }

    /// Whether the frame that was just found goes out as it came.
    #[inline]
    pub fn keeps(&self) -> bool {
        self.known.first().is_none_or(|template| template.cuts.is_empty())
    }

    /// Appends the frame that was just found with its edits.
    #[inline]
    pub fn write(&self, frame: &[u8], out: &mut Vec<u8>) {
        if let Some(template) = self.known.first() {
            template.write(frame, &self.ends, out);
        }
    }

    /// Remembers a frame with its holes and edits, both in ascending order.
    pub fn learn(&mut self, frame: &[u8], holes: &[Hole], edits: &[Edit], changes: &Changes) {
        self.learned = self.learned.saturating_add(1);
        if self.learned > PATIENCE && !self.learned.is_multiple_of(8) || frame.len() > u32::MAX as usize {
            return;
        }
        let steady = self.learned > STEADY;
        let holes = holes.iter().filter(|hole| steady || !hole.steady);
        let (count, holed) = holes.clone().fold((0, 0), |(count, holed), hole| (count + 1, holed + hole.span.len()));
        if count > HOLES || frame.len() - holed > BYTES {
            return;
        }
        let mut template = if self.known.len() < TEMPLATES { None } else { self.known.pop() }.unwrap_or_default();
        template.fill(frame, holes, edits, changes);
        self.known.insert(0, template);
    }
}

impl Template {
    #[inline(always)]
    fn find(&self, bytes: &[u8], ends: &mut Ends) -> Option<usize> {
        let (mut literals, mut rest) = (&self.bytes[..self.literals], bytes);
        for (part, end) in self.parts.iter().zip(&mut ends[1..]) {
            let (literal, more) = literals.split_at_checked(part.length as usize)?;
            rest = rest.strip_prefix(literal)?;
            let length = if part.number { number_end(rest, 0).ok()?.0 } else { hole_end(rest)?.0 };
            rest = &rest[length..];
            *end = (bytes.len() - rest.len()) as u32;
            literals = more;
        }
        rest = rest.strip_prefix(literals)?;
        Some(bytes.len() - rest.len())
    }

    #[inline]
    fn write(&self, frame: &[u8], ends: &Ends, out: &mut Vec<u8>) {
        let (mut at, mut brought) = (0, &self.bytes[self.literals..]);
        for cut in &self.cuts {
            out.extend_from_slice(&frame[at..cut.start.of(ends)]);
            let (text, more) = brought.split_at(cut.brings as usize);
            out.extend_from_slice(text);
            (at, brought) = (cut.end.of(ends), more);
        }
        out.extend_from_slice(&frame[at..]);
    }

    fn fill<'a>(
        &mut self,
        frame: &[u8],
        holes: impl Iterator<Item = &'a Hole> + Clone,
        edits: &[Edit],
        changes: &Changes,
    ) {
        self.bytes.clear();
        self.parts.clear();
        self.cuts.clear();
        self.bytes.reserve(frame.len());
        let mut at = 0;
        for hole in holes.clone() {
            self.bytes.extend_from_slice(&frame[at..hole.span.start]);
            self.parts.push(Part { length: (hole.span.start - at) as u32, number: hole.number });
            at = hole.span.end;
        }
        self.bytes.extend_from_slice(&frame[at..]);
        self.literals = self.bytes.len();
        let (mut holes, mut spot) = (holes.peekable(), (0, 0));
        let mut spot_of = |at: usize| {
            while let Some(hole) = holes.next_if(|hole| hole.span.end <= at) {
                spot = (spot.0 + 1, hole.span.end);
            }
            Spot { holes: spot.0, offset: (at - spot.1) as u32 }
        };
        for edit in edits {
            let text = changes.text_of(edit);
            self.cuts.push(Cut { start: spot_of(edit.start), end: spot_of(edit.end), brings: text.len() as u32 });
            self.bytes.extend_from_slice(text);
        }
    }
}

impl Spot {
    #[inline(always)]
    fn of(self, ends: &Ends) -> usize {
        (ends[self.holes as usize] + self.offset) as usize
    }
}
