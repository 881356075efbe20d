//! One layer's keys and values in blocks of [`KV_BLOCK`] positions, laid out for vectors of positions.
//!
//! A block holds, head by head, the keys transposed, `[k_dim][KV_BLOCK]`, so that scores are vectorised
//! over positions, and the values as rows, `[KV_BLOCK][v_dim]`, so that outputs are vectorised over channels.

use crate::kernels::attend::Block;
use crate::kernels::attention::Stored;
use half::f16;
use plan::{BlockId, KV_BLOCK, KvSpec, KvType, KvTypes};

/// Values in one of the cache's types; fresh ones take no memory until they are written.
#[derive(Debug)]
enum Store {
    F32(Vec<f32>),
    F16(Vec<u16>),
}

impl Store {
    fn new(kind: KvType, len: usize) -> Self {
        match kind {
            KvType::F32 => Self::F32(vec![0.0; len]),
            KvType::F16 => Self::F16(vec![0; len]),
        }
    }

    fn set(&mut self, at: usize, x: f32) {
        match self {
            Self::F32(v) => v[at] = x,
            Self::F16(v) => v[at] = f16::from_f32(x).to_bits(),
        }
    }

    fn get(&self, at: usize) -> f32 {
        match self {
            Self::F32(v) => v[at],
            Self::F16(v) => f16::from_bits(v[at]).to_f32(),
        }
    }

    fn copy(&mut self, from: usize, to: usize, len: usize) {
        match self {
            Self::F32(v) => v.copy_within(from..from + len, to),
            Self::F16(v) => v.copy_within(from..from + len, to),
        }
    }

    fn bytes(&self, at: usize, len: usize) -> &[u8] {
        match self {
            Self::F32(v) => bytemuck::cast_slice(&v[at..at + len]),
            Self::F16(v) => bytemuck::cast_slice(&v[at..at + len]),
        }
    }

    fn bytes_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        match self {
            Self::F32(v) => bytemuck::cast_slice_mut(&mut v[at..at + len]),
            Self::F16(v) => bytemuck::cast_slice_mut(&mut v[at..at + len]),
        }
    }

    fn read(&self, at: usize, len: usize) -> Stored<'_> {
        match self {
            Self::F32(v) => Stored::F32(&v[at..at + len]),
            Self::F16(v) => Stored::F16(bytemuck::cast_slice(&v[at..at + len])),
        }
    }
}

/// One layer's cache.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) spec: KvSpec,
    k: Store,
    v: Store,
}

impl Cache {
    pub(crate) fn new(spec: KvSpec, blocks: usize, kv: KvTypes) -> Self {
        let places = blocks * KV_BLOCK * spec.heads;
        Self { spec, k: Store::new(kv.k, places * spec.k_dim), v: Store::new(kv.v, places * spec.v_dim) }
    }

    /// Stores one row's keys, `[heads · k_dim]`, and values, `[heads · v_dim]`, at a place in a block.
    pub(crate) fn append(&mut self, block: BlockId, place: usize, k: &[f32], v: &[f32]) {
        let KvSpec { heads, k_dim, v_dim, .. } = self.spec;
        for head in 0..heads {
            let at = self.head(block, head);
            for (d, k) in k[head * k_dim..][..k_dim].iter().enumerate() {
                self.k.set(at * k_dim + d * KV_BLOCK + place, *k);
            }
            for (d, v) in v[head * v_dim..][..v_dim].iter().enumerate() {
                self.v.set(at * v_dim + place * v_dim + d, *v);
            }
        }
    }

    /// A block of one head.
    pub(crate) fn block(&self, block: BlockId, head: usize) -> Block<'_> {
        let (at, KvSpec { k_dim, v_dim, .. }) = (self.head(block, head), self.spec);
        Block {
            keys: self.k.read(at * k_dim, KV_BLOCK * k_dim),
            values: self.v.read(at * v_dim, KV_BLOCK * v_dim),
            v_dim,
        }
    }

    /// Adds one stored key of the first head to `sum`.
    pub(crate) fn add_key(&self, block: BlockId, place: usize, sum: &mut [f32]) {
        let at = self.head(block, 0) * self.spec.k_dim + place;
        for (d, sum) in sum.iter_mut().enumerate() {
            *sum += self.k.get(at + d * KV_BLOCK);
        }
    }

    pub(crate) fn copy(&mut self, from: BlockId, to: BlockId) {
        let (from, to, places) = (self.head(from, 0), self.head(to, 0), KV_BLOCK * self.spec.heads);
        for (store, dim) in [(&mut self.k, self.spec.k_dim), (&mut self.v, self.spec.v_dim)] {
            store.copy(from * dim, to * dim, places * dim);
        }
    }

    /// The stored bytes of a block's keys and of its values.
    pub(crate) fn bytes(&self, block: BlockId) -> [&[u8]; 2] {
        let (at, places, KvSpec { k_dim, v_dim, .. }) = (self.head(block, 0), KV_BLOCK * self.spec.heads, self.spec);
        [self.k.bytes(at * k_dim, places * k_dim), self.v.bytes(at * v_dim, places * v_dim)]
    }

    /// The same, to be filled.
    pub(crate) fn bytes_mut(&mut self, block: BlockId) -> [&mut [u8]; 2] {
        let (at, places, KvSpec { k_dim, v_dim, .. }) = (self.head(block, 0), KV_BLOCK * self.spec.heads, self.spec);
        [self.k.bytes_mut(at * k_dim, places * k_dim), self.v.bytes_mut(at * v_dim, places * v_dim)]
    }

    /// The place of a head's first position among all heads of all blocks.
    fn head(&self, block: BlockId, head: usize) -> usize {
        (block.0 as usize * self.spec.heads + head) * KV_BLOCK
    }
}
