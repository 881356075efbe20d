//! Attention with sinks, with keys and values of different widths, and over chosen blocks of positions.

use super::{Case, EXACT, FLOATS, MIXED, QUANTISED, ROUNDED, SEVERAL};
use crate::Graph;
use model::{Pairing, Rope, RopeScaling};
use plan::{BlockScore, KvSpec, Select, Slot, Step};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (heads, kv_heads, k_dim, v_dim) in [(4, 2, 8, 8), (3, 1, 24, 16), (6, 2, 5, 9)] {
        for window in [None, Some(9)] {
            let name = format!("attend with sinks {heads}/{kv_heads} x {k_dim}/{v_dim}, {window:?}");
            cases.push(Case::of(name, MIXED, EXACT, |g| {
                let sinks = Some(g.vector(heads));
                let spec = KvSpec { heads: kv_heads, k_dim, v_dim, window, layer: 0, kv: None };
                let (q, state, to) = (g.input(heads * k_dim), g.state(spec), g.slot(heads * v_dim));
                let (k, v) = (g.input(kv_heads * k_dim), Some(g.input(kv_heads * v_dim)));
                g.step(Step::Append { k, v, state });
                g.step(Step::Attend { q, state, heads, scale: 0.4, window, sinks, select: None, to });
                to
            }));
        }
    }
    for (block, count) in [(4, 3), (8, 2), (32, 2), (48, 1)] {
        for local in [0, 1, 2] {
            let name = format!("{count} blocks of {block} by the largest key, {local} local");
            cases.push(Case::of(name, MIXED, EXACT, |g| {
                let chosen = index(g, (2, block), BlockScore::LargestKey { local }, 2 * count);
                select(g, Select { chosen, choices: 2, block, tail: false })
            }));
        }
        let name = format!("{count} blocks of {block} by the mean key");
        cases.push(Case::of(name, MIXED, EXACT, |g| {
            let scaling = RopeScaling::None;
            let rope = g.rope(Rope { theta: 100.0, rotary_dim: 4, pairing: Pairing::Half, scaling });
            let norm = Some(g.vector(6));
            let chosen = index(g, (3, block), BlockScore::MeanKey { norm, eps: 1e-6, rope }, count);
            select(g, Select { chosen, choices: 1, block, tail: true })
        }));
    }
    for dtype in FLOATS.iter().chain(QUANTISED) {
        let inputs = if dtype.block_len() == 1 { 10 } else { dtype.block_len() };
        let limit = if QUANTISED.contains(dtype) { ROUNDED } else { EXACT };
        cases.push(Case::of(format!("head_linear {dtype}"), SEVERAL, limit, |g| {
            let (x, weight, to) = (g.input(3 * inputs), g.matrix(*dtype, 3 * 9, inputs), g.slot(3 * 9));
            g.step(Step::HeadLinear { x, weight, heads: 3, to });
            to
        }));
    }
    cases
}

/// Index queries of 6 channels and the choice they make.
fn index(g: &mut Graph, (heads, block): (usize, usize), score: BlockScore, width: usize) -> Slot {
    let state = g.state(KvSpec { heads: 1, k_dim: 6, v_dim: 0, window: None, layer: 0, kv: None });
    let (q, k, to) = (g.input(heads * 6), g.input(6), g.slot(width));
    g.step(Step::Append { k, v: None, state });
    g.step(Step::IndexSelect { q, state, heads, block, score, to });
    to
}

fn select(g: &mut Graph, select: Select) -> Slot {
    let state = g.state(KvSpec { heads: 2, k_dim: 8, v_dim: 8, window: None, layer: 0, kv: None });
    let (q, k, v, to) = (g.input(32), g.input(16), g.input(16), g.slot(32));
    g.step(Step::Append { k, v: Some(v), state });
    let select = Some(select);
    g.step(Step::Attend { q, state, heads: 4, scale: 0.4, window: None, sinks: None, select, to });
    to
}
