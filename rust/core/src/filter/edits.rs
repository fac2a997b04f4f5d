//! What becomes of the chunks of one payload, as edits of its text.
use super::outline::{Member, Outline};
use super::{Answer, Calls, Options};
use crate::chunk::{Value, WHITE, trim};
use crate::json::{Kind, Tape};
use std::borrow::Cow;
use std::ops::Range;

/// What a filter changes.
#[derive(Debug)]
pub(super) struct Changes {
    options: Options,
    strip: Names,
    /// The outermost members of a chunk decide.
    pub flat: bool,
}

impl Changes {
    pub fn new(options: Options) -> Self {
        let strip = Names::of(&options.strip);
        let flat = !options.set_usage && !options.on_chunk && strip.0.iter().all(|(_, inside)| inside.is_all());
        Self { options, strip, flat }
    }

    /// Whether any of the options changes anything.
    pub fn any(&self) -> bool {
        let options = &self.options;
        let alias = options.model.is_some() || options.id.is_some();
        alias || options.drop_usage_chunk || !self.strip.0.is_empty() || options.set_usage || options.on_chunk
    }

    /// Whether a caller's function decides about each chunk.
    pub fn asks(&self) -> bool {
        self.options.on_chunk
    }

    /// The edits of a chunk whose outermost members decide; false, and nothing is done, where they do not.
    pub fn of_outline(&self, outline: &Outline, text: &[u8], out: &mut Vec<Edit>) -> bool {
        let members = &outline.members;
        let usage = |member: &Member| text[member.name.clone()] == *b"usage" && text[member.value.start] == b'{';
        if members.iter().any(|member| member.escaped) || self.options.drop_usage_chunk && members.iter().any(usage) {
            return false;
        }
        let mut removes = false;
        for member in members {
            let alias = match &text[member.name.clone()] {
                b"model" if self.options.model.is_some() => New::Model,
                b"id" if self.options.id.is_some() => New::Id,
                _ => New::Nothing,
            };
            if self.removes(&text[member.name.clone()]) {
                removes = true;
            } else if !matches!(alias, New::Nothing) && text[member.value.start] == b'"' {
                out.push(Edit { start: member.value.start, end: member.value.end, new: alias });
            }
        }
        if removes {
            let spans: Vec<_> = members.iter().map(Member::span).collect();
            let removed: Vec<_> = members.iter().map(|member| self.removes(&text[member.name.clone()])).collect();
            removals(&spans, &removed, out);
            out.sort_unstable_by_key(|edit| edit.start);
        }
        true
    }

    /// Whether the outermost member of that name goes, whatever is in it.
    fn removes(&self, name: &[u8]) -> bool {
        self.strip.0.iter().any(|(known, inside)| inside.is_all() && known.as_bytes() == name)
    }

    /// The edits of the chunks of one payload; false when all of them go. Sets `asked` where a caller's function was.
    pub fn of_chunks<C: Calls>(
        &self,
        chunks: &Chunks<'_>,
        calls: &mut C,
        asked: &mut bool,
        out: &mut Vec<Edit>,
    ) -> Result<bool, C::Error> {
        let root = chunks.root();
        if root.is_object() {
            return self.chunk_edits(chunks, root, calls, asked, out);
        }
        let mut spans = Vec::new();
        let mut removed = Vec::new();
        for chunk in root.items() {
            spans.push(chunks.span(chunk));
            removed.push(!self.chunk_edits(chunks, chunk, calls, asked, out)?);
        }
        removals(&spans, &removed, out);
        out.sort_unstable_by_key(|edit| edit.start);
        Ok(removed.contains(&false))
    }

    fn chunk_edits<C: Calls>(
        &self,
        chunks: &Chunks<'_>,
        chunk: Value<'_>,
        calls: &mut C,
        asked: &mut bool,
        out: &mut Vec<Edit>,
    ) -> Result<bool, C::Error> {
        if self.options.drop_usage_chunk && !chunks.is_error && only_usage(chunk) {
            return Ok(false);
        }
        let first = out.len();
        self.member_edits(chunks, chunk, calls, asked, out)?;
        out[first..].sort_unstable_by_key(|edit| edit.start);
        if self.options.on_chunk {
            let span = chunks.span(chunk);
            let text = self.applied(&chunks.raw[span.clone()], span.start, &out[first..]);
            match calls.chunk(&text)? {
                Answer::Same => {}
                Answer::Dropped => {
                    out.truncate(first);
                    return Ok(false);
                }
                Answer::Text(text) => {
                    out.truncate(first);
                    out.push(Edit { start: span.start, end: span.end, new: New::Text(text) });
                }
            }
        }
        Ok(true)
    }

    fn member_edits<C: Calls>(
        &self,
        chunks: &Chunks<'_>,
        chunk: Value<'_>,
        calls: &mut C,
        asked: &mut bool,
        out: &mut Vec<Edit>,
    ) -> Result<(), C::Error> {
        let options = &self.options;
        let last = if options.set_usage { pairs(chunk).filter(|(key, _)| key.name() == "usage").last() } else { None };
        let usage = last.map(|(_, value)| value.at);
        let mut removes = false;
        for (key, value) in pairs(chunk) {
            let name = key.name();
            let alias = match &*name {
                "model" if options.model.is_some() && value.is_string() => Some(New::Model),
                "id" if options.id.is_some() && value.is_string() => Some(New::Id),
                _ => None,
            };
            let span = chunks.span(value);
            match (self.strip.get(&name), alias) {
                (Some(Inside::All), _) => removes = true,
                (_, Some(new)) => out.push(Edit { start: span.start, end: span.end, new }),
                (inside, None) => {
                    let first = out.len();
                    if let Some(Inside::Names(names)) = inside {
                        strip_inside(chunks, value, names, out);
                    }
                    if usage == Some(value.at) && value.is_object() {
                        *asked = true;
                        out[first..].sort_unstable_by_key(|edit| edit.start);
                        let text = self.applied(&chunks.raw[span.clone()], span.start, &out[first..]);
                        if let Some(text) = calls.usage(&text)? {
                            out.truncate(first);
                            out.push(Edit { start: span.start, end: span.end, new: New::Text(text) });
                        }
                    }
                }
            }
        }
        if removes {
            remove_members(chunks, chunk, &self.strip, out);
        }
        Ok(())
    }

    fn applied(&self, text: &[u8], shift: usize, edits: &[Edit]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len() + 64);
        self.apply(text, shift, edits, &mut out);
        out
    }

    /// Appends `text`, which begins at `shift`, with edits in ascending order.
    pub fn apply(&self, text: &[u8], shift: usize, edits: &[Edit], out: &mut Vec<u8>) {
        let mut at = 0;
        for edit in edits {
            out.extend_from_slice(&text[at..edit.start - shift]);
            out.extend_from_slice(self.text_of(edit));
            at = edit.end - shift;
        }
        out.extend_from_slice(&text[at..]);
    }

    pub fn text_of<'a>(&'a self, edit: &'a Edit) -> &'a [u8] {
        match &edit.new {
            New::Nothing => b"",
            New::Model => self.options.model.as_deref().unwrap_or_default().as_bytes(),
            New::Id => self.options.id.as_deref().unwrap_or_default().as_bytes(),
            New::Text(text) => text,
        }
    }
}

/// One span of a text and what takes its place.
#[derive(Debug)]
pub(super) struct Edit {
    pub start: usize,
    pub end: usize,
    pub new: New,
}

#[derive(Debug)]
pub(super) enum New {
    Nothing,
    Model,
    Id,
    Text(Vec<u8>),
}

/// What to strip.
#[derive(Debug, Default)]
struct Names(Vec<(String, Inside)>);

#[derive(Debug)]
enum Inside {
    All,
    Names(Names),
}

impl Inside {
    fn is_all(&self) -> bool {
        matches!(self, Inside::All)
    }
}

impl Names {
    /// Paths as one tree; where one leads to all of an object, others into it say nothing more.
    fn of(paths: &[Vec<String>]) -> Self {
        let mut names = Self::default();
        for path in paths {
            names.add(path);
        }
        names
    }

    fn add(&mut self, path: &[String]) {
        let Some((name, rest)) = path.split_first() else { return };
        let place = self.0.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            self.0.push((name.clone(), Inside::Names(Self::default())));
            self.0.len() - 1
        });
        let inside = &mut self.0[place].1;
        match inside {
            Inside::Names(names) if !rest.is_empty() => names.add(rest),
            _ => *inside = Inside::All,
        }
    }

    #[inline]
    fn get(&self, name: &str) -> Option<&Inside> {
        self.0.iter().find_map(|(known, inside)| (known == name).then_some(inside))
    }
}

/// The chunks of one payload: its data, and the trimmed text of that on a tape.
pub(super) struct Chunks<'a> {
    raw: &'a [u8],
    text: &'a str,
    /// Where the text begins in the data.
    base: usize,
    tape: &'a Tape,
    is_error: bool,
}

impl<'a> Chunks<'a> {
    pub fn new(raw: &'a [u8], data: &'a str, tape: &'a Tape, is_error: bool) -> Self {
        let text = trim(data).0;
        let base = data.trim_end_matches(WHITE).len() - text.len();
        Self { raw, text, base, tape, is_error }
    }

    /// Where the text of the payload is in its data.
    pub fn place(&self) -> Range<usize> {
        self.base..self.base + self.text.len()
    }

    fn root(&self) -> Value<'a> {
        Value { tape: self.tape, text: self.text, at: 0 }
    }

    /// Where a value is in the data, quotes included.
    fn span(&self, value: Value<'_>) -> Range<usize> {
        let node = value.node();
        let quote = usize::from(matches!(node.kind, Kind::String | Kind::Key));
        self.base + node.start as usize - quote..self.base + node.end as usize + quote
    }
}

/// The members of an object as they stand there, those given again too.
pub(super) fn pairs<'a>(object: Value<'a>) -> impl Iterator<Item = (Name<'a>, Value<'a>)> {
    let end = if object.is_object() { object.node().next as usize } else { 0 };
    let mut at = object.at + 1;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let (key, value) = (Value { at, ..object }, Value { at: at + 1, ..object });
            at = value.node().next as usize;
            (Name(key), value)
        })
    })
}

/// A key.
#[derive(Clone, Copy)]
pub(super) struct Name<'a>(pub Value<'a>);

impl<'a> Name<'a> {
    fn name(self) -> Cow<'a, str> {
        self.0.tape.key(self.0.text, self.0.at)
    }
}

fn only_usage(chunk: Value<'_>) -> bool {
    let bare = chunk.get("choices").is_none_or(|choices| choices.is_null() || choices.is_array() && choices.is_empty());
    bare && chunk.get("usage").is_some_and(Value::is_object)
        && !chunk.get("error").is_some_and(Value::is_truthy)
        && !chunk.get("object").is_some_and(|object| object.is_str("error"))
}

/// The edits that remove `names` from an object, or from the objects in a list.
fn strip_inside(chunks: &Chunks<'_>, value: Value<'_>, names: &Names, out: &mut Vec<Edit>) {
    if value.is_array() {
        for entry in value.items().filter(|entry| entry.is_object()) {
            strip_inside(chunks, entry, names, out);
        }
        return;
    }
    let mut removes = false;
    for (key, member) in pairs(value) {
        match names.get(&key.name()) {
            Some(Inside::All) => removes = true,
            Some(Inside::Names(names)) => strip_inside(chunks, member, names, out),
            None => {}
        }
    }
    if removes {
        remove_members(chunks, value, names, out);
    }
}

fn remove_members(chunks: &Chunks<'_>, object: Value<'_>, names: &Names, out: &mut Vec<Edit>) {
    let (mut spans, mut removed) = (Vec::new(), Vec::new());
    for (key, value) in pairs(object) {
        spans.push(chunks.span(key.0).start..chunks.span(value).end);
        removed.push(matches!(names.get(&key.name()), Some(Inside::All)));
    }
    removals(&spans, &removed, out);
}

/// The edits that remove some of an object's members or an array's entries, each with one comma.
fn removals(spans: &[Range<usize>], removed: &[bool], out: &mut Vec<Edit>) {
    let kept = removed.iter().position(|&removed| !removed).unwrap_or(spans.len());
    for (place, span) in spans.iter().enumerate().filter(|&(place, _)| removed[place]) {
        let start = if place > kept { spans[place - 1].end } else { span.start };
        let end = if place < kept && place + 1 < spans.len() { spans[place + 1].start } else { span.end };
        out.push(Edit { start, end, new: New::Nothing });
    }
}
