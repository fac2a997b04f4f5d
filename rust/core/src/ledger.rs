//! What one stream has cost so far, what it needed and what went wrong.
//!
//! Every stage writes here: bytes kept against `max_retained_bytes`, leniencies, the first error, and the [`seen`] flags
//! of the piece at hand. `offset` is that of the event being merged.
use crate::limits::Limits;
use std::hash::RandomState;

/// What one piece brought; the values of the Python class `deltafold.Seen`.
#[allow(missing_docs)]
pub mod seen {
    pub const CONTENT: u32 = 1;
    pub const REASONING: u32 = 2;
    pub const REFUSAL: u32 = 4;
    pub const TOOL_CALL: u32 = 8;
    pub const AUDIO: u32 = 16;
    pub const LOGPROBS: u32 = 32;
    pub const FINISH: u32 = 64;
    pub const USAGE: u32 = 128;
    pub const ERROR: u32 = 256;
    pub const DONE: u32 = 512;
}

/// The kinds of errors, as Python's exception classes name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ErrorKind {
    UpstreamError,
    BadJson,
    NotSse,
    LimitExceeded,
    Truncated,
}

/// The first thing that went wrong with a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which kind.
    pub kind: ErrorKind,
    /// What happened; of an upstream error its own text.
    pub message: String,
    /// Text from upstream that belongs behind the message, to be escaped and cut to 80 characters.
    pub excerpt: Option<String>,
    /// Upstream's code as JSON text.
    pub code: Option<String>,
    /// Upstream's error as JSON text.
    pub body: Option<String>,
    /// Bytes from the stream's first byte; None for a chunk that came as an object.
    pub offset: Option<u64>,
}

/// One kind of leniency that a stream needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Which one.
    pub kind: &'static str,
    /// How often.
    pub count: u64,
    /// Of the first event that needed it.
    pub offset: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Ledger {
    pub limits: Limits,
    pub offset: Option<u64>,
    pub seen: u32,
    /// Number of the chunk being merged.
    pub chunk: u64,
    pub retained: usize,
    /// Past `max_retained_bytes`: nothing more is kept.
    pub over: bool,
    /// High surrogate halves that still wait for the other one.
    pub halves: usize,
    pub error: Option<Box<Failure>>,
    pub diagnostics: Vec<Diagnostic>,
    /// How often `note` was called.
    pub notes: u64,
    pub state: RandomState,
}

impl Ledger {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            offset: Some(0),
            seen: 0,
            chunk: 0,
            retained: 0,
            over: false,
            halves: 0,
            error: None,
            diagnostics: Vec::new(),
            notes: 0,
            state: RandomState::new(),
        }
    }

    /// Books a value of `new` bytes in the place of one of `old`; false once it does not fit, and ever after.
    #[inline]
    pub fn room(&mut self, new: usize, old: usize) -> bool {
        if self.over {
            return false;
        }
        let rest = self.retained.saturating_sub(old);
        if new > old && rest.saturating_add(new) > self.limits.max_retained_bytes {
            return self.overflow();
        }
        self.retained = rest + new;
        true
    }

    #[cold]
    fn overflow(&mut self) -> bool {
        self.over = true;
        let limit = self.limits.max_retained_bytes;
        self.fail(ErrorKind::LimitExceeded, format!("more than max_retained_bytes={limit} to keep"));
        false
    }

    #[cold]
    pub fn note(&mut self, kind: &'static str, count: usize) {
        self.notes += 1;
        match self.diagnostics.iter_mut().find(|d| d.kind == kind) {
            Some(known) => known.count += count as u64,
            None => self.diagnostics.push(Diagnostic { kind, count: count as u64, offset: self.offset }),
        }
    }

    /// Records an error at the present offset; the first one in time stays.
    #[cold]
    pub fn fail(&mut self, kind: ErrorKind, message: String) {
        self.fail_with(|offset| Failure { kind, message, excerpt: None, code: None, body: None, offset });
    }

    #[cold]
    pub fn fail_with(&mut self, failure: impl FnOnce(Option<u64>) -> Failure) {
        self.seen |= seen::ERROR;
        if self.error.is_none() {
            self.error = Some(Box::new(failure(self.offset)));
        }
    }
}
