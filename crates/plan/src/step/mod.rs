//! The steps: each is the largest thing every device can be asked to do without a fusion pass.

mod slots;

use crate::steering::Edit;
use model::{Activation, HeadOrder, NgramHash, Routing};

/// An activation buffer of `[rows, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

/// An entry of [`crate::Program::weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WeightId(pub u32);

/// One layer's cache, an entry of [`crate::Program::states`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateId(pub u16);

/// An entry of [`crate::Program::ropes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RopeId(pub u16);

/// What there is to see inside a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// The residual stream after the layer, `[rows, hidden]`, or all streams side by side.
    Residual,
    /// The chosen experts' numbers, then their weights, by rank: `[rows, 2 · top_k]`.
    Router,
    /// What the second matrix of a dense feed-forward part reads, `[rows, inner]`.
    Inner,
}

/// A point of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The layer, from 0.
    pub layer: usize,
    /// What of it.
    pub point: Point,
}

/// One matrix product among several of the same input.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// `[outputs, inputs]`.
    pub weight: WeightId,
    /// `[outputs]`.
    pub bias: Option<WeightId>,
    /// Receives `[rows, outputs]`.
    pub to: Slot,
}

/// Which of the visible positions attention reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Select {
    /// What [`Step::IndexSelect`] wrote.
    pub chosen: Slot,
    /// How many choices a row holds: the kv heads are spread evenly over them.
    pub choices: usize,
    /// Positions in a block.
    pub block: usize,
    /// Whether the positions after the last complete block are read as well.
    pub tail: bool,
}

/// How [`Step::IndexSelect`] scores blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BlockScore {
    /// A choice for each index head: the largest `q · k` of the visible keys; the row's own block and those before it,
    /// `local` in all, win first.
    LargestKey {
        /// Blocks that always win.
        local: usize,
    },
    /// One choice: `Σ over heads relu(q · k)` with `k` the mean of a complete block's keys, normed and rotated as at the
    /// block's first position.
    MeanKey {
        /// `[k_dim]`; `None`: all ones.
        norm: Option<WeightId>,
        /// Added to the mean square.
        eps: f32,
        /// Rotation of the mean.
        rope: RopeId,
    },
}

/// The matrices of a bank of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BankWeights {
    /// `[experts · inner, hidden]`.
    pub gate: WeightId,
    /// `[experts · inner, hidden]`.
    pub up: WeightId,
    /// `[experts · hidden, inner]`.
    pub down: WeightId,
    /// Of gate, up and down.
    pub biases: Option<[WeightId; 3]>,
    /// Channels inside an expert.
    pub inner: usize,
}

/// Numbers of heads and channels of [`Step::Delta`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaShape {
    /// Key (and query) heads.
    pub k_heads: usize,
    /// Value heads.
    pub v_heads: usize,
    /// Channels of a key head.
    pub k_dim: usize,
    /// Channels of a value head.
    pub v_dim: usize,
    /// Which key head a value head reads.
    pub order: HeadOrder,
}

impl DeltaShape {
    /// The key head that value head `head` reads.
    pub fn key_head(&self, head: usize) -> usize {
        match self.order {
            HeadOrder::Grouped => head / (self.v_heads / self.k_heads),
            HeadOrder::Tiled => head % self.k_heads,
        }
    }
}

/// One operation of a [`crate::Program`]; `x`, `q`, … are read, `to` and `into` are written.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// `to = scale · table[token]`.
    Embed {
        /// `[vocab, hidden]`.
        table: WeightId,
        /// Multiplier.
        scale: f32,
        /// Destination.
        to: Slot,
    },
    /// `to = x · rsqrt(mean(x²) + eps) · weight`.
    Norm {
        /// Input.
        x: Slot,
        /// `[width]`; `None`: all ones.
        weight: Option<WeightId>,
        /// Added to the mean square.
        eps: f32,
        /// Destination.
        to: Slot,
    },
    /// `to = weight · x + bias`.
    Linear {
        /// Input.
        x: Slot,
        /// The product.
        part: Part,
    },
    /// The norm of each head by itself, in place.
    HeadNorm {
        /// `[rows, heads · head_dim]`.
        x: Slot,
        /// `[head_dim]` for every head, or `[heads · head_dim]`; `None`: all ones.
        weight: Option<WeightId>,
        /// How many heads.
        heads: usize,
        /// Added to the mean square.
        eps: f32,
    },
    /// A product of each head by a matrix of its own.
    HeadLinear {
        /// `[rows, heads · inputs]`.
        x: Slot,
        /// `[heads · outputs, inputs]`.
        weight: WeightId,
        /// How many heads.
        heads: usize,
        /// `[rows, heads · outputs]`.
        to: Slot,
    },
    /// Head by head, `a` then `b`.
    HeadConcat {
        /// `[rows, heads · a_dim]`.
        a: Slot,
        /// `[rows, heads · b_dim]`.
        b: Slot,
        /// How many heads.
        heads: usize,
        /// `[rows, heads · (a_dim + b_dim)]`.
        to: Slot,
    },
    /// `to` = the columns of `x` from `first` on.
    TakeColumns {
        /// `[rows, width]`.
        x: Slot,
        /// First column.
        first: usize,
        /// As many columns as it is wide.
        to: Slot,
    },
    /// `to` = `x` side by side as often as it fits.
    Repeat {
        /// `[rows, width]`.
        x: Slot,
        /// `[rows, times · width]`.
        to: Slot,
    },
    /// Rotation of each head by its row's position, in place.
    Rope {
        /// `[rows, heads · head_dim]`.
        x: Slot,
        /// How many heads.
        heads: usize,
        /// Frequencies and pairing.
        rope: RopeId,
    },
    /// Stores the rows' keys and values in the cache, rounded to its type.
    Append {
        /// Keys, `[rows, kv_heads · k_dim]`.
        k: Slot,
        /// Values, `[rows, kv_heads · v_dim]`; `None` where the cache holds none.
        v: Option<Slot>,
        /// The layer's cache.
        state: StateId,
    },
    /// `to = softmax(scale · q kᵀ) v` over the *stored* keys and values a row may see.
    Attend {
        /// Queries, `[rows, q_heads · k_dim]`.
        q: Slot,
        /// The layer's cache.
        state: StateId,
        /// How many query heads.
        heads: usize,
        /// Multiplier of the dot products.
        scale: f32,
        /// Position p sees `(p - window, p]`; `None`: `[0, p]`.
        window: Option<usize>,
        /// `[q_heads]`: a logit that joins each head's softmax and has no value.
        sinks: Option<WeightId>,
        /// Of the visible positions, those a row reads.
        select: Option<Select>,
        /// Destination, `[rows, q_heads · v_dim]`.
        to: Slot,
    },
    /// Chooses blocks of positions for [`Step::Attend`] by the keys of a cache of their own.
    ///
    /// `to` receives, for each choice, the numbers of the chosen blocks and -1 for the rest. Ties go to the lower block.
    IndexSelect {
        /// Rotated queries, `[rows, heads · k_dim]`.
        q: Slot,
        /// The index keys.
        state: StateId,
        /// Index query heads.
        heads: usize,
        /// Positions in a block.
        block: usize,
        /// How blocks are scored; decides how many choices there are.
        score: BlockScore,
        /// `[rows, choices · count]`.
        to: Slot,
    },
    /// `to = silu(conv(x))`: depthwise and causal over the rows of a sequence, earlier rows being those in the state.
    Conv {
        /// `[rows, channels]`.
        x: Slot,
        /// `[kernel, channels]`, oldest row first.
        weight: WeightId,
        /// Rows from one tap to the next.
        dilation: usize,
        /// The last `(kernel - 1) · dilation` rows.
        state: StateId,
        /// `[rows, channels]`.
        to: Slot,
    },
    /// The gated delta rule over the rows of a sequence.
    Delta {
        /// Queries, keys and values side by side.
        qkv: Slot,
        /// `[rows, v_heads]`: the sigmoid gives the strength of a write.
        beta: Slot,
        /// `[rows, v_heads]`: the forget gate before its bias.
        decay: Slot,
        /// `[v_heads]`: a negative rate.
        a: WeightId,
        /// `[v_heads]`.
        dt_bias: WeightId,
        /// Numbers of heads and channels.
        shape: DeltaShape,
        /// `[v_heads][k_dim][v_dim]`.
        state: StateId,
        /// `[rows, v_heads · v_dim]`.
        to: Slot,
    },
    /// `to = activation(gate) · up`.
    GatedAct {
        /// Input of the activation.
        gate: Slot,
        /// The other factor.
        up: Slot,
        /// The nonlinearity.
        activation: Activation,
        /// Destination.
        to: Slot,
    },
    /// `x = silu(x)`, in place.
    Silu {
        /// The values.
        x: Slot,
    },
    /// `x *= sigmoid(gate)`, in place; each gate serves `width(x) / width(gate)` neighbouring channels.
    MulSigmoid {
        /// `[rows, width]`.
        x: Slot,
        /// `[rows, gates]`.
        gate: Slot,
    },
    /// From router logits to chosen experts: `to` receives their numbers, then their weights, by rank.
    Route {
        /// `[rows, experts]`.
        logits: Slot,
        /// `[experts]`, added for the choice only.
        choice_bias: Option<WeightId>,
        /// `[experts]`, multiplies the weights.
        expert_scale: Option<WeightId>,
        /// The rules.
        routing: Routing,
        /// `[rows, 2 · top_k]`.
        to: Slot,
    },
    /// `to = Σ by rank weight · down(activation(gate x, up x))` over the chosen experts.
    Experts {
        /// `[rows, hidden]`.
        x: Slot,
        /// What [`Step::Route`] wrote.
        route: Slot,
        /// The matrices.
        bank: BankWeights,
        /// The nonlinearity.
        activation: Activation,
        /// `[rows, hidden]`.
        to: Slot,
    },
    /// `x *= factor`, in place.
    Scale {
        /// The values.
        x: Slot,
        /// The factor.
        factor: f32,
    },
    /// `x *= weight[0]`, in place.
    ScaleBy {
        /// The values.
        x: Slot,
        /// `[1]`.
        weight: WeightId,
    },
    /// `x = cap · tanh(x / cap)`, in place.
    Softcap {
        /// The values.
        x: Slot,
        /// The bound.
        cap: f32,
    },
    /// `to = mean over streams of sigmoid(gate) · x`.
    HyperMix {
        /// `[rows, streams · width]`.
        x: Slot,
        /// The same shape.
        gate: Slot,
        /// `[rows, width]`.
        to: Slot,
    },
    /// `into[c] += 2 sigmoid(inject[c] / streams) · x`.
    HyperAdd {
        /// `[rows, streams · width]`.
        into: Slot,
        /// `[rows, width]`.
        x: Slot,
        /// `[rows, streams]`.
        inject: Slot,
    },
    /// `to` = the rows of a table that the hash of the last tokens names, one a head.
    NgramEmbed {
        /// `[rows of the table, width]`.
        table: WeightId,
        /// The hash.
        hash: NgramHash,
        /// The last tokens, each as its id + 1; 0 for none.
        state: StateId,
        /// `[rows, heads · width]`.
        to: Slot,
    },
    /// `to[c] = sigmoid(s(key[c] · query[c] / √width)) · value`, with `s(z) = sign(z) √max(|z|, 1e-6)`.
    NgramGate {
        /// `[rows, streams · width]`.
        key: Slot,
        /// `[rows, streams · width]`.
        query: Slot,
        /// `[rows, width]`.
        value: Slot,
        /// `[rows, streams · width]`.
        to: Slot,
    },
    /// `into += x`.
    Add {
        /// The stream.
        into: Slot,
        /// The branch.
        x: Slot,
    },
    /// A place worth looking at; [`crate::instrument`] turns it into what was asked for or takes it away.
    Mark {
        /// Which place.
        place: Place,
        /// What is there.
        x: Slot,
    },
    /// `to = x`, kept for the caller: an entry of [`crate::Program::taps`].
    Tap {
        /// `[rows, width]`.
        x: Slot,
        /// `[rows, width]`.
        to: Slot,
    },
    /// Changes rows along a direction, in place: [`Edit::change`] says how.
    Steer {
        /// `[rows, width]`, or several streams of that width side by side, each changed alike.
        x: Slot,
        /// `[width]`.
        direction: WeightId,
        /// What is done.
        edit: Edit,
    },
    /// Copies the rows whose outputs are wanted; later steps see only those.
    TakeRows {
        /// `[rows, width]`.
        x: Slot,
        /// `[wanted rows, width]`.
        to: Slot,
    },
    /// Fused: several [`Step::Linear`] of one input.
    Linears {
        /// The common input.
        x: Slot,
        /// The products, in order.
        parts: Vec<Part>,
    },
    /// Fused: [`Step::Linear`], then [`Step::Add`] of its result.
    LinearAdd {
        /// Input.
        x: Slot,
        /// The product; its `to` holds nothing afterwards.
        part: Part,
        /// The stream.
        into: Slot,
    },
    /// Fused: two [`Step::Linear`] of one input, then [`Step::GatedAct`].
    GateUpAct {
        /// The common input.
        x: Slot,
        /// Its `to` holds nothing afterwards.
        gate: Part,
        /// Its `to` holds nothing afterwards.
        up: Part,
        /// The nonlinearity.
        activation: Activation,
        /// Destination.
        to: Slot,
    },
}

impl Step {
    /// The definition of a fused step in plain ones; a plain step is its own.
    pub fn expand(&self) -> Vec<Step> {
        match self.clone() {
            Step::Linears { x, parts } => parts.into_iter().map(|part| Step::Linear { x, part }).collect(),
            Step::LinearAdd { x, part, into } => {
                let y = part.to;
                vec![Step::Linear { x, part }, Step::Add { into, x: y }]
            }
            Step::GateUpAct { x, gate, up, activation, to } => {
                let act = Step::GatedAct { gate: gate.to, up: up.to, activation, to };
                vec![Step::Linear { x, part: gate }, Step::Linear { x, part: up }, act]
            }
            plain => vec![plain],
        }
    }
}
