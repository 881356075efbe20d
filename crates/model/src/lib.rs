//! What a model *is*: plain data built from a checkpoint's config and tensor names.
//!
//! A family reads a [`Config`] and the [`WeightIndex`] and answers with a [`ModelSpec`]. Nothing here
//! opens a file, touches weight values or knows a device; nothing below this crate knows a family.
#![forbid(unsafe_code)]

mod config;
mod error;
pub mod families;
mod gguf;
mod index;
pub mod names;
mod rope;
mod source;
mod spec;

pub use config::Config;
pub use error::ModelError;
pub use families::{Checkpoint, Container, build};
pub use index::WeightIndex;
pub use rope::{Pairing, Rope, RopeScaling};
pub use source::Source;
pub use spec::{
    Activation, Attention, Bank, Branch, DeltaNet, Embed, Entry, Exit, Ffn, Gate, Gated, Groups, Head, HeadOrder,
    HyperMix, IndexScore, Indexer, Latent, LatentQuery, Layer, Linear, Mixer, ModelSpec, Moe, Ngram, NgramHash, Norm,
    NormSpan, PerLayerEmbed, PerLayerInput, QkNorm, Qkv, Router, RouterInput, Routing, Score, Shared, Sublayer,
};
