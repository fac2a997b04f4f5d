//! Bytes to events: `text/event-stream` as the WHATWG HTML standard parses it (section 9.2).
//!
//! # How it works
//!
//! [`Machine`] takes the bytes in pieces of any size and never looks back. At any moment it holds three things: the event
//! so far (`data` lines, event name, id, retry), at most one unfinished line, and a few facts about the bytes just before.
//!
//! A line end is LF, CR or CR LF. A CR ends its line when it arrives, without waiting for an LF; `swallow` then remembers
//! that an LF directly behind it belongs to it. A BOM is removed at the first byte of the stream only; its own
//! first bytes are held as an unfinished line, which is what they are when the third does not come.
//!
//! What a line is shows within its first six bytes ([`Kind::of`]): a comment, a known field, or another line. Until then
//! it is `Open` and its few bytes are kept. Comments and other lines are then counted and not kept, whatever their length; a
//! field's line is kept from its first byte, so that its value is a slice of it.
//!
//! An event's size is the `data` values with one LF each, the event name, the current id, and the unfinished field's
//! value. `excess` compares it with the limit *before* a part is kept, and the part is cut at the byte that passes it: so
//! the verdict falls on the same byte of the stream however that was cut, and what is kept never exceeds the limit. The
//! event is then skipped to its blank line, its lines still told apart but no longer kept.
//!
//! In raw-lines mode (the accumulator's) a body may turn out not to be an event stream at all. So other
//! lines are handed out whole until the first `data` field, under the same limit; afterwards only lines that begin with `{`
//! are, up to 64 KiB each, since a server may drop a bare JSON error into its stream. `error: …` lines are events of their own.
//!
//! Nothing is copied that need not be: a line whole in its piece is read there, and the first `data` value of an event stays
//! in the piece (`held`, a range) until a second one or the end of the piece makes a copy necessary. What is
//! copied goes to `line`, which becomes `data` (from `data_from`) for a first value, or to `data`; and moves to `out` when an
//! item hands it out, until the next call.
//!
//! Work is linear: no line end is ever looked for in bytes that were searched before (but once more after a limit, and
//! where [`Machine::simple`] declines), and an unfinished line grows by appending.

use memchr::memchr2;
use std::ops::Range;
use std::sync::Arc;

/// What [`Machine::next`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A dispatched event.
    Event(Event<'a>),
    /// An `error:` line with its value, never empty (raw-lines mode).
    ErrorField {
        /// The value, undecoded.
        value: &'a [u8],
        /// Of the line's first byte in the stream.
        offset: u64,
    },
    /// A whole line, never empty, that is neither a comment nor a known field (raw-lines mode).
    RawLine {
        /// The line without its end.
        line: &'a [u8],
        /// Of the line's first byte in the stream.
        offset: u64,
    },
    /// A limit was passed at the byte just read.
    Oversize {
        /// Of the event's first `data` line, else of the line at fault.
        offset: u64,
    },
}

/// One event, undecoded.
#[derive(Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The `data` lines joined by LF.
    pub data: &'a [u8],
    /// The event name; empty if the event has none.
    pub event: &'a [u8],
    /// Of the first `data` line in the stream.
    pub offset: u64,
    /// The current id; shared by all events under it.
    pub id: &'a Arc<[u8]>,
    /// The last valid `retry` since the event before, in milliseconds.
    pub retry: Option<u64>,
}

/// What is left when the bytes end.
#[derive(Debug, PartialEq, Eq)]
pub struct Rest<'a> {
    /// The finished `data` lines joined by LF; None without any.
    pub data: Option<&'a [u8]>,
    /// The event name so far.
    pub event: &'a [u8],
    /// Of the first `data` line; None without any.
    pub data_offset: Option<u64>,
    /// The unfinished line as far as it came; None if there is none or it was not kept.
    pub line: Option<&'a [u8]>,
    /// Of the unfinished line; without any, the stream's length.
    pub line_offset: u64,
    /// There is an unfinished line and it is a comment.
    pub line_comment: bool,
    /// There is an unfinished line, it is no comment, and it was not kept.
    pub line_skipped: bool,
    /// The end came inside an event that is being skipped.
    pub oversize: bool,
}

/// The parser. Call [`next`](Machine::next) with the same piece until it gives None, then with the next piece.
///
/// ```
/// use deltafold_core::sse::{Item, Machine};
/// let mut machine = Machine::new(1 << 20, false);
/// let (piece, mut at) = (b"event: greeting\ndata: hello\n\n", 0);
/// while let Some(item) = machine.next(piece, &mut at) {
///     let Item::Event(event) = item else { unreachable!() };
///     assert_eq!((event.event, event.data, event.offset), (&b"greeting"[..], &b"hello"[..], 16));
/// }
/// ```
#[derive(Debug)]
pub struct Machine {
    limit: usize,
    raw_lines: bool,

    plain: bool,
    begun: bool,
    swallow: bool,

    kind: Kind,
    keep: bool,
    line: Vec<u8>,
    line_offset: u64,

    has_data: bool,
    data: Vec<u8>,
    data_from: usize,
    data_size: usize,
    data_offset: u64,
    event: Vec<u8>,
    id: Arc<[u8]>,
    event_retry: Option<u64>,
    skip: bool,
    skip_data: bool,

    out: Vec<u8>,
    out_event: Vec<u8>,

    last_event_id: Arc<[u8]>,
    retry: Option<u64>,
    bytes: u64,
    comments: u64,
    ignored_lines: u64,
    events: u64,
    blocks_oversize: u64,
    field_seen: bool,
    data_seen: bool,
    raw_over: bool,

    /// Total length of the `RawLine` items given; the consumer takes off what it no longer holds.
    pub raw_kept: usize,

    #[cfg(test)]
    looked: usize,
}

impl Machine {
    /// A machine at a stream's first byte. `max_event_bytes` bounds an event's size; `raw_lines` is the accumulator's mode.
    pub fn new(max_event_bytes: usize, raw_lines: bool) -> Self {
        let id: Arc<[u8]> = Arc::from([]);
        Self {
            limit: max_event_bytes,
            raw_lines,
            plain: true,
            begun: false,
            swallow: false,
            kind: Kind::Start,
            keep: false,
            line: Vec::new(),
            line_offset: 0,
            has_data: false,
            data: Vec::new(),
            data_from: 0,
            data_size: 0,
            data_offset: 0,
            event: Vec::new(),
            id: id.clone(),
            event_retry: None,
            skip: false,
            skip_data: false,
            out: Vec::new(),
            out_event: Vec::new(),
            last_event_id: id,
            retry: None,
            bytes: 0,
            comments: 0,
            ignored_lines: 0,
            events: 0,
            blocks_oversize: 0,
            field_seen: false,
            data_seen: false,
            raw_over: false,
            raw_kept: 0,
            #[cfg(test)]
            looked: 0,
        }
    }

    /// The hot entrance: an event of one `data` line, whole in the piece, ended by LF LF, at the very start of an event.
    /// Gives its value and offset and moves `at` behind it; None changes nothing and says only that `next` must look.
    #[inline]
    pub fn simple<'p>(&mut self, piece: &'p [u8], at: &mut usize) -> Option<(&'p [u8], u64)> {
        if !self.plain {
            return None;
        }
        let field = piece.get(*at..)?;
        let value = field.strip_prefix(b"data:")?;
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let end = memchr2(b'\n', b'\r', value);
        self.look(end.unwrap_or(value.len()));
        let end = end?;
        let offset = self.bytes;
        let length = field.len() - value.len() + end + 2;
        if value[end] != b'\n' || value.get(end + 1) != Some(&b'\n') || !self.fits(end) {
            return None;
        }
        self.took(length);
        *at += length;
        Some((&value[..end], offset))
    }

    /// Whether the stream stands at the very start of an event, with LF line ends so far.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    /// Whether an event of one `data` line with a value of that length is allowed.
    #[inline]
    pub(crate) fn fits(&self, value: usize) -> bool {
        value + 1 + self.id.len() <= self.limit
    }

    /// Moves behind an event of one `data` line, of `length` bytes with its line ends, that the caller has read by itself.
    #[inline]
    pub(crate) fn took(&mut self, length: usize) {
        self.bytes += length as u64;
        self.events += 1;
        self.begun = true;
        self.field_seen = true;
        self.data_seen = true;
    }

    /// The next item of `piece` from `at` on, which moves; None when the piece is used up.
    pub fn next<'a>(&'a mut self, piece: &'a [u8], at: &mut usize) -> Option<Item<'a>> {
        reuse(&mut self.out);
        reuse(&mut self.out_event);
        Some(match self.run(piece, at)? {
            Found::Event { data, offset, retry } => Item::Event(Event {
                data: data.of(piece, &self.out),
                event: &self.out_event,
                offset,
                id: &self.id,
                retry,
            }),
            Found::Error(value) => Item::ErrorField { value: value.of(piece, &self.out), offset: self.line_offset },
            Found::Raw(line) => Item::RawLine { line: line.of(piece, &self.out), offset: self.line_offset },
            Found::Oversize(offset) => Item::Oversize { offset },
        })
    }

    /// Lifts the limit for the end of the bytes: `next` on [`END`] then ends the unfinished line and the event as a blank
    /// line would. [`bytes`](Machine::bytes) stays.
    pub fn end(&mut self) -> &'static [u8] {
        self.limit = usize::MAX;
        self.bytes = self.bytes.wrapping_sub(END.len() as u64);
        END
    }

    /// What is left now that the bytes have ended.
    pub fn rest(&self) -> Rest<'_> {
        let inside = self.kind != Kind::Start;
        Rest {
            data: self.has_data.then(|| &self.data[self.data_from..]),
            event: &self.event,
            data_offset: self.has_data.then_some(self.data_offset),
            line: self.keep.then_some(&self.line),
            line_offset: if inside { self.line_offset } else { self.bytes },
            line_comment: self.kind == Kind::Comment,
            line_skipped: inside && self.kind != Kind::Comment && !self.keep,
            oversize: self.skip,
        }
    }

    /// Bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Comment lines so far.
    pub fn comments(&self) -> u64 {
        self.comments
    }

    /// Other lines not handed out, ids with NUL and invalid retry values.
    pub fn ignored_lines(&self) -> u64 {
        self.ignored_lines
    }

    /// `Event` and `ErrorField` items given so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Skipped events that had a `data` (or `error:`) line and met their blank line.
    pub fn blocks_oversize(&self) -> u64 {
        self.blocks_oversize
    }

    /// A known field's line was finished.
    pub fn field_seen(&self) -> bool {
        self.field_seen
    }

    /// A `data` (or `error:`) line was finished.
    pub fn data_seen(&self) -> bool {
        self.data_seen
    }

    /// The id as of the last blank line.
    pub fn last_event_id(&self) -> &Arc<[u8]> {
        &self.last_event_id
    }

    /// The last valid `retry`, as of the last finished line, in milliseconds.
    pub fn retry(&self) -> Option<u64> {
        self.retry
    }

    fn run(&mut self, piece: &[u8], at: &mut usize) -> Option<Found> {
        if !self.begun {
            self.bom(piece, at);
        }
        let mut held: Option<Range<usize>> = None;
        while *at < piece.len() {
            if self.swallow {
                self.swallow = false;
                if piece[*at] == b'\n' {
                    self.advance(at, 1);
                    continue;
                }
            }
            let rest = &piece[*at..];
            let ending = line_end(rest);
            let part = &rest[..ending.unwrap_or(rest.len())];
            let start = *at;
            self.look(part.len());

            if self.kind == Kind::Start {
                self.line_offset = self.bytes;
                if part.is_empty() {
                    self.end_line(piece, at);
                    if let Some(found) = self.end_event(held.take()) {
                        return Some(found);
                    }
                    continue;
                }
                self.plain = false;
            }
            if matches!(self.kind, Kind::Start | Kind::Open) {
                self.decide(part, ending.is_some());
            }
            if self.keep {
                let excess = self.excess(part);
                if excess > 0 {
                    self.advance(at, (part.len() + 1).saturating_sub(excess).max(1).min(part.len()));
                    if let Some(found) = self.pass_limit(&mut held, piece) {
                        return Some(found);
                    }
                    continue;
                }
            }
            let whole = self.line.is_empty();
            if self.keep && !(whole && ending.is_some()) {
                self.look(part.len());
                match part {
                    [byte] => self.line.push(*byte),
                    _ => self.line.extend_from_slice(part),
                }
            }
            self.advance(at, part.len());
            if ending.is_none() {
                break;
            }
            self.end_line(piece, at);
            let line = if whole { Some(start..start + part.len()) } else { None };
            if let Some(found) = self.finish(line, piece, &mut held) {
                return Some(found);
            }
        }
        self.spill(&mut held, piece);
        None
    }

    fn bom(&mut self, piece: &[u8], at: &mut usize) {
        while let Some(&byte) = piece.get(*at) {
            if byte != BOM[self.line.len()] {
                self.begun = true;
                return;
            }
            self.line.push(byte);
            self.plain = false;
            (self.kind, self.keep) = (Kind::Open, true);
            self.advance(at, 1);
            if self.line.len() == BOM.len() {
                self.begun = true;
                self.line.clear();
                (self.kind, self.keep) = (Kind::Start, false);
                return;
            }
        }
    }

    /// For the test that counts the work: how many bytes were searched or copied.
    #[inline]
    fn look(&mut self, _bytes: usize) {
        #[cfg(test)]
        {
            self.looked += _bytes;
        }
    }

    #[inline]
    fn advance(&mut self, at: &mut usize, count: usize) {
        *at += count;
        self.bytes = self.bytes.wrapping_add(count as u64);
    }

    #[inline]
    fn end_line(&mut self, piece: &[u8], at: &mut usize) {
        self.swallow = piece[*at] == b'\r';
        self.advance(at, 1);
    }

    fn decide(&mut self, part: &[u8], ended: bool) {
        let first;
        (self.kind, first) = if self.line.is_empty() {
            (Kind::of(part, ended, self.raw_lines), part[0])
        } else {
            let held = self.line.len();
            let mut head = [0; 2 * HEAD];
            let more = part.len().min(HEAD);
            head[..held].copy_from_slice(&self.line);
            head[held..held + more].copy_from_slice(&part[..more]);
            (Kind::of(&head[..held + more], ended && more == part.len(), self.raw_lines), head[0])
        };
        self.keep = match self.kind {
            Kind::Open => true,
            Kind::Comment => false,
            _ if self.skip => false,
            Kind::Field(_) => true,
            _ if !self.raw_lines => false,
            _ if self.data_seen => first == b'{',
            _ => !self.raw_over,
        };
        if !self.keep {
            self.line.clear();
        }
    }

    fn excess(&self, part: &[u8]) -> usize {
        let length = self.line.len() + part.len();
        let (taken, room) = match self.kind {
            Kind::Field(field) => {
                let colon = field.name().len();
                let space = match self.line.get(colon + 1) {
                    Some(&byte) => byte == b' ',
                    None => part.get(colon + 1 - self.line.len()) == Some(&b' '),
                };
                (length.saturating_sub(colon + 1 + usize::from(space)), self.limit - self.size())
            }
            Kind::Other if self.data_seen => (length, RAW_LINE_BYTES),
            Kind::Other => (length, self.limit.saturating_sub(self.raw_kept)),
            _ => (0, 0),
        };
        taken.saturating_sub(room)
    }

    fn size(&self) -> usize {
        self.data_size + self.event.len() + self.id.len()
    }

    fn pass_limit(&mut self, held: &mut Option<Range<usize>>, piece: &[u8]) -> Option<Found> {
        self.keep = false;
        self.line = Vec::new();
        if self.kind != Kind::Other {
            return Some(self.skip_event(held));
        }
        if self.data_seen {
            return None;
        }
        self.raw_over = true;
        self.spill(held, piece);
        Some(Found::Oversize(self.line_offset))
    }

    fn skip_event(&mut self, held: &mut Option<Range<usize>>) -> Found {
        let offset = if self.has_data { self.data_offset } else { self.line_offset };
        self.skip = true;
        self.skip_data = self.has_data;
        self.has_data = false;
        self.data = Vec::new();
        self.data_from = 0;
        self.data_size = 0;
        reuse(&mut self.event);
        *held = None;
        Found::Oversize(offset)
    }

    fn finish(&mut self, whole: Option<Range<usize>>, piece: &[u8], held: &mut Option<Range<usize>>) -> Option<Found> {
        let (kind, kept) = (self.kind, self.keep);
        (self.kind, self.keep) = (Kind::Start, false);
        match kind {
            Kind::Comment => {
                self.comments += 1;
                return None;
            }
            Kind::Field(field) => {
                self.field_seen = true;
                if matches!(field, Field::Data | Field::Error) {
                    self.data_seen = true;
                    self.skip_data |= self.skip;
                }
                if !kept {
                    return None;
                }
            }
            _ if !kept => {
                self.ignored_lines += 1;
                return None;
            }
            _ => {}
        }
        let line = match whole {
            Some(range) => Text::Piece(range),
            None => {
                std::mem::swap(&mut self.line, &mut self.out);
                self.line.clear();
                Text::Out(0)
            }
        };
        let Kind::Field(field) = kind else {
            self.raw_kept += line.of(piece, &self.out).len();
            self.spill(held, piece);
            return Some(Found::Raw(line));
        };
        let value = line.value(field.name().len(), piece, &self.out);
        match field {
            Field::Data => return self.add_data(value, piece, held),
            Field::Event => {
                let (event, out) = (&mut self.event, &self.out);
                event.clear();
                event.extend_from_slice(value.of(piece, out));
            }
            Field::Id => {
                let value = value.of(piece, &self.out);
                if value.contains(&0) {
                    self.ignored_lines += 1;
                } else if *value != *self.id {
                    self.id = Arc::from(value);
                }
            }
            Field::Retry => match milliseconds(value.of(piece, &self.out)) {
                None => self.ignored_lines += 1,
                some => (self.retry, self.event_retry) = (some, some),
            },
            Field::Error if value.of(piece, &self.out).is_empty() => {}
            Field::Error => {
                self.events += 1;
                self.spill(held, piece);
                return Some(Found::Error(value));
            }
        }
        None
    }

    fn add_data(&mut self, value: Text, piece: &[u8], held: &mut Option<Range<usize>>) -> Option<Found> {
        let length = value.of(piece, &self.out).len();
        if self.size() + length + 1 > self.limit {
            let found = self.skip_event(held);
            self.skip_data = true;
            return Some(found);
        }
        self.data_size += length + 1;
        if self.has_data {
            self.spill(held, piece);
            self.look(length);
            self.data.push(b'\n');
            self.data.extend_from_slice(value.of(piece, &self.out));
            return None;
        }
        self.has_data = true;
        self.data_offset = self.line_offset;
        match value {
            Text::Piece(range) => *held = Some(range),
            Text::Out(from) => {
                std::mem::swap(&mut self.data, &mut self.out);
                self.data_from = from;
            }
        }
        None
    }

    fn end_event(&mut self, held: Option<Range<usize>>) -> Option<Found> {
        if !Arc::ptr_eq(&self.last_event_id, &self.id) {
            self.last_event_id = self.id.clone();
        }
        let mut found = None;
        if self.has_data {
            self.events += 1;
            std::mem::swap(&mut self.event, &mut self.out_event);
            let data = match held {
                Some(range) => Text::Piece(range),
                None => {
                    std::mem::swap(&mut self.data, &mut self.out);
                    Text::Out(self.data_from)
                }
            };
            found = Some(Found::Event { data, offset: self.data_offset, retry: self.event_retry.take() });
        } else if self.skip {
            self.blocks_oversize += u64::from(self.skip_data);
            self.event_retry = None;
        }
        self.has_data = false;
        reuse(&mut self.data);
        self.data_from = 0;
        self.data_size = 0;
        reuse(&mut self.event);
        self.skip = false;
        self.skip_data = false;
        self.plain = !self.swallow && self.event_retry.is_none();
        found
    }

    fn spill(&mut self, held: &mut Option<Range<usize>>, piece: &[u8]) {
        if let Some(range) = held.take() {
            self.look(range.len());
            self.data.extend_from_slice(&piece[range]);
        }
    }
}

/// The first LF or CR; without a search's preparations where there is next to nothing to search.
#[inline]
fn line_end(bytes: &[u8]) -> Option<usize> {
    if bytes.len() < 8 {
        return bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
    }
    memchr2(b'\n', b'\r', bytes)
}

/// What [`Machine::end`] asks to be read.
pub const END: &[u8] = b"\n\n";

const BOM: &[u8] = b"\xef\xbb\xbf";
const HEAD: usize = 6;
const RAW_LINE_BYTES: usize = 64 << 10;
const ROOM: usize = 4 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Start,
    Open,
    Comment,
    Field(Field),
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Data,
    Event,
    Id,
    Retry,
    Error,
}

enum Found {
    Event { data: Text, offset: u64, retry: Option<u64> },
    Error(Text),
    Raw(Text),
    Oversize(u64),
}

enum Text {
    Piece(Range<usize>),
    Out(usize),
}

impl Kind {
    fn of(head: &[u8], ended: bool, raw_lines: bool) -> Self {
        if head[0] == b':' {
            return Kind::Comment;
        }
        let fields = [Field::Data, Field::Event, Field::Id, Field::Retry, Field::Error];
        for field in &fields[..if raw_lines { 5 } else { 4 }] {
            let name = field.name();
            match head.strip_prefix(name) {
                Some([b':', ..]) => return Kind::Field(*field),
                Some([]) if !ended => return Kind::Open,
                Some([]) if *field != Field::Error => return Kind::Field(*field),
                None if !ended && name.starts_with(head) => return Kind::Open,
                _ => {}
            }
        }
        Kind::Other
    }
}

impl Field {
    fn name(self) -> &'static [u8] {
        match self {
            Field::Data => b"data",
            Field::Event => b"event",
            Field::Id => b"id",
            Field::Retry => b"retry",
            Field::Error => b"error",
        }
    }
}

impl Text {
    fn of<'a>(&self, piece: &'a [u8], out: &'a [u8]) -> &'a [u8] {
        match self {
            Text::Piece(range) => &piece[range.clone()],
            Text::Out(from) => &out[*from..],
        }
    }

    fn value(self, name: usize, piece: &[u8], out: &[u8]) -> Self {
        let line = self.of(piece, out);
        let start = (name + 1 + usize::from(line.get(name + 1) == Some(&b' '))).min(line.len());
        match self {
            Text::Piece(range) => Text::Piece(range.start + start..range.end),
            Text::Out(from) => Text::Out(from + start),
        }
    }
}

fn reuse(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(ROOM);
}

fn milliseconds(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |sum, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq)]
    enum Seen {
        Event(Vec<u8>, Vec<u8>, u64, Vec<u8>, Option<u64>),
        Error(Vec<u8>, u64),
        Raw(Vec<u8>, u64),
        Oversize(u64),
    }

    fn event(data: &str, name: &str, offset: u64) -> Seen {
        Seen::Event(data.into(), name.into(), offset, Vec::new(), None)
    }

    fn owned(item: Item<'_>) -> Seen {
        match item {
            Item::Event(e) => Seen::Event(e.data.into(), e.event.into(), e.offset, e.id.to_vec(), e.retry),
            Item::ErrorField { value, offset } => Seen::Error(value.into(), offset),
            Item::RawLine { line, offset } => Seen::Raw(line.into(), offset),
            Item::Oversize { offset } => Seen::Oversize(offset),
        }
    }

    fn feed(machine: &mut Machine, piece: &[u8], quick: bool) -> Vec<Seen> {
        let (mut seen, mut at) = (Vec::new(), 0);
        loop {
            if let Some((value, offset)) = if quick { machine.simple(piece, &mut at) } else { None } {
                let (value, id) = (value.to_vec(), machine.last_event_id().to_vec());
                seen.push(Seen::Event(value, Vec::new(), offset, id, None));
                continue;
            }
            match machine.next(piece, &mut at) {
                Some(item) => seen.push(owned(item)),
                None => return seen,
            }
        }
    }

    fn feed_all<'p>(machine: &mut Machine, pieces: impl IntoIterator<Item = &'p [u8]>, quick: bool) -> Vec<Seen> {
        pieces.into_iter().flat_map(|piece| feed(machine, piece, quick)).collect()
    }

    fn facts(m: &Machine) -> String {
        format!(
            "{:?}",
            (
                (m.bytes, m.comments, m.ignored_lines, m.events, m.blocks_oversize, m.field_seen, m.data_seen),
                (m.raw_kept, m.last_event_id(), m.retry, m.rest()),
            )
        )
    }

    /// The standard, a line at a time over the whole body, with no thought for pieces or limits.
    fn naive(body: &[u8]) -> Vec<Seen> {
        let mut offset = if body.starts_with(BOM) { 3 } else { 0 };
        let (mut seen, mut data, mut first, mut name) = (Vec::new(), Vec::new(), 0, Vec::new());
        let (mut id, mut retry) = (Vec::new(), None);
        while let Some(length) = body[offset..].iter().position(|b| matches!(b, b'\r' | b'\n')) {
            let line = &body[offset..offset + length];
            let colon = line.iter().position(|&b| b == b':');
            let (field, value) = match colon {
                None => (line, &line[length..]),
                Some(at) => (&line[..at], &line[at + 1..]),
            };
            let value = if value.first() == Some(&b' ') { &value[1..] } else { value };
            match field {
                b"" if colon.is_none() => {
                    if !data.is_empty() {
                        data.pop();
                        seen.push(Seen::Event(data, name, first, id.clone(), retry.take()));
                    }
                    (data, name) = (Vec::new(), Vec::new());
                }
                b"data" => {
                    if data.is_empty() {
                        first = offset as u64;
                    }
                    data.extend_from_slice(value);
                    data.push(b'\n');
                }
                b"event" => name = value.to_vec(),
                b"id" if !value.contains(&0) => id = value.to_vec(),
                b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                    retry = std::str::from_utf8(value).unwrap().parse().ok().or(retry);
                }
                _ => {}
            }
            offset += length + 1;
            if body[offset - 1] == b'\r' && body.get(offset) == Some(&b'\n') {
                offset += 1;
            }
        }
        seen
    }

    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 33) as usize % sides
        }

        fn body(&mut self) -> Vec<u8> {
            const WORDS: [&[u8]; 26] = [
                b"\n",
                b"\n",
                b"\n\n",
                b"\r",
                b"\r\n",
                b"data",
                b"data:",
                b"data: ",
                b"data: x\n\n",
                b"event:",
                b"id:",
                b"id: 7",
                b"retry:",
                b"5",
                b"\0",
                b":",
                b" ",
                b"error:",
                b"error",
                BOM,
                b"\xef\xbb",
                b"\xff",
                b"{",
                b"x",
                b"dat",
                b"\xe2\x80\xa8",
            ];
            let count = self.roll(24);
            (0..count).flat_map(|_| WORDS[self.roll(WORDS.len())]).copied().collect()
        }
    }

    #[test]
    fn every_cut_of_a_random_body_matches_naive() {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
        for _ in 0..4000 {
            let body = dice.body();
            let want = naive(&body);
            for quick in [false, true] {
                let mut whole = Machine::new(1 << 20, false);
                assert_eq!(feed(&mut whole, &body, quick), want, "{:?}", body.escape_ascii().to_string());
                let mut bytewise = Machine::new(1 << 20, false);
                assert_eq!(
                    feed_all(&mut bytewise, body.chunks(1), quick),
                    want,
                    "{:?}",
                    body.escape_ascii().to_string()
                );
                assert_eq!(facts(&whole), facts(&bytewise), "{:?}", body.escape_ascii().to_string());
            }
        }
    }

    #[test]
    fn limits_and_raw_lines_do_not_depend_on_the_cuts() {
        let mut dice = Dice(0x2545_f491_4f6c_dd1d);
        for round in 0..20_000 {
            let (body, limit, raw) = (dice.body(), 1 + dice.roll(20), round % 2 == 0);
            let mut whole = Machine::new(limit, raw);
            let want = feed(&mut whole, &body, false);
            for quick in [false, true] {
                for size in [1, 2, 3, 7, body.len().max(1)] {
                    let mut machine = Machine::new(limit, raw);
                    let got = feed_all(&mut machine, body.chunks(size), quick);
                    let context = (body.escape_ascii().to_string(), limit, raw, quick, size);
                    assert_eq!(got, want, "{context:?}");
                    assert_eq!(facts(&machine), facts(&whole), "{context:?}");
                }
            }
        }
    }

    #[test]
    fn an_event_is_read_where_it_lies() {
        let piece = b"id: 1\nevent: e\ndata: abc\n\ndata:de\n\n".to_vec();
        let (mut machine, mut at) = (Machine::new(99, false), 0);
        let Some(Item::Event(first)) = machine.next(&piece, &mut at) else { panic!() };
        assert_eq!(first.data.as_ptr(), piece[21..].as_ptr());
        let (value, offset) = machine.simple(&piece, &mut at).unwrap();
        assert_eq!((value.as_ptr(), value.len(), offset, at), (piece[31..].as_ptr(), 2, 26, 35));
    }

    #[test]
    fn simple_steps_aside() {
        let cases: [(&[u8], &[u8]); 10] = [
            (b"", b"data: a\r\n\r\n"),
            (b"", b"data: a\n"),
            (b"", b"data: a\ndata: b\n\n"),
            (b"", b"data: abcdefghij\n\n"),
            (b"", b"\xef\xbb\xbfdata: a\n\n"),
            (b"\xef", b"data: a\n\n"),
            (b"event: e\n", b"data: a\n\n"),
            (b"id: e\n", b"data: a\n\n"),
            (b"retry: 1\n\n", b"data: a\n\n"),
            (b"data: a\r\n\r", b"data: a\n\n"),
        ];
        for (before, piece) in cases {
            let mut machine = Machine::new(10, false);
            feed(&mut machine, before, false);
            let (facts_before, mut at) = (facts(&machine), 0);
            assert_eq!(machine.simple(piece, &mut at), None, "{:?}", piece.escape_ascii().to_string());
            assert_eq!((facts(&machine), at), (facts_before, 0));
        }
    }

    #[test]
    fn the_limit_falls_on_one_byte() {
        // 3 of id, 4 of `abc` and its LF: the next value may have 3 bytes, or 2 and their LF.
        let body = b"id: xyz\ndata: abc\ndata: 123";
        let mut machine = Machine::new(10, false);
        assert_eq!(feed(&mut machine, body, false), []);
        assert_eq!(feed(&mut machine, b"4", false), [Seen::Oversize(8)]);
        assert_eq!(
            feed(&mut machine, b"5\nid: no\n\ndata: abcdef\n\n", false),
            [Seen::Event(b"abcdef".to_vec(), Vec::new(), 38, b"xyz".to_vec(), None,)]
        );
        assert_eq!((machine.blocks_oversize(), machine.bytes()), (1, 52));

        let mut machine = Machine::new(10, false);
        assert_eq!(feed(&mut machine, b"id: xyz\ndata: abcdefg", false), []);
        assert_eq!(feed(&mut machine, b"\n", false), [Seen::Oversize(8)]);

        let mut machine = Machine::new(3, false);
        assert_eq!(feed(&mut machine, b"id: 123\nid: 4\n\ndata\n\n", false), [Seen::Oversize(8), Seen::Oversize(15)]);
        assert_eq!(&**machine.last_event_id(), b"123");
    }

    #[test]
    fn raw_lines_come_whole_until_data() {
        let mut machine = Machine::new(12, true);
        let seen = feed(&mut machine, b"<html>\n\n: c\nerror: e\nerror:\n<b>\ndata:1\n{x\nyy\n\n", false);
        let want = [
            Seen::Raw(b"<html>".to_vec(), 0),
            Seen::Error(b"e".to_vec(), 12),
            Seen::Raw(b"{x".to_vec(), 39),
            event("1", "", 32),
        ];
        assert_eq!(seen, want);
        assert_eq!((machine.raw_kept, machine.ignored_lines(), machine.events()), (8, 2, 2));

        let mut machine = Machine::new(12, true);
        assert_eq!(feed(&mut machine, b"123456\n123456\n", false).len(), 2);
        assert_eq!(feed(&mut machine, b"1", false), [Seen::Oversize(14)]);
        assert!(machine.rest().line_skipped);
        assert_eq!(
            feed(&mut machine, b"2\n3\ndata:1\n\n{\n", false),
            [event("1", "", 19), Seen::Raw(b"{".to_vec(), 27)]
        );
    }

    #[test]
    fn a_raw_object_in_mid_stream_has_64_kib() {
        for (length, kept) in [(RAW_LINE_BYTES, 1), (RAW_LINE_BYTES + 1, 0)] {
            let mut machine = Machine::new(100, true);
            feed(&mut machine, b"data:\n\n", false);
            let mut line = vec![b' '; length];
            line[0] = b'{';
            line.push(b'\n');
            for size in [1, 1000, line.len()] {
                assert_eq!(feed_all(&mut machine, line.chunks(size), false).len(), kept);
            }
        }
    }

    #[test]
    fn rest_tells_what_was_left() {
        let rest = |body: &[u8]| {
            let mut machine = Machine::new(20, true);
            feed(&mut machine, body, false);
            let rest = machine.rest();
            let flags = (rest.line_comment, rest.line_skipped, rest.oversize);
            (rest.data.map(<[u8]>::to_vec), rest.data_offset, rest.line.map(<[u8]>::to_vec), flags)
        };
        let none = (false, false, false);
        assert_eq!(rest(b""), (None, None, None, none));
        assert_eq!(rest(b"data: a\r"), (Some(b"a".to_vec()), Some(0), None, none));
        assert_eq!(rest(b"data: a\ndata: b"), (Some(b"a".to_vec()), Some(0), Some(b"data: b".to_vec()), none));
        assert_eq!(rest(b"\xef\xbb"), (None, None, Some(b"\xef\xbb".to_vec()), none));
        assert_eq!(rest(b"\n: comment"), (None, None, None, (true, false, false)));
        assert_eq!(rest(b"data:\nother"), (Some(Vec::new()), Some(0), None, (false, true, false)));
        assert_eq!(rest(b"data: 123456789012345678901"), (None, None, None, (false, true, true)));
    }

    #[test]
    fn end_dispatches_within_the_limit() {
        let mut machine = Machine::new(3, false);
        feed(&mut machine, b"data: abc", false);
        let end = machine.end();
        assert_eq!(feed(&mut machine, end, false), [event("abc", "", 0)]);
        assert_eq!(machine.bytes(), 9);
    }

    #[test]
    fn large_buffers_are_given_back() {
        let mut machine = Machine::new(1 << 22, true);
        let mut body = b"event:".to_vec();
        body.resize(1 << 20, b'e');
        body.extend_from_slice(b"\ndata:");
        body.resize(1 << 21, b'd');
        body.extend_from_slice(b"\ndata\n\nid:7\n{");
        body.resize((1 << 21) + 60_000, b'r');
        body.extend_from_slice(b"\n\n");
        for size in [1000, body.len()] {
            feed_all(&mut machine, body.chunks(size), false);
            let m = &machine;
            let buffers = [&m.line, &m.data, &m.event, &m.out, &m.out_event];
            assert!(buffers.iter().all(|b| b.capacity() <= ROOM), "{:?}", buffers.map(Vec::capacity));
        }
    }

    #[test]
    fn an_id_is_stored_once() {
        let mut machine = Machine::new(1 << 20, false);
        let mut at = 0;
        let piece = b"id: long\ndata\n\ndata:\ndata\n\nid: long\ndata\n\n";
        let mut ids = Vec::new();
        while let Some(Item::Event(event)) = machine.next(piece, &mut at) {
            ids.push(event.id.clone());
        }
        assert_eq!(ids.len(), 3);
        assert!(ids.iter().all(|id| Arc::ptr_eq(id, machine.last_event_id())));
    }

    #[test]
    fn work_is_linear() {
        let mut line = b"data: ".to_vec();
        line.resize(1 << 17, b'x');
        line.extend_from_slice(b"\n\n");
        let cases = [
            line,
            vec![b'\r'; 1 << 17],
            b"\xef\xbb\xbf".iter().copied().chain(b"data\n\n".repeat(1 << 14)).collect(),
            b"data:\n".repeat(20_000),
            b"a\n".repeat(1 << 16),
            b"id: 123456\ndata: x\r\ndata: y\r\n\r\n".repeat(1 << 12),
            [b":".repeat(1 << 16), b"\nunknown".repeat(1 << 13)].concat(),
        ];
        for body in cases {
            for size in [1, 100, 65536, body.len()] {
                for limit in [1 << 24, 1000] {
                    let mut machine = Machine::new(limit, true);
                    feed_all(&mut machine, body.chunks(size), true);
                    let looked = machine.looked;
                    assert!(looked <= 6 * body.len(), "{looked} looks at {} bytes in pieces of {size}", body.len());
                }
            }
        }
    }
}
