//! Usage: leaf by leaf the last value that is not null; never summed, recomputed or estimated.
//!
//! Three places can report it: the chunk (`usage`), a choice, and `x_groq`. Each has a [`Usage`]; which one is the
//! answer is decided when somebody reads.
use crate::chunk::Value;
use crate::json::{Kind, write_float};
use crate::ledger::Ledger;
use crate::tree::{Leaf, Members, OVERLAY, Slot};

const COUNTS: [&str; 3] = ["prompt_tokens", "completion_tokens", "total_tokens"];
const DETAILS: [(&str, &[&str]); 2] = [
    ("prompt_tokens_details", &["cached_tokens", "cache_write_tokens", "audio_tokens", "image_tokens", "text_tokens"]),
    (
        "completion_tokens_details",
        &[
            "reasoning_tokens",
            "audio_tokens",
            "text_tokens",
            "accepted_prediction_tokens",
            "rejected_prediction_tokens",
        ],
    ),
];
/// Digits of a number that is still followed past `max_retained_bytes`.
const LONGEST_COUNT: usize = 64;
const NAME: usize = "usage".len();
const NULL: usize = "null".len();

/// What one place reported.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    pub members: Option<Members>,
    pub null: bool,
}

impl Usage {
    /// The chunk's own usage: booked, null kept apart. True when something other than null came.
    pub fn put(&mut self, value: Value<'_>, ledger: &mut Ledger) -> bool {
        if value.is_null() {
            if self.members.is_none() && !self.null {
                self.null = ledger.room(NAME + NULL, 0);
            }
            return false;
        }
        if !value.is_object() {
            ledger.note("ignored-value", 1);
            return false;
        }
        if ledger.over {
            return self.follow(value);
        }
        if self.members.is_none() {
            if !ledger.room(NAME + 2, if self.null { NAME + NULL } else { 0 }) {
                return false;
            }
            self.members = Some(Members::new(&OVERLAY));
        }
        let zeros = all_zero(value);
        if let Some(members) = &mut self.members
            && overlay(members, value, ledger, zeros)
        {
            ledger.note("zero-usage", 1);
        }
        speaks(value)
    }

    /// A copy of usage that a choice or another member holds, which is where it is booked.
    pub fn copy(&mut self, value: Value<'_>, ledger: &mut Ledger) -> bool {
        if ledger.over {
            return self.follow(value);
        }
        let mut unbooked = Ledger::new(ledger.limits);
        let zeros = all_zero(value);
        let members = self.members.get_or_insert_with(|| Members::new(&OVERLAY));
        if overlay(members, value, &mut unbooked, zeros) {
            ledger.note("zero-usage", 1);
        }
        speaks(value)
    }

    /// Past a limit: the numbers of OpenAI's own members, and nothing else.
    pub fn follow(&mut self, value: Value<'_>) -> bool {
        let zeros = all_zero(value);
        let mut kept = false;
        for name in COUNTS {
            if let Some(number) = value.get(name).and_then(short_number) {
                let members = self.members.get_or_insert_with(|| Members::new(&OVERLAY));
                follow_number(members, name, number, zeros);
                kept = true;
            }
        }
        for (parent, names) in DETAILS {
            let Some(details) = value.get(parent) else { continue };
            for &name in names {
                let Some(number) = details.get(name).and_then(short_number) else { continue };
                let members = self.members.get_or_insert_with(|| Members::new(&OVERLAY));
                if !matches!(members.get(parent), Some(Slot::Members(_))) {
                    let inner = Slot::Members(Box::new(Members::new(&OVERLAY)));
                    match members.get_mut(parent) {
                        Some(held) => *held = inner,
                        None => drop(members.insert(parent, inner)),
                    }
                }
                if let Some(Slot::Members(inner)) = members.get_mut(parent) {
                    follow_number(inner, name, number, zeros);
                }
                kept = true;
            }
        }
        kept
    }

    /// A number other than zero came.
    fn counts(&self) -> bool {
        self.members.as_ref().is_some_and(counts)
    }
}

/// All of `value`; where it is all `zeros`, without the leaves that are counts already. True when there was one.
fn overlay(members: &mut Members, value: Value<'_>, ledger: &mut Ledger, zeros: bool) -> bool {
    let mut protected = false;
    for (name, member) in value.members() {
        match members.get_mut(&name) {
            Some(Slot::Members(inner)) if member.is_object() => protected |= overlay(inner, member, ledger, zeros),
            Some(held) if zeros && (member.is_number() || member.is_object() && member.says()) && counted(held) => {
                protected = true;
            }
            _ => drop(members.put(&name, member, ledger)),
        }
    }
    protected
}

/// A number of at most 64 digits, as Python spells it.
fn short_number(value: Value<'_>) -> Option<String> {
    match value.kind() {
        Kind::Int => {
            let digits = value.slice();
            (digits.trim_start_matches('-').len() <= LONGEST_COUNT).then(|| digits.into())
        }
        Kind::Float | Kind::NonFinite => {
            let number = value.node().number(value.text);
            let mut text = String::new();
            if number.is_finite() {
                write_float(number, &mut text);
            } else {
                text.push_str(if number.is_nan() {
                    "NaN"
                } else if number > 0.0 {
                    "Infinity"
                } else {
                    "-Infinity"
                });
            }
            Some(text)
        }
        _ => None,
    }
}

fn follow_number(members: &mut Members, name: &str, raw: String, zeros: bool) {
    let leaf = Leaf { raw, flags: crate::json::RAW, nbytes: 0 };
    match members.get_mut(name) {
        Some(Slot::Leaf(held)) if zeros && held.is_count() => {}
        Some(held) => *held = Slot::Leaf(leaf),
        None => drop(members.insert(name, Slot::Leaf(leaf))),
    }
}

/// It holds numbers, at any depth of objects, and all of them are zero.
fn all_zero(value: Value<'_>) -> bool {
    fn census(value: Value<'_>, numbers: &mut usize) -> bool {
        value.members().all(|(_, member)| {
            if member.is_number() {
                *numbers += 1;
                return !member.is_count();
            }
            !member.is_object() || census(member, numbers)
        })
    }
    let mut numbers = 0;
    census(value, &mut numbers) && numbers > 0
}

/// A leaf is there that is not null.
fn speaks(value: Value<'_>) -> bool {
    value.members().any(|(_, member)| if member.is_object() { speaks(member) } else { !member.is_null() })
}

fn counts(members: &Members) -> bool {
    members.slots.iter().any(|(_, slot)| counted(slot))
}

/// A count, or an object with one.
fn counted(slot: &Slot) -> bool {
    match slot {
        Slot::Leaf(leaf) => leaf.is_count(),
        Slot::Members(inner) => counts(inner),
        _ => false,
    }
}

/// The usage of a stream and where it came from; a source of zeros only gives way to a lower one with counts.
pub(crate) fn choose<'a>(top: &'a Usage, choice: &'a Usage, groq: &'a Usage) -> (Option<&'a Members>, &'static str) {
    let sources = [(top, "reported"), (choice, "choice"), (groq, "x_groq")];
    let best = sources.iter().find(|(usage, _)| usage.counts());
    let any = || sources.iter().find(|(usage, _)| usage.members.as_ref().is_some_and(|m| !m.slots.is_empty()));
    match best.or_else(any) {
        Some((usage, name)) => (usage.members.as_ref(), name),
        None => (top.members.as_ref(), "none"),
    }
}
