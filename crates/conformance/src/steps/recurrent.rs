//! Steps whose rows depend on earlier ones through a state of fixed size.

use super::{Case, EXACT, FLOATS, MIXED};
use model::{HeadOrder, NgramHash};
use plan::{DeltaShape, StateSpec, Step};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (channels, kernel, dilation) in [(1, 2, 1), (7, 4, 1), (24, 4, 3), (40, 1, 1), (9, 3, 2)] {
        cases.push(Case::of(format!("conv {channels} kernel {kernel} every {dilation}"), MIXED, EXACT, |g| {
            let (x, weight, to) = (g.input(channels), g.vector(kernel * channels), g.slot(channels));
            let state = g.remember(StateSpec::Rows { rows: (kernel - 1) * dilation, width: channels });
            g.step(Step::Conv { x, weight, dilation, state, to });
            to
        }));
    }
    for (k_heads, v_heads, k_dim, v_dim) in [(1, 1, 4, 4), (2, 4, 8, 16), (3, 3, 5, 7), (2, 6, 16, 9)] {
        for order in [HeadOrder::Grouped, HeadOrder::Tiled] {
            let name = format!("delta {k_heads}/{v_heads} x {k_dim}/{v_dim} {order:?}");
            cases.push(Case::of(name, MIXED, EXACT, |g| {
                let width = v_heads * v_dim;
                let qkv = g.input(2 * k_heads * k_dim + width);
                let (beta, decay) = (g.input(v_heads), g.input(v_heads));
                let rates: Vec<f32> = (0..v_heads).map(|head| -0.1 - 0.3 * head as f32).collect();
                let (a, dt_bias) = (g.values(&rates), g.vector(v_heads));
                let shape = DeltaShape { k_heads, v_heads, k_dim, v_dim, order };
                let state = g.remember(StateSpec::Recurrent { values: v_heads * k_dim * v_dim });
                let to = g.slot(width);
                g.step(Step::Delta { qkv, beta, decay, a, dt_bias, shape, state, to });
                to
            }));
        }
    }
    for dtype in FLOATS {
        for tokens in [2, 3, 4] {
            cases.push(Case::of(format!("ngram {dtype} of {tokens}"), MIXED, 0.0, |g| {
                let heads = 2 * (tokens - 1);
                let hash = NgramHash {
                    multipliers: (0..tokens as i64).map(|i| (i64::MAX / 40 - 1234 * i) | 1).collect(),
                    sizes: (0..heads as i64).map(|head| 11 + 2 * head).collect(),
                    offsets: (0..heads as i64).map(|head| 30 * head).collect(),
                    end: 7,
                };
                let table = g.table(*dtype, 30 * heads, 6);
                let state = g.remember(StateSpec::Tokens { count: tokens - 1 });
                let to = g.slot(heads * 6);
                g.step(Step::NgramEmbed { table, hash, state, to });
                to
            }));
        }
    }
    cases
}
