//! Every plain step × storage type × shape, on a device against the reference device.

mod mixtures;
mod recurrent;
mod sparse;
mod streams;

use crate::{Driver, Failures, Graph};
use model::{Activation, Pairing, Rope, RopeScaling};
use plan::reference::ReferenceDevice;
use plan::{Device, KvSpec, KvType, KvTypes, Limits, Program, Slot, Step, Want};
use testkit::{Random, nmse};
use weights::{DType, Weights};

const FLOATS: &[DType] = DType::MATRICES.split_at(3).0;
const QUANTISED: &[DType] = DType::MATRICES.split_at(3).1;
/// The same arithmetic in another order.
const EXACT: f64 = 1e-10;
/// Activations rounded to eight bits.
const ROUNDED: f64 = 1e-3;
const F32: KvTypes = KvTypes::both(KvType::F32);
const F16: KvTypes = KvTypes::both(KvType::F16);

/// Rows fed in one run: (sequence, how many).
type Feeds = &'static [(usize, usize)];

const ONE: &[Feeds] = &[&[(0, 1)]];
const SEVERAL: &[Feeds] = &[&[(0, 13)], &[(0, 2), (1, 9)]];
/// Long prompts, single rows and mixtures, over several blocks of cache.
const MIXED: &[Feeds] =
    &[&[(0, 37)], &[(1, 3), (0, 1)], &[(0, 29), (1, 33), (2, 1)], &[(1, 1)], &[(2, 1), (0, 1), (1, 1)], &[(0, 40)]];

/// A program around a step, what it is fed, and how far a device may be from the reference device.
#[derive(Debug)]
pub struct Case {
    /// Step, storage type and shape.
    pub name: String,
    program: Program,
    weights: Weights,
    runs: &'static [Feeds],
    limit: f64,
}

const VOCAB: usize = 40;

impl Case {
    fn of(name: String, runs: &'static [Feeds], limit: f64, build: impl FnOnce(&mut Graph) -> Slot) -> Self {
        let mut graph = Graph::new(name.bytes().fold(7, |seed, b| (seed * 31 + b as u64) & 0xffff_ffff), VOCAB);
        let out = build(&mut graph);
        let (program, weights) = graph.finish(out);
        Self { name, program, weights, runs, limit }
    }

    /// All rows' outputs, run by run.
    ///
    /// # Panics
    /// If the device refuses the program or fails.
    pub fn outputs<D: Device>(&self, device: &D, kv: KvTypes) -> Vec<f32> {
        let limits = Limits { rows: 80, wanted: 80, blocks: 12, kv, sequences: 99, state_slots: 24 };
        let mut driver = Driver::of_program(device, self.program.clone(), &self.weights, limits);
        let ids: Vec<_> = (0..3).map(|_| driver.sequences.open()).collect();
        let mut random = Random::new(5);
        let mut outputs = Vec::new();
        for run in self.runs {
            let tokens: Vec<_> = run.iter().map(|(_, rows)| random.tokens(*rows, VOCAB)).collect();
            let feeds: Vec<_> = run.iter().zip(&tokens).map(|((s, _), t)| (ids[*s], t.as_slice(), Want::All)).collect();
            outputs.extend(driver.feed_together(&feeds).unwrap_or_else(|e| panic!("{}: {e}", self.name)).concat());
        }
        outputs
    }
}

fn linears() -> Vec<Case> {
    let shapes = [[1, 8], [3, 5], [8, 32], [13, 33], [40, 72], [67, 257]];
    let blocks = |dtype: DType| {
        let n = dtype.block_len();
        [[1, n], [5, 3 * n], [8, n], [37, 2 * n], [67, if n == 32 { 9 * n } else { n }]]
    };
    let floats = FLOATS.iter().flat_map(|t| shapes.map(|s| (*t, s, EXACT)));
    let quantised = QUANTISED.iter().flat_map(|t| blocks(*t).map(|s| (*t, s, ROUNDED)));
    floats
        .chain(quantised)
        .flat_map(|(dtype, [outputs, inputs], limit)| {
            [(ONE, false), (SEVERAL, false), (SEVERAL, true)].map(|(runs, bias)| {
                let name = format!("linear {dtype} {outputs}x{inputs} bias {bias} {} runs", runs.len());
                Case::of(name, runs, limit, |g| {
                    let x = g.input(inputs);
                    let part = g.part(dtype, [outputs, inputs], bias);
                    let to = part.to;
                    g.step(Step::Linear { x, part });
                    to
                })
            })
        })
        .collect()
}

fn embeds() -> Vec<Case> {
    let types = FLOATS.iter().chain(QUANTISED);
    types
        .flat_map(|dtype| {
            let n = dtype.block_len();
            [(n, 1.0), (3 * n, 7.5)].map(|(width, scale)| {
                Case::of(format!("embed {dtype} {width}"), SEVERAL, EXACT, |g| g.embedding(*dtype, width, scale))
            })
        })
        .collect()
}

const ACTIVATIONS: [Activation; 4] =
    [Activation::Silu, Activation::GeluTanh, Activation::GeluErf, Activation::Clamped { limit: 3.0, alpha: 1.702 }];

fn pointwise() -> Vec<Case> {
    let mut cases = Vec::new();
    for width in [1, 7, 8, 64, 101] {
        cases.push(Case::of(format!("norm {width}"), SEVERAL, EXACT, |g| {
            let (x, weight, to) = (g.input(width), g.vector(width), g.slot(width));
            g.step(Step::Norm { x, weight: Some(weight), eps: 1e-5, to });
            to
        }));
        cases.push(Case::of(format!("add {width}"), SEVERAL, 0.0, |g| {
            let (into, x) = (g.input(width), g.input(width));
            g.step(Step::Add { into, x });
            into
        }));
        for activation in ACTIVATIONS {
            cases.push(Case::of(format!("gated {activation:?} {width}"), SEVERAL, EXACT, |g| {
                let (gate, up, to) = (g.embedding(DType::F32, width, 4.0), g.input(width), g.slot(width));
                g.step(Step::GatedAct { gate, up, activation, to });
                to
            }));
        }
        for heads in [1, 3] {
            cases.push(Case::of(format!("head_norm {heads} x {width}"), SEVERAL, EXACT, |g| {
                let (x, weight) = (g.input(heads * width), g.vector(width));
                g.step(Step::HeadNorm { x, weight: Some(weight), heads, eps: 1e-6 });
                x
            }));
        }
    }
    cases
}

fn ropes() -> Vec<Case> {
    let mut cases = Vec::new();
    for pairing in [Pairing::Half, Pairing::Interleaved] {
        for (head_dim, rotary_dim) in [(2, 2), (8, 8), (16, 4), (24, 10), (64, 64)] {
            for kind in 0..4 {
                cases.push(Case::of(format!("rope {pairing:?} {rotary_dim}/{head_dim} {kind}"), MIXED, EXACT, |g| {
                    let scaling = match kind {
                        0 => RopeScaling::None,
                        1 => RopeScaling::Linear { factor: 8.0 },
                        2 => RopeScaling::Llama3 {
                            factor: 8.0,
                            low_freq_factor: 1.0,
                            high_freq_factor: 4.0,
                            original_context: 16.0,
                        },
                        _ => {
                            let divisors: Vec<_> = (0..rotary_dim / 2).map(|i| 1.0 + i as f32).collect();
                            RopeScaling::Divisors(g.tensor("divisors", &divisors))
                        }
                    };
                    let rope = g.rope(Rope { theta: 10_000.0, rotary_dim, pairing, scaling });
                    let x = g.input(3 * head_dim);
                    g.step(Step::Rope { x, heads: 3, rope });
                    x
                }));
            }
        }
    }
    cases
}

fn attentions() -> Vec<Case> {
    let mut cases = Vec::new();
    for (heads, kv_heads, head_dim) in [(1, 1, 8), (4, 2, 16), (6, 2, 10), (3, 1, 64), (5, 5, 7), (8, 1, 24)] {
        for window in [None, Some(1), Some(5), Some(32), Some(33), Some(500)] {
            cases.push(Case::of(format!("attend {heads}/{kv_heads} x {head_dim}, {window:?}"), MIXED, EXACT, |g| {
                let q = g.input(heads * head_dim);
                let (k, v) = (g.input(kv_heads * head_dim), g.input(kv_heads * head_dim));
                let state =
                    g.state(KvSpec { heads: kv_heads, k_dim: head_dim, v_dim: head_dim, window, layer: 0, kv: None });
                let to = g.slot(heads * head_dim);
                let scale = (head_dim as f32).powf(-0.5);
                g.step(Step::Append { k, v: Some(v), state });
                g.step(Step::Attend { q, state, heads, scale, window, sinks: None, select: None, to });
                to
            }));
        }
    }
    // Scores so large that all weight falls on one position, and two caches side by side.
    cases.push(Case::of("attend sharply, twice".into(), MIXED, EXACT, |g| {
        let (q, k, v) = (g.input(32), g.input(16), g.input(16));
        let [one, two] = [None, Some(7)].map(|window| {
            let state = g.state(KvSpec { heads: 2, k_dim: 8, v_dim: 8, window, layer: 0, kv: None });
            let to = g.slot(32);
            g.step(Step::Append { k, v: Some(v), state });
            g.step(Step::Attend { q, state, heads: 4, scale: 40.0, window, sinks: None, select: None, to });
            to
        });
        g.step(Step::Add { into: one, x: two });
        one
    }));
    cases
}

/// Every case there is.
pub fn every_case() -> Vec<Case> {
    let steps = [linears(), embeds(), pointwise(), ropes(), attentions()];
    let later = [mixtures::cases(), recurrent::cases(), sparse::cases(), streams::cases()];
    steps.into_iter().chain(later).flatten().collect()
}

/// Packed types that fit the keys and values of a program.
fn packed(program: &Program) -> impl Iterator<Item = KvTypes> {
    use KvType::{F16, Q4, Q8, Tq2, Tq3, Tq4};
    let caches: Vec<_> = program.caches().filter(|c| c.v_dim > 0).copied().collect();
    let pairs = [(Q8, Q4), (Q4, Q8), (F16, Q4), (Q8, Tq3), (Tq4, Q8), (Tq2, Tq4), (Tq3, F16)];
    let fits =
        move |kv: &KvTypes| !caches.is_empty() && caches.iter().all(|c| kv.k.fits(c.k_dim) && kv.v.fits(c.v_dim));
    pairs.into_iter().map(|(k, v)| KvTypes { k, v }).filter(fits)
}

/// Runs all cases on a device, with every cache type it has.
///
/// # Panics
/// If the device refuses a program or fails.
pub fn steps<D: Device>(device: &D, failures: &mut Failures) {
    let known = |kv: &KvTypes| [kv.k, kv.v].iter().all(|t| device.caps().kv.contains(t));
    for case in every_case() {
        let expected = case.outputs(&ReferenceDevice, F32);
        assert!(expected.iter().any(|x| *x != 0.0) && expected.iter().all(|x| x.is_finite()), "{}", case.name);
        let types: &[KvTypes] = if case.program.states.is_empty() {
            &[F32]
        } else {
            &[F32, F16, KvTypes { k: KvType::F32, v: KvType::F16 }, KvTypes { k: KvType::F16, v: KvType::F32 }]
        };
        for kv in types.iter().filter(|kv| known(kv)) {
            let error = nmse(&case.outputs(device, *kv), &expected);
            failures.within(format!("{}, cache {kv}", case.name), error, case.limit);
        }
        // What is stored differs with these, and is the same on both devices.
        for kv in packed(&case.program).filter(|kv| known(kv)) {
            let error = nmse(&case.outputs(device, kv), &case.outputs(&ReferenceDevice, kv));
            failures.within(format!("{}, cache {kv}", case.name), error, case.limit);
        }
    }
}
