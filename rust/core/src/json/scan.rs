//! Where tokens end: eight bytes at a time, no token converted.
use super::text::{hex4, low_half};
use super::{ESCAPED, Fault, HALF, Kind, MAX_INTEGER_DIGITS, RAW, SPACED};

/// The byte at `at`; NUL, which no token begins with, past the end.
#[inline(always)]
pub(crate) fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

#[inline(always)]
pub(crate) fn has<const N: usize>(bytes: &[u8], at: usize, word: &[u8; N]) -> bool {
    bytes.get(at..).and_then(|rest| rest.first_chunk()) == Some(word)
}

#[inline(always)]
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|eight| u64::from_le_bytes(*eight))
}

#[inline(always)]
pub(crate) fn skip_white(bytes: &[u8], at: usize, flags: &mut u8) -> usize {
    if byte(bytes, at) > b' ' { at } else { skip_white_slowly(bytes, at, flags) }
}

#[inline]
fn skip_white_slowly(bytes: &[u8], mut at: usize, flags: &mut u8) -> usize {
    while matches!(byte(bytes, at), b' ' | b'\t' | b'\n' | b'\r') {
        *flags |= SPACED;
        at += 1;
    }
    at
}

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const HIGHS: u64 = ONES << 7;

/// The high bit of the first byte that is a quote, a backslash or a control character; bits above it mean nothing.
#[inline(always)]
pub(crate) fn stops(word: u64) -> u64 {
    // With bit 1 flipped the quote (0x22) is 0x20, the space 0x22, and the controls are still below 0x20.
    let quote = word ^ (ONES * 2);
    let slash = word ^ (ONES * b'\\' as u64);
    ((quote.wrapping_sub(ONES * 0x21) & !quote) | (slash.wrapping_sub(ONES) & !slash)) & HIGHS
}

/// Words of a string that are looked at one by one; a longer string is then passed over in blocks.
const WORDS: usize = 4;

/// The offset behind all whole blocks of 32 bytes that hold no quote, backslash or control character, and the union of
/// their bytes. Plain enough for the compiler to do it sixteen bytes at a time.
#[inline(never)]
fn skip_blocks(bytes: &[u8], mut at: usize) -> (usize, u8) {
    let mut union = 0;
    while let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk::<32>()) {
        let (mut stop, mut any) = (0, 0);
        for &byte in block {
            stop |= u8::from(byte < 0x20) | u8::from(byte == b'"') | u8::from(byte == b'\\');
            any |= byte;
        }
        if stop != 0 {
            break;
        }
        union |= any;
        at += 32;
    }
    (at, union)
}

/// The offset of the first quote, backslash or control character, or of the end.
#[inline(always)]
pub(crate) fn find_stop(bytes: &[u8], mut at: usize) -> usize {
    let long = at + 8 * WORDS;
    while let Some(word) = word(bytes, at) {
        let stops = stops(word);
        if stops != 0 {
            return at + (stops.trailing_zeros() / 8) as usize;
        }
        at += 8;
        if at == long {
            at = skip_blocks(bytes, at).0;
        }
    }
    while at < bytes.len() && !matches!(bytes[at], b'"' | b'\\' | 0..=0x1f) {
        at += 1;
    }
    at
}

/// The offset of the quote that ends the string whose text begins at `at`, and the string's flags.
#[inline(always)]
pub(crate) fn string_end(bytes: &[u8], at: usize) -> Option<(usize, u8)> {
    let at = find_stop(bytes, at);
    match byte(bytes, at) {
        b'"' => Some((at, 0)),
        b'\\' => escaped_end(bytes, at),
        _ => None,
    }
}

/// The length of the string text that `bytes` begin with, up to its quote, and its flags; None where it is no valid
/// JSON string or ill-formed UTF-8.
#[inline(always)]
pub(crate) fn hole_end(bytes: &[u8]) -> Option<(usize, u8)> {
    let (mut at, mut high) = (0, 0u64);
    while let Some(word) = word(bytes, at) {
        let stops = stops(word);
        if stops != 0 {
            let bits = stops.trailing_zeros() & !7;
            at += bits as usize / 8;
            high |= word & ((1 << bits) - 1);
            if bytes[at] == b'"' && high & HIGHS == 0 {
                return Some((at, 0));
            }
            break;
        }
        high |= word;
        at += 8;
        if at == 8 * WORDS {
            let (end, union) = skip_blocks(bytes, at);
            at = end;
            high |= u64::from(union);
        }
    }
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' if high & HIGHS == 0 => return Some((at, 0)),
            b'"' | b'\\' | 0..=0x1f | 0x80.. => break,
            _ => at += 1,
        }
    }
    odd_hole_end(bytes, at)
}

/// The same where something else than ASCII without escapes came; nothing stops the string before `at`.
#[inline(never)]
fn odd_hole_end(bytes: &[u8], at: usize) -> Option<(usize, u8)> {
    let (end, flags) = string_end(bytes, at)?;
    simdutf8::basic::from_utf8(&bytes[..end]).ok()?;
    Some((end, flags))
}

#[inline(never)]
fn escaped_end(bytes: &[u8], mut at: usize) -> Option<(usize, u8)> {
    let mut flags = ESCAPED;
    loop {
        match byte(bytes, at) {
            b'"' => return Some((at, flags)),
            b'\\' => {
                at += match byte(bytes, at + 1) {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 2,
                    b'u' => match hex4(bytes, at + 2)? {
                        0xd800..=0xdbff if low_half(bytes, at + 6).is_some() => 12,
                        0xd800..=0xdfff => {
                            flags |= HALF;
                            6
                        }
                        _ => 6,
                    },
                    _ => return None,
                }
            }
            _ => return None,
        }
        at = find_stop(bytes, at);
    }
}

/// Six bits of the key's length and first eight bytes; equal keys have equal ones.
#[inline(always)]
pub(super) fn key_hash(bytes: &[u8], start: usize, end: usize) -> u32 {
    let length = end - start;
    let head = match word(bytes, start) {
        Some(word) if length >= 8 => word,
        Some(word) => word & !(u64::MAX << (8 * length)),
        None => bytes[start..end].iter().rev().fold(0, |head, &byte| head << 8 | u64::from(byte)),
    };
    let mixed = (head ^ (length as u64) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 58) as u32
}

/// The offset behind the digits that begin at `at`.
#[inline(always)]
pub(super) fn digits_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(word) = word(bytes, at) {
        let digits = word ^ (ONES * b'0' as u64);
        // A byte is no digit if it was above 9, or adding 0x76 carried it to 0x80.
        let others = (digits | (digits & !HIGHS).wrapping_add(ONES * 0x76)) & HIGHS;
        if others != 0 {
            return at + (others.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while byte(bytes, at).is_ascii_digit() {
        at += 1;
    }
    at
}

/// The end, kind and flags of the longest number (or `-Infinity`) that begins at `start`.
#[inline(always)]
pub(crate) fn number_end(bytes: &[u8], start: usize) -> Result<(usize, Kind, u8), Fault> {
    let whole = start + usize::from(byte(bytes, start) == b'-');
    let mut at = match byte(bytes, whole) {
        b'0' => whole + 1,
        b'1'..=b'9' => digits_end(bytes, whole),
        b'I' if has(bytes, start, b"-Infinity") => return Ok((start + 9, Kind::NonFinite, RAW)),
        _ => return Err(Fault::Bad { at: start }),
    };
    let point = at;
    if byte(bytes, point) == b'.' {
        let end = digits_end(bytes, point + 1);
        if end > point + 1 {
            at = end;
        }
    }
    let mantissa = at;
    if byte(bytes, at) | 0x20 == b'e' {
        let digits = at + 1 + usize::from(matches!(byte(bytes, at + 1), b'+' | b'-'));
        let end = digits_end(bytes, digits);
        if end > digits {
            at = end;
        }
    }
    if at == point {
        if point - whole > MAX_INTEGER_DIGITS {
            return Err(Fault::Bad { at: start });
        }
        let minus_zero = whole > start && bytes[whole] == b'0';
        return Ok((at, Kind::Int, if minus_zero { RAW } else { 0 }));
    }
    let (digits, fraction) = (&bytes[whole..point], bytes.get(point + 1..mantissa).unwrap_or_default());
    let canonical = if at == mantissa {
        is_canonical(digits, fraction)
    } else {
        is_canonical_exponent(digits, fraction, &bytes[mantissa..at])
    };
    Ok((at, Kind::Float, if canonical { 0 } else { RAW }))
}

/// Whether a float without exponent is surely spelled as `repr` spells it. Doubles keep all decimals of 15 digits
/// apart, so nothing shorter than these digits reads as the same double; the rest is where `repr` puts the point.
fn is_canonical(whole: &[u8], fraction: &[u8]) -> bool {
    let small = whole == b"0";
    let digits = fraction.len() + if small { 0 } else { whole.len() };
    let [tenths @ .., last] = fraction else {
        return false;
    };
    digits <= 15 && (tenths.is_empty() || *last != b'0') && (!small || fraction.len() <= 4 || fraction[..4] != *b"0000")
}

/// The same for a float with an exponent: `repr` writes one from 1e+16 on and below 1e-4, with two digits at least.
fn is_canonical_exponent(whole: &[u8], fraction: &[u8], exponent: &[u8]) -> bool {
    let [b'1'..=b'9'] = whole else { return false };
    let in_range = match exponent {
        [b'e', b'-', b'0', digit] => *digit >= b'5',
        [b'e', b'+', tens @ b'1'..=b'9', digit] => (*tens, *digit) >= (b'1', b'6'),
        [b'e', b'-', b'1'..=b'9', _] => true,
        _ => false,
    };
    in_range && fraction.len() <= 14 && fraction.last().is_none_or(|last| *last != b'0')
}
