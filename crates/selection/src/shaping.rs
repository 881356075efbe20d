//! The sampling parameters of one sequence, checked once when they are made.

use thiserror::Error;

/// Sampling parameters as a caller writes them; [`Shaping::new`] checks them.
///
/// The default is plain sampling: temperature 1, everything else off, seed 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShapingOptions {
    /// Divides the logits; 0 takes the best token. Finite, at least 0.
    pub temperature: f32,
    /// Keep the `top_k` best tokens; 0, or at least the vocabulary, is off.
    pub top_k: usize,
    /// Keep the fewest best tokens whose probabilities reach this; 0 keeps the best one, 1 or
    /// more is off.
    pub top_p: f32,
    /// Keep tokens with at least this fraction of the best probability, after temperature and
    /// relative to the best token; 0 is off. In 0 to 1.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of every distinct token in the history,
    /// once each; 1 is off. Greater than 0.
    pub repetition_penalty: f32,
    /// Subtracted once from the logit of each token generated so far. In −2 to 2.
    pub presence_penalty: f32,
    /// Subtracted from the logit of a token for each time it was generated. In −2 to 2.
    pub frequency_penalty: f32,
    /// Keys the generator. A caller without a seed takes [`fresh_seed`](crate::fresh_seed) and
    /// reports it.
    pub seed: u64,
}

impl Default for ShapingOptions {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: 0,
        }
    }
}

/// A sampling parameter outside its range.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("{field} is {found}; it must be {allowed}")]
pub struct ShapingError {
    /// The field of [`ShapingOptions`].
    pub field: &'static str,
    /// The values it may take, in words.
    pub allowed: &'static str,
    /// The value found.
    pub found: f32,
}

/// Checked sampling parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shaping(ShapingOptions);

impl Shaping {
    /// Checks the options; the error names the first field outside its range.
    pub fn new(options: ShapingOptions) -> Result<Self, ShapingError> {
        let o = &options;
        let checks = [
            ("temperature", o.temperature, o.temperature >= 0.0, "a finite number, at least 0"),
            ("top_p", o.top_p, o.top_p >= 0.0, "a finite number, at least 0 (1 or more is off)"),
            ("min_p", o.min_p, (0.0..=1.0).contains(&o.min_p), "from 0 (off) to 1"),
            (
                "repetition_penalty",
                o.repetition_penalty,
                o.repetition_penalty > 0.0,
                "a finite number greater than 0 (1 is off)",
            ),
            (
                "presence_penalty",
                o.presence_penalty,
                (-2.0..=2.0).contains(&o.presence_penalty),
                "from -2 to 2 (0 is off)",
            ),
            (
                "frequency_penalty",
                o.frequency_penalty,
                (-2.0..=2.0).contains(&o.frequency_penalty),
                "from -2 to 2 (0 is off)",
            ),
        ];
        for (field, found, in_range, allowed) in checks {
            if !found.is_finite() || !in_range {
                return Err(ShapingError { field, allowed, found });
            }
        }
        Ok(Self(options))
    }

    /// The best token every time, without penalties.
    pub fn greedy() -> Self {
        Self(ShapingOptions { temperature: 0.0, ..ShapingOptions::default() })
    }

    /// The options this was made from.
    pub fn options(&self) -> &ShapingOptions {
        &self.0
    }

    /// Whether the same history always gives the same token, whatever the seed.
    pub fn is_greedy(&self) -> bool {
        self.0.temperature == 0.0 || self.0.top_k == 1
    }

    /// Whether any penalty changes a logit.
    pub fn has_penalties(&self) -> bool {
        self.0.repetition_penalty != 1.0 || self.0.presence_penalty != 0.0 || self.0.frequency_penalty != 0.0
    }
}
