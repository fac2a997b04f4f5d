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
//! Most frames take one of two shorter ways: [`template`] knows a frame that equals an earlier one but for its text, and of a
//! chunk whose outermost members decide an [`outline`] is enough.
use crate::chunk::{Payload, Reading, WHITE, payload, read, trim};
use crate::json::Tape;
use crate::limits::Limits;
use std::cell::Cell;
use std::convert::Infallible;
use std::ops::Range;

mod edits;
mod lines;
mod outline;
mod template;

use edits::{Changes, Chunks, Edit, New};
use lines::{Line, data_lines, joined, joined_bytes, line_end, on_lines, readable};
use outline::Outline;
use template::Templates;

const BOM: &[u8] = b"\xef\xbb\xbf";
/// Bytes that show whether a line is a field.
const HEAD: usize = 6;
const FIELDS: [&[u8]; 4] = [b"data:", b"event:", b"id:", b"retry:"];
/// Bytes of a buffer that is kept for the next frame.
const ROOM: usize = 64 * 1024;
/// Nodes above which a tape is not kept for the next frame.
const TAPE_NODES: usize = 1 << 16;

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
    changes: Changes,
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

    templates: Templates,
    fast: bool,
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

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Same,
    Gone,
    /// What takes its place stands in `out`.
    Written,
}

/// What is needed while a frame is read; one for all filters of a thread, so that a filter keeps none.
#[derive(Default)]
struct Scratch {
    tape: Tape,
    outline: Outline,
    lines: Vec<Line>,
    edits: Vec<Edit>,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

impl Filter {
    /// A filter at a stream's first byte.
    #[must_use]
    pub fn new(options: Options, limits: Limits) -> Self {
        let changes = Changes::new(options);
        Self {
            holds: changes.any(),
            changes,
            limits,
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
            templates: Templates::default(),
            fast: true,
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
        self.same = 0..0;
        if self.rewrite(&[], &rest, false, calls)? == Change::Same {
            self.out.extend_from_slice(&rest);
        }
        Ok(&self.out)
    }

    /// Turns the short ways off or on; results are the same. For tests.
    pub fn set_fast_path(&mut self, on: bool) {
        self.fast = on;
        self.templates = Templates::default();
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
                Place::Between => match self.by_template(piece, at) {
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
        let change = if small { self.rewrite(piece, frame, true, calls) } else { Ok(Change::Same) };
        match &change {
            Ok(Change::Same) if whole => self.pass(piece, at, end),
            Ok(Change::Same) => {
                self.flush(piece);
                self.out.extend_from_slice(frame);
            }
            Ok(Change::Gone | Change::Written) => {}
            Err(_) => {
                self.left = piece[end..].to_vec();
                (self.between, self.kept) = (true, true);
            }
        }
        self.dropped = change? == Change::Gone;
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

    #[inline]
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

    // Frames to changed frames

    /// The end of the frame at `at`, if a template knows it; it is then dealt with.
    #[inline]
    fn by_template(&mut self, piece: &[u8], at: usize) -> Option<usize> {
        if self.swallow {
            return None;
        }
        let length = self.templates.find(&piece[at..])?;
        let frame = &piece[at..at + length];
        if counted(frame) > self.limits.max_event_bytes.min(u32::MAX as usize) {
            return None;
        }
        if self.templates.keeps() {
            self.pass(piece, at, at + length);
        } else {
            self.flush(piece);
            self.templates.write(frame, &mut self.out);
        }
        self.dropped = false;
        self.boundary(piece);
        Some(at + length)
    }

    /// Writes the frame behind what is to be sent of `piece`, if it changes.
    fn rewrite<C: Calls>(
        &mut self,
        piece: &[u8],
        frame: &[u8],
        whole: bool,
        calls: &mut C,
    ) -> Result<Change, C::Error> {
        let mut scratch = SCRATCH.take().unwrap_or_default();
        scratch.edits.clear();
        let gone = self.edits(frame, whole, calls, &mut scratch);
        let change = gone.map(|gone| match scratch.edits.is_empty() {
            _ if gone => Change::Gone,
            true => Change::Same,
            false => {
                self.flush(piece);
                self.changes.apply(frame, 0, &scratch.edits, &mut self.out);
                Change::Written
            }
        });
        if scratch.tape.room() <= TAPE_NODES && frame.len() <= ROOM {
            SCRATCH.set(Some(scratch));
        }
        change
    }

    /// The edits of a frame; whether nothing is left of it.
    fn edits<C: Calls>(
        &mut self,
        frame: &[u8],
        whole: bool,
        calls: &mut C,
        Scratch { tape, outline, lines, edits }: &mut Scratch,
    ) -> Result<bool, C::Error> {
        let text = readable(frame);
        let is_error = data_lines(&text, lines);
        let depth = self.limits.max_depth;
        if self.fast
            && self.changes.flat
            && let [line] = lines[..]
            && outline.read(&text.as_bytes()[..line.value_end], line.value, depth)
            && self.changes.of_outline(outline, frame, edits)
        {
            self.learn(frame, whole, outline, edits);
            return Ok(false);
        }
        let mut data = joined(&text, lines);
        let mut found = if lines.is_empty() { Payload::Bad } else { payload(&data, depth, tape).0 };
        if found == Payload::Bad && !whole && lines.len() > 1 && lines.last().is_some_and(|l| l.end == l.value_end) {
            lines.pop(); // the unfinished line is no part of what came before it
            data = joined(&text, lines);
            found = payload(&data, depth, tape).0;
        }
        let mut gone = 0;
        let mut asked = self.changes.asks();
        match found {
            Payload::One(Reading::Chunks) => {
                let raw = joined_bytes(frame, lines);
                let chunks = Chunks::new(&raw, &data, tape, is_error);
                if !self.changes.of_chunks(&chunks, calls, &mut asked, edits)? {
                    return Ok(true);
                }
                on_lines(edits, lines);
                if let [line] = lines[..]
                    && self.fast
                    && !asked
                {
                    let place = chunks.place();
                    let (start, end) = (line.value + place.start, line.value + place.end);
                    if outline.read(&text.as_bytes()[..end], start, depth) {
                        self.learn(frame, whole, outline, edits);
                    }
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
                    if self.changes.of_chunks(&chunks, calls, &mut asked, &mut here)? {
                        on_lines(&mut here, std::slice::from_ref(line));
                        edits.append(&mut here);
                    } else {
                        gone += 1;
                        edits.push(Edit { start: line.start, end: line.end, new: New::Nothing });
                    }
                }
            }
            Payload::One(_) | Payload::Bad => {}
        }
        Ok(gone > 0 && gone == lines.len())
    }

    fn learn(&mut self, frame: &[u8], whole: bool, outline: &Outline, edits: &[Edit]) {
        if whole && frame.ends_with(b"\n") {
            self.templates.learn(frame, &outline.holes, edits, &self.changes);
        }
    }
}

fn is_field(head: &[u8]) -> bool {
    FIELDS.iter().any(|field| {
        let name = &field[..field.len() - 1];
        head.strip_prefix(name).and_then(<[u8]>::first).is_some_and(|next| matches!(next, b':' | b'\n' | b'\r'))
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
    fn a_known_frame_is_taken() {
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
            assert_eq!(filter.by_template(next.as_bytes(), 0).is_some(), known, "{next}");
        }
    }

    #[test]
    fn what_is_sent_of_a_known_frame() {
        let mut filter = filter(&["p", "choices.delta.content"]);
        let want = |created: &str| {
            format!("data: {{\"created\": {created},\"model\":\"fast\",\"choices\":[{{\"delta\":{{}}}}]}}\r\n\r\n")
        };
        for created in ["17", "18", "19"] {
            assert_eq!(feed(&mut filter, &event("Hi", created)), want(created));
        }
        let next = [event("", "2"), event("you", "3.5")].concat();
        assert_eq!(feed(&mut filter, &next), [want("2"), want("3.5")].concat());
    }

    #[test]
    fn numbers_that_differ_become_holes() {
        let mut filter = filter(&[]);
        for (at, created) in ["1", "2", "3", "4", "5.5", "6e7"].iter().enumerate() {
            assert_eq!(filter.by_template(event("a", created).as_bytes(), 0).is_some(), at > 2, "{created}");
            feed(&mut filter, &event("a", created));
        }
    }

    #[test]
    fn two_templates_are_remembered() {
        let mut filter = filter(&[]);
        let events = ["{\"a\":1}", "{\"b\":1}", "{\"c\":1}"].map(|data| format!("data: {data}\n\n"));
        for event in &events {
            assert_eq!(filter.by_template(event.as_bytes(), 0), None);
            feed(&mut filter, event);
        }
        assert_eq!(filter.by_template(events[0].as_bytes(), 0), None);
        assert_eq!(filter.by_template(events[1].as_bytes(), 0), Some(15));
        assert_eq!(filter.by_template(events[2].as_bytes(), 0), Some(15));
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
