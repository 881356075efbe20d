//! The reference device: scalar f32, one small function a step, written to be read.
//!
//! Each file of this folder defines some steps. Every weight is expanded to f32, keys and values are rounded as their type
//! says ([`crate::kv::Codec`]) and kept as f32, and nothing is fused, so that its results are the ones other devices are measured against.

mod activation;
mod attend;
mod conv;
mod delta;
mod embed;
mod exec;
mod heads;
mod hyper;
mod linear;
mod ngram;
mod norm;
mod rope;
mod route;
mod select;
mod state;
mod steer;

pub use activation::{gated, gelu_erf, gelu_tanh, mul_sigmoid, sigmoid, silu};
pub use attend::{Keys, attend, visible};
pub use conv::conv;
pub use delta::{Gates, delta};
pub use embed::embed;
pub use exec::{ReferenceDevice, ReferenceExec};
pub use heads::{head_concat, head_linear, repeat};
pub use hyper::{hyper_add, hyper_mix};
pub use linear::linear;
pub use ngram::{ngram_gate, ngram_rows};
pub use norm::{head_norm, norm};
pub use rope::rotate;
pub use route::{largest, route};
pub use select::{MeanKey, by_largest_key, by_mean_key, choose, reads};
pub use steer::steer;
