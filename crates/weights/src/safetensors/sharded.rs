//! Checkpoints in several safetensors files, listed by an index (`weight_map`: tensor name → file name).

use super::SafetensorsFile;
use super::header::UniqueStrings;
use crate::map::Map;
use crate::{Weights, WeightsError};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

#[derive(Deserialize)]
struct Index {
    weight_map: UniqueStrings,
}

/// Opens every shard that the index names. All tensors of the shards are taken, also those that the index leaves
/// out; a tensor that the index promises and its shard lacks is an error, and so is one that two shards hold.
pub(super) fn open(index_path: &Path) -> Result<SafetensorsFile, WeightsError> {
    let weight_map = read_index(index_path)?;
    let shards: BTreeSet<&str> = weight_map.values().map(String::as_str).collect();
    for shard in &shards {
        check_name(index_path, shard)?;
    }
    let missing: Vec<&str> =
        shards.iter().copied().filter(|shard| !index_path.with_file_name(shard).is_file()).collect();
    if !missing.is_empty() {
        return Err(WeightsError::MissingFiles { path: index_path.into(), missing: missing.join(", ") });
    }
    let mut metadata = BTreeMap::new();
    let mut weights = Weights::default();
    let mut homes: BTreeMap<String, &str> = BTreeMap::new();
    for shard in shards {
        let file = SafetensorsFile::open(&index_path.with_file_name(shard))?;
        for (key, value) in file.metadata {
            metadata.entry(key).or_insert(value);
        }
        for tensor in file.weights.iter() {
            if let Some(other) = homes.insert(tensor.name().into(), shard) {
                return Err(WeightsError::Duplicate {
                    path: index_path.into(),
                    kind: "tensor",
                    name: tensor.name().into(),
                    place: format!("in {other} and in {shard}"),
                });
            }
            weights.insert(tensor.clone());
        }
    }
    for (name, shard) in &weight_map {
        if homes.get(name) != Some(&shard.as_str()) {
            let found = homes.get(name).map_or("in no shard".into(), |home| format!("in {home}"));
            return Err(field(index_path, format!("place of tensor `{name}`"), format!("in {shard}"), found));
        }
    }
    Ok(SafetensorsFile { metadata, weights })
}

fn read_index(path: &Path) -> Result<BTreeMap<String, String>, WeightsError> {
    let map = Map::open(path)?;
    let index: Index = serde_json::from_slice(map.bytes()).map_err(|error| {
        let expected = "a JSON object with `weight_map`, an object of file names";
        field(path, "index".into(), expected.into(), error.to_string())
    })?;
    Ok(index.weight_map.0)
}

/// A shard is a plain file name: it cannot lead out of the directory of its index, on any system.
fn check_name(index: &Path, name: &str) -> Result<(), WeightsError> {
    let mut components = Path::new(name).components();
    let single = matches!((components.next(), components.next()), (Some(Component::Normal(_)), None));
    if single && !name.contains(['/', '\\', ':', '\0']) {
        return Ok(());
    }
    let expected = "a file name without directories".into();
    Err(field(index, "shard name in `weight_map`".into(), expected, format!("{name:?}")))
}

fn field(path: &Path, field: String, expected: String, found: String) -> WeightsError {
    WeightsError::Field {
        path: path.into(),
        field,
        offset: 0,
        expected,
        found,
        remedy: "the index is damaged or does not belong to these shards, download both again",
    }
}
