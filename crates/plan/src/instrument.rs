//! The instrumenting pass: marks become changes and taps, or go.

use crate::program::{Program, SlotSpec, Tap};
use crate::steering::{Steer, steer};
use crate::step::{Place, Slot, Step};

/// Applies `steering` at the marked ends of layers, then puts a tap at each marked place that `tapped` says, and takes all
/// marks away, before steps are fused. A tap sees what the next layer sees.
pub fn instrument(program: &mut Program, steering: &[Steer], tapped: &dyn Fn(Place) -> bool) {
    let mut steps = Vec::with_capacity(program.steps.len());
    for step in std::mem::take(&mut program.steps) {
        let Step::Mark { place, x } = step else {
            steps.push(step);
            continue;
        };
        steer(program, steering, place, x, &mut steps);
        if tapped(place) {
            let SlotSpec { width, rows } = program.slot(x);
            program.slots.push(SlotSpec { width, rows });
            let to = Slot((program.slots.len() - 1) as u16);
            program.taps.push(Tap { place, slot: to });
            steps.push(Step::Tap { x, to });
        }
    }
    program.steps = steps;
}
