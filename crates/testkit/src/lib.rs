//! Golden models and fixtures for the tests of every crate.
//!
//! `golden/<name>` holds a tiny model of a family as safetensors and, where llama.cpp defines it, as GGUF, with the
//! logits of every position computed by the publisher's reference code in f32.
#![forbid(unsafe_code)]

mod checkpoint;
mod golden;

pub use checkpoint::{Model, checkpoint};
pub use golden::{Expected, GoldenFile, families, golden, nmse, worst};
