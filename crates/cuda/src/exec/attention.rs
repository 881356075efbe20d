//! Steps that store, choose and read keys and values.

use super::Run;
use crate::driver::{At, Params};
use crate::error::CudaError;
use crate::kernels::kv_name;
use crate::layout::{PIECE, StatePlace, choices_room, pieces};
use model::Pairing;
use plan::{BlockScore, KvSpec, Select, Slot, Step, WeightId};

type Done = Result<(), CudaError>;

/// Threads of a block, and channels of a value that it sums up: `THREADS` and `WIDTH` of kernels/attention.cu.
const THREADS: usize = 128;
const WIDTH: usize = 256;
/// Shared memory that every GPU gives a block.
const SHARED: usize = 48 << 10;

/// A cache and its addresses.
struct Cache {
    spec: KvSpec,
    k: At,
    v: At,
}

/// What an attention is of.
struct Attend<'a> {
    q: Slot,
    cache: Cache,
    heads: usize,
    scale: f32,
    window: Option<usize>,
    sinks: Option<WeightId>,
    select: Option<&'a Select>,
    to: Slot,
}

impl Run<'_> {
    fn cache(&self, state: plan::StateId) -> Cache {
        match self.state(state) {
            StatePlace::Kv { spec, k, v, .. } => Cache { spec, k: self.states + k as u64, v: self.states + v as u64 },
            StatePlace::Fixed { .. } => unreachable!("the step was lowered with a cache"),
        }
    }

    /// The fields that say where blocks are.
    fn tables(&self, window: Option<usize>, params: Params) -> Params {
        let group = self.windows.iter().position(|w| *w == window).unwrap_or(0);
        let place = &self.rowwise;
        let offsets = place.offsets + group * self.limits.rows;
        [place.positions, place.sequences, place.table, offsets].iter().fold(params, |p, at| p.at(self.number(*at)))
    }

    pub(super) fn attention(&self, step: &Step) -> Done {
        match step {
            Step::Append { k, v, state } => self.append(*k, *v, &self.cache(*state)),
            Step::Attend { q, state, heads, scale, window, sinks, select, to } => self.attend(&Attend {
                q: *q,
                cache: self.cache(*state),
                heads: *heads,
                scale: *scale,
                window: *window,
                sinks: *sinks,
                select: select.as_ref(),
                to: *to,
            }),
            Step::IndexSelect { q, state, heads, block, score, to } => {
                self.select(*q, (&self.cache(*state), *heads, *block), score, *to)
            }
            other => unreachable!("{other:?} has no keys"),
        }
    }

    fn append(&self, k: Slot, v: Option<Slot>, cache: &Cache) -> Done {
        let KvSpec { heads, k_dim, v_dim, window, .. } = cache.spec;
        let types = cache.spec.types(self.limits.kv);
        let v = v.filter(|_| v_dim > 0);
        let params = Params::each().at(self.slot(k)).maybe(v.map(|v| self.slot(v))).at(cache.k).at(cache.v);
        // The tables are a struct of their own: its fields are one parameter.
        let params = self.tables(window, params.structure()).end_structure().int(heads).int(k_dim).int(v_dim);
        let name = format!("append_{}_{}", kv_name(types.k), kv_name(types.v));
        self.gpu.launch(&name, [self.shape.rows, if v.is_some() { 2 } else { 1 }, 1], BLOCK, 0, &params)
    }

    fn attend(&self, a: &Attend<'_>) -> Done {
        let KvSpec { heads: kv_heads, k_dim, v_dim, .. } = a.cache.spec;
        let types = a.cache.spec.types(self.limits.kv);
        let share = a.heads / kv_heads;
        let shared = |group: usize| 4 * group * (k_dim + PIECE);
        let fits = |group: &usize| shared(*group) + 256 * group <= SHARED;
        let group = [8, 4, 1].into_iter().filter(fits).find(|g| *g == 1 || share > g / 2).unwrap_or(1);
        let (groups, widths) = (share.div_ceil(group), v_dim.div_ceil(WIDTH));
        let across = kv_heads * groups * widths;
        // How many pieces the rows see at most; a recorded run is used again where they see fewer.
        let pieces = pieces(a.window, self.shape.reach, self.limits);
        let parts_bytes = 4 * self.shape.rows * a.heads * pieces * (v_dim + 2);
        // With few rows, pieces run beside each other; the results have the same bits.
        let beside = pieces > 1
            && self.shape.rows * across < 4 * self.gpu.processors
            && parts_bytes <= self.compiled.activations.parts_bytes;
        let parts = if beside { self.scratch(self.compiled.activations.parts) } else { 0 };
        let (chosen, choices, count, block, tail) = match a.select {
            Some(s) => (self.slot(s.chosen), s.choices, self.width(s.chosen) / s.choices, s.block, s.tail),
            None => (0, 0, 0, 1, false),
        };
        let params = self.tables(a.cache.spec.window, Params::fields());
        let params = params.at(self.slot(a.q)).at(a.cache.k).at(a.cache.v).maybe(self.vector(a.sinks));
        let params = params.at(chosen).at(self.slot(a.to)).at(parts);
        let params = params.int(self.shape.rows).int(a.heads).int(kv_heads).int(k_dim).int(v_dim);
        let params = params.int(a.window.unwrap_or(0)).int(choices).int(count).int(block).flag(tail);
        let params = params.int(pieces).float(a.scale);
        let name = format!("attend_{}_{}_{group}", kv_name(types.k), kv_name(types.v));
        let grid = [across, self.shape.rows, if beside { pieces } else { 1 }];
        self.gpu.launch(&name, grid, THREADS, shared(group), &params)?;
        if beside {
            self.gpu.launch("attend_join", [a.heads, self.shape.rows, 1], THREADS, 0, &params)?;
        }
        Ok(())
    }

    fn select(&self, q: Slot, (cache, heads, block): (&Cache, usize, usize), score: &BlockScore, to: Slot) -> Done {
        let dim = cache.spec.k_dim;
        let kind = kv_name(cache.spec.types(self.limits.kv).k);
        let (room, keys) = (choices_room(block, self.limits), self.scratch(self.compiled.activations.keys));
        let fields = self.tables(cache.spec.window, Params::fields());
        let fields = fields.at(self.slot(q)).at(cache.k).at(keys);
        let shape = |fields: Params| fields.int(self.shape.rows).int(heads).int(dim).int(block).int(room);
        let blocks = self.shape.reach.div_ceil(block);
        let partial = match score {
            BlockScore::LargestKey { local } => {
                let params = shape(fields.at(0).at(0)).int(*local).int(0).int(0).float(0.0).float(0.0);
                let grid = [blocks.div_ceil(4), self.shape.rows, heads];
                self.gpu.launch(&format!("largest_key_{kind}"), grid, 128, 0, &params)?;
                true
            }
            BlockScore::MeanKey { norm, eps, rope } => {
                let own = &self.compiled.program.ropes[rope.0 as usize];
                let params = fields.maybe(self.vector(*norm)).at(self.compiled.ropes[rope.0 as usize]);
                let params = shape(params).int(0).int(own.rotary_dim / 2);
                let params = params.flag(own.pairing == Pairing::Interleaved).float(*eps).float(own.amplitude());
                self.gpu.launch(&format!("mean_key_{kind}"), [blocks, self.shape.rows, 1], 32, 8 * dim, &params)?;
                false
            }
        };
        let choices = if partial { heads } else { 1 };
        let params = Params::each().at(keys).at(self.number(self.rowwise.positions)).at(self.slot(to)).int(choices);
        let params = params.int(self.width(to) / choices).int(room).int(block).flag(partial);
        self.gpu.launch("choose", [choices, self.shape.rows, 1], BLOCK, 0, &params)
    }
}

/// Threads of a block of the smaller kernels.
const BLOCK: usize = 256;
