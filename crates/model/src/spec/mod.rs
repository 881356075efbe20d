//! The description of a model: plain data, no device, no file.

mod attention;
mod describe;
mod ffn;
mod hyper;

pub use attention::{
    Attention, DeltaNet, Gate, HeadOrder, IndexScore, Indexer, Latent, LatentQuery, NormSpan, QkNorm, Qkv,
};
pub use ffn::{Activation, Bank, Branch, Ffn, Gated, Groups, Moe, Router, RouterInput, Routing, Score, Shared};
pub use hyper::{HyperMix, Ngram, NgramHash};

use crate::Source;

/// A decoder-only language model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// The family that built this description; for people, never for decisions.
    pub family: &'static str,
    /// Rows of the embedding table and of the logits.
    pub vocab: usize,
    /// Width of the residual stream, or of each of several.
    pub hidden: usize,
    /// The context length the model was trained for, tokens.
    pub context: usize,
    /// Token embedding.
    pub embed: Embed,
    /// A second embedding, with a part for each layer.
    pub per_layer: Option<PerLayerEmbed>,
    /// The blocks, first to last.
    pub layers: Vec<Layer>,
    /// What comes between the last block and the head.
    pub exit: Exit,
    /// Hidden state to logits.
    pub head: Head,
    /// Facts a user should hear before trusting the output.
    pub notes: Vec<String>,
}

/// `x = norm(scale · table[token])`, repeated for each residual stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Embed {
    /// `[vocab, hidden]`.
    pub table: Source,
    /// Multiplier of the looked-up row.
    pub scale: f32,
    /// Norm of the looked-up row.
    pub norm: Option<Norm>,
    /// Residual streams side by side: 1 except with hyper-connections.
    pub streams: usize,
}

/// `p = scale · (norm(projection_scale · projection · x) + table_scale · table[token])`, `width` channels a layer,
/// with `x` the embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct PerLayerEmbed {
    /// `[vocab, layers · width]`.
    pub table: Source,
    /// Multiplier of the looked-up row.
    pub table_scale: f32,
    /// `[layers · width, hidden]`.
    pub projection: Linear,
    /// Multiplier of the product.
    pub projection_scale: f32,
    /// Of each layer's part by itself, `[width]`.
    pub norm: Norm,
    /// Multiplier of the sum.
    pub scale: f32,
    /// Channels a layer.
    pub width: usize,
}

/// What comes between the last block and the head.
#[allow(clippy::large_enum_variant, reason = "one a model, made once")]
#[derive(Clone, Debug, PartialEq)]
pub enum Exit {
    /// A norm.
    Norm(Norm),
    /// The mix of the residual streams.
    Hyper(HyperMix),
}

/// `logits = softcap(scale · weight · x)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// `[vocab, hidden]`; the embedding table itself when tied.
    pub linear: Linear,
    /// Whether it is the embedding table.
    pub tied: bool,
    /// Multiplier of the product.
    pub scale: f32,
    /// `c`: logits become `c · tanh(logits / c)`.
    pub softcap: Option<f32>,
}

/// `y = x · rsqrt(mean(x²) + eps) · weight` (Zhang & Sennrich 2019).
#[derive(Clone, Debug, PartialEq)]
pub struct Norm {
    /// Per-channel multiplier; `None`: all ones.
    pub weight: Option<Source>,
    /// Added to the mean square.
    pub eps: f32,
}

/// `y = weight · x + bias`.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// `[outputs, inputs]`.
    pub weight: Source,
    /// `[outputs]`.
    pub bias: Option<Source>,
    /// Width of `x`.
    pub inputs: usize,
    /// Width of `y`.
    pub outputs: usize,
}

/// Residual branches: `x += ngram(x)`, `x += mixer(x)`, `x += ffn(x)`, `x += per_layer(x)`, `x *= out_scale`.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Adds what the last few tokens say.
    pub ngram: Option<Ngram>,
    /// Mixes positions.
    pub mixer: Sublayer<Mixer>,
    /// Mixes channels.
    pub ffn: Sublayer<Ffn>,
    /// Adds the layer's part of the second embedding.
    pub per_layer: Option<PerLayerInput>,
    /// Multiplies the stream at the end, `[1]`.
    pub out_scale: Option<Source>,
}

impl Layer {
    /// `x += mixer(norm(x))`, `x += ffn(norm(x))`.
    pub fn pre_norm(mixer: (Norm, Mixer), ffn: (Norm, Ffn)) -> Self {
        Self::new(Sublayer::pre_norm(mixer.0, mixer.1), Sublayer::pre_norm(ffn.0, ffn.1))
    }

    /// Two sublayers and nothing else.
    pub fn new(mixer: Sublayer<Mixer>, ffn: Sublayer<Ffn>) -> Self {
        Self { ngram: None, mixer, ffn, per_layer: None, out_scale: None }
    }
}

/// `x += post(op(entry(x)))`.
#[derive(Clone, Debug, PartialEq)]
pub struct Sublayer<T> {
    /// What the branch sees of the stream.
    pub entry: Entry,
    /// The operation.
    pub op: T,
    /// Norm of the branch's output before it joins the stream.
    pub post: Option<Norm>,
}

impl<T> Sublayer<T> {
    /// `x += op(norm(x))`.
    pub fn pre_norm(norm: Norm, op: T) -> Self {
        Self { entry: Entry::Norm(norm), op, post: None }
    }

    /// `x += post(op(x))`.
    pub fn post_norm(op: T, post: Norm) -> Self {
        Self { entry: Entry::Plain, op, post: Some(post) }
    }

    /// `x += post(op(norm(x)))`.
    pub fn sandwich(norm: Norm, op: T, post: Norm) -> Self {
        Self { entry: Entry::Norm(norm), op, post: Some(post) }
    }
}

/// What a branch sees of the residual stream.
#[allow(clippy::large_enum_variant, reason = "one a layer, made once")]
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// The stream itself.
    Plain,
    /// Its norm.
    Norm(Norm),
    /// A mix of several streams, which also says how much of the branch's output goes to each.
    Hyper(HyperMix),
}

/// What mixes positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Softmax attention over cached keys and values.
    Attention(Box<Attention>),
    /// Softmax attention over one cached latent vector a position.
    Latent(Box<Latent>),
    /// A linear recurrence over a state of fixed size.
    DeltaNet(Box<DeltaNet>),
}

/// `x += post(projection(activation(gate · x) · p))`, with `p` the layer's part of [`PerLayerEmbed`].
#[derive(Clone, Debug, PartialEq)]
pub struct PerLayerInput {
    /// `[width, hidden]`.
    pub gate: Linear,
    /// Applied to the gate.
    pub activation: Activation,
    /// `[hidden, width]`.
    pub projection: Linear,
    /// Norm of the branch's output.
    pub post: Norm,
}
