//! GGUF files, versions 2 and 3, whole or split into parts.
//!
//! Layout: magic, version, tensor count, key count; the key-value pairs; the tensor descriptions; padding to the
//! alignment; the data. Dimensions are stored innermost first and given here outermost first.

mod cursor;
mod header;
mod metadata;
mod split;
mod value;
pub mod write;

pub use header::{Header, TensorInfo};
pub use metadata::Metadata;
pub use value::{Array, GgufString, Value};

use crate::map::Map;
use crate::{Tensor, Weights, WeightsError};
use std::path::Path;
use std::sync::Arc;

/// An opened GGUF model: its metadata and its tensors under their GGUF names.
#[derive(Debug)]
pub struct GgufFile {
    version: u32,
    metadata: Metadata,
    weights: Weights,
}

impl GgufFile {
    /// Opens the file at `path`. If its keys say that it is the first of several parts, the others are opened too;
    /// they lie beside it under the names `…-00002-of-0000N.gguf`. Metadata comes from the first part.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let first = Part::open(path)?;
        let others = split::others(path, &first.header)?;
        let count = others.len() + 1;
        let (version, metadata) = (first.header.version, first.header.metadata.clone());
        let mut weights = Weights::default();
        let parts = others.iter().enumerate().map(|(index, path)| {
            let part = Part::open(path)?;
            split::check_part(path, &part.header, index + 1, count)?;
            Ok(part)
        });
        for part in std::iter::once(Ok(first)).chain(parts) {
            let part = part?;
            for info in &part.header.tensors {
                let range = info.offset..info.offset + info.length;
                let tensor = Tensor::mapped(&info.name, info.dtype, &info.shape, &part.map, range);
                if weights.insert(tensor).is_some() {
                    return Err(WeightsError::Duplicate {
                        path: path.into(),
                        kind: "tensor",
                        name: info.name.clone(),
                        place: "in two parts of the split file".into(),
                    });
                }
            }
        }
        split::check_total(path, &metadata, weights.len())?;
        Ok(Self { version, metadata, weights })
    }

    /// Reads a header from bytes, checking the tensor ranges against their number but touching no tensor data.
    pub fn parse(bytes: &[u8]) -> Result<Header, WeightsError> {
        header::parse(bytes, Path::new("<bytes>"))
    }

    /// The format version of the (first) file: 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The keys of the (first) file.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tensors of all parts.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }
}

/// One mapped file with its header.
struct Part {
    map: Arc<Map>,
    header: Header,
}

impl Part {
    fn open(path: &Path) -> Result<Self, WeightsError> {
        let map = Arc::new(Map::open(path)?);
        let header = header::parse(map.bytes(), path)?;
        Ok(Self { map, header })
    }
}
