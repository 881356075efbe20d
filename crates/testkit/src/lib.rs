//! Golden models and fixtures for the tests of every crate.
//!
//! `golden/<name>` holds a tiny model of a family as safetensors and, where llama.cpp defines it, as GGUF, with the
//! logits of every position computed by the publisher's reference code in f32. `recorded/<name>.json` holds runs of
//! real models by llama.cpp. [`synthetic`] makes seeded random models of any shape, [`Random`] random tensors of
//! every storage type, [`smollm2`] the one real model that tests download.
//!
//! Everything here panics on a mistake: it is for tests, and for `turbospark selftest`, only.
#![forbid(unsafe_code)]

mod checkpoint;
mod golden;
mod parts;
mod random;
mod real;
mod recorded;
mod synthetic;
mod upcycled;

pub use checkpoint::{Model, checkpoint};
pub use golden::{Expected, GoldenFile, families, find_golden_in, golden, nmse, quantised, worst};
pub use parts::{take_apart, with_whole};
pub use random::Random;
pub use real::{model_store, smollm2};
pub use recorded::{Agreement, Run, Step, agreement, recorded};
pub use synthetic::{Architecture, Options, Synthetic, synthetic};
pub use upcycled::{Router, upcycled};
