//! The members of a message that have rules of their own: content, refusal, reasoning details, audio.
//!
//! Each has `put(value, ledger)` → the [`seen`] flags of what it kept.
use crate::chunk::Value;
use crate::json::Kind;
use crate::ledger::{Ledger, seen};
use crate::text::Text;
use crate::tree::{DELTA, Joined, LAST, Leaf, Members, OVERLAY, Policy, Slot, note_halves};

static TEXT_PART: Policy = Policy { joins: false, last: &[], always: &["text"] };
static THINKING_PART: Policy = Policy { joins: false, last: &[], always: &["thinking"] };
pub(crate) static DETAIL: Policy = Policy {
    joins: true,
    last: &["id", "type", "name", "channel", "format", "status", "signature"],
    always: &["text", "summary", "data"],
};
static SOUND: Policy = Policy { joins: true, last: LAST, always: &["data", "transcript"] };

/// A string of which the first, or the last, that is not empty stays; null and empty count until something better comes.
#[derive(Debug, Default)]
pub(crate) struct Choosy {
    last: bool,
    nbytes: usize,
    /// As compact JSON text, to compare with what comes.
    raw: String,
    pub value: Option<String>,
}

impl Choosy {
    pub fn first() -> Self {
        Self::default()
    }

    pub fn last() -> Self {
        Self { last: true, ..Self::default() }
    }

    /// A value, null included, was kept.
    #[inline]
    pub fn came(&self) -> bool {
        self.nbytes > 0
    }

    /// Whether a value that came before comes once more: `put` would change nothing, its booked size included.
    pub fn is_settled(&self, value: Value<'_>) -> bool {
        match &self.value {
            _ if value.is_null() => self.came(),
            None => false,
            Some(held) => {
                let same = if self.last { self.raw == value.slice() } else { value.is_str(held) };
                value.is_string() && (value.is_empty() || same)
            }
        }
    }

    #[inline]
    pub fn put(&mut self, name: &str, value: Value<'_>, ledger: &mut Ledger) {
        let kind = value.kind();
        if kind != Kind::String && kind != Kind::Null {
            ledger.note("ignored-value", 1);
            return;
        }
        if self.came() {
            let held = self.value.as_deref();
            let better = if value.says() {
                held.is_none_or(str::is_empty) || self.last
            } else {
                kind == Kind::String && held.is_none()
            };
            if !better {
                return;
            }
        }
        if self.last && kind == Kind::String && self.value.is_some() && self.raw == value.slice() {
            if !ledger.over {
                note_halves(value, ledger);
            }
            return;
        }
        let nbytes = name.len() + value.size();
        if !ledger.room(nbytes, self.nbytes) {
            return;
        }
        note_halves(value, ledger);
        self.nbytes = nbytes;
        self.value = (kind == Kind::String).then(|| value.string().into_owned());
        self.raw.clear();
        if self.last {
            self.raw.push_str(value.slice());
        }
    }
}

/// `content`: a string, a list of parts, or null.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub text: Option<Text>,
    pub parts: Option<Parts>,
}

impl Content {
    pub fn put(&mut self, value: Value<'_>, ledger: &mut Ledger) -> u32 {
        match value.kind() {
            Kind::Null => 0,
            Kind::String => {
                if let Some(parts) = &mut self.parts {
                    return parts.add_text(value, ledger);
                }
                if let Some(text) = &mut self.text {
                    return if text.add(value, ledger) && value.says() { seen::CONTENT } else { 0 };
                }
                let mut text = Text::default();
                if !text.add(value, ledger) {
                    return 0;
                }
                self.text = Some(text);
                if value.says() { seen::CONTENT } else { 0 }
            }
            Kind::Array if value.is_empty() => 0,
            Kind::Array | Kind::Object => {
                let text = &mut self.text;
                let parts = self.parts.get_or_insert_with(|| {
                    let mut parts = Parts::default();
                    if let Some(text) = text.take()
                        && !text.is_empty()
                    {
                        parts.open_text(text);
                    }
                    parts
                });
                if value.is_object() { parts.add_part(value, ledger) } else { parts.add(value, ledger) }
            }
            _ => {
                ledger.note("ignored-value", 1);
                0
            }
        }
    }

    pub fn texts(&self) -> Vec<&Text> {
        match (&self.parts, &self.text) {
            (Some(parts), _) => parts.texts("text"),
            (None, Some(text)) => vec![text],
            (None, None) => Vec::new(),
        }
    }
}

/// Content parts. Neighbours that are both `text` or both `thinking` become one; others never merge.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub parts: Vec<Part>,
}

impl Parts {
    fn add(&mut self, values: Value<'_>, ledger: &mut Ledger) -> u32 {
        let mut seen = 0;
        for value in values.items() {
            if ledger.over {
                break;
            }
            match value.kind() {
                Kind::String => seen |= self.add_text(value, ledger),
                Kind::Object => seen |= self.add_part(value, ledger),
                Kind::Null => {}
                _ => ledger.note("ignored-value", 1),
            }
        }
        seen
    }

    /// A string among parts is text.
    fn add_text(&mut self, fragment: Value<'_>, ledger: &mut Ledger) -> u32 {
        if fragment.is_empty() {
            return 0;
        }
        let kept = match self.last("text") {
            Some(part) => part.members.put("text", fragment, ledger),
            None => {
                let mut joined = Joined::new(true);
                let kept = joined.add(fragment, ledger);
                self.open_text(joined.text);
                kept
            }
        };
        if kept { seen::CONTENT } else { 0 }
    }

    /// A text part that no chunk spelled out.
    fn open_text(&mut self, text: Text) {
        let mut part = Part::new("text");
        part.members.insert("type", Slot::Leaf(Leaf { raw: "\"text\"".into(), flags: 0, nbytes: 0 }));
        part.members.insert("text", Slot::Joined(Joined::of(text)));
        self.parts.push(part);
    }

    fn add_part(&mut self, value: Value<'_>, ledger: &mut Ledger) -> u32 {
        let kind = value.get("type").map(Value::string).unwrap_or_default();
        if self.last(&kind).is_none() || !matches!(&*kind, "text" | "thinking") {
            if !ledger.room(2, 0) {
                return 0;
            }
            self.parts.push(Part::new(&kind));
        }
        self.parts.last_mut().map_or(0, |part| part.merge(value, ledger))
    }

    /// The last part, if it is of this kind.
    fn last(&mut self, kind: &str) -> Option<&mut Part> {
        self.parts.last_mut().filter(|part| part.kind == kind)
    }

    pub fn size(&self) -> usize {
        self.parts.iter().map(|part| part.members.size()).sum()
    }

    /// The texts of all parts of one kind, those inside a `thinking` part too.
    pub fn texts(&self, kind: &str) -> Vec<&Text> {
        let mut found = Vec::new();
        for part in self.parts.iter().filter(|part| part.kind == kind) {
            match part.members.get(kind) {
                Some(Slot::Joined(joined)) => found.push(&joined.text),
                Some(Slot::Parts(parts)) => found.extend(parts.texts("text")),
                _ => {}
            }
        }
        found
    }
}

/// One content part. The member named like its kind is its own: text that joins, or inner parts.
#[derive(Debug)]
pub(crate) struct Part {
    kind: String,
    pub members: Members,
}

impl Part {
    fn new(kind: &str) -> Self {
        let policy = match kind {
            "text" => &TEXT_PART,
            "thinking" => &THINKING_PART,
            _ => &OVERLAY,
        };
        Self { kind: kind.into(), members: Members::new(policy) }
    }

    fn merge(&mut self, value: Value<'_>, ledger: &mut Ledger) -> u32 {
        let mut seen = 0;
        for (name, member) in value.members() {
            if name == "thinking" && self.kind == "thinking" && self.takes_parts(member, ledger) {
                if let Some(Slot::Parts(parts)) = self.members.get_mut("thinking") {
                    let flags =
                        if member.is_array() { parts.add(member, ledger) } else { parts.add_text(member, ledger) };
                    seen |= if flags != 0 { seen::REASONING } else { 0 };
                }
            } else if self.members.put(&name, member, ledger) {
                seen |= match (&*self.kind, &*name) {
                    ("thinking", "thinking") => seen::REASONING,
                    ("thinking", _) => 0,
                    ("text", "text") => seen::CONTENT,
                    ("text", _) => 0,
                    _ => seen::CONTENT,
                };
            }
        }
        seen
    }

    fn takes_parts(&mut self, member: Value<'_>, ledger: &mut Ledger) -> bool {
        if member.is_array() && member.says() {
            match self.members.get_mut("thinking") {
                None if ledger.room("thinking".len(), 0) => {
                    self.members.insert("thinking", Slot::Parts(Box::default()));
                }
                None | Some(Slot::Parts(_)) => {}
                Some(held) => {
                    let mut parts = Parts::default();
                    let kept = matches!(held, Slot::Joined(_));
                    if ledger.room(0, if kept { 0 } else { held.size() }) {
                        if let Slot::Joined(joined) = held
                            && !joined.text.is_empty()
                        {
                            parts.open_text(std::mem::take(&mut joined.text));
                        }
                        *held = Slot::Parts(Box::new(parts));
                    }
                }
            }
        }
        let held = matches!(self.members.get("thinking"), Some(Slot::Parts(_)));
        held && (member.is_array() || member.is_string())
    }

    /// It holds nothing but empty text.
    pub fn is_empty(&self) -> bool {
        if !matches!(&*self.kind, "text" | "thinking")
            || !self.members.slots.iter().all(|(name, _)| **name == *"type" || **name == *self.kind)
        {
            return false;
        }
        match self.members.get(&self.kind) {
            None => true,
            Some(Slot::Joined(joined)) => joined.text.is_empty(),
            Some(Slot::Parts(inner)) => inner.parts.iter().all(Part::is_empty),
            Some(Slot::Leaf(leaf)) => matches!(&*leaf.raw, "null" | "false" | "\"\"" | "[]" | "0") || leaf.is_zero(),
            Some(Slot::Members(members)) => members.slots.is_empty(),
            Some(_) => false,
        }
    }
}

/// `refusal`: joined text, or null.
#[derive(Debug, Default)]
pub(crate) struct Refusal {
    pub text: Option<Text>,
}

impl Refusal {
    pub fn put(&mut self, value: Value<'_>, ledger: &mut Ledger) -> u32 {
        if value.is_null() {
            return 0;
        }
        if !value.is_string() {
            ledger.note("ignored-value", 1);
            return 0;
        }
        let kept = match &mut self.text {
            Some(text) => text.add(value, ledger),
            None => {
                let mut text = Text::default();
                let kept = text.add(value, ledger);
                self.text = kept.then_some(text);
                kept
            }
        };
        if kept && value.says() { seen::REFUSAL } else { 0 }
    }
}

/// `reasoning_details`: by (type, index), else joined to the previous entry of the same type and id until that is signed.
/// Where one of the two has no type the index alone decides.
#[derive(Debug, Default)]
pub(crate) struct Details {
    indexed: Vec<Detail>,
    others: Vec<Members>,
    pub listed: bool,
}

#[derive(Debug)]
struct Detail {
    kind: String,
    index: u64,
    members: Members,
}

impl Details {
    pub fn put(&mut self, value: Value<'_>, ledger: &mut Ledger) -> u32 {
        if value.is_null() {
            return 0;
        }
        if !value.is_array() {
            ledger.note("ignored-value", 1);
            return 0;
        }
        self.listed = true;
        let mut seen = 0;
        for entry in value.items() {
            if ledger.over {
                break;
            }
            if entry.is_object() {
                seen |= self.find(entry, ledger).map_or(0, |detail| merge_detail(detail, entry, ledger));
            } else if !entry.is_null() {
                ledger.note("ignored-value", 1);
            }
        }
        seen
    }

    fn find(&mut self, entry: Value<'_>, ledger: &mut Ledger) -> Option<&mut Members> {
        let kind = entry.get("type").map(Value::string).unwrap_or_default();
        if let Some(index) = entry.get("index").and_then(Value::index) {
            // Sorted by index, then arrival; a stream brings them in order, so the search begins at the end.
            let after = self.indexed.iter().rposition(|d| d.index <= index).map_or(0, |at| at + 1);
            let same = self.indexed[..after].iter().rev().take_while(|d| d.index == index);
            let fits = |known: &String| *known == kind || kind.is_empty() || known.is_empty();
            if let Some(back) = same.map(|d| &d.kind).position(fits) {
                let detail = &mut self.indexed[after - 1 - back];
                if detail.kind.is_empty() {
                    detail.kind = kind.into_owned();
                }
                return Some(&mut detail.members);
            }
            if !ledger.room(2, 0) {
                return None;
            }
            self.indexed.insert(after, Detail { kind: kind.into_owned(), index, members: Members::new(&DETAIL) });
            return Some(&mut self.indexed[after].members);
        }
        let id = entry.get("id").map(Value::string).unwrap_or_default();
        let continues = self.others.last().is_some_and(|last| {
            last.text_of("type") == kind && last.text_of("id") == id && last.text_of("signature").is_empty()
        });
        if !continues {
            if !ledger.room(2, 0) {
                return None;
            }
            self.others.push(Members::new(&DETAIL));
        }
        self.others.last_mut()
    }

    /// The entry that an entry of a chunk belongs to, and its position, if finding it changes nothing.
    pub fn settled(&self, entry: Value<'_>) -> Option<(u32, &Members)> {
        let kind = entry.get("type").map(Value::string).unwrap_or_default();
        if let Some(index) = entry.get("index").and_then(Value::index) {
            let at = self.indexed.iter().rposition(|d| d.index == index && (kind.is_empty() || d.kind == kind))?;
            return Some((at as u32, &self.indexed[at].members));
        }
        let id = entry.get("id").map(Value::string).unwrap_or_default();
        let last = self.others.last().filter(|last| last.text_of("type") == kind && last.text_of("id") == id)?;
        let at = self.indexed.len() + self.others.len() - 1;
        last.text_of("signature").is_empty().then_some((at as u32, last))
    }

    /// The entry at a position that [`Details::settled`] gave.
    pub fn at_mut(&mut self, at: u32) -> Option<&mut Members> {
        let at = at as usize;
        match at.checked_sub(self.indexed.len()) {
            None => Some(&mut self.indexed[at].members),
            Some(at) => self.others.get_mut(at),
        }
    }

    pub fn sorted(&self) -> impl Iterator<Item = &Members> {
        self.indexed.iter().map(|detail| &detail.members).chain(&self.others)
    }

    pub fn texts(&self) -> Vec<&Text> {
        let names = ["text", "summary"];
        let slots = self.sorted().flat_map(|detail| names.map(|name| detail.get(name)));
        slots.filter_map(|slot| if let Some(Slot::Joined(joined)) = slot { Some(&joined.text) } else { None }).collect()
    }
}

fn merge_detail(detail: &mut Members, entry: Value<'_>, ledger: &mut Ledger) -> u32 {
    let mut seen = 0;
    for (name, member) in entry.members() {
        let first = matches!(&*name, "type" | "id" | "format");
        if first && member.is_string() && !detail.text_of(&name).is_empty() {
            continue;
        }
        if detail.put(&name, member, ledger) && DETAIL.always.contains(&&*name) {
            seen = seen::REASONING;
        }
    }
    seen
}

/// `audio`: id first, data and transcript joined, the rest last.
#[derive(Debug, Default)]
pub(crate) struct Audio {
    pub members: Option<Members>,
}

impl Audio {
    pub fn put(&mut self, value: Value<'_>, ledger: &mut Ledger) -> u32 {
        if value.is_null() {
            return 0;
        }
        if !value.is_object() {
            ledger.note("ignored-value", 1);
            return 0;
        }
        let members = self.members.get_or_insert_with(|| Members::new(&SOUND));
        let mut seen = 0;
        for (name, member) in value.members() {
            if name == "id" && member.is_string() && !members.text_of("id").is_empty() {
                continue;
            }
            let padded =
                name == "data" && matches!(members.get("data"), Some(Slot::Joined(j)) if j.text.ends_with(b'='));
            if members.put(&name, member, ledger) {
                seen = seen::AUDIO;
                if name == "data" && member.is_string() {
                    let data = member.string();
                    if padded && !data.starts_with('=') || data.trim_end_matches('=').contains('=') {
                        ledger.note("recoded-audio", 1);
                    }
                }
            }
        }
        seen
    }
}

/// Base64 of all segments together, where padding stood inside; `data` itself when a segment does not decode.
pub(crate) fn recoded(data: &str) -> Option<String> {
    if !data.trim_end_matches('=').contains('=') {
        return None;
    }
    let mut decoded = Vec::new();
    let mut rest = data;
    while !rest.is_empty() {
        let digits = rest.find('=').unwrap_or(rest.len());
        let end = rest[digits..].find(|c| c != '=').map_or(rest.len(), |more| digits + more);
        decode_segment(&rest[..digits], end - digits, &mut decoded)?;
        rest = &rest[end..];
    }
    Some(encode(&decoded))
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn decode_segment(digits: &str, padding: usize, out: &mut Vec<u8>) -> Option<()> {
    if padding > 2 || !(digits.len() + padding).is_multiple_of(4) {
        return None;
    }
    for quad in digits.as_bytes().chunks(4) {
        let mut bits = 0u32;
        for &digit in quad {
            let value = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(value);
        }
        bits <<= 6 * (4 - quad.len());
        out.extend_from_slice(&bits.to_be_bytes()[1..quad.len()]);
    }
    Some(())
}

fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for triple in bytes.chunks(3) {
        let bits = triple.iter().enumerate().fold(0u32, |bits, (at, &byte)| bits | u32::from(byte) << (16 - 8 * at));
        for at in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * at) & 63) as usize];
            out.push(if at <= triple.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

/// Reasoning strings of a message, and their order when one of them is asked for.
pub(crate) const REASONING: &[&str] = &["reasoning_content", "reasoning", "reasoning_text", "thinking"];
pub(crate) static MESSAGE: Policy = Policy { joins: DELTA.joins, last: LAST, always: REASONING };
