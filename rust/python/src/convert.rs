//! Core values → Python objects.
use deltafold_core::json::{Kind, Tape};
use deltafold_core::result::Sink;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyNone, PyString};

/// Digits that CPython always converts at once, whatever its limit was set to.
const BLOCK: usize = 600;

/// Builds dicts and lists; the first failure of Python itself (out of memory) stops it.
pub struct PythonObjects<'py> {
    py: Python<'py>,
    open: Vec<Container<'py>>,
    keys: Vec<Bound<'py, PyString>>,
    root: Option<Bound<'py, PyAny>>,
    failure: Option<PyErr>,
    tape: Tape,
}

enum Container<'py> {
    Dict(Bound<'py, PyDict>),
    List(Bound<'py, PyList>),
}

impl<'py> PythonObjects<'py> {
    pub fn new(py: Python<'py>) -> Self {
        Self { py, open: Vec::new(), keys: Vec::new(), root: None, failure: None, tape: Tape::new() }
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
        let mut tape = std::mem::take(&mut self.tape);
        let built = match tape.parse(text, usize::MAX) {
            Ok(()) => build(self.py, &tape, text, 0),
            Err(_) => Ok(PyNone::get(self.py).to_owned().into_any()),
        };
        self.tape = tape;
        match built {
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

/// The value at a node of a tape; as deep as the payload's `max_depth` at the most.
fn build<'py>(py: Python<'py>, tape: &Tape, text: &str, at: usize) -> PyResult<Bound<'py, PyAny>> {
    let node = tape.node(at);
    Ok(match node.kind {
        Kind::Null => PyNone::get(py).to_owned().into_any(),
        Kind::False | Kind::True => PyBool::new(py, node.kind == Kind::True).to_owned().into_any(),
        Kind::Int => integer(py, node.slice(text))?,
        Kind::Float | Kind::NonFinite => PyFloat::new(py, node.number(text)).into_any(),
        Kind::String | Kind::Key => PyString::new(py, &node.string(text)).into_any(),
        Kind::Array => {
            let items: PyResult<Vec<_>> = tape.items(at).map(|item| build(py, tape, text, item)).collect();
            PyList::new(py, items?)?.into_any()
        }
        Kind::Object => {
            let dict = PyDict::new(py);
            for (name, value) in tape.members(at) {
                dict.set_item(key(py, &tape.key(text, name)), build(py, tape, text, value)?)?;
            }
            dict.into_any()
        }
    })
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
