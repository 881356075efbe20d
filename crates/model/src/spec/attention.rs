//! What mixes positions: attention, latent attention, the gated delta rule.

use super::{Linear, Norm};
use crate::{Rope, Source};

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
    /// RMS norm of each head's values.
    pub v_norm: Option<Norm>,
    /// Rotary embedding of q and k; `None` for layers without positions.
    pub rope: Option<Rope>,
    /// A query at position p sees keys in `(p - window, p]`; `None`: all of `[0, p]`.
    pub window: Option<usize>,
    /// Multiplier of the dot products.
    pub scale: f32,
    /// A logit a query head that joins the softmax and has no value, `[q_heads]`.
    pub sinks: Option<Source>,
    /// Multiplies the output by a sigmoid before the projection out.
    pub gate: Gate,
    /// Chooses the blocks of keys each query sees.
    pub indexer: Option<Indexer>,
}

/// The projections into attention.
#[allow(clippy::large_enum_variant, reason = "one a layer, made once")]
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
    /// Queries only; keys and values are those an earlier layer stored.
    SharedWith {
        /// `[q_heads · head_dim, hidden]`.
        q: Linear,
        /// Index of that layer.
        layer: usize,
    },
}

/// `output · sigmoid(gate · x)`.
#[derive(Clone, Debug, PartialEq)]
pub enum Gate {
    /// No gate.
    None,
    /// One value a head, `[q_heads, hidden]`.
    Headwise(Linear),
    /// One value a channel, `[q_heads · head_dim, hidden]`.
    Full(Linear),
}

/// RMS norms of q and k.
#[derive(Clone, Debug, PartialEq)]
pub struct QkNorm {
    /// For queries.
    pub q: Norm,
    /// For keys.
    pub k: Norm,
    /// What is normed together.
    pub span: NormSpan,
}

/// What a norm of q or k runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormSpan {
    /// Each head by itself, `[head_dim]`.
    Head,
    /// The whole projection, `[heads · head_dim]`.
    Projection,
}

/// Chooses, for each query, the blocks of keys that attention reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Indexer {
    /// `[heads · head_dim, hidden]`.
    pub q: Linear,
    /// `[head_dim, hidden]`.
    pub k: Linear,
    /// Query heads.
    pub heads: usize,
    /// Channels of a head.
    pub head_dim: usize,
    /// Of each query head, before rotation.
    pub q_norm: Norm,
    /// Of a key, before rotation.
    pub k_norm: Norm,
    /// Rotary embedding of both.
    pub rope: Rope,
    /// Positions in a block.
    pub block: usize,
    /// How many blocks are chosen.
    pub count: usize,
    /// How a block is scored.
    pub score: IndexScore,
}

/// How an indexer scores a block of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexScore {
    /// A choice for each index head, which serves as many kv heads as there are for each: the largest `q · k` of the
    /// block's visible keys. The `local` last blocks always win.
    LargestKey {
        /// Blocks that always win, the query's own first.
        local: usize,
    },
    /// One choice for all: `Σ over heads relu(q · k)` with `k` the rotated norm of the mean of the block's raw keys.
    /// Only complete blocks are scored; what is left over is always visible.
    MeanKey,
}

/// Multi-head latent attention in its absorbed form (DeepSeek-V2, section 2.1): the cache holds one vector a position,
/// `[c | k_pe]`, which is the key of every head; its first part is the value of every head.
#[derive(Clone, Debug, PartialEq)]
pub struct Latent {
    /// Query heads.
    pub heads: usize,
    /// Channels of a query that carry no position.
    pub nope_dim: usize,
    /// Channels of a query that rotate.
    pub rope_dim: usize,
    /// Channels of a value.
    pub v_dim: usize,
    /// Channels of the latent vector `c`.
    pub rank: usize,
    /// The projections to queries.
    pub query: LatentQuery,
    /// `c` before its norm, `[rank, hidden]`.
    pub kv_a: Linear,
    /// The shared rotating key, `[rope_dim, hidden]`.
    pub k_pe: Linear,
    /// Norm of `c`.
    pub kv_norm: Norm,
    /// Queries into the latent space, head by head: `[heads · rank, nope_dim]`.
    pub k_b: Source,
    /// Outputs out of the latent space, head by head: `[heads · v_dim, rank]`.
    pub v_b: Source,
    /// The projection out, `[hidden, heads · v_dim]`.
    pub out: Linear,
    /// Rotary embedding of the rotating parts.
    pub rope: Rope,
    /// Multiplier of the dot products.
    pub scale: f32,
}

/// How latent attention makes its queries.
#[derive(Clone, Debug, PartialEq)]
pub struct LatentQuery {
    /// A projection to low rank and its norm, before the others.
    pub low_rank: Option<(Linear, Norm)>,
    /// `[heads · nope_dim, …]`.
    pub nope: Linear,
    /// `[heads · rope_dim, …]`.
    pub pe: Linear,
}

/// The gated delta rule (Yang et al. 2024, "Gated Delta Networks"), with a short convolution before it.
///
/// For each value head with state `S [k_dim, v_dim]`: `S *= exp(g)`; `S += k ⊗ beta (v - Sᵀk)`; `o = Sᵀq`, where
/// `beta = sigmoid(b)` and `g = a · softplus(decay + dt_bias)`.
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaNet {
    /// Key (and query) heads.
    pub k_heads: usize,
    /// Value heads; a multiple of `k_heads`.
    pub v_heads: usize,
    /// Channels of a key head.
    pub k_dim: usize,
    /// Channels of a value head.
    pub v_dim: usize,
    /// Which key head a value head reads.
    pub order: HeadOrder,
    /// Rows the convolution reads, the present one included.
    pub kernel: usize,
    /// Queries, keys and values: `[2 · k_heads · k_dim + v_heads · v_dim, hidden]`.
    pub qkv: Linear,
    /// The output gate, `[v_heads · v_dim, hidden]`.
    pub z: Linear,
    /// `[v_heads, hidden]`.
    pub beta: Linear,
    /// `[v_heads, hidden]`.
    pub decay: Linear,
    /// Depthwise, of queries, keys and values: `[channels, kernel]`, oldest row first.
    pub conv: Source,
    /// `-exp(A_log)`, `[v_heads]`.
    pub a: Source,
    /// `[v_heads]`.
    pub dt_bias: Source,
    /// Of each head's output, `[v_dim]`.
    pub norm: Norm,
    /// Whether the output gate is `silu(z)`, or `sigmoid(z)`.
    pub silu_gate: bool,
    /// The projection out, `[hidden, v_heads · v_dim]`.
    pub out: Linear,
}

/// Which key head value head `j` reads, with `r` value heads for each key head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadOrder {
    /// `j / r`.
    Grouped,
    /// `j % k_heads`.
    Tiled,
}
