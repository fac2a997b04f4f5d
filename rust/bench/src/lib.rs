//! Streams for the benches, made here.

/// One stream: a name and its events, each with its blank line.
pub struct Stream {
    /// What kind.
    pub name: &'static str,
    /// One event a read.
    pub events: Vec<Vec<u8>>,
}

impl Stream {
    /// The payload of each event.
    pub fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        self.events.iter().map(|event| &event[6..event.len() - 2])
    }
}

/// Text with padding, reasoning, and three kinds that are harder: usage in every chunk, four choices, escapes.
pub fn streams() -> Vec<Stream> {
    let words = [" the", " quick", " brown", " fox", ",", " jumps", " over", " a", " lazy", " dog", "."];
    let pads = ["a1", "b2c3", "d4e5f6", "0g", "h7i8j9k0"];
    let head = r#"{"id":"chatcmpl-B3nch0000000000000000000001","object":"chat.completion.chunk","created":1760000000,"model":"bench-4o-2024-08-06""#;
    let make = |name, chunk: &dyn Fn(usize, &str) -> String| Stream {
        name,
        events: (0..1000)
            .map(|n| format!("data: {}\n\n", chunk(n, words[n * 7 % words.len()])).into_bytes())
            .collect(),
    };
    vec![
        make("text", &|n, word| {
            format!(
                r#"{head},"service_tier":"default","system_fingerprint":"fp_1234567890","choices":[{{"index":0,"delta":{{"content":"{word}"}},"logprobs":null,"finish_reason":null}}],"usage":null,"obfuscation":"{}"}}"#,
                pads[n % pads.len()]
            )
        }),
        make("reasoning", &|_, word| {
            format!(
                r#"{head},"choices":[{{"index":0,"delta":{{"role":"assistant","content":"","reasoning_content":"{word}"}},"finish_reason":null}}]}}"#
            )
        }),
        make("usage in every chunk", &|n, word| {
            format!(
                r#"{head},"choices":[{{"index":0,"delta":{{"content":"{word}"}},"finish_reason":null}}],"usage":{{"prompt_tokens":21,"completion_tokens":{n},"total_tokens":{}}}}}"#,
                n + 21
            )
        }),
        make("four choices", &|n, word| {
            format!(
                r#"{head},"choices":[{{"index":{},"delta":{{"content":"{word}"}},"logprobs":null,"finish_reason":null}}]}}"#,
                n % 4
            )
        }),
        make("no shape", &|n, word| {
            format!(
                r#"{head},"choices":[{{"index":0,"delta":{{"content":"{word}"}},"finish_reason":null,"score":0.{n:03}7}}]}}"#
            )
        }),
    ]
}
