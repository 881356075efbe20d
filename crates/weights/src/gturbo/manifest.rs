//! The manifest: reading, writing, and the checks of everything it claims.

use super::{CHUNK_BYTES, MANIFEST, VERSION};
use crate::tensor::element_count;
use crate::{DType, WeightsError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Component, Path};

/// A longer manifest is not read.
const MOST_BYTES: u64 = 256 << 20;
const FORMAT: &str = "gturbo";

/// What a folder says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Always `gturbo`.
    format: String,
    /// The version of the format.
    version: u32,
    /// The program that wrote it.
    pub written_by: String,
    /// Where the model's own configuration is.
    pub config: ModelConfig,
    /// What was rounded when it was packed.
    pub quantisation: Quantisation,
    /// Bytes of a chunk that has a hash of its own.
    chunk_bytes: u64,
    /// The files of experts, in order of layers.
    pub experts: Vec<ExpertLayer>,
    /// Every tensor, by the name it had in the checkpoint.
    pub tensors: BTreeMap<String, TensorEntry>,
    /// Every file but this one.
    pub files: BTreeMap<String, FileEntry>,
}

/// Where a model's own configuration is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// How it is written.
    pub kind: ConfigKind,
    /// The file.
    pub file: String,
}

/// How a configuration is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigKind {
    /// The keys of a GGUF file, in a GGUF file without tensors.
    Gguf,
    /// A Hugging Face `config.json`, its tokenizer's files beside it.
    HuggingFace,
}

/// What was rounded when a model was packed; `None`: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantisation {
    /// The type of matrices.
    pub matrices: Option<String>,
    /// The type of experts.
    pub experts: Option<String>,
    /// Tensors with a choice of their own, as given.
    pub keep: Vec<String>,
    /// Whether importance of columns was used.
    pub importance: bool,
}

/// One layer's file of experts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpertLayer {
    /// The layer.
    pub layer: usize,
    /// The file.
    pub file: String,
    /// How many experts.
    pub experts: usize,
    /// Bytes from one expert's blob to the next.
    pub stride: u64,
}

/// Where a tensor is and what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorEntry {
    /// The type's name.
    pub dtype: String,
    /// Outermost dimension first.
    pub shape: Vec<usize>,
    /// The file.
    pub file: String,
    /// The first byte in it.
    pub offset: u64,
    /// For a bank: bytes from one of its outermost entries to the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<u64>,
}

/// A file's size and hashes, as lower-case hexadecimal digits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Bytes.
    pub bytes: u64,
    /// SHA-256 of the file.
    pub sha256: String,
    /// SHA-256 of each chunk, the last one shorter.
    pub chunks: Vec<String>,
}

/// A checked place of a tensor.
pub(super) struct Place {
    pub(super) dtype: DType,
    /// All of its bytes; of a bank, the first part's.
    pub(super) range: Range<usize>,
}

impl Manifest {
    /// A manifest of a model without files yet.
    pub fn new(config: ModelConfig) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            written_by: format!("turbospark {}", env!("CARGO_PKG_VERSION")),
            config,
            quantisation: Quantisation::default(),
            chunk_bytes: CHUNK_BYTES,
            experts: Vec::new(),
            tensors: BTreeMap::new(),
            files: BTreeMap::new(),
        }
    }

    /// Reads and checks the manifest of the folder at `folder`; looks at no other file.
    pub fn read(folder: &Path) -> Result<Self, WeightsError> {
        let path = folder.join(MANIFEST);
        let io = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::NotFound => WeightsError::MissingFiles {
                path: folder.into(),
                missing: format!("{MANIFEST}; the folder is no finished pack"),
            },
            _ => WeightsError::Io { action: "read", path: path.clone(), source },
        };
        let found = std::fs::metadata(&path).map_err(io)?.len();
        if found > MOST_BYTES {
            return Err(bad(folder, "size", format!("at most {MOST_BYTES} bytes"), format!("{found} bytes")));
        }
        let text = std::fs::read(&path).map_err(io)?;
        let json: serde_json::Value = serde_json::from_slice(&text)
            .map_err(|error| bad(folder, "text", "a JSON object".into(), error.to_string()))?;
        let version = &json["version"];
        if json["format"] != FORMAT || version != VERSION {
            let found = format!("format {}, version {version}", json["format"]);
            return Err(bad(folder, "`format` and `version`", format!("\"{FORMAT}\" and {VERSION}"), found));
        }
        let manifest: Self = serde_json::from_value(json)
            .map_err(|error| bad(folder, "content", format!("the keys of version {VERSION}"), error.to_string()))?;
        manifest.check(folder)?;
        Ok(manifest)
    }

    /// The text of the file.
    pub fn to_json(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).expect("plain data");
        text.push(b'\n');
        text
    }

    /// The tensors that have bytes within a range of a file.
    pub fn tensors_in<'a>(&'a self, file: &'a str, range: Range<u64>) -> impl Iterator<Item = &'a str> {
        let touches = move |entry: &TensorEntry| {
            let Some((part, count)) = entry.parts() else { return false };
            let stride = entry.stride.unwrap_or(part);
            (0..count).any(|i| {
                let start = entry.offset + i * stride;
                start < range.end && range.start < start + part
            })
        };
        self.tensors
            .iter()
            .filter(move |(_, entry)| entry.file == file && touches(entry))
            .map(|(name, _)| name.as_str())
    }

    fn check(&self, folder: &Path) -> Result<(), WeightsError> {
        if self.chunk_bytes != CHUNK_BYTES {
            return Err(bad(folder, "`chunk_bytes`", CHUNK_BYTES.to_string(), self.chunk_bytes.to_string()));
        }
        let named = self.tensors.values().map(|t| &t.file).chain(self.experts.iter().map(|e| &e.file));
        for file in named.chain([&self.config.file]) {
            if !self.files.contains_key(file) {
                return Err(bad(folder, "a file's name", "one that `files` lists".into(), format!("{file:?}")));
            }
        }
        for (name, file) in &self.files {
            let plain = |c: Component<'_>| matches!(c, Component::Normal(_));
            if name.is_empty() || name.contains(['\\', ':', '\0']) || !Path::new(name).components().all(plain) {
                return Err(bad(folder, "a file's name", "a plain relative path".into(), format!("{name:?}")));
            }
            let chunks = file.bytes.div_ceil(CHUNK_BYTES);
            let hex = |digest: &String| digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit());
            if file.chunks.len() as u64 != chunks || !file.chunks.iter().chain([&file.sha256]).all(hex) {
                let expected = format!("{chunks} SHA-256 hashes of chunks and one of all, 64 digits each");
                return Err(bad(
                    folder,
                    &format!("`files`.{name:?}"),
                    expected,
                    format!("{} hashes", file.chunks.len()),
                ));
            }
        }
        self.tensors
            .iter()
            .try_for_each(|(name, entry)| self.place(folder, name, self.files[&entry.file].bytes).map(|_| ()))
    }

    /// Checks a tensor against a file of `bytes` bytes.
    pub(super) fn place(&self, folder: &Path, name: &str, bytes: u64) -> Result<Place, WeightsError> {
        let entry = &self.tensors[name];
        let misfit = |expected: &str, found: String| bad(folder, &format!("tensor `{name}`"), expected.into(), found);
        let dtype = entry.dtype().ok_or_else(|| misfit("a known type", entry.dtype.clone()))?;
        let cols = entry.shape.last().copied().unwrap_or(1);
        let whole = cols.is_multiple_of(dtype.block_len());
        let Some((part, count)) = entry.parts().filter(|_| whole) else {
            return Err(misfit("a shape of whole blocks, below 2^64 bytes", format!("{dtype} {:?}", entry.shape)));
        };
        let end = match entry.stride {
            Some(stride) if stride < part => return Err(misfit("a stride of at least one part", stride.to_string())),
            Some(stride) => (count.saturating_sub(1)).checked_mul(stride).and_then(|last| last.checked_add(part)),
            None => Some(part),
        };
        match end.and_then(|end| end.checked_add(entry.offset)).filter(|end| *end <= bytes) {
            Some(_) => Ok(Place { dtype, range: entry.offset as usize..(entry.offset + part) as usize }),
            None => {
                let found = format!("{part} bytes at {} ({count} times, stride {:?})", entry.offset, entry.stride);
                Err(misfit(&format!("bytes within the {bytes} of {}", entry.file), found))
            }
        }
    }
}

impl TensorEntry {
    /// The type.
    pub fn dtype(&self) -> Option<DType> {
        DType::all().find(|dtype| dtype.name() == self.dtype)
    }

    /// Bytes of one part, and how many parts there are: a bank has one for each of its outermost entries.
    pub fn parts(&self) -> Option<(u64, u64)> {
        let count = match (self.stride, self.shape.first()) {
            (None, _) => 1,
            (Some(_), Some(count)) if self.shape.len() > 1 => *count,
            (Some(_), _) => return None,
        };
        let elements = element_count(&self.shape)?;
        let part = self.dtype()?.bytes_for(elements.checked_div(count).unwrap_or(0))?;
        Some((part as u64, count as u64))
    }
}

fn bad(folder: &Path, field: &str, expected: String, found: String) -> WeightsError {
    WeightsError::Field {
        path: folder.join(MANIFEST),
        field: field.into(),
        offset: 0,
        expected,
        found,
        remedy: "pack the model again, or use a version of turbospark that reads this one",
    }
}
