//! Mixtures of experts: routing by every rule, and banks of every storage type.

use super::{ACTIVATIONS, Case, EXACT, FLOATS, QUANTISED, SEVERAL};
use crate::Graph;
use model::{Groups, Routing, Score};
use plan::{BankWeights, Slot, Step};
use weights::DType;

const EXPERTS: usize = 6;
/// Two products in turn with activations rounded to eight bits.
const ROUNDED_TWICE: f64 = 2e-3;

fn route(g: &mut Graph, routing: Routing, bias: bool, scale: bool) -> Slot {
    let logits = g.input(EXPERTS);
    let choice_bias = bias.then(|| g.vector(EXPERTS));
    let expert_scale = scale.then(|| g.vector(EXPERTS));
    let to = g.slot(2 * routing.top_k);
    g.step(Step::Route { logits, choice_bias, expert_scale, routing, to });
    to
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let plain = Routing { top_k: 2, score: Score::Softmax, groups: None, renormalise: true, scale: 1.0 };
    for score in [Score::Softmax, Score::Sigmoid, Score::SoftmaxOfChosen] {
        for groups in [None, Some(Groups { count: 3, chosen: 2 })] {
            let routing = Routing { top_k: 3, score, groups, renormalise: groups.is_none(), scale: 2.5 };
            let name = format!("route {score:?} {groups:?}");
            cases.push(Case::of(name, SEVERAL, EXACT, |g| route(g, routing, groups.is_none(), true)));
        }
    }
    for dtype in FLOATS.iter().chain(QUANTISED) {
        let block = if dtype.block_len() == 1 { 24 } else { dtype.block_len() };
        let limit = if QUANTISED.contains(dtype) { ROUNDED_TWICE } else { EXACT };
        for biased in [false, true] {
            cases.push(Case::of(format!("experts {dtype} biased {biased}"), SEVERAL, limit, |g| {
                bank(g, *dtype, [block, block], biased, (plain, ACTIVATIONS[usize::from(biased)]))
            }));
        }
    }
    for activation in ACTIVATIONS {
        cases.push(Case::of(format!("experts {activation:?}"), SEVERAL, EXACT, |g| {
            bank(g, DType::F32, [17, 9], true, (Routing { top_k: EXPERTS, ..plain }, activation))
        }));
    }
    cases
}

fn bank(
    g: &mut Graph,
    dtype: DType,
    [hidden, inner]: [usize; 2],
    biased: bool,
    (routing, activation): (Routing, model::Activation),
) -> Slot {
    let x = g.input(hidden);
    let route = route(g, routing, false, false);
    let biases = biased.then(|| [inner, inner, hidden].map(|width| g.vector(EXPERTS * width)));
    let bank = BankWeights {
        gate: g.experts(dtype, EXPERTS, [inner, hidden]),
        up: g.experts(dtype, EXPERTS, [inner, hidden]),
        down: g.experts(dtype, EXPERTS, [hidden, inner]),
        biases,
        inner,
    };
    let to = g.slot(hidden);
    g.step(Step::Experts { x, route, bank, activation, to });
    to
}
