//! One layer's keys and values in blocks of [`KV_BLOCK`] positions, laid out for vectors of positions.
//!
//! A block holds, head by head, the keys transposed, `[head_dim][KV_BLOCK]`, so that scores are vectorised
//! over positions, and the values as rows, `[KV_BLOCK][head_dim]`, so that outputs are vectorised over channels.

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

    fn copy(&mut self, from: usize, to: usize, len: usize) {
        match self {
            Self::F32(v) => v.copy_within(from..from + len, to),
            Self::F16(v) => v.copy_within(from..from + len, to),
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
        let len = blocks * KV_BLOCK * spec.heads * spec.head_dim;
        Self {
            spec,
            k: Store::new(kv.k, len),
            v: Store::new(kv.v, len),
        }
    }

    /// Stores one row's keys and values, `[heads · head_dim]` each, at a place in a block.
    pub(crate) fn append(&mut self, block: BlockId, place: usize, k: &[f32], v: &[f32]) {
        let dim = self.spec.head_dim;
        for (head, (k, v)) in k.chunks_exact(dim).zip(v.chunks_exact(dim)).enumerate() {
            let at = self.head(block, head);
            for (d, (k, v)) in k.iter().zip(v).enumerate() {
                self.k.set(at + d * KV_BLOCK + place, *k);
                self.v.set(at + place * dim + d, *v);
            }
        }
    }

    /// A block of one head.
    pub(crate) fn block(&self, block: BlockId, head: usize) -> Block<'_> {
        let (at, len) = (self.head(block, head), KV_BLOCK * self.spec.head_dim);
        Block {
            keys: self.k.read(at, len),
            values: self.v.read(at, len),
            head_dim: self.spec.head_dim,
        }
    }

    pub(crate) fn copy(&mut self, from: BlockId, to: BlockId) {
        let len = KV_BLOCK * self.spec.heads * self.spec.head_dim;
        let (from, to) = (self.head(from, 0), self.head(to, 0));
        self.k.copy(from, to, len);
        self.v.copy(from, to, len);
    }

    fn head(&self, block: BlockId, head: usize) -> usize {
        (block.0 as usize * self.spec.heads + head) * KV_BLOCK * self.spec.head_dim
    }
}
