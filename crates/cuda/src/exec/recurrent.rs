//! Steps with a state of fixed size.

use super::Run;
use crate::driver::{At, Params};
use crate::error::CudaError;
use crate::layout::StatePlace;
use model::HeadOrder;
use plan::{DeltaShape, StateId, Step};

type Done = Result<(), CudaError>;

impl Run<'_> {
    fn copies(&self, state: StateId) -> (At, usize) {
        match self.state(state) {
            StatePlace::Fixed { at, bytes } => (self.states + at as u64, bytes),
            StatePlace::Kv { .. } => unreachable!("the step was lowered with a fixed state"),
        }
    }

    pub(super) fn recur<'h>(&self, step: &Step, hashes: &mut impl Iterator<Item = &'h At>) -> Done {
        let [first, slots, sequences] =
            [self.rowwise.first, self.rowwise.slots, self.rowwise.sequences].map(|place| self.number(place));
        match step {
            Step::Conv { x, weight, dilation, state, to } => {
                let (channels, (copies, bytes)) = (self.width(*x), self.copies(*state));
                let kernel = self.weight(*weight).cols / channels;
                let params = Params::each().at(self.slot(*x)).at(self.weight(*weight).at).at(copies);
                let params = params.at(self.slot(*to)).at(first).at(sequences).at(slots);
                let params = params.int(self.shape.rows).int(channels).int(kernel).int(*dilation);
                self.each("conv", self.shape.rows * channels, &params)?;
                let before = bytes / 4 / channels;
                if before == 0 {
                    return Ok(());
                }
                let params = Params::each().at(self.slot(*x)).at(copies).at(first).at(slots);
                let grid = [channels.div_ceil(128), self.shape.sequences, 1];
                self.gpu.launch("conv_move", grid, 128, 0, &params.int(channels).int(before))
            }
            Step::Delta { qkv, beta, decay, a, dt_bias, shape, state, to } => {
                let &DeltaShape { k_heads, v_heads, k_dim, v_dim, order } = shape;
                let params = Params::fields().at(self.slot(*qkv)).at(self.slot(*beta)).at(self.slot(*decay));
                let params = params.at(self.weight(*a).at).at(self.weight(*dt_bias).at).at(self.copies(*state).0);
                let params = params.at(self.slot(*to)).at(first).at(slots);
                let params = params.int(k_heads).int(v_heads).int(k_dim).int(v_dim);
                let grid = [v_heads, v_dim.div_ceil(128), self.shape.sequences];
                self.gpu.launch("delta", grid, 128, 8 * k_dim, &params.flag(order == HeadOrder::Tiled))
            }
            Step::NgramEmbed { table, hash, state, to } => {
                let (count, heads) = (hash.multipliers.len() - 1, hash.sizes.len());
                let ids = self.scratch(self.compiled.activations.keys);
                let numbers = hashes.next().copied().unwrap_or(0);
                let params = Params::each().at(self.number(self.rowwise.tokens)).at(numbers).at(self.copies(*state).0);
                let params = params.at(ids).at(first).at(slots).int(self.shape.sequences).int(count).int(heads);
                let grid = [self.shape.sequences.div_ceil(32), 1, 1];
                self.gpu.launch("ngram_rows", grid, 32, 0, &params.int(hash.end as usize))?;
                self.lookup(*table, ids, self.slot(*to), self.shape.rows * heads, 1.0)
            }
            other => unreachable!("{other:?} has no state of fixed size"),
        }
    }
}
