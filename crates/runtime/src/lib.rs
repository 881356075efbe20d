//! The execution engine: binds tokeniser, model, device and token choice into one generation pipeline.
#![forbid(unsafe_code)]

mod checkpoint;
mod error;
mod producer;
mod real_forward;

pub use checkpoint::{ModelFiles, Recommended};
pub use error::{ProducerError, RuntimeError};
pub use producer::{LogitProducer, ScriptedLogitProducer, Want};
pub use real_forward::RealForwardRunner;
