//! The description of a model: plain data, no device, no file.

use crate::{Rope, Source};

/// A decoder-only language model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// The family that built this description; for people, never for decisions.
    pub family: &'static str,
    /// Rows of the embedding table and of the logits.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// The context length the model was trained for, tokens.
    pub context: usize,
    /// Token embedding.
    pub embed: Embed,
    /// The blocks, first to last.
    pub layers: Vec<Layer>,
    /// The norm before the head.
    pub exit: Norm,
    /// Hidden state to logits.
    pub head: Head,
    /// Facts a user should hear before trusting the output.
    pub notes: Vec<String>,
}

/// `x = scale · table[token]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Embed {
    /// `[vocab, hidden]`.
    pub table: Source,
    /// Multiplier of the looked-up row.
    pub scale: f32,
}

/// `logits = weight · x`.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// `[vocab, hidden]`; the embedding table itself when tied.
    pub linear: Linear,
    /// Whether it is the embedding table.
    pub tied: bool,
}

/// `y = x · rsqrt(mean(x²) + eps) · weight` (Zhang & Sennrich 2019).
#[derive(Clone, Debug, PartialEq)]
pub struct Norm {
    /// Per-channel multiplier.
    pub weight: Source,
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

/// Two residual branches: `x += mixer(x)`, then `x += ffn(x)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Mixes positions.
    pub mixer: Sublayer<Mixer>,
    /// Mixes channels.
    pub ffn: Sublayer<Ffn>,
}

/// `x += post(op(entry(x)))`.
#[derive(Clone, Debug, PartialEq)]
pub struct Sublayer<T> {
    /// Norm of the branch's input.
    pub entry: Norm,
    /// The operation.
    pub op: T,
    /// Norm of the branch's output before it joins the stream.
    pub post: Option<Norm>,
}

/// What mixes positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Softmax attention over cached keys and values.
    Attention(Attention),
}

/// What mixes channels.
#[derive(Clone, Debug, PartialEq)]
pub enum Ffn {
    /// `down(act(gate(x)) · up(x))`.
    Gated(Gated),
}

/// Grouped-query attention: `softmax(scale · q kᵀ) v` over the visible positions.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Query heads; a multiple of `kv_heads`.
    pub q_heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Channels of one head.
    pub head_dim: usize,
    /// The projections in.
    pub qkv: Qkv,
    /// The projection out, `[hidden, q_heads · head_dim]`.
    pub out: Linear,
    /// RMS norms of q and k before rotation.
    pub qk_norm: Option<QkNorm>,
    /// Rotary embedding of q and k; `None` for layers without positions.
    pub rope: Option<Rope>,
    /// A query at position p sees keys in `(p - window, p]`; `None`: all of `[0, p]`.
    pub window: Option<usize>,
    /// Multiplier of the dot products.
    pub scale: f32,
}

/// The projections into attention.
#[derive(Clone, Debug, PartialEq)]
pub enum Qkv {
    /// Three matrices.
    Split {
        /// `[q_heads · head_dim, hidden]`.
        q: Linear,
        /// `[kv_heads · head_dim, hidden]`.
        k: Linear,
        /// `[kv_heads · head_dim, hidden]`; `None`: the values are the keys before norm and rotation.
        v: Option<Linear>,
    },
}

/// RMS norm of each head's q and k over `head_dim` channels.
#[derive(Clone, Debug, PartialEq)]
pub struct QkNorm {
    /// For queries, `[head_dim]`.
    pub q: Norm,
    /// For keys, `[head_dim]`.
    pub k: Norm,
}

/// `down(activation(gate(x)) · up(x))` (Shazeer 2020, "GLU Variants").
#[derive(Clone, Debug, PartialEq)]
pub struct Gated {
    /// `[inner, hidden]`.
    pub gate: Linear,
    /// `[inner, hidden]`.
    pub up: Linear,
    /// `[hidden, inner]`.
    pub down: Linear,
    /// Applied to the gate.
    pub activation: Activation,
}

/// A pointwise nonlinearity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// `0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
    GeluTanh,
}
