//! A writer of safetensors files.

use super::header::METADATA_NAME;
use crate::{Tensor, WeightsError};
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Writes `tensors` and `metadata` as one file at `path`, replacing one that exists. Wider types come first, then
/// names in order, so that every tensor is aligned to its element.
pub fn write(path: &Path, tensors: &[Tensor], metadata: &BTreeMap<String, String>) -> Result<(), WeightsError> {
    let mut order: Vec<&Tensor> = tensors.iter().collect();
    order.sort_by_key(|tensor| (Reverse(tensor.dtype().block_bytes()), tensor.name()));
    let header = header(&order, metadata)?;
    let io = |source| WeightsError::Io { action: "write", path: path.into(), source };
    let mut file = BufWriter::new(File::create(path).map_err(io)?);
    file.write_all(&(header.len() as u64).to_le_bytes()).map_err(io)?;
    file.write_all(header.as_bytes()).map_err(io)?;
    for tensor in order {
        file.write_all(tensor.bytes()).map_err(io)?;
    }
    file.flush().map_err(io)
}

/// The JSON header, padded with spaces to a multiple of eight bytes.
fn header(tensors: &[&Tensor], metadata: &BTreeMap<String, String>) -> Result<String, WeightsError> {
    let mut entries = Map::new();
    if !metadata.is_empty() {
        entries.insert(METADATA_NAME.into(), json!(metadata));
    }
    let mut start = 0;
    for tensor in tensors {
        let refused = |field, expected: &str, found: String| WeightsError::Argument {
            tensor: tensor.name().into(),
            field,
            expected: expected.into(),
            found,
        };
        if !tensor.dtype().in_safetensors() {
            return Err(refused("type", "a type that safetensors has", tensor.dtype().to_string()));
        }
        if tensor.name() == METADATA_NAME {
            return Err(refused("name", "one that is not reserved", METADATA_NAME.into()));
        }
        let end = start + tensor.bytes().len();
        let entry: Value = json!({
            "dtype": tensor.dtype().name(),
            "shape": tensor.shape(),
            "data_offsets": [start, end],
        });
        if entries.insert(tensor.name().into(), entry).is_some() {
            return Err(refused("name", "one no other tensor has", "a second one".into()));
        }
        start = end;
    }
    let mut text = Value::Object(entries).to_string();
    text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
    Ok(text)
}
