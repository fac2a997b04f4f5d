//! Any bytes, any cut, any limit: the items and what is left are those of the whole, and `simple` changes nothing.
#![no_main]

use deltafold_core::sse::{Item, Machine};
use libfuzzer_sys::fuzz_target;

fn read(machine: &mut Machine, piece: &[u8], quick: bool, items: &mut Vec<String>) {
    let mut at = 0;
    loop {
        if quick {
            if let Some((data, offset)) = machine.simple(piece, &mut at) {
                let id = machine.last_event_id();
                items.push(format!("event {data:?} [] {offset} {id:?} None"));
                continue;
            }
        }
        match machine.next(piece, &mut at) {
            None => return assert_eq!(at, piece.len()),
            Some(Item::Event(e)) => {
                items.push(format!("event {:?} {:?} {} {:?} {:?}", e.data, e.event, e.offset, e.id, e.retry));
            }
            Some(other) => items.push(format!("{other:?}")),
        }
    }
}

fn facts(m: &Machine) -> String {
    let counts = (m.bytes(), m.comments(), m.ignored_lines(), m.events(), m.blocks_oversize(), m.raw_kept);
    format!("{counts:?} {:?}", (m.field_seen(), m.data_seen(), m.last_event_id(), m.retry(), m.rest()))
}

fuzz_target!(|input: (u8, bool, Vec<u8>, &[u8])| {
    let (limit, raw_lines, sizes, body) = input;
    let limit = usize::from(limit) + 1;
    let mut whole = Machine::new(limit, raw_lines);
    let mut expected = Vec::new();
    read(&mut whole, body, false, &mut expected);

    let mut machine = Machine::new(limit, raw_lines);
    let (mut items, mut rest) = (Vec::new(), body);
    for size in sizes {
        let (piece, more) = rest.split_at(usize::from(size % 16).min(rest.len()));
        read(&mut machine, piece, true, &mut items);
        rest = more;
    }
    read(&mut machine, rest, true, &mut items);
    assert_eq!(items, expected);
    assert_eq!(facts(&machine), facts(&whole));
});
