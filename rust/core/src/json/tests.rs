use super::scan::{digits_end, find_stop};
use super::*;
use std::hash::RandomState;
use std::hint::black_box;
use std::time::Instant;

mod naive;

const CHUNK: &str = r#"{"id":"chatcmpl-BHGe1wuBfUPDaGOWtXjZUvQ5J7Smn","object":"chat.completion.chunk","created":1743452345,"model":"gpt-4o-mini-2024-07-18","service_tier":"default","system_fingerprint":"fp_b376dfbbd5","choices":[{"index":0,"delta":{"content":" Rome"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"3bBxYl3k1Wq5z"}"#;

fn canonical(text: &str) -> Result<String, Fault> {
    let mut tape = Tape::new();
    tape.parse(text, 128)?;
    let mut out = String::new();
    write_canonical(&tape, text, 0, &mut out);
    Ok(out)
}

fn parsed(text: &str) -> Tape {
    let mut tape = Tape::new();
    tape.parse(text, usize::MAX).unwrap();
    tape
}

fn print(text: &str, state: &RandomState) -> u128 {
    fingerprint(&parsed(text), text, 0, state)
}

#[test]
fn cases() {
    let table = include_str!("../../../../tests/cases/json.tsv");
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let [verdict, text, wanted, name] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let text = unpack(text);
        let found = match canonical(&text) {
            Ok(_) => "ok".to_owned(),
            Err(Fault::Bad { at }) => format!("bad {at}"),
            Err(Fault::TooDeep { at }) => format!("deep {at}"),
        };
        assert_eq!(found, verdict, "{name}");
        assert_eq!(naive::canonical(&text, 128).map(|it| it.0), canonical(&text), "{name}");
        if verdict == "ok" {
            let wanted = if wanted == "=" { text.clone() } else { unpack(wanted) };
            assert_eq!(canonical(&text).unwrap(), wanted, "{name}");
        }
    }
}

/// The text that a column of the table stands for.
fn unpack(column: &str) -> String {
    let mut bytes = Vec::new();
    for run in column.split(' ').filter(|run| *run != "-") {
        let (hex, count) = run.split_once('*').unwrap_or((run, "1"));
        let unit: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        bytes.extend(unit.repeat(count.parse().unwrap()));
    }
    String::from_utf8(bytes).unwrap()
}

#[test]
fn parse_matches_naive() {
    let parts = [
        "[",
        "[",
        "{",
        "{",
        "]",
        "]",
        "}",
        "}",
        ",",
        ",",
        ":",
        "{\"a\":",
        "\"a\"",
        "\"b\":",
        "\"\\u0061\":",
        "\"a\":1,",
        "\"\\ud800\"",
        "\"\\ud83d\\ude00\"",
        "\"\\udc00\":",
        "\"\u{fffd}\":",
        "\"",
        "\\",
        "\\u",
        "1",
        "-",
        "0",
        "-0",
        "1.5",
        "2.50",
        "1e400",
        "1E-7",
        ".",
        "e",
        "NaN",
        "-Infinity",
        "null",
        "true",
        "false",
        " ",
        "\n",
        "\u{1}",
        "é",
        "\u{2028}",
    ];
    let mut random = Random(7);
    let mut tape = Tape::new();
    for round in 0..200_000 {
        let mut text = if round % 2 == 0 { random.json(4) } else { String::new() };
        for _ in 0..random.below(if round % 2 == 0 { 3 } else { 12 }) {
            let part = parts[random.below(parts.len())];
            let mut at = random.below(text.len() + 1);
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            if random.below(2) == 0 {
                text.insert_str(at, part);
            } else {
                text.truncate(at);
                text.push_str(part);
            }
        }
        let found = tape.parse(&text, 3);
        let wanted = naive::canonical(&text, 3);
        assert_eq!(found, wanted.as_ref().map(|_| ()).map_err(|fault| *fault), "{text}");
        if let Ok((wanted, words)) = wanted {
            let mut out = String::new();
            write_canonical(&tape, &text, 0, &mut out);
            assert_eq!(out, wanted, "{text}");
            assert_eq!(tape.words(), words, "{text}");
            check_flags(&tape, &text);
        }
    }
}

/// What the flags of a container promise.
fn check_flags(tape: &Tape, text: &str) {
    for (index, node) in tape.nodes().iter().enumerate() {
        if !matches!(node.kind, Kind::Array | Kind::Object) {
            continue;
        }
        let (raw, mut short, mut out) = (node.slice(text), String::new(), String::new());
        compact(raw, &mut short);
        assert_eq!(short.len(), compact_len(raw), "{text}");
        assert_eq!(short == raw, node.flags & SPACED == 0, "{text}");
        if node.flags & (ESCAPED | RAW) == 0 {
            write_canonical(tape, text, index, &mut out);
            assert_eq!(out, short, "{text}");
        }
        let half = tape.nodes()[index + 1..node.next as usize].iter().any(|node| node.flags & HALF != 0);
        assert_eq!(half, node.flags & HALF != 0, "{text}");
    }
}

#[test]
fn strings_are_scanned_like_byte_by_byte() {
    for stop in ['"', '\\', '\0', '\n', '\u{1f}'] {
        for filler in ["x", " ", "!", "#", "[", "]", "\u{7f}", "é", "€", "😀"] {
            for length in 0..40 {
                let text = format!("{}{stop}{}", filler.repeat(length), "\"".repeat(9));
                assert_eq!(find_stop(text.as_bytes(), 0), length * filler.len(), "{text:?}");
                assert_eq!(find_stop(&text.as_bytes()[..length * filler.len()], 0), length * filler.len());
            }
        }
    }
    for byte in 0..=255 {
        let digits = [b'1', b'9', byte, b'0', b'1', b'2', b'3', b'4', b'x'];
        assert_eq!(digits_end(&digits, 0), if byte.is_ascii_digit() { 8 } else { 2 }, "{byte}");
    }
}

#[test]
fn a_million_levels() {
    let text = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
    let tape = parsed(&text);
    let mut out = String::new();
    write_canonical(&tape, &text, 0, &mut out);
    assert_eq!(out, text);
    let text = "[ ".repeat(1_000_000) + &"]".repeat(1_000_000);
    let tape = parsed(&text);
    out.clear();
    write_canonical(&tape, &text, 0, &mut out);
    assert_eq!(out.len(), 2_000_000);
    let state = RandomState::new();
    assert_eq!(fingerprint(&tape, &text, 0, &state), print(&out, &state));
    assert_eq!(Tape::new().parse(&text, 999_999), Err(Fault::TooDeep { at: 1_999_998 }));
}

#[test]
fn many_keys_take_linear_time() {
    // Keys of one hash bit and one length: compared with each other they would take minutes.
    let keys: Vec<String> = (0..100_000).map(|n| format!("same-beginning-{n:06}")).collect();
    let members: Vec<String> = keys.iter().chain(&keys).map(|key| format!("\"{key}\":0")).collect();
    let text = format!("{{{}}}", members.join(","));
    let tape = parsed(&text);
    assert_eq!(tape.members(0).count(), 100_000);
    assert!(tape.members(0).all(|(key, value)| value > key + 100_000));
}

#[test]
fn members_and_items() {
    let text = r#"{"a":[1,[2],"x"],"b":{},"a":{"c":null}}"#;
    let tape = parsed(text);
    let found: Vec<_> = tape.members(0).map(|(key, value)| (tape.key(text, key), tape.slice(text, value))).collect();
    assert_eq!(found, [("a".into(), r#"{"c":null}"#), ("b".into(), "{}")]);
    let text = "[1, [2, 3], {\"a\": 4}, \"x\"]";
    let tape = parsed(text);
    assert_eq!(
        tape.items(0).map(|item| tape.slice(text, item)).collect::<Vec<_>>(),
        ["1", "[2, 3]", "{\"a\": 4}", "x"]
    );
    assert_eq!((tape.members(0).count(), tape.items(1).count()), (0, 0));
}

#[test]
fn keys_and_strings_are_borrowed_unless_escaped() {
    let text = r#"{"k":"plain","\u006b2":"a\ud83d\ude00\ud83d"}"#;
    let tape = parsed(text);
    let (first, second) = (tape.members(0).next().unwrap(), tape.members(0).nth(1).unwrap());
    assert!(matches!(tape.string(text, first.1), Cow::Borrowed("plain")));
    assert_eq!(tape.key(text, second.0), "k2");
    assert_eq!(tape.string(text, second.1), "a😀\u{fffd}");
    assert_eq!(tape.node(second.1).flags, ESCAPED | HALF);
}

#[test]
fn unescape_and_compact_take_anything() {
    for raw in ["\\", "\\u", "\\u12", "\\x", "a\\ud800\\", "\\ud800\\u12", "\"", "\"\\", "\"\\\"", " \" \\é", "é\\é"]
    {
        unescape(raw, |piece| {
            black_box(piece);
        });
        compact(raw, &mut String::new());
    }
}

#[test]
fn floats_are_written_as_repr_does() {
    for (value, wanted) in [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (0.1, "0.1"),
        (-2.5, "-2.5"),
        (100.0, "100.0"),
        (123456.789, "123456.789"),
        (1e15, "1000000000000000.0"),
        (9999999999999998.0, "9999999999999998.0"),
        (1e16, "1e+16"),
        (1.5e16, "1.5e+16"),
        (1e22, "1e+22"),
        (1e-9, "1e-09"),
        (1e-10, "1e-10"),
        (9.999999999999999e-5, "9.999999999999999e-05"),
        (1e-4, "0.0001"),
        (1.25e-4, "0.000125"),
        (1e-5, "1e-05"),
        (1.5e-7, "1.5e-07"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1e100, "1e+100"),
        (f64::NAN, "null"),
        (f64::INFINITY, "null"),
        (f64::NEG_INFINITY, "null"),
    ] {
        let mut out = String::new();
        write_float(value, &mut out);
        assert_eq!(out, wanted);
    }
}

#[test]
fn a_float_copied_is_the_float_written() {
    let mut random = Random(3);
    for _ in 0..300_000 {
        let (whole, fraction) = (random.digits(8), random.digits(9));
        let whole = whole.trim_start_matches('0');
        let token = format!("{}.{fraction}", if whole.is_empty() { "0" } else { whole });
        let node = parsed(&token).node(0);
        let mut out = String::new();
        write_float(node.number(&token), &mut out);
        assert!(out == token || node.flags & RAW != 0, "{token} {out}");
    }
}

#[test]
fn numbers() {
    for (text, number, zero) in
        [("0", 0.0, true), ("-0", 0.0, true), ("0.00e5", 0.0, true), ("1e-400", 0.0, true), ("-7", -7.0, false)]
    {
        assert_eq!((parsed(text).node(0).number(text), parsed(text).node(0).is_zero(text)), (number, zero), "{text}");
    }
    assert_eq!(parsed("1e400").node(0).number("1e400"), f64::INFINITY);
    assert!(parsed("NaN").node(0).number("NaN").is_nan());
    assert_eq!(parsed("-Infinity").node(0).number("-Infinity"), f64::NEG_INFINITY);
    assert_eq!((parsed("1e400").node(0).kind, parsed("-0").node(0).kind), (Kind::Float, Kind::Int));
}

#[test]
fn fingerprints_of_equal_values() {
    let state = RandomState::new();
    for (one, other) in [
        ("-0", "0"),
        ("1.0", "1e0"),
        ("NaN", " NaN"),
        ("1e400", "Infinity"),
        (r#""a""#, r#""\u0061""#),
        (r#""\ud800""#, "\"\u{fffd}\""),
        (r#"{"a":1,"b":[2]}"#, r#"{"b":[ 2 ],"a":1}"#),
        (r#"{"a":0,"a":1}"#, r#"{"a":1}"#),
        (r#"[{"x":{"p":1,"q":2}}]"#, r#"[{"x":{"q":2,"p":1}}]"#),
    ] {
        assert_eq!(print(one, &state), print(other, &state), "{one} {other}");
    }
}

#[test]
fn fingerprints_of_values_that_differ() {
    let state = RandomState::new();
    let texts = [
        "0",
        "1",
        "1.0",
        "-1",
        "-0.0",
        "0.0",
        "true",
        "false",
        "null",
        "NaN",
        "Infinity",
        "-Infinity",
        r#""1""#,
        r#""""#,
        r#""null""#,
        r#""a""#,
        "[]",
        "{}",
        "[1]",
        "[[1]]",
        "[1,2]",
        "[2,1]",
        "[[1],2]",
        "[[],[]]",
        "[[[]]]",
        "[{}]",
        r#"{"a":1}"#,
        r#"{"a":2}"#,
        r#"{"b":1}"#,
        r#"{"a":1,"b":2}"#,
        r#"{"a":2,"b":1}"#,
        r#"["a",1]"#,
        r#"{"a":{"b":1}}"#,
        r#"{"a":{},"b":1}"#,
        "18446744073709551616",
        "18446744073709551617",
        "18446744073709551616.0",
    ];
    for (nth, one) in texts.iter().enumerate() {
        for other in &texts[..nth] {
            assert_ne!(print(one, &state), print(other, &state), "{one} {other}");
        }
    }
}

#[test]
fn a_reused_tape_allocates_nothing() {
    let mut tape = Tape::new();
    tape.parse(CHUNK, 128).unwrap();
    let before = (tape.nodes.capacity(), tape.frames.capacity(), tape.nodes.as_ptr());
    for _ in 0..100 {
        tape.parse(CHUNK, 128).unwrap();
        tape.parse("[x", 128).unwrap_err();
        assert!(tape.nodes().is_empty());
    }
    assert_eq!(before, (tape.nodes.capacity(), tape.frames.capacity(), tape.nodes.as_ptr()));
}

#[test]
#[ignore = "a measurement: cargo test --release -- --ignored --nocapture parse_speed"]
fn parse_speed() {
    let mut tape = Tape::new();
    tape.parse(CHUNK, 128).unwrap();
    println!("{} bytes, {} nodes", CHUNK.len(), tape.nodes().len());
    let mut least = f64::MAX;
    for _ in 0..200 {
        let begin = Instant::now();
        for _ in 0..5000 {
            tape.parse(black_box(CHUNK), 128).unwrap();
            black_box(&tape);
        }
        least = least.min(begin.elapsed().as_secs_f64() / 5000.0 * 1e9);
    }
    println!("parse: {least:.0} ns");
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound.max(1)
    }

    fn digits(&mut self, most: usize) -> String {
        (0..1 + self.below(most)).map(|_| [b'0', b'0', b'1', b'5', b'9'][self.below(5)] as char).collect()
    }

    fn json(&mut self, depth: usize) -> String {
        let space = ["", "", "", " ", "\n\t"][self.below(5)];
        let count = self.below(4);
        match self.below(if depth == 0 { 5 } else { 9 }) {
            0 => format!("{}{}", ["", "-"][self.below(2)], self.below(3)),
            1 => format!("{}.{}", self.below(200), self.digits(18)),
            2 => ["null", "true", "false", "NaN", "-Infinity", "2E5", "1e400"][self.below(7)].to_owned(),
            3 | 4 => self.string(),
            5 | 6 => format!("[{space}{}]", (0..count).map(|_| self.json(depth - 1)).collect::<Vec<_>>().join(",")),
            _ => {
                let members = (0..count).map(|_| format!("{}{space}:{}", self.string(), self.json(depth - 1)));
                format!("{{{}}}", members.collect::<Vec<_>>().join(&format!(",{space}")))
            }
        }
    }

    fn string(&mut self) -> String {
        let parts = ["a", "b", "\\u0061", "\\n", "\\ud83d", "\\ude00", "é", "\u{fffd}", "\\/", "\\\"", "{", " "];
        let count = self.below(3);
        format!("\"{}\"", (0..count).map(|_| parts[self.below(parts.len())]).collect::<String>())
    }
}
