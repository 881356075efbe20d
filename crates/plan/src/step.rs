//! The steps: each is the largest thing every device can be asked to do without a fusion pass.

use model::Activation;

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
        /// `[width]`.
        weight: WeightId,
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
        /// `[head_dim]`.
        weight: WeightId,
        /// How many heads.
        heads: usize,
        /// Added to the mean square.
        eps: f32,
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
        /// Keys, `[rows, kv_heads · head_dim]`.
        k: Slot,
        /// Values, `[rows, kv_heads · head_dim]`.
        v: Slot,
        /// The layer's cache.
        state: StateId,
    },
    /// `to = softmax(scale · q kᵀ) v` over the *stored* keys and values a row may see.
    Attend {
        /// Queries, `[rows, q_heads · head_dim]`.
        q: Slot,
        /// The layer's cache.
        state: StateId,
        /// How many query heads.
        heads: usize,
        /// Multiplier of the dot products.
        scale: f32,
        /// Position p sees `(p - window, p]`; `None`: `[0, p]`.
        window: Option<usize>,
        /// Destination, the shape of `q`.
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
    /// `into += x`.
    Add {
        /// The stream.
        into: Slot,
        /// The branch.
        x: Slot,
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

    /// The slots a step reads.
    pub fn reads(&self) -> Vec<Slot> {
        match self {
            Step::Embed { .. } => vec![],
            Step::Norm { x, .. } | Step::Linear { x, .. } | Step::TakeRows { x, .. } | Step::Linears { x, .. } => {
                vec![*x]
            }
            Step::HeadNorm { x, .. } | Step::Rope { x, .. } => vec![*x],
            Step::Append { k, v, .. } => vec![*k, *v],
            Step::Attend { q, .. } => vec![*q],
            Step::GatedAct { gate, up, .. } => vec![*gate, *up],
            Step::Add { into, x } => vec![*into, *x],
            Step::LinearAdd { x, into, .. } => vec![*x, *into],
            Step::GateUpAct { x, .. } => vec![*x],
        }
    }

    /// The slots a step writes.
    pub fn writes(&self) -> Vec<Slot> {
        match self {
            Step::Embed { to, .. }
            | Step::Norm { to, .. }
            | Step::Attend { to, .. }
            | Step::GatedAct { to, .. }
            | Step::TakeRows { to, .. }
            | Step::GateUpAct { to, .. } => vec![*to],
            Step::Linear { part, .. } => vec![part.to],
            Step::HeadNorm { x, .. } | Step::Rope { x, .. } => vec![*x],
            Step::Append { .. } => vec![],
            Step::Add { into, .. } | Step::LinearAdd { into, .. } => vec![*into],
            Step::Linears { parts, .. } => parts.iter().map(|p| p.to).collect(),
        }
    }

    /// Applies `f` to every slot the step names.
    pub(crate) fn map_slots(&mut self, f: &mut dyn FnMut(&mut Slot)) {
        match self {
            Step::Embed { to, .. } => f(to),
            Step::Norm { x, to, .. } | Step::TakeRows { x, to } | Step::Attend { q: x, to, .. } => {
                f(x);
                f(to);
            }
            Step::Linear { x, part } => {
                f(x);
                f(&mut part.to);
            }
            Step::HeadNorm { x, .. } | Step::Rope { x, .. } => f(x),
            Step::Append { k, v, .. } => {
                f(k);
                f(v);
            }
            Step::GatedAct { gate, up, to, .. } => {
                f(gate);
                f(up);
                f(to);
            }
            Step::Add { into, x } => {
                f(into);
                f(x);
            }
            Step::Linears { x, parts } => {
                f(x);
                parts.iter_mut().for_each(|p| f(&mut p.to));
            }
            Step::LinearAdd { x, into, .. } => {
                f(x);
                f(into);
            }
            Step::GateUpAct { x, to, .. } => {
                f(x);
                f(to);
            }
        }
    }
}
