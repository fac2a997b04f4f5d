//! What streams cost in memory, by a counting allocator: per stream, per byte of text, and for streams made to be costly.
//!
//! Run by `make test`: `cargo test --manifest-path rust/memory/Cargo.toml`.

use deltafold_core::accumulator::Accumulator;
use deltafold_core::limits::Limits;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counting;

static ALIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);
/// Tests run on threads, and the counters are everybody's.
static TURN: Mutex<()> = Mutex::new(());

// SAFETY: every call goes to `System` with the arguments as they came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Relaxed);
        PEAK.fetch_max(ALIVE.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALIVE.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` left behind, the most it had at once, and how often it allocated.
fn cost<T>(work: impl FnOnce() -> T) -> (T, usize, usize, usize) {
    let (before, calls) = (ALIVE.load(Relaxed), CALLS.load(Relaxed));
    PEAK.store(before, Relaxed);
    let result = work();
    let left = ALIVE.load(Relaxed).saturating_sub(before);
    (result, left, PEAK.load(Relaxed) - before, CALLS.load(Relaxed) - calls)
}

fn event(text: &str) -> Vec<u8> {
    format!("data: {text}\n\n").into_bytes()
}

fn delta(text: &str) -> Vec<u8> {
    event(&format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":null}}]}}"#
    ))
}

fn fed(limits: Limits, pieces: &[Vec<u8>]) -> Accumulator {
    let mut accumulator = Accumulator::new(limits, false);
    pieces.iter().for_each(|piece| _ = accumulator.feed(piece));
    accumulator
}

#[test]
fn a_stream_half_fed_costs_its_text_and_less_than_4_kib() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let pieces: Vec<Vec<u8>> = (0..40).map(|_| delta("word ")).collect();
    drop(fed(Limits::default(), &pieces)); // the thread's buffers
    let (alive, left, ..) = cost(|| (0..1000).map(|_| fed(Limits::default(), &pieces)).collect::<Vec<_>>());
    let each = left / alive.len() - 200;
    println!("{each} bytes a stream beside its text, {} of them inline", size_of::<Accumulator>());
    assert!(each < 4096, "{each}");
    let (_, left, ..) = cost(|| drop(fed(Limits::default(), &pieces)));
    assert_eq!(left, 0);
}

#[test]
fn streams_made_to_be_costly_leave_nothing() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let limits = Limits { max_retained_bytes: 10_000, max_tool_calls: 16, ..Limits::default() };
    let many = |item: fn(usize) -> String| (0..50_000).map(item).collect::<Vec<_>>().join(",");
    let calls = |item: fn(usize) -> String| {
        event(&format!(r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{}]}}}}]}}"#, many(item)))
    };
    let bombs: [(&str, Vec<u8>); 11] = [
        ("members", event(&format!("{{{}}}", many(|i| format!("\"k{i}\":1"))))),
        ("choices", event(&format!(r#"{{"choices":[{}]}}"#, many(|i| format!("{{\"index\":{i}}}"))))),
        ("calls", calls(|i| format!(r#"{{"id":"{i}"}}"#))),
        ("calls by index", calls(|i| format!(r#"{{"index":{i},"id":"{i}"}}"#))),
        ("nested", event(&"{\"a\":".repeat(1_000_000))),
        ("open lists", event(&"[".repeat(1_000_000))),
        ("number", event(&format!("{{\"a\":{}}}", "1".repeat(1_000_000)))),
        ("comment", [b":".as_slice(), &[b'x'; 1_000_000], b"\n"].concat()),
        ("prefixes", event(&format!("{}{{}}", "data:".repeat(200_000)))),
        ("same member", event(&format!("{{{}}}", many(|_| "\"k\":1".to_owned())))),
        ("broken", event(&format!("[{}", many(|_| "{}".to_owned())))),
    ];
    for (name, bomb) in bombs {
        let (accumulator, left, peak, calls) = cost(|| fed(limits, std::slice::from_ref(&bomb)));
        println!("{name}: {} bytes, {left} left, {peak} at most, {calls} allocations", bomb.len());
        // 10,000 retained bytes, of which tiny members cost up to 45 times as much, and the thread's buffers.
        assert!(left < 1_600_000, "{name}: {left}");
        assert!(peak < 12 * bomb.len() + 1_000_000, "{name}: {peak}");
        drop(accumulator);
    }
}

#[test]
fn a_constant_that_will_not_fit_is_not_spelled_out() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let note = |text: &str| event(&format!(r#"{{"choices":[{{"index":0,"delta":{{"note":"{text}"}}}}]}}"#));
    let mut pieces = vec![note(&"x".repeat(1000)); 2000];
    pieces.push(note("y"));
    let limits = Limits { max_retained_bytes: 1500, ..Limits::default() };
    let (accumulator, left, peak, _) = cost(|| fed(limits, &pieces));
    assert!(accumulator.error().is_some());
    assert!(left < 50_000 && peak < 50_000, "{left} {peak}");
}

#[test]
fn a_body_of_short_lines_costs_its_bytes() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (_, left, ..) = cost(|| fed(Limits::default(), &[b"a\n".repeat(100_000)]));
    assert!(left < 500_000, "{left}");
}

#[test]
fn a_chunk_allocates_nothing_but_room_for_its_text() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let usage = |n: usize| {
        event(&format!(
            r#"{{"id":"c","choices":[{{"index":0,"delta":{{"content":"word "}}}}],"usage":{{"prompt_tokens":7,"completion_tokens":{n}}}}}"#
        ))
    };
    let logprobs = event(
        r#"{"id":"c","choices":[{"index":0,"delta":{"content":"w"},"logprobs":{"content":[{"token":"w","logprob":-0.25,"bytes":[119]}]}}]}"#,
    );
    let kinds: [Vec<Vec<u8>>; 3] = [
        (0..5000).map(|_| delta("word ")).collect(),
        (1000..6000).map(usage).collect(),
        (0..5000).map(|_| logprobs.clone()).collect(),
    ];
    for (kind, pieces) in kinds.iter().enumerate() {
        for fast in [true, false] {
            let mut accumulator = Accumulator::new(Limits::default(), false);
            accumulator.set_fast_path(fast);
            pieces[..50].iter().for_each(|piece| _ = accumulator.feed(piece));
            let ((), _, _, calls) = cost(|| pieces[50..].iter().for_each(|piece| _ = accumulator.feed(piece)));
            // Buffers double: 4,950 chunks of up to 60 bytes need some twenty times more room.
            assert!(calls <= 40, "kind {kind}, fast {fast}: {calls} allocations");
        }
    }
}
