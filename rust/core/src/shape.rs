//! The fast path: chunks that equal an earlier one but for their text.
//!
//! Nine of ten chunks repeat the one before, byte for byte, outside a few strings. A [`Shape`] remembers such a chunk as
//! literal bytes with *holes* between them. To match is to compare the literals and to find where each hole's string
//! ends; to merge is to append the holes to the texts they belong to. Nothing is parsed.
//!
//! # Why a match may stand for a merge
//!
//! Equal bytes parse equally. So a payload whose literals are equal, and whose holes are valid JSON strings, parses to the
//! remembered chunk with other strings in the holes. Merging it is then the merge of the holes, *if merging the other
//! members once more changes nothing* and sets no flag. [`Quiet::check`] is the only judge of that. It runs before the ordinary merge of a
//! chunk, and if that was not quiet once more behind it, and looks at every member next to what is held: an id that is settled, a model equal to the one held, a null
//! where something is held, a role that has come. Whatever it does not know is not quiet.
//!
//! What was quiet stays so as long as nothing but text is appended. (Numbers of which the last stays may change too:
//! usage in every chunk, a token's id. They are holes in every shape and never literals.) Therefore every other merge moves `version` on, and
//! a shape counts only in the version in which it was judged; otherwise the ordinary path judges it again.
//! The facts that appended text itself can change are asked at every match: whether there is room for it, and whether
//! the arguments so far are a bare `{}`.
//!
//! A chunk steps aside (is not quiet, or does not match) that has half a surrogate pair anywhere, ill-formed UTF-8, a
//! member twice, an error, a finish reason, usage that is all zero, a list that extends, content in parts, or a text that waits for the
//! other half of a pair. The stream must be at the start of an event, with LF line ends, not done, and below its limits.
//! The whole file may be deleted without changing a result.
use crate::chunk::Value;
use crate::json::{DEAD, ESCAPED, HALF, Kind, hole_end, number_end};
use crate::ledger::{Ledger, seen};
use crate::merge::{Choice, Completion, no_reason};
use crate::message::{DETAIL, REASONING};
use crate::text::Text;
use crate::tree::{Members, Slot};
use memchr::memchr2;

/// Shapes that a stream remembers: text, reasoning and two more, or those of four choices.
const SHAPES: usize = 4;
/// Literal bytes of all shapes together; what a stream keeps beside its text must stay small.
const LITERALS: usize = 2048;
/// Holes of one shape.
const HOLES: usize = 12;
/// Nodes of a chunk that is looked at.
const NODES: usize = 96;
/// Chunks in a row that were not quiet after which only every eighth is looked at.
const PATIENCE: u32 = 4;

/// The shapes of one stream.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    shapes: Vec<Shape>,
    version: u64,
    /// Chunks that matched or were learned so far.
    clock: u64,
    /// The shape of the last chunk, and the one that came after it before: where to look first.
    last: usize,
    hint: usize,
    loud: u32,
    /// The last `created`, and whether it changes from chunk to chunk.
    created: Vec<u8>,
    created_varies: bool,
    pub off: bool,
    found: Match,
}

#[derive(Debug)]
struct Shape {
    version: u64,
    literals: Box<[u8]>,
    /// Length of the literal before each hole, and the hole.
    holes: Box<[(u32, Hole)]>,
    /// A hole is a tool call's arguments.
    arguments: bool,
    /// The chunk has usage; all its numbers are holes.
    usage: bool,
    /// The shape that came after this one the last time.
    next: usize,
    /// The chunk that matched it last.
    used: u64,
}

/// What stands between two literals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hole {
    /// A string without meaning.
    Padding,
    /// An integer without effect.
    Integer,
    /// A fragment of a text.
    Text(Place),
    /// A number of which the last stays.
    Number(Leaf),
}

impl Hole {
    fn is_arguments(self) -> bool {
        matches!(self, Hole::Text(Place { kind: TextKind::Arguments(_), .. }))
    }
}

/// Which text a hole belongs to, by positions that hold in one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    choice: u32,
    slot: u32,
    kind: TextKind,
    seen: u32,
}

/// Which member holds a number, by positions that hold in one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaf {
    Usage(u32),
    /// Of an object in usage.
    Details(u32, u32),
    /// Of the message of a choice.
    Message(u32, u32),
    Choice(u32, u32),
    Top(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextKind {
    Content,
    Refusal,
    /// A joined member of the message.
    Joined,
    /// The transcript, by its position among the members of `audio`.
    Transcript(u32),
    /// A joined member of an entry of `reasoning_details`, by both positions.
    Detail(u32, u32),
    /// Of the tool call with that number.
    Arguments(u64),
    /// `text` of the choice itself.
    ChoiceText,
}

/// An event that matched.
#[derive(Debug, Default)]
struct Match {
    shape: usize,
    /// Bytes of all fragments, escapes included, and of all numbers.
    kept: usize,
    /// A number of usage is not zero.
    counts: bool,
    /// Where each hole begins and ends, and the flags of its string.
    holes: [(u32, u32, u8); HOLES],
}

/// What an event has before and behind its data.
const BEFORE: &[u8] = b"data: ";
const BEHIND: &[u8] = b"\n\n";

impl Shapes {
    /// Looks whether `bytes` begin with an event of a shape that counts: the lengths of the event and of its data.
    #[inline]
    pub fn find_event(&mut self, bytes: &[u8]) -> Option<(usize, usize)> {
        let length = self.find(bytes, BEFORE.len(), BEHIND.len())?;
        Some((length, length - BEFORE.len() - BEHIND.len()))
    }

    /// Looks whether `data` is that of an event of a shape that counts.
    pub fn find_data(&mut self, data: &[u8]) -> bool {
        self.find(data, 0, 0) == Some(data.len())
    }

    #[inline(always)]
    fn find(&mut self, bytes: &[u8], before: usize, behind: usize) -> Option<usize> {
        let bytes = &bytes[..bytes.len().min(i32::MAX as usize)];
        let mut at = self.hint;
        for _ in 0..self.shapes.len() {
            let shape = &self.shapes[at];
            if shape.version == self.version
                && let Some(length) = shape.find(bytes, before, behind, &mut self.found)
            {
                self.found.shape = at;
                return Some(length);
            }
            at = if at + 1 == self.shapes.len() { 0 } else { at + 1 };
        }
        None
    }

    /// Merges what was just found in `bytes`; false, and nothing is changed, where the ordinary path must do it.
    #[inline]
    pub fn merge(&mut self, bytes: &[u8], completion: &mut Completion, ledger: &mut Ledger) -> bool {
        let found = &self.found;
        let shape = &self.shapes[found.shape];
        if ledger.over || ledger.retained.saturating_add(found.kept) > ledger.limits.max_retained_bytes {
            return false;
        }
        if shape.arguments && !shape.is_ready(completion) || shape.usage && !found.counts {
            return false;
        }
        ledger.chunk += 1;
        ledger.seen |= if shape.usage { seen::USAGE } else { 0 };
        for (&(_, hole), &(start, end, flags)) in shape.holes.iter().zip(&found.holes) {
            let fragment = &bytes[start as usize..end as usize];
            match hole {
                Hole::Text(place) if start < end => {
                    ledger.seen |= place.seen;
                    place.append(fragment, flags, completion, ledger);
                }
                Hole::Number(leaf) => leaf.set(fragment, flags, completion, ledger),
                _ => {}
            }
        }
        self.hint = shape.next;
        self.clock += 1;
        self.shapes[self.found.shape].used = self.clock;
        if self.last != self.found.shape {
            self.shapes[self.last].next = self.found.shape;
            self.last = self.found.shape;
        }
        true
    }

    /// Judges a chunk: whether to merge it, or to merge it once more, would only append to texts.
    #[inline]
    pub fn judge(&mut self, chunk: Value<'_>, completion: &Completion) -> Option<Quiet> {
        if self.off || self.loud >= PATIENCE && !self.loud.is_multiple_of(8) {
            return None;
        }
        Quiet::check(chunk, completion)
    }

    /// Takes note of a chunk that the ordinary path has merged.
    #[inline]
    pub fn learn(&mut self, quiet: Option<Quiet>, text: &str) {
        match quiet {
            Some(quiet) => {
                self.loud = 0;
                self.remember(&quiet, text.as_bytes());
            }
            None => self.loud = self.loud.saturating_add(1),
        }
    }

    /// The ordinary path has merged a chunk that was not quiet: what was judged so far counts no more.
    #[inline]
    pub fn forget(&mut self) {
        self.version += 1;
    }

    fn remember(&mut self, quiet: &Quiet, text: &[u8]) {
        self.clock += 1;
        let varies = self.varies(quiet, text);
        let kept = |hole: Hole| varies || hole != Hole::Integer;
        let spans: Vec<_> = quiet.holes[..quiet.count].iter().copied().filter(|span| kept(span.2)).collect();
        // Lines of one event's data are joined by LF, but an LF in the stream ends the line.
        if memchr2(b'\n', b'\r', text).is_some() {
            return;
        }
        let holed: usize = spans.iter().map(|(start, end, _)| (end - start) as usize).sum();
        if text.len() - holed > LITERALS {
            return;
        }
        let mut literals = Vec::with_capacity(BEFORE.len() + text.len() - holed + BEHIND.len());
        literals.extend_from_slice(BEFORE);
        let mut holes = Vec::with_capacity(spans.len());
        let mut at = 0;
        for &(start, end, hole) in &spans {
            let begin = literals.len();
            literals.extend_from_slice(&text[at..start as usize]);
            let before = if holes.is_empty() { BEFORE.len() } else { 0 };
            holes.push(((literals.len() - begin + before) as u32, hole));
            at = end as usize;
        }
        literals.extend_from_slice(&text[at..]);
        literals.extend_from_slice(BEHIND);
        let known = self.shapes.iter().position(|shape| *shape.literals == *literals && shape.has_cuts_of(&holes));
        let place = known.unwrap_or_else(|| {
            // One that does not count any more gives way first, then the one that matched longest ago.
            let age = |(_, shape): &(usize, &Shape)| (shape.version == self.version, shape.used);
            let oldest = self.shapes.iter().enumerate().min_by_key(age).map(|(at, _)| at);
            let total: usize = self.shapes.iter().map(|shape| shape.literals.len()).sum();
            let without = |at: usize| total - self.shapes[at].literals.len();
            if self.shapes.len() < SHAPES && total + literals.len() <= LITERALS {
                return self.shapes.len();
            }
            match oldest {
                Some(at) if without(at) + literals.len() <= LITERALS => at,
                _ => {
                    self.shapes.clear();
                    0
                }
            }
        });
        let arguments = holes.iter().any(|(_, hole)| hole.is_arguments());
        let (literals, holes) = (literals.into(), holes.into());
        let shape = Shape {
            version: self.version,
            literals,
            holes,
            arguments,
            usage: quiet.usage,
            next: place,
            used: self.clock,
        };
        if place < self.shapes.len() {
            self.shapes[place] = shape;
        } else {
            self.shapes.push(shape);
        }
        self.last = self.last.min(self.shapes.len() - 1);
        self.shapes[self.last].next = place;
        self.last = place;
        self.hint = place;
    }

    /// Whether `created` changes from chunk to chunk; as long as it does not it is a literal like any other.
    fn varies(&mut self, quiet: &Quiet, text: &[u8]) -> bool {
        if let Some(&(start, end, _)) = quiet.holes[..quiet.count].iter().find(|span| span.2 == Hole::Integer) {
            let created = &text[start as usize..end as usize];
            if *created != *self.created {
                self.created_varies |= !self.created.is_empty();
                self.created = created.to_vec();
            }
        }
        self.created_varies
    }

    /// Gives the memory back; the stream has ended.
    pub fn clear(&mut self) {
        *self = Self { off: true, ..Self::default() };
    }
}

impl Shape {
    #[inline(always)]
    fn find(&self, bytes: &[u8], before: usize, behind: usize, found: &mut Match) -> Option<usize> {
        let literals = &self.literals[BEFORE.len() - before..];
        let (mut literals, mut rest) = (&literals[..literals.len() - BEHIND.len() + behind], bytes);
        let mut unframed = BEFORE.len() - before;
        let (mut kept, mut counts) = (0, false);
        for (&(length, hole), place) in self.holes.iter().zip(&mut found.holes) {
            let (literal, more) = literals.split_at_checked(length as usize - std::mem::take(&mut unframed))?;
            literals = more;
            rest = rest.strip_prefix(literal)?;
            let (end, flags) = match hole {
                Hole::Integer => (integer_end(rest)?, 0),
                Hole::Number(_) => number(rest)?,
                Hole::Padding | Hole::Text(_) => hole_end(rest)?,
            };
            if flags & HALF != 0 {
                return None;
            }
            let start = bytes.len() - rest.len();
            *place = (start as u32, (start + end) as u32, flags);
            kept += match hole {
                Hole::Text(_) => end,
                Hole::Number(leaf) => {
                    counts |= leaf.is_usage() && is_count(&rest[..end]);
                    end
                }
                Hole::Padding | Hole::Integer => 0,
            };
            rest = &rest[end..];
        }
        rest = rest.strip_prefix(literals)?;
        found.kept = kept;
        found.counts = counts;
        Some(bytes.len() - rest.len())
    }

    /// Whether appended text is only text: not when it would take the place of bare arguments.
    fn is_ready(&self, completion: &Completion) -> bool {
        self.holes.iter().all(|(_, hole)| match hole {
            Hole::Text(place) => place.is_ready(completion),
            _ => true,
        })
    }

    fn has_cuts_of(&self, holes: &[(u32, Hole)]) -> bool {
        self.holes.len() == holes.len() && self.holes.iter().zip(holes).all(|(mine, other)| mine.0 == other.0)
    }
}

/// The length of the integer without sign that `bytes` begin with; of one that may not fit 64 bits none.
#[inline]
fn integer_end(bytes: &[u8]) -> Option<usize> {
    let mut end = 0;
    while end < bytes.len() && bytes[end].wrapping_sub(b'0') < 10 {
        end += 1;
    }
    (end == 1 || end > 1 && end < 19 && bytes[0] != b'0').then_some(end)
}

/// The length of the number that `bytes` begin with, and its flags.
#[inline]
fn number(bytes: &[u8]) -> Option<(usize, u8)> {
    match integer_end(bytes) {
        Some(end) if !matches!(bytes.get(end), Some(b'.' | b'e' | b'E')) => Some((end, 0)),
        _ if bytes.is_empty() => None,
        _ => match number_end(bytes, 0) {
            Ok((_, Kind::NonFinite, _)) | Err(_) => None,
            Ok((end, _, flags)) => Some((end, flags)),
        },
    }
}

/// A number other than zero.
fn is_count(number: &[u8]) -> bool {
    match number {
        [b'0'] => false,
        [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => true,
        _ => std::str::from_utf8(number).ok().and_then(|text| text.parse::<f64>().ok()).is_some_and(|n| n != 0.0),
    }
}

impl Place {
    fn text<'c>(&self, completion: &'c mut Completion) -> Option<&'c mut Text> {
        let choice = completion.choices.get_mut(self.choice as usize)?;
        let members = if self.kind == TextKind::ChoiceText { &mut choice.others } else { &mut choice.message };
        let slot = &mut members.slots.get_mut(self.slot as usize)?.1;
        match (self.kind, slot) {
            (TextKind::Content, Slot::Content(content)) => content.text.as_mut(),
            (TextKind::Refusal, Slot::Refusal(refusal)) => refusal.text.as_mut(),
            (TextKind::Joined | TextKind::ChoiceText, Slot::Joined(joined)) => Some(&mut joined.text),
            (TextKind::Transcript(at), Slot::Audio(audio)) => joined_at(audio.members.as_mut()?, at),
            (TextKind::Detail(entry, at), Slot::Details(details)) => joined_at(details.at_mut(entry)?, at),
            _ => None,
        }
    }

    fn is_ready(&self, completion: &Completion) -> bool {
        let TextKind::Arguments(number) = self.kind else { return true };
        let slot =
            completion.choices.get(self.choice as usize).map(|choice| &choice.message.slots[self.slot as usize].1);
        let Some(Slot::Calls(calls)) = slot else { return false };
        let function = calls.call(number).and_then(|call| call.function.as_ref());
        function.is_some_and(|function| !function.arguments.is_bare())
    }

    #[inline]
    fn append(&self, fragment: &[u8], flags: u8, completion: &mut Completion, ledger: &mut Ledger) {
        let raw = if flags & ESCAPED == 0 { "" } else { simdutf8::basic::from_utf8(fragment).unwrap_or_default() };
        if let TextKind::Arguments(number) = self.kind {
            let Some(choice) = completion.choices.get_mut(self.choice as usize) else { return };
            if let Slot::Calls(calls) = &mut choice.message.slots[self.slot as usize].1
                && let Some(function) = calls.call_mut(number).and_then(|call| call.function.as_mut())
            {
                if flags & ESCAPED == 0 {
                    function.arguments.append(fragment, ledger);
                } else {
                    function.arguments.append_raw(raw, ledger);
                }
            }
        } else if let Some(text) = self.text(completion) {
            if flags & ESCAPED == 0 {
                text.append(fragment, ledger);
            } else {
                text.add_raw(&[(raw, 1)], ledger);
            }
        }
    }
}

impl Leaf {
    fn is_usage(self) -> bool {
        matches!(self, Leaf::Usage(_) | Leaf::Details(..))
    }

    fn slot(self, completion: &mut Completion) -> Option<&mut Slot> {
        let (members, at) = match self {
            Leaf::Usage(at) => (completion.usage.members.as_mut()?, at),
            Leaf::Details(parent, at) => match &mut completion.usage.members.as_mut()?.slots[parent as usize].1 {
                Slot::Members(members) => (&mut **members, at),
                _ => return None,
            },
            Leaf::Message(choice, at) => (&mut completion.choices.get_mut(choice as usize)?.message, at),
            Leaf::Choice(choice, at) => (&mut completion.choices.get_mut(choice as usize)?.others, at),
            Leaf::Top(at) => (&mut completion.others, at),
        };
        members.slots.get_mut(at as usize).map(|(_, slot)| slot)
    }

    /// Another number in the place of the one held, for which there is room.
    fn set(self, digits: &[u8], flags: u8, completion: &mut Completion, ledger: &mut Ledger) {
        if let Some(Slot::Leaf(leaf)) = self.slot(completion)
            && let Ok(digits) = std::str::from_utf8(digits)
        {
            ledger.retained = ledger.retained.saturating_sub(leaf.nbytes) + digits.len();
            leaf.nbytes = digits.len();
            leaf.flags = flags;
            leaf.raw.clear();
            leaf.raw.push_str(digits);
        }
    }
}

fn joined_at(members: &mut Members, at: u32) -> Option<&mut Text> {
    match &mut members.slots.get_mut(at as usize)?.1 {
        Slot::Joined(joined) => Some(&mut joined.text),
        _ => None,
    }
}

/// A chunk whose merge appends to texts and changes nothing else; where those texts stand in it.
#[derive(Debug)]
pub(crate) struct Quiet {
    /// Start, end, hole.
    holes: [(u32, u32, Hole); HOLES],
    count: usize,
    /// The chunk has usage.
    usage: bool,
}

impl Quiet {
    fn check(chunk: Value<'_>, completion: &Completion) -> Option<Self> {
        let nodes = chunk.tape.nodes();
        if chunk.at != 0 || nodes.len() > NODES || nodes[0].flags & HALF != 0 {
            return None;
        }
        if nodes.iter().any(|node| node.flags & DEAD != 0) {
            return None;
        }
        let mut quiet = Self { holes: [(0, 0, Hole::Padding); HOLES], count: 0, usage: false };
        quiet.chunk(chunk, completion)?;
        Some(quiet)
    }

    fn hole(&mut self, value: Value<'_>, hole: Hole) -> Option<()> {
        let node = value.node();
        *self.holes.get_mut(self.count)? = (node.start, node.end, hole);
        self.count += 1;
        Some(())
    }

    fn chunk(&mut self, chunk: Value<'_>, completion: &Completion) -> Option<()> {
        for (name, value) in chunk.members() {
            let held = match &*name {
                "id" => &completion.id,
                "model" => &completion.model,
                "system_fingerprint" => &completion.system_fingerprint,
                "service_tier" => &completion.service_tier,
                "object" => {
                    quiet_if(!value.is_str("error"))?;
                    continue;
                }
                "error" => {
                    quiet_if(!value.is_truthy())?;
                    continue;
                }
                "created" => {
                    self.created(value, completion)?;
                    continue;
                }
                "usage" if value.is_null() => {
                    quiet_if(completion.usage.members.is_some() || completion.usage.null)?;
                    continue;
                }
                "usage" => {
                    self.usage(value, completion.usage.members.as_ref()?)?;
                    continue;
                }
                "obfuscation" | "p" => {
                    self.padding(value)?;
                    continue;
                }
                "choices" => {
                    self.choices(value, completion)?;
                    continue;
                }
                "x_groq" => return None,
                _ => {
                    self.member(&completion.others, &name, value, Leaf::Top)?;
                    continue;
                }
            };
            quiet_if(held.is_settled(value))?;
        }
        Some(())
    }

    fn created(&mut self, value: Value<'_>, completion: &Completion) -> Option<()> {
        let settled = completion.created.value.as_deref().is_some_and(|digits| digits != "0");
        quiet_if(settled && matches!(value.kind(), Kind::Int | Kind::Null))?;
        if value.kind() == Kind::Int && integer_end(value.slice().as_bytes()) == Some(value.slice().len()) {
            self.hole(value, Hole::Integer)?;
        }
        Some(())
    }

    /// A member that is dropped whatever it is.
    fn padding(&mut self, value: Value<'_>) -> Option<()> {
        if value.is_string() { self.hole(value, Hole::Padding) } else { Some(()) }
    }

    fn choices(&mut self, value: Value<'_>, completion: &Completion) -> Option<()> {
        quiet_if(value.is_array() || value.is_null())?;
        for entry in value.items() {
            let index = completion.index_of(entry)?;
            let at = completion.choices.binary_search_by_key(&index, |choice| choice.index).ok()?;
            self.choice(entry, &completion.choices[at], at as u32)?;
        }
        Some(())
    }

    fn choice(&mut self, entry: Value<'_>, choice: &Choice, at: u32) -> Option<()> {
        for (name, value) in entry.members() {
            match &*name {
                "index" => {}
                "finish_reason" => quiet_if(no_reason(value))?,
                "error" => quiet_if(!value.is_truthy())?,
                "message" => quiet_if(value.is_null())?,
                "logprobs" => quiet_if(value.is_null() && choice.logprobs.is_some())?,
                "delta" if value.is_object() => self.delta(value, choice, at)?,
                "delta" => quiet_if(value.is_null())?,
                "text" if value.is_string() => {
                    let slot = choice.others.find("text")?;
                    let Slot::Joined(joined) = &choice.others.slots[slot].1 else { return None };
                    quiet_if(!joined.text.half())?;
                    self.text(value, at, slot, TextKind::ChoiceText, 0)?;
                }
                "usage" => return None,
                _ => self.member(&choice.others, &name, value, |slot| Leaf::Choice(at, slot))?,
            }
        }
        Some(())
    }

    /// A member without a rule of its own: a number of which the last stays, or nothing new.
    fn member(&mut self, members: &Members, name: &str, value: Value<'_>, leaf: impl Fn(u32) -> Leaf) -> Option<()> {
        let slot = members.find(name)?;
        let held = &members.slots[slot].1;
        if matches!(held, Slot::Leaf(held) if held.is_number()) && !value.is_null() {
            // Never a literal: another shape may change the number.
            quiet_if(matches!(value.kind(), Kind::Int | Kind::Float))?;
            return self.hole(value, Hole::Number(leaf(slot as u32)));
        }
        quiet_if(is_settled_slot(held, value))
    }

    /// Usage in every chunk: all its numbers are holes, so that whether all are zero shows in them.
    fn usage(&mut self, value: Value<'_>, held: &Members) -> Option<()> {
        quiet_if(value.is_object())?;
        self.usage = true;
        for (name, value) in value.members() {
            match held.get(&name)? {
                Slot::Members(inner) if value.is_object() => {
                    let parent = held.find(&name)? as u32;
                    for (name, value) in value.members() {
                        quiet_if(!value.is_object())?;
                        self.member(inner, &name, value, |at| Leaf::Details(parent, at))?;
                    }
                }
                _ => self.member(held, &name, value, Leaf::Usage)?,
            }
        }
        Some(())
    }

    fn text(&mut self, value: Value<'_>, choice: u32, slot: usize, kind: TextKind, seen: u32) -> Option<()> {
        self.hole(value, Hole::Text(Place { choice, slot: slot as u32, kind, seen }))
    }

    fn delta(&mut self, delta: Value<'_>, choice: &Choice, at: u32) -> Option<()> {
        quiet_if(choice.had_delta)?;
        for (name, value) in delta.members() {
            if name == "role" {
                let role = choice.role.value.as_deref().is_some_and(|role| !role.is_empty());
                let first = value.is_null() && choice.role.came() || value.is_string() && role;
                quiet_if(first && (!value.says() || choice.delta_names.contains("role")))?;
                continue;
            }
            if name == "obfuscation" {
                quiet_if(!value.says() || choice.delta_names.contains("obfuscation"))?;
                self.padding(value)?;
                continue;
            }
            let slot = choice.message.find(&name)?;
            if value.is_null() {
                continue;
            }
            let held = &choice.message.slots[slot].1;
            if !choice.delta_names.contains(&name) {
                quiet_if(value.is_empty() && (name != "content" || choice.delta_text || !value.is_string()))?;
                quiet_if(is_settled_slot(held, value))?;
                continue;
            }
            match held {
                Slot::Content(content) if value.is_string() => {
                    quiet_if(choice.delta_text && content.parts.is_none())?;
                    quiet_if(content.text.as_ref().is_some_and(|text| !text.half()))?;
                    self.text(value, at, slot, TextKind::Content, seen::CONTENT)?;
                }
                Slot::Refusal(refusal) if value.is_string() => {
                    quiet_if(refusal.text.as_ref().is_some_and(|text| !text.half()))?;
                    self.text(value, at, slot, TextKind::Refusal, seen::REFUSAL)?;
                }
                Slot::Joined(joined) if value.is_string() => {
                    quiet_if(REASONING.contains(&&*name) && !joined.text.half())?;
                    self.text(value, at, slot, TextKind::Joined, seen::REASONING)?;
                }
                Slot::Calls(_) if value.is_array() => {
                    for fragment in value.items() {
                        self.fragment(fragment, held, at, slot)?;
                    }
                }
                Slot::Details(_) if value.is_array() => {
                    for entry in value.items() {
                        self.detail(entry, held, at, slot)?;
                    }
                }
                Slot::Audio(audio) if value.is_object() => {
                    let members = audio.members.as_ref()?;
                    for (name, value) in value.members() {
                        let known = members.find(&name)?;
                        match &members.slots[known].1 {
                            Slot::Joined(joined) if name == "transcript" && value.is_string() => {
                                quiet_if(!joined.text.half())?;
                                self.text(value, at, slot, TextKind::Transcript(known as u32), seen::AUDIO)?;
                            }
                            _ if name == "id" => quiet_if(is_settled(members, &name, value))?,
                            _ => quiet_if(!value.says() && is_settled(members, &name, value))?,
                        }
                    }
                }
                // Its flag is set each time.
                _ if value.says() && REASONING.contains(&&*name) => return None,
                Slot::Leaf(_) => self.member(&choice.message, &name, value, |slot| Leaf::Message(at, slot))?,
                _ => quiet_if(is_settled_slot(held, value))?,
            }
        }
        Some(())
    }

    /// A fragment of a call that is found by its id, or by its index without a name.
    fn fragment(&mut self, fragment: Value<'_>, held: &Slot, choice: u32, slot: usize) -> Option<()> {
        let Slot::Calls(calls) = held else { return None };
        quiet_if(fragment.is_object())?;
        let number = calls.settled(fragment)?;
        let call = calls.call(number)?;
        for (name, value) in fragment.members() {
            match &*name {
                "id" | "index" => {}
                "type" => quiet_if(value.is_null() || value.is_string() && (value.is_empty() || call.has_kind()))?,
                "function" if value.is_object() => {
                    let function = call.function.as_ref()?;
                    for (name, value) in value.members() {
                        match &*name {
                            "name" => quiet_if(!value.says() || value.is_str(&function.name))?,
                            "arguments" if value.is_string() => {
                                quiet_if(!function.arguments.text.half())?;
                                self.text(value, choice, slot, TextKind::Arguments(number), seen::TOOL_CALL)?;
                            }
                            "arguments" => quiet_if(value.is_null())?,
                            _ => quiet_if(!value.says() && is_settled(&function.others, &name, value))?,
                        }
                    }
                }
                "function" | "custom" => quiet_if(value.is_null())?,
                _ => quiet_if(!value.says() && is_settled(&call.others, &name, value))?,
            }
        }
        Some(())
    }

    fn detail(&mut self, entry: Value<'_>, held: &Slot, choice: u32, slot: usize) -> Option<()> {
        let Slot::Details(details) = held else { return None };
        let (number, members) = details.settled(entry)?;
        for (name, value) in entry.members() {
            let known = members.find(&name)?;
            match &members.slots[known].1 {
                Slot::Joined(joined) if matches!(&*name, "text" | "summary" | "data") && value.is_string() => {
                    quiet_if(!joined.text.half())?;
                    let kind = TextKind::Detail(number, known as u32);
                    self.text(value, choice, slot, kind, seen::REASONING)?;
                }
                _ if matches!(&*name, "type" | "id" | "format") && value.is_string() => {
                    quiet_if(!members.text_of(&name).is_empty())?;
                }
                _ => quiet_if(!(value.says() && DETAIL.always.contains(&&*name)) && is_settled(members, &name, value))?,
            }
        }
        Some(())
    }
}

fn quiet_if(quiet: bool) -> Option<()> {
    quiet.then_some(())
}

/// Whether putting `value` under `name` changes nothing.
fn is_settled(members: &Members, name: &str, value: Value<'_>) -> bool {
    members.get(name).is_some_and(|held| is_settled_slot(held, value))
}

/// Whether putting `value` where `held` is changes nothing. Not for numbers that `Quiet::member` takes for holes.
fn is_settled_slot(held: &Slot, value: Value<'_>) -> bool {
    if value.is_null() {
        return true;
    }
    match held {
        Slot::Content(content) => {
            let came = content.text.is_some() || content.parts.is_some();
            return value.is_empty() && (value.is_array() || value.is_string() && came);
        }
        Slot::Refusal(refusal) => return value.is_string() && value.is_empty() && refusal.text.is_some(),
        Slot::Details(details) => return value.is_array() && value.is_empty() && details.listed,
        Slot::Calls(_) => return value.is_array() && value.is_empty(),
        Slot::FunctionCall(call) => return value.is_object() && value.is_empty() && call.function.is_some(),
        Slot::Audio(audio) => return value.is_object() && value.is_empty() && audio.members.is_some(),
        _ => {}
    }
    if value.is_null() || value.is_empty() && !held.is_null() {
        return true;
    }
    match held {
        Slot::Leaf(leaf) => value.is_raw(&leaf.raw),
        Slot::Members(members) if value.is_object() => {
            value.members().all(|(name, member)| is_settled(members, &name, member))
        }
        _ => false,
    }
}
