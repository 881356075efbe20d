//! The order in which samplers act.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// One step of the chain.
///
/// Biases and masks are none of them: both act after [`Penalties`](Self::Penalties) and [`Dry`](Self::Dry) and before
/// everything else, always, so that no cut leaves only tokens that are not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampler {
    /// Repetition, presence and frequency penalties.
    Penalties,
    /// Don't repeat yourself.
    Dry,
    /// Division of the logits.
    Temperature,
    /// The k best.
    TopK,
    /// The tokens nearest to the expected surprise.
    TypicalP,
    /// The best that reach a probability mass.
    TopP,
    /// Those with a fraction of the best probability.
    MinP,
    /// All but the least probable of the good choices.
    Xtc,
    /// A bound of surprise that follows an aim.
    Mirostat,
}

impl Sampler {
    /// All, in the order of [`Chain::default`].
    pub const ALL: [Self; 9] = [
        Self::Penalties,
        Self::Dry,
        Self::Temperature,
        Self::TopK,
        Self::TopP,
        Self::MinP,
        Self::TypicalP,
        Self::Xtc,
        Self::Mirostat,
    ];

    /// The name in a list of samplers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Penalties => "penalties",
            Self::Dry => "dry",
            Self::Temperature => "temperature",
            Self::TopK => "top-k",
            Self::TypicalP => "typical-p",
            Self::TopP => "top-p",
            Self::MinP => "min-p",
            Self::Xtc => "xtc",
            Self::Mirostat => "mirostat",
        }
    }
}

/// The samplers that act, in order. One that is not part of it must be off.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    order: [Sampler; Sampler::ALL.len()],
    len: usize,
}

/// A list of samplers that is no chain.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ChainError {
    /// A name nobody has.
    #[error("there is no sampler {found:?}; there are {}, and the presets default and original", names(&Sampler::ALL))]
    Unknown {
        /// The name.
        found: String,
    },
    /// A sampler stands in the list twice.
    #[error("{} is named twice; each sampler acts once", .0.name())]
    Twice(Sampler),
    /// Temperature is missing.
    #[error("temperature is not named, and every chain has one; place it, as in penalties,temperature,top-k")]
    NoTemperature,
    /// One that changes logits stands behind one that cuts.
    #[error("{} stands behind {}; penalties and dry change logits and come before all others", .late.name(), .early.name())]
    Late {
        /// The one that comes too late.
        late: Sampler,
        /// One before it.
        early: Sampler,
    },
    /// Mirostat is not the last.
    #[error("mirostat is followed by {}; it bounds what is drawn from, so it comes last", .0.name())]
    MirostatNotLast(Sampler),
}

fn names(samplers: &[Sampler]) -> String {
    samplers.iter().map(|sampler| sampler.name()).collect::<Vec<_>>().join(", ")
}

impl Chain {
    /// The order of the original runtime: cuts by the probabilities at temperature 1, temperature only then.
    ///
    /// Penalties act at temperature 0 too, where the original had none.
    pub const ORIGINAL: Self = Self {
        order: [
            Sampler::Penalties,
            Sampler::Dry,
            Sampler::TopP,
            Sampler::TopK,
            Sampler::MinP,
            Sampler::TypicalP,
            Sampler::Xtc,
            Sampler::Temperature,
            Sampler::Mirostat,
        ],
        len: Sampler::ALL.len(),
    };

    /// A chain of these samplers.
    ///
    /// # Errors
    /// A sampler named twice, no temperature, penalties or DRY behind another, mirostat not last.
    pub fn new(samplers: &[Sampler]) -> Result<Self, ChainError> {
        let changes = |sampler: Sampler| matches!(sampler, Sampler::Penalties | Sampler::Dry);
        let mut chain = Self { order: Sampler::ALL, len: 0 };
        for &sampler in samplers {
            if chain.has(sampler) {
                return Err(ChainError::Twice(sampler));
            }
            if let Some(&early) = chain.order().iter().find(|early| changes(sampler) && !changes(**early)) {
                return Err(ChainError::Late { late: sampler, early });
            }
            if chain.has(Sampler::Mirostat) {
                return Err(ChainError::MirostatNotLast(sampler));
            }
            chain.order[chain.len] = sampler;
            chain.len += 1;
        }
        if chain.has(Sampler::Temperature) { Ok(chain) } else { Err(ChainError::NoTemperature) }
    }

    /// The samplers in order.
    pub fn order(&self) -> &[Sampler] {
        &self.order[..self.len]
    }

    /// Whether a sampler is part of it.
    pub fn has(&self, sampler: Sampler) -> bool {
        self.order().contains(&sampler)
    }
}

/// All samplers in the order of [`Sampler::ALL`].
impl Default for Chain {
    fn default() -> Self {
        Self { order: Sampler::ALL, len: Sampler::ALL.len() }
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.order().iter().map(|sampler| sampler.name()).collect::<Vec<_>>().join(","))
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chain({self})")
    }
}

/// Names separated by commas, or `default`, or `original`.
impl FromStr for Chain {
    type Err = ChainError;

    fn from_str(text: &str) -> Result<Self, ChainError> {
        match text {
            "default" => return Ok(Self::default()),
            "original" => return Ok(Self::ORIGINAL),
            _ => {}
        }
        let find = |name: &str| {
            let found = Sampler::ALL.into_iter().find(|sampler| sampler.name() == name);
            found.ok_or_else(|| ChainError::Unknown { found: name.to_owned() })
        };
        Self::new(&text.split(',').map(|name| find(name.trim())).collect::<Result<Vec<_>, _>>()?)
    }
}
