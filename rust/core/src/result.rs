//! The completion as it is handed out: one walk over what was kept, for any kind of output.
use crate::calls::{Call, Function};
use crate::json::{ESCAPED, HALF, RAW, Tape, write_canonical, write_string};
use crate::merge::{Choice, Completion, Logprobs};
use crate::message::{Choosy, Details, Part, Parts, recoded};
use crate::text::Text;
use crate::tree::{Entries, Extend, Leaf, Members, Slot};
use crate::usage::choose;

/// Where a result is written to. Calls come in the order of the JSON text.
pub trait Sink {
    /// An object begins; its members follow as `key` and value.
    fn begin_object(&mut self);
    /// The innermost object ends.
    fn end_object(&mut self);
    /// A list begins.
    fn begin_array(&mut self);
    /// The innermost list ends.
    fn end_array(&mut self);
    /// The name of the member to come.
    fn key(&mut self, name: &str);
    /// Null.
    fn null(&mut self);
    /// A string.
    fn string(&mut self, value: &str);
    /// A value as compact JSON text; `flags` are those of [`crate::json`].
    fn raw(&mut self, text: &str, flags: u8);
    /// A list, given as the JSON texts of its entries with commas between.
    fn list(&mut self, entries: &str, flags: u8);
}

/// Members of a message in the order of OpenAI's reference.
const MESSAGE_ORDER: [&str; 10] = [
    "refusal",
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "reasoning_text",
    "thinking",
    "tool_calls",
    "function_call",
    "audio",
    "annotations",
];

pub(crate) fn write_completion(completion: &Completion, out: &mut impl Sink) {
    out.begin_object();
    write_choosy("id", &completion.id, out);
    out.key("object");
    out.string("chat.completion");
    if completion.created.came() {
        out.key("created");
        match &completion.created.value {
            Some(digits) => out.raw(digits, 0),
            None => out.null(),
        }
    }
    write_choosy("model", &completion.model, out);
    out.key("choices");
    out.begin_array();
    for choice in &completion.choices {
        write_choice(choice, out);
    }
    out.end_array();
    let (usage, _) = choose(&completion.usage, &completion.choice_usage, &completion.groq_usage);
    if usage.is_some() || completion.usage.null {
        out.key("usage");
        match usage {
            Some(usage) => write_members(usage, out),
            None => out.null(),
        }
    }
    write_choosy("service_tier", &completion.service_tier, out);
    write_choosy("system_fingerprint", &completion.system_fingerprint, out);
    write_slots(&completion.others, out);
    out.end_object();
}

pub(crate) fn write_members(members: &Members, out: &mut impl Sink) {
    out.begin_object();
    write_slots(members, out);
    out.end_object();
}

fn write_choosy(name: &str, held: &Choosy, out: &mut impl Sink) {
    if held.came() {
        out.key(name);
        match &held.value {
            Some(value) => out.string(value),
            None => out.null(),
        }
    }
}

fn write_choice(choice: &Choice, out: &mut impl Sink) {
    out.begin_object();
    out.key("index");
    let mut digits = String::new();
    write_integer(choice.index, &mut digits);
    out.raw(&digits, 0);
    out.key("message");
    write_message(choice, out);
    out.key("finish_reason");
    match &choice.finish_reason {
        Some(reason) => out.string(reason),
        None => out.null(),
    }
    if let Some(logprobs) = &choice.logprobs {
        out.key("logprobs");
        write_logprobs(logprobs, out);
    }
    write_slots(&choice.others, out);
    out.end_object();
}

fn write_integer(value: u64, out: &mut String) {
    use std::fmt::Write;
    let _ = write!(out, "{value}");
}

fn write_message(choice: &Choice, out: &mut impl Sink) {
    out.begin_object();
    out.key("role");
    out.string(choice.role.value.as_deref().filter(|role| !role.is_empty()).unwrap_or("assistant"));
    out.key("content");
    match choice.message.get("content") {
        Some(slot) => write_slot(slot, out),
        None => out.null(),
    }
    for name in MESSAGE_ORDER {
        if let Some(slot) = choice.message.get(name) {
            write_message_slot(name, slot, out);
        }
    }
    for (name, slot) in &choice.message.slots {
        if **name != *"content" && !MESSAGE_ORDER.contains(&&**name) {
            write_message_slot(name, slot, out);
        }
    }
    out.end_object();
}

fn write_message_slot(name: &str, slot: &Slot, out: &mut impl Sink) {
    if matches!(slot, Slot::Calls(calls) if calls.sorted().is_empty()) {
        return;
    }
    out.key(name);
    write_slot(slot, out);
}

fn write_logprobs(logprobs: &Logprobs, out: &mut impl Sink) {
    match (&logprobs.members, &logprobs.entries) {
        (Some(members), _) => write_members(members, out),
        (None, Some(entries)) => write_list(entries, out),
        (None, None) => out.null(),
    }
}

fn write_slots(members: &Members, out: &mut impl Sink) {
    for (name, slot) in &members.slots {
        out.key(name);
        write_slot(slot, out);
    }
}

fn write_slot(slot: &Slot, out: &mut impl Sink) {
    match slot {
        Slot::Leaf(leaf) => write_leaf(leaf, out),
        Slot::Joined(joined) => write_text(&joined.text, out),
        Slot::Extend(list) => write_list(list, out),
        Slot::Entries(entries) => write_entries(entries, out),
        Slot::Members(members) => write_members(members, out),
        Slot::Parts(parts) => write_parts(parts, out),
        Slot::Content(content) => match (&content.parts, &content.text) {
            (Some(parts), _) if parts.parts.iter().all(Part::is_empty) => out.string(""),
            (Some(parts), _) => write_parts(parts, out),
            (None, Some(text)) => write_text(text, out),
            (None, None) => out.null(),
        },
        Slot::Refusal(refusal) => match &refusal.text {
            Some(text) => write_text(text, out),
            None => out.null(),
        },
        Slot::Details(details) => write_details(details, out),
        Slot::Calls(calls) => {
            out.begin_array();
            for call in calls.sorted() {
                write_call(call, out);
            }
            out.end_array();
        }
        Slot::FunctionCall(call) => match &call.function {
            Some(function) if call.said => write_function(function, out),
            Some(_) => {
                out.begin_object();
                out.end_object();
            }
            None => out.null(),
        },
        Slot::Audio(audio) => match &audio.members {
            Some(members) => write_audio(members, out),
            None => out.null(),
        },
    }
}

fn write_leaf(leaf: &Leaf, out: &mut impl Sink) {
    out.raw(&leaf.raw, leaf.flags);
}

pub(crate) fn write_text(text: &Text, out: &mut impl Sink) {
    if text.half() {
        let mut whole = String::new();
        text.push_to(&mut whole);
        out.string(&whole);
    } else {
        out.string(text.decided());
    }
}

fn write_list(list: &Extend, out: &mut impl Sink) {
    out.list(&list.text, list.flags);
}

fn write_entries(entries: &Entries, out: &mut impl Sink) {
    if entries.indexed.is_empty() {
        return write_list(&entries.others, out);
    }
    out.begin_array();
    for entry in entries.indexed.values() {
        write_members(entry, out);
    }
    entries.others.each(|text| out.raw(text, entries.others.flags));
    out.end_array();
}

fn write_parts(parts: &Parts, out: &mut impl Sink) {
    out.begin_array();
    for part in parts.parts.iter().filter(|part| !part.is_empty()) {
        write_members(&part.members, out);
    }
    out.end_array();
}

fn write_details(details: &Details, out: &mut impl Sink) {
    if !details.listed {
        return out.null();
    }
    out.begin_array();
    for detail in details.sorted() {
        write_members(detail, out);
    }
    out.end_array();
}

fn write_call(call: &Call, out: &mut impl Sink) {
    out.begin_object();
    if !call.id.is_empty() {
        out.key("id");
        out.string(&call.id);
    }
    out.key("type");
    out.string(call.kind());
    for (name, function) in [("function", &call.function), ("custom", &call.custom)] {
        if let Some(function) = function {
            out.key(name);
            write_function(function, out);
        }
    }
    write_slots(&call.others, out);
    out.end_object();
}

fn write_function(function: &Function, out: &mut impl Sink) {
    out.begin_object();
    if !function.name.is_empty() {
        out.key("name");
        out.string(&function.name);
    }
    out.key(function.given);
    write_text(&function.arguments.text, out);
    write_slots(&function.others, out);
    out.end_object();
}

fn write_audio(members: &Members, out: &mut impl Sink) {
    out.begin_object();
    for (name, slot) in &members.slots {
        out.key(name);
        match slot {
            Slot::Joined(joined) if **name == *"data" && !joined.text.half() => match recoded(joined.text.decided()) {
                Some(data) => out.string(&data),
                None => write_text(&joined.text, out),
            },
            _ => write_slot(slot, out),
        }
    }
    out.end_object();
}

/// Writes JSON text as Python's `json.dumps` does, compact and with every character that may stand as itself.
#[derive(Debug, Default)]
pub struct JsonText {
    out: String,
    tape: Tape,
    comma: bool,
}

impl JsonText {
    /// Room for about so many bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { out: String::with_capacity(bytes), ..Self::default() }
    }

    /// The text written.
    #[must_use]
    pub fn into_string(self) -> String {
        self.out
    }

    fn begin(&mut self) {
        if self.comma {
            self.out.push(',');
        }
        self.comma = true;
    }
}

impl Sink for JsonText {
    fn begin_object(&mut self) {
        self.begin();
        self.out.push('{');
        self.comma = false;
    }

    fn end_object(&mut self) {
        self.out.push('}');
        self.comma = true;
    }

    fn begin_array(&mut self) {
        self.begin();
        self.out.push('[');
        self.comma = false;
    }

    fn end_array(&mut self) {
        self.out.push(']');
        self.comma = true;
    }

    fn key(&mut self, name: &str) {
        self.begin();
        write_string(name, &mut self.out);
        self.out.push(':');
        self.comma = false;
    }

    fn null(&mut self) {
        self.begin();
        self.out.push_str("null");
    }

    fn string(&mut self, value: &str) {
        self.begin();
        write_string(value, &mut self.out);
    }

    fn raw(&mut self, text: &str, flags: u8) {
        self.begin();
        // What was kept was valid and no deeper than its payload; `-0` and odd numbers carry RAW.
        if flags & (ESCAPED | HALF | RAW) == 0 {
            self.out.push_str(text);
        } else if self.tape.parse(text, usize::MAX).is_ok() {
            write_canonical(&self.tape, text, 0, &mut self.out);
        } else {
            self.out.push_str("null");
        }
    }

    fn list(&mut self, entries: &str, flags: u8) {
        if flags != 0 {
            return self.raw(&format!("[{entries}]"), flags);
        }
        self.begin();
        self.out.push('[');
        self.out.push_str(entries);
        self.out.push(']');
    }
}
