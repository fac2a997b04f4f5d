//! Bytes → rewritten bytes, for a relay: a chunk is changed where it changes, and all other bytes are the upstream's.
//!
//! # How it works
//!
//! The stream is cut into *frames*: from the first known field after a blank line up to and with the next blank line.
//! Only frames are ever held back, and only one, since its last byte may still decide what becomes of its first. All that
//! stands between frames (blank lines, comments, lines that are no field, so also a whole body that never was an event
//! stream) goes out as it comes. Without an option that changes anything nothing is held at all.
//!
//! A frame's data is read as the accumulator reads it ([`payload`]: padding, doubled `data:` prefixes, several `data`
//! lines, forgotten blank lines). Each chunk in it gives *edits*, spans of the data and what takes their place; what is
//! between them is not touched. A span of the data lies on one or more `data` lines, and is edited on each by itself
//! ([`on_lines`]): the line ends between them are white space between two tokens, as no JSON token holds one.
//!
//! A blank line's CR ends its frame at once; an LF that the next piece brings shares the frame's fate (`dropped`). A frame that
//! passes the limit, or ends without its blank line and is no JSON, goes out as it is.
//!
//! # The fast path
//!
//! Consecutive chunks mostly differ in nothing but their text. So a frame that was read in full leaves a [`Shape`]: its
//! bytes outside of *holes*, and what stands for these bytes in the output. Holes are strings anywhere in `choices` and
//! the padding, and where that did not do also numbers there, in `usage`, and `created`. The next frame has that shape when
//! its bytes outside the holes are the same and each hole is the inside of a JSON string, or a number. That is enough, by
//! construction:
//!
//! * It is a frame, and ends where the shape ends: no JSON string or number holds a line end, so the lines are the same.
//! * It parses to the same tree: the same tokens, but for the content of some strings and numbers that are values.
//! * It gets the same edits: they depend on names, on where values begin and end, on the kind of values, on whether
//!   `choices` is empty, `error` is truthy and `object` is `error`, and never on the content of a hole. No edit begins or
//!   ends in a hole; one that lies inside an edit is removed with it, as another would be.
//! * No shape is learned from a frame whose change a caller's function decides, or that was dropped.

use crate::chunk::{Payload, Reading, Value, WHITE, payload, read, trim};
use crate::json::{Kind, Tape, hole_end, number_end};
use crate::limits::Limits;
use memchr::memchr2;
use std::borrow::Cow;
use std::convert::Infallible;
use std::ops::Range;

const BOM: &[u8] = b"\xef\xbb\xbf";
/// Bytes that show whether a line is a field.
const HEAD: usize = 6;
const FIELDS: [&[u8]; 4] = [b"data:", b"event:", b"id:", b"retry:"];
/// Holes of a shape.
const HOLES: usize = 16;
/// Shapes learned in vain after which numbers become holes too: a hole costs a few nanoseconds, a shape without use more.
const STRINGS_ONLY: u8 = 2;
/// Bytes of a shape.
const SHAPE_BYTES: usize = 4096;
/// Bytes of a buffer that is kept for the next frame.
const ROOM: usize = 64 * 1024;

/// What a [`Filter`] changes.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// JSON text that takes the place of each top-level `model` that is a string.
    pub model: Option<String>,
    /// The same for `id`.
    pub id: Option<String>,
    /// Drop chunks that bring nothing but usage.
    pub drop_usage_chunk: bool,
    /// Paths of names whose members are removed.
    pub strip: Vec<Vec<String>>,
    /// Ask [`Calls::usage`].
    pub set_usage: bool,
    /// Ask [`Calls::chunk`].
    pub on_chunk: bool,
}

/// The caller's functions.
pub trait Calls {
    /// Why one failed.
    type Error;
    /// The JSON text that takes the place of a usage object; None where it stays.
    fn usage(&mut self, text: &[u8]) -> Result<Option<Vec<u8>>, Self::Error>;
    /// What becomes of a chunk.
    fn chunk(&mut self, text: &[u8]) -> Result<Answer, Self::Error>;
}

/// What becomes of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It stays.
    Same,
    /// It goes.
    Dropped,
    /// This takes its place; without a line end.
    Text(Vec<u8>),
}

/// No functions.
#[derive(Clone, Copy, Debug)]
pub struct NoCalls;

impl Calls for NoCalls {
    type Error = Infallible;
    fn usage(&mut self, _: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(None)
    }
    fn chunk(&mut self, _: &[u8]) -> Result<Answer, Infallible> {
        Ok(Answer::Same)
    }
}

/// The filter of one stream.
///
/// ```
/// use deltafold_core::filter::{Filter, NoCalls, Options};
/// let options = Options { model: Some("\"fast\"".into()), ..Options::default() };
/// let mut filter = Filter::new(options, Default::default());
/// let Ok(sent) = filter.feed(b"data: {\"model\": \"m-2026\", \"choices\": []}\n\ndata: [DO", &mut NoCalls);
/// assert_eq!(sent, b"data: {\"model\": \"fast\", \"choices\": []}\n\n");
/// ```
#[derive(Debug)]
pub struct Filter {
    options: Options,
    strip: Names,
    limits: Limits,
    holds: bool,

    place: Place,
    bom: usize,
    led: bool,
    between: bool,
    blank: bool,
    swallow: bool,
    dropped: bool,
    held: Vec<u8>,
    left: Vec<u8>,
    waiting: Vec<u8>,

    out: Vec<u8>,
    kept: bool,
    same: Range<usize>,

    tape: Tape,
    shapes: [Option<Shape>; 2],
    /// Shapes learned since one was last of use.
    learned: u8,
}

/// Where the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Between,
    OtherLine,
    Held,
    /// In a frame that nobody may change.
    Passing,
}

/// What becomes of a frame.
enum Change {
    Same,
    Gone,
    Text(Vec<u8>),
}

impl Filter {
    /// A filter at a stream's first byte.
    #[must_use]
    pub fn new(options: Options, limits: Limits) -> Self {
        let holds = options.model.is_some()
            || options.id.is_some()
            || options.drop_usage_chunk
            || !options.strip.is_empty()
            || options.set_usage
            || options.on_chunk;
        Self {
            strip: Names::of(&options.strip),
            options,
            limits,
            holds,
            place: Place::Between,
            bom: 0,
            led: false,
            between: true,
            blank: true,
            swallow: false,
            dropped: false,
            held: Vec::new(),
            left: Vec::new(),
            waiting: Vec::new(),
            out: Vec::new(),
            kept: false,
            same: 0..0,
            tape: Tape::new(),
            shapes: [None, None],
            learned: 0,
        }
    }

    /// The upstream's next bytes, cut anywhere; gives those to send on, a part of `piece` itself where nothing changed.
    ///
    /// # Errors
    /// What one of `calls` failed with. Its frame is left out; the next call goes on behind it and gives what was ready.
    pub fn feed<'a, C: Calls>(&'a mut self, piece: &'a [u8], calls: &mut C) -> Result<&'a [u8], C::Error> {
        if !self.left.is_empty() {
            let joined = [&std::mem::take(&mut self.left), piece].concat();
            let run = self.run(&joined, calls);
            self.flush(&joined);
            return run.map(|()| self.out.as_slice());
        }
        let run = self.run(piece, calls);
        if run.is_ok() && self.out.is_empty() && self.same.start == 0 {
            return Ok(&piece[..self.same.end]);
        }
        self.flush(piece);
        run.map(|()| self.out.as_slice())
    }

    /// Puts whole events between the upstream's: those to send now, or nothing while a frame is half sent; `event`
    /// then comes with the bytes of the `feed` that ends the frame.
    pub fn inject(&mut self, event: &[u8]) -> &[u8] {
        if !self.kept {
            reuse(&mut self.out);
        }
        self.kept = false;
        if !self.between || self.place == Place::OtherLine || (1..BOM.len()).contains(&self.bom) {
            self.waiting.extend_from_slice(event);
        } else {
            self.led |= !event.is_empty();
            self.out.extend_from_slice(event);
        }
        &self.out
    }

    /// Ends the stream; gives what was held back, as it came unless only its blank line is missing.
    ///
    /// # Errors
    /// As of `feed`.
    pub fn close<C: Calls>(&mut self, calls: &mut C) -> Result<&[u8], C::Error> {
        let left = std::mem::take(&mut self.left);
        let run = self.run(&left, calls);
        self.flush(&left);
        run?;
        self.kept = true;
        if self.held.is_empty() {
            self.out.append(&mut self.left);
            return Ok(&self.out);
        }
        let rest = std::mem::take(&mut self.held);
        match self.rewrite(&rest, false, calls)? {
            Change::Same => self.out.extend_from_slice(&rest),
            Change::Gone => {}
            Change::Text(text) => self.out.extend_from_slice(&text),
        }
        Ok(&self.out)
    }

    // Bytes to frames

    fn run<C: Calls>(&mut self, piece: &[u8], calls: &mut C) -> Result<(), C::Error> {
        if !std::mem::take(&mut self.kept) {
            reuse(&mut self.out);
        }
        if !self.holds && self.bom == BOM.len() && self.waiting.is_empty() && piece.ends_with(b"\n\n") {
            // whatever came before, this ends a blank line
            (self.place, self.between, self.blank) = (Place::Between, true, true);
            (self.swallow, self.dropped, self.same) = (false, false, 0..piece.len());
            return Ok(());
        }
        self.same = 0..0;
        let mut at = if self.bom < BOM.len() { self.skip_bom(piece) } else { 0 };
        while at < piece.len() {
            at = match self.place {
                Place::Between => match self.by_shape(piece, at) {
                    Some(end) => end,
                    None => self.between_frames(piece, at),
                },
                Place::Held => self.in_held(piece, at, calls)?,
                Place::Passing => self.in_passing(piece, at),
                Place::OtherLine => self.in_other_line(piece, at),
            };
        }
        Ok(())
    }

    fn skip_bom(&mut self, piece: &[u8]) -> usize {
        let mut at = 0;
        while let Some(&byte) = piece.get(at)
            && self.bom < BOM.len()
        {
            if byte != BOM[self.bom] {
                if self.bom > 0 {
                    (self.place, self.between) = (Place::OtherLine, false);
                    if self.led {
                        self.out.extend_from_slice(&BOM[..self.bom]);
                    }
                }
                self.bom = BOM.len();
                break;
            }
            self.bom += 1;
            at += 1;
        }
        if !self.led {
            self.same = 0..at;
        }
        at
    }

    fn between_frames(&mut self, piece: &[u8], at: usize) -> usize {
        let byte = piece[at];
        if std::mem::take(&mut self.swallow) && byte == b'\n' {
            if !self.dropped {
                self.pass(piece, at, at + 1);
            }
            return at + 1;
        }
        if matches!(byte, b'\n' | b'\r') {
            let (end, _) = line_end(piece, at);
            self.pass(piece, at, end);
            (self.swallow, self.dropped) = (piece[end - 1] == b'\r', false);
            self.boundary(piece);
            return end;
        }
        let head = &piece[at..piece.len().min(at + HEAD)];
        if !self.holds {
            (self.place, self.between) = (Place::Passing, false);
        } else if is_field(head) {
            self.place = Place::Held;
        } else if head.len() < HEAD && FIELDS.iter().any(|field| field.starts_with(head)) {
            self.left = head.to_vec();
            return piece.len();
        } else {
            self.place = Place::OtherLine;
            self.between &= byte == b':';
        }
        at
    }

    fn in_other_line(&mut self, piece: &[u8], at: usize) -> usize {
        let (end, ended) = line_end(piece, at);
        self.pass(piece, at, end);
        if ended {
            self.place = Place::Between;
            (self.swallow, self.dropped) = (piece[end - 1] == b'\r', false);
            if self.between {
                self.boundary(piece);
            }
        }
        end
    }

    fn in_passing(&mut self, piece: &[u8], at: usize) -> usize {
        let (end, ended) = self.frame_end(piece, at);
        self.pass(piece, at, end);
        if ended {
            (self.place, self.dropped) = (Place::Between, false);
            self.boundary(piece);
        }
        end
    }

    fn in_held<C: Calls>(&mut self, piece: &[u8], at: usize, calls: &mut C) -> Result<usize, C::Error> {
        let (end, ended) = self.frame_end(piece, at);
        let part = &piece[at..end];
        if !ended {
            self.held.extend_from_slice(part);
            if self.held.len() > self.limits.max_event_bytes {
                self.flush(piece);
                self.out.append(&mut self.held);
                (self.place, self.between) = (Place::Passing, false);
            }
            return Ok(end);
        }
        let mut held = std::mem::take(&mut self.held);
        let whole = held.is_empty();
        let frame = if whole {
            part
        } else {
            held.extend_from_slice(part);
            &held
        };
        (self.place, self.dropped) = (Place::Between, true);
        let small = counted(frame) <= self.limits.max_event_bytes;
        let change = if small { self.rewrite(frame, true, calls) } else { Ok(Change::Same) };
        match &change {
            Ok(Change::Same) if whole => self.pass(piece, at, end),
            Ok(Change::Same) => self.put(piece, frame),
            Ok(Change::Text(text)) => self.put(piece, text),
            Ok(Change::Gone) => {}
            Err(_) => {
                self.left = piece[end..].to_vec();
                (self.between, self.kept) = (true, true);
            }
        }
        self.dropped = matches!(change?, Change::Gone);
        self.boundary(piece);
        reuse(&mut held);
        self.held = held;
        Ok(end)
    }

    /// The end of the blank line that ends a frame, or of the piece; whether it is the former.
    fn frame_end(&mut self, piece: &[u8], mut at: usize) -> (usize, bool) {
        while let Some(&byte) = piece.get(at) {
            if std::mem::take(&mut self.swallow) && byte == b'\n' {
                at += 1;
                continue;
            }
            let ends = self.blank && matches!(byte, b'\n' | b'\r');
            (at, self.blank) = line_end(piece, at);
            self.swallow = self.blank && piece[at - 1] == b'\r';
            if ends {
                return (at, true);
            }
        }
        (at, false)
    }

    fn boundary(&mut self, piece: &[u8]) {
        self.between = true;
        if !self.waiting.is_empty() {
            self.flush(piece);
            self.out.append(&mut self.waiting);
        }
    }

    // What to send: `out`, and behind it a stretch of the piece that goes out as it is

    #[inline]
    fn pass(&mut self, piece: &[u8], start: usize, end: usize) {
        if start != self.same.end {
            self.flush(piece);
            self.same.start = start;
        }
        self.same.end = end;
    }

    #[inline]
    fn flush(&mut self, piece: &[u8]) {
        self.out.extend_from_slice(&piece[self.same.clone()]);
        self.same.start = self.same.end;
    }

    fn put(&mut self, piece: &[u8], text: &[u8]) {
        self.flush(piece);
        self.out.extend_from_slice(text);
    }

    // Frames to changed frames

    fn rewrite<C: Calls>(&mut self, frame: &[u8], whole: bool, calls: &mut C) -> Result<Change, C::Error> {
        let mut tape = std::mem::take(&mut self.tape);
        let change = self.rewrite_on(frame, whole, calls, &mut tape);
        self.tape = tape;
        change
    }

    fn rewrite_on<C: Calls>(
        &mut self,
        frame: &[u8],
        whole: bool,
        calls: &mut C,
        tape: &mut Tape,
    ) -> Result<Change, C::Error> {
        let text = readable(frame);
        let (mut lines, is_error) = data_lines(&text);
        let depth = self.limits.max_depth;
        let mut data = joined(&text, &lines);
        let mut found = if lines.is_empty() { Payload::Bad } else { payload(&data, depth, tape).0 };
        if found == Payload::Bad && !whole && lines.len() > 1 && lines.last().is_some_and(|l| l.end == l.value_end) {
            lines.pop(); // the unfinished line is no part of what came before it
            data = joined(&text, &lines);
            found = payload(&data, depth, tape).0;
        }
        let mut edits = Vec::new();
        let mut gone = 0;
        let mut asked = self.options.on_chunk;
        match found {
            Payload::One(Reading::Chunks) => {
                let raw = joined_bytes(frame, &lines);
                let chunks = Chunks::new(&raw, &data, tape, is_error);
                if !self.edits(&chunks, calls, &mut asked, &mut edits)? {
                    return Ok(Change::Gone);
                }
                edits = on_lines(edits, &lines);
                if whole && !asked && lines.len() == 1 {
                    self.learn(frame, &chunks, lines[0].value, &edits);
                }
            }
            Payload::Lines | Payload::LastLineError => {
                let last =
                    lines.iter().rposition(|line| !text[line.value..line.value_end].trim_matches(WHITE).is_empty());
                for (place, line) in lines.iter().enumerate() {
                    let span = line.value..line.value_end;
                    let (raw, data) = (&frame[span.clone()], &text[span]);
                    let left_out = found == Payload::LastLineError && Some(place) != last;
                    if left_out || read(trim(data).0, depth, tape) != Reading::Chunks {
                        continue;
                    }
                    let chunks = Chunks::new(raw, data, tape, is_error);
                    let mut here = Vec::new();
                    if self.edits(&chunks, calls, &mut asked, &mut here)? {
                        edits.append(&mut on_lines(here, std::slice::from_ref(line)));
                    } else {
                        gone += 1;
                        edits.push(Edit { start: line.start, end: line.end, new: New::Nothing });
                    }
                }
            }
            Payload::One(_) | Payload::Bad => {}
        }
        Ok(if edits.is_empty() {
            Change::Same
        } else if gone == lines.len() {
            Change::Gone
        } else {
            Change::Text(self.applied(frame, 0, &edits))
        })
    }

    /// The changes to the chunks of one payload, as edits of its data; false when all of them go.
    fn edits<C: Calls>(
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

    /// `text`, which begins at `shift`, with edits in ascending order.
    fn applied(&self, text: &[u8], shift: usize, edits: &[Edit]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len() + 64);
        let mut at = 0;
        for edit in edits {
            out.extend_from_slice(&text[at..edit.start - shift]);
            out.extend_from_slice(self.new_text(edit));
            at = edit.end - shift;
        }
        out.extend_from_slice(&text[at..]);
        out
    }

    fn new_text<'a>(&'a self, edit: &'a Edit) -> &'a [u8] {
        match &edit.new {
            New::Nothing => b"",
            New::Model => self.options.model.as_deref().unwrap_or_default().as_bytes(),
            New::Id => self.options.id.as_deref().unwrap_or_default().as_bytes(),
            New::Text(text) => text,
        }
    }

    // The fast path

    /// The end of the frame at `at`, if it has a known shape; it is then dealt with.
    #[inline]
    fn by_shape(&mut self, piece: &[u8], at: usize) -> Option<usize> {
        if self.swallow {
            return None;
        }
        let frame = &piece[at..];
        let longest = self.limits.max_event_bytes.min(u32::MAX as usize);
        let mut holes = Holes::default();
        let (known, length) = self.shapes.iter().enumerate().find_map(|(known, shape)| {
            let length = shape.as_ref()?.matches(frame, &mut holes)?;
            (counted(&frame[..length]) <= longest).then_some((known, length))
        })?;
        if let Some(shape) = &self.shapes[known] {
            if shape.same {
                self.pass(piece, at, at + length);
            } else {
                self.out.extend_from_slice(&piece[self.same.clone()]);
                self.same.start = self.same.end;
                shape.write(frame, &holes, &mut self.out);
            }
        }
        if known > 0 {
            self.shapes.swap(0, known);
        }
        self.learned = 0;
        self.dropped = false;
        self.boundary(piece);
        Some(at + length)
    }

    /// Remembers the shape of a frame that was read in full; its `edits` are those of the frame.
    fn learn(&mut self, frame: &[u8], chunks: &Chunks<'_>, value: usize, edits: &[Edit]) {
        let root = chunks.root();
        if !frame.ends_with(b"\n") || !root.is_object() {
            return;
        }
        self.learned = self.learned.saturating_add(1);
        let mut holes = Vec::with_capacity(HOLES + 1);
        let mut length = frame.len();
        for (key, member) in pairs(root) {
            let nodes = match &*key.name() {
                "choices" | "usage" => member.at..member.node().next as usize,
                "obfuscation" | "p" | "created" => member.at..member.at + 1,
                _ => continue,
            };
            for node in &chunks.tape.nodes()[nodes] {
                let number = match node.kind {
                    Kind::String => false,
                    Kind::Int | Kind::Float if self.learned > STRINGS_ONLY => true,
                    _ => continue,
                };
                if holes.len() == HOLES {
                    return;
                }
                let base = value + chunks.base;
                length -= (node.end - node.start) as usize;
                holes.push((base + node.start as usize..base + node.end as usize, number));
            }
        }
        if length > SHAPE_BYTES {
            return;
        }
        let mut shape = Shape { text: Vec::new(), new: Vec::new(), parts: Vec::new(), same: edits.is_empty() };
        let (mut from, mut edits, mut gone_to) = (0, edits.iter().peekable(), 0);
        holes.push((frame.len()..frame.len(), false));
        for (hole, number) in holes {
            shape.text.extend_from_slice(&frame[from..hole.start]);
            let mut at = gone_to.max(from);
            while let Some(edit) = edits.next_if(|edit| edit.start < hole.start) {
                shape.new.extend_from_slice(&frame[at..edit.start]);
                shape.new.extend_from_slice(self.new_text(edit));
                (at, gone_to) = (edit.end, edit.end);
            }
            if at < hole.start {
                shape.new.extend_from_slice(&frame[at..hole.start]);
            }
            let stays = gone_to <= hole.start;
            shape.parts.push(Part { text_end: shape.text.len(), new_end: shape.new.len(), number, stays });
            from = hole.end;
        }
        if let Some(last) = shape.parts.last_mut() {
            last.stays = false; // there is no hole
        }
        self.shapes.swap(0, 1);
        self.shapes[0] = Some(shape);
    }
}

/// A frame without its holes, and what stands for that in the output.
#[derive(Debug)]
struct Shape {
    text: Vec<u8>,
    new: Vec<u8>,
    /// What stands before each hole; the last one before the frame's end.
    parts: Vec<Part>,
    /// Nothing is changed.
    same: bool,
}

#[derive(Debug)]
struct Part {
    text_end: usize,
    new_end: usize,
    /// The hole behind it is a number, else the inside of a string.
    number: bool,
    /// The hole is not inside of what is removed.
    stays: bool,
}

type Holes = [(u32, u32); HOLES];

impl Shape {
    /// The length of the frame that `bytes` begin with, if it has this shape, and where its holes are.
    #[inline]
    fn matches(&self, bytes: &[u8], holes: &mut Holes) -> Option<usize> {
        let (last, parts) = self.parts.split_last()?;
        let (mut at, mut from) = (0, 0);
        for (part, hole) in parts.iter().zip(holes) {
            let text = &self.text[from..part.text_end];
            if !bytes[at..].starts_with(text) {
                return None;
            }
            at += text.len();
            let end = if part.number { number_end(bytes, at).ok()?.0 } else { at + hole_end(&bytes[at..])?.0 };
            *hole = (at as u32, end as u32);
            (at, from) = (end, part.text_end);
        }
        let text = &self.text[from..last.text_end];
        bytes[at..].starts_with(text).then_some(at + text.len())
    }

    #[inline]
    fn write(&self, frame: &[u8], holes: &Holes, out: &mut Vec<u8>) {
        let mut from = 0;
        for (part, &(start, end)) in self.parts.iter().zip(holes.iter().chain([&(0, 0)])) {
            out.extend_from_slice(&self.new[from..part.new_end]);
            if part.stays {
                out.extend_from_slice(&frame[start as usize..end as usize]);
            }
            from = part.new_end;
        }
    }
}

/// One span of a text and what takes its place.
#[derive(Debug)]
struct Edit {
    start: usize,
    end: usize,
    new: New,
}

#[derive(Debug)]
enum New {
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
struct Chunks<'a> {
    raw: &'a [u8],
    text: &'a str,
    /// Where the text begins in the data.
    base: usize,
    tape: &'a Tape,
    is_error: bool,
}

impl<'a> Chunks<'a> {
    fn new(raw: &'a [u8], data: &'a str, tape: &'a Tape, is_error: bool) -> Self {
        let text = trim(data).0;
        let base = data.trim_end_matches(WHITE).len() - text.len();
        Self { raw, text, base, tape, is_error }
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
fn pairs<'a>(object: Value<'a>) -> impl Iterator<Item = (Name<'a>, Value<'a>)> {
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
struct Name<'a>(Value<'a>);

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

/// Where a `data` line of a frame is.
#[derive(Clone, Copy, Debug)]
struct Line {
    start: usize,
    value: usize,
    value_end: usize,
    /// Of its line end.
    end: usize,
}

/// The `data` lines of a frame; whether it is an `error` event.
fn data_lines(text: &str) -> (Vec<Line>, bool) {
    let bytes = text.as_bytes();
    let (mut lines, mut at, mut is_error) = (Vec::with_capacity(1), 0, false);
    while at < bytes.len() {
        let (end, _) = line_end(bytes, at);
        let line = text[at..end].trim_end_matches(['\r', '\n']);
        let value_end = at + line.len();
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => lines.push(Line { start: at, value: value_end - value.len(), value_end, end }),
            "event" => is_error = value == "error",
            _ => {}
        }
        at = end;
    }
    (lines, is_error)
}

/// The values of `data` lines, joined by LF; of one line where they lie.
fn joined<'a>(text: &'a str, lines: &[Line]) -> Cow<'a, str> {
    match lines {
        [line] => Cow::Borrowed(&text[line.value..line.value_end]),
        _ => lines.iter().map(|line| &text[line.value..line.value_end]).collect::<Vec<_>>().join("\n").into(),
    }
}

fn joined_bytes<'a>(frame: &'a [u8], lines: &[Line]) -> Cow<'a, [u8]> {
    match lines {
        [line] => Cow::Borrowed(&frame[line.value..line.value_end]),
        _ => lines.iter().map(|line| &frame[line.value..line.value_end]).collect::<Vec<_>>().join(&b'\n').into(),
    }
}

/// Edits of the joined values of `lines` as edits of the frame, both in ascending order.
fn on_lines(edits: Vec<Edit>, lines: &[Line]) -> Vec<Edit> {
    let mut found = Vec::with_capacity(edits.len());
    let (mut place, mut shift) = (0, 0); // the line, and where its value begins in the data
    for Edit { start, end, mut new } in edits {
        while start > shift + lines[place].value_end - lines[place].value {
            shift += lines[place].value_end - lines[place].value + 1;
            place += 1;
        }
        let mut base = shift;
        for line in &lines[place..] {
            if base >= end {
                break;
            }
            let (low, high) = (start.saturating_sub(base), (end - base).min(line.value_end - line.value));
            if low < high {
                let new = std::mem::replace(&mut new, New::Nothing);
                found.push(Edit { start: line.value + low, end: line.value + high, new });
            }
            base += line.value_end - line.value + 1;
        }
    }
    found
}

/// The bytes as text of the same length: DEL, which JSON knows only in strings, for each byte that is not UTF-8.
fn readable(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = simdutf8::basic::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    for part in bytes.utf8_chunks() {
        text.push_str(part.valid());
        text.extend(part.invalid().iter().map(|_| '\u{7f}'));
    }
    Cow::Owned(text)
}

fn is_field(head: &[u8]) -> bool {
    FIELDS.iter().any(|field| {
        let name = &field[..field.len() - 1];
        head.strip_prefix(name).and_then(<[u8]>::first).is_some_and(|next| matches!(next, b':' | b'\n' | b'\r'))
    })
}

/// The end of the line end that comes next, or of the piece; whether it is the former.
#[inline]
fn line_end(piece: &[u8], at: usize) -> (usize, bool) {
    memchr2(b'\n', b'\r', &piece[at..]).map_or((piece.len(), false), |found| {
        let end = at + found + 1;
        (end + usize::from(piece[end - 1] == b'\r' && piece.get(end) == Some(&b'\n')), true)
    })
}

/// The length of a frame as the limit sees it: without the LF of a last CR LF, as whether that is there is a matter of cuts.
#[inline]
fn counted(frame: &[u8]) -> usize {
    frame.len() - usize::from(frame.ends_with(b"\r\n"))
}

fn reuse(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(ROOM);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(strip: &[&str]) -> Filter {
        let strip = strip.iter().map(|path| path.split('.').map(str::to_owned).collect()).collect();
        Filter::new(Options { model: Some("\"fast\"".into()), strip, ..Options::default() }, Limits::default())
    }

    fn feed(filter: &mut Filter, piece: &str) -> String {
        let Ok(sent) = filter.feed(piece.as_bytes(), &mut NoCalls);
        String::from_utf8(sent.to_vec()).unwrap()
    }

    fn event(text: &str, created: &str) -> String {
        format!(
            "data: {{\"created\": {created},\"model\":\"m-1\",\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}], \"p\":\"{text}\"}}\r\n\r\n"
        )
    }

    #[test]
    fn a_known_shape_is_taken() {
        for (text, created, known) in [
            ("", "7", true),
            ("longer than before \\u00e9", "-1.5e7", true),
            ("\"", "7", false),
            ("\\", "7", false),
            ("\t", "7", false),
            ("a", "", false),
            ("a", "01", false),
            ("a", "null", false),
        ] {
            let mut filter = filter(&["p"]);
            for earlier in ["17", "18", "19"] {
                feed(&mut filter, &event("Hi", earlier));
            }
            let next = event(text, created);
            assert_eq!(filter.by_shape(next.as_bytes(), 0).is_some(), known, "{next}");
        }
    }

    #[test]
    fn what_is_sent_of_a_known_shape() {
        let mut filter = filter(&["p", "choices.delta.content"]);
        let want = |created: &str| {
            format!("data: {{\"created\": {created},\"model\":\"fast\",\"choices\":[{{\"delta\":{{}}}}]}}\r\n\r\n")
        };
        for created in ["17", "18", "19"] {
            assert_eq!(feed(&mut filter, &event("Hi", created)), want(created));
        }
        let next = [event("", "2"), event("you", "3.5")].concat();
        assert_eq!(feed(&mut filter, &next), [want("2"), want("3.5")].concat());
        assert_eq!(filter.learned, 0);
    }

    #[test]
    fn numbers_that_differ_become_holes() {
        let mut filter = filter(&[]);
        for (at, created) in ["1", "2", "3", "4", "5.5", "6e7"].iter().enumerate() {
            assert_eq!(filter.by_shape(event("a", created).as_bytes(), 0).is_some(), at > 2, "{created}");
            feed(&mut filter, &event("a", created));
        }
    }

    #[test]
    fn two_shapes_are_remembered() {
        let mut filter = filter(&[]);
        let events = ["{\"a\":1}", "{\"b\":1}", "{\"c\":1}"].map(|data| format!("data: {data}\n\n"));
        for event in &events {
            assert_eq!(filter.by_shape(event.as_bytes(), 0), None);
            feed(&mut filter, event);
        }
        assert_eq!(filter.by_shape(events[0].as_bytes(), 0), None);
        assert_eq!(filter.by_shape(events[1].as_bytes(), 0), Some(15));
        assert_eq!(filter.by_shape(events[2].as_bytes(), 0), Some(15));
    }

    #[test]
    fn buffers_are_given_back() {
        let mut filter = filter(&[]);
        let large = event(&"x".repeat(1 << 20), "1");
        for piece in large.as_bytes().chunks(1000) {
            let Ok(_) = filter.feed(piece, &mut NoCalls);
        }
        feed(&mut filter, &event("a", "1"));
        assert!(filter.held.capacity() <= ROOM && filter.out.capacity() <= ROOM);
    }
}
