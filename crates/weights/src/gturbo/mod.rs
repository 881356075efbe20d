//! `.gturbo` folders, version 2: a model packed so that every expert is one read, with hashes of all of it.
//!
//! ```text
//! manifest.json         what is there: the format's version, tensors, types, sizes, SHA-256 of files and of their chunks
//! resident.bin          every tensor that no choice of experts depends on, each at a multiple of 64 bytes
//! experts/layer_NN.bin  one blob an expert, at multiples of a stride of whole pages: all of its matrices
//! metadata.gguf         the keys of a model packed from GGUF, or
//! config.json, …        the files beside one packed from safetensors: configuration, tokenizer, template
//! ```
//!
//! Paths are relative and plain, so that a folder can be moved. Tensors keep the names and types they are stored under,
//! and whoever opens them sees what a reader of the packed file would.

mod manifest;
mod verify;

pub use manifest::{ConfigKind, ExpertLayer, FileEntry, Manifest, ModelConfig, Quantisation, TensorEntry};
pub use verify::{Damage, Verify, digest, hash_file};

use crate::map::Map;
use crate::{Tensor, Weights, WeightsError};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The name of the manifest.
pub const MANIFEST: &str = "manifest.json";
/// The name of the file of tensors that are always needed.
pub const RESIDENT: &str = "resident.bin";
/// The version of the format that is written.
pub const VERSION: u32 = 2;
/// Bytes of a chunk that has a hash of its own.
pub const CHUNK_BYTES: u64 = 4 << 20;
/// Blobs of experts begin at multiples of this: a whole number of pages on every system.
pub const PAGE: u64 = 16 << 10;
/// Tensors begin at multiples of this.
pub const ALIGNMENT: u64 = 64;

/// An opened folder: its manifest, and its tensors under the names they were packed with.
#[derive(Debug)]
pub struct GturboFile {
    manifest: Manifest,
    weights: Weights,
}

impl GturboFile {
    /// Whether a path is such a folder, or at least says so by its name.
    pub fn is_one(path: &Path) -> bool {
        path.is_dir() && (path.join(MANIFEST).is_file() || path.extension().is_some_and(|e| e == "gturbo"))
    }

    /// Opens the folder at `path` after the checks that `verify` asks for.
    pub fn open(path: &Path, verify: Verify) -> Result<Self, WeightsError> {
        let manifest = Manifest::read(path)?;
        verify.check(path, &manifest)?;
        let mut maps = BTreeMap::new();
        let mut weights = Weights::default();
        for (name, entry) in &manifest.tensors {
            let map = match maps.get(&entry.file) {
                Some(map) => map,
                None => maps.entry(&entry.file).or_insert(Arc::new(Map::open(&path.join(&entry.file))?)),
            };
            let found = map.bytes().len() as u64;
            let place = manifest.place(path, name, found)?;
            let tensor = match entry.stride {
                Some(stride) => {
                    let at = (place.range.start, stride as usize);
                    Tensor::spread(name, place.dtype, &entry.shape, map, at)
                }
                None => Tensor::mapped(name, place.dtype, &entry.shape, map, place.range),
            };
            weights.insert(tensor);
        }
        Ok(Self { manifest, weights })
    }

    /// What the folder says of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The tensors.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }
}
