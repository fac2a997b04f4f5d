//! `StreamFilter`: the core's filter with Python's types around it, and the caller's functions behind it.
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::accumulator::ChatCompletionAccumulator;
use crate::input::{Given, as_bytes, limits_of};
use deltafold_core::filter::{Answer, Calls, Filter, Options};
use deltafold_core::json::write_string;
use pyo3::exceptions::{PyException, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyList, PyString, PyTuple};

/// Relays the bytes of one Chat Completions stream and changes what it is told to, byte for byte the same elsewhere.
///
/// Chunks are edited where they change: the value of a member, or a member with its comma. Every other byte of a changed
/// event, and every event without a change, comment, line ending and odd spacing goes out as it came. An event is held
/// back until it is whole, one at the most; without any of the options that change something nothing is, and ``feed``
/// returns the very piece that it was given. What cannot be read as a chunk is passed on: ``[DONE]``, text, broken JSON,
/// a body that is no event stream, and an event larger than ``max_event_bytes``.
///
/// Args:
///     model: what every chunk with a string as its top-level ``model`` gets in its place.
///     id: the same for the top-level ``id``.
///     drop_usage_chunk: drop the event of the chunk that brings nothing but usage: ``usage`` is an object, ``choices``
///         is ``[]``, null or missing, and there is no error. Usage in a chunk with choices stays, so does
///         ``"usage":null``; ``strip=("usage",)`` removes these.
///     strip: names of members to remove, or dotted paths of names: ``"choices.delta.reasoning_content"``. A list on the
///         way stands for each object in it. A member that is given twice is removed twice.
///     set_usage: called with the usage of each chunk whose top-level ``usage`` is an object, as a dict. What it returns
///         takes its place; None, or an equal dict, leaves it as it came. Not called for usage that is dropped or stripped.
///     on_chunk: called with each chunk as a dict, after all of the above; for whatever else there is to change. It
///         returns the chunk, which is written anew if it was changed, or JSON on one line as bytes, or None to drop it.
///     observe: an accumulator, fed the upstream's own bytes before they are filtered. It is not closed. If it raises, it
///         is let go and the stream goes on: see ``observe_error``.
///     limits: ``max_event_bytes`` bounds what is held back of one event, ``max_depth`` what is read as JSON.
///
/// ``set_usage`` and ``on_chunk`` may raise: the exception leaves ``feed``, that event is left out, and the next call goes on
/// behind it, and brings what was ready.
///
/// Example:
///     >>> relay = StreamFilter(model="fast")
///     >>> relay.feed(b'data: {"model": "m-2026-01-31-fp8", "choices": []}\n\ndata: [DO')
///     b'data: {"model": "fast", "choices": []}\n\n'
///     >>> relay.feed(b"NE]\n\n")
///     b'data: [DONE]\n\n'
#[pyclass(frozen, weakref, module = "deltafold")]
pub struct StreamFilter {
    state: Mutex<State>,
    functions: Functions,
    observer: Observer,
}

enum Observer {
    None,
    Own(Py<ChatCompletionAccumulator>),
    Other(Py<PyAny>),
}

struct State {
    /// Away while it works, since the caller's functions run without the lock.
    core: Option<Box<Filter>>,
    closed: bool,
    broken: bool,
    observe_error: Option<PyErr>,
}

struct Functions {
    set_usage: Option<Py<PyAny>>,
    on_chunk: Option<Py<PyAny>>,
}

#[pymethods]
impl StreamFilter {
    #[new]
    #[pyo3(
        signature = (*, model=None, id=None, drop_usage_chunk=Given(None), strip=Given(None), set_usage=None, on_chunk=None, observe=None, limits=None),
        text_signature = "(*, model=None, id=None, drop_usage_chunk=False, strip=(), set_usage=None, on_chunk=None, observe=None, limits=None)"
    )]
    #[allow(clippy::too_many_arguments, reason = "each is an option of its own")]
    fn new(
        py: Python<'_>,
        model: Option<Py<PyAny>>,
        id: Option<Py<PyAny>>,
        drop_usage_chunk: Given<'_>,
        strip: Given<'_>,
        set_usage: Option<Py<PyAny>>,
        on_chunk: Option<Py<PyAny>>,
        observe: Option<Py<PyAny>>,
        limits: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let limits = limits_of(py, limits)?;
        let (drop_usage_chunk, strip) = (drop_usage_chunk.0, strip.0);
        let functions = Functions { set_usage, on_chunk };
        let right = right_options(py, model.as_ref(), id.as_ref(), drop_usage_chunk.as_ref(), strip.as_ref());
        let options = match right {
            Some(options) if functions.are_callable(py) && observe.as_ref().is_none_or(|it| is_own(it.bind(py))) => {
                options
            }
            // something is wrong, or is not seen to be right
            _ => {
                let drop_usage_chunk = drop_usage_chunk.unwrap_or_else(|| PyBool::new(py, false).to_owned().into_any());
                let strip = strip.unwrap_or_else(|| PyTuple::empty(py).into_any());
                let Functions { set_usage, on_chunk } = &functions;
                let (model, id, strip) = shared(py, "options")?
                    .call1((model, id, &drop_usage_chunk, strip, set_usage, on_chunk, &observe))?
                    .extract::<(Option<String>, Option<String>, Vec<Vec<String>>)>()?;
                Options { model, id, drop_usage_chunk: drop_usage_chunk.is_truthy()?, strip, ..Options::default() }
            }
        };
        let options =
            Options { set_usage: functions.set_usage.is_some(), on_chunk: functions.on_chunk.is_some(), ..options };
        let core = Some(Box::new(Filter::new(options, limits)));
        Ok(Self {
            state: Mutex::new(State { core, closed: false, broken: false, observe_error: None }),
            functions,
            observer: match observe {
                None => Observer::None,
                Some(observer) => match observer.bind(py).cast::<ChatCompletionAccumulator>() {
                    Ok(accumulator) => Observer::Own(accumulator.clone().unbind()),
                    Err(_) => Observer::Other(observer),
                },
            },
        })
    }

    /// Takes the upstream's next bytes, cut anywhere; gives those to send on, ``piece`` itself if nothing changed.
    ///
    /// Raises:
    ///     TypeError: ``piece`` is not bytes, bytearray or memoryview, or a function returned what it may not.
    ///     ValueError: the filter is closed.
    fn feed<'py>(&self, piece: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let py = piece.py();
        let piece = as_bytes(piece)?;
        if let Observer::Other(observer) = &self.observer {
            self.show(observer.bind(py), &piece)?;
        }
        let work = |core: &mut Filter| {
            let bytes = piece.as_bytes();
            let sent = core.feed(bytes, &mut self.functions.of(py))?;
            let same = sent.as_ptr() == bytes.as_ptr() && sent.len() == bytes.len();
            Ok(if same { piece.clone() } else { PyBytes::new(py, sent) })
        };
        if self.functions.set_usage.is_some() || self.functions.on_chunk.is_some() {
            drop(self.watch(py, &piece)?);
            return self.working(py, work);
        }
        let mut state = self.watch(py, &piece)?;
        let core = state.core.as_deref_mut().ok_or_else(in_use)?;
        catch_unwind(AssertUnwindSafe(|| work(core))).unwrap_or_else(|_| {
            state.broken = true;
            Err(internal_error(py))
        })
    }

    /// Puts an event or a comment between the upstream's: a ping, an error, a usage chunk.
    ///
    /// It is not filtered and not observed; the blank line behind it may be left out. Gives the bytes to send now:
    /// ``event``, or nothing while a frame is half sent: the event then comes with the bytes of the ``feed`` that ends the
    /// frame. What still waits at ``close`` is not sent.
    ///
    /// Raises:
    ///     TypeError: ``event`` is not bytes, bytearray or memoryview.
    ///     ValueError: the filter is closed.
    fn inject<'py>(&self, event: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let py = event.py();
        let whole = shared(py, "whole_event")?.call1((event,))?.cast_into::<PyBytes>()?;
        self.working(py, |core| Ok(PyBytes::new(py, core.inject(whole.as_bytes()))))
    }

    /// Ends the stream; gives what was held back: as it came, unless only its blank line is missing. Again: nothing.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        if self.lock(py)?.closed {
            return Ok(PyBytes::new(py, b""));
        }
        let sent = self.working(py, |core| Ok(PyBytes::new(py, core.close(&mut self.functions.of(py))?)))?;
        self.lock(py)?.closed = true;
        Ok(sent)
    }

    /// What ``observe`` raised; it was fed nothing after that. None while all is well.
    #[getter]
    fn observe_error<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.lock(py)?.observe_error.as_ref().map(|error| error.value(py).clone().into_any()))
    }

    /// Turns the fast path off or on, for tests: results are the same.
    fn _set_fast_path(&self, py: Python<'_>, on: bool) -> PyResult<()> {
        self.open(py)?.core.as_deref_mut().ok_or_else(in_use)?.set_fast_path(on);
        Ok(())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<StreamFilter {}>", if self.lock(py)?.closed { "closed" } else { "open" }))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("a filter cannot be pickled or copied"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let held = [&self.functions.set_usage, &self.functions.on_chunk];
        held.into_iter().flatten().try_for_each(|object| visit.call(object))?;
        match &self.observer {
            Observer::Other(observer) => visit.call(observer),
            _ => Ok(()),
        }
    }
}

impl StreamFilter {
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, State>> {
        let state = self.state.try_lock().map_err(|_| in_use())?;
        match (&state.core, state.broken) {
            (_, true) => Err(internal_error(py)),
            (None, false) => Err(in_use()),
            (Some(_), false) => Ok(state),
        }
    }

    fn open(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, State>> {
        let state = self.lock(py)?;
        if state.closed { Err(PyValueError::new_err("the filter is closed")) } else { Ok(state) }
    }

    /// Takes the filter out for `work`. A panic loses it.
    #[inline]
    fn working<'py>(
        &self,
        py: Python<'py>,
        work: impl FnOnce(&mut Filter) -> PyResult<Bound<'py, PyBytes>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut core = self.open(py)?.core.take().ok_or_else(in_use)?;
        let done = catch_unwind(AssertUnwindSafe(|| work(&mut core)));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.core = Some(core);
        done.unwrap_or_else(|_| {
            state.broken = true;
            Err(internal_error(py))
        })
    }

    /// Feeds an accumulator of this module, which calls no Python, so the lock may be held.
    #[inline]
    fn watch(&self, py: Python<'_>, piece: &Bound<'_, PyBytes>) -> PyResult<MutexGuard<'_, State>> {
        let mut state = self.open(py)?;
        if let Observer::Own(accumulator) = &self.observer
            && state.observe_error.is_none()
        {
            state.observe_error = accumulator.get().feed(piece).err();
        }
        Ok(state)
    }

    /// Feeds any other observer; it is let go when it raises.
    fn show(&self, observer: &Bound<'_, PyAny>, piece: &Bound<'_, PyBytes>) -> PyResult<()> {
        let py = piece.py();
        if self.open(py)?.observe_error.is_some() {
            return Ok(());
        }
        match observer.call_method1(intern!(py, "feed"), (piece,)) {
            Err(error) if error.is_instance_of::<PyException>(py) => self.lock(py)?.observe_error = Some(error),
            fed => drop(fed?),
        }
        Ok(())
    }
}

impl Functions {
    fn are_callable(&self, py: Python<'_>) -> bool {
        [&self.set_usage, &self.on_chunk].into_iter().flatten().all(|function| function.bind(py).is_callable())
    }

    fn of<'py>(&self, py: Python<'py>) -> Caller<'py, '_> {
        Caller { py, functions: self }
    }
}

/// The options of which one look shows that they are right; None where `options` of `deltafold._filtering` must look.
fn right_options(
    py: Python<'_>,
    model: Option<&Py<PyAny>>,
    id: Option<&Py<PyAny>>,
    drop_usage_chunk: Option<&Bound<'_, PyAny>>,
    strip: Option<&Bound<'_, PyAny>>,
) -> Option<Options> {
    let text = |value: Option<&Py<PyAny>>| -> Option<Option<String>> {
        let Some(value) = value else { return Some(None) };
        let mut text = String::new();
        write_string(value.bind(py).cast::<PyString>().ok()?.to_str().ok()?, &mut text);
        Some(Some(text))
    };
    let path = |path: Bound<'_, PyAny>| -> Option<Vec<String>> {
        let names: Vec<String> = path.cast::<PyString>().ok()?.to_str().ok()?.split('.').map(str::to_owned).collect();
        names.iter().all(|name| !name.is_empty()).then_some(names)
    };
    let strip = match strip {
        None => Vec::new(),
        Some(paths) => match (paths.cast_exact::<PyTuple>(), paths.cast_exact::<PyList>()) {
            (Ok(paths), _) => paths.iter().map(path).collect::<Option<_>>()?,
            (_, Ok(paths)) => paths.iter().map(path).collect::<Option<_>>()?,
            _ => return None,
        },
    };
    let drop_usage_chunk = match drop_usage_chunk {
        None => false,
        Some(value) => value.cast::<PyBool>().ok()?.is_true(),
    };
    Some(Options { model: text(model)?, id: text(id)?, drop_usage_chunk, strip, ..Options::default() })
}

/// Whether it is an accumulator of this module.
fn is_own(observer: &Bound<'_, PyAny>) -> bool {
    observer.is_instance_of::<ChatCompletionAccumulator>()
}

/// Calls the caller's functions.
struct Caller<'py, 'a> {
    py: Python<'py>,
    functions: &'a Functions,
}

impl Calls for Caller<'_, '_> {
    type Error = PyErr;

    fn usage(&mut self, text: &[u8]) -> PyResult<Option<Vec<u8>>> {
        let changed =
            shared(self.py, "changed_usage")?.call1((&self.functions.set_usage, PyBytes::new(self.py, text)))?;
        Ok(changed.cast::<PyBytes>().ok().map(|text| text.as_bytes().to_vec()))
    }

    fn chunk(&mut self, text: &[u8]) -> PyResult<Answer> {
        let changed =
            shared(self.py, "changed_chunk")?.call1((&self.functions.on_chunk, PyBytes::new(self.py, text)))?;
        Ok(match changed.cast::<PyBytes>() {
            Ok(text) => Answer::Text(text.as_bytes().to_vec()),
            Err(_) if changed.is_truthy()? => Answer::Same,
            Err(_) => Answer::Dropped,
        })
    }
}

/// A function of `deltafold._filtering`, which the pure filter uses too.
fn shared<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || py.import("deltafold._filtering").map(Bound::unbind))?;
    module.bind(py).getattr(name)
}

fn in_use() -> PyErr {
    PyRuntimeError::new_err("the filter is in use by another thread; give each stream its own")
}

fn internal_error(py: Python<'_>) -> PyErr {
    let make = || {
        let class = py.import("deltafold._errors")?.getattr("InternalError")?;
        class.call1(("a fault in deltafold's stream filter; please report it",))
    };
    make().map_or_else(|error| error, PyErr::from_value)
}
