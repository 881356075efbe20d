//! Reads GGUF, safetensors and `.gturbo` files into named, typed tensors over memory-mapped files.
//!
//! Responsible for: the three container formats (reading, writing, split and sharded files), the byte
//! layout of every quantisation format ([`block`]), and exact dequantisation to `f32`.
//!
//! Deliberately unknown here: what a tensor name means, which model a file holds, and any device.
//! Every length and offset of a file is checked against the bytes that are there before it is used,
//! so outside input ends in a [`WeightsError`], never in a panic or an oversized allocation.

pub mod block;
mod dtype;
mod error;
pub mod gguf;
pub mod gturbo;
pub mod io;
mod map;
pub mod safetensors;
mod tensor;
mod weights;

pub use dtype::{DType, UnsupportedType};
pub use error::WeightsError;
pub use tensor::Tensor;
pub use weights::Weights;
