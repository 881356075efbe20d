//! Logits to a token: penalties, temperature, truncation and a seeded choice.
//!
//! The chain, in this order and no other:
//!
//! 1. repetition, presence and frequency penalties (also at temperature 0);
//! 2. temperature (0 takes the best token);
//! 3. top-k; 4. top-p over what top-k left; 5. min-p relative to the best token;
//! 6. one draw by inverse distribution function, candidates in order of id.
//!
//! Ties go to the lowest id, and at least one candidate always remains.
//!
//! **Invariant: equal logits, shaping, history and position give the same token on every
//! machine.** The draw comes from a counter-based generator keyed by the seed and the absolute
//! position, so it does not depend on what was drawn before, and every probability is computed
//! with IEEE additions, multiplications and comparisons in a fixed order: no platform `exp`.
//!
//! This crate knows nothing of text, grammars or models. A grammar masks a token by setting its
//! logit to −∞ before calling [`select`].
#![forbid(unsafe_code)]

mod arithmetic;
mod history;
mod philox;
mod report;
mod select;
mod shaping;

pub use history::History;
pub use philox::{fresh_seed, uniform};
pub use report::{LOGPROB_FLOOR, LogProb, LogProbs, log_softmax, logprobs};
pub use select::{Candidate, Scratch, SelectError, distribution, select};
pub use shaping::{Shaping, ShapingError, ShapingOptions};
