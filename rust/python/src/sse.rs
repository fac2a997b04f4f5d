//! `SSEDecoder`: the core's [`Machine`] with Python's types around it.
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use crate::input::{as_bytes, limits_of};
use deltafold_core::sse::{Item, Machine};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString, PyType};

/// A strict, bounded, incremental parser of ``text/event-stream`` (WHATWG HTML, section 9.2).
///
/// Args:
///     limits: its ``max_event_bytes`` bounds what one event may hold; 16 MiB by default.
///     flush_incomplete: let ``close`` dispatch a last event that has no blank line, its last line finished or not.
///         The standard drops it.
///
/// Example:
///     >>> decoder = SSEDecoder()
///     >>> decoder.feed(b"event: greeting\ndata: hel")
///     []
///     >>> decoder.feed(b"lo\n\n")
///     [ServerSentEvent(event='greeting', data='hello')]
#[pyclass(frozen, module = "deltafold")]
pub struct SSEDecoder {
    limit: usize,
    flush_incomplete: bool,
    state: Mutex<State>,
}

struct State {
    machine: Machine,
    closed: bool,
    failed_at: Option<u64>,
    id: Option<Id>,
}

type Id = (Arc<[u8]>, Py<PyString>);

struct Found<'p> {
    event: Vec<u8>,
    data: Cow<'p, [u8]>,
    id: Arc<[u8]>,
    retry: Option<u64>,
}

#[pymethods]
impl SSEDecoder {
    #[new]
    #[pyo3(signature = (limits=None, flush_incomplete=false))]
    fn new(py: Python<'_>, limits: Option<&Bound<'_, PyAny>>, flush_incomplete: bool) -> PyResult<Self> {
        let limit = limits_of(py, limits)?.max_event_bytes;
        Ok(Self { limit, flush_incomplete, state: Mutex::new(State::new(limit)) })
    }

    /// Takes the stream's next bytes, cut anywhere; gives the events that they complete.
    ///
    /// Raises:
    ///     TypeError: ``piece`` is not bytes, bytearray or memoryview.
    ///     ValueError: the decoder is closed.
    ///     LimitExceeded: an earlier piece held an event larger than ``max_event_bytes``. The call that met it still gave
    ///         the events before it; from then on every call raises, until ``reset``. ``offset`` is the event's.
    fn feed<'py>(&self, piece: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let py = piece.py();
        let piece = as_bytes(piece)?;
        let (found, id) = self.guarded(py, || {
            let mut state = self.open(py)?;
            if state.closed {
                let message = "the decoder is closed; reset() makes it ready for a new stream";
                return Err(PyValueError::new_err(message));
            }
            Ok((state.read(piece.as_bytes()), state.known_id(py)))
        })?;
        self.events_of(py, found, id)
    }

    /// Ends the stream; gives the incomplete last event if ``flush_incomplete`` asks for it. Again: nothing.
    ///
    /// Raises:
    ///     LimitExceeded: as in ``feed``.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let (found, id) = self.guarded(py, || {
            let mut state = self.open(py)?;
            let last = !state.closed && self.flush_incomplete;
            state.closed = true;
            let found = if last { state.read_end() } else { Vec::new() };
            Ok((found, state.known_id(py)))
        })?;
        self.events_of(py, found, id)
    }

    /// Forgets everything, the last event id and the counters too: ready for a new stream.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.state.clear_poison();
        *self.lock(py)? = State::new(self.limit);
        Ok(())
    }

    /// The last event id as of the last blank line: what a client sends as ``Last-Event-ID`` when it reconnects.
    #[getter]
    fn last_event_id<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        let (value, mut known) = {
            let state = self.lock(py)?;
            (state.machine.last_event_id().clone(), state.known_id(py))
        };
        Ok(text_of_id(py, &value, &mut known))
    }

    /// The last valid ``retry`` value so far, in milliseconds; None before any.
    #[getter]
    fn retry(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        Ok(self.lock(py)?.machine.retry())
    }

    /// Events given out so far.
    #[getter]
    fn events(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.lock(py)?.machine.events())
    }

    /// Comment lines so far.
    #[getter]
    fn comments(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.lock(py)?.machine.comments())
    }

    /// Lines so far without effect: unknown fields, an ``id`` with NUL, a ``retry`` that is no number.
    #[getter]
    fn ignored_lines(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.lock(py)?.machine.ignored_lines())
    }

    /// Bytes of the stream so far; past the limit, up to the byte that passed it.
    #[getter]
    fn bytes(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.lock(py)?.machine.bytes())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let state = self.lock(py)?;
        let (bytes, events) = (state.machine.bytes(), state.machine.events());
        let word = match (state.failed_at, state.closed) {
            (Some(_), _) => "past its limit",
            (None, true) => "closed",
            (None, false) => "open",
        };
        Ok(format!("<deltafold.SSEDecoder: {bytes} bytes, {events} events, {word}>"))
    }
}

impl SSEDecoder {
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, State>> {
        self.state.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                PyRuntimeError::new_err("the decoder is in use by another thread; give each stream its own")
            }
            TryLockError::Poisoned(_) => internal_error(py),
        })
    }

    fn open(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, State>> {
        let state = self.lock(py)?;
        match state.failed_at {
            None => Ok(state),
            Some(offset) => Err(limit_exceeded(py, self.limit, offset)),
        }
    }

    /// A panic leaves the lock poisoned: this call and every later one but `reset` raise `InternalError`.
    fn guarded<T>(&self, py: Python<'_>, parse: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
        catch_unwind(AssertUnwindSafe(parse)).unwrap_or_else(|_| Err(internal_error(py)))
    }

    fn events_of<'py>(
        &self,
        py: Python<'py>,
        found: Vec<Found<'_>>,
        mut id: Option<Id>,
    ) -> PyResult<Bound<'py, PyList>> {
        let events = PyList::empty(py);
        if found.is_empty() {
            return Ok(events);
        }
        let class = event_type(py)?;
        for Found { event, data, id: value, retry } in found {
            let name = match &event[..] {
                b"" => intern!(py, "message").clone(),
                name => text(py, name),
            };
            events.append(class.call1((name, text(py, &data), text_of_id(py, &value, &mut id), retry))?)?;
        }
        if let Ok(mut state) = self.state.try_lock() {
            state.id = id;
        }
        Ok(events)
    }
}

impl State {
    fn new(limit: usize) -> Self {
        Self { machine: Machine::new(limit, false), closed: false, failed_at: None, id: None }
    }

    fn read<'p>(&mut self, piece: &'p [u8]) -> Vec<Found<'p>> {
        let (mut found, mut at) = (Vec::new(), 0);
        loop {
            if let Some((value, _)) = self.machine.simple(piece, &mut at) {
                let id = self.machine.last_event_id().clone();
                found.push(Found { event: Vec::new(), data: Cow::Borrowed(value), id, retry: None });
                continue;
            }
            match self.machine.next(piece, &mut at) {
                None => return found,
                Some(Item::Event(event)) => found.push(Found {
                    event: event.event.to_vec(),
                    data: Cow::Owned(event.data.to_vec()),
                    id: event.id.clone(),
                    retry: event.retry,
                }),
                Some(Item::Oversize { offset }) => {
                    self.failed_at = Some(offset);
                    return found;
                }
                Some(Item::ErrorField { .. } | Item::RawLine { .. }) => {}
            }
        }
    }

    fn read_end(&mut self) -> Vec<Found<'static>> {
        let end = self.machine.end();
        self.read(end)
    }

    fn known_id(&self, py: Python<'_>) -> Option<Id> {
        self.id.as_ref().map(|(value, text)| (value.clone(), text.clone_ref(py)))
    }
}

fn text<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
    PyString::new(py, &String::from_utf8_lossy(bytes))
}

fn text_of_id<'py>(py: Python<'py>, value: &Arc<[u8]>, known: &mut Option<Id>) -> Bound<'py, PyString> {
    match known {
        Some((bytes, text)) if Arc::ptr_eq(bytes, value) => text.bind(py).clone(),
        _ => {
            let text = text(py, value);
            *known = Some((value.clone(), text.clone().unbind()));
            text
        }
    }
}

fn event_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    TYPE.import(py, "deltafold._types", "ServerSentEvent")
}

fn limit_exceeded(py: Python<'_>, limit: usize, offset: u64) -> PyErr {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let make = || {
        let options = PyDict::new(py);
        options.set_item("offset", offset)?;
        let message = format!("an event is larger than max_event_bytes, {limit} bytes");
        TYPE.import(py, "deltafold._errors", "LimitExceeded")?.call((message,), Some(&options))
    };
    make().map_or_else(|error| error, PyErr::from_value)
}

fn internal_error(py: Python<'_>) -> PyErr {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let make = || {
        let message = "a fault in deltafold's event-stream decoder; please report it";
        TYPE.import(py, "deltafold._errors", "InternalError")?.call1((message,))
    };
    make().map_or_else(|error| error, PyErr::from_value)
}
