//! Core values → Python objects.
use deltafold_core::json::{Piece, unescape};
use deltafold_core::result::Sink;
use memchr::memchr2;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyNone, PyString};
use std::borrow::Cow;

/// Digits that CPython always converts at once, whatever its limit was set to.
const BLOCK: usize = 600;

/// Builds dicts and lists; the first failure of Python itself (out of memory) stops it.
pub struct PythonObjects<'py> {
    py: Python<'py>,
    open: Vec<Container<'py>>,
    keys: Vec<Bound<'py, PyString>>,
    root: Option<Bound<'py, PyAny>>,
    failure: Option<PyErr>,
}

enum Container<'py> {
    Dict(Bound<'py, PyDict>),
    List(Bound<'py, PyList>),
}

impl<'py> PythonObjects<'py> {
    pub fn new(py: Python<'py>) -> Self {
        Self { py, open: Vec::new(), keys: Vec::new(), root: None, failure: None }
    }

    pub fn finish(self) -> PyResult<Bound<'py, PyAny>> {
        match (self.failure, self.root) {
            (Some(failure), _) => Err(failure),
            (None, Some(root)) => Ok(root),
            (None, None) => Ok(PyNone::get(self.py).to_owned().into_any()),
        }
    }

    fn value(&mut self, value: Bound<'py, PyAny>) {
        let put = match self.open.last() {
            None => {
                self.root = Some(value);
                Ok(())
            }
            Some(Container::List(list)) => list.append(value),
            Some(Container::Dict(dict)) => match self.keys.pop() {
                Some(key) => dict.set_item(key, value),
                None => Ok(()),
            },
        };
        if let Err(error) = put {
            self.failure.get_or_insert(error);
        }
    }

    fn end(&mut self) {
        match self.open.pop() {
            Some(Container::Dict(dict)) => self.value(dict.into_any()),
            Some(Container::List(list)) => self.value(list.into_any()),
            None => {}
        }
    }
}

impl Sink for PythonObjects<'_> {
    fn begin_object(&mut self) {
        self.open.push(Container::Dict(PyDict::new(self.py)));
    }

    fn end_object(&mut self) {
        self.end();
    }

    fn begin_array(&mut self) {
        self.open.push(Container::List(PyList::empty(self.py)));
    }

    fn end_array(&mut self) {
        self.end();
    }

    fn key(&mut self, name: &str) {
        self.keys.push(key(self.py, name));
    }

    fn null(&mut self) {
        self.value(PyNone::get(self.py).to_owned().into_any());
    }

    fn string(&mut self, value: &str) {
        self.value(PyString::new(self.py, value).into_any());
    }

    fn list(&mut self, entries: &str, flags: u8) {
        self.raw(&format!("[{entries}]"), flags);
    }

    fn raw(&mut self, text: &str, _flags: u8) {
        match (Checked { text, at: 0 }).value(self.py) {
            Ok(value) => self.value(value),
            Err(error) => {
                self.failure.get_or_insert(error);
                self.null();
            }
        }
    }
}

/// JSON text that the core kept.
pub fn parse<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    let mut objects = PythonObjects::new(py);
    objects.raw(text, 0);
    objects.finish()
}

/// Reads JSON text that the core has checked and kept: compact, and no deeper than a payload's `max_depth`. Other text would
/// give other objects, and nothing worse.
struct Checked<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Checked<'a> {
    fn byte(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    fn value<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.byte() {
            b'"' => {
                let value = self.string();
                Ok(PyString::new(py, &value).into_any())
            }
            b'{' => {
                let dict = PyDict::new(py);
                while self.goes_on(b'}') {
                    let name = key(py, &self.string());
                    self.at += 1;
                    dict.set_item(name, self.value(py)?)?;
                }
                Ok(dict.into_any())
            }
            b'[' => {
                let mut items = Vec::new();
                while self.goes_on(b']') {
                    items.push(self.value(py)?);
                }
                Ok(PyList::new(py, items)?.into_any())
            }
            _ => self.token(py),
        }
    }

    /// Passes an opening bracket or a comma; false where the closing one was passed.
    fn goes_on(&mut self, closing: u8) -> bool {
        let ended = self.byte() == closing || self.at >= self.text.len();
        self.at += 1;
        if ended {
            return false;
        }
        let empty = self.byte() == closing;
        self.at += usize::from(empty);
        !empty
    }

    fn string(&mut self) -> Cow<'a, str> {
        let start = self.at + 1;
        let bytes = self.text.as_bytes();
        let (mut end, mut escaped) = (start, false);
        while let Some(found) = bytes.get(end..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
            end += found;
            if bytes[end] == b'"' {
                break;
            }
            escaped = true;
            end += 2;
        }
        self.at = end + 1;
        let raw = self.text.get(start..end).unwrap_or_default();
        if !escaped {
            return Cow::Borrowed(raw);
        }
        let mut value = String::with_capacity(raw.len());
        unescape(raw, |piece| match piece {
            Piece::Run(run) => value.push_str(run),
            Piece::Char(char) => value.push(char),
            Piece::Half(_) => value.push('\u{fffd}'),
        });
        Cow::Owned(value)
    }

    /// A number or a word.
    fn token<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let rest = &self.text.as_bytes()[self.at.min(self.text.len())..];
        let length = rest.iter().position(|byte| matches!(byte, b',' | b']' | b'}')).unwrap_or(rest.len());
        let token = self.text.get(self.at..self.at + length).unwrap_or_default();
        self.at += length;
        Ok(match token {
            "null" => PyNone::get(py).to_owned().into_any(),
            "true" | "false" => PyBool::new(py, token == "true").to_owned().into_any(),
            "NaN" => PyFloat::new(py, f64::NAN).into_any(),
            "Infinity" => PyFloat::new(py, f64::INFINITY).into_any(),
            "-Infinity" => PyFloat::new(py, f64::NEG_INFINITY).into_any(),
            _ if token.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E')) => {
                PyFloat::new(py, token.parse().unwrap_or(f64::NAN)).into_any()
            }
            _ => integer(py, token)?,
        })
    }
}

/// An integer of any size, also beyond the digits that the interpreter converts by itself.
pub fn integer<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    if let Ok(small) = text.parse::<i64>() {
        return Ok(PyInt::new(py, small).into_any());
    }
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let int = py.get_type::<PyInt>();
    let mut value = PyInt::new(py, 0).into_any();
    for start in (0..digits.len()).step_by(BLOCK) {
        let block = &digits[start..digits.len().min(start + BLOCK)];
        let scale = PyInt::new(py, 10).pow(block.len(), py.None())?;
        value = value.mul(scale)?.add(int.call1((block,))?)?;
    }
    if negative { value.neg() } else { Ok(value) }
}

type Name = (&'static str, Py<PyString>);

/// A name as a Python string; those that nearly every result has are made once.
fn key<'py>(py: Python<'py>, name: &str) -> Bound<'py, PyString> {
    static KNOWN: PyOnceLock<Vec<Vec<Name>>> = PyOnceLock::new();
    let known = KNOWN.get_or_init(py, || {
        let mut by_length: Vec<Vec<_>> = Vec::new();
        for name in NAMES {
            by_length.resize_with(by_length.len().max(name.len() + 1), Vec::new);
            by_length[name.len()].push((*name, PyString::intern(py, name).unbind()));
        }
        by_length
    });
    let same_length = known.get(name.len()).map_or(&[][..], Vec::as_slice);
    match same_length.iter().find(|(known, _)| *known == name) {
        Some((_, key)) => key.bind(py).clone(),
        None => PyString::new(py, name),
    }
}

/// Of one length, the most frequent first.
const NAMES: &[&str] = &[
    "token",
    "logprob",
    "bytes",
    "top_logprobs",
    "index",
    "type",
    "text",
    "content",
    "role",
    "message",
    "finish_reason",
    "logprobs",
    "id",
    "object",
    "created",
    "model",
    "choices",
    "usage",
    "service_tier",
    "system_fingerprint",
    "refusal",
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "reasoning_text",
    "thinking",
    "tool_calls",
    "function_call",
    "audio",
    "annotations",
    "function",
    "custom",
    "name",
    "arguments",
    "input",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "prompt_tokens_details",
    "completion_tokens_details",
    "cached_tokens",
    "audio_tokens",
    "reasoning_tokens",
    "accepted_prediction_tokens",
    "rejected_prediction_tokens",
];
