//! Chunks → one completion. Knows no bytes.
//!
//! Each member follows its rule; one without a rule of its own is kept by [`crate::tree`].
use crate::calls::{Call, Calls, FunctionCall};
use crate::chunk::Value;
use crate::json::{Kind, MAX_INTEGER_DIGITS};
use crate::ledger::{ErrorKind, Ledger, seen};
use crate::message::{Choosy, Details, MESSAGE, REASONING};
use crate::text::Text;
use crate::tree::{Extend, Joined, Members, OVERLAY, Slot, note_halves, replace};
use crate::usage::Usage;
use std::collections::BTreeMap;

const FINISH_REASON: usize = "finish_reason".len();
/// Bytes of a finish reason that is still followed past `max_retained_bytes`.
const LONGEST_FINISH: usize = 64;

/// What the chunks of one stream have become.
#[derive(Debug)]
pub(crate) struct Completion {
    fold: bool,
    pub id: Choosy,
    pub model: Choosy,
    pub service_tier: Choosy,
    pub system_fingerprint: Choosy,
    pub created: Created,
    /// In order of index.
    pub choices: Vec<Choice>,
    pub others: Members,
    pub usage: Usage,
    pub choice_usage: Usage,
    pub groq_usage: Usage,
}

impl Completion {
    pub fn new(fold: bool) -> Self {
        Self {
            fold,
            id: Choosy::first(),
            model: Choosy::last(),
            service_tier: Choosy::last(),
            system_fingerprint: Choosy::last(),
            created: Created::default(),
            choices: Vec::new(),
            others: Members::new(&OVERLAY),
            usage: Usage::default(),
            choice_usage: Usage::default(),
            groq_usage: Usage::default(),
        }
    }

    /// One chunk; of one that `is_error` as a whole, the error's own members stay out.
    pub fn merge(&mut self, chunk: Value<'_>, is_error: bool, ledger: &mut Ledger) {
        ledger.chunk += 1;
        for (name, value) in chunk.members() {
            match &*name {
                "choices" => self.merge_choices(value, ledger),
                "usage" => {
                    if self.usage.put(value, ledger) {
                        ledger.seen |= seen::USAGE;
                    }
                }
                "id" => self.put_id(value, ledger),
                "model" => self.model.put("model", value, ledger),
                "system_fingerprint" => self.system_fingerprint.put("system_fingerprint", value, ledger),
                "service_tier" => self.service_tier.put("service_tier", value, ledger),
                "created" => self.created.put(value, ledger),
                "object" | "error" | "obfuscation" | "p" => {}
                "message" | "code" | "type" | "param" | "detail" | "status" if is_error => {}
                _ => {
                    self.others.put(&name, value, ledger);
                    if name == "x_groq"
                        && let Some(usage) = value.get("usage").filter(|usage| usage.is_object())
                        && self.groq_usage.copy(usage, ledger)
                    {
                        ledger.seen |= seen::USAGE;
                    }
                }
            }
        }
    }

    fn put_id(&mut self, value: Value<'_>, ledger: &mut Ledger) {
        let came = self.id.came();
        self.id.put("id", value, ledger);
        if came && value.is_string() && value.says() && self.id.value.as_deref() != Some(&*value.string()) {
            ledger.note("changed-id", 1);
        }
    }

    fn merge_choices(&mut self, value: Value<'_>, ledger: &mut Ledger) {
        if value.is_null() {
            return;
        }
        if !value.is_array() {
            ledger.note("ignored-value", 1);
            return;
        }
        for (position, entry) in value.items().enumerate() {
            if entry.is_object() {
                self.merge_choice(entry, position as u64, ledger);
            } else if !entry.is_null() {
                ledger.note("ignored-value", 1);
            }
        }
    }

    /// The index that an entry gives; with `fold` always 0.
    #[inline]
    pub fn index_of(&self, entry: Value<'_>) -> Option<u64> {
        if !entry.is_object() {
            return None;
        }
        if self.fold { Some(0) } else { entry.get("index").and_then(Value::index) }
    }

    fn merge_choice(&mut self, entry: Value<'_>, position: u64, ledger: &mut Ledger) {
        let mut index = self.index_of(entry);
        if index.is_none() {
            ledger.note("missing-choice-index", 1);
            index = Some(position);
        }
        let index = index.unwrap_or(position);
        let at = match self.choices.binary_search_by_key(&index, |choice| choice.index) {
            Ok(at) => at,
            Err(at) => {
                let limit = ledger.limits.max_choices;
                if self.choices.len() >= limit {
                    ledger.fail(ErrorKind::LimitExceeded, format!("more than max_choices={limit} in one stream"));
                    if let Some(usage) = entry.get("usage").filter(|usage| usage.is_object())
                        && self.choice_usage.follow(usage)
                    {
                        ledger.seen |= seen::USAGE;
                    }
                    return;
                }
                if self.choices.is_empty() {
                    self.choices.reserve_exact(1); // one is the rule
                }
                self.choices.insert(at, Choice::new(index));
                at
            }
        };
        self.choices[at].merge(entry, &mut self.choice_usage, ledger);
    }

    /// There is a choice, and every choice has its finish reason.
    pub fn is_finished(&self) -> bool {
        !self.choices.is_empty() && self.choices.iter().all(|choice| choice.finish_reason.is_some())
    }

    pub fn choice(&self, index: u64) -> Option<&Choice> {
        let at = self.choices.binary_search_by_key(&index, |choice| choice.index).ok()?;
        Some(&self.choices[at])
    }
}

/// `created`: the first that is not zero, as an integer.
#[derive(Debug, Default)]
pub(crate) struct Created {
    nbytes: usize,
    /// Digits; None for null.
    pub value: Option<String>,
}

impl Created {
    pub fn came(&self) -> bool {
        self.nbytes > 0
    }

    #[inline]
    fn put(&mut self, value: Value<'_>, ledger: &mut Ledger) {
        let settled = self.value.as_deref().is_some_and(|held| held != "0");
        if settled && value.kind() == Kind::Int || value.is_string() && value.is_empty() {
            return;
        }
        let (number, converted) = whole_number(value);
        if number.is_none() && !value.is_null() {
            ledger.note("ignored-value", 1);
            return;
        }
        let zero = number.as_deref().is_none_or(|digits| digits == "0");
        if settled || self.came() && (number.is_none() || self.value.is_some() && zero) {
            return;
        }
        let nbytes = "created".len() + value.size();
        if !ledger.room(nbytes, self.nbytes) {
            return;
        }
        if converted {
            ledger.note("converted-created", 1);
        }
        self.nbytes = nbytes;
        self.value = number;
    }
}

/// The digits of a number, and whether it had to be converted.
fn whole_number(value: Value<'_>) -> (Option<String>, bool) {
    match value.kind() {
        Kind::Int => (Some(if value.slice() == "-0" { "0".into() } else { value.slice().into() }), false),
        Kind::Float => {
            let number = value.node().number(value.text).trunc();
            let digits = number.is_finite().then(|| format!("{:.0}", if number == 0.0 { 0.0 } else { number }));
            (digits, true)
        }
        Kind::String => {
            let text = value.string();
            if text.is_empty() || text.len() > MAX_INTEGER_DIGITS || !text.bytes().all(|b| b.is_ascii_digit()) {
                return (None, false);
            }
            let digits = text.trim_start_matches('0');
            (Some(if digits.is_empty() { "0".into() } else { digits.into() }), true)
        }
        _ => (None, false),
    }
}

/// One choice and its message.
#[derive(Debug)]
pub(crate) struct Choice {
    pub index: u64,
    pub finish_reason: Option<String>,
    finish_nbytes: usize,
    pub role: Choosy,
    /// Its slots hold the members with rules of their own too, as they came.
    pub message: Members,
    pub logprobs: Option<Logprobs>,
    pub others: Members,
    pub had_delta: bool,
    /// A delta brought a string of content.
    pub delta_text: bool,
    /// Members that came with something in them in a delta.
    pub delta_names: Names,
    /// Likewise of the entry, where it had no message.
    names_beside: Names,
}

impl Choice {
    fn new(index: u64) -> Self {
        Self {
            index,
            finish_reason: None,
            finish_nbytes: 0,
            role: Choosy::first(),
            message: Members::new(&MESSAGE),
            logprobs: None,
            others: Members::new(&OVERLAY),
            had_delta: false,
            delta_text: false,
            delta_names: Names::default(),
            names_beside: Names::default(),
        }
    }

    /// One entry of `choices`. Its delta is read before its message, whatever their order.
    fn merge(&mut self, entry: Value<'_>, choice_usage: &mut Usage, ledger: &mut Ledger) {
        let mut message = None;
        let mut ignored = false;
        for (name, value) in entry.members() {
            match &*name {
                "delta" => {
                    if value.is_object() {
                        self.merge_delta(value, ledger);
                    } else if !value.is_null() {
                        ledger.note("ignored-value", 1);
                    }
                }
                "finish_reason" => self.finish(value, ledger),
                "index" | "error" => {}
                "message" => message = Some(value),
                "logprobs" if ledger.over => {}
                "logprobs" | "text" | "token_ids" => {
                    let beside = Beside::of(entry, self.had_delta);
                    ignored |= if name == "logprobs" {
                        self.logprobs.get_or_insert_with(Logprobs::default).put(value, ledger, beside)
                    } else if self.names_beside.has(&name, value, ledger, beside) {
                        value.says()
                    } else {
                        self.put_joining(&name, value, ledger);
                        false
                    };
                }
                _ => {
                    self.others.put(&name, value, ledger);
                    if name == "usage" && value.is_object() && choice_usage.copy(value, ledger) {
                        ledger.seen |= seen::USAGE;
                    }
                }
            }
        }
        if let Some(message) = message {
            if message.is_object() {
                ignored |= self.merge_message(message, ledger);
            } else if !message.is_null() {
                ledger.note("ignored-value", 1);
            }
        }
        if ignored {
            ledger.note("message-ignored", 1);
        }
    }

    fn merge_delta(&mut self, delta: Value<'_>, ledger: &mut Ledger) {
        self.had_delta = true;
        for (name, value) in delta.members() {
            if name == "content" && value.is_string() {
                self.delta_text = true;
            }
            if value.says() && !ledger.over {
                self.delta_names.insert(&name);
            }
            self.put(&name, value, ledger);
        }
    }

    /// A message is a piece; after a delta it adds only what the deltas lacked. True when something was left out.
    fn merge_message(&mut self, message: Value<'_>, ledger: &mut Ledger) -> bool {
        let mut ignored = false;
        for (name, value) in message.members() {
            if name == "content" && self.delta_text || self.delta_names.contains(&name) {
                ignored |= value.says();
            } else {
                self.put(&name, value, ledger);
            }
        }
        ignored
    }

    /// One member of a delta or a message.
    fn put(&mut self, name: &str, value: Value<'_>, ledger: &mut Ledger) {
        match name {
            "role" => return self.role.put(name, value, ledger),
            "obfuscation" => return,
            _ if ledger.over => return,
            "content" | "refusal" | "reasoning_details" | "tool_calls" | "function_call" | "audio" => {}
            _ => {
                if self.message.put(name, value, ledger) && REASONING.contains(&name) {
                    ledger.seen |= seen::REASONING;
                }
                return;
            }
        }
        if let Some(slot) = self.message.get_mut(name) {
            ledger.seen |= put_slot(slot, value, ledger);
            return;
        }
        let mut slot = match name {
            "content" => Slot::Content(Box::default()),
            "refusal" => Slot::Refusal(Box::default()),
            "reasoning_details" => Slot::Details(Box::default()),
            "tool_calls" => Slot::Calls(Box::default()),
            "function_call" => Slot::FunctionCall(Box::default()),
            _ => Slot::Audio(Box::default()),
        };
        ledger.seen |= put_slot(&mut slot, value, ledger);
        if !ledger.over {
            self.message.insert(name, slot);
        }
    }

    /// `text` joins, `token_ids` extends; in any other shape they are overlaid like the rest.
    fn put_joining(&mut self, name: &str, value: Value<'_>, ledger: &mut Ledger) {
        let fits = if name == "text" { value.is_string() } else { value.is_array() };
        if fits {
            let joins = name == "text";
            let slot = || if joins { Slot::Joined(Joined::new(true)) } else { Slot::Extend(Extend::default()) };
            match self.others.get_mut(name) {
                None if ledger.room(name.len(), 0) => {
                    self.others.insert(name, slot());
                }
                None | Some(Slot::Joined(_) | Slot::Extend(_)) => {}
                Some(held) if (held.is_null() || value.says()) && ledger.room(0, held.size()) => *held = slot(),
                Some(_) => {}
            }
        }
        match self.others.get_mut(name) {
            Some(Slot::Joined(joined)) if fits => drop(joined.add(value, ledger)),
            Some(Slot::Extend(list)) if fits => drop(list.add(value, ledger)),
            _ => drop(self.others.put(name, value, ledger)),
        }
    }

    /// The last reason that is not empty; a `stop` replaces no other. The text `null` is none.
    fn finish(&mut self, value: Value<'_>, ledger: &mut Ledger) {
        if no_reason(value) {
            return;
        }
        if !value.is_string() {
            ledger.note("ignored-value", 1);
            return;
        }
        ledger.seen |= seen::FINISH;
        let reason = value.string();
        if reason == "stop" && self.finish_reason.is_some() {
            return;
        }
        let nbytes = FINISH_REASON + value.size();
        if ledger.room(nbytes, self.finish_nbytes) {
            self.finish_nbytes = nbytes;
        } else if reason.len() > LONGEST_FINISH {
            return;
        }
        note_halves(value, ledger);
        self.finish_reason = Some(reason.into_owned());
    }

    /// The texts behind one member of the message; `content.thinking` are those of the thinking among the parts.
    pub fn texts(&self, name: &str) -> Vec<&Text> {
        if name == "content.thinking" {
            return match self.message.get("content") {
                Some(Slot::Content(content)) => {
                    content.parts.as_ref().map(|parts| parts.texts("thinking")).unwrap_or_default()
                }
                _ => Vec::new(),
            };
        }
        match self.message.get(name) {
            Some(Slot::Joined(joined)) => vec![&joined.text],
            Some(Slot::Content(content)) => content.texts(),
            Some(Slot::Refusal(refusal)) => refusal.text.iter().collect(),
            Some(Slot::Details(details)) => details.texts(),
            _ => Vec::new(),
        }
    }

    /// The first of the reasoning strings that is not empty, else the thinking parts, else the reasoning details.
    pub fn reasoning(&self) -> Vec<&Text> {
        let some = |texts: &Vec<&Text>| texts.iter().any(|text| !text.is_empty());
        let names = REASONING.iter().copied().chain(["content.thinking"]);
        names.map(|name| self.texts(name)).find(some).unwrap_or_else(|| self.texts("reasoning_details"))
    }

    /// The tool calls in the order of the result.
    pub fn calls(&self) -> Vec<&Call> {
        match self.message.get("tool_calls") {
            Some(Slot::Calls(calls)) => calls.sorted(),
            _ => Vec::new(),
        }
    }

    /// All that tool calls and the old function call are given.
    pub fn arguments(&self) -> Vec<&Text> {
        let mut texts: Vec<&Text> =
            self.calls().iter().flat_map(|call| call.functions()).map(|f| &f.arguments.text).collect();
        if let Some(Slot::FunctionCall(call)) = self.message.get("function_call") {
            texts.extend(call.function.iter().map(|f| &f.arguments.text));
        }
        texts
    }
}

fn put_slot(slot: &mut Slot, value: Value<'_>, ledger: &mut Ledger) -> u32 {
    match slot {
        Slot::Content(content) => content.put(value, ledger),
        Slot::Refusal(refusal) => refusal.put(value, ledger),
        Slot::Details(details) => Details::put(details, value, ledger),
        Slot::Calls(calls) => Calls::put(calls, value, ledger),
        Slot::FunctionCall(call) => FunctionCall::put(call, value, ledger),
        Slot::Audio(audio) => audio.put(value, ledger),
        _ => 0,
    }
}

/// What a member of an entry stands beside.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// No message, or a delta.
    Delta,
    /// A message, and no delta has come.
    Message,
    /// A message behind deltas, which adds only what they lacked.
    LateMessage,
}

impl Beside {
    fn of(entry: Value<'_>, had_delta: bool) -> Self {
        let has = |name| entry.get(name).is_some_and(Value::is_object);
        match has("message") && !has("delta") {
            false => Self::Delta,
            true if had_delta => Self::LateMessage,
            true => Self::Message,
        }
    }
}

/// A set of names that is nearly always small.
#[derive(Debug, Default)]
pub(crate) struct Names {
    few: Vec<Box<str>>,
    many: BTreeMap<Box<str>, ()>,
}

impl Names {
    #[inline]
    pub fn contains(&self, name: &str) -> bool {
        self.few.iter().any(|known| **known == *name) || !self.many.is_empty() && self.many.contains_key(name)
    }

    /// Whether a late message's member is here already; one that stands beside no message is taken in.
    fn has(&mut self, name: &str, value: Value<'_>, ledger: &Ledger, beside: Beside) -> bool {
        if beside == Beside::Delta && value.says() && !ledger.over {
            self.insert(name);
        }
        beside == Beside::LateMessage && self.contains(name)
    }

    #[inline]
    fn insert(&mut self, name: &str) {
        if !self.contains(name) {
            if self.few.len() < 12 {
                self.few.push(name.into());
            } else {
                self.many.insert(name.into(), ());
            }
        }
    }
}

/// `logprobs`: lists extend, other members are overlaid; null, absent and empty are kept apart.
#[derive(Debug, Default)]
pub(crate) struct Logprobs {
    /// What came with something in it without a message; `""` for the entries.
    by_delta: Names,
    pub members: Option<Members>,
    /// Of a server that sends a list in the place of the object.
    pub entries: Option<Extend>,
}

impl Logprobs {
    /// True when members were left out because a delta had brought them.
    fn put(&mut self, value: Value<'_>, ledger: &mut Ledger, beside: Beside) -> bool {
        if value.is_null() {
            return false;
        }
        if value.is_array() {
            if self.by_delta.has("", value, ledger, beside) {
                return value.says();
            }
            if self.entries.get_or_insert_with(Extend::default).add(value, ledger) {
                ledger.seen |= seen::LOGPROBS;
            }
            return false;
        }
        if !value.is_object() {
            ledger.note("ignored-value", 1);
            return false;
        }
        let members = self.members.get_or_insert_with(|| Members::new(&OVERLAY));
        let mut ignored = false;
        for (name, member) in value.members() {
            if self.by_delta.has(&name, member, ledger, beside) {
                ignored |= member.says();
            } else if member.is_array() {
                extend(members, &name, member, ledger);
            } else {
                members.put(&name, member, ledger);
            }
        }
        ignored
    }
}

/// No finish reason: null, empty, or the text `null`.
pub(crate) fn no_reason(value: Value<'_>) -> bool {
    value.is_null() || value.is_string() && matches!(&*value.string(), "" | "null")
}

fn extend(members: &mut Members, name: &str, values: Value<'_>, ledger: &mut Ledger) {
    let slot = match members.find(name) {
        Some(at) => &mut members.slots[at].1,
        None if ledger.room(name.len(), 0) => members.insert(name, Slot::Extend(Extend::default())),
        None => return,
    };
    if !matches!(slot, Slot::Extend(_)) && !replace(&OVERLAY, slot, Slot::Extend(Extend::default()), 0, ledger) {
        return;
    }
    if let Slot::Extend(list) = slot
        && list.add(values, ledger)
    {
        ledger.seen |= seen::LOGPROBS;
    }
}
