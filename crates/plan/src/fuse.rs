//! One table of rewrites over neighbouring steps, shared by every device; a device only says which fused
//! forms it has. `Step::expand` undoes each.

use crate::device::Caps;
use crate::program::Program;
use crate::step::Step;

/// The fused forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fusion {
    /// [`Step::Linears`].
    Linears,
    /// [`Step::LinearAdd`].
    LinearAdd,
    /// [`Step::GateUpAct`].
    GateUpAct,
}

/// Tries to replace the first steps of a slice: how many were consumed, and the fused step.
type Rewrite = fn(&[Step]) -> Option<(usize, Step)>;

/// Longest match first.
const TABLE: &[(Fusion, Rewrite)] =
    &[(Fusion::GateUpAct, gate_up_act), (Fusion::LinearAdd, linear_add), (Fusion::Linears, linears)];

/// Rewrites a program into the fused forms of `caps`, before slots are assigned.
pub fn fuse(program: &mut Program, caps: &Caps) {
    let steps = std::mem::take(&mut program.steps);
    let mut rest = steps.as_slice();
    while let Some(first) = rest.first() {
        let rewritten =
            TABLE.iter().filter(|(fusion, _)| caps.fusions.contains(fusion)).find_map(|(_, rewrite)| rewrite(rest));
        let (consumed, step) = rewritten.unwrap_or_else(|| (1, first.clone()));
        program.steps.push(step);
        rest = &rest[consumed..];
    }
}

fn gate_up_act(steps: &[Step]) -> Option<(usize, Step)> {
    let [
        Step::Linear { x, part: gate },
        Step::Linear { x: x2, part: up },
        Step::GatedAct { gate: g, up: u, activation, to },
        ..,
    ] = steps
    else {
        return None;
    };
    (x == x2 && gate.to == *g && up.to == *u).then(|| {
        let (gate, up) = (gate.clone(), up.clone());
        (3, Step::GateUpAct { x: *x, gate, up, activation: *activation, to: *to })
    })
}

fn linear_add(steps: &[Step]) -> Option<(usize, Step)> {
    let [Step::Linear { x, part }, Step::Add { into, x: y }, ..] = steps else {
        return None;
    };
    (part.to == *y && x != into).then(|| (2, Step::LinearAdd { x: *x, part: part.clone(), into: *into }))
}

fn linears(steps: &[Step]) -> Option<(usize, Step)> {
    let Some(Step::Linear { x: first, .. }) = steps.first() else {
        return None;
    };
    let parts: Vec<_> = steps
        .iter()
        .map_while(|s| match s {
            Step::Linear { x, part } if x == first => Some(part.clone()),
            _ => None,
        })
        .collect();
    // Two products of one input that feed a gate are left to that fusion.
    (parts.len() > 1).then_some((parts.len(), Step::Linears { x: *first, parts }))
}
