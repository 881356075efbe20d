//! Safetensors files: one file, or shards listed by an index.
//!
//! Layout: the header's length (8 bytes), a JSON header (name → dtype, shape, offsets), the data. The data section
//! is exactly covered by the tensors: no gaps, overlaps or trailing bytes.

mod header;
mod sharded;
mod write;

pub use header::{Header, TensorInfo};
pub use write::write;

use crate::map::Map;
use crate::{Tensor, Weights, WeightsError};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The name of an unsharded checkpoint in its directory.
pub const SINGLE_NAME: &str = "model.safetensors";
/// The name of the index of a sharded checkpoint in its directory.
pub const INDEX_NAME: &str = "model.safetensors.index.json";

/// An opened safetensors checkpoint.
#[derive(Debug)]
pub struct SafetensorsFile {
    metadata: BTreeMap<String, String>,
    weights: Weights,
}

impl SafetensorsFile {
    /// Opens one file.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let map = Arc::new(Map::open(path)?);
        let header = header::parse(map.bytes(), path)?;
        let tensor = |info: &TensorInfo| {
            let range = info.offset..info.offset + info.length;
            Tensor::mapped(&info.name, info.dtype, &info.shape, &map, range)
        };
        let weights = header.tensors.iter().map(tensor).collect();
        Ok(Self { metadata: header.metadata, weights })
    }

    /// Opens all shards that the index at `index` (a JSON file) names; they lie beside it.
    pub fn open_sharded(index: &Path) -> Result<Self, WeightsError> {
        sharded::open(index)
    }

    /// Opens the checkpoint in `directory`: [`SINGLE_NAME`], or else the shards of [`INDEX_NAME`].
    pub fn open_dir(directory: &Path) -> Result<Self, WeightsError> {
        let (single, index) = (directory.join(SINGLE_NAME), directory.join(INDEX_NAME));
        if single.is_file() {
            Self::open(&single)
        } else if index.is_file() {
            Self::open_sharded(&index)
        } else if !directory.exists() {
            Err(WeightsError::NotFound { path: directory.into() })
        } else {
            let missing = format!("{SINGLE_NAME} and {INDEX_NAME} (one of them)");
            Err(WeightsError::MissingFiles { path: directory.into(), missing })
        }
    }

    /// Reads a header from the bytes of a whole file; touches no tensor data.
    pub fn parse_header(bytes: &[u8]) -> Result<Header, WeightsError> {
        header::parse(bytes, Path::new("<bytes>"))
    }

    /// The tensors.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The header's `__metadata__`; for shards, all of them together, the first shard's value winning.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }
}
