//! Which tensor is rounded to which type.

use crate::{PackError, PackOptions};
use model::Source;
use plan::{Program, WeightRole, routers};
use runtime::ModelFiles;
use std::collections::{BTreeMap, BTreeSet};
use weights::{DType, Tensor};

/// What becomes of a tensor that is used in some way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Matrix,
    Expert,
    /// It is read as something that rounding would spoil, or in another order than it is stored.
    Exact,
}

/// The types tensors are written in, by stored name.
pub(crate) struct Choice {
    pub(crate) types: BTreeMap<String, DType>,
    pub(crate) notes: Vec<String>,
}

/// Decides for every tensor of a model.
///
/// Matrices of products, experts and lookup tables are rounded; vectors, routers and what is stored in another order than it
/// is used stay as they are. Where rows are no whole number of the type's blocks, a type of about its size with blocks of 32
/// takes its place.
pub(crate) fn choose(files: &ModelFiles, program: &Program, options: &PackOptions) -> Result<Choice, PackError> {
    let uses = uses(program);
    let mut notes = Notes::default();
    let mut types = BTreeMap::new();
    let mut matched = BTreeSet::new();
    for tensor in files.stored.iter() {
        let canonical = files.canonical_name(tensor.name());
        let used = uses.get(canonical.as_str()).copied();
        let by_use = match used {
            Some(Use::Expert) => options.experts.or(options.quantize),
            Some(Use::Matrix) => options.quantize,
            Some(Use::Exact) | None => None,
        };
        let named = |(_, keep): &(usize, &crate::Keep)| keep.matches(tensor.name()) || keep.matches(&canonical);
        let all: Vec<_> = options.keep.iter().enumerate().filter(named).collect();
        matched.extend(all.iter().map(|(index, _)| *index));
        let wanted = match all.last() {
            Some((_, keep)) => keep.to,
            None => by_use,
        };
        let to = match wanted {
            Some(wanted) => notes.rounded(tensor, wanted, used == Some(Use::Exact), options.requantize),
            None => tensor.dtype(),
        };
        types.insert(tensor.name().to_owned(), to);
    }
    if let Some((_, keep)) = options.keep.iter().enumerate().find(|(index, _)| !matched.contains(index)) {
        let near = match files.stored.require(&keep.pattern) {
            Err(weights::WeightsError::MissingTensor { near, .. }) if !near.is_empty() => near.join(", "),
            _ => "none".to_owned(),
        };
        return Err(PackError::NoSuchTensor { pattern: keep.pattern.clone(), near });
    }
    let asked = options.quantize.or(options.experts);
    if let Some(to) = asked.filter(|_| notes.rounded == 0) {
        let reason = match notes.lines().first() {
            Some(line) => line.clone(),
            None => "the model has no such matrices".to_owned(),
        };
        return Err(PackError::NothingToRound { to: to.name(), reason });
    }
    Ok(Choice { types, notes: notes.lines() })
}

fn uses(program: &Program) -> BTreeMap<&str, Use> {
    let routers = routers(program);
    let mut uses = BTreeMap::new();
    for (id, used) in program.weights.iter().enumerate() {
        let router = routers.contains(&plan::WeightId(id as u32));
        let by_role = match used.role {
            _ if router || !in_order(&used.source) => Use::Exact,
            WeightRole::Vector => Use::Exact,
            WeightRole::Experts(_) => Use::Expert,
            WeightRole::Matrix | WeightRole::Table => Use::Matrix,
        };
        for name in used.source.tensors() {
            let entry = uses.entry(name).or_insert(by_role);
            if by_role == Use::Exact {
                *entry = Use::Exact;
            }
        }
    }
    uses
}

/// Whether the rows of the stored tensors are rows of the weight.
fn in_order(source: &Source) -> bool {
    match source {
        Source::Tensor(_) => true,
        Source::Rows { of, .. } => in_order(of),
        Source::Stack(parts) => parts.iter().all(in_order),
        Source::PlusOne(_)
        | Source::NegExp(_)
        | Source::Transpose { .. }
        | Source::Column(_)
        | Source::Mxfp4 { .. } => false,
    }
}

/// Why tensors are not rounded as asked, each with the first one and how many there are.
#[derive(Default)]
struct Notes {
    rounded: usize,
    why: BTreeMap<String, (String, usize)>,
}

impl Notes {
    /// The type a tensor gets where `wanted` is asked for.
    fn rounded(&mut self, tensor: &Tensor, wanted: DType, exact: bool, again: bool) -> DType {
        let stored = tensor.dtype();
        let mut stays = |why: String| {
            let (_, count) = self.why.entry(why).or_insert((tensor.name().to_owned(), 0));
            *count += 1;
        };
        if stored == wanted {
            self.rounded += 1;
            return stored;
        }
        if exact || tensor.shape().len() < 2 {
            stays("stay as stored: they are read in another order, or rounding would spoil them".to_owned());
            return stored;
        }
        if !stored.is_float() && !again {
            stays(format!("stay {stored}: they are rounded already, and rounding again (--requantize) loses more"));
            return stored;
        }
        let fits = |to: DType| to.bytes_for(tensor.cols()).is_some();
        match [wanted, in_blocks_of_32(wanted)].into_iter().find(|to| fits(*to)) {
            Some(to) => {
                if to != wanted {
                    stays(format!("become {to}: their rows are no multiple of {} values", wanted.block_len()));
                }
                self.rounded += 1;
                to
            }
            None => {
                stays(format!("stay {stored}: their rows are no multiple of 32 values"));
                stored
            }
        }
    }

    fn lines(&self) -> Vec<String> {
        let line = |(why, (first, count)): (&String, &(String, usize))| match count {
            1 => format!("{first}: {why}"),
            n => format!("{first} and {} more: {why}", n - 1),
        };
        self.why.iter().map(line).collect()
    }
}

/// A type of about the same size whose blocks are 32 values.
fn in_blocks_of_32(dtype: DType) -> DType {
    match dtype {
        DType::Q2K | DType::Q3K | DType::IQ4XS => DType::IQ4NL,
        DType::Q4K => DType::Q5_0,
        DType::Q5K => DType::Q5_1,
        DType::Q6K => DType::Q8_0,
        other => other,
    }
}
