//! Opens a model on disk: a GGUF file, a safetensors file beside its `config.json`, a folder of either, or a `.gturbo` folder.

use crate::RuntimeError;
use model::{Checkpoint, Config, ModelSpec, WeightIndex, build, names};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokenizer::{GgufVocab, Tokenizer};
use weights::Weights;
use weights::gguf::{GgufFile, Metadata};
use weights::gturbo::{ConfigKind, GturboFile, Verify};
use weights::safetensors::SafetensorsFile;

/// A checkpoint's description and its tensors under canonical names; the values stay on disk.
#[derive(Debug)]
pub struct ModelFiles {
    /// The file or folder it came from.
    pub path: PathBuf,
    /// What the checkpoint calls its architecture.
    pub architecture: String,
    /// The model.
    pub spec: ModelSpec,
    /// Every tensor, by canonical name.
    pub weights: Weights,
    /// Names, types and shapes of the tensors.
    pub index: WeightIndex,
    /// The same tensors under the checkpoint's own names.
    pub stored: Weights,
    /// Where everything but the tensors is.
    pub about: About,
}

/// What a checkpoint says beside its tensors.
#[derive(Clone, Debug)]
pub enum About {
    /// The keys of a GGUF file.
    Gguf(Box<Metadata>),
    /// The folder of a `config.json` and a tokenizer's files.
    Folder(PathBuf),
}

/// Sampling values a model's makers recommend (`generation_config.json`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recommended {
    /// Temperature.
    pub temperature: Option<f32>,
    /// Candidates kept.
    pub top_k: Option<usize>,
    /// Probability mass kept.
    pub top_p: Option<f32>,
    /// Least probability relative to the best.
    pub min_p: Option<f32>,
    /// Repetition penalty.
    pub repetition_penalty: Option<f32>,
}

impl ModelFiles {
    /// Opens `path`: a `.gguf` file (the first part of a split one), a `.safetensors` file, a folder of either, or a
    /// `.gturbo` folder whose files have their sizes.
    pub fn open(path: &Path) -> Result<Self, RuntimeError> {
        Self::open_verified(path, Verify::default())
    }

    /// As [`Self::open`], with a choice of what is checked of a `.gturbo` folder. Other models have no hashes, and asking
    /// for them is an error.
    pub fn open_verified(path: &Path, verify: Verify) -> Result<Self, RuntimeError> {
        if GturboFile::is_one(path) {
            return Self::from_gturbo(path, &GturboFile::open(path, verify)?);
        }
        if verify == Verify::Full {
            return Err(RuntimeError::NothingToVerify { path: path.to_owned() });
        }
        let file = if path.is_dir() { the_gguf_of(path)? } else { Some(path.to_owned()) };
        match file {
            Some(file) if file.extension() == Some(OsStr::new("safetensors")) => {
                let folder = file.parent().unwrap_or(Path::new(".")).to_owned();
                Self::from_safetensors(path, &folder, SafetensorsFile::open(&file)?.weights())
            }
            Some(file) => {
                let file = GgufFile::open(&file)?;
                Self::from_gguf(path, file.metadata(), file.weights())
            }
            None => Self::from_safetensors(path, path, SafetensorsFile::open_dir(path)?.weights()),
        }
    }

    fn from_gturbo(path: &Path, file: &GturboFile) -> Result<Self, RuntimeError> {
        let config = &file.manifest().config;
        match config.kind {
            ConfigKind::Gguf => {
                let keys = GgufFile::open(&path.join(&config.file))?;
                Self::from_gguf(path, keys.metadata(), file.weights())
            }
            ConfigKind::HuggingFace => Self::from_safetensors(path, path, file.weights()),
        }
    }

    fn from_gguf(path: &Path, metadata: &Metadata, stored: &Weights) -> Result<Self, RuntimeError> {
        let arch = metadata.str("general.architecture").unwrap_or_default();
        let weights = names::canonical(Some(arch), stored);
        let checkpoint = Checkpoint::from_gguf(metadata, WeightIndex::of(&weights))?;
        Self::new(path, checkpoint, (stored, weights), About::Gguf(Box::new(metadata.clone())))
    }

    fn from_safetensors(path: &Path, folder: &Path, stored: &Weights) -> Result<Self, RuntimeError> {
        let config = folder.join("config.json");
        let text = std::fs::read(&config).map_err(|source| RuntimeError::Read { path: config, source })?;
        let weights = names::canonical(None, stored);
        let checkpoint = Checkpoint::from_config(Config::from_json(&text)?, WeightIndex::of(&weights))?;
        Self::new(path, checkpoint, (stored, weights), About::Folder(folder.to_owned()))
    }

    fn new(
        path: &Path,
        checkpoint: Checkpoint,
        (stored, weights): (&Weights, Weights),
        about: About,
    ) -> Result<Self, RuntimeError> {
        let spec = build(&checkpoint)?;
        let Checkpoint { architecture, index, .. } = checkpoint;
        Ok(Self { path: path.to_owned(), architecture, spec, weights, index, stored: stored.clone(), about })
    }

    /// The canonical name of a tensor that [`Self::stored`] has.
    pub fn canonical_name(&self, stored: &str) -> String {
        match &self.about {
            About::Gguf(keys) => names::canonical_of_gguf(keys.str("general.architecture").unwrap_or_default(), stored),
            About::Folder(_) => names::canonical_of_hf(stored),
        }
    }

    /// Loads the checkpoint's tokenizer.
    pub fn tokenizer(&self) -> Result<Arc<Tokenizer>, RuntimeError> {
        let tokenizer = match &self.about {
            About::Gguf(metadata) => Tokenizer::from_vocab(vocabulary(metadata))?,
            About::Folder(folder) => Tokenizer::open_dir(folder)?,
        };
        Ok(Arc::new(tokenizer))
    }

    /// The kind of vocabulary the checkpoint carries, for people.
    pub fn vocabulary_kind(&self) -> String {
        match &self.about {
            About::Gguf(metadata) => {
                let named = |key: &str| metadata.str(key).unwrap_or("none").to_owned();
                match metadata.str("tokenizer.ggml.pre") {
                    Some(pre) => format!("{}, pre-tokenizer {pre}", named("tokenizer.ggml.model")),
                    None => named("tokenizer.ggml.model"),
                }
            }
            About::Folder(folder) if folder.join("tokenizer.json").is_file() => "tokenizer.json".to_owned(),
            About::Folder(_) => "none".to_owned(),
        }
    }

    /// The sampling values that came with the checkpoint, if any.
    pub fn recommended(&self) -> Recommended {
        let About::Folder(folder) = &self.about else {
            return Recommended::default();
        };
        let text = std::fs::read(folder.join("generation_config.json")).unwrap_or_default();
        let Ok(json) = serde_json::from_slice::<Value>(&text) else {
            return Recommended::default();
        };
        let number = |key: &str| json.get(key).and_then(Value::as_f64).map(|x| x as f32);
        Recommended {
            temperature: match json.get("do_sample") {
                Some(Value::Bool(false)) => Some(0.0),
                _ => number("temperature"),
            },
            top_k: json.get("top_k").and_then(Value::as_u64).map(|k| k as usize),
            top_p: number("top_p"),
            min_p: number("min_p"),
            repetition_penalty: number("repetition_penalty"),
        }
    }
}

/// The GGUF file a folder stands for: its only one, or the first part of its only split one.
fn the_gguf_of(folder: &Path) -> Result<Option<PathBuf>, RuntimeError> {
    let read = |source| RuntimeError::Read { path: folder.to_owned(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if path.extension() == Some(OsStr::new("gguf")) && !is_later_part(&path) {
            found.push(path);
        }
    }
    found.sort();
    match found.len() {
        0 => Ok(None),
        1 => Ok(found.pop()),
        _ => {
            let names = found.iter().filter_map(|p| p.file_name()).map(|n| n.to_string_lossy().into_owned());
            Err(RuntimeError::SeveralModels { folder: folder.to_owned(), found: names.collect::<Vec<_>>().join(", ") })
        }
    }
}

/// Whether a name ends in `-0000N-of-0000M.gguf` with N > 1.
fn is_later_part(path: &Path) -> bool {
    let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    let part = stem.rsplit_once("-of-").and_then(|(head, _)| head.rsplit_once('-'));
    part.is_some_and(|(_, number)| number.parse::<u32>().is_ok_and(|n| n > 1))
}

fn vocabulary(metadata: &Metadata) -> GgufVocab {
    let text = |key: &str| metadata.str(key).map(str::to_owned);
    let id = |key: &str| metadata.u64(key).and_then(|id| u32::try_from(id).ok());
    let strings = |key: &str| {
        let list = metadata.strings(key).unwrap_or_default();
        list.iter().map(|s| s.to_string_lossy().into_owned()).collect()
    };
    let types = metadata.i64s("tokenizer.ggml.token_type").unwrap_or_default();
    GgufVocab {
        model: text("tokenizer.ggml.model").unwrap_or_default(),
        pre: text("tokenizer.ggml.pre"),
        tokens: strings("tokenizer.ggml.tokens"),
        scores: metadata.f32s("tokenizer.ggml.scores").unwrap_or_default().to_vec(),
        types: types.into_iter().map(|t| t as i32).collect(),
        merges: strings("tokenizer.ggml.merges"),
        bos: id("tokenizer.ggml.bos_token_id"),
        eos: id("tokenizer.ggml.eos_token_id"),
        eot: id("tokenizer.ggml.eot_token_id"),
        eom: id("tokenizer.ggml.eom_token_id"),
        unk: id("tokenizer.ggml.unknown_token_id"),
        pad: id("tokenizer.ggml.padding_token_id"),
        add_bos: metadata.bool("tokenizer.ggml.add_bos_token"),
        add_eos: metadata.bool("tokenizer.ggml.add_eos_token"),
        add_space_prefix: metadata.bool("tokenizer.ggml.add_space_prefix"),
        remove_extra_whitespaces: metadata.bool("tokenizer.ggml.remove_extra_whitespaces"),
        chat_template: text("tokenizer.chat_template"),
    }
}
