//! Where experts are kept: all in memory, in the mapped files, or on disk with some in memory, by what there is room for.

use crate::RuntimeError;
use crate::open::{OpenOptions, mebibytes};
use plan::{Budget, Caps, PlanError, Program, Residency};
use std::fmt;
use std::str::FromStr;
use streaming::{BankPlace, banks, slots_within, streamed_bytes};
use weights::Weights;

/// Positions that a context not asked for is given before experts get the rest of the memory.
const CONTEXT: usize = 4096;

/// Where experts are to be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpertChoice {
    /// In memory if everything fits; else, where the machine's memory nearly holds them, in the mapped files; else streamed, with
    /// as many slots as fit.
    #[default]
    Auto,
    /// All in memory.
    Ram,
    /// In the mapped files, as far as the page cache holds them.
    Mapped,
    /// Read when they are needed; so many of each layer stay in memory, or as many as fit.
    Streamed(Option<usize>),
}

impl FromStr for ExpertChoice {
    type Err = RuntimeError;

    fn from_str(text: &str) -> Result<Self, RuntimeError> {
        let slots = |text: &str| text.parse().ok().filter(|n| *n > 0);
        match (text, text.strip_prefix("streamed:").and_then(slots)) {
            ("auto", _) => Ok(Self::Auto),
            ("ram", _) => Ok(Self::Ram),
            ("mapped", _) => Ok(Self::Mapped),
            ("streamed", _) => Ok(Self::Streamed(None)),
            (_, Some(slots)) => Ok(Self::Streamed(Some(slots))),
            _ => Err(RuntimeError::BadValue {
                found: text.to_owned(),
                reason: "expected auto, ram, mapped, streamed or streamed:SLOTS with at least 1 slot a layer"
                    .to_owned(),
            }),
        }
    }
}

/// Where one layer's experts are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertLayerReport {
    /// The layer.
    pub layer: usize,
    /// Its experts.
    pub experts: usize,
    /// Where they are.
    pub residency: Residency,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Bytes of one in a slot.
    pub slot: u64,
}

/// Where experts are kept, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpertReport {
    /// Layer by layer.
    pub layers: Vec<ExpertLayerReport>,
    /// Bytes of memory for them.
    pub held: u64,
    /// The sum that decided, where one was made.
    pub arithmetic: Option<String>,
}

impl fmt::Display for ExpertReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = mebibytes(self.layers.iter().map(|layer| layer.bytes).sum());
        let (count, held) = (self.layers.len(), mebibytes(self.held));
        match self.layers.first().map_or(Residency::Ram, |layer| layer.residency) {
            Residency::Ram => write!(f, "experts in memory: {all} in {count} layers")?,
            Residency::Mapped => {
                write!(f, "experts mapped: {all} in {count} layers, as far as the page cache holds them")?
            }
            Residency::Streamed { slots } => {
                let experts = self.layers.first().map_or(0, |layer| layer.experts);
                write!(
                    f,
                    "experts streamed: {} of {experts} in each of {count} layers stay in memory",
                    slots.min(experts)
                )?;
                write!(f, ", {held} of {all} with those being read")?;
            }
        }
        self.arithmetic.iter().try_for_each(|sum| write!(f, "; {sum}"))
    }
}

/// What was decided of a program's experts.
#[derive(Default)]
pub(crate) struct Placed {
    pub(crate) report: Option<ExpertReport>,
    /// The most positions of a context that was not asked for.
    pub(crate) context: Option<usize>,
}

/// Decides where a program's experts are kept. `budget` is the memory of the program with a context of so many positions.
pub(crate) fn place(
    (program, weights): (&mut Program, &Weights),
    caps: &Caps,
    options: &OpenOptions,
    (trained, available): (usize, Option<u64>),
    budget: &dyn Fn(&Program, usize) -> Result<Budget, PlanError>,
) -> Result<Placed, RuntimeError> {
    let uses = program.banks();
    if uses.is_empty() {
        return match options.experts {
            ExpertChoice::Auto => Ok(Placed::default()),
            _ => Err(RuntimeError::NoExperts),
        };
    }
    let places = banks(program, weights);
    let context = options.context.unwrap_or(trained.min(CONTEXT));
    let mut sum = None;
    let residency = match options.experts {
        ExpertChoice::Ram => Residency::Ram,
        ExpertChoice::Mapped => Residency::Mapped,
        ExpertChoice::Streamed(Some(slots)) => Residency::Streamed { slots },
        ExpertChoice::Auto if !caps.places_experts => Residency::Ram,
        ExpertChoice::Auto | ExpertChoice::Streamed(None) => {
            let full = budget(program, context)?;
            let fits = available.is_none_or(|available| full.total() <= available);
            let auto = options.experts == ExpertChoice::Auto;
            match (&places, available) {
                _ if auto && fits => Residency::Ram,
                (Ok(places), Some(available)) => {
                    let (chosen, said) = within(places, &full, (available, context), auto && options.memory.is_none())?;
                    sum = Some(said);
                    chosen
                }
                (Ok(places), None) => {
                    Residency::Streamed { slots: places.iter().map(|p| p.bank.experts / 4).max().unwrap_or(1).max(1) }
                }
                (Err(_), _) if auto => Residency::Ram,
                (Err(_), _) => Residency::Streamed { slots: 1 },
            }
        }
    };
    // Whoever asks for experts outside memory is told why they cannot be.
    let elsewhere = residency != Residency::Ram;
    let places = if elsewhere && caps.places_experts { places? } else { places.unwrap_or_default() };
    if residency == Residency::Mapped
        && caps.places_experts
        && let Some(place) = places.iter().find(|p| !p.mappable)
    {
        let name = program.weight(place.bank.weights[0]).source.to_string();
        return Err(PlanError::ExpertsNotMapped { name }.into());
    }
    uses.iter().for_each(|bank| program.keep_experts(bank, residency));
    let layer = |place: &BankPlace| ExpertLayerReport {
        layer: place.bank.layer,
        experts: place.bank.experts,
        residency,
        bytes: place.bytes,
        slot: place.slot,
    };
    let held = match residency {
        Residency::Ram => places.iter().map(|place| place.bytes).sum(),
        Residency::Mapped => 0,
        Residency::Streamed { slots } => streamed_bytes(&places, |_| Some(slots)),
    };
    let report = ExpertReport { layers: places.iter().map(layer).collect(), held, arithmetic: sum };
    Ok(Placed { report: Some(report), context: (elsewhere && options.context.is_none()).then_some(context) })
}

/// Where experts are kept that do not all fit into memory, and the sum behind it. `full` has them all in memory.
fn within(
    places: &[BankPlace],
    full: &Budget,
    (available, context): (u64, usize),
    may_map: bool,
) -> Result<(Residency, String), RuntimeError> {
    let experts: u64 = places.iter().map(|place| place.bytes).sum();
    let beside = full.total().saturating_sub(experts);
    let left = available.saturating_sub(beside);
    let sum = format!(
        "{} available - weights beside experts {} - cache of {context} positions {} - activations {} = {}",
        mebibytes(available),
        mebibytes(full.weights.saturating_sub(experts)),
        mebibytes(full.states),
        mebibytes(full.slots),
        mebibytes(left),
    );
    // Pages of the files can always be dropped: what nearly fits is best left to the system's cache.
    if may_map && places.iter().all(|place| place.mappable) && experts / 10 * 9 <= left {
        return Ok((Residency::Mapped, format!("{sum} for experts of {}", mebibytes(experts))));
    }
    match slots_within(places, left) {
        0 => {
            let least = streamed_bytes(places, |_| Some(1));
            Err(RuntimeError::Memory {
                needed: mebibytes(beside + least),
                available: mebibytes(available),
                arithmetic: format!(
                    "{sum} for experts, of which one a layer and those being read take {}",
                    mebibytes(least)
                ),
            })
        }
        slots => Ok((Residency::Streamed { slots }, format!("{sum} for experts"))),
    }
}
