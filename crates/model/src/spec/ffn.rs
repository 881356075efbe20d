//! What mixes channels: gated layers and mixtures of experts.

use super::{Linear, Norm};
use crate::Source;

/// What mixes channels.
#[allow(clippy::large_enum_variant, reason = "one a layer, made once")]
#[derive(Clone, Debug, PartialEq)]
pub enum Ffn {
    /// `down(act(gate(x)) · up(x))`.
    Gated(Gated),
    /// A mixture of experts.
    Moe(Box<Moe>),
    /// Branches of one input, each between norms of its own.
    Sum(Vec<Branch>),
}

/// `post(op(entry(x)))`.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// Norm of the input.
    pub entry: Norm,
    /// The operation.
    pub op: Ffn,
    /// Norm of the output.
    pub post: Norm,
}

/// `down(activation(gate(x), up(x)))` (Shazeer 2020, "GLU Variants").
#[derive(Clone, Debug, PartialEq)]
pub struct Gated {
    /// `[inner, hidden]`.
    pub gate: Linear,
    /// `[inner, hidden]`.
    pub up: Linear,
    /// `[hidden, inner]`.
    pub down: Linear,
    /// How gate and up join.
    pub activation: Activation,
}

/// How the two halves of a gated layer join.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// `silu(gate) · up`, with `silu(x) = x · sigmoid(x)`.
    Silu,
    /// `gelu(gate) · up`, with `gelu(x) = 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
    GeluTanh,
    /// `gelu(gate) · up`, with `gelu(x) = 0.5 x (1 + erf(x/√2))`.
    GeluErf,
    /// `(u + 1) · g · sigmoid(alpha · g)` with `g = min(gate, limit)` and `u = clamp(up, ±limit)`.
    Clamped {
        /// Bound of both halves.
        limit: f32,
        /// Steepness of the sigmoid.
        alpha: f32,
    },
}

/// A mixture of experts: `Σ over the chosen, by rank, weight · expert(x)`, plus the shared expert.
#[derive(Clone, Debug, PartialEq)]
pub struct Moe {
    /// How experts are chosen and weighted.
    pub router: Router,
    /// The experts.
    pub bank: Bank,
    /// An expert every token goes to.
    pub shared: Option<Shared>,
}

/// A bank of gated experts of one shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Bank {
    /// How many.
    pub experts: usize,
    /// Channels inside one.
    pub inner: usize,
    /// `[experts · inner, hidden]`.
    pub gate: Source,
    /// `[experts · inner, hidden]`.
    pub up: Source,
    /// `[experts · hidden, inner]`.
    pub down: Source,
    /// Of gate, up and down, `[experts · outputs]` each.
    pub biases: Option<[Source; 3]>,
    /// How gate and up join.
    pub activation: Activation,
}

/// An expert every token goes to: `sigmoid(gate · x) · ffn(x)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    /// The expert.
    pub ffn: Gated,
    /// `[1, hidden]`; `None`: always in full.
    pub gate: Option<Linear>,
}

/// Chooses experts.
#[derive(Clone, Debug, PartialEq)]
pub struct Router {
    /// What it reads.
    pub input: RouterInput,
    /// `[experts, hidden]`.
    pub linear: Linear,
    /// Added to the scores for the choice only, `[experts]`.
    pub choice_bias: Option<Source>,
    /// Multiplies each expert's weight, `[experts]`.
    pub expert_scale: Option<Source>,
    /// From logits to weights.
    pub routing: Routing,
}

/// What a router reads.
#[derive(Clone, Debug, PartialEq)]
pub enum RouterInput {
    /// The input of the experts.
    Branch,
    /// `scale · norm(x)` of the input of the whole feed-forward part.
    Stream {
        /// Its own norm.
        norm: Norm,
        /// Multiplier.
        scale: f32,
    },
}

/// From router logits to chosen experts and their weights. Ties go to the lower index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// How many experts are chosen.
    pub top_k: usize,
    /// What is made of the logits.
    pub score: Score,
    /// Whether only some groups of experts may be chosen from.
    pub groups: Option<Groups>,
    /// Whether the chosen weights are divided by their sum.
    pub renormalise: bool,
    /// Multiplier of the weights.
    pub scale: f32,
}

/// What is made of router logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// Softmax over all experts.
    Softmax,
    /// Sigmoid of each.
    Sigmoid,
    /// The choice is by logits; the weights are the softmax over the chosen.
    SoftmaxOfChosen,
}

/// Equal groups of neighbouring experts, of which those with the best expert stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// How many groups.
    pub count: usize,
    /// How many stay.
    pub chosen: usize,
}
