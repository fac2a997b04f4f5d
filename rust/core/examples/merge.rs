//! Merges a file some times: `merge FILE [TIMES [BYTES]]`, one event a read or so many bytes. For profilers; prints the last
//! result.
use deltafold_core::accumulator::Accumulator;
use deltafold_core::limits::Limits;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let data = std::fs::read(arguments.next().ok_or("usage: merge FILE [TIMES]")?)?;
    let times: usize = arguments.next().map_or(Ok(1), |times| times.parse())?;
    let bytes: usize = arguments.next().map_or(Ok(0), |bytes| bytes.parse())?;
    let mut events = Vec::new();
    let mut rest = data.as_slice();
    if bytes > 0 {
        events.extend(data.chunks(bytes));
        rest = &[];
    }
    while let Some(end) = rest.windows(2).position(|two| two == b"\n\n") {
        events.push(&rest[..end + 2]);
        rest = &rest[end + 2..];
    }
    events.push(rest);
    let mut result = String::new();
    for _ in 0..times {
        let mut accumulator = Accumulator::new(Limits::default(), false);
        for event in &events {
            accumulator.feed(event);
        }
        accumulator.close();
        result = accumulator.result_json();
    }
    println!("{result}");
    Ok(())
}
