//! Accumulators on many threads at once, and handed from thread to thread, say what one alone says. ThreadSanitizer runs this:
//!
//!     RUSTFLAGS=-Zsanitizer=thread cargo +nightly test -Zbuild-std --target x86_64-unknown-linux-gnu -p deltafold-core --test threads

use deltafold_core::accumulator::Accumulator;
use deltafold_core::limits::Limits;

const CHUNKS: usize = 50;

fn body() -> Vec<u8> {
    let mut body = Vec::new();
    for at in 0..CHUNKS {
        let member = if at < CHUNKS / 2 { "reasoning_content" } else { "content" };
        body.extend(
            format!(
                "data: {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{{\"{member}\":\"{at} \\u00e9\"}}}}]}}\n\n"
            )
            .bytes(),
        );
    }
    body.extend(b"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"total_tokens\":7}}\n\n");
    body.extend(b"data: [DONE]\n\n");
    body
}

fn expected() -> String {
    let said = |from: usize, to: usize| (from..to).map(|at| format!("{at} é")).collect::<String>();
    format!(
        concat!(
            "{{\"id\":\"c\",\"object\":\"chat.completion\",\"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",",
            "\"content\":\"{}\",\"reasoning_content\":\"{}\"}},\"finish_reason\":\"stop\"}}],\"usage\":{{\"total_tokens\":7}}}}"
        ),
        said(CHUNKS / 2, CHUNKS),
        said(0, CHUNKS / 2)
    )
}

#[test]
fn each_thread_its_own() {
    let (body, expected) = (body(), expected());
    std::thread::scope(|scope| {
        for size in 1..9 {
            let (body, expected) = (&body, &expected);
            scope.spawn(move || {
                for _ in 0..3 {
                    let mut accumulator = Accumulator::new(Limits::default(), false);
                    for piece in body.chunks(size * 7) {
                        accumulator.feed(piece);
                    }
                    accumulator.close();
                    assert_eq!(accumulator.result_json(), *expected);
                }
            });
        }
    });
}

#[test]
fn from_thread_to_thread() {
    let (body, mut accumulator) = (body(), Accumulator::new(Limits::default(), false));
    for piece in body.chunks(1000) {
        accumulator = std::thread::scope(|scope| {
            let fed = scope.spawn(move || {
                accumulator.feed(piece);
                accumulator
            });
            fed.join().unwrap()
        });
    }
    accumulator.close();
    assert_eq!(accumulator.result_json(), expected());
}
