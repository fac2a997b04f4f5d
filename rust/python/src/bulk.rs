//! `merge` and `merge_many`.
use crate::accumulator::{diagnostics, exception, fold_of, result};
use crate::input::{Given, as_bytes, is_bytes_like, limits_of};
use deltafold_core::accumulator::Accumulator;
use deltafold_core::json::{Kind, Tape};
use deltafold_core::limits::Limits;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList};
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is held at a time of the bodies of `merge_many`.
const BATCH_BYTES: usize = 16 * 1024 * 1024;
const BATCH_BODIES: usize = 8192;

/// Merges one whole response: its bytes, or an iterable of pieces.
///
/// Raises:
///     DeltafoldError: the stream's ``error``, with what could be merged as its ``partial``.
#[pyfunction]
#[pyo3(signature = (data, *, limits=None, n=None))]
pub fn merge<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    limits: Option<&Bound<'py, PyAny>>,
    n: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut core = Accumulator::new(limits_of(py, limits)?, fold_of(n)?);
    let fed = if is_bytes_like(data) {
        let bytes = as_bytes(data)?;
        guarded(|| {
            core.feed(bytes.as_bytes());
        })
    } else {
        let mut fed = Some(());
        for piece in data.try_iter()? {
            let bytes = as_bytes(&piece?)?;
            fed = fed.and(guarded(|| {
                core.feed(bytes.as_bytes());
            }));
        }
        fed
    };
    let closed = guarded(|| {
        core.close();
    });
    if fed.and(closed).is_none() {
        return Err(internal_error(py)?);
    }
    match core.error() {
        Some(failure) => Err(PyErr::from_value(exception(py, failure, &core)?)),
        None => result(py, &core),
    }
}

/// Merges many whole responses: for each, in order, its result, or its error with what could be merged as ``partial``.
///
/// Args:
///     bodies: bytes-like bodies in a list or any other iterable; or an Arrow column of binary or text, which is whatever
///         has ``__arrow_c_stream__`` or ``__arrow_c_array__`` and one column, read with the first installed of pyarrow,
///         polars and nanoarrow. A None (a null) gives a None.
///     threads: how many to use at the most, 0 for one a core. The pure implementation uses one.
///     output: ``dict`` for a list of dicts; ``json`` for a list of ``result_json()``, which are made without the lock of
///         the interpreter; ``arrow`` for an Arrow array of strings, of the same library, with nulls for errors
///         (``deltafold.arrow.merge_batch`` keeps these).
///
/// Bodies are taken as they are needed, up to 16 MiB or 8,192 ahead: beside these only what is returned takes memory.
///
/// Raises:
///     TypeError: a body is not bytes-like, or a column holds something else. Nothing in a body raises.
///     ImportError: an Arrow column, and no library for it.
#[pyfunction]
#[pyo3(
    signature = (bodies, threads=Given(None), *, limits=None, n=None, output="dict"),
    text_signature = "(bodies, threads=0, *, limits=None, n=None, output='dict')"
)]
pub fn merge_many<'py>(
    py: Python<'py>,
    bodies: &Bound<'py, PyAny>,
    threads: Given<'py>,
    limits: Option<&Bound<'py, PyAny>>,
    n: Option<&Bound<'py, PyAny>>,
    output: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let threads = threads_of(&threads)?;
    if !matches!(output, "dict" | "json" | "arrow") {
        return Err(PyValueError::new_err("output must be dict, json or arrow"));
    }
    let (limits, fold) = (limits_of(py, limits)?, fold_of(n)?);
    let as_dict = output == "dict";
    let list = PyList::empty(py);
    let merge = |body: &[u8]| {
        let core = merged(body, limits, fold);
        if as_dict || core.error().is_some() { Merged::Core(Box::new(core)) } else { Merged::Json(core.result_json()) }
    };
    let rows = py.import(intern!(py, "deltafold._bodies"))?;
    let bodies = rows.call_method1(intern!(py, "rows"), (bodies,))?;
    in_batches(py, &bodies, threads, merge, |outcome| match outcome {
        None => list.append(py.None()),
        Some(None) => list.append(internal_error(py)?.into_value(py)),
        Some(Some(Merged::Json(text))) => list.append(PyBytes::new(py, text.as_bytes())),
        Some(Some(Merged::Core(core))) => match core.error() {
            Some(failure) => list.append(exception(py, failure, &core)?),
            None => list.append(result(py, &core)?),
        },
    })?;
    if output == "arrow" {
        return rows.call_method1(intern!(py, "strings"), (list,));
    }
    Ok(list.into_any())
}

/// For each body ``result_json()``, the error and the diagnostics, for the command line and ``deltafold.arrow``; for a
/// body that is none, None and the reason as a str.
///
/// Args:
///     path: the bodies are lines of JSON, and this leads to the text in each: names, or numbers in lists.
#[pyfunction]
#[pyo3(signature = (bodies, threads, limits, n, path=None))]
pub fn _merge_lines<'py>(
    py: Python<'py>,
    bodies: &Bound<'py, PyAny>,
    threads: Given<'py>,
    limits: Option<&Bound<'py, PyAny>>,
    n: Option<&Bound<'py, PyAny>>,
    path: Option<Vec<String>>,
) -> PyResult<Bound<'py, PyList>> {
    let threads = threads_of(&threads)?;
    let (limits, fold) = (limits_of(py, limits)?, fold_of(n)?);
    let list = PyList::empty(py);
    let merge = |body: &[u8]| {
        let core = match &path {
            None => merged(body, limits, fold),
            Some(path) => merged(&text_at(body, path)?, limits, fold),
        };
        let odd = core.error().is_some() || !core.diagnostics().is_empty();
        Ok::<_, &'static str>((core.result_json(), odd.then_some(core)))
    };
    in_batches(py, bodies, threads, merge, |outcome| match outcome {
        None => list.append((py.None(), "no body", PyList::empty(py))),
        Some(None) => list.append((py.None(), internal_error(py)?.into_value(py), PyList::empty(py))),
        Some(Some(Err(reason))) => list.append((py.None(), reason, PyList::empty(py))),
        Some(Some(Ok((text, core)))) => {
            let text = PyBytes::new(py, text.as_bytes());
            let Some(core) = core else { return list.append((text, py.None(), PyList::empty(py))) };
            let error = core.error().map(|failure| exception(py, failure, &core)).transpose()?;
            list.append((text, error, diagnostics(py, core.diagnostics())?))
        }
    })?;
    Ok(list)
}

/// What a thread has made of a body.
enum Merged {
    Core(Box<Accumulator>),
    Json(String),
}

fn merged(body: &[u8], limits: Limits, fold: bool) -> Accumulator {
    let mut core = Accumulator::new(limits, fold);
    core.feed(body);
    core.close();
    core
}

/// The text in a line of JSON; an array of texts is joined.
fn text_at(line: &[u8], path: &[String]) -> Result<Vec<u8>, &'static str> {
    let line = std::str::from_utf8(line).map_or_else(|_| String::from_utf8_lossy(line), Cow::Borrowed);
    let mut tape = Tape::new();
    tape.parse(&line, Limits::default().max_depth).map_err(|_| "the line is not JSON")?;
    let mut at = 0;
    for name in path {
        at = match tape.node(at).kind {
            Kind::Object => {
                tape.members(at).find(|(key, _)| tape.key(&line, *key) == name.as_str()).map(|(_, value)| value)
            }
            Kind::Array if name.bytes().all(|byte| byte.is_ascii_digit()) => {
                name.parse().ok().and_then(|number| tape.items(at).nth(number))
            }
            _ => None,
        }
        .ok_or("the line has no such member")?;
    }
    match tape.node(at).kind {
        Kind::String => Ok(unescaped(tape.slice(&line, at).as_bytes())
            .unwrap_or_else(|| tape.string(&line, at).into_owned().into_bytes())),
        Kind::Array if tape.items(at).all(|item| tape.node(item).kind == Kind::String) => {
            Ok(tape.items(at).map(|item| tape.string(&line, item)).collect::<String>().into_bytes())
        }
        _ => Err("the member is not text"),
    }
}

/// The value of a valid string whose escapes are the short ones: a body has one every few bytes, so that it pays to take
/// them byte by byte.
fn unescaped(raw: &[u8]) -> Option<Vec<u8>> {
    let mut value = vec![0; raw.len()];
    let mut length = 0;
    let mut bytes = raw.iter();
    for (slot, byte) in value.iter_mut().zip(std::iter::from_fn(|| {
        let byte = *bytes.next()?;
        Some(if byte == b'\\' {
            match bytes.next() {
                Some(b'n') => b'\n',
                Some(byte @ (b'"' | b'\\' | b'/')) => *byte,
                Some(b't') => b'\t',
                Some(b'r') => b'\r',
                _ => UNKNOWN,
            }
        } else {
            byte
        })
    })) {
        if byte == UNKNOWN {
            return None;
        }
        *slot = byte;
        length += 1;
    }
    value.truncate(length);
    Some(value)
}

/// No byte of a valid text.
const UNKNOWN: u8 = 0xff;

fn threads_of(threads: &Given<'_>) -> PyResult<usize> {
    let threads = match &threads.0 {
        None => 0,
        Some(threads) if threads.is_exact_instance_of::<PyInt>() => threads.extract::<usize>().unwrap_or(usize::MAX),
        Some(_) => usize::MAX,
    };
    if threads == usize::MAX {
        return Err(PyValueError::new_err("threads must be 0 or a positive int"));
    }
    Ok(threads)
}

/// Hands `take` the outcome of each body, in order: None for None, Some(None) where a panic was caught. Only so many bodies
/// are held at a time, and the lock of the interpreter is released while they are worked on.
fn in_batches<'py, T: Send>(
    py: Python<'py>,
    bodies: &Bound<'py, PyAny>,
    threads: usize,
    work: impl Fn(&[u8]) -> T + Sync,
    mut take: impl FnMut(Option<Option<T>>) -> PyResult<()>,
) -> PyResult<()> {
    let mut source = bodies.try_iter()?;
    let mut more = true;
    while more {
        let mut batch: Vec<Option<Bound<'py, PyBytes>>> = Vec::new();
        let mut size = 0;
        while size < BATCH_BYTES && batch.len() < BATCH_BODIES {
            let Some(body) = source.next().transpose()? else {
                more = false;
                break;
            };
            let body = if body.is_none() { None } else { Some(as_bytes(&body)?) };
            size += body.as_ref().map_or(0, |body| body.as_bytes().len());
            batch.push(body);
        }
        let slices: Vec<Option<&[u8]>> = batch.iter().map(|body| body.as_ref().map(|body| body.as_bytes())).collect();
        let outcomes = py.detach(|| work_on(&slices, threads, |body| body.map(|body| guarded(|| work(body)))));
        for outcome in outcomes {
            take(outcome)?;
        }
        py.check_signals()?;
    }
    Ok(())
}

/// Works on all items with a few threads; the outcomes in order.
fn work_on<I: Copy + Sync, T: Send>(items: &[I], threads: usize, work: impl Fn(I) -> T + Sync) -> Vec<T> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if threads == 0 { cores } else { threads }.min(items.len()).min(256);
    if threads <= 1 {
        return items.iter().map(|item| work(*item)).collect();
    }
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::with_capacity(items.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut mine = Vec::new();
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { break };
                    mine.push((at, work(*item)));
                }
                if let Ok(mut done) = done.lock() {
                    done.append(&mut mine);
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

fn internal_error(py: Python<'_>) -> PyResult<PyErr> {
    let class = py.import(intern!(py, "deltafold._errors"))?.getattr(intern!(py, "InternalError"))?;
    Ok(PyErr::from_value(class.call1(("a fault in deltafold lost what was merged; please report it",))?))
}
