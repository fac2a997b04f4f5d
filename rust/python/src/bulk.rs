//! `merge` and `merge_many`.
use crate::accumulator::{diagnostics, exception, fold_of, result};
use crate::input::{Given, as_bytes, is_bytes_like, limits_of};
use deltafold_core::accumulator::Accumulator;
use deltafold_core::limits::Limits;
use deltafold_core::record::{NoText, Reader};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList};
use std::cell::RefCell;
use std::fs::{File, Metadata};
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
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

/// For each body ``result_json()``, the error and the diagnostics, for the command line and ``deltafold.arrow``; for None
/// the reason as a str.
#[pyfunction]
#[pyo3(signature = (bodies, threads, limits, n))]
pub fn _merge_lines<'py>(
    py: Python<'py>,
    bodies: &Bound<'py, PyAny>,
    threads: Given<'py>,
    limits: Option<&Bound<'py, PyAny>>,
    n: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let threads = threads_of(&threads)?;
    let (limits, fold) = (limits_of(py, limits)?, fold_of(n)?);
    let list = PyList::empty(py);
    let merge = |body: &[u8]| line_of(body, limits, fold);
    in_batches(py, bodies, threads, merge, |outcome| match outcome {
        None => list.append((py.None(), "no body", PyList::empty(py))),
        Some(line) => list.append(told(py, line)?),
    })?;
    Ok(list)
}

/// A body's `result_json()`, and its accumulator where there is an error or a diagnostic.
type Line = (String, Option<Accumulator>);

fn line_of(body: &[u8], limits: Limits, fold: bool) -> Line {
    let core = merged(body, limits, fold);
    let odd = core.error().is_some() || !core.diagnostics().is_empty();
    (core.result_json(), odd.then_some(core))
}

/// A line, the error and the diagnostics for Python; None where a panic was caught.
fn told<'py>(py: Python<'py>, line: Option<Line>) -> PyResult<Told<'py>> {
    let Some((text, core)) = line else {
        return Ok((None, Some(internal_error(py)?.into_value(py).into_bound(py).into_any()), PyList::empty(py)));
    };
    let text = Some(PyBytes::new(py, text.as_bytes()));
    let Some(core) = core else { return Ok((text, None, PyList::empty(py))) };
    let error = core.error().map(|failure| exception(py, failure, &core)).transpose()?;
    Ok((text, error, diagnostics(py, core.diagnostics())?))
}

type Told<'py> = (Option<Bound<'py, PyBytes>>, Option<Bound<'py, PyAny>>, Bound<'py, PyList>);

/// Files with a body each, read and merged without the lock of the interpreter and on this thread alone: opening a small file
/// in Python costs more than merging it.
///
/// Args:
///     paths: where they are.
///     most: bytes of the largest that is read.
///     output: device and inode of a file that is not to be read, or None.
///
/// Returns:
///     For each path its length and what `_merge_lines` gives; or None where somebody else must look: it is no regular
///     file, too large, packed, the output, or cannot be read; or where those before it gave more than `most` bytes.
#[pyfunction]
#[pyo3(signature = (paths, most, output))]
pub fn _merge_files<'py>(
    py: Python<'py>,
    paths: Vec<PathBuf>,
    most: u64,
    output: Option<(u64, u64)>,
) -> PyResult<Vec<Option<(usize, Told<'py>)>>> {
    let lines: Vec<Option<(usize, Option<Line>)>> = py.detach(|| {
        let (mut body, mut given) = (Vec::new(), 0);
        let lines = paths.iter().map(|path| {
            if given > most {
                return None;
            }
            read_plain(path, most, output, &mut body)?;
            let line = guarded(|| line_of(&body, Limits::default(), false));
            given += line.as_ref().map_or(0, |(text, _)| text.len() as u64);
            Some((body.len(), line))
        });
        lines.collect()
    });
    lines.into_iter().map(|line| line.map(|(size, line)| Ok((size, told(py, line)?))).transpose()).collect()
}

/// Reads a whole file into the empty `body`, if it is a plain one; else None.
fn read_plain(path: &Path, most: u64, output: Option<(u64, u64)>, body: &mut Vec<u8>) -> Option<()> {
    body.clear();
    let about = std::fs::metadata(path).ok()?; // before it is opened: to open a named pipe is to wait
    let is_output = |output| identity(&about).is_none_or(|its| its == output);
    if !about.is_file() || about.len() > most || output.is_some_and(is_output) {
        return None;
    }
    File::open(path).ok()?.take(most + 1).read_to_end(body).ok()?;
    let packed = PACKED.iter().any(|magic| body.starts_with(magic));
    (body.len() as u64 <= most && !packed).then_some(())
}

/// What gzip and zstd data begins with.
const PACKED: [&[u8]; 2] = [b"\x1f\x8b", b"\x28\xb5\x2f\xfd"];

#[cfg(unix)]
fn identity(about: &Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Some((about.dev(), about.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> Option<(u64, u64)> {
    None
}

/// The bodies in the records of a log, merged without the lock of the interpreter and on this thread alone.
///
/// Args:
///     head: the begin of the first line.
///     block: the rest of it, and more lines; what comes after the last line feed is not read.
///     path: what leads to the text in each line of JSON: names, or numbers in lists.
///
/// Returns:
///     How many lines there were; how many records, which are the lines that are not blank; their length in bytes; for
///     each record a line of JSON, ``null`` where it has no body, all in one; and a list of those on which something is
///     to be said: the number of the line from 0 on, where in the JSON its own begins and ends, the error (a str where
///     there is no body, or None), the diagnostics, and the different characters that `str.isprintable` may deny.
#[pyfunction]
pub fn _merge_records<'py>(
    py: Python<'py>,
    head: &Bound<'py, PyBytes>,
    block: &Bound<'py, PyBytes>,
    path: Vec<String>,
) -> PyResult<Merge<'py>> {
    let (head, block) = (head.as_bytes(), block.as_bytes());
    let Room { mut reader, mut output } = ROOM.take();
    let (lines, records, size, noted) = py.detach(|| {
        let mut noted = Vec::new();
        let (mut count, mut records, mut size, mut start) = (0, 0, 0, 0);
        for end in memchr::memchr_iter(b'\n', block) {
            let first = if count == 0 { [head, &block[..end]].concat() } else { Vec::new() };
            let line = if count == 0 { &first } else { &block[start..end] };
            start = end + 1;
            count += 1;
            if line.trim_ascii().is_empty() {
                continue;
            }
            records += 1;
            size += line.len();
            let from = output.len();
            let outcome = guarded(|| {
                let body = reader.text_at(line, &path)?;
                let (text, core) = line_of(&body, Limits::default(), false);
                output.extend_from_slice(text.as_bytes());
                Ok(core)
            });
            let outcome = outcome.unwrap_or_else(|| {
                reader = Reader::new();
                Err(None)
            });
            if outcome.is_err() {
                output.truncate(from);
                output.extend_from_slice(b"null");
            }
            let unseen = perhaps_invisible(&output[from..]);
            output.push(b'\n');
            if !unseen.is_empty() || !matches!(outcome, Ok(None)) {
                noted.push((count - 1, from, output.len(), outcome, unseen));
            }
        }
        (count, records, size, noted)
    });
    let list = PyList::empty(py);
    for (line, from, to, outcome, unseen) in noted {
        let (error, notes) = match outcome {
            Ok(None) => (py.None(), PyList::empty(py)),
            Ok(Some(core)) => {
                let error = core.error().map(|failure| exception(py, failure, &core)).transpose()?;
                (error.into_pyobject(py)?.unbind(), diagnostics(py, core.diagnostics())?)
            }
            Err(Some(reason)) => (reason_of(reason).into_pyobject(py)?.into_any().unbind(), PyList::empty(py)),
            Err(None) => (internal_error(py)?.into_value(py).into_any(), PyList::empty(py)),
        };
        list.append((line, from, to, error, notes, unseen))?;
    }
    let text = PyBytes::new(py, &output);
    if size <= ROOMY {
        output.clear();
        ROOM.set(Room { reader, output });
    }
    Ok((lines, records, size, text, list))
}

/// Lines, records, their bytes, the output, what is to be said.
type Merge<'py> = (usize, usize, usize, Bound<'py, PyBytes>, Bound<'py, PyList>);

/// What a thread of the command line uses again for the next block: fresh memory costs as much as a part of the merge.
#[derive(Default)]
struct Room {
    reader: Reader,
    output: Vec<u8>,
}

/// Bytes of records whose room is kept.
const ROOMY: usize = 16 * 1024 * 1024;

thread_local! {
    static ROOM: RefCell<Room> = RefCell::default();
}

fn reason_of(reason: NoText) -> &'static str {
    match reason {
        NoText::NotJson => "the line is not JSON",
        NoText::NoMember => "the line has no such member",
        NoText::NotText => "the member is not text",
    }
}

/// The different characters of a text that may not be `str.isprintable`: some Unicode knows them, some does not.
fn perhaps_invisible(text: &[u8]) -> String {
    let mut found: Vec<char> = Vec::new();
    let mut rest = std::str::from_utf8(text).unwrap_or_default();
    while let Some(at) = first_unusual(rest.as_bytes()) {
        rest = &rest[at..];
        while let Some(char) = rest.chars().next().filter(|char| !(' '..'\x7f').contains(char)) {
            if !VISIBLE.iter().any(|range| range.contains(&char)) {
                found.push(char);
            }
            rest = &rest[char.len_utf8()..];
        }
    }
    found.sort_unstable();
    found.dedup();
    found.into_iter().collect()
}

/// Where the first byte is that is no printable ASCII.
fn first_unusual(text: &[u8]) -> Option<usize> {
    let unusual = |byte: &u8| !(b' '..0x7f).contains(byte);
    // Without an early end within a block the compiler looks at all its bytes at once.
    let usual = text.chunks_exact(32).take_while(|block| !block.iter().fold(false, |any, byte| any | unusual(byte)));
    let at = 32 * usual.count();
    text[at..].iter().position(unusual).map(|more| at + more)
}

/// Ranges in which every character is printable since Unicode 13, the common ones first.
const VISIBLE: [std::ops::RangeInclusive<char>; 17] = [
    '\u{ae}'..='\u{377}',
    '\u{2010}'..='\u{2027}',
    '\u{4e00}'..='\u{9fa5}',
    '\u{3041}'..='\u{3096}',
    '\u{3099}'..='\u{30ff}',
    '\u{ac00}'..='\u{d7a3}',
    '\u{400}'..='\u{52f}',
    '\u{3001}'..='\u{303f}',
    '\u{ff01}'..='\u{ffbe}',
    '\u{a1}'..='\u{ac}',
    '\u{2030}'..='\u{205e}',
    '\u{20a0}'..='\u{20bf}',
    '\u{2100}'..='\u{218b}',
    '\u{2190}'..='\u{2426}',
    '\u{2460}'..='\u{2b73}',
    '\u{fe00}'..='\u{fe0f}',
    '\u{1f300}'..='\u{1f6d5}',
];

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
