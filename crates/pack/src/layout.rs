//! Where every tensor lies in a `.gturbo` folder.

use crate::PackError;
use crate::choose::Choice;
use crate::content::{Content, Rows};
use crate::importance::Importance;
use model::Source;
use plan::{Program, Step};
use runtime::{About, ModelFiles};
use std::collections::{BTreeMap, BTreeSet};
use weights::Tensor;
use weights::gguf::write as gguf;
use weights::gturbo::{
    ALIGNMENT, ConfigKind, ExpertLayer, FileEntry, Manifest, ModelConfig, PAGE, RESIDENT, TensorEntry,
};

/// The keys of a model packed from GGUF.
const METADATA: &str = "metadata.gguf";
/// The configuration of a model packed from safetensors.
const CONFIG: &str = "config.json";
/// What is taken along beside it, as far as it is there.
const BESIDE: [&str; 12] = [
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "LICENSE",
    "merges.txt",
    "NOTICE",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
];

/// A tensor's part in the blobs of a layer: the same bytes of every blob.
struct Slot {
    members: Vec<Member>,
    length: u64,
}

enum Member {
    /// A bank: its entry of each expert.
    All(String),
    /// One expert's own tensor.
    One(usize, String),
}

/// The manifest without hashes.
pub(crate) fn plan(files: &ModelFiles, program: &Program, choice: &Choice) -> Result<Manifest, PackError> {
    let (kind, file) = match &files.about {
        About::Gguf(_) => (ConfigKind::Gguf, METADATA),
        About::Folder(_) => (ConfigKind::HuggingFace, CONFIG),
    };
    let mut manifest = Manifest::new(ModelConfig { kind, file: file.to_owned() });
    let names: BTreeMap<String, &str> =
        files.stored.iter().map(|t| (files.canonical_name(t.name()), t.name())).collect();
    let mut placed = BTreeSet::new();
    let banks: Vec<_> = program.steps.iter().filter_map(|step| bank_of(step, program)).collect();
    let numbers = layer_numbers(&banks);
    for ((experts, sources), layer) in banks.into_iter().zip(numbers) {
        let size = |tensor: &Tensor| size_of(choice, tensor);
        let slots = slots(&sources, experts, &|name| names.get(name).and_then(|n| files.stored.get(n)), &size, &placed);
        let mut offset = 0u64;
        let starts: Vec<u64> = slots.iter().map(|slot| start_of(&mut offset, slot.length)).collect();
        if offset == 0 {
            continue;
        }
        let (stride, file) = (offset.next_multiple_of(PAGE), format!("experts/layer_{layer:02}.bin"));
        for (member, start) in slots.iter().zip(starts).flat_map(|(s, start)| s.members.iter().map(move |m| (m, start)))
        {
            let (name, at, stride) = match member {
                Member::All(name) => (name, start, Some(stride)),
                Member::One(expert, name) => (name, start + *expert as u64 * stride, None),
            };
            placed.insert(name.clone());
            manifest.tensors.insert(name.clone(), entry(choice, files.stored.require(name)?, (&file, at), stride));
        }
        let bytes = stride * experts as u64;
        manifest.files.insert(file.clone(), FileEntry { bytes, ..FileEntry::default() });
        manifest.experts.push(ExpertLayer { layer, file, experts, stride });
    }
    manifest.experts.sort_by_key(|layer| layer.layer);
    let mut offset = 0;
    for tensor in files.stored.iter().filter(|t| !placed.contains(t.name())) {
        let at = start_of(&mut offset, size_of(choice, tensor));
        manifest.tensors.insert(tensor.name().into(), entry(choice, tensor, (RESIDENT, at), None));
    }
    manifest.files.insert(RESIDENT.to_owned(), FileEntry { bytes: offset, ..FileEntry::default() });
    Ok(manifest)
}

/// The files that are no tensors: the configuration, and what belongs to the tokenizer.
pub(crate) fn sides(files: &ModelFiles) -> Result<BTreeMap<String, Content>, PackError> {
    match &files.about {
        About::Gguf(keys) => {
            let file = gguf::layout(&keys.without_split(), &[])?;
            Ok([(METADATA.to_owned(), Content::of_bytes(file.header))].into())
        }
        About::Folder(folder) => {
            let there = BESIDE.into_iter().filter(|name| folder.join(name).is_file());
            let read = |name: &str| {
                let path = folder.join(name);
                Ok((name.to_owned(), Content::of_bytes(std::fs::read(&path).map_err(PackError::io("read", &path))?)))
            };
            [CONFIG].into_iter().chain(there).map(read).collect()
        }
    }
}

/// What every file of tensors holds, by the manifest's places and the source's values.
pub(crate) fn contents(
    manifest: &Manifest,
    files: &ModelFiles,
    importance: Option<&Importance>,
) -> Result<BTreeMap<String, Content>, PackError> {
    let mut contents: BTreeMap<String, Content> = BTreeMap::new();
    for (name, entry) in &manifest.tensors {
        let other = |reason| PackError::OtherSource { path: files.path.clone(), reason };
        let Some(tensor) = files.stored.get(name) else {
            return Err(other(format!("it has no tensor {name}")));
        };
        let (Some(to), Some((part, count))) = (entry.dtype(), entry.parts()) else {
            return Err(other(format!("{name} has the type {}", entry.dtype)));
        };
        if tensor.shape() != entry.shape {
            return Err(other(format!("{name} is {:?} there and {:?} packed", tensor.shape(), entry.shape)));
        }
        let content = contents.entry(entry.file.clone()).or_default();
        content.bytes = manifest.files[&entry.file].bytes;
        let rows = tensor.rows() / count.max(1) as usize;
        let importance = importance.and_then(|all| all.of([name, &files.canonical_name(name)]));
        for index in 0..if part == 0 { 0 } else { count as usize } {
            let rows = Rows {
                tensor: tensor.clone(),
                rows: index * rows..(index + 1) * rows,
                to,
                importance: importance.clone(),
            };
            content.push_rows(entry.offset + index as u64 * entry.stride.unwrap_or_default(), part, rows);
        }
    }
    contents.values_mut().for_each(Content::sort);
    Ok(contents)
}

/// The number of experts and the sources of a step's banks, in order of use.
fn bank_of<'a>(step: &Step, program: &'a Program) -> Option<(usize, Vec<&'a Source>)> {
    let Step::Experts { bank, .. } = step else { return None };
    let weights = [bank.gate, bank.up, bank.down].into_iter().chain(bank.biases.into_iter().flatten());
    let sources = weights.map(|id| &program.weight(id).source).collect();
    match program.weight(bank.gate).role {
        plan::WeightRole::Experts(experts) => Some((experts, sources)),
        _ => None,
    }
}

/// The numbers in the banks' names, if each has another; else they are counted.
fn layer_numbers(banks: &[(usize, Vec<&Source>)]) -> Vec<usize> {
    let number = |(_, sources): &(usize, Vec<&Source>)| {
        sources.first().and_then(|source| source.tensors().first()?.split('.').find_map(|part| part.parse().ok()))
    };
    let named: Option<Vec<usize>> = banks.iter().map(number).collect();
    let all_differ = |numbers: &Vec<usize>| numbers.iter().collect::<BTreeSet<_>>().len() == numbers.len();
    named.filter(all_differ).unwrap_or_else(|| (0..banks.len()).collect())
}

/// The parts of a layer's blobs. A tensor whose outermost dimension is the experts gives every blob its part; one of a
/// single expert belongs to that blob; others stay resident.
fn slots<'a>(
    sources: &[&Source],
    experts: usize,
    stored: &dyn Fn(&str) -> Option<&'a Tensor>,
    size: &dyn Fn(&Tensor) -> u64,
    placed: &BTreeSet<String>,
) -> Vec<Slot> {
    let mut seen = placed.clone();
    let mut slots = Vec::new();
    for source in sources {
        match source {
            Source::Stack(parts) if parts.len() == experts => {
                let of_expert: Vec<Vec<&Tensor>> = parts
                    .iter()
                    .map(|part| {
                        part.tensors().into_iter().filter_map(stored).filter(|t| seen.insert(t.name().into())).collect()
                    })
                    .collect();
                let most = of_expert.iter().map(Vec::len).max().unwrap_or_default();
                for k in 0..most {
                    let members = of_expert.iter().enumerate().filter_map(|(e, all)| Some((e, *all.get(k)?)));
                    let length = members.clone().map(|(_, t)| size(t)).max().unwrap_or_default();
                    let members = members.map(|(e, t)| Member::One(e, t.name().to_owned())).collect();
                    slots.push(Slot { members, length });
                }
            }
            source => {
                let tensors = source.tensors().into_iter().filter_map(stored);
                let banks = tensors.filter(|t| t.shape().len() > 1 && t.shape()[0] == experts && experts > 0);
                for tensor in banks {
                    if seen.insert(tensor.name().to_owned()) {
                        let length = size(tensor) / experts as u64;
                        slots.push(Slot { members: vec![Member::All(tensor.name().to_owned())], length });
                    }
                }
            }
        }
    }
    slots
}

/// Bytes of a tensor in the type chosen for it.
fn size_of(choice: &Choice, tensor: &Tensor) -> u64 {
    choice.types[tensor.name()].bytes_for(tensor.elements()).unwrap_or_default() as u64
}

/// The next aligned place, and room for `length` bytes there.
fn start_of(offset: &mut u64, length: u64) -> u64 {
    let start = offset.next_multiple_of(ALIGNMENT);
    *offset = start + length;
    start
}

/// What the manifest says of a tensor at a place.
fn entry(choice: &Choice, tensor: &Tensor, (file, offset): (&str, u64), stride: Option<u64>) -> TensorEntry {
    let dtype = choice.types[tensor.name()].name().to_owned();
    TensorEntry { dtype, shape: tensor.shape().to_vec(), file: file.to_owned(), offset, stride }
}
