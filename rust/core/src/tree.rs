//! Members without a rule of their own.
//!
//! Two kinds of objects grow here. [`Members`] of the top level, of a choice and of usage *overlay*: the last value that
//! says something stays, objects member by member, lists are replaced. Those of a delta or a tool call *join*: strings
//! are fragments unless they were the same every time, lists extend. Null, absent and empty never erase, in either.
use crate::calls::{Calls, FunctionCall};
use crate::chunk::{Value, lone_halves};
use crate::json::{ESCAPED, HALF, Kind, Piece, RAW, Tape, fingerprint, unescape, write_readable};
use crate::ledger::Ledger;
use crate::message::{Audio, Content, Details, Parts, Refusal};
use crate::text::Text;
use std::collections::{BTreeMap, HashMap};

/// How the members of an object grow.
#[derive(Debug)]
pub(crate) struct Policy {
    /// Strings are fragments and lists extend.
    pub joins: bool,
    /// Strings that never join.
    pub last: &'static [&'static str],
    /// Strings that join even if they are the same every time.
    pub always: &'static [&'static str],
}

pub(crate) const LAST: &[&str] = &["id", "type", "name", "channel", "format", "status"];
pub(crate) static OVERLAY: Policy = Policy { joins: false, last: &[], always: &[] };
pub(crate) static DELTA: Policy = Policy { joins: true, last: LAST, always: &[] };

impl Policy {
    fn fragments(&self, name: &str) -> bool {
        self.always.contains(&name) || self.joins && !self.last.contains(&name)
    }

    fn inner(&self) -> &'static Policy {
        if self.joins { &DELTA } else { &OVERLAY }
    }
}

/// What one name holds.
#[derive(Debug)]
pub(crate) enum Slot {
    Leaf(Leaf),
    Joined(Joined),
    Extend(Extend),
    Entries(Box<Entries>),
    Members(Box<Members>),
    Parts(Box<Parts>),
    Content(Box<Content>),
    Refusal(Box<Refusal>),
    Details(Box<Details>),
    Calls(Box<Calls>),
    FunctionCall(Box<FunctionCall>),
    Audio(Box<Audio>),
}

impl Slot {
    pub fn is_null(&self) -> bool {
        matches!(self, Slot::Leaf(leaf) if leaf.raw == "null")
    }

    /// Retained bytes, without those of the name.
    pub fn size(&self) -> usize {
        match self {
            Slot::Leaf(leaf) => leaf.nbytes,
            Slot::Joined(joined) => joined.text.nbytes(),
            Slot::Extend(list) => list.nbytes,
            Slot::Entries(entries) => entries.size(),
            Slot::Members(members) => members.size(),
            Slot::Parts(parts) => parts.size(),
            _ => 0,
        }
    }

    fn category(&self) -> u8 {
        match self {
            Slot::Leaf(leaf) => match leaf.raw.as_bytes().first() {
                Some(b'n') => 0,
                Some(b't' | b'f') => 1,
                Some(b'"') => 3,
                Some(b'[') => 4,
                Some(b'{') => 5,
                _ => 2,
            },
            Slot::Joined(_) => 3,
            Slot::Entries(_) => 4,
            _ => 5,
        }
    }

    /// Surrogate halves that wait in a slot that is about to go.
    fn waiting(&self) -> usize {
        match self {
            Slot::Joined(joined) => usize::from(joined.text.half()),
            Slot::Members(members) => members.slots.iter().map(|(_, slot)| slot.waiting()).sum(),
            Slot::Entries(entries) => {
                entries.indexed.values().flat_map(|e| &e.slots).map(|(_, slot)| slot.waiting()).sum()
            }
            _ => 0,
        }
    }
}

/// A value kept whole, as compact JSON text.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub raw: String,
    pub flags: u8,
    pub nbytes: usize,
}

impl Leaf {
    pub fn new(value: Value<'_>) -> Self {
        let raw = value.raw();
        Self { nbytes: raw.len(), flags: value.node().flags, raw }
    }

    pub fn is_number(&self) -> bool {
        matches!(self.raw.as_bytes().first(), Some(b'0'..=b'9' | b'-' | b'N' | b'I'))
    }

    /// A number equal to zero.
    pub fn is_zero(&self) -> bool {
        matches!(self.raw.as_bytes().first(), Some(b'0'..=b'9' | b'-')) && !self.is_count()
    }

    pub fn is_count(&self) -> bool {
        let digits = self.raw.trim_start_matches('-');
        match digits.as_bytes().first() {
            Some(b'N' | b'I') => true,
            Some(b'0'..=b'9') => digits.parse::<f64>().is_ok_and(|number| number != 0.0),
            _ => false,
        }
    }
}

/// A string in fragments; the same one every time is a constant, unless it always joins.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    pub text: Text,
    always: bool,
    /// The first fragment, raw, as long as no other one came.
    first: Option<Box<str>>,
    repeats: usize,
    varied: bool,
}

impl Joined {
    pub fn new(always: bool) -> Self {
        Self { always, ..Self::default() }
    }

    pub fn of(text: Text) -> Self {
        Self { text, always: true, ..Self::default() }
    }

    pub fn add(&mut self, fragment: Value<'_>, ledger: &mut Ledger) -> bool {
        if self.always || self.varied {
            return if fragment.is_empty() { !ledger.over } else { self.text.add(fragment, ledger) };
        }
        let Some(first) = &self.first else {
            let kept = self.text.add(fragment, ledger);
            if kept && !fragment.is_empty() {
                self.first = Some(fragment.slice().into());
            }
            return kept;
        };
        if same_string(first, fragment.slice()) {
            self.repeats += 1;
            return !ledger.over;
        }
        if fragment.is_empty() {
            return !ledger.over;
        }
        let kept = self.text.add_raw(&[(first, self.repeats), (fragment.slice(), 1)], ledger);
        if kept {
            self.varied = true;
            self.first = None;
        }
        kept
    }
}

/// Whether two raw strings spell the same value, lone surrogate halves included.
fn same_string(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    if !a.contains('\\') && !b.contains('\\') {
        return false;
    }
    let units = |raw: &str| {
        let mut units: Vec<u16> = Vec::new();
        unescape(raw, |piece| match piece {
            Piece::Run(run) => units.extend(run.encode_utf16()),
            Piece::Char(char) => units.extend(char.encode_utf16(&mut [0; 2]).iter()),
            Piece::Half(half) => units.push(half),
        });
        units
    };
    units(a) == units(b)
}

/// A list that extends; entries are kept whole, as canonical JSON texts with commas between.
#[derive(Debug, Default)]
pub(crate) struct Extend {
    pub text: String,
    /// [`RAW`] when a number is not finite: the text has a word for it.
    pub flags: u8,
    pub nbytes: usize,
    pub len: usize,
}

impl Extend {
    /// Shows the entries one by one.
    pub fn each(&self, mut on: impl FnMut(&str)) {
        let text = format!("[{}]", self.text);
        let mut tape = Tape::new();
        if tape.parse(&text, usize::MAX).is_ok() {
            let root = Value { tape: &tape, text: &text, at: 0 };
            root.items().for_each(|item| on(&item.raw()));
        }
    }

    /// True when an entry was kept.
    pub fn add(&mut self, values: Value<'_>, ledger: &mut Ledger) -> bool {
        let before = self.len;
        for value in values.items() {
            if !self.append(value, ledger) {
                break;
            }
        }
        self.len > before
    }

    #[inline]
    pub fn append(&mut self, value: Value<'_>, ledger: &mut Ledger) -> bool {
        let nbytes = value.size();
        if !ledger.room(nbytes, 0) {
            return false;
        }
        if self.len > 0 {
            self.text.push(',');
        }
        if value.node().flags & (ESCAPED | HALF | RAW) == 0 {
            value.push_raw(&mut self.text);
        } else {
            if write_readable(value.tape, value.text, value.at, &mut self.text) {
                self.flags |= RAW;
            }
            note_halves(value, ledger);
        }
        self.nbytes += nbytes;
        self.len += 1;
        true
    }
}

/// A list of a delta: entries with an index merge by it, others extend, whole repeats of earlier chunks stay out.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub indexed: BTreeMap<u64, Members>,
    pub others: Extend,
    /// Fingerprint of an object → the chunk that brought it first.
    known: HashMap<u128, u64>,
}

impl Entries {
    pub fn add(&mut self, values: Value<'_>, ledger: &mut Ledger) -> bool {
        let mut kept = false;
        for value in values.items() {
            if ledger.over {
                break;
            }
            if !value.is_object() {
                kept |= self.others.append(value, ledger);
                continue;
            }
            if let Some(index) = value.get("index").and_then(Value::index) {
                kept |= self.merge(index, value, ledger);
                continue;
            }
            let fingerprint = fingerprint(value.tape, value.text, value.at, &ledger.state);
            let first = self.known.get(&fingerprint).copied();
            if first.is_none_or(|chunk| chunk == ledger.chunk) && self.others.append(value, ledger) {
                self.known.entry(fingerprint).or_insert(ledger.chunk);
                kept = true;
            }
        }
        kept
    }

    fn merge(&mut self, index: u64, value: Value<'_>, ledger: &mut Ledger) -> bool {
        if !self.indexed.contains_key(&index) && !ledger.room(2, 0) {
            return false;
        }
        self.indexed.entry(index).or_insert_with(|| Members::new(&DELTA)).merge(value, ledger)
    }

    fn size(&self) -> usize {
        self.indexed.values().map(Members::size).sum::<usize>() + self.others.nbytes
    }
}

/// Members up to which a name is found by comparing.
const FEW: usize = 12;

/// An object that grows; names in order of first arrival.
#[derive(Debug)]
pub(crate) struct Members {
    policy: &'static Policy,
    pub slots: Vec<(Box<str>, Slot)>,
    places: HashMap<Box<str>, usize>,
}

impl Members {
    pub fn new(policy: &'static Policy) -> Self {
        Self { policy, slots: Vec::new(), places: HashMap::new() }
    }

    #[inline]
    pub fn find(&self, name: &str) -> Option<usize> {
        if self.slots.len() <= FEW {
            self.slots.iter().position(|(known, _)| **known == *name)
        } else {
            self.places.get(name).copied()
        }
    }

    #[inline]
    pub fn get(&self, name: &str) -> Option<&Slot> {
        self.find(name).map(|at| &self.slots[at].1)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Slot> {
        self.find(name).map(|at| &mut self.slots[at].1)
    }

    /// Adds a slot under a new name.
    pub fn insert(&mut self, name: &str, slot: Slot) -> &mut Slot {
        self.slots.push((name.into(), slot));
        if self.slots.len() == FEW + 1 {
            self.places = self.slots.iter().enumerate().map(|(at, (name, _))| (name.clone(), at)).collect();
        } else if self.slots.len() > FEW {
            self.places.insert(name.into(), self.slots.len() - 1);
        }
        let last = self.slots.len() - 1;
        &mut self.slots[last].1
    }

    /// Every member of `value`; true when one of them said something.
    pub fn merge(&mut self, value: Value<'_>, ledger: &mut Ledger) -> bool {
        let mut kept = false;
        for (name, member) in value.members() {
            kept |= self.put(&name, member, ledger);
        }
        kept
    }

    /// One member; true when it was kept and is neither null nor empty.
    pub fn put(&mut self, name: &str, value: Value<'_>, ledger: &mut Ledger) -> bool {
        let Some(at) = self.find(name) else {
            return self.put_first(name, value, ledger);
        };
        let policy = self.policy;
        let held = &mut self.slots[at].1;
        if value.is_null() || value.is_empty() && !held.is_null() {
            return false;
        }
        match value.kind() {
            Kind::Object => {
                if let Slot::Members(members) = held {
                    return members.merge(value, ledger);
                }
                let members = Slot::Members(Box::new(Members::new(policy.inner())));
                if !replace(policy, held, members, 2, ledger) {
                    return false;
                }
                if let Slot::Members(members) = held {
                    members.merge(value, ledger);
                }
                value.says()
            }
            Kind::Array if policy.joins => {
                if let Slot::Entries(entries) = held {
                    return entries.add(value, ledger);
                }
                if !replace(policy, held, Slot::Entries(Box::default()), 0, ledger) {
                    return false;
                }
                if let Slot::Entries(entries) = held {
                    entries.add(value, ledger);
                }
                value.says()
            }
            Kind::String if policy.fragments(name) => {
                if let Slot::Joined(joined) = held {
                    return joined.add(value, ledger) && value.says();
                }
                to_string(policy, name, held, value, ledger) && value.says()
            }
            _ => {
                if let Slot::Leaf(leaf) = held
                    && value.node().flags & HALF == 0
                    && same_type(leaf, value)
                {
                    if !ledger.room(value.size(), leaf.nbytes) {
                        return false;
                    }
                    leaf.raw.clear();
                    value.push_raw(&mut leaf.raw);
                    leaf.nbytes = leaf.raw.len();
                    leaf.flags = value.node().flags;
                    return true;
                }
                let nbytes = value.size();
                replace(policy, held, Slot::Leaf(Leaf::new(value)), nbytes, ledger) && {
                    note_halves(value, ledger);
                    true
                }
            }
        }
    }

    fn put_first(&mut self, name: &str, value: Value<'_>, ledger: &mut Ledger) -> bool {
        let policy = self.policy;
        match value.kind() {
            Kind::Object => {
                if !ledger.room(name.len() + 2, 0) {
                    return false;
                }
                let slot = self.insert(name, Slot::Members(Box::new(Members::new(policy.inner()))));
                if let Slot::Members(members) = slot {
                    members.merge(value, ledger);
                }
            }
            Kind::Array if policy.joins => {
                if !ledger.room(name.len(), 0) {
                    return false;
                }
                if let Slot::Entries(entries) = self.insert(name, Slot::Entries(Box::default())) {
                    entries.add(value, ledger);
                }
            }
            Kind::String if policy.fragments(name) => {
                if !ledger.room(name.len(), 0) {
                    return false;
                }
                let joined = Joined::new(policy.always.contains(&name));
                if let Slot::Joined(joined) = self.insert(name, Slot::Joined(joined)) {
                    return joined.add(value, ledger) && value.says();
                }
            }
            _ => {
                if !ledger.room(name.len() + value.size(), 0) {
                    return false;
                }
                note_halves(value, ledger);
                self.insert(name, Slot::Leaf(Leaf::new(value)));
            }
        }
        value.says()
    }

    /// Retained bytes.
    pub fn size(&self) -> usize {
        2 + self.slots.iter().map(|(name, slot)| name.len() + slot.size()).sum::<usize>()
    }

    /// The string that a member holds, else nothing.
    pub fn text_of(&self, name: &str) -> String {
        let mut text = String::new();
        match self.get(name) {
            Some(Slot::Joined(joined)) => joined.text.push_to(&mut text),
            Some(Slot::Leaf(leaf)) => push_leaf_string(leaf, &mut text),
            _ => {}
        }
        text
    }
}

/// Another value in the place of `held`: booked as the difference.
pub(crate) fn replace(policy: &Policy, held: &mut Slot, slot: Slot, nbytes: usize, ledger: &mut Ledger) -> bool {
    if !ledger.room(nbytes, held.size()) {
        return false;
    }
    swap(policy, held, slot, ledger);
    true
}

fn swap(policy: &Policy, held: &mut Slot, slot: Slot, ledger: &mut Ledger) {
    if policy.joins && !held.is_null() && held.category() != slot.category() {
        ledger.note("changed-type", 1);
    }
    ledger.halves -= held.waiting();
    *held = slot;
}

/// A first string in the place of something else; `held` stays when it does not fit.
fn to_string(policy: &Policy, name: &str, held: &mut Slot, fragment: Value<'_>, ledger: &mut Ledger) -> bool {
    let size = held.size();
    if !ledger.room(0, size) {
        return false;
    }
    let mut joined = Joined::new(policy.always.contains(&name));
    if !joined.add(fragment, ledger) {
        ledger.retained += size;
        return false;
    }
    swap(policy, held, Slot::Joined(joined), ledger);
    true
}

fn same_type(leaf: &Leaf, value: Value<'_>) -> bool {
    leaf.is_number() && value.is_number() || value.is_string() && leaf.raw.starts_with('"')
}

/// The value of a leaf that is a string.
pub(crate) fn push_leaf_string(leaf: &Leaf, out: &mut String) {
    if let Some(raw) = leaf.raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"')) {
        if leaf.flags & ESCAPED == 0 {
            out.push_str(raw);
        } else {
            unescape(raw, |piece| match piece {
                Piece::Run(run) => out.push_str(run),
                Piece::Char(char) => out.push(char),
                Piece::Half(_) => out.push('\u{fffd}'),
            });
        }
    }
}

/// A whole value that is kept: its lone surrogate halves become U+FFFD and are counted.
#[inline]
pub(crate) fn note_halves(value: Value<'_>, ledger: &mut Ledger) {
    if value.node().flags & HALF != 0 {
        let halves = if value.is_string() { lone_halves(value.slice()) } else { value.halves() };
        if halves > 0 {
            ledger.note("lone-surrogate", halves);
        }
    }
}
