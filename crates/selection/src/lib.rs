//! Logits to a token: an explicit chain of samplers and a seeded choice.
//!
//! The chain, unless [`ShapingOptions::samplers`] says otherwise:
//!
//! 1. `penalties`: repetition, presence and frequency (also at temperature 0); `dry`;
//! 2. biases, then the mask: always here;
//! 3. `temperature` (0 takes the best token now);
//! 4. `top-k`; `top-p` over what is left; `min-p` relative to the best; `typical-p`; `xtc`; `mirostat`;
//! 5. one draw by inverse distribution function, candidates in order of id.
//!
//! Ties go to the lowest id, and at least one candidate always remains. [`Chain::ORIGINAL`] is the order of the original
//! runtime, which cut by the probabilities at temperature 1.
//!
//! **Invariant: equal logits, shaping, history and position give the same token on every
//! machine.** The draw comes from a counter-based generator keyed by the seed and the absolute
//! position, so it does not depend on what was drawn before, and every probability is computed
//! with IEEE additions, multiplications and comparisons in a fixed order: no platform `exp`.
//!
//! This crate knows nothing of text, grammars or models. A grammar masks tokens by the bits of [`Step::mask`].
#![forbid(unsafe_code)]

mod arithmetic;
mod chain;
mod cut;
mod dry;
mod error;
mod history;
mod philox;
mod report;
mod row;
mod select;
mod shaping;
mod speculative;
mod weigh;

pub use chain::{Chain, ChainError, Sampler};
pub use error::SelectError;
pub use history::History;
pub use philox::{fresh_seed, uniform};
pub use report::{LOGPROB_FLOOR, LogProb, LogProbs, log_softmax, logprobs, shaped_logprobs};
pub use select::{Candidate, Scratch, Step, select, shaped_distribution};
pub use shaping::{Dry, Mirostat, Shaping, ShapingError, ShapingOptions};
pub use speculative::{Draw, Verdict, residual, verify};
