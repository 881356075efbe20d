//! Rotary position embedding: which channels turn, at which frequencies.
//!
//! Su et al. 2021 (RoFormer), eq. 15: channel pair `i` of a vector at position `p` is rotated by `p · f_i`,
//! with `f_i = theta^(-2i / rotary_dim)` before scaling.

use crate::Source;
use std::f64::consts::TAU;

/// Which two channels form a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Channels `i` and `i + rotary_dim / 2` (GPT-NeoX; every Hugging Face llama-like checkpoint).
    Half,
    /// Channels `2i` and `2i + 1` (GPT-J; llama-architecture GGUF files, whose q/k rows are permuted to match).
    Interleaved,
}

/// How frequencies are changed for long contexts.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Every frequency divided by `factor`.
    Linear {
        /// The divisor.
        factor: f32,
    },
    /// Llama 3.1: long wavelengths divided by `factor`, short ones kept, a linear blend between.
    Llama3 {
        /// The divisor of long wavelengths.
        factor: f32,
        /// Wavelengths above `original_context / low` are divided.
        low_freq_factor: f32,
        /// Wavelengths below `original_context / high` are kept.
        high_freq_factor: f32,
        /// The context length before extension, tokens.
        original_context: f32,
    },
    /// YaRN (Peng et al. 2023): a ramp over the pairs from kept to divided frequencies, and a factor on the angles'
    /// cosines and sines.
    Yarn {
        /// The divisor of long wavelengths.
        factor: f32,
        /// Turns within the original context above which a frequency is kept.
        beta_fast: f32,
        /// Turns below which it is divided.
        beta_slow: f32,
        /// The context length before extension, tokens.
        original_context: f32,
        /// Whether the ramp's ends are rounded outwards to whole pairs.
        truncate: bool,
        /// Multiplies cosines and sines.
        amplitude: f32,
    },
    /// Only the first `pairs` pairs turn (Gemma 4).
    Proportional {
        /// How many.
        pairs: usize,
    },
    /// One divisor per frequency, stored in the checkpoint (`rope_freqs.weight` of GGUF files).
    Divisors(Source),
}

/// A rotary embedding over the leading `rotary_dim` channels of each head.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the geometric series of frequencies.
    pub theta: f32,
    /// How many leading channels of a head turn; even.
    pub rotary_dim: usize,
    /// Which channels pair up.
    pub pairing: Pairing,
    /// Long-context scaling.
    pub scaling: RopeScaling,
}

impl Rope {
    /// The factor on cosines and sines.
    pub fn amplitude(&self) -> f32 {
        match self.scaling {
            RopeScaling::Yarn { amplitude, .. } => amplitude,
            _ => 1.0,
        }
    }

    /// The `rotary_dim / 2` angular frequencies in radians per position.
    ///
    /// `divisors` are the values of a [`RopeScaling::Divisors`] source and are ignored otherwise.
    pub fn frequencies(&self, divisors: Option<&[f32]>) -> Vec<f32> {
        let (dim, theta) = (self.rotary_dim as f64, self.theta as f64);
        let plain = (0..self.rotary_dim / 2).map(|i| theta.powf(-2.0 * i as f64 / dim)).enumerate();
        let scaled = |i: usize, f: f64| match self.scaling {
            RopeScaling::None => f,
            RopeScaling::Linear { factor } => f / factor as f64,
            RopeScaling::Divisors(_) => f / divisors.map_or(1.0, |d| d[i] as f64),
            RopeScaling::Proportional { pairs } => {
                if i < pairs {
                    f
                } else {
                    0.0
                }
            }
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                let (factor, low, high) = (factor as f64, low_freq_factor as f64, high_freq_factor as f64);
                let turns = original_context as f64 * f / TAU;
                if turns < low {
                    f / factor
                } else if turns > high {
                    f
                } else {
                    let blend = (turns - low) / (high - low);
                    (1.0 - blend) * f / factor + blend * f
                }
            }
            RopeScaling::Yarn { factor, beta_fast, beta_slow, original_context, truncate, .. } => {
                let pair_of =
                    |turns: f32| dim * (original_context as f64 / (turns as f64 * TAU)).ln() / (2.0 * theta.ln());
                let (mut low, mut high) = (pair_of(beta_fast), pair_of(beta_slow));
                if truncate {
                    (low, high) = (low.floor(), high.ceil());
                }
                let (low, mut high) = (low.max(0.0), high.min(dim - 1.0));
                if low == high {
                    high += 0.001;
                }
                let divided = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                f / factor as f64 * divided + f * (1.0 - divided)
            }
        };
        plain.map(|(i, f)| scaled(i, f) as f32).collect()
    }
}
