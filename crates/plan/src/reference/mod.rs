//! The reference device: scalar f32, one small function a step, written to be read.
//!
//! Each file of this folder defines one step. Every weight is expanded to f32, keys and values are kept in
//! f32, and nothing is fused, so that its results are the ones other devices are measured against.

mod activation;
mod attend;
mod embed;
mod exec;
mod linear;
mod norm;
mod rope;

pub use activation::{gated, gelu_tanh, silu};
pub use attend::{Keys, attend};
pub use embed::embed;
pub use exec::{ReferenceDevice, ReferenceExec};
pub use linear::linear;
pub use norm::norm;
pub use rope::rotate;
