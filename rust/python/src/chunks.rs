//! Chunk objects → the JSON text that the core reads.
//!
//! Dicts, lists and plain values are written here, and models whose members `deltafold._chunks.is_plain` says may be read;
//! whatever else a chunk is goes through `deltafold._chunks.chunk_text`. Nearly all chunks of a program are of a few classes
//! whose members have the same names in the same order: each thread keeps those names as JSON text.
use deltafold_core::accumulator::push_json_string;
use deltafold_core::json::write_float;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PySet, PyString, PyType};
use std::cell::Cell;
use std::fmt::Write;

/// Objects inside each other up to which this writes; Python's own writer, which has a limit too, does the rest.
const DEEPEST: usize = 100;
/// Classes of models that a thread keeps, and fields of one.
const CLASSES: usize = 32;
const FIELDS: usize = 64;
/// Bytes of text for which memory is kept from chunk to chunk.
const KEPT: usize = 1 << 14;

thread_local! {
    static WRITER: Cell<Option<Box<Writer>>> = const { Cell::new(None) };
}

/// Gives `read` the text of a chunk.
pub fn with_chunk_text<T>(chunk: &Bound<'_, PyAny>, read: impl FnOnce(&str) -> T) -> PyResult<T> {
    // Taken out, for a class of a chunk may have code of its own, and that may feed another one.
    let mut writer = WRITER.take().unwrap_or_default();
    writer.out.clear();
    let given = if writer.chunk(chunk) { Ok(read(&writer.out)) } else { chunk_text(chunk).map(|text| read(&text)) };
    if writer.out.capacity() > KEPT {
        writer.out = String::new();
    }
    WRITER.set(Some(writer));
    given
}

fn chunk_text(chunk: &Bound<'_, PyAny>) -> PyResult<String> {
    static CHUNK_TEXT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    CHUNK_TEXT.import(chunk.py(), "deltafold._chunks", "chunk_text")?.call1((chunk,))?.extract()
}

/// What its methods say is whether the value is plain.
#[derive(Default)]
struct Writer {
    out: String,
    classes: Vec<Class>,
}

struct Class {
    class: Py<PyType>,
    is_plain: bool,
    /// The names of the fields in their order, and as `,"name":`.
    fields: Vec<(Py<PyString>, Box<str>)>,
}

impl Writer {
    fn chunk(&mut self, chunk: &Bound<'_, PyAny>) -> bool {
        match chunk.cast_exact::<PyDict>() {
            Ok(dict) => self.dict(dict, DEEPEST),
            Err(_) => self.model(chunk, DEEPEST).unwrap_or(false),
        }
    }

    fn value(&mut self, value: &Bound<'_, PyAny>, depth: usize) -> bool {
        if depth == 0 {
            return false;
        }
        if let Ok(string) = value.cast_exact::<PyString>() {
            return self.string(string);
        }
        if value.is_none() {
            self.out.push_str("null");
        } else if let Ok(value) = value.cast_exact::<PyBool>() {
            self.out.push_str(if value.is_true() { "true" } else { "false" });
        } else if value.is_exact_instance_of::<PyInt>() {
            let Ok(value) = value.extract::<i64>() else { return false };
            return write!(self.out, "{value}").is_ok();
        } else if let Ok(list) = value.cast_exact::<PyList>() {
            return self.list(list, depth);
        } else if let Ok(dict) = value.cast_exact::<PyDict>() {
            return self.dict(dict, depth);
        } else if let Ok(value) = value.cast_exact::<PyFloat>() {
            match value.value() {
                number if number.is_finite() => write_float(number, &mut self.out),
                number if number.is_nan() => self.out.push_str("NaN"),
                number => self.out.push_str(if number > 0.0 { "Infinity" } else { "-Infinity" }),
            }
        } else {
            return self.model(value, depth).unwrap_or(false);
        }
        true
    }

    /// False for a string with surrogate halves too.
    #[inline]
    fn string(&mut self, value: &Bound<'_, PyString>) -> bool {
        value.to_cow().is_ok_and(|value| {
            push_json_string(&value, &mut self.out);
            true
        })
    }

    fn list(&mut self, list: &Bound<'_, PyList>, depth: usize) -> bool {
        self.out.push('[');
        for (at, item) in list.iter().enumerate() {
            if at > 0 {
                self.out.push(',');
            }
            if !self.value(&item, depth - 1) {
                return false;
            }
        }
        self.out.push(']');
        true
    }

    fn dict(&mut self, dict: &Bound<'_, PyDict>, depth: usize) -> bool {
        self.out.push('{');
        let begun = self.out.len();
        for (name, value) in dict.iter() {
            if !self.member(&name, &value, begun, depth) {
                return false;
            }
        }
        self.out.push('}');
        true
    }

    fn member(&mut self, name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>, begun: usize, depth: usize) -> bool {
        if self.out.len() > begun {
            self.out.push(',');
        }
        if !name.cast_exact::<PyString>().is_ok_and(|name| self.string(name)) {
            return false;
        }
        self.out.push(':');
        self.value(value, depth - 1)
    }

    /// The members of a pydantic model that were set, then those that no type expected: `deltafold._chunks.members`.
    fn model(&mut self, model: &Bound<'_, PyAny>, depth: usize) -> PyResult<bool> {
        let Some(class) = self.class_of(model)? else { return Ok(false) };
        let py = model.py();
        let were_set = model.getattr(intern!(py, "__pydantic_fields_set__"))?;
        let held = model.getattr(intern!(py, "__dict__"))?;
        let (Ok(were_set), Ok(held)) = (were_set.cast_exact::<PySet>(), held.cast_exact::<PyDict>()) else {
            return Ok(false);
        };
        self.out.push('{');
        let begun = self.out.len();
        for (at, (name, member)) in held.iter().enumerate() {
            if were_set.contains(&name)?
                && !(if self.field_name(class, at, &name, begun) {
                    self.value(&member, depth - 1)
                } else {
                    self.member(&name, &member, begun, depth)
                })
            {
                return Ok(false);
            }
        }
        let more = model.getattr(intern!(py, "__pydantic_extra__"))?;
        if let Ok(more) = more.cast_exact::<PyDict>() {
            for (name, member) in more.iter() {
                if !self.member(&name, &member, begun, depth) {
                    return Ok(false);
                }
            }
        }
        self.out.push('}');
        Ok(true)
    }

    /// Writes the name of a field that stands where its class has it.
    #[inline]
    fn field_name(&mut self, class: usize, at: usize, name: &Bound<'_, PyAny>, begun: usize) -> bool {
        let field = self.classes.get(class).and_then(|class| class.fields.get(at));
        let Some((_, text)) = field.filter(|(known, _)| name.is(known)) else { return false };
        self.out.push_str(if self.out.len() > begun { text } else { &text[1..] });
        true
    }

    /// Which of the classes this is an instance of, past their end for one that is not kept; None if it is not plain.
    #[inline]
    fn class_of(&mut self, value: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        let class = value.get_type();
        let known = self.classes.iter().position(|known| class.is(&known.class));
        let at = match known {
            Some(at) => at,
            None if self.classes.len() == CLASSES => return Ok(is_plain(&class)?.then_some(CLASSES)),
            None => {
                self.classes.push(Class::of(&class)?);
                self.classes.len() - 1
            }
        };
        Ok(self.classes[at].is_plain.then_some(at))
    }
}

impl Class {
    fn of(class: &Bound<'_, PyType>) -> PyResult<Self> {
        let is_plain = is_plain(class)?;
        let mut fields = Vec::new();
        if is_plain {
            let all = class.getattr(intern!(class.py(), "__pydantic_fields__"))?;
            for name in all.cast_into::<PyDict>()?.keys().iter().take(FIELDS) {
                let name = name.cast_into::<PyString>()?;
                let mut text = ",".to_owned();
                push_json_string(&name.to_cow()?, &mut text);
                text.push(':');
                fields.push((name.unbind(), text.into()));
            }
        }
        Ok(Self { class: class.clone().unbind(), is_plain, fields })
    }
}

fn is_plain(class: &Bound<'_, PyType>) -> PyResult<bool> {
    class.py().import("deltafold._chunks")?.getattr("is_plain")?.call1((class,))?.is_truthy()
}
