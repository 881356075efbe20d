//! A writer of GGUF version 3.

use super::header::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC};
use super::metadata::Metadata;
use super::value::{Value, write_string};
use crate::{Tensor, WeightsError};
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
        let alignment = self.alignment()?;
        let header = self.header(alignment)?;
        let mut put = |bytes: &[u8]| out.write_all(bytes).map_err(|source| io("write", path, source));
        put(&header)?;
        put(&vec![0; padding(header.len(), alignment)])?;
        for tensor in &self.tensors {
            put(tensor.bytes())?;
            put(&vec![0; padding(tensor.bytes().len(), alignment)])?;
        }
        out.flush().map_err(|source| io("write", path, source))
    }

    fn header(&self, alignment: usize) -> Result<Vec<u8>, WeightsError> {
        let mut out = Vec::new();
        out.extend(MAGIC);
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in self.metadata.iter() {
            write_string(key.as_bytes(), &mut out);
            value.write(&mut out);
        }
        let mut names = HashSet::new();
        let mut offset = 0u64;
        for tensor in &self.tensors {
            if !names.insert(tensor.name()) {
                return Err(argument(tensor.name(), "name", "one no other tensor has", "a second one".into()));
            }
            let shape = tensor.shape();
            if !(1..=4).contains(&shape.len()) || shape.contains(&0) {
                return Err(argument(
                    tensor.name(),
                    "shape",
                    "1 to 4 dimensions, each at least 1",
                    format!("{shape:?}"),
                ));
            }
            let Some(id) = tensor.dtype().to_ggml() else {
                return Err(argument(tensor.name(), "type", "a type that GGUF has", tensor.dtype().to_string()));
            };
            write_string(tensor.name().as_bytes(), &mut out);
            out.extend((shape.len() as u32).to_le_bytes());
            shape.iter().rev().for_each(|&d| out.extend((d as u64).to_le_bytes()));
            out.extend(id.to_le_bytes());
            out.extend(offset.to_le_bytes());
            let length = tensor.bytes().len();
            offset += (length + padding(length, alignment)) as u64;
        }
        Ok(out)
    }

    fn alignment(&self) -> Result<usize, WeightsError> {
        match self.metadata.get(ALIGNMENT_KEY) {
            None => Ok(DEFAULT_ALIGNMENT),
            Some(Value::U32(n)) if *n >= 8 && n.is_power_of_two() => Ok(*n as usize),
            Some(other) => {
                let found = format!("{other:?}");
                Err(argument(ALIGNMENT_KEY, "value", "a U32 that is a power of two, at least 8", found))
            }
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
