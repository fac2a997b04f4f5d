//! `ChatCompletionAccumulator`: the core's accumulator with Python's types around it.
use crate::chunks::with_chunk_text;
use crate::convert::{PythonObjects, parse};
use crate::input::{Given, as_bytes, limits_of};
use deltafold_core::accumulator::Accumulator;
use deltafold_core::ledger::{Diagnostic, ErrorKind, Failure, seen};
use deltafold_core::limits::Limits;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyInt, PyList, PyString, PyType};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// Characters of upstream text in a message.
const EXCERPT: usize = 80;

/// Bytes of a piece from which on other threads run while it is merged. Of a smaller one the merge takes less time than
/// getting the interpreter's lock back may.
const LARGE: usize = 64 * 1024;

/// Merges the bytes of one Chat Completions response into the ``chat.completion`` it stands for.
///
/// Args:
///     limits: what the stream may cost; ``Limits()`` by default.
///     n: 1 folds every choice into choice 0, for servers that count tokens in ``index``; None keeps choices apart.
///
/// Example:
///     >>> acc = ChatCompletionAccumulator()
///     >>> acc.feed(b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n')
///     65
///     >>> acc.text()
///     'Hi'
#[pyclass(frozen, weakref, module = "deltafold")]
pub struct ChatCompletionAccumulator {
    state: Mutex<State>,
}

struct State {
    core: Accumulator,
    close_reason: Option<Py<PyString>>,
    error: Option<Py<PyAny>>,
    /// `deltafold.events.EventStream`, once somebody asked for events; it holds a weak reference to the accumulator.
    events: Option<Py<PyAny>>,
    broken: bool,
}

#[pymethods]
impl ChatCompletionAccumulator {
    #[new]
    #[pyo3(signature = (limits=None, n=None))]
    fn new(py: Python<'_>, limits: Option<&Bound<'_, PyAny>>, n: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let core = Accumulator::new(limits_of(py, limits)?, fold_of(n)?);
        Ok(Self { state: Mutex::new(State { core, close_reason: None, error: None, events: None, broken: false }) })
    }

    /// Takes the response's next bytes, cut anywhere; gives the ``Seen`` flags of what they brought, as a plain int.
    ///
    /// Never raises on content: what is wrong with the stream is in ``error`` and ``diagnostics``.
    ///
    /// Raises:
    ///     TypeError: ``piece`` is not bytes, bytearray or memoryview.
    ///     ValueError: the accumulator is closed.
    pub fn feed(&self, piece: &Bound<'_, PyAny>) -> PyResult<u32> {
        if let Ok(bytes) = piece.cast::<PyBytes>() {
            return self.take(piece.py(), bytes.as_bytes());
        }
        let bytes = as_bytes(piece)?;
        self.take(piece.py(), bytes.as_bytes())
    }

    /// Takes one parsed chunk: a dict, or an object with ``model_dump`` (openai, litellm) or ``to_dict``.
    ///
    /// Raises:
    ///     TypeError: ``chunk`` is none of these, or holds what JSON cannot say.
    ///     ValueError: the accumulator is closed.
    fn feed_chunk(&self, chunk: &Bound<'_, PyAny>) -> PyResult<u32> {
        with_chunk_text(chunk, |text| self.work(|core| core.feed_text(text)))?
    }

    /// Ends the stream and decides about an unfinished last event; gives the ``Seen`` flags of what that brought.
    ///
    /// Args:
    ///     reason: the caller's own word for why the bytes ended, kept as ``close_reason``. A second call changes nothing.
    #[pyo3(signature = (reason=Given(None)), text_signature = "($self, reason='eof')")]
    fn close(&self, py: Python<'_>, reason: Given<'_>) -> PyResult<u32> {
        let reason = match reason.0 {
            None => intern!(py, "eof").clone(),
            Some(reason) => reason.cast::<PyString>().cloned().map_err(|_| {
                let name = reason.get_type().name().map_or_else(|_| String::new(), |name| name.to_string());
                PyTypeError::new_err(format!("reason must be a str, not {name}"))
            })?,
        };
        let mut state = self.lock()?;
        if state.close_reason.is_some() {
            return Ok(0);
        }
        state.close_reason = Some(reason.unbind());
        Ok(state.guarded(Accumulator::close))
    }

    /// The merged ``chat.completion`` so far, at any moment: a fresh dict, or what ``as_type`` makes of ``result_json()``.
    ///
    /// Args:
    ///     as_type: a ``pydantic.BaseModel`` or ``msgspec.Struct`` class; or a ready ``pydantic.TypeAdapter`` or
    ///         ``msgspec.json.Decoder``, which may stand for any type that these know.
    ///
    /// Raises:
    ///     TypeError: ``as_type`` is none of these.
    ///     ValueError: pydantic's or msgspec's own ``ValidationError``: the result does not fit the type.
    #[pyo3(signature = (as_type=None))]
    fn result<'py>(&self, py: Python<'py>, as_type: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let Some(as_type) = as_type else { return self.read(py, |core| result(py, core))? };
        let decoded = py.import(intern!(py, "deltafold._typed"))?.getattr(intern!(py, "decoded"))?;
        decoded.call1((self.result_json(py)?, as_type))
    }

    /// ``result()`` as one line of UTF-8 JSON without a final LF; NaN and infinities are null.
    fn result_json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let text = self.read(py, Accumulator::result_json)?;
        Ok(PyBytes::new(py, text.as_bytes()))
    }

    /// Raises ``error``, if any, with the result so far as its ``partial``.
    fn raise_for_error(&self, py: Python<'_>) -> PyResult<()> {
        let Some(error) = self.error(py)? else { return Ok(()) };
        error.setattr(intern!(py, "partial"), self.result(py, None)?)?;
        error.call_method1(intern!(py, "with_traceback"), (py.None(),))?;
        Err(PyErr::from_value(error))
    }

    /// The first thing that went wrong; its ``partial`` is the result when this was first asked or last raised.
    #[getter]
    fn error<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.guarded(py, |state| state.error(py))?
    }

    /// ``[DONE]`` came, or every choice (at least one) has its finish reason and the last event was not cut.
    #[getter]
    fn complete(&self, py: Python<'_>) -> PyResult<bool> {
        self.read(py, Accumulator::is_complete)
    }

    /// ``[DONE]`` came.
    #[getter]
    fn done_seen(&self) -> PyResult<bool> {
        Ok(self.lock()?.core.done_seen())
    }

    /// The reason given to ``close``; None before.
    #[getter]
    fn close_reason(&self, py: Python<'_>) -> PyResult<Option<Py<PyString>>> {
        Ok(self.lock()?.close_reason.as_ref().map(|reason| reason.clone_ref(py)))
    }

    /// Finish reason by choice index, None where none came yet.
    #[getter]
    fn finish_reasons<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let reasons = PyDict::new(py);
        self.read(py, |core| core.finish_reasons().try_for_each(|(index, reason)| reasons.set_item(index, reason)))??;
        Ok(reasons)
    }

    /// The completion's id, None until one came.
    #[getter]
    fn id(&self) -> PyResult<Option<String>> {
        Ok(self.lock()?.core.id().map(str::to_owned))
    }

    /// The model that served, None until one came.
    #[getter]
    fn model(&self) -> PyResult<Option<String>> {
        Ok(self.lock()?.core.model().map(str::to_owned))
    }

    /// Usage as reported, never estimated; None without any.
    #[getter]
    fn usage<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut objects = PythonObjects::new(py);
        self.read(py, |core| core.write_usage(&mut objects))?;
        objects.finish()
    }

    /// Where ``usage`` comes from: ``reported``, ``choice``, ``x_groq`` or ``none``.
    #[getter]
    fn usage_source(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.read(py, Accumulator::usage_source)
    }

    /// The leniencies that the stream needed, one entry for each kind, in order of first occurrence.
    #[getter]
    fn diagnostics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let found = self.lock()?.core.diagnostics().to_vec();
        diagnostics(py, &found)
    }

    /// Bytes, events and chunks so far, and the code points of content, reasoning, refusals and tool arguments.
    #[getter]
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = self.read(py, Accumulator::counts)?;
        let dict = PyDict::new(py);
        for (name, count) in [
            (intern!(py, "bytes"), counts.bytes),
            (intern!(py, "events"), counts.events),
            (intern!(py, "chunks"), counts.chunks),
            (intern!(py, "after_done"), counts.after_done),
            (intern!(py, "content"), counts.content),
            (intern!(py, "reasoning"), counts.reasoning),
            (intern!(py, "refusal"), counts.refusal),
            (intern!(py, "tool_arguments"), counts.tool_arguments),
        ] {
            dict.set_item(name, count)?;
        }
        Ok(dict)
    }

    /// Bytes that count against ``max_retained_bytes``.
    #[getter]
    fn retained_bytes(&self) -> PyResult<usize> {
        Ok(self.lock()?.core.retained_bytes())
    }

    /// The text of a choice's content, text parts joined; ``""`` for an unknown choice.
    #[pyo3(signature = (choice=Given(None)), text_signature = "($self, choice=0)")]
    fn text(&self, py: Python<'_>, choice: Given<'_>) -> PyResult<String> {
        let choice = index_of(&choice);
        self.read(py, |core| choice.map_or_else(String::new, |choice| core.text(choice)))
    }

    /// The text that came after ``cursor``, and the next cursor. None begins; a cursor is opaque.
    ///
    /// A high surrogate half that still waits for the other one is withheld until it is decided.
    #[pyo3(signature = (cursor=None, choice=Given(None)), text_signature = "($self, cursor=None, choice=0)")]
    fn text_since(&self, py: Python<'_>, cursor: Option<usize>, choice: Given<'_>) -> PyResult<(String, usize)> {
        let (cursor, choice) = (cursor.unwrap_or(0), index_of(&choice));
        self.read(py, |core| choice.map_or_else(|| (String::new(), cursor), |choice| core.text_since(cursor, choice)))
    }

    /// The reasoning of a choice: the first of its strings that is not empty, else thinking parts, else the text and
    /// summary of ``reasoning_details``; ``""`` for an unknown choice.
    #[pyo3(signature = (choice=Given(None)), text_signature = "($self, choice=0)")]
    fn reasoning_text(&self, py: Python<'_>, choice: Given<'_>) -> PyResult<String> {
        let choice = index_of(&choice);
        self.read(py, |core| choice.map_or_else(String::new, |choice| core.reasoning_text(choice)))
    }

    /// The tool calls of a choice as they are so far, in the order of the result.
    #[pyo3(signature = (choice=Given(None)), text_signature = "($self, choice=0)")]
    fn tool_calls<'py>(&self, py: Python<'py>, choice: Given<'_>) -> PyResult<Bound<'py, PyList>> {
        static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let class = TYPE.import(py, "deltafold._calls", "ToolCall")?;
        let choice = index_of(&choice);
        let calls = self.read(py, |core| choice.map_or_else(Vec::new, |choice| core.tool_calls(choice)))?;
        let list = PyList::empty(py);
        for call in calls {
            list.append(class.call1((call.id, call.kind, call.name, call.arguments))?)?;
        }
        Ok(list)
    }

    /// Turns the fast path off or on, for tests: results are the same.
    fn _set_fast_path(&self, on: bool) -> PyResult<()> {
        self.lock()?.core.set_fast_path(on);
        Ok(())
    }

    /// For tests of the boundary: panics where a fault of the core would, in `feed` or while it is read.
    fn _panic(&self, py: Python<'_>, reading: bool) -> PyResult<u32> {
        if reading { self.read(py, |_| panic!("as asked")) } else { self.work(|_| panic!("as asked")) }
    }

    /// The small typed events (``deltafold.events``) of the response's next bytes; without a piece it is closed, and these are
    /// the last.
    #[pyo3(signature = (piece=None))]
    fn events<'py>(slf: &Bound<'py, Self>, piece: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let kept = slf.get().lock()?.events.as_ref().map(|stream| stream.clone_ref(py));
        let stream = if let Some(stream) = kept {
            stream.into_bound(py)
        } else {
            let weak = py.import(intern!(py, "weakref"))?.getattr(intern!(py, "proxy"))?.call1((slf,))?;
            let class = py.import(intern!(py, "deltafold.events"))?.getattr(intern!(py, "EventStream"))?;
            let stream = class.call1((weak,))?;
            slf.get().lock()?.events = Some(stream.clone().unbind());
            stream
        };
        match piece {
            Some(piece) => stream.call_method1(intern!(py, "feed"), (piece,)),
            None => stream.call_method0(intern!(py, "close")),
        }
    }

    fn _text_since(&self, py: Python<'_>, name: &str, cursor: Option<usize>, choice: u64) -> PyResult<(String, usize)> {
        self.read(py, |core| core.member_since(name, cursor.unwrap_or(0), choice))
    }

    #[pyo3(signature = (cursors, choice, every=false))]
    #[allow(clippy::type_complexity)]
    fn _calls_since(
        &self,
        py: Python<'_>,
        cursors: &Bound<'_, PyDict>,
        choice: u64,
        every: bool,
    ) -> PyResult<Vec<(usize, u64, Option<String>, String, Option<String>, String)>> {
        let mut held = HashMap::new();
        for (number, cursor) in cursors.iter() {
            held.insert(number.extract::<u64>()?, cursor.extract::<usize>()?);
        }
        let given = |number| held.get(&number).copied().unwrap_or(0);
        let grown = self.read(py, |core| core.calls_since(choice, every, given))?;
        let mut found = Vec::with_capacity(grown.len());
        for call in grown {
            cursors.set_item(call.number, call.end)?;
            found.push((call.position, call.number, call.id, call.kind, call.name, call.new));
        }
        Ok(found)
    }

    fn __repr__(&self) -> PyResult<String> {
        let state = self.lock()?;
        let word = match (state.core.is_complete(), &state.close_reason) {
            (true, _) => "complete",
            (false, None) => "open",
            (false, Some(_)) => "incomplete",
        };
        let counts = state.core.counts();
        Ok(format!("<ChatCompletionAccumulator {word}, {} bytes, {} chunks>", counts.bytes, counts.chunks))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("an accumulator cannot be pickled or copied; keep result_json()"))
    }
}

impl ChatCompletionAccumulator {
    fn lock(&self) -> PyResult<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::Poisoned(state)) => Ok(state.into_inner()),
            Err(TryLockError::WouldBlock) => {
                Err(PyRuntimeError::new_err("the accumulator is in use by another thread; give each stream its own"))
            }
        }
    }

    /// A question to the core.
    fn read<T>(&self, py: Python<'_>, ask: impl FnOnce(&Accumulator) -> T) -> PyResult<T> {
        self.guarded(py, |state| ask(&state.core))
    }

    /// A panic raises `InternalError`; whoever asks next finds an empty accumulator.
    fn guarded<T>(&self, py: Python<'_>, ask: impl FnOnce(&mut State) -> T) -> PyResult<T> {
        let mut state = self.lock()?;
        catch_unwind(AssertUnwindSafe(|| ask(&mut state))).map_err(|_| {
            state.lose();
            internal_error(py).map_or_else(|error| error, PyErr::from_value)
        })
    }

    #[inline]
    fn take(&self, py: Python<'_>, piece: &[u8]) -> PyResult<u32> {
        let feed = || self.work(|core| core.feed(piece));
        if piece.len() < LARGE { feed() } else { py.detach(feed) }
    }

    #[inline]
    fn work(&self, work: impl FnOnce(&mut Accumulator) -> u32) -> PyResult<u32> {
        let mut state = self.lock()?;
        if state.close_reason.is_some() {
            return Err(PyValueError::new_err("the accumulator is closed"));
        }
        Ok(state.guarded(work))
    }
}

impl State {
    /// A panic loses what was merged, not the caller's stream: the accumulator is then empty and says so in `error`.
    #[inline]
    fn guarded(&mut self, work: impl FnOnce(&mut Accumulator) -> u32) -> u32 {
        if self.broken {
            return 0;
        }
        let core = &mut self.core;
        catch_unwind(AssertUnwindSafe(|| work(core))).unwrap_or_else(|_| {
            self.lose();
            seen::ERROR
        })
    }

    fn lose(&mut self) {
        self.broken = true;
        self.error = None;
        self.core = Accumulator::new(Limits::default(), false);
    }

    fn error<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let Some(error) = &self.error {
            return Ok(Some(error.bind(py).clone()));
        }
        let error = if self.broken {
            internal_error(py)?
        } else {
            let Some(failure) = self.core.error() else { return Ok(None) };
            exception(py, failure, &self.core)?
        };
        self.error = Some(error.clone().unbind());
        Ok(Some(error))
    }
}

fn internal_error(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let class = py.import(intern!(py, "deltafold._errors"))?.getattr(intern!(py, "InternalError"))?;
    class.call1(("a fault in deltafold lost what was merged; please report it",))
}

pub fn result<'py>(py: Python<'py>, core: &Accumulator) -> PyResult<Bound<'py, PyAny>> {
    let mut objects = PythonObjects::new(py);
    core.write(&mut objects);
    objects.finish()
}

pub fn diagnostics<'py>(py: Python<'py>, found: &[Diagnostic]) -> PyResult<Bound<'py, PyList>> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = TYPE.import(py, "deltafold._types", "Diagnostic")?;
    let list = PyList::empty(py);
    for diagnostic in found {
        list.append(class.call1((diagnostic.kind, diagnostic.count, diagnostic.offset))?)?;
    }
    Ok(list)
}

pub fn exception<'py>(py: Python<'py>, failure: &Failure, core: &Accumulator) -> PyResult<Bound<'py, PyAny>> {
    let errors = py.import(intern!(py, "deltafold._errors"))?;
    let class = match failure.kind {
        ErrorKind::UpstreamError => intern!(py, "UpstreamError"),
        ErrorKind::BadJson => intern!(py, "BadJson"),
        ErrorKind::NotSse => intern!(py, "NotSse"),
        ErrorKind::LimitExceeded => intern!(py, "LimitExceeded"),
        ErrorKind::Truncated => intern!(py, "Truncated"),
    };
    let mut message = failure.message.clone();
    if let Some(excerpt) = &failure.excerpt {
        let escaped = errors.getattr(intern!(py, "escape"))?.call1((excerpt, EXCERPT))?;
        message.push_str(escaped.cast::<PyString>()?.to_str()?);
    }
    let options = PyDict::new(py);
    options.set_item(intern!(py, "offset"), failure.offset)?;
    for (name, text) in [(intern!(py, "code"), &failure.code), (intern!(py, "body"), &failure.body)] {
        if let Some(text) = text {
            options.set_item(name, parse(py, text)?)?;
        }
    }
    options.set_item(intern!(py, "partial"), result(py, core)?)?;
    errors.getattr(class)?.call((message,), Some(&options))
}

/// `n`: None or 1.
pub fn fold_of(n: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
    match n {
        None => Ok(false),
        Some(n) if n.is_exact_instance_of::<PyInt>() && n.extract::<i64>().is_ok_and(|n| n == 1) => Ok(true),
        Some(_) => Err(PyValueError::new_err("n must be None or 1")),
    }
}

/// A choice's index; None for what can be none.
fn index_of(choice: &Given<'_>) -> Option<u64> {
    choice.0.as_ref().map_or(Some(0), |choice| choice.extract().ok())
}
