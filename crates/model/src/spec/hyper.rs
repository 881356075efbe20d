//! Several residual streams, and features of the last few tokens.

use super::{Linear, Norm};
use crate::Source;

/// Reads one input from several residual streams `x[c]`, and says how a branch's output `y` returns to them:
///
/// `n = norm of each x[c]`; `input = mean over c of sigmoid(up(silu(down(n) / streams)))[c] · n[c]`;
/// `x[c] += 2 sigmoid(inject(n)[c] / streams) · y`.
#[derive(Clone, Debug, PartialEq)]
pub struct HyperMix {
    /// How many streams.
    pub streams: usize,
    /// Of each stream by itself, with weights of its own: `[streams · hidden]`.
    pub norm: Norm,
    /// `[low rank, streams · hidden]`.
    pub down: Linear,
    /// `[streams · hidden, low rank]`.
    pub up: Linear,
    /// `[streams, streams · hidden]`; `None` where nothing returns.
    pub inject: Option<Linear>,
}

/// `x += v + silu(conv(conv_norm(v)))` with `v[c] = sigmoid(s(key[c] · query[c] / √hidden)) · value`,
/// `s(z) = sign(z) √max(|z|, 1e-6)`, and `e` the embedding of the last few tokens by hash.
#[derive(Clone, Debug, PartialEq)]
pub struct Ngram {
    /// Which rows of the table the last tokens name.
    pub hash: NgramHash,
    /// `[rows, width of a row]`.
    pub table: Source,
    /// Rows of the table.
    pub rows: usize,
    /// Channels of a row.
    pub row_width: usize,
    /// `[streams · hidden, heads · row_width]`.
    pub key: Linear,
    /// `[hidden, heads · row_width]`.
    pub value: Linear,
    /// Of each stream's key.
    pub key_norm: Norm,
    /// Of each stream.
    pub query_norm: Norm,
    /// Of each stream's value, before the convolution.
    pub conv_norm: Norm,
    /// Depthwise, `[streams · hidden, kernel]`, oldest row first.
    pub conv: Source,
    /// Rows the convolution reads, the present one included.
    pub kernel: usize,
    /// Rows from one tap of the convolution to the next.
    pub dilation: usize,
}

/// The hash of the last tokens: `mix = Π xor (token[-i] · multiplier[i])`, `row = mix mod size[head] + offset[head]`.
///
/// Head `h` mixes `2 + h / (heads / (multipliers - 1))` tokens. Before the first token, and before an end token that
/// lies between, the end token stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NgramHash {
    /// One for each token mixed, the present one first.
    pub multipliers: Vec<i64>,
    /// Rows of each head.
    pub sizes: Vec<i64>,
    /// First row of each head.
    pub offsets: Vec<i64>,
    /// The token that ends a text.
    pub end: u32,
}
