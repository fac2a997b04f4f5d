//! Bytes → completion: what each event, stray line and leftover of a body means.
//!
//! Most bodies are event streams whose payloads are chunks. This file is about the others: padding, `[DONE]`, errors in
//! every place that servers put them, bodies of plain JSON, HTML pages, and bytes that end too early.
use crate::chunk::{Payload, Reading, Value, lines, payload, read, trim};
use crate::json::{ESCAPED, Tape};
use crate::ledger::{ErrorKind, Failure, Ledger, seen};
use crate::limits::Limits;
use crate::merge::Completion;
use crate::shape::Shapes;
use crate::sse::{Item, Machine};
use memchr::memmem;
use std::borrow::Cow;
use std::cell::RefCell;

/// Bytes of upstream's text in an error.
const LONGEST_MESSAGE: usize = 4096;
/// Characters of a payload in a message.
const EXCERPT: usize = 80;

/// One response body.
#[derive(Debug)]
pub(crate) struct Stream {
    pub machine: Machine,
    pub body: Body,
    /// Lines, each with an LF behind it, of a body that may turn out to be no event stream; the offset of the first.
    kept: Vec<u8>,
    kept_offset: u64,
    kept_over: bool,
    late_events: u64,
}

/// All of a stream but its framing.
#[derive(Debug)]
pub(crate) struct Body {
    pub ledger: Ledger,
    pub completion: Completion,
    pub done_seen: bool,
    /// The last event is not whole.
    pub cut: bool,
    pub chunks: u64,
    pub after_done: u64,
    /// Whole lines of JSON were taken already.
    json_lines: bool,
    pub shapes: Shapes,
}

thread_local! {
    /// The tape of the payload being read: one for all streams of a thread, so that a stream keeps none.
    static TAPE: RefCell<Tape> = RefCell::default();
}
/// Nodes above which a tape is not kept for the next payload.
const TAPE_NODES: usize = 1 << 16;

/// Lends the thread's tape.
#[inline]
fn with_tape<T>(work: impl FnOnce(&mut Tape) -> T) -> T {
    TAPE.with(|tape| {
        let Ok(mut tape) = tape.try_borrow_mut() else { return work(&mut Tape::new()) };
        let result = work(&mut tape);
        if tape.room() > TAPE_NODES {
            *tape = Tape::new();
        }
        result
    })
}

impl Stream {
    pub fn new(limits: Limits, fold: bool) -> Self {
        Self {
            machine: Machine::new(limits.max_event_bytes, true),
            body: Body {
                ledger: Ledger::new(limits),
                completion: Completion::new(fold),
                done_seen: false,
                cut: false,
                chunks: 0,
                after_done: 0,
                json_lines: false,
                shapes: Shapes::default(),
            },
            kept: Vec::new(),
            kept_offset: 0,
            kept_over: false,
            late_events: 0,
        }
    }

    pub fn is_complete(&self) -> bool {
        self.body.done_seen || self.body.completion.is_finished() && !self.body.cut
    }

    pub fn events(&self) -> u64 {
        self.machine.events() + self.machine.blocks_oversize() + self.late_events
    }

    pub fn feed(&mut self, piece: &[u8]) -> u32 {
        self.body.ledger.seen = 0;
        let mut at = 0;
        while at < piece.len() {
            if self.machine.is_plain()
                && let Some(length) = self.match_shape(&piece[at..])
            {
                at += length;
                continue;
            }
            if let Some((data, offset)) = self.machine.simple(piece, &mut at) {
                self.body.event(data, false, offset, true);
                self.drop_kept();
                continue;
            }
            let Some(item) = self.machine.next(piece, &mut at) else { break };
            match item {
                Item::Event(event) => self.body.event(event.data, event.event == b"error", event.offset, false),
                Item::ErrorField { value, offset } => self.body.error_field(value, offset),
                Item::RawLine { line, offset } => {
                    let line = line.to_vec();
                    self.raw_line(&line, offset);
                }
                Item::Oversize { offset } => {
                    if !self.body.done_seen {
                        self.body.ledger.offset = Some(offset);
                        let limit = self.body.ledger.limits.max_event_bytes;
                        let message = format!("an event of more than max_event_bytes={limit}");
                        self.body.ledger.fail(ErrorKind::LimitExceeded, message);
                        self.kept_over = true;
                    }
                }
            }
            self.drop_kept();
        }
        self.body.ledger.seen
    }

    /// The length of the event that `bytes` begin with, if its shape is known; then it is merged.
    #[inline]
    fn match_shape(&mut self, bytes: &[u8]) -> Option<usize> {
        let Body { shapes, completion, ledger, done_seen, chunks, .. } = &mut self.body;
        if *done_seen {
            return None;
        }
        let (length, data) = shapes.find_event(bytes)?;
        // Both can say no before anything is changed.
        if !self.machine.fits(data) || !shapes.merge(bytes, completion, ledger) {
            return None;
        }
        self.machine.took(length);
        *chunks += 1;
        Some(length)
    }

    /// One chunk that came as an object.
    pub fn feed_text(&mut self, text: &str) -> u32 {
        self.body.ledger.seen = 0;
        self.body.ledger.offset = None;
        if self.body.done_seen {
            self.body.ledger.note("data-after-done", 1);
        } else if !self.body.known(text.as_bytes()) {
            self.body.text(text, false);
        }
        self.body.ledger.seen
    }

    pub fn close(&mut self) -> u32 {
        self.body.ledger.seen = 0;
        if !self.body.done_seen {
            self.end();
        }
        let ledger = &mut self.body.ledger;
        ledger.offset = Some(self.machine.bytes());
        if ledger.halves > 0 {
            ledger.note("lone-surrogate", ledger.halves);
        }
        self.body.shapes.clear();
        if !self.is_complete() {
            self.body.ledger.fail(ErrorKind::Truncated, "the stream ended before it was complete".into());
        }
        self.body.ledger.seen
    }

    #[inline]
    fn drop_kept(&mut self) {
        if !self.kept.is_empty() && (self.machine.data_seen() || self.kept_over) {
            self.kept = Vec::new();
            self.machine.raw_kept = 0;
        }
    }

    // Bodies that are no event stream

    /// A line that is no field. Between events it may be an error; before any it may be the body.
    fn raw_line(&mut self, line: &[u8], offset: u64) {
        if self.body.done_seen || self.kept_over {
            self.machine.raw_kept = 0;
        } else if self.take_line(line, offset) {
            self.machine.raw_kept = self.machine.raw_kept.saturating_sub(line.len());
        } else if self.machine.data_seen() {
            self.machine.raw_kept = 0;
        } else {
            if self.kept.is_empty() {
                self.kept_offset = offset;
            }
            self.kept.extend_from_slice(line);
            self.kept.push(b'\n');
        }
    }

    /// Whether the line counts at once.
    fn take_line(&mut self, line: &[u8], offset: u64) -> bool {
        if self.machine.field_seen() {
            return self.body.take_raw_error(line, offset);
        }
        if !self.kept.is_empty() {
            return false;
        }
        if self.body.json_lines && line.trim_ascii() == b"[DONE]" {
            self.body.done_seen = true;
            self.body.ledger.seen |= seen::DONE;
            return true;
        }
        self.body.take_body(line, offset)
    }

    // The end of the bytes

    fn end(&mut self) {
        if self.machine.data_seen() {
            self.kept = Vec::new();
        }
        let rest = self.machine.rest();
        let line = rest.line.map(<[u8]>::to_vec);
        let field = line.as_deref().and_then(field_of);
        let unfinished = line.is_some() && !rest.line_comment || rest.line_skipped;
        let offset = rest.data_offset.unwrap_or(rest.line_offset);
        let line_offset = rest.line_offset;
        if rest.oversize {
            self.body.cut_at(offset);
        } else if rest.data.is_some() || field == Some("data") {
            let is_error = rest.event == b"error";
            let data = rest.data.map(<[u8]>::to_vec);
            self.end_event(data, line.as_deref(), field, unfinished, is_error, offset, line_offset);
        } else if self.machine.data_seen() || field.is_some() || rest.line_skipped {
            if unfinished {
                self.end_line(line.as_deref(), field, line_offset);
            }
        } else if !self.kept_over && (!self.kept.is_empty() || unfinished) {
            self.end_body(line.filter(|_| unfinished), line_offset);
        }
    }

    /// An event without its blank line counts if its data is whole.
    #[allow(clippy::too_many_arguments, reason = "the facts of one leftover, used once")]
    fn end_event(
        &mut self,
        before: Option<Vec<u8>>,
        line: Option<&[u8]>,
        field: Option<&str>,
        unfinished: bool,
        is_error: bool,
        offset: u64,
        line_offset: u64,
    ) {
        let data_line = line.filter(|_| field == Some("data"));
        if let Some(line) = data_line {
            let value = value_of(line);
            let whole = match &before {
                None => value.to_vec(),
                Some(before) => [before, &b"\n"[..], value].concat(),
            };
            if self.end_data(&whole, is_error, offset, false) {
                return;
            }
        }
        let taken = before.is_some_and(|before| self.end_data(&before, is_error, offset, !unfinished));
        if data_line.is_none()
            && unfinished
            && let Some(line) = line
            && self.body.take_raw_error(line, line_offset)
        {
            return;
        }
        if unfinished || !taken {
            self.body.cut_at(offset);
        }
    }

    /// Whether the data is whole, then merged; of an error's event any `finished` lines are.
    fn end_data(&mut self, data: &[u8], is_error: bool, offset: u64, finished: bool) -> bool {
        let counts = is_error && finished || self.body.is_whole(&String::from_utf8_lossy(data));
        if !counts {
            return false;
        }
        self.late_events += 1;
        self.body.ledger.offset = Some(offset);
        self.body.ledger.note("unterminated-event", 1);
        self.body.event(data, is_error, offset, false);
        true
    }

    /// An unfinished line that is no data: an error if it is whole, else a cut.
    fn end_line(&mut self, line: Option<&[u8]>, field: Option<&str>, offset: u64) {
        if let Some(line) = line {
            if field == Some("error") && self.body.is_whole_line(&String::from_utf8_lossy(value_of(line))) {
                self.late_events += 1;
                self.body.ledger.offset = Some(offset);
                self.body.ledger.note("unterminated-event", 1);
                return self.body.error_field(value_of(line), offset);
            }
            if self.body.take_raw_error(line, offset) {
                return;
            }
        }
        self.body.cut_at(offset);
    }

    /// The kept lines and an unfinished one are the body: one JSON object, or nothing we know.
    fn end_body(&mut self, line: Option<Vec<u8>>, offset: u64) {
        if self.body.json_lines
            && self.kept.is_empty()
            && let Some(line) = &line
        {
            if !self.take_line(line, offset) {
                self.body.cut_at(offset);
            }
            return;
        }
        let mut body = std::mem::take(&mut self.kept);
        let first = if body.is_empty() { offset } else { self.kept_offset };
        match line {
            Some(line) => body.extend(line),
            None => body.truncate(body.len() - 1),
        }
        if !self.body.take_body(&body, first) {
            self.body.refuse_body(&body, first);
        }
    }
}

impl Body {
    // Events

    /// The data of one event; `unknown` tells that no shape matches it.
    #[inline]
    fn event(&mut self, data: &[u8], is_error: bool, offset: u64, unknown: bool) {
        self.ledger.offset = Some(offset);
        if self.done_seen {
            self.after_done += 1;
            self.ledger.note("data-after-done", 1);
            return;
        }
        // An event that came in pieces, or with other line ends.
        if !unknown && !is_error && self.known(data) {
            return;
        }
        match simdutf8::basic::from_utf8(data) {
            Ok(text) => self.text(text, is_error),
            Err(_) => {
                let text = self.decode(data);
                self.text(&text, is_error);
            }
        }
    }

    /// Merges a chunk of a shape that counts; false, and nothing is changed, for any other.
    #[inline]
    fn known(&mut self, data: &[u8]) -> bool {
        let known = self.shapes.find_data(data) && self.shapes.merge(data, &mut self.completion, &mut self.ledger);
        self.chunks += u64::from(known);
        known
    }

    /// UTF-8 with U+FFFD for each maximal subpart that is ill-formed.
    fn decode<'a>(&mut self, data: &'a [u8]) -> Cow<'a, str> {
        let text = String::from_utf8_lossy(data);
        if matches!(text, Cow::Owned(_)) {
            self.ledger.note("replaced-bytes", 1);
        }
        text
    }

    #[inline]
    fn text(&mut self, data: &str, is_error: bool) {
        with_tape(|tape| self.text_on(data, is_error, tape));
    }

    fn text_on(&mut self, data: &str, is_error: bool, tape: &mut Tape) {
        let depth = self.ledger.limits.max_depth;
        let (payload, prefixed) = payload(data, depth, tape);
        if prefixed {
            self.ledger.note("repeated-data-prefix", 1);
        }
        match payload {
            Payload::One(Reading::Chunks) => self.chunks(trim(data).0, tape, is_error),
            Payload::One(Reading::Done) => self.done(),
            Payload::One(_) if is_error => self.error_text(data, tape),
            Payload::One(reading) => self.reading(reading, trim(data).0, tape, false),
            Payload::Lines => {
                self.ledger.note("missing-blank-line", 1);
                let readings = || lines(data).map(|line| trim(line).0);
                let mut none = true;
                for line in readings() {
                    none &= !matches!(read(line, depth, tape), Reading::Chunks | Reading::Done);
                }
                if is_error && none {
                    return self.error_text(data, tape);
                }
                for line in readings() {
                    let reading = read(line, depth, tape);
                    self.reading(reading, line, tape, is_error);
                }
            }
            Payload::LastLineError if !is_error => {
                self.ledger.note("bad-json", 1);
                let last = lines(data).next_back().map_or("", |line| trim(line).0);
                let reading = read(last, depth, tape);
                self.reading(reading, last, tape, false);
            }
            Payload::LastLineError | Payload::Bad if is_error => self.error_text(data, tape),
            Payload::LastLineError | Payload::Bad => self.bad_json(data),
        }
    }

    /// What `read` found in `text`, which is on the tape.
    fn reading(&mut self, reading: Reading, text: &str, tape: &Tape, is_error: bool) {
        if self.done_seen {
            self.ledger.note("data-after-done", 1);
            return;
        }
        match reading {
            Reading::Done => self.done(),
            Reading::Skipped | Reading::Blank => {}
            Reading::Chunks => self.chunks(text, tape, is_error),
            Reading::Scalar | Reading::Bad => self.bad_json(text),
            Reading::TooDeep => {
                let depth = self.ledger.limits.max_depth;
                self.ledger.fail(ErrorKind::LimitExceeded, format!("a chunk deeper than max_depth={depth}"));
            }
        }
    }

    fn done(&mut self) {
        self.done_seen = true;
        self.ledger.seen |= seen::DONE;
    }

    #[inline]
    fn chunks(&mut self, text: &str, tape: &Tape, is_error: bool) {
        if tape.words() > 0 {
            self.ledger.note("non-finite-number", tape.words());
        }
        let root = Value { tape, text, at: 0 };
        if root.is_object() {
            self.merge(root, is_error);
        } else {
            root.items().for_each(|chunk| self.merge(chunk, is_error));
        }
    }

    /// The chunk's own content first, then its error.
    #[inline]
    fn merge(&mut self, chunk: Value<'_>, is_error: bool) {
        self.chunks += 1;
        let (mut error, mut named) = (None, false);
        // Nearly no chunk has the word at all, and then nothing has to be looked for.
        if chunk.node().flags & ESCAPED != 0 || memmem::find(chunk.text.as_bytes(), b"error").is_some() {
            named = chunk.get("object").is_some_and(|object| object.is_str("error"));
            error = chunk.get("error").filter(|error| error.is_truthy()).map(|error| (error, chunk));
            error = error.or_else(|| {
                let entries = chunk.get("choices").into_iter().flat_map(Value::items);
                entries.filter_map(|entry| Some((entry.get("error")?, entry))).find(|(error, _)| error.is_truthy())
            });
        }
        let is_error = error.is_none() && (is_error || named);
        let notes = self.ledger.notes;
        let can_repeat = !is_error && error.is_none() && chunk.tape.words() == 0;
        let quiet = if can_repeat { self.shapes.judge(chunk, &self.completion) } else { None };
        self.completion.merge(chunk, is_error || named, &mut self.ledger);
        let can_repeat = can_repeat && notes == self.ledger.notes && !self.ledger.over;
        let quiet = quiet.filter(|_| can_repeat);
        if quiet.is_none() {
            self.shapes.forget();
        }
        // What is not quiet the first time may well be from now on.
        let quiet = quiet.or_else(|| if can_repeat { self.shapes.judge(chunk, &self.completion) } else { None });
        self.shapes.learn(quiet, chunk.text);
        if let Some((error, beside)) = error {
            self.upstream_error(error, beside);
        } else if is_error {
            self.upstream_error(chunk, chunk);
        }
    }

    fn bad_json(&mut self, text: &str) {
        self.ledger.note("bad-json", 1);
        self.ledger.fail(ErrorKind::BadJson, format!("a payload is not a JSON object: {}", first_chars(text, EXCERPT)));
    }

    fn is_whole(&mut self, text: &str) -> bool {
        let depth = self.ledger.limits.max_depth;
        with_tape(|tape| match payload(text, depth, tape).0 {
            Payload::One(reading) => reading.is_whole(),
            Payload::Lines => {
                let mut any = false; // comments among the lines are no part of it
                lines(text).all(|line| {
                    let reading = read(trim(line).0, depth, tape);
                    any |= reading.is_whole();
                    reading.is_whole() || reading == Reading::Blank
                }) && any
            }
            Payload::LastLineError => true,
            Payload::Bad => false,
        })
    }

    fn is_whole_line(&mut self, text: &str) -> bool {
        with_tape(|tape| read(trim(text).0, self.ledger.limits.max_depth, tape).is_whole())
    }

    fn cut_at(&mut self, offset: u64) {
        self.cut = true;
        self.ledger.offset = Some(offset);
        self.ledger.note("incomplete-event", 1);
    }

    // Errors

    fn error_field(&mut self, value: &[u8], offset: u64) {
        self.ledger.offset = Some(offset);
        self.ledger.note("error-field", 1);
        if self.done_seen {
            self.after_done += 1;
            self.ledger.note("data-after-done", 1);
            return;
        }
        let data = self.decode(value);
        let text = trim(&data).0;
        with_tape(|tape| match read(text, self.ledger.limits.max_depth, tape) {
            Reading::Chunks => self.reading(Reading::Chunks, text, tape, true),
            Reading::Skipped => {}
            _ => self.error_text(&data, tape),
        });
    }

    /// An error whose body is no object: plain text, or a JSON string.
    fn error_text(&mut self, data: &str, tape: &mut Tape) {
        let text = trim(data).0;
        let string = read(text, self.ledger.limits.max_depth, tape) == Reading::Scalar && {
            let root = Value { tape, text, at: 0 };
            root.is_string()
        };
        let (message, body) = if string {
            let root = Value { tape, text, at: 0 };
            (root.string().into_owned(), root.canonical())
        } else {
            let mut body = String::new();
            crate::json::write_string(data, &mut body);
            (data.to_owned(), body)
        };
        self.fail_upstream(&message, None, body);
    }

    /// `error`: the error member, or the whole object where that is the error.
    fn upstream_error(&mut self, error: Value<'_>, beside: Value<'_>) {
        let told = if error.is_object() { error } else { beside };
        let text = |value: Value<'_>| {
            if value.is_string() && value.says() { Some(value.string().into_owned()) } else { None }
        };
        let message = if error.is_string() {
            error.string().into_owned()
        } else if error.is_array() {
            error.canonical()
        } else {
            told.get("message").and_then(text).unwrap_or_else(|| {
                let detail = told.get("detail").filter(|detail| detail.is_truthy());
                detail.and_then(text).unwrap_or_else(|| detail.unwrap_or(error).canonical())
            })
        };
        let code = ["code", "type"].iter().find_map(|name| told.get(name).filter(|code| code.says()));
        self.fail_upstream(&message, code.map(Value::raw), error.raw());
    }

    fn fail_upstream(&mut self, message: &str, code: Option<String>, body: String) {
        let mut end = message.len().min(LONGEST_MESSAGE);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        self.ledger.fail_with(|offset| Failure {
            kind: ErrorKind::UpstreamError,
            message: message[..end].into(),
            excerpt: None,
            code,
            body: Some(body),
            offset,
        });
    }

    // Bodies that are no event stream

    /// A JSON object with an error, written between events.
    fn take_raw_error(&mut self, line: &[u8], offset: u64) -> bool {
        if line.first() != Some(&b'{') {
            return false;
        }
        let text = String::from_utf8_lossy(line);
        let text = trim(&text).0;
        with_tape(|tape| {
            let is_error = read(text, self.ledger.limits.max_depth, tape) == Reading::Chunks && {
                let root = Value { tape, text, at: 0 };
                root.get("error").is_some_and(Value::is_truthy)
            };
            if is_error {
                self.ledger.offset = Some(offset);
                self.decode(line);
                self.ledger.note("raw-error-line", 1);
                self.reading(Reading::Chunks, text, tape, false);
            }
            is_error
        })
    }

    /// A whole completion, chunk or error that stands for itself.
    fn take_body(&mut self, body: &[u8], offset: u64) -> bool {
        let first = body.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'\x0c'));
        if !matches!(first, Some(b'{' | b'[')) {
            return false;
        }
        let text = String::from_utf8_lossy(body);
        let text = trim(&text).0;
        with_tape(|tape| {
            let mut kinds = Vec::new();
            if read(text, self.ledger.limits.max_depth, tape) == Reading::Chunks {
                let root = Value { tape, text, at: 0 };
                let chunks: Vec<Value<'_>> = if root.is_object() { vec![root] } else { root.items().collect() };
                kinds = chunks.into_iter().map(|chunk| (chunk.at, BodyKind::of(chunk))).collect();
            }
            let taken = !kinds.is_empty() && kinds.iter().all(|(_, kind)| kind.is_some());
            if taken {
                self.ledger.offset = Some(offset);
                self.decode(body);
                self.json_lines = true;
                if tape.words() > 0 {
                    self.ledger.note("non-finite-number", tape.words());
                }
                for (at, kind) in kinds {
                    let chunk = kind == Some(BodyKind::Chunk);
                    self.ledger.note(if chunk { "json-lines" } else { "json-body" }, 1);
                    self.merge(Value { tape, text, at }, kind == Some(BodyKind::Error));
                }
            }
            taken
        })
    }

    fn refuse_body(&mut self, body: &[u8], offset: u64) {
        self.ledger.offset = Some(offset);
        let text = self.decode(body);
        let depth = self.ledger.limits.max_depth;
        if with_tape(|tape| read(trim(&text).0, depth, tape)) == Reading::TooDeep {
            self.ledger.fail(ErrorKind::LimitExceeded, format!("a chunk deeper than max_depth={depth}"));
            return;
        }
        let excerpt = first_chars(&text, EXCERPT + 1).to_owned();
        self.ledger.fail_with(|offset| Failure {
            kind: ErrorKind::NotSse,
            message: "the body is no event stream: ".into(),
            excerpt: Some(excerpt),
            code: None,
            body: None,
            offset,
        });
    }
}

/// What an object is that came without an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BodyKind {
    Completion,
    Chunk,
    Error,
}

impl BodyKind {
    fn of(value: Value<'_>) -> Option<Self> {
        let object = value.get("object");
        let object_is = |wanted: &str| object.is_some_and(|object| object.is_str(wanted));
        let truthy = |name: &str| value.get(name).is_some_and(Value::is_truthy);
        if truthy("error") || object_is("error") {
            return Some(Self::Error);
        }
        let choices = value.get("choices");
        if object.is_some_and(|object| object.string().starts_with("chat.completion")) || choices.is_some() {
            if object_is("chat.completion.chunk") {
                return Some(Self::Chunk);
            }
            let whole = choices.is_some_and(|choices| choices.items().any(|entry| entry.get("message").is_some()));
            return Some(if object_is("chat.completion") || whole { Self::Completion } else { Self::Chunk });
        }
        (truthy("message") || truthy("detail")).then_some(Self::Error)
    }
}

/// The known field that a line gives.
fn field_of(line: &[u8]) -> Option<&'static str> {
    let colon = line.iter().position(|&byte| byte == b':');
    match &line[..colon.unwrap_or(line.len())] {
        b"data" => Some("data"),
        b"event" => Some("event"),
        b"id" => Some("id"),
        b"retry" => Some("retry"),
        b"error" if colon.is_some() => Some("error"),
        _ => None,
    }
}

fn value_of(line: &[u8]) -> &[u8] {
    let value = line.iter().position(|&byte| byte == b':').map_or(&line[line.len()..], |colon| &line[colon + 1..]);
    value.strip_prefix(b" ").unwrap_or(value)
}

fn first_chars(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).map_or(text, |(at, _)| &text[..at])
}
