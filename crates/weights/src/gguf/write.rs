//! A writer of GGUF version 3.

use super::header::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC};
use super::metadata::Metadata;
use super::value::{Value, write_string};
use crate::tensor::element_count;
use crate::{DType, Tensor, WeightsError};
use std::collections::HashSet;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Collects metadata and tensors and writes them as one file, tensors aligned to 32 bytes (or to the value of
/// `general.alignment`, if set).
#[derive(Debug, Clone, Default)]
pub struct GgufWriter {
    metadata: Metadata,
    tensors: Vec<Tensor>,
}

impl GgufWriter {
    /// A writer of an empty file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key.
    pub fn set(&mut self, key: impl Into<String>, value: Value) -> &mut Self {
        self.metadata.set(key, value);
        self
    }

    /// Adds a tensor; its shape is outermost first, as everywhere.
    pub fn tensor(&mut self, tensor: Tensor) -> &mut Self {
        self.tensors.push(tensor);
        self
    }

    /// The whole file in memory.
    pub fn to_bytes(&self) -> Result<Vec<u8>, WeightsError> {
        let mut out = Vec::new();
        self.write_to(&mut out, Path::new("<bytes>"))?;
        Ok(out)
    }

    /// Writes the file at `path`, replacing one that exists.
    pub fn write(&self, path: &Path) -> Result<(), WeightsError> {
        let file = std::fs::File::create(path).map_err(|source| io("create", path, source))?;
        self.write_to(&mut BufWriter::new(file), path)
    }

    fn write_to(&self, out: &mut impl Write, path: &Path) -> Result<(), WeightsError> {
        let describe = |t: &Tensor| Described { name: t.name().into(), dtype: t.dtype(), shape: t.shape().to_vec() };
        let described: Vec<_> = self.tensors.iter().map(describe).collect();
        let layout = layout(&self.metadata, &described)?;
        let mut put = |bytes: &[u8]| out.write_all(bytes).map_err(|source| io("write", path, source));
        put(&layout.header)?;
        let ends = layout.offsets.iter().skip(1).copied().chain([layout.bytes]);
        for ((tensor, start), end) in self.tensors.iter().zip(&layout.offsets).zip(ends) {
            put(tensor.bytes())?;
            put(&vec![0; (end - start) as usize - tensor.bytes().len()])?;
        }
        out.flush().map_err(|source| io("write", path, source))
    }
}

/// A tensor of a file that is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// The name.
    pub name: String,
    /// The type.
    pub dtype: DType,
    /// The dimensions, outermost first.
    pub shape: Vec<usize>,
}

/// Where everything of a file lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Everything before the first tensor, padding included.
    pub header: Vec<u8>,
    /// Where each tensor's bytes begin, counted from the start of the file.
    pub offsets: Vec<u64>,
    /// Bytes of the file; those between tensors are zeros.
    pub bytes: u64,
}

/// The layout of a file with these keys and tensors, each tensor at a multiple of the alignment.
pub fn layout(metadata: &Metadata, tensors: &[Described]) -> Result<Layout, WeightsError> {
    let alignment = alignment(metadata)?;
    let mut header = Vec::new();
    header.extend(MAGIC);
    header.extend(3u32.to_le_bytes());
    header.extend((tensors.len() as u64).to_le_bytes());
    header.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata.iter() {
        write_string(key.as_bytes(), &mut header);
        value.write(&mut header);
    }
    let mut names = HashSet::new();
    let (mut offset, mut offsets) = (0u64, Vec::new());
    for Described { name, dtype, shape } in tensors {
        if !names.insert(name) {
            return Err(argument(name, "name", "one no other tensor has", "a second one".into()));
        }
        if !(1..=4).contains(&shape.len()) || shape.contains(&0) {
            return Err(argument(name, "shape", "1 to 4 dimensions, each at least 1", format!("{shape:?}")));
        }
        let Some(id) = dtype.to_ggml() else {
            return Err(argument(name, "type", "a type that GGUF has", dtype.to_string()));
        };
        let Some(length) = element_count(shape).and_then(|n| dtype.bytes_for(n)) else {
            return Err(argument(name, "shape", "whole blocks, below 2^64 bytes", format!("{shape:?}")));
        };
        write_string(name.as_bytes(), &mut header);
        header.extend((shape.len() as u32).to_le_bytes());
        shape.iter().rev().for_each(|&d| header.extend((d as u64).to_le_bytes()));
        header.extend(id.to_le_bytes());
        header.extend(offset.to_le_bytes());
        offsets.push(offset);
        offset += (length + padding(length, alignment)) as u64;
    }
    header.resize(header.len() + padding(header.len(), alignment), 0);
    let start = header.len() as u64;
    offsets.iter_mut().for_each(|offset| *offset += start);
    Ok(Layout { header, offsets, bytes: start + offset })
}

fn alignment(metadata: &Metadata) -> Result<usize, WeightsError> {
    match metadata.get(ALIGNMENT_KEY) {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(Value::U32(n)) if *n >= 8 && n.is_power_of_two() => Ok(*n as usize),
        Some(other) => {
            let found = format!("{other:?}");
            Err(argument(ALIGNMENT_KEY, "value", "a U32 that is a power of two, at least 8", found))
        }
    }
}

fn padding(length: usize, alignment: usize) -> usize {
    length.next_multiple_of(alignment) - length
}

fn io(action: &'static str, path: &Path, source: std::io::Error) -> WeightsError {
    WeightsError::Io { action, path: path.into(), source }
}

fn argument(tensor: &str, field: &'static str, expected: &str, found: String) -> WeightsError {
    WeightsError::Argument { tensor: tensor.into(), field, expected: expected.into(), found }
}
