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
//! copied goes to `line` or `data`, and moves to `out` when an item hands it out, until the next call.
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
    /// Of the unfinished line.
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
        let end = memchr2(b'\n', b'\r', value)?;
        if value[end] != b'\n' || value.get(end + 1) != Some(&b'\n') || end + 1 + self.id.len() > self.limit {
            return None;
        }
        let offset = self.bytes;
        let length = field.len() - value.len() + end + 2;
        *at += length;
        self.bytes += length as u64;
        self.events += 1;
        self.begun = true;
        self.field_seen = true;
        self.data_seen = true;
        Some((&value[..end], offset))
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
            data: self.has_data.then_some(&self.data),
            event: &self.event,
            data_offset: self.has_data.then_some(self.data_offset),
            line: self.keep.then_some(&self.line),
            line_offset: self.line_offset,
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
            let ending = memchr2(b'\n', b'\r', rest);
            let part = &rest[..ending.unwrap_or(rest.len())];
            let start = *at;

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
                self.line.extend_from_slice(part);
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
            self.data.push(b'\n');
            self.data.extend_from_slice(value.of(piece, &self.out));
            return None;
        }
        self.has_data = true;
        self.data_offset = self.line_offset;
        match value {
            Text::Piece(range) => *held = Some(range),
            Text::Out(_) => self.data.extend_from_slice(value.of(piece, &self.out)),
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
                    Text::Out(0)
                }
            };
            found = Some(Found::Event { data, offset: self.data_offset, retry: self.event_retry.take() });
        } else if self.skip {
            self.blocks_oversize += u64::from(self.skip_data);
            self.event_retry = None;
        }
        self.has_data = false;
        reuse(&mut self.data);
        self.data_size = 0;
        reuse(&mut self.event);
        self.skip = false;
        self.skip_data = false;
        self.plain = !self.swallow && self.event_retry.is_none();
        found
    }

    fn spill(&mut self, held: &mut Option<Range<usize>>, piece: &[u8]) {
        if let Some(range) = held.take() {
            self.data.extend_from_slice(&piece[range]);
        }
    }
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
