//! The gated delta rule: worked numbers, any length in any two parts, and gates that close.

use model::HeadOrder;
use plan::DeltaShape;
use plan::reference::{self, Gates};
use testkit::Random;
use turbospark_cpu::isa::{Isa, Level};
use turbospark_cpu::kernels::delta::{Row, delta, keep, strength, to_length};

fn levels() -> Vec<Isa> {
    [Level::Scalar, Level::Avx2].into_iter().filter_map(Isa::with).collect()
}

fn near(found: &[f32], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((f64::from(*found) - expected).abs() < 1e-5, "{what}: {found}, not {expected}");
    }
}

const KEYS: [[f32; 2]; 3] = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]];
const QUERIES: [[f32; 2]; 3] = [[1.0, 1.0], [1.0, 0.0], [0.5, 0.5]];
const VALUES: [[f32; 2]; 3] = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]];
const KEEP: [f32; 3] = [0.9, 0.5, 0.8];
const STRENGTH: [f32; 3] = [1.0, 0.5, 0.25];
const OUTPUTS: [[f64; 2]; 3] = [[1.0, 2.0], [1.31, 2.02], [1.473, 1.966]];
/// By key channel, then by value channel: the transpose of S in o = S q.
const LAST: [f64; 4] = [1.048, 1.616, 1.898, 2.316];

#[test]
fn d24_three_rows_have_the_worked_numbers() {
    for isa in levels() {
        let (mut state, mut scratch, mut out) = ([0.0; 4], [0.0; 2], [0.0; 2]);
        for at in 0..3 {
            let (q, k, v) = (&QUERIES[at], &KEYS[at], &VALUES[at]);
            let row = Row { q, k, v, keep: KEEP[at], strength: STRENGTH[at] };
            delta(isa, &row, &mut state, &mut scratch, &mut out);
            near(&out, &OUTPUTS[at], "output");
        }
        near(&state, &LAST, "state");
    }
}

/// The step brings queries to a length of k_dim^-½ and makes its gates of logits; what that does to the numbers is undone.
#[test]
fn d24_the_reference_has_them_too() {
    let shape = DeltaShape { k_heads: 1, v_heads: 1, k_dim: 2, v_dim: 2, order: HeadOrder::Grouped };
    let mut state = [0.0; 4];
    for at in 0..3 {
        let qkv = [QUERIES[at], KEYS[at], VALUES[at]].concat();
        // exp(-softplus(x)) = 1 / (1 + eˣ); sigmoid(40) is 1.
        let decay = [(1.0 / KEEP[at] - 1.0).ln()];
        let beta = [if STRENGTH[at] == 1.0 { 40.0 } else { (STRENGTH[at] / (1.0 - STRENGTH[at])).ln() }];
        let gates = Gates { beta: &beta, decay: &decay, a: &[-1.0], dt_bias: &[0.0] };
        let mut out = [0.0; 2];
        reference::delta(&qkv, gates, &shape, &mut state, &mut out);
        let length = f64::from(QUERIES[at].iter().map(|q| q * q).sum::<f32>()).sqrt();
        near(&out, &OUTPUTS[at].map(|o| o / (length * 2f64.sqrt())), "output");
        for isa in levels() {
            near(&[keep(-1.0, decay[0]), strength(beta[0])], &[KEEP[at], STRENGTH[at]].map(f64::from), "gates");
            let mut q = QUERIES[at];
            to_length(isa, &mut q, 0.5f32.sqrt());
            near(&q, &QUERIES[at].map(|x| f64::from(x) / (length * 2f64.sqrt())), "query");
        }
    }
    near(&state, &LAST, "state");
}

const K: usize = 12;
const V: usize = 20;

/// A row with a key of length one.
fn some_row(random: &mut Random, keep: f32) -> ([f32; K], [f32; K], [f32; V], f32, f32) {
    let mut q = [0.0; K].map(|_: f32| random.normal());
    let mut k = [0.0; K].map(|_: f32| random.normal());
    to_length(levels()[0], &mut q, (K as f32).powf(-0.5));
    to_length(levels()[0], &mut k, 1.0);
    (q, k, [0.0; V].map(|_: f32| random.normal()), keep, random.unit().abs())
}

#[test]
fn d24_any_length_in_any_two_parts_follows_the_recurrence() {
    // e⁻⁹⁰ is below the smallest normal number; it closes the gate and makes nothing else of it.
    let closed = keep(-90.0, (1f32.exp() - 1.0).ln());
    assert!(closed < f32::MIN_POSITIVE);
    for length in [1usize, 2, 31, 32, 33, 63, 64, 65, 127, 200] {
        for closes in [false, true] {
            let mut random = Random::new(24 + length as u64);
            let gate = |at: usize, random: &mut Random| {
                if closes && at % 3 == 1 { closed } else { 0.5 + 0.5 * random.unit().abs().min(1.0) }
            };
            let rows: Vec<_> = (0..length)
                .map(|at| {
                    let keep = gate(at, &mut random);
                    some_row(&mut random, keep)
                })
                .collect();
            // S ← aS; S ← S + b (v − Sk) kᵀ; o = Sq.
            let (mut s, mut outputs) = ([[0f64; V]; K], Vec::new());
            for (q, k, v, a, b) in &rows {
                s.iter_mut().flatten().for_each(|s| *s *= f64::from(*a));
                for c in 0..V {
                    let known: f64 = (0..K).map(|i| s[i][c] * f64::from(k[i])).sum();
                    let change = f64::from(*b) * (f64::from(v[c]) - known);
                    (0..K).for_each(|i| s[i][c] += change * f64::from(k[i]));
                    outputs.push((0..K).map(|i| s[i][c] * f64::from(q[i])).sum());
                }
            }
            for isa in levels() {
                for cut in (0..length).step_by(7) {
                    let pass = |rows: &[_], state: &mut [f32], found: &mut Vec<f32>| {
                        let (mut scratch, mut out) = ([0.0; V], [0.0; V]);
                        for (q, k, v, keep, strength) in rows {
                            let row = Row {
                                q: q as &[f32; K],
                                k: k as &[f32; K],
                                v: v as &[f32; V],
                                keep: *keep,
                                strength: *strength,
                            };
                            delta(isa, &row, state, &mut scratch, &mut out);
                            found.extend(out);
                        }
                    };
                    let (mut state, mut found) = (vec![0.0; K * V], Vec::new());
                    pass(&rows[..cut], &mut state, &mut found);
                    // A later pass works on a copy of what the earlier one left.
                    let mut state = state.clone();
                    pass(&rows[cut..], &mut state, &mut found);
                    near(&found, &outputs, &format!("output of {length} in {cut} and the rest"));
                    near(&state, &s.concat(), &format!("state of {length} in {cut} and the rest"));
                }
            }
        }
    }
}
