//! Tool calls: which call a fragment belongs to, and what a call is made of.
//!
//! Servers disagree on what identifies a call. [`Calls::find`] decides, in this order:
//!
//! ```text
//! known id                        that call
//! known index                     that call, unless the fragment plainly opens another one
//! no index                        a new id or another name opens a call, else the newest continues
//! unseen index, no id, no name    the newest call continues
//! otherwise                       a new call
//! ```
//!
//! A call past `max_tool_calls` is still followed, so that its fragments reach no other call, but nothing of it is kept.
use crate::chunk::Value;
use crate::json::{ESCAPED, Piece, unescape};
use crate::ledger::{ErrorKind, Ledger, seen};
use crate::text::Text;
use crate::tree::{DELTA, Members, note_halves};
use std::borrow::Cow;
use std::collections::HashMap;

/// The joined arguments (or input) of a call; knows whether they are a whole object.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    pub text: Text,
    /// Bytes so far, kept or not.
    pub length: usize,
    /// More than white space came.
    begun: bool,
    braced: bool,
    depth: isize,
    in_string: bool,
    escaped: bool,
}

impl Arguments {
    /// One fragment, or a whole value in the place of its JSON text; true when something came and was kept.
    pub fn put(&mut self, value: Value<'_>, ledger: &mut Ledger, keep: bool) -> bool {
        if value.is_null() || value.is_string() && value.is_empty() {
            return false;
        }
        if value.is_string() {
            let begins = first_byte(value) == Some(b'{');
            if self.is_bare() && begins {
                if keep && !self.restart(ledger, |text, ledger| text.add(value, ledger)) {
                    return false;
                }
                self.reset();
            } else if keep && !self.text.add(value, ledger) {
                return false;
            }
            if value.node().flags & ESCAPED == 0 {
                self.follow(value.slice().as_bytes());
            } else {
                self.follow_raw(value.slice());
            }
            return keep;
        }
        let raw = value.raw();
        if keep {
            ledger.note("object-arguments", 1);
        }
        if self.is_bare() && raw.starts_with('{') {
            if keep && !self.restart(ledger, |text, ledger| text.add_plain(&raw, ledger)) {
                return false;
            }
            self.reset();
        } else if keep && !self.text.add_plain(&raw, ledger) {
            return false;
        }
        self.follow(raw.as_bytes());
        keep
    }

    /// An object whose braces are balanced outside strings.
    pub fn is_whole(&self) -> bool {
        self.braced && self.depth == 0 && !self.in_string
    }

    /// Nothing but `{}`: perhaps a placeholder for arguments to come.
    pub fn is_bare(&self) -> bool {
        self.length == 2 && self.is_whole()
    }

    /// Appends UTF-8 for which there is room, behind arguments that are not bare.
    #[inline]
    pub fn append(&mut self, fragment: &[u8], ledger: &mut Ledger) {
        self.text.append(fragment, ledger);
        self.follow(fragment);
    }

    /// The same for a raw string without surrogate halves.
    pub fn append_raw(&mut self, raw: &str, ledger: &mut Ledger) {
        self.text.add_raw(&[(raw, 1)], ledger);
        self.follow_raw(raw);
    }

    /// The `{}` so far was a placeholder.
    fn restart(&mut self, ledger: &mut Ledger, add: impl FnOnce(&mut Text, &mut Ledger) -> bool) -> bool {
        if !ledger.room(0, 2) {
            return false;
        }
        let mut text = Text::default();
        if !add(&mut text, ledger) {
            ledger.retained += 2;
            return false;
        }
        ledger.note("placeholder-arguments", 1);
        self.text = text;
        true
    }

    fn reset(&mut self) {
        self.length = 0;
        self.begun = false;
        self.braced = false;
        self.depth = 0;
    }

    fn follow_raw(&mut self, raw: &str) {
        unescape(raw, |piece| match piece {
            Piece::Run(run) => self.follow(run.as_bytes()),
            Piece::Char(char) => self.follow(char.encode_utf8(&mut [0; 4]).as_bytes()),
            Piece::Half(_) => self.follow("\u{fffd}".as_bytes()),
        });
    }

    /// Follows the braces through text that was appended.
    fn follow(&mut self, fragment: &[u8]) {
        if !self.begun
            && let Some(&first) = fragment.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
        {
            self.begun = true;
            self.braced = first == b'{';
        }
        self.length += fragment.len();
        if !self.braced {
            return;
        }
        for &byte in fragment {
            if self.escaped {
                self.escaped = false;
            } else if self.in_string {
                match byte {
                    b'"' => self.in_string = false,
                    b'\\' => self.escaped = true,
                    _ => {}
                }
            } else {
                match byte {
                    b'"' => self.in_string = true,
                    b'{' => self.depth += 1,
                    b'}' => self.depth -= 1,
                    _ => {}
                }
            }
        }
    }
}

/// The first byte of a string's value.
fn first_byte(value: Value<'_>) -> Option<u8> {
    if value.node().flags & ESCAPED == 0 {
        return value.slice().bytes().next();
    }
    value.string().bytes().next()
}

/// `function`, `custom` or the old `function_call`: a name and what the call is given.
#[derive(Debug)]
pub(crate) struct Function {
    pub given: &'static str,
    pub name: String,
    pub arguments: Arguments,
    pub others: Members,
}

impl Function {
    pub fn new(given: &'static str) -> Self {
        Self { given, name: String::new(), arguments: Arguments::default(), others: Members::new(&DELTA) }
    }

    pub fn merge(&mut self, value: Value<'_>, ledger: &mut Ledger, keep: bool) -> bool {
        // Before its arguments, whatever their order.
        let mut kept = value.get("name").is_some_and(|name| self.rename(name, ledger, keep));
        for (key, member) in value.members() {
            if key == "name" {
                continue;
            }
            if key == self.given {
                kept |= self.arguments.put(member, ledger, keep);
            } else if keep {
                kept |= self.others.put(&key, member, ledger);
            }
        }
        kept
    }

    /// Equal: a repeat. Longer: the name grew. Else a fragment, as long as no arguments have come.
    fn rename(&mut self, value: Value<'_>, ledger: &mut Ledger, keep: bool) -> bool {
        if value.is_null() || value.is_string() && value.is_empty() {
            return false;
        }
        if !value.is_string() {
            ledger.note("ignored-value", 1);
            return false;
        }
        let mut name = value.string();
        if !keep {
            if self.name.is_empty() {
                self.name = mark(&name).into();
            }
            return false;
        }
        if name == self.name {
            return false;
        }
        if !name.starts_with(&self.name) {
            if self.arguments.length > 0 {
                ledger.note("ignored-name", 1);
                return false;
            }
            name = Cow::Owned(format!("{}{name}", self.name));
        }
        if !ledger.room(name.len(), self.name.len()) {
            return false;
        }
        note_halves(value, ledger);
        self.name = name.into_owned();
        true
    }
}

/// One tool call.
#[derive(Debug)]
pub(crate) struct Call {
    /// Calls opened before it.
    pub before: u64,
    index: Option<u64>,
    /// Within the limit.
    kept: bool,
    pub id: String,
    kind: String,
    pub function: Option<Function>,
    pub custom: Option<Function>,
    /// `custom` came before `function`.
    custom_first: bool,
    pub others: Members,
}

impl Call {
    fn new(before: u64, index: Option<u64>, kept: bool) -> Self {
        Self {
            before,
            index,
            kept,
            id: String::new(),
            kind: String::new(),
            function: None,
            custom: None,
            custom_first: false,
            others: Members::new(&DELTA),
        }
    }

    /// Function and custom tool, in the order they came.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        let pair = if self.custom_first { [&self.custom, &self.function] } else { [&self.function, &self.custom] };
        pair.into_iter().flatten()
    }

    pub fn name(&self) -> &str {
        self.functions().map(|f| f.name.as_str()).find(|name| !name.is_empty()).unwrap_or("")
    }

    pub fn arguments(&self) -> Option<&Arguments> {
        self.functions().map(|f| &f.arguments).find(|arguments| arguments.length > 0)
    }

    fn is_whole(&self) -> bool {
        self.arguments().is_some_and(Arguments::is_whole)
    }

    fn is_bare(&self) -> bool {
        self.arguments().is_some_and(Arguments::is_bare)
    }

    /// A type came.
    pub fn has_kind(&self) -> bool {
        !self.kind.is_empty()
    }

    pub fn kind(&self) -> &str {
        match () {
            () if !self.kind.is_empty() => &self.kind,
            () if self.custom.is_some() && self.function.is_none() => "custom",
            () => "function",
        }
    }

    /// It ever had an id, a name or arguments.
    fn is_some(&self) -> bool {
        !self.id.is_empty() || !self.name().is_empty() || self.arguments().is_some()
    }

    fn merge(&mut self, fragment: Value<'_>, ledger: &mut Ledger) -> bool {
        let mut kept = false;
        for (key, member) in fragment.members() {
            match &*key {
                "function" | "custom" if member.is_object() => {
                    let custom = key == "custom";
                    self.custom_first |= custom && self.function.is_none();
                    let (slot, given) =
                        if custom { (&mut self.custom, "input") } else { (&mut self.function, "arguments") };
                    kept |= slot.get_or_insert_with(|| Function::new(given)).merge(member, ledger, self.kept);
                }
                "function" | "custom" => {
                    if !member.is_null() {
                        ledger.note("ignored-value", 1);
                    }
                }
                "id" | "index" => {}
                _ if !self.kept => {}
                "type" => {
                    if member.is_string() {
                        if member.says() && self.kind.is_empty() && ledger.room(4 + member.size(), 0) {
                            note_halves(member, ledger);
                            self.kind = member.string().into_owned();
                        }
                    } else if !member.is_null() {
                        ledger.note("ignored-value", 1);
                    }
                }
                _ => kept |= self.others.put(&key, member, ledger),
            }
        }
        kept
    }
}

/// The tool calls of one choice. Every call has a number; those past the limit live as long as something points to them.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    kept: Vec<Call>,
    dropped: HashMap<u64, (Call, usize)>,
    by_id: HashMap<Box<str>, u64>,
    by_index: HashMap<u64, u64>,
    newest: Option<u64>,
    opened: u64,
}

impl Calls {
    /// The `tool_calls` of one delta; the flag when a call came or grew.
    pub fn put(&mut self, value: Value<'_>, ledger: &mut Ledger) -> u32 {
        if value.is_null() || value.is_object() && value.is_empty() {
            return 0;
        }
        if value.is_object() {
            // a list of itself
            return if self.merge(value, ledger) { seen::TOOL_CALL } else { 0 };
        }
        if !value.is_array() {
            ledger.note("ignored-value", 1);
            return 0;
        }
        let mut kept = false;
        for fragment in value.items() {
            if ledger.over {
                break;
            }
            if fragment.is_object() {
                kept |= self.merge(fragment, ledger);
            } else if !fragment.is_null() {
                ledger.note("ignored-value", 1);
            }
        }
        if kept { seen::TOOL_CALL } else { 0 }
    }

    fn merge(&mut self, fragment: Value<'_>, ledger: &mut Ledger) -> bool {
        let raw_id = fragment.get("id");
        let id = raw_id.map_or(Cow::Borrowed(""), Value::string);
        if raw_id.is_some_and(|id| !id.is_string() && !id.is_null()) {
            ledger.note("ignored-value", 1);
        }
        let (name, braced) = opening(fragment);
        let index = fragment.get("index").and_then(Value::index);
        if index.is_none() {
            ledger.note("missing-call-index", 1);
        }
        let number = self.find(&id, &name, index, braced, ledger);
        let mut kept = false;
        if let Some(call) = self.call_mut(number)
            && !id.is_empty()
            && call.id.is_empty()
        {
            if !call.kept {
                call.id = mark(&id).into();
            } else if let Some(raw_id) = raw_id
                && ledger.room(2 + raw_id.size(), 0)
            {
                note_halves(raw_id, ledger);
                call.id = id.clone().into_owned();
                self.by_id.entry(id.into()).or_insert(number);
                kept = true;
            }
        }
        if let Some(call) = self.call_mut(number) {
            kept |= call.merge(fragment, ledger);
        }
        kept
    }

    fn find(&mut self, id: &str, name: &str, index: Option<u64>, braced: bool, ledger: &mut Ledger) -> u64 {
        if !id.is_empty()
            && let Some(&number) = self.by_id.get(id)
        {
            self.point(index, number, ledger);
            return number;
        }
        if let Some(&number) = index.and_then(|index| self.by_index.get(&index))
            && let Some(call) = self.call(number)
        {
            let same = call.id == (if call.kept { id } else { mark(id) });
            if !id.is_empty() && !call.id.is_empty() && !same {
                if name.is_empty() {
                    ledger.note("changed-call-id", 1);
                    return number;
                }
            } else if name.is_empty() || !braced || !call.is_whole() || call.is_bare() && call.name() == name {
                return number;
            }
            ledger.note("reused-call-index", 1);
            return self.open(index, ledger);
        }
        let Some((number, newest)) = self.newest.and_then(|number| Some((number, self.call(number)?))) else {
            return self.open(index, ledger);
        };
        if index.is_none() {
            let opens = if !id.is_empty() {
                !newest.id.is_empty() || !name.is_empty()
            } else if !name.is_empty() && !newest.name().is_empty() {
                newest.name() != name || newest.is_whole() && !newest.is_bare()
            } else {
                false
            };
            return if opens { self.open(None, ledger) } else { number };
        }
        if id.is_empty() && name.is_empty() {
            ledger.note("unseen-call-index", 1);
            self.point(index, number, ledger);
            return number;
        }
        self.open(index, ledger)
    }

    fn open(&mut self, index: Option<u64>, ledger: &mut Ledger) -> u64 {
        let limit = ledger.limits.max_tool_calls;
        let number = self.opened;
        self.opened += 1;
        if self.kept.len() < limit {
            self.kept.push(Call::new(number, index, true));
        } else {
            self.dropped.insert(number, (Call::new(number, index, false), 0));
            ledger.fail(ErrorKind::LimitExceeded, format!("more than max_tool_calls={limit} in one choice"));
        }
        self.hold(number);
        if let Some(old) = self.newest.replace(number) {
            self.release(old);
        }
        if let Some(index) = index
            && (self.by_index.contains_key(&index) || self.by_index.len() < limit)
        {
            self.hold(number);
            if let Some(old) = self.by_index.insert(index, number) {
                self.release(old);
            }
        }
        number
    }

    fn point(&mut self, index: Option<u64>, number: u64, ledger: &Ledger) {
        if let Some(index) = index
            && !self.by_index.contains_key(&index)
            && self.by_index.len() < ledger.limits.max_tool_calls
        {
            self.hold(number);
            self.by_index.insert(index, number);
        }
    }

    /// The kept calls have the first numbers: once one is dropped, all later ones are.
    pub fn call(&self, number: u64) -> Option<&Call> {
        let kept = usize::try_from(number).ok().and_then(|at| self.kept.get(at));
        kept.or_else(|| self.dropped.get(&number).map(|(call, _)| call))
    }

    pub fn call_mut(&mut self, number: u64) -> Option<&mut Call> {
        match usize::try_from(number) {
            Ok(at) if at < self.kept.len() => self.kept.get_mut(at),
            _ => self.dropped.get_mut(&number).map(|(call, _)| call),
        }
    }

    fn hold(&mut self, number: u64) {
        if let Some((_, holders)) = self.dropped.get_mut(&number) {
            *holders += 1;
        }
    }

    fn release(&mut self, number: u64) {
        if let Some((_, holders)) = self.dropped.get_mut(&number) {
            *holders -= 1;
            if *holders == 0 {
                self.dropped.remove(&number);
            }
        }
    }

    /// The call of a fragment, if finding it changes nothing and depends on no text: by an index that is known, and by
    /// an id that is known or neither id nor name.
    pub fn settled(&self, fragment: Value<'_>) -> Option<u64> {
        let index = fragment.get("index").and_then(Value::index)?;
        let by_index = *self.by_index.get(&index)?;
        let id = fragment.get("id").filter(|id| !id.is_null());
        if id.is_some_and(|id| !id.is_string()) {
            return None;
        }
        let id = id.map_or(Cow::Borrowed(""), Value::string);
        let number = if !id.is_empty() {
            *self.by_id.get(&*id)?
        } else if opening(fragment).0.is_empty() {
            by_index
        } else {
            return None;
        };
        self.call(number).filter(|call| call.kept).map(|_| number)
    }

    /// The calls of the result: by index, a call without one by the number of calls opened before it.
    pub fn sorted(&self) -> Vec<&Call> {
        let mut calls: Vec<&Call> = self.kept.iter().filter(|call| call.is_some()).collect();
        calls.sort_by_key(|call| (call.index.unwrap_or(call.before), call.before));
        calls
    }
}

/// The old form of one tool call. Of nothing but `{}` no arguments are made up.
#[derive(Debug, Default)]
pub(crate) struct FunctionCall {
    pub function: Option<Function>,
    /// An object came that is not empty.
    pub said: bool,
}

impl FunctionCall {
    pub fn put(&mut self, value: Value<'_>, ledger: &mut Ledger) -> u32 {
        if value.is_null() {
            return 0;
        }
        if !value.is_object() {
            ledger.note("ignored-value", 1);
            return 0;
        }
        self.said |= value.says();
        let function = self.function.get_or_insert_with(|| Function::new("arguments"));
        if function.merge(value, ledger, true) { seen::TOOL_CALL } else { 0 }
    }
}

/// The name that a fragment carries, and whether its arguments begin an object.
fn opening(fragment: Value<'_>) -> (Cow<'_, str>, bool) {
    let (mut name, mut braced) = (Cow::Borrowed(""), false);
    for (key, given) in [("function", "arguments"), ("custom", "input")] {
        let Some(function) = fragment.get(key) else { continue };
        if name.is_empty() {
            name = function.get("name").map_or(Cow::Borrowed(""), Value::string);
        }
        if let Some(value) = function.get(given) {
            braced |= value.is_object() || value.is_string() && first_byte(value) == Some(b'{');
        }
    }
    (name, braced)
}

/// What is remembered of an id or a name of a call that is not kept: its first 64 characters.
fn mark(text: &str) -> &str {
    text.char_indices().nth(64).map_or(text, |(at, _)| &text[..at])
}
