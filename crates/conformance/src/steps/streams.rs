//! Steps on single rows: gates, scales, and several residual streams.

use super::{Case, EXACT, SEVERAL};
use plan::{Edit, SteerMode, Step};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for width in [1, 7, 32] {
        for times in [1, 3, 4] {
            let wide = times * width;
            cases.push(Case::of(format!("mul_sigmoid {times} x {width}"), SEVERAL, EXACT, |g| {
                let (x, gate) = (g.input(wide), g.input(times));
                g.step(Step::MulSigmoid { x, gate });
                x
            }));
            cases.push(Case::of(format!("hyper {times} x {width}"), SEVERAL, EXACT, |g| {
                let (x, gate, mixed) = (g.input(wide), g.input(wide), g.slot(width));
                let inject = g.input(times);
                g.step(Step::HyperMix { x, gate, to: mixed });
                g.step(Step::HyperAdd { into: x, x: mixed, inject });
                x
            }));
            cases.push(Case::of(format!("ngram_gate {times} x {width}"), SEVERAL, EXACT, |g| {
                let (key, query, value, to) = (g.input(wide), g.input(wide), g.input(width), g.slot(wide));
                g.step(Step::NgramGate { key, query, value, to });
                to
            }));
            cases.push(Case::of(format!("head_norm of its own {times} x {width}"), SEVERAL, EXACT, |g| {
                let (x, weight) = (g.input(wide), Some(g.vector(wide)));
                g.step(Step::HeadNorm { x, weight, heads: times, eps: 1e-6 });
                g.step(Step::HeadNorm { x, weight: None, heads: times, eps: 1e-2 });
                x
            }));
            cases.push(Case::of(format!("rearranged {times} x {width}"), SEVERAL, 0.0, |g| {
                let (a, b) = (g.input(wide), g.input(2 * times));
                let (repeated, both, part) = (g.slot(2 * wide), g.slot(wide + 2 * times), g.slot(wide));
                g.step(Step::Repeat { x: a, to: repeated });
                g.step(Step::HeadConcat { a, b, heads: times, to: both });
                g.step(Step::TakeColumns { x: repeated, first: wide, to: part });
                let to = g.slot(2 * wide + 2 * times);
                g.step(Step::HeadConcat { a: part, b: both, heads: 1, to });
                to
            }));
        }
        for mode in [SteerMode::Add, SteerMode::Ablate, SteerMode::Clamp { target: 1.5 }, SteerMode::Renorm] {
            for (streams, threshold) in [(1, 0.0), (3, 0.0), (1, 0.5)] {
                let name = format!("steer {mode:?} {streams} x {width} from {threshold}");
                cases.push(Case::of(name, SEVERAL, EXACT, |g| {
                    let (x, direction) = (g.input(streams * width), g.vector(width));
                    g.step(Step::Steer { x, direction, edit: Edit { mode, strength: 0.75, threshold } });
                    x
                }));
            }
        }
        cases.push(Case::of(format!("scales {width}"), SEVERAL, EXACT, |g| {
            let (x, weight) = (g.input(width), g.vector(1));
            g.step(Step::Scale { x, factor: 3.5 });
            g.step(Step::ScaleBy { x, weight });
            g.step(Step::Silu { x });
            g.step(Step::Softcap { x, cap: 2.0 });
            x
        }));
    }
    cases
}
