//! The instrumenting pass: marks become taps, or go.

use crate::program::{Program, SlotSpec, Tap};
use crate::step::{Place, Slot, Step};

/// Puts a tap at each marked place that `tapped` says and takes all marks away, before steps are fused.
pub fn instrument(program: &mut Program, tapped: &dyn Fn(Place) -> bool) {
    let Program { steps, slots, taps, .. } = program;
    *steps = std::mem::take(steps)
        .into_iter()
        .filter_map(|step| match step {
            Step::Mark { place, x } => tapped(place).then(|| {
                let SlotSpec { width, rows } = slots[x.0 as usize];
                slots.push(SlotSpec { width, rows });
                let to = Slot((slots.len() - 1) as u16);
                taps.push(Tap { place, slot: to });
                Step::Tap { x, to }
            }),
            other => Some(other),
        })
        .collect();
}
