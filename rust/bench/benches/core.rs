//! The core beside other ways of reading the same chunks: `cargo bench --manifest-path rust/bench/Cargo.toml`.
//!
//! `memcpy` copies the bytes; `serde_json` reads each payload into borrowed structs and joins the text; `jiter` pulls
//! through each payload and joins the text. Neither of the two splits events or follows any other rule.
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use deltafold_bench::streams;
use deltafold_core::accumulator::Accumulator;
use deltafold_core::limits::Limits;
use jiter::{Jiter, Peek};
use serde::Deserialize;
use std::borrow::Cow;
use std::hint::black_box;

#[derive(Deserialize)]
#[allow(dead_code)]
struct Chunk<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    created: u64,
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
#[allow(dead_code)]
struct Choice<'a> {
    index: u64,
    #[serde(borrow)]
    delta: Delta<'a>,
    #[serde(borrow)]
    finish_reason: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[allow(dead_code)]
struct Delta<'a> {
    #[serde(borrow)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow)]
    reasoning_content: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[allow(dead_code)]
struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

fn serde(payload: &[u8], text: &mut String) {
    let chunk: Chunk<'_> = serde_json::from_slice(payload).expect("our own chunk");
    for choice in &chunk.choices {
        text.push_str(choice.delta.content.as_deref().unwrap_or(""));
        text.push_str(choice.delta.reasoning_content.as_deref().unwrap_or(""));
    }
    black_box(&chunk.usage);
}

fn pull(jiter: &mut Jiter<'_>, peek: Peek, text: &mut String) -> jiter::JiterResult<()> {
    match peek {
        Peek::Object => {
            let mut key = jiter.known_object()?.map(str::to_owned_if_text);
            while let Some(wanted) = key {
                let peek = jiter.peek()?;
                if wanted && peek == Peek::String {
                    text.push_str(jiter.known_str()?);
                } else {
                    pull(jiter, peek, text)?;
                }
                key = jiter.next_key()?.map(str::to_owned_if_text);
            }
        }
        Peek::Array => {
            let mut next = jiter.known_array()?;
            while let Some(peek) = next {
                pull(jiter, peek, text)?;
                next = jiter.array_step()?;
            }
        }
        other => jiter.known_skip(other)?,
    }
    Ok(())
}

/// Whether a key's string is joined.
trait Wanted {
    fn to_owned_if_text(&self) -> bool;
}

impl Wanted for str {
    fn to_owned_if_text(&self) -> bool {
        matches!(self, "content" | "reasoning_content")
    }
}

fn core(criterion: &mut Criterion) {
    for stream in streams() {
        let mut group = criterion.benchmark_group(stream.name);
        group.throughput(Throughput::Elements(stream.events.len() as u64));
        group.bench_function(BenchmarkId::from_parameter("deltafold"), |bencher| {
            bencher.iter(|| {
                let mut accumulator = Accumulator::new(Limits::default(), false);
                for event in &stream.events {
                    accumulator.feed(black_box(event));
                }
                accumulator
            });
        });
        group.bench_function(BenchmarkId::from_parameter("memcpy"), |bencher| {
            let mut copy = vec![0; 1 << 12];
            bencher.iter(|| {
                for event in &stream.events {
                    copy[..event.len()].copy_from_slice(black_box(event));
                    black_box(&mut copy);
                }
            });
        });
        group.bench_function(BenchmarkId::from_parameter("serde_json"), |bencher| {
            bencher.iter(|| {
                let mut text = String::new();
                stream.payloads().for_each(|payload| serde(black_box(payload), &mut text));
                text
            });
        });
        group.bench_function(BenchmarkId::from_parameter("jiter"), |bencher| {
            bencher.iter(|| {
                let mut text = String::new();
                for payload in stream.payloads() {
                    let mut jiter = Jiter::new(black_box(payload));
                    let peek = jiter.peek().expect("our own chunk");
                    pull(&mut jiter, peek, &mut text).expect("our own chunk");
                }
                text
            });
        });
        group.finish();
    }
}

criterion_group!(benches, core);
criterion_main!(benches);
