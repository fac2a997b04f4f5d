//! `merge` and `merge_many`.
use crate::accumulator::{exception, fold_of, result};
use crate::input::{Given, as_bytes, is_bytes_like, limits_of};
use deltafold_core::accumulator::Accumulator;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

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
///     threads: how many to use at the most, 0 for one a core. The pure implementation uses one.
#[pyfunction]
#[pyo3(
    signature = (bodies, threads=Given(None), *, limits=None, n=None),
    text_signature = "(bodies, threads=0, *, limits=None, n=None)"
)]
pub fn merge_many<'py>(
    py: Python<'py>,
    bodies: &Bound<'py, PyAny>,
    threads: Given<'py>,
    limits: Option<&Bound<'py, PyAny>>,
    n: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let threads = match threads.0 {
        None => 0,
        Some(threads) if threads.is_exact_instance_of::<PyInt>() => threads.extract::<usize>().unwrap_or(usize::MAX),
        Some(_) => usize::MAX,
    };
    if threads == usize::MAX {
        return Err(PyValueError::new_err("threads must be 0 or a positive int"));
    }
    let (limits, fold) = (limits_of(py, limits)?, fold_of(n)?);
    let bodies = bodies.try_iter()?.map(|body| as_bytes(&body?)).collect::<PyResult<Vec<Bound<'py, PyBytes>>>>()?;
    let slices: Vec<&[u8]> = bodies.iter().map(|body| body.as_bytes()).collect();
    let merged = py.detach(|| {
        merge_slices(&slices, threads, |body| {
            let mut core = Accumulator::new(limits, fold);
            core.feed(body);
            core.close();
            core
        })
    });
    let list = PyList::empty(py);
    for core in merged {
        let outcome = match core {
            None => internal_error(py)?.into_value(py).into_bound(py).into_any(),
            Some(core) => match core.error() {
                Some(failure) => exception(py, failure, &core)?,
                None => result(py, &core)?,
            },
        };
        list.append(outcome)?;
    }
    Ok(list)
}

/// Works on all bodies with a few threads; None where a panic was caught.
fn merge_slices(
    bodies: &[&[u8]],
    threads: usize,
    merge: impl Fn(&[u8]) -> Accumulator + Sync,
) -> Vec<Option<Accumulator>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if threads == 0 { cores } else { threads }.min(bodies.len()).min(256);
    if threads <= 1 {
        return bodies.iter().map(|body| guarded(|| merge(body))).collect();
    }
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Option<Accumulator>)>> = Mutex::new(Vec::with_capacity(bodies.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut mine = Vec::new();
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(body) = bodies.get(at) else { break };
                    mine.push((at, guarded(|| merge(body))));
                }
                if let Ok(mut done) = done.lock() {
                    done.append(&mut mine);
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, core)| core).collect()
}

fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

fn internal_error(py: Python<'_>) -> PyResult<PyErr> {
    let class = py.import(intern!(py, "deltafold._errors"))?.getattr(intern!(py, "InternalError"))?;
    Ok(PyErr::from_value(class.call1(("a fault in deltafold lost what was merged; please report it",))?))
}
