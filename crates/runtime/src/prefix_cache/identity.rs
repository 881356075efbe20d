//! What else than tokens decides a state: who may share one, and who may read one that another process saved.

use crate::checkpoint::ModelFiles;
use plan::{ContextKey, Fingerprint, KvPlan, Limits, Program, Residency};
use std::path::Path;
use std::time::UNIX_EPOCH;
use weights::{Tensor, Weights};

/// Tensors up to this size are part of a fingerprint as a whole.
const WHOLE: usize = 16 << 10;

/// Bytes that count of each of three rows of a larger one.
const SAMPLE: usize = 1 << 10;

/// The key of everything that one opened model computes: the model's files, its programs with all that steering and
/// rounding changed in them, the content of steering directions, and how keys and values are stored.
pub(crate) fn context_key(files: &ModelFiles, weights: &Weights, programs: &[Program], kv: &KvPlan) -> ContextKey {
    let programs = wherever_experts_are(programs);
    let key = ContextKey::default()
        .with("model", &files_of(&files.path))
        .with("programs", format!("{programs:?}").as_bytes())
        .with("kv", kv.to_string().as_bytes());
    let beside = weights.iter().filter(|tensor| files.weights.get(tensor.name()).is_none());
    beside.fold(key, |key, direction| key.with(direction.name(), direction.bytes()))
}

/// The fingerprint of a model for files of states: where it is, how large and how old, and its tensors, of large ones
/// a part.
pub(crate) fn fingerprint(
    files: &ModelFiles,
    weights: &Weights,
    device: &str,
    programs: &[Program],
    limits: &Limits,
) -> Fingerprint {
    let mut model = files_of(&files.path);
    for tensor in weights.iter() {
        model.extend(format!("{} {} {:?} ", tensor.name(), tensor.dtype(), tensor.shape()).bytes());
        samples(tensor).into_iter().for_each(|sample| model.extend(sample));
    }
    Fingerprint::new(&model, device, &wherever_experts_are(programs), limits)
}

/// The programs as they compute: where experts are kept changes no bit.
fn wherever_experts_are(programs: &[Program]) -> Vec<Program> {
    let mut programs = programs.to_vec();
    programs.iter_mut().flat_map(|p| &mut p.weights).for_each(|used| used.residency = Residency::Ram);
    programs
}

/// All of a small tensor; of a large one the beginning of its first row, of one in the middle and of its last, which reads no
/// more of it.
fn samples(tensor: &Tensor) -> Vec<Vec<u8>> {
    if tensor.stored_bytes() <= WHOLE {
        return vec![tensor.bytes().to_vec()];
    }
    let last = tensor.rows().saturating_sub(1);
    let rows = [0, last / 2, last].into_iter().filter_map(|row| tensor.row_range(row..row + 1).ok());
    rows.map(|row| row.bytes()[..row.bytes().len().min(SAMPLE)].to_vec()).collect()
}

/// Names, sizes and ages of a model's files. What cannot be read has neither; it was readable when it was opened.
fn files_of(path: &Path) -> Vec<u8> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let inside = std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut all: Vec<_> = inside.chain([path.clone()]).collect();
    all.sort();
    let one = |file: &std::path::PathBuf| {
        let found = file.metadata().ok();
        let age = found.as_ref().and_then(|f| f.modified().ok()).and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let size = found.filter(|f| f.is_file()).map(|f| f.len());
        format!("{file:?} {size:?} {:?} ", age.filter(|_| size.is_some()))
    };
    all.iter().flat_map(|file| one(file).into_bytes()).collect()
}
