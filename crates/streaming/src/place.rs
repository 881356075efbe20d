//! What reading one expert takes: which stretches of which files, and what is made of them.

use plan::{BankUse, ExpertMatrix, PlanError, Program, Residency};
use std::ops::Range;
use weights::io::FileRange;
use weights::{DType, Tensor, Weights};

/// Stretches of a file less than this apart are read as one.
const GAP: u64 = 64 << 10;

/// The experts of one layer: what they take in memory, mapped and streamed.
#[derive(Debug)]
pub struct BankPlace {
    /// The bank.
    pub bank: BankUse,
    /// Bytes of all experts as they are used.
    pub bytes: u64,
    /// Bytes of one expert in a slot of its own.
    pub slot: u64,
    /// Whether the experts can be used where they are mapped: they are stored in the order and type they are used in.
    pub mappable: bool,
    pub(crate) experts: Vec<ExpertPlace>,
}

/// One expert.
#[derive(Debug)]
pub(crate) struct ExpertPlace {
    /// What is read of it.
    pub(crate) reads: Vec<FileRange>,
    /// Gate, up and down.
    pub(crate) parts: [PartPlace; 3],
}

/// One of an expert's matrices.
#[derive(Debug)]
pub(crate) enum PartPlace {
    /// Bytes of a read as they are.
    AsStored { dtype: DType, rows: usize, cols: usize, at: Within },
    /// Made of tensors that lie in reads.
    Made { matrix: Box<ExpertMatrix>, tensors: Vec<(Tensor, Within)>, bytes: u64 },
}

/// Bytes of one of an expert's reads.
#[derive(Clone, Debug)]
pub(crate) struct Within {
    pub(crate) read: usize,
    pub(crate) bytes: Range<usize>,
}

/// The banks of a program, in order of use, and what their experts take.
///
/// # Errors
/// If a bank's experts do not lie apart from each other, or are not in a file.
pub fn banks(program: &Program, weights: &Weights) -> Result<Vec<BankPlace>, PlanError> {
    program.banks().into_iter().map(|bank| BankPlace::new(program, bank, weights)).collect()
}

impl BankPlace {
    fn new(program: &Program, bank: BankUse, weights: &Weights) -> Result<Self, PlanError> {
        let expert = |expert: usize| ExpertPlace::new(program, &bank, weights, expert);
        let experts = (0..bank.experts).map(expert).collect::<Result<Vec<_>, _>>()?;
        let bytes = experts.iter().map(|e| e.parts.iter().map(PartPlace::bytes).sum::<u64>()).sum();
        let mappable = experts.iter().flat_map(|e| &e.parts).all(|p| matches!(p, PartPlace::AsStored { .. }));
        let mut place = Self { bank, bytes, slot: 0, mappable, experts };
        let largest = |of: &dyn Fn(&ExpertPlace) -> u64| place.experts.iter().map(of).max().unwrap_or(0);
        place.slot = place.buffer() * u64::from(place.keeps_buffers()) + largest(&ExpertPlace::made_bytes);
        Ok(place)
    }

    /// Bytes of each buffer that any of the experts is read into.
    pub(crate) fn buffers(&self) -> Vec<usize> {
        let count = self.experts.iter().map(|e| e.reads.len()).max().unwrap_or(0);
        let window = |at: usize| self.experts.iter().filter_map(move |e| e.reads.get(at).map(FileRange::window));
        (0..count).map(|at| window(at).max().unwrap_or(0)).collect()
    }

    /// Bytes of all the buffers of one expert.
    fn buffer(&self) -> u64 {
        self.buffers().iter().map(|bytes| *bytes as u64).sum()
    }

    /// Bytes of one expert while it is being read.
    pub(crate) fn staged(&self) -> u64 {
        self.buffer() + self.experts.iter().map(ExpertPlace::made_bytes).max().unwrap_or(0)
    }

    /// Whether an expert uses what was read as it is.
    pub(crate) fn keeps_buffers(&self) -> bool {
        self.experts.iter().flat_map(|e| &e.parts).any(|p| matches!(p, PartPlace::AsStored { .. }))
    }
}

impl ExpertPlace {
    fn new(program: &Program, bank: &BankUse, weights: &Weights, expert: usize) -> Result<Self, PlanError> {
        let mut ranges: Vec<FileRange> = Vec::new();
        let mut matrices = Vec::new();
        for id in bank.weights {
            let matrix = ExpertMatrix::new(program.weight(id), weights, expert)?;
            let tensors: Vec<_> = match matrix.as_stored() {
                Some(tensor) => vec![tensor],
                None => matrix.tensors().cloned().collect(),
            };
            let together = || PlanError::ExpertsTogether { name: program.weight(id).source.to_string() };
            let places = tensors.iter().map(|t| t.file_range().ok_or_else(together)).collect::<Result<Vec<_>, _>>()?;
            ranges.extend(places.iter().cloned());
            matrices.push((matrix, tensors, places));
        }
        let reads = joined(ranges);
        let within = |place: &FileRange| {
            let holds = |read: &FileRange| {
                read.path == place.path
                    && read.offset <= place.offset
                    && place.offset + place.bytes as u64 <= read.offset + read.bytes as u64
            };
            let Some(at) = reads.iter().position(holds) else { unreachable!("every place is in a read") };
            let start = (place.offset - reads[at].offset) as usize;
            Within { read: at, bytes: start..start + place.bytes }
        };
        let part = |(matrix, tensors, places): (ExpertMatrix, Vec<Tensor>, Vec<FileRange>)| {
            if matrix.as_stored().is_some() {
                let (tensor, at) = (&tensors[0], within(&places[0]));
                return Ok(PartPlace::AsStored { dtype: tensor.dtype(), rows: tensor.rows(), cols: tensor.cols(), at });
            }
            let (rows, cols) = (matrix.rows(), matrix.cols());
            let bytes = matrix.dtype()?.bytes_for(rows * cols).unwrap_or_default() as u64;
            let tensors = tensors.into_iter().zip(places.iter().map(within)).collect();
            Ok(PartPlace::Made { matrix: Box::new(matrix), tensors, bytes })
        };
        let parts = matrices.into_iter().map(part).collect::<Result<Vec<_>, PlanError>>()?;
        let Ok(parts) = parts.try_into() else { unreachable!("a bank has three matrices") };
        Ok(Self { reads, parts })
    }

    fn made_bytes(&self) -> u64 {
        self.parts.iter().filter(|p| matches!(p, PartPlace::Made { .. })).map(PartPlace::bytes).sum()
    }
}

impl PartPlace {
    /// Bytes of the matrix as it is used.
    fn bytes(&self) -> u64 {
        match self {
            Self::AsStored { at, .. } => at.bytes.len() as u64,
            Self::Made { bytes, .. } => *bytes,
        }
    }
}

/// Stretches in order, those that are neighbours or nearly so as one.
fn joined(mut ranges: Vec<FileRange>) -> Vec<FileRange> {
    ranges.sort_by(|a, b| (&a.path, a.offset).cmp(&(&b.path, b.offset)));
    let mut reads: Vec<FileRange> = Vec::new();
    for range in ranges {
        match reads.last_mut() {
            Some(last) if last.path == range.path && range.offset <= last.offset + last.bytes as u64 + GAP => {
                let end = (last.offset + last.bytes as u64).max(range.offset + range.bytes as u64);
                last.bytes = (end - last.offset) as usize;
            }
            _ => reads.push(range),
        }
    }
    reads
}

/// Experts that are read at once beside those that are kept: as many as a row may miss.
fn staging(banks: &[BankPlace]) -> (u64, usize) {
    let largest = banks.iter().map(BankPlace::staged).max().unwrap_or(0);
    (largest, banks.iter().map(|b| b.bank.top_k).max().unwrap_or(0))
}

/// Bytes that streamed experts take where each layer keeps so many: the slots, and those being read.
pub fn streamed_bytes(banks: &[BankPlace], slots: impl Fn(&BankPlace) -> Option<usize>) -> u64 {
    let kept = |bank: &BankPlace| slots(bank).map_or(0, |n| n.min(bank.bank.experts) as u64 * bank.slot);
    let (staged, count) = staging(banks);
    let any = banks.iter().any(|bank| slots(bank).is_some());
    banks.iter().map(kept).sum::<u64>() + if any { staged * count as u64 } else { 0 }
}

/// The most experts a layer that all layers can keep within so many bytes; 0 if not one.
pub fn slots_within(banks: &[BankPlace], bytes: u64) -> usize {
    let most = banks.iter().map(|b| b.bank.experts).max().unwrap_or(0);
    (0..=most).rev().find(|n| *n == 0 || streamed_bytes(banks, |_| Some(*n)) <= bytes).unwrap_or(0)
}

/// The slots a bank was given, if its experts are streamed.
pub(crate) fn given(program: &Program, bank: &BankPlace) -> Option<usize> {
    match program.weight(bank.bank.weights[0]).residency {
        Residency::Streamed { slots } => Some(slots.clamp(1, bank.bank.experts.max(1))),
        _ => None,
    }
}
