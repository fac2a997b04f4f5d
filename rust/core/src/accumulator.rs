//! The accumulator: bytes in, the merged completion out.
use crate::json::write_string;
use crate::ledger::{Diagnostic, Failure};
use crate::limits::Limits;
use crate::result::{JsonText, Sink, write_completion, write_members};
use crate::stream::Stream;
use crate::text::Text;
use crate::usage::choose;

/// Merges the bytes of one Chat Completions response into the `chat.completion` it stands for.
///
/// ```
/// use deltafold_core::accumulator::Accumulator;
/// use deltafold_core::limits::Limits;
/// let mut accumulator = Accumulator::new(Limits::default(), false);
/// accumulator.feed(b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\n");
/// accumulator.close();
/// assert!(accumulator.is_complete());
/// assert_eq!(accumulator.text(0), "Hi");
/// ```
#[derive(Debug)]
pub struct Accumulator {
    stream: Stream,
    closed: bool,
}

/// Sizes of what came, in bytes, events, chunks and code points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Counts {
    pub bytes: u64,
    pub events: u64,
    pub chunks: u64,
    pub after_done: u64,
    pub content: u64,
    pub reasoning: u64,
    pub refusal: u64,
    pub tool_arguments: u64,
}

/// One tool call as it is so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// None when the server sent none.
    pub id: Option<String>,
    /// `function` or `custom`.
    pub kind: String,
    /// None when none came.
    pub name: Option<String>,
    /// The text that the tool is given.
    pub arguments: String,
}

/// A tool call that grew.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Grown {
    /// Its place in the result so far.
    pub position: usize,
    /// Its number in order of opening.
    pub number: u64,
    pub id: Option<String>,
    pub kind: String,
    pub name: Option<String>,
    /// What its arguments grew by.
    pub new: String,
    /// The next cursor.
    pub end: usize,
}

impl Accumulator {
    /// An accumulator for one response; `fold` puts every choice into choice 0.
    #[must_use]
    pub fn new(limits: Limits, fold: bool) -> Self {
        Self { stream: Stream::new(limits, fold), closed: false }
    }

    /// The response's next bytes, cut anywhere; gives the [`crate::ledger::seen`] flags of what they brought. After
    /// `close` nothing happens.
    #[inline]
    pub fn feed(&mut self, piece: &[u8]) -> u32 {
        if self.closed { 0 } else { self.stream.feed(piece) }
    }

    /// One chunk as JSON text, without an event around it.
    pub fn feed_text(&mut self, text: &str) -> u32 {
        if self.closed { 0 } else { self.stream.feed_text(text) }
    }

    /// Ends the stream and decides about an unfinished last event.
    pub fn close(&mut self) -> u32 {
        if std::mem::replace(&mut self.closed, true) { 0 } else { self.stream.close() }
    }

    /// Turns the fast path off or on; results are the same. For tests.
    pub fn set_fast_path(&mut self, on: bool) {
        self.stream.body.shapes.clear();
        self.stream.body.shapes.off = !on;
    }

    /// `close` was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// `[DONE]` came, or every choice (at least one) has its finish reason and the last event was not cut.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.stream.is_complete()
    }

    /// `[DONE]` came.
    #[must_use]
    pub fn done_seen(&self) -> bool {
        self.stream.body.done_seen
    }

    /// The first thing that went wrong.
    #[must_use]
    pub fn error(&self) -> Option<&Failure> {
        self.stream.body.ledger.error.as_deref()
    }

    /// The leniencies that the stream needed.
    #[must_use]
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.stream.body.ledger.diagnostics
    }

    /// Bytes that count against `max_retained_bytes`.
    #[must_use]
    pub fn retained_bytes(&self) -> usize {
        self.stream.body.ledger.retained
    }

    /// The merged completion so far.
    pub fn write(&self, out: &mut impl Sink) {
        write_completion(&self.stream.body.completion, out);
    }

    /// The merged completion so far as one line of JSON.
    #[must_use]
    pub fn result_json(&self) -> String {
        let mut out = JsonText::with_capacity(self.retained_bytes() + 1024);
        self.write(&mut out);
        out.into_string()
    }

    /// The completion's id.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.stream.body.completion.id.value.as_deref()
    }

    /// The model that served.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.stream.body.completion.model.value.as_deref()
    }

    /// Where the usage comes from: `reported`, `choice`, `x_groq` or `none`.
    #[must_use]
    pub fn usage_source(&self) -> &'static str {
        let completion = &self.stream.body.completion;
        choose(&completion.usage, &completion.choice_usage, &completion.groq_usage).1
    }

    /// Writes the usage; false and nothing when there is none.
    pub fn write_usage(&self, out: &mut impl Sink) -> bool {
        let completion = &self.stream.body.completion;
        let (usage, _) = choose(&completion.usage, &completion.choice_usage, &completion.groq_usage);
        usage.map(|usage| write_members(usage, out)).is_some()
    }

    /// Choice index and finish reason, by index.
    pub fn finish_reasons(&self) -> impl Iterator<Item = (u64, Option<&str>)> {
        self.stream.body.completion.choices.iter().map(|choice| (choice.index, choice.finish_reason.as_deref()))
    }

    /// Sizes of what came; the code points are counted now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let choices = &self.stream.body.completion.choices;
        let chars = |texts: Vec<&Text>| texts.into_iter().map(|text| text.chars() as u64).sum::<u64>();
        Counts {
            bytes: self.stream.machine.bytes(),
            events: self.stream.events(),
            chunks: self.stream.body.chunks,
            after_done: self.stream.body.after_done,
            content: choices.iter().map(|choice| chars(choice.texts("content"))).sum(),
            reasoning: choices.iter().map(|choice| chars(choice.reasoning())).sum(),
            refusal: choices.iter().map(|choice| chars(choice.texts("refusal"))).sum(),
            tool_arguments: choices.iter().map(|choice| chars(choice.arguments())).sum(),
        }
    }

    /// The text of a choice's content, text parts joined.
    #[must_use]
    pub fn text(&self, choice: u64) -> String {
        let choice = self.stream.body.completion.choice(choice);
        joined(choice.map(|choice| choice.texts("content")).unwrap_or_default())
    }

    /// The text behind `cursor` bytes, and the next cursor; a surrogate half that waits is withheld until `close`.
    #[must_use]
    pub fn text_since(&self, cursor: usize, choice: u64) -> (String, usize) {
        self.member_since("content", cursor, choice)
    }

    /// `text_since` for any member of the message that is text; `content.thinking` for the thinking among the parts.
    #[must_use]
    pub fn member_since(&self, name: &str, cursor: usize, choice: u64) -> (String, usize) {
        let choice = self.stream.body.completion.choice(choice);
        let texts = choice.map(|choice| choice.texts(name)).unwrap_or_default();
        let mut new = String::new();
        let mut end = 0;
        for (at, text) in texts.iter().enumerate() {
            let withheld = at + 1 == texts.len() && text.half() && !self.closed;
            let length = if withheld { text.decided_len() } else { text.nbytes() };
            if cursor < end + length {
                new.push_str(text.decided().get(cursor.saturating_sub(end)..).unwrap_or(""));
                if text.half() && !withheld {
                    new.push('\u{fffd}');
                }
            }
            end += length;
        }
        (new, end.max(cursor))
    }

    /// The tool calls whose arguments grew behind `cursor(number)` bytes; a bare `{}`, which may be a placeholder, is
    /// withheld. `every`: all calls as they are.
    pub fn calls_since(&self, choice: u64, every: bool, cursor: impl Fn(u64) -> usize) -> Vec<Grown> {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let choice = self.stream.body.completion.choice(choice);
        let calls = choice.map(|choice| choice.calls()).unwrap_or_default();
        let mut grown = Vec::new();
        for (position, call) in calls.into_iter().enumerate() {
            let from = cursor(call.before);
            let text = match call.arguments() {
                Some(arguments) if every || !arguments.is_bare() => arguments.text.decided(),
                _ => "",
            };
            if every || text.len() > from {
                grown.push(Grown {
                    position,
                    number: call.before,
                    id: some(&call.id),
                    kind: call.kind().to_owned(),
                    name: some(call.name()),
                    new: text.get(from..).unwrap_or("").to_owned(),
                    end: text.len().max(from),
                });
            }
        }
        grown
    }

    /// The reasoning of a choice.
    #[must_use]
    pub fn reasoning_text(&self, choice: u64) -> String {
        joined(self.stream.body.completion.choice(choice).map(|choice| choice.reasoning()).unwrap_or_default())
    }

    /// The tool calls of a choice, in the order of the result.
    #[must_use]
    pub fn tool_calls(&self, choice: u64) -> Vec<ToolCall> {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let choice = self.stream.body.completion.choice(choice);
        let calls = choice.map(|choice| choice.calls()).unwrap_or_default();
        calls
            .into_iter()
            .map(|call| ToolCall {
                id: some(&call.id),
                kind: call.kind().to_owned(),
                name: some(call.name()),
                arguments: joined(call.arguments().map(|arguments| &arguments.text).into_iter().collect()),
            })
            .collect()
    }
}

fn joined(texts: Vec<&Text>) -> String {
    let mut out = String::with_capacity(texts.iter().map(|text| text.nbytes()).sum());
    texts.into_iter().for_each(|text| text.push_to(&mut out));
    out
}

/// Appends a string as JSON text.
pub fn push_json_string(value: &str, out: &mut String) {
    write_string(value, out);
}
