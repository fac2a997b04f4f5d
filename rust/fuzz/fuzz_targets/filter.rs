//! Any bytes, cuts, limit and options: what is sent is that of the whole, of each frame read in full, and the very bytes
//! without options; with an alias for the model it merges to the same but for that.
#![no_main]

use deltafold_core::accumulator::Accumulator;
use deltafold_core::filter::{Filter, NoCalls, Options};
use deltafold_core::limits::Limits;
use libfuzzer_sys::fuzz_target;

fn options(bits: u8) -> Options {
    let paths = ["choices.delta.content", "usage", "x.y", "obfuscation"];
    Options {
        model: (bits & 1 != 0).then(|| "\"fast\"".into()),
        id: (bits & 2 != 0).then(|| "\"r\"".into()),
        drop_usage_chunk: bits & 4 != 0,
        strip: paths
            .iter()
            .enumerate()
            .filter(|(at, _)| bits & (8 << at) != 0)
            .map(|(_, path)| path.split('.').map(str::to_owned).collect())
            .collect(),
        ..Options::default()
    }
}

fn sent<'a>(bits: u8, limits: Limits, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    relayed(Filter::new(options(bits), limits), pieces)
}

fn relayed<'a>(mut filter: Filter, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in pieces {
        let Ok(part) = filter.feed(piece, &mut NoCalls);
        out.extend_from_slice(part);
    }
    let Ok(rest) = filter.close(&mut NoCalls);
    out.extend_from_slice(rest);
    out
}

fn merged(body: &[u8]) -> Accumulator {
    let mut accumulator = Accumulator::new(Limits::default(), false);
    accumulator.feed(body);
    accumulator.close();
    accumulator
}

fuzz_target!(|input: (u8, u8, Vec<u8>, &[u8])| {
    let (bits, limit, sizes, body) = input;
    let limits = Limits { max_event_bytes: if limit < 128 { 1 << 20 } else { usize::from(limit) }, ..Limits::default() };
    let whole = sent(bits, limits, [body]);
    let (mut pieces, mut rest) = (Vec::new(), body);
    for size in sizes {
        let (piece, more) = rest.split_at(usize::from(size % 64).min(rest.len()));
        pieces.push(piece);
        rest = more;
    }
    pieces.push(rest);
    assert_eq!(sent(bits, limits, pieces), whole);
    let mut ordinary = Filter::new(options(bits), limits);
    ordinary.set_fast_path(false);
    assert_eq!(relayed(ordinary, [body]), whole);
    // A template is known from the second frame on: a run of three is that of one, three times.
    if body.ends_with(b"\n\n") && !body.starts_with(b"\xef\xbb\xbf") {
        let thrice = [body, body, body].concat();
        assert_eq!(sent(bits, limits, [&thrice[..]]), [&whole[..], &whole[..], &whole[..]].concat());
    }
    assert_eq!(sent(0, limits, [body]), body);
    if bits & 0x7f == 1 && limits.max_event_bytes > body.len() {
        let (before, after) = (merged(body), merged(&whole));
        assert_eq!((before.id(), before.text(0), before.is_complete()), (after.id(), after.text(0), after.is_complete()));
        assert_eq!(before.usage_source(), after.usage_source());
    }
});
