//! Opens checkpoints without a tokenizer or a runtime: their description and their tensors under canonical names.

use crate::parts::with_whole;
use model::{Checkpoint, Config, ModelSpec, WeightIndex, build, names};
use std::ffi::OsStr;
use std::path::Path;
use weights::Weights;
use weights::gguf::GgufFile;
use weights::safetensors::SafetensorsFile;

/// The description and the tensors of a `.gguf` file, or of a `.safetensors` file beside its `config.json`.
///
/// # Panics
/// If the files are not there or not what they should be.
pub fn checkpoint(path: &Path) -> (Checkpoint, Weights) {
    let fail = |error: &dyn std::fmt::Display| -> ! { panic!("{}: {error}", path.display()) };
    if path.extension() == Some(OsStr::new("gguf")) {
        let file = with_whole(path, GgufFile::open).unwrap_or_else(|e| fail(&e));
        let arch = file.metadata().str("general.architecture").unwrap_or_default();
        let weights = names::canonical(Some(arch), file.weights());
        let checkpoint = Checkpoint::from_gguf(file.metadata(), WeightIndex::of(&weights));
        return (checkpoint.unwrap_or_else(|e| fail(&e)), weights);
    }
    let file = SafetensorsFile::open(path).unwrap_or_else(|e| fail(&e));
    let text = std::fs::read(path.with_file_name("config.json")).unwrap_or_else(|e| fail(&e));
    let config = Config::from_json(&text).unwrap_or_else(|e| fail(&e));
    let weights = names::canonical(None, file.weights());
    let checkpoint = Checkpoint::from_config(config, WeightIndex::of(&weights));
    (checkpoint.unwrap_or_else(|e| fail(&e)), weights)
}

/// A model ready to be lowered.
#[derive(Clone, Debug)]
pub struct Model {
    /// What it is.
    pub spec: ModelSpec,
    /// Its tensors, by canonical name.
    pub weights: Weights,
    /// Names, types and shapes of the tensors.
    pub index: WeightIndex,
}

impl Model {
    /// Opens a checkpoint and builds its description.
    ///
    /// # Panics
    /// If it is no checkpoint of a known family.
    pub fn open(path: &Path) -> Self {
        let (checkpoint, weights) = checkpoint(path);
        Self::of(&checkpoint, weights)
    }

    /// Builds the description of a checkpoint.
    ///
    /// # Panics
    /// If the family refuses it.
    pub fn of(checkpoint: &Checkpoint, weights: Weights) -> Self {
        let spec = build(checkpoint).unwrap_or_else(|e| panic!("{}: {e}", checkpoint.architecture));
        Self { spec, weights, index: checkpoint.index.clone() }
    }
}
