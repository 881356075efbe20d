//! What the reference device remembers of sequences.

use super::Keys;
use crate::FixedStates;
use crate::blocks::{BlockId, StateSlot};
use crate::device::{Limits, StateCopy};
use crate::kv::{Codec, Side};
use crate::program::{KV_BLOCK, KvSpec, StateSpec};

/// One state of a program, for all sequences.
#[derive(Debug)]
pub(super) enum State {
    /// Keys and values.
    Kv(Box<Cache>),
    /// Copies of a state of fixed size.
    Fixed(FixedStates),
}

impl State {
    pub(super) fn new(spec: &StateSpec, limits: &Limits) -> Self {
        match spec {
            StateSpec::Kv(kv) => Self::Kv(Box::new(Cache::new(*kv, limits))),
            fixed => Self::Fixed(FixedStates::new(fixed.fixed_values(), limits.state_slots)),
        }
    }

    pub(super) fn cache(&self) -> &Cache {
        match self {
            Self::Kv(cache) => cache,
            Self::Fixed(_) => unreachable!("the step was lowered with a cache"),
        }
    }

    pub(super) fn cache_mut(&mut self) -> &mut Cache {
        match self {
            Self::Kv(cache) => cache,
            Self::Fixed(_) => unreachable!("the step was lowered with a cache"),
        }
    }

    /// One copy of a fixed state.
    pub(super) fn fixed(&mut self, slot: Option<StateSlot>) -> &mut [f32] {
        match self {
            Self::Fixed(states) => states.slot(slot),
            Self::Kv(_) => unreachable!("the step was lowered with a fixed state"),
        }
    }

    pub(super) fn copy(&mut self, copy: StateCopy) {
        match (self, copy) {
            (Self::Kv(cache), StateCopy::Block { window, from, to }) if window == cache.spec.window => {
                cache.copy(from, to);
            }
            (Self::Fixed(states), copy) => states.copy(copy),
            (Self::Kv(_), _) => {}
        }
    }
}

/// One layer's keys and values: `[block][position in block][head][channel]`, as f32 what the stored bytes stand for.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) spec: KvSpec,
    codecs: [Codec; 2],
    k: Vec<f32>,
    v: Vec<f32>,
}

impl Cache {
    fn new(spec: KvSpec, limits: &Limits) -> Self {
        let rows = limits.blocks_of(spec.window) * KV_BLOCK * spec.heads;
        let types = spec.types(limits.kv);
        let codecs = [Codec::new(types.k, spec.k_dim, Side::Keys), Codec::new(types.v, spec.v_dim, Side::Values)];
        Self { spec, codecs, k: vec![0.0; rows * spec.k_dim], v: vec![0.0; rows * spec.v_dim] }
    }

    /// The place of a position's first head among all heads of all positions.
    fn place(&self, blocks: &[BlockId], position: usize) -> usize {
        (blocks[position / KV_BLOCK].0 as usize * KV_BLOCK + position % KV_BLOCK) * self.spec.heads
    }

    pub(super) fn append(&mut self, blocks: &[BlockId], position: usize, k: &[f32], v: &[f32]) {
        let place = self.place(blocks, position);
        for (codec, values, new) in [(&self.codecs[0], &mut self.k, k), (&self.codecs[1], &mut self.v, v)] {
            let mut bytes = vec![0; codec.bytes()];
            let stored = &mut values[place * codec.dim()..][..new.len()];
            for (new, stored) in new.chunks(codec.dim().max(1)).zip(stored.chunks_mut(codec.dim().max(1))) {
                codec.encode(new, &mut bytes);
                codec.decode(&bytes, stored);
            }
        }
    }

    fn copy(&mut self, from: BlockId, to: BlockId) {
        let rows = KV_BLOCK * self.spec.heads;
        for (values, dim) in [(&mut self.k, self.spec.k_dim), (&mut self.v, self.spec.v_dim)] {
            let (len, from, to) = (rows * dim, from.0 as usize, to.0 as usize);
            values.copy_within(from * len..(from + 1) * len, to * len);
        }
    }
}

/// One head of a sequence's cache.
pub(super) struct Head<'a> {
    pub(super) cache: &'a Cache,
    pub(super) blocks: &'a [BlockId],
    pub(super) head: usize,
}

impl Keys for Head<'_> {
    fn key(&self, position: usize) -> &[f32] {
        let dim = self.cache.spec.k_dim;
        &self.cache.k[(self.cache.place(self.blocks, position) + self.head) * dim..][..dim]
    }

    fn value(&self, position: usize) -> &[f32] {
        let dim = self.cache.spec.v_dim;
        &self.cache.v[(self.cache.place(self.blocks, position) + self.head) * dim..][..dim]
    }
}
