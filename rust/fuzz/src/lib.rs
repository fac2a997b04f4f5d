//! What the targets share: an input is three bytes (limits, cuts, `n`) and a body; an outcome is all that can be asked.
use deltafold_core::accumulator::Accumulator;
use deltafold_core::limits::Limits;

/// One input, taken apart.
pub struct Input<'a> {
    pub limits: Limits,
    pub fold: bool,
    pub body: &'a [u8],
    cuts: u32,
}

impl<'a> Input<'a> {
    pub fn new(input: &'a [u8]) -> Option<Self> {
        let (&[limits, cuts, fold], body) = input.split_first_chunk()?;
        let small = |bit: u8, limit: usize, default: usize| if limits & bit == 0 { default } else { limit };
        let default = Limits::default();
        let limits = Limits {
            max_event_bytes: small(1, 300, default.max_event_bytes),
            max_retained_bytes: small(2, usize::from(cuts), default.max_retained_bytes),
            max_choices: small(4, 2, default.max_choices),
            max_tool_calls: small(8, 2, default.max_tool_calls),
            max_depth: small(16, 6, default.max_depth),
        };
        Some(Self { limits, fold: fold & 1 == 1, body, cuts: u32::from(cuts) })
    }

    pub fn accumulator(&self) -> Accumulator {
        Accumulator::new(self.limits, self.fold)
    }

    /// The body in pieces of 0 to 31 bytes, or nearly whole.
    pub fn pieces(&self) -> Vec<&'a [u8]> {
        let (mut state, mut rest, mut pieces) = (self.cuts.wrapping_mul(2_654_435_761) | 1, self.body, Vec::new());
        let longest = if self.cuts & 1 == 0 { 31 } else { 1023 };
        while !rest.is_empty() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (piece, more) = rest.split_at(((state >> 16) as usize & longest).min(rest.len()));
            pieces.push(piece);
            rest = more;
        }
        pieces
    }
}

/// Feeds the pieces, closes, and tells all.
pub fn outcome(mut accumulator: Accumulator, pieces: &[&[u8]]) -> String {
    let mut seen = pieces.iter().fold(0, |seen, piece| seen | accumulator.feed(piece));
    seen |= accumulator.close();
    let choices: Vec<u64> = accumulator.finish_reasons().map(|(index, _)| index).collect();
    let texts: Vec<_> = choices.iter().map(|&i| (accumulator.text(i), accumulator.reasoning_text(i))).collect();
    format!(
        "{}\n{:?}\n{:?}\n{:?}\n{:?}\n{texts:?}",
        accumulator.result_json(),
        accumulator.error(),
        accumulator.diagnostics(),
        accumulator.counts(),
        (seen, accumulator.retained_bytes(), accumulator.is_complete(), accumulator.usage_source()),
    )
}
