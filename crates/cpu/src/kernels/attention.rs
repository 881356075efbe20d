//! The two products of attention over one block of [`KEYS`] keys, for all query heads that share the block's kv head.
//!
//! Keys are stored transposed, `[head_dim, KEYS]`, so that a lane is a key; values are stored `[keys, head_dim]`, so that a lane
//! is a component. Each result is one fma chain: over ascending components for scores, over ascending keys for outputs.

use half::f16;

use crate::isa::{Isa, Kernel, Widen};

/// Keys in a block.
pub const KEYS: usize = 32;

/// Query heads computed together.
const HEADS: usize = 2;

/// Components of an output computed together.
const LANES: usize = 32;

/// Stored keys or values.
#[derive(Clone, Copy, Debug)]
pub enum Stored<'a> {
    /// As f32.
    F32(&'a [f32]),
    /// As f16.
    F16(&'a [f16]),
}

impl<'a> Stored<'a> {
    /// The first `len` values.
    pub fn first(self, len: usize) -> Stored<'a> {
        match self {
            Self::F32(values) => Self::F32(&values[..len]),
            Self::F16(values) => Self::F16(&values[..len]),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F16(values) => values.len(),
        }
    }
}

/// `out[h][key] = Σ_d q[h][d] · keys[d][key]` for the heads in `q` (`[heads, head_dim]`), `out` being `[heads, KEYS]`.
///
/// # Panics
/// If the lengths do not agree.
pub fn scores(isa: Isa, q: &[f32], keys: Stored<'_>, out: &mut [f32]) {
    let head_dim = keys.len() / KEYS;
    assert_eq!(keys.len(), head_dim * KEYS, "keys are whole rows of {KEYS}");
    assert_eq!(q.len() * KEYS, out.len() * head_dim, "a score for each head and key");
    let out = out.as_chunks_mut::<KEYS>().0;
    match keys {
        Stored::F32(keys) => isa.run(Scores { q, keys, head_dim, out }),
        Stored::F16(keys) => isa.run(Scores { q, keys, head_dim, out }),
    }
}

/// `out[h][c] = fma(p[h][key], values[key][c], out[h][c])` for ascending keys: `p` is `[heads, KEYS]`, of which the first
/// `values.len() / head_dim` keys count, and `out` is `[heads, head_dim]`.
///
/// # Panics
/// If the lengths do not agree.
pub fn add_weighted(isa: Isa, p: &[f32], values: Stored<'_>, head_dim: usize, out: &mut [f32]) {
    let keys = values.len() / head_dim;
    assert!(keys <= KEYS && values.len() == keys * head_dim, "at most {KEYS} values of {head_dim}");
    assert_eq!(p.len() * head_dim, out.len() * KEYS, "a row of {KEYS} weights for each output");
    let p = p.as_chunks::<KEYS>().0;
    match values {
        Stored::F32(values) => isa.run(Weighted { p, values, head_dim, out }),
        Stored::F16(values) => isa.run(Weighted { p, values, head_dim, out }),
    }
}

/// A stored element that converts to f32 exactly.
trait Element: Copy {
    fn eight<W: Widen>(widen: W, values: &[Self; 8]) -> [f32; 8];
    fn one(self) -> f32;
}

impl Element for f32 {
    #[inline(always)]
    fn eight<W: Widen>(_: W, values: &[Self; 8]) -> [f32; 8] {
        *values
    }

    #[inline(always)]
    fn one(self) -> f32 {
        self
    }
}

impl Element for f16 {
    #[inline(always)]
    fn eight<W: Widen>(widen: W, values: &[Self; 8]) -> [f32; 8] {
        widen.widen(&values.map(f16::to_bits))
    }

    #[inline(always)]
    fn one(self) -> f32 {
        self.to_f32_const()
    }
}

#[inline(always)]
fn widen_lanes<E: Element, W: Widen>(widen: W, values: &[E; LANES]) -> [[f32; 8]; LANES / 8] {
    let eights = values.as_chunks::<8>().0;
    std::array::from_fn(|i| E::eight(widen, &eights[i]))
}

/// `acc = fma(factor, values, acc)`, lane by lane.
#[inline(always)]
fn add_lanes(acc: &mut [[f32; 8]; LANES / 8], factor: f32, values: &[[f32; 8]; LANES / 8]) {
    for (acc, values) in acc.iter_mut().zip(values) {
        for (acc, value) in acc.iter_mut().zip(values) {
            *acc = factor.mul_add(*value, *acc);
        }
    }
}

struct Scores<'a, E> {
    q: &'a [f32],
    keys: &'a [E],
    head_dim: usize,
    out: &'a mut [[f32; KEYS]],
}

impl<E: Element> Kernel for Scores<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<W: Widen>(self, widen: W) {
        let keys = self.keys.as_chunks::<KEYS>().0;
        let (pairs, last) = self.out.as_chunks_mut::<HEADS>();
        let q = |head: usize| &self.q[head * self.head_dim..][..self.head_dim];
        for (pair, out) in pairs.iter_mut().enumerate() {
            heads(widen, std::array::from_fn::<_, HEADS, _>(|i| q(pair * HEADS + i)), keys, out);
        }
        if let Some(out) = last.first_chunk_mut::<1>() {
            heads(widen, [q(pairs.len() * HEADS)], keys, out);
        }
    }
}

#[inline(always)]
fn heads<E: Element, W: Widen, const H: usize>(
    widen: W,
    q: [&[f32]; H],
    keys: &[[E; KEYS]],
    out: &mut [[f32; KEYS]; H],
) {
    let mut acc = [[[0.0; 8]; LANES / 8]; H];
    let q = q.map(|q| &q[..keys.len()]);
    for (d, keys) in keys.iter().enumerate() {
        let keys = widen_lanes(widen, keys);
        for (acc, q) in acc.iter_mut().zip(q) {
            add_lanes(acc, q[d], &keys);
        }
    }
    for (out, acc) in out.iter_mut().zip(&acc) {
        out.copy_from_slice(acc.as_flattened());
    }
}

struct Weighted<'a, E> {
    p: &'a [[f32; KEYS]],
    values: &'a [E],
    head_dim: usize,
    out: &'a mut [f32],
}

impl<E: Element> Kernel for Weighted<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<W: Widen>(self, widen: W) {
        let keys = self.values.len() / self.head_dim;
        for (p, out) in self.p.iter().zip(self.out.chunks_exact_mut(self.head_dim)) {
            let whole = self.head_dim / LANES * LANES;
            for start in (0..whole).step_by(LANES) {
                let out: &mut [f32; LANES] =
                    (&mut out[start..start + LANES]).try_into().expect("a slice of that length");
                let mut acc = widen_lanes::<f32, W>(widen, out);
                for (key, p) in p[..keys].iter().enumerate() {
                    let values =
                        self.values[key * self.head_dim + start..].first_chunk::<LANES>().expect("a whole row");
                    add_lanes(&mut acc, *p, &widen_lanes(widen, values));
                }
                out.copy_from_slice(acc.as_flattened());
            }
            for (component, out) in out.iter_mut().enumerate().skip(whole) {
                for (key, p) in p[..keys].iter().enumerate() {
                    let value = self.values[key * self.head_dim + component].one();
                    *out = p.mul_add(value, *out);
                }
            }
        }
    }
}
