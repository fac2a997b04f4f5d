//! Text that arrives in fragments.
//!
//! A fragment may end in one half of a UTF-16 surrogate pair (`\ud83d` as a JSON escape) and the next begin with the
//! other: together they are one character. A half that stays alone becomes U+FFFD. While it waits it is booked as U+FFFD.
use crate::chunk::Value;
use crate::json::{ESCAPED, Piece, unescape};
use crate::ledger::Ledger;

const REPLACED: char = '\u{fffd}';

/// Joined fragments.
#[derive(Debug, Default)]
pub(crate) struct Text {
    /// UTF-8; as bytes, since the fast path has checked what it appends.
    buffer: Vec<u8>,
    half: Option<u16>,
}

impl Text {
    /// UTF-8 bytes, a waiting half included as U+FFFD.
    #[inline]
    pub fn nbytes(&self) -> usize {
        self.buffer.len() + if self.half.is_some() { REPLACED.len_utf8() } else { 0 }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.nbytes() == 0
    }

    pub fn half(&self) -> bool {
        self.half.is_some()
    }

    /// The text without a half that still waits.
    pub fn decided(&self) -> &str {
        simdutf8::basic::from_utf8(&self.buffer).unwrap_or_default()
    }

    /// Bytes of the text without a half that still waits.
    pub fn decided_len(&self) -> usize {
        self.buffer.len()
    }

    pub fn ends_with(&self, byte: u8) -> bool {
        self.buffer.last() == Some(&byte)
    }

    /// Code points, a waiting half included.
    pub fn chars(&self) -> usize {
        self.decided().chars().count() + usize::from(self.half.is_some())
    }

    pub fn push_to(&self, out: &mut String) {
        out.push_str(self.decided());
        if self.half.is_some() {
            out.push(REPLACED);
        }
    }

    /// Appends the fragment that a string value is; false when it does not fit and nothing of it was kept.
    #[inline]
    pub fn add(&mut self, fragment: Value<'_>, ledger: &mut Ledger) -> bool {
        if fragment.node().flags & ESCAPED == 0 {
            self.add_plain(fragment.slice(), ledger)
        } else {
            self.add_raw(&[(fragment.slice(), 1)], ledger)
        }
    }

    /// Appends text without escapes.
    #[inline]
    pub fn add_plain(&mut self, fragment: &str, ledger: &mut Ledger) -> bool {
        if self.half.is_some() {
            return fragment.is_empty() || self.add_pieces(ledger, |text, _| text.push(Piece::Run(fragment)));
        }
        if !ledger.room(fragment.len(), 0) {
            return false;
        }
        self.buffer.extend_from_slice(fragment.as_bytes());
        true
    }

    /// Appends UTF-8 for which there is room, where no half waits.
    #[inline]
    pub fn append(&mut self, fragment: &[u8], ledger: &mut Ledger) {
        ledger.retained += fragment.len();
        self.buffer.extend_from_slice(fragment);
    }

    /// Appends raw JSON strings, each as often as it says, as one fragment.
    pub fn add_raw(&mut self, fragments: &[(&str, usize)], ledger: &mut Ledger) -> bool {
        self.add_pieces(ledger, |text, room| {
            let mut lone = 0;
            for &(raw, times) in fragments {
                for _ in 0..times {
                    if text.nbytes() > room {
                        break; // it will not fit: no need to spell out the rest
                    }
                    unescape(raw, |piece| lone += text.push(piece));
                }
            }
            lone
        })
    }

    /// Appends what `pieces` pushes, told how long the text may become; it gives the halves that turned out to be alone.
    fn add_pieces(&mut self, ledger: &mut Ledger, pieces: impl FnOnce(&mut Self, usize) -> usize) -> bool {
        let (length, half, nbytes) = (self.buffer.len(), self.half, self.nbytes());
        let room = ledger.limits.max_retained_bytes.saturating_sub(ledger.retained).saturating_add(nbytes);
        let lone = pieces(self, room);
        if !ledger.room(self.nbytes(), nbytes) {
            self.buffer.truncate(length);
            self.buffer.shrink_to(length);
            self.half = half;
            return false;
        }
        if lone > 0 {
            ledger.note("lone-surrogate", lone);
        }
        ledger.halves = ledger.halves + usize::from(self.half.is_some()) - usize::from(half.is_some());
        true
    }

    /// Appends one piece; how many halves turned out to be alone.
    fn push(&mut self, piece: Piece<'_>) -> usize {
        let waiting = self.half.take();
        let mut lone = 0;
        match (waiting, piece) {
            (Some(high), Piece::Half(low @ 0xdc00..=0xdfff)) => {
                let pair = char::decode_utf16([high, low]).next();
                self.push_char(pair.and_then(Result::ok).unwrap_or(REPLACED));
                return 0;
            }
            (Some(_), _) => {
                self.push_char(REPLACED);
                lone += 1;
            }
            (None, _) => {}
        }
        match piece {
            Piece::Run(run) => self.buffer.extend_from_slice(run.as_bytes()),
            Piece::Char(char) => self.push_char(char),
            Piece::Half(high @ 0xd800..=0xdbff) => self.half = Some(high),
            Piece::Half(_) => {
                self.push_char(REPLACED);
                lone += 1;
            }
        }
        lone
    }

    fn push_char(&mut self, char: char) {
        self.buffer.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
    }
}
