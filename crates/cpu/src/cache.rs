//! One layer's keys and values in blocks of [`KV_BLOCK`] positions, laid out for vectors of positions.
//!
//! A block holds, head by head, the keys transposed, `[k_dim][KV_BLOCK]`, so that scores are vectorised
//! over positions, and the values as rows, `[KV_BLOCK][v_dim]`, so that outputs are vectorised over channels.
//! Packed vectors are the bytes of their [`Codec`], of keys transposed byte by byte; they are expanded a block at a time.

use crate::isa::Isa;
use crate::kernels::attend::Block;
use crate::kernels::attention::Stored;
use crate::kernels::kv::{expand_keys, expand_values};
use half::f16;
use plan::kv::{Codec, Side};
use plan::{BlockId, KV_BLOCK, KvSpec, KvType, KvTypes};

/// Elements of one of the cache's types; fresh ones take no memory until they are written.
#[derive(Debug)]
enum Elements {
    F32(Vec<f32>),
    F16(Vec<u16>),
    Packed {
        codec: Codec,
        bytes: Vec<u8>,
        /// One vector on its way in.
        encoded: Vec<u8>,
    },
}

/// The keys or the values of all blocks. The place of a vector is `head + place in its block`, where `head` counts all
/// positions of the heads and blocks before.
#[derive(Debug)]
struct Store {
    side: Side,
    dim: usize,
    elements: Elements,
}

impl Store {
    fn new(kind: KvType, places: usize, dim: usize, side: Side) -> Self {
        let elements = match kind {
            KvType::F32 => Elements::F32(vec![0.0; places * dim]),
            KvType::F16 => Elements::F16(vec![0; places * dim]),
            packed => {
                let codec = Codec::new(packed, dim, side);
                let (bytes, encoded) = (vec![0; places * codec.bytes()], vec![0; codec.bytes()]);
                Elements::Packed { codec, bytes, encoded }
            }
        };
        Self { side, dim, elements }
    }

    /// Elements of a vector.
    fn width(&self) -> usize {
        match &self.elements {
            Elements::Packed { codec, .. } => codec.bytes(),
            _ => self.dim,
        }
    }

    /// All bytes, as they are stored.
    fn bytes(&self) -> &[u8] {
        match &self.elements {
            Elements::F32(v) => bytemuck::cast_slice(v),
            Elements::F16(v) => bytemuck::cast_slice(v),
            Elements::Packed { bytes, .. } => bytes,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.elements {
            Elements::F32(v) => bytemuck::cast_slice_mut(v),
            Elements::F16(v) => bytemuck::cast_slice_mut(v),
            Elements::Packed { bytes, .. } => bytes,
        }
    }

    /// The bytes of some vectors.
    fn range(&self, head: usize, places: usize) -> std::ops::Range<usize> {
        let vector = match &self.elements {
            Elements::F32(_) => 4 * self.dim,
            Elements::F16(_) => 2 * self.dim,
            Elements::Packed { codec, .. } => codec.bytes(),
        };
        head * vector..(head + places) * vector
    }

    fn put(&mut self, head: usize, place: usize, x: &[f32]) {
        let width = self.width();
        let (start, step) = match self.side {
            Side::Keys => (head * width + place, KV_BLOCK),
            Side::Values => ((head + place) * width, 1),
        };
        match &mut self.elements {
            Elements::F32(v) => x.iter().enumerate().for_each(|(i, x)| v[start + i * step] = *x),
            Elements::F16(v) => {
                x.iter().enumerate().for_each(|(i, x)| v[start + i * step] = f16::from_f32(*x).to_bits());
            }
            Elements::Packed { codec, bytes, encoded } => {
                codec.encode(x, encoded);
                encoded.iter().enumerate().for_each(|(i, x)| bytes[start + i * step] = *x);
            }
        }
    }

    fn copy(&mut self, from: usize, to: usize, places: usize) {
        let (width, places) = (self.width(), from..from + places);
        let (from, to) = (places.start * width..places.end * width, to * width);
        match &mut self.elements {
            Elements::F32(v) => v.copy_within(from, to),
            Elements::F16(v) => v.copy_within(from, to),
            Elements::Packed { bytes, .. } => bytes.copy_within(from, to),
        }
    }

    /// f32 values of room that [`Self::block`] needs.
    fn scratch(&self) -> usize {
        if matches!(self.elements, Elements::Packed { .. }) { KV_BLOCK * self.dim } else { 0 }
    }

    /// A block of one head: as stored, or expanded into `scratch`.
    fn block<'a>(&'a self, head: usize, isa: Isa, scratch: &'a mut [f32]) -> Stored<'a> {
        let width = KV_BLOCK * self.width();
        let range = head / KV_BLOCK * width..(head / KV_BLOCK + 1) * width;
        match &self.elements {
            Elements::F32(v) => Stored::F32(&v[range]),
            Elements::F16(v) => Stored::F16(bytemuck::cast_slice(&v[range])),
            Elements::Packed { codec, bytes, .. } => {
                match self.side {
                    Side::Keys => expand_keys(isa, codec, &bytes[range], scratch),
                    Side::Values => expand_values(isa, codec, &bytes[range], scratch),
                }
                Stored::F32(scratch)
            }
        }
    }

    /// The codec, if vectors are rotated before they are stored.
    fn rotation(&self) -> Option<&Codec> {
        match &self.elements {
            Elements::Packed { codec, .. } if codec.kind().rotated() => Some(codec),
            _ => None,
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
        let (places, types) = (blocks * KV_BLOCK * spec.heads, spec.types(kv));
        let k = Store::new(types.k, places, spec.k_dim, Side::Keys);
        Self { spec, k, v: Store::new(types.v, places, spec.v_dim, Side::Values) }
    }

    /// Bytes allocated for keys and values.
    pub(crate) fn allocated(&self) -> usize {
        self.k.bytes().len() + self.v.bytes().len()
    }

    /// Stores one row's keys, `[heads · k_dim]`, and values, `[heads · v_dim]`, at a place in a block.
    pub(crate) fn append(&mut self, block: BlockId, place: usize, k: &[f32], v: &[f32]) {
        let KvSpec { heads, k_dim, v_dim, .. } = self.spec;
        for head in 0..heads {
            let at = self.head(block, head);
            self.k.put(at, place, &k[head * k_dim..][..k_dim]);
            if v_dim > 0 {
                self.v.put(at, place, &v[head * v_dim..][..v_dim]);
            }
        }
    }

    /// f32 values of room that [`Self::block`] needs.
    pub(crate) fn scratch(&self) -> usize {
        self.k.scratch() + self.v.scratch()
    }

    /// A block of one head; what is packed is expanded into `scratch`.
    pub(crate) fn block<'a>(&'a self, block: BlockId, head: usize, isa: Isa, scratch: &'a mut [f32]) -> Block<'a> {
        let at = self.head(block, head);
        let (k, v) = scratch.split_at_mut(self.k.scratch());
        Block { keys: self.k.block(at, isa, k), values: self.v.block(at, isa, v), v_dim: self.spec.v_dim }
    }

    /// How queries must be turned to meet the stored keys, if they must.
    pub(crate) fn key_rotation(&self) -> Option<&Codec> {
        self.k.rotation()
    }

    /// How sums of stored values must be turned back, if they must.
    pub(crate) fn value_rotation(&self) -> Option<&Codec> {
        self.v.rotation()
    }

    /// The keys of a block of the first head; for caches of keys alone, which are never packed.
    pub(crate) fn keys(&self, block: BlockId) -> Stored<'_> {
        self.k.block(self.head(block, 0), Isa::SCALAR, &mut [])
    }

    /// Adds one stored key of the first head to `sum`.
    pub(crate) fn add_key(&self, block: BlockId, place: usize, sum: &mut [f32]) {
        match self.keys(block) {
            Stored::F32(keys) => {
                sum.iter_mut().enumerate().for_each(|(d, sum)| *sum += keys[d * KV_BLOCK + place]);
            }
            Stored::F16(keys) => {
                sum.iter_mut().enumerate().for_each(|(d, sum)| *sum += keys[d * KV_BLOCK + place].to_f32());
            }
        }
    }

    pub(crate) fn copy(&mut self, from: BlockId, to: BlockId) {
        let (from, to, places) = (self.head(from, 0), self.head(to, 0), KV_BLOCK * self.spec.heads);
        self.k.copy(from, to, places);
        self.v.copy(from, to, places);
    }

    /// The stored bytes of a block's keys and of its values.
    pub(crate) fn bytes(&self, block: BlockId) -> [&[u8]; 2] {
        let (at, places) = (self.head(block, 0), KV_BLOCK * self.spec.heads);
        [&self.k, &self.v].map(|store| &store.bytes()[store.range(at, places)])
    }

    /// The same, to be filled.
    pub(crate) fn bytes_mut(&mut self, block: BlockId) -> [&mut [u8]; 2] {
        let (at, places) = (self.head(block, 0), KV_BLOCK * self.spec.heads);
        [&mut self.k, &mut self.v].map(|store| {
            let range = store.range(at, places);
            &mut store.bytes_mut()[range]
        })
    }

    /// The place of a head's first position among all heads of all blocks.
    fn head(&self, block: BlockId, head: usize) -> usize {
        (block.0 as usize * self.spec.heads + head) * KV_BLOCK
    }
}
