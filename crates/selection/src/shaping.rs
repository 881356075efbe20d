//! The sampling parameters of one sequence, checked once when they are made.

use crate::chain::{Chain, Sampler};
use foundation::TokenId;
use std::sync::Arc;
use thiserror::Error;

/// Sampling parameters as a caller writes them; [`Shaping::new`] checks them.
///
/// The default is plain sampling: temperature 1, everything else off, seed 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShapingOptions {
    /// Divides the logits; 0 takes the best token after penalties, biases and the mask. Finite, at least 0.
    pub temperature: f32,
    /// Keep the `top_k` best tokens; 0, or at least the vocabulary, is off.
    pub top_k: usize,
    /// Keep the fewest best tokens whose probabilities reach this; 0 keeps the best one, 1 or
    /// more is off.
    pub top_p: f32,
    /// Keep tokens with at least this fraction of the best probability; 0 is off. In 0 to 1.
    pub min_p: f32,
    /// Keep the fewest tokens of nearly the expected surprise whose probabilities reach this; 1 is off. In 0 to 1.
    pub typical_p: f32,
    /// How often the best choices are excluded; 0 is off. In 0 to 1.
    pub xtc_probability: f32,
    /// Probability that makes a token one of the best choices; above 0.5 there are never two. In 0 to 1.
    pub xtc_threshold: f32,
    /// Divides positive and multiplies negative logits of every distinct token in the history,
    /// once each; 1 is off. Greater than 0.
    pub repetition_penalty: f32,
    /// Subtracted once from the logit of each token generated so far. In −2 to 2.
    pub presence_penalty: f32,
    /// Subtracted from the logit of a token for each time it was generated. In −2 to 2.
    pub frequency_penalty: f32,
    /// How many of the last tokens the penalties look at; `None`: all, the prompt included. At least 1.
    pub penalty_window: Option<usize>,
    /// Weakens what would continue a repetition.
    pub dry: Option<Dry>,
    /// Bounds surprise by an aim; every other cut must be off.
    pub mirostat: Option<Mirostat>,
    /// Who acts, and in which order.
    pub samplers: Chain,
    /// Keys the generator. A caller without a seed takes [`fresh_seed`](crate::fresh_seed) and
    /// reports it.
    pub seed: u64,
}

/// Subtracts `multiplier · base^(length − allowed_length)` from tokens that would prolong a repetition of `length` tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dry {
    /// Finite, greater than 0.
    pub multiplier: f32,
    /// Finite, at least 1.
    pub base: f32,
    /// Shorter repetitions are free.
    pub allowed_length: usize,
    /// How many of the last tokens are looked at; `None`: all. At least 1.
    pub range: Option<usize>,
}

impl Default for Dry {
    fn default() -> Self {
        Self { multiplier: 0.8, base: 1.75, allowed_length: 2, range: None }
    }
}

/// Mirostat 2: cuts tokens above a bound of surprise that moves so that the surprise of the chosen ones comes to `tau`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mirostat {
    /// The surprise aimed at, in bits. Finite, greater than 0.
    pub tau: f32,
    /// How fast the bound follows. In 0 to 1.
    pub eta: f32,
}

impl Default for Mirostat {
    fn default() -> Self {
        Self { tau: 5.0, eta: 0.1 }
    }
}

impl Default for ShapingOptions {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_window: None,
            dry: None,
            mirostat: None,
            samplers: Chain::default(),
            seed: 0,
        }
    }
}

impl ShapingOptions {
    /// Whether a sampler does anything. Temperature always does.
    pub fn uses(&self, sampler: Sampler) -> bool {
        match sampler {
            Sampler::Penalties => {
                self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
            }
            Sampler::Dry => self.dry.is_some(),
            Sampler::Temperature => true,
            Sampler::TopK => self.top_k > 0,
            Sampler::TypicalP => self.typical_p < 1.0,
            Sampler::TopP => self.top_p < 1.0,
            Sampler::MinP => self.min_p > 0.0,
            Sampler::Xtc => self.xtc_probability > 0.0 && self.xtc_threshold <= 0.5,
            Sampler::Mirostat => self.mirostat.is_some(),
        }
    }
}

/// Sampling parameters that cannot be used.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ShapingError {
    /// A parameter outside its range.
    #[error("{field} is {found}; it must be {allowed}")]
    OutOfRange {
        /// The field of [`ShapingOptions`].
        field: &'static str,
        /// The values it may take, in words.
        allowed: &'static str,
        /// The value found.
        found: f32,
    },
    /// A bias that is no bias.
    #[error("the bias of token {id} is {found}; it must be a finite number, or -inf to forbid the token")]
    Bias {
        /// The token.
        id: TokenId,
        /// The value found.
        found: f32,
    },
    /// Two biases for one token.
    #[error("token {id} has two biases; give it one")]
    TwoBiases {
        /// The token.
        id: TokenId,
    },
    /// A sampler is on that the chain leaves out.
    #[error("{} is set, but the samplers are {chain}; name it among them or leave it unset", .sampler.name())]
    NotInChain {
        /// The sampler.
        sampler: Sampler,
        /// The chain.
        chain: Chain,
    },
    /// Mirostat beside another cut.
    #[error("mirostat and {} are both set; mirostat replaces the other cuts, so unset one of them", .other.name())]
    MirostatBeside {
        /// The other.
        other: Sampler,
    },
}

/// Checked sampling parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Shaping {
    options: ShapingOptions,
    bias: Arc<[(TokenId, f32)]>,
    breakers: Arc<[TokenId]>,
}

impl Shaping {
    /// Checks the options; the error names the first field outside its range. There are no biases and no breakers.
    pub fn new(options: ShapingOptions) -> Result<Self, ShapingError> {
        let o = &options;
        let fraction = |x: f32| (0.0..=1.0).contains(&x);
        let penalty = |x: f32| (-2.0..=2.0).contains(&x);
        let (dry, mirostat) = (o.dry.unwrap_or_default(), o.mirostat.unwrap_or_default());
        let window = |window: Option<usize>| if window == Some(0) { 0.0 } else { 1.0 };
        let (penalties, repeats) = (window(o.penalty_window), window(dry.range));
        const AT_LEAST_ONE: &str = "at least 1 token; leave it out to look at all";
        let checks = [
            ("temperature", o.temperature, o.temperature >= 0.0, "a finite number, at least 0"),
            ("top_p", o.top_p, o.top_p >= 0.0, "a finite number, at least 0 (1 or more is off)"),
            ("min_p", o.min_p, fraction(o.min_p), "from 0 (off) to 1"),
            ("typical_p", o.typical_p, fraction(o.typical_p), "from 0 to 1 (off)"),
            ("xtc_probability", o.xtc_probability, fraction(o.xtc_probability), "from 0 (off) to 1"),
            ("xtc_threshold", o.xtc_threshold, fraction(o.xtc_threshold), "from 0 to 1 (above 0.5 is off)"),
            (
                "repetition_penalty",
                o.repetition_penalty,
                o.repetition_penalty > 0.0,
                "a finite number greater than 0 (1 is off)",
            ),
            ("presence_penalty", o.presence_penalty, penalty(o.presence_penalty), "from -2 to 2 (0 is off)"),
            ("frequency_penalty", o.frequency_penalty, penalty(o.frequency_penalty), "from -2 to 2 (0 is off)"),
            ("penalty_window", penalties, penalties > 0.0, AT_LEAST_ONE),
            ("dry.multiplier", dry.multiplier, dry.multiplier > 0.0, "a finite number greater than 0"),
            ("dry.base", dry.base, dry.base >= 1.0, "a finite number, at least 1"),
            ("dry.range", repeats, repeats > 0.0, AT_LEAST_ONE),
            ("mirostat.tau", mirostat.tau, mirostat.tau > 0.0, "a finite number greater than 0, in bits"),
            ("mirostat.eta", mirostat.eta, fraction(mirostat.eta), "from 0 to 1"),
        ];
        for (field, found, in_range, allowed) in checks {
            if !found.is_finite() || !in_range {
                return Err(ShapingError::OutOfRange { field, allowed, found });
            }
        }
        if let Some(sampler) = Sampler::ALL.into_iter().find(|s| o.uses(*s) && !o.samplers.has(*s)) {
            return Err(ShapingError::NotInChain { sampler, chain: o.samplers });
        }
        let cuts = [Sampler::TopK, Sampler::TypicalP, Sampler::TopP, Sampler::MinP, Sampler::Xtc];
        if let Some(other) = cuts.into_iter().find(|cut| o.mirostat.is_some() && o.uses(*cut)) {
            return Err(ShapingError::MirostatBeside { other });
        }
        Ok(Self { options, bias: Arc::default(), breakers: Arc::default() })
    }

    /// Adds to the logits of tokens, after the penalties; −∞ forbids a token.
    ///
    /// # Errors
    /// NaN, +∞, or a token named twice.
    pub fn with_bias(self, mut bias: Vec<(TokenId, f32)>) -> Result<Self, ShapingError> {
        if let Some(&(id, found)) = bias.iter().find(|(_, x)| x.is_nan() || *x == f32::INFINITY) {
            return Err(ShapingError::Bias { id, found });
        }
        bias.sort_by_key(|(id, _)| *id);
        match bias.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(ShapingError::TwoBiases { id: pair[0].0 }),
            None => Ok(Self { bias: bias.into(), ..self }),
        }
    }

    /// The tokens across which DRY sees no repetition, such as line breaks.
    pub fn with_breakers(self, mut breakers: Vec<TokenId>) -> Self {
        breakers.sort_unstable();
        Self { breakers: breakers.into(), ..self }
    }

    /// The same with another seed.
    pub fn with_seed(self, seed: u64) -> Self {
        Self { options: ShapingOptions { seed, ..self.options }, ..self }
    }

    /// The best token every time, without penalties.
    pub fn greedy() -> Self {
        let options = ShapingOptions { temperature: 0.0, ..ShapingOptions::default() };
        Self { options, bias: Arc::default(), breakers: Arc::default() }
    }

    /// The options this was made from.
    pub fn options(&self) -> &ShapingOptions {
        &self.options
    }

    /// What is added to logits, in order of id.
    pub fn bias(&self) -> &[(TokenId, f32)] {
        &self.bias
    }

    /// In order of id.
    pub(crate) fn breakers(&self) -> &[TokenId] {
        &self.breakers
    }

    /// Whether the same history always gives the same token, whatever the seed.
    pub fn is_greedy(&self) -> bool {
        let others = self.options.uses(Sampler::TypicalP) || self.has_xtc();
        self.options.temperature == 0.0 || (self.options.top_k == 1 && !others)
    }

    /// Whether any penalty changes a logit.
    pub fn has_penalties(&self) -> bool {
        self.options.uses(Sampler::Penalties)
    }

    pub(crate) fn has_dry(&self) -> bool {
        self.options.uses(Sampler::Dry)
    }

    pub(crate) fn has_xtc(&self) -> bool {
        self.options.uses(Sampler::Xtc)
    }
}
