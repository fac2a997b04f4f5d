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
//! members once more changes nothing*. [`Quiet::check`] is the only judge of that. It runs before the ordinary merge of a
//! chunk and looks at every member next to what is held: an id that is settled, a model equal to the one held, a null
//! where something is held, a role that has come. Whatever it does not know is not quiet.
//!
//! What was quiet stays so as long as nothing but text is appended. Therefore every other merge moves `version` on, and
//! a shape counts only in the version in which it was judged; otherwise the ordinary path judges it again.
//! The facts that appended text itself can change are asked at every match: whether there is room for it, and whether
//! the arguments so far are a bare `{}`.
//!
//! A chunk steps aside (is not quiet, or does not match) that has half a surrogate pair anywhere, ill-formed UTF-8, a
//! member twice, an error, a finish reason, usage, a list that extends, content in parts, or a text that waits for the
//! other half of a pair. The stream must be at the start of an event, with LF line ends, not done, and below its limits.
//! The whole file may be deleted without changing a result.
use crate::chunk::Value;
use crate::json::{DEAD, ESCAPED, HALF, Kind, string_end};
use crate::ledger::{Ledger, seen};
use crate::merge::{Choice, Completion};
use crate::message::REASONING;
use crate::text::Text;
use crate::tree::{Members, Slot};

/// Shapes that a stream remembers: text, reasoning and two more, or those of four choices.
const SHAPES: usize = 4;
/// Literal bytes of all shapes together; what a stream keeps beside its text must stay small.
const LITERALS: usize = 2048;
/// Holes of one shape.
const HOLES: usize = 6;
/// Nodes of a chunk that is looked at.
const NODES: usize = 96;
/// Chunks in a row that were not quiet after which only every eighth is looked at.
const PATIENCE: u32 = 4;

/// The shapes of one stream.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    shapes: Vec<Shape>,
    version: u64,
    /// The shape of the last chunk, and the one that came after it before: where to look first.
    last: usize,
    hint: usize,
    loud: u32,
    pub off: bool,
}

#[derive(Debug)]
struct Shape {
    version: u64,
    literals: Box<[u8]>,
    /// Length of the literal before each hole, and the hole.
    holes: Box<[(u32, Hole)]>,
    /// The shape that came after this one the last time.
    next: usize,
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
}

/// Which text a hole belongs to, by positions that hold in one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    choice: u32,
    slot: u32,
    kind: TextKind,
    seen: u32,
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

/// A payload that matched.
pub(crate) struct Match<'a> {
    shape: usize,
    /// Length of the payload.
    pub end: usize,
    holes: [&'a str; HOLES],
    flags: [u8; HOLES],
}

impl Shapes {
    /// Whether `bytes` begin with a payload of a shape that counts.
    #[inline]
    pub fn find<'a>(&self, bytes: &'a [u8]) -> Option<Match<'a>> {
        let mut at = self.hint;
        for _ in 0..self.shapes.len() {
            let shape = &self.shapes[at];
            if shape.version == self.version
                && let Some(found) = shape.find(bytes, at)
            {
                return Some(found);
            }
            at = if at + 1 == self.shapes.len() { 0 } else { at + 1 };
        }
        None
    }

    /// Merges what was found; false, and nothing is changed, where the ordinary path must do it.
    #[inline]
    pub fn merge(&mut self, found: &Match<'_>, completion: &mut Completion, ledger: &mut Ledger) -> bool {
        let shape = &self.shapes[found.shape];
        let mut length = 0;
        for ((_, hole), text) in shape.holes.iter().zip(&found.holes) {
            if let Hole::Text(place) = hole {
                length += text.len();
                if !place.is_ready(completion) {
                    return false;
                }
            }
        }
        if ledger.over || ledger.retained.saturating_add(length) > ledger.limits.max_retained_bytes {
            return false;
        }
        ledger.chunk += 1;
        for (at, (_, hole)) in shape.holes.iter().enumerate() {
            if let Hole::Text(place) = hole
                && !found.holes[at].is_empty()
            {
                ledger.seen |= place.seen;
                place.append(found.holes[at], found.flags[at], completion, ledger);
            }
        }
        self.hint = shape.next;
        self.shapes[self.last].next = found.shape;
        self.last = found.shape;
        true
    }

    /// Judges a chunk before the ordinary path merges it.
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
            None => {
                self.loud = self.loud.saturating_add(1);
                self.version += 1;
            }
        }
    }

    fn remember(&mut self, quiet: &Quiet, text: &[u8]) {
        let spans = &quiet.holes[..quiet.count];
        let holed: usize = spans.iter().map(|(start, end, _)| (end - start) as usize).sum();
        if text.len() - holed > LITERALS {
            return;
        }
        let mut literals = Vec::with_capacity(text.len() - holed);
        let mut holes = Vec::with_capacity(spans.len());
        let mut at = 0;
        for &(start, end, hole) in spans {
            literals.extend_from_slice(&text[at..start as usize]);
            holes.push((start - at as u32, hole));
            at = end as usize;
        }
        literals.extend_from_slice(&text[at..]);
        let known = self.shapes.iter().position(|shape| *shape.literals == *literals && shape.has_cuts_of(&holes));
        let place = known.unwrap_or_else(|| {
            let total: usize = self.shapes.iter().map(|shape| shape.literals.len()).sum();
            if self.shapes.len() < SHAPES && total + literals.len() <= LITERALS {
                self.shapes.len()
            } else if total - self.shapes[self.hint].literals.len() + literals.len() <= LITERALS {
                self.shapes.iter().position(|shape| shape.version != self.version).unwrap_or(self.hint)
            } else {
                self.shapes.clear();
                0
            }
        });
        let shape = Shape { version: self.version, literals: literals.into(), holes: holes.into(), next: place };
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

    /// Gives the memory back; the stream has ended.
    pub fn clear(&mut self) {
        *self = Self { off: true, ..Self::default() };
    }
}

impl Shape {
    #[inline]
    fn find<'a>(&self, bytes: &'a [u8], shape: usize) -> Option<Match<'a>> {
        let mut found = Match { shape, end: 0, holes: [""; HOLES], flags: [0; HOLES] };
        let mut literals: &[u8] = &self.literals;
        let mut at = 0;
        for (number, &(length, hole)) in self.holes.iter().enumerate() {
            let (literal, rest) = literals.split_at(length as usize);
            if !bytes[at..].starts_with(literal) {
                return None;
            }
            literals = rest;
            at += literal.len();
            if hole == Hole::Integer {
                at = integer_end(bytes, at)?;
                continue;
            }
            let (end, flags) = string_end(bytes, at)?;
            if flags & HALF != 0 {
                return None;
            }
            found.holes[number] = utf8(&bytes[at..end])?;
            found.flags[number] = flags;
            at = end;
        }
        found.end = at + literals.len();
        bytes[at..].starts_with(literals).then_some(found)
    }

    fn has_cuts_of(&self, holes: &[(u32, Hole)]) -> bool {
        self.holes.len() == holes.len() && self.holes.iter().zip(holes).all(|(mine, other)| mine.0 == other.0)
    }
}

#[inline]
fn utf8(bytes: &[u8]) -> Option<&str> {
    if bytes.len() < 64 { std::str::from_utf8(bytes).ok() } else { simdutf8::basic::from_utf8(bytes).ok() }
}

/// The end of an integer without sign that fits 64 bits.
fn integer_end(bytes: &[u8], at: usize) -> Option<usize> {
    let digits = bytes[at..].iter().take(19).take_while(|byte| byte.is_ascii_digit()).count();
    let plain = digits == 1 || digits > 1 && digits < 19 && bytes[at] != b'0';
    plain.then_some(at + digits)
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

    /// Whether appended text is only text: not when it would take the place of bare arguments.
    #[inline]
    fn is_ready(&self, completion: &Completion) -> bool {
        let TextKind::Arguments(number) = self.kind else { return true };
        let slot = completion.choices.get(self.choice as usize).map(|choice| &choice.message.slots[self.slot as usize].1);
        let Some(Slot::Calls(calls)) = slot else { return false };
        let function = calls.call(number).and_then(|call| call.function.as_ref());
        function.is_some_and(|function| !function.arguments.is_bare())
    }

    #[inline]
    fn append(&self, raw: &str, flags: u8, completion: &mut Completion, ledger: &mut Ledger) {
        if let TextKind::Arguments(number) = self.kind {
            let Some(choice) = completion.choices.get_mut(self.choice as usize) else { return };
            if let Slot::Calls(calls) = &mut choice.message.slots[self.slot as usize].1
                && let Some(function) = calls.call_mut(number).and_then(|call| call.function.as_mut())
            {
                function.arguments.append(raw, flags, ledger);
            }
        } else if let Some(text) = self.text(completion) {
            if flags & ESCAPED == 0 {
                text.add_plain(raw, ledger);
            } else {
                text.add_raw(&[(raw, 1)], ledger);
            }
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
        let mut quiet = Self { holes: [(0, 0, Hole::Padding); HOLES], count: 0 };
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
                "usage" => {
                    quiet_if(value.is_null() && (completion.usage.members.is_some() || completion.usage.null))?;
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
                    quiet_if(is_settled(&completion.others, &name, value))?;
                    continue;
                }
            };
            let same = || {
                let held = held.value.as_deref();
                value.is_string() && held.is_some_and(|held| value.is_empty() || value.is_str(held))
            };
            quiet_if(held.came() && (value.is_null() || same()))?;
        }
        Some(())
    }

    fn created(&mut self, value: Value<'_>, completion: &Completion) -> Option<()> {
        let settled = completion.created.value.as_deref().is_some_and(|digits| digits != "0");
        quiet_if(settled && matches!(value.kind(), Kind::Int | Kind::Null))?;
        if value.kind() == Kind::Int && integer_end(value.slice().as_bytes(), 0) == Some(value.slice().len()) {
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
                "finish_reason" => quiet_if(value.is_null() || value.is_string() && value.is_empty())?,
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
                _ => quiet_if(is_settled(&choice.others, &name, value))?,
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
                            _ => quiet_if(is_settled(members, &name, value))?,
                        }
                    }
                }
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
                            _ => quiet_if(is_settled(&function.others, &name, value))?,
                        }
                    }
                }
                "function" | "custom" => quiet_if(value.is_null())?,
                _ => quiet_if(is_settled(&call.others, &name, value))?,
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
                _ => quiet_if(is_settled(members, &name, value))?,
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

/// Whether putting `value` where `held` is changes nothing.
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
