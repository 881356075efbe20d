//! Assigns slots: buffers whose values are dead are used again.

use crate::program::{Program, SlotSpec};
use crate::step::Slot;
use std::collections::HashMap;

/// Renumbers the slots of a program so that those never alive together and of one shape share a buffer.
///
/// Afterwards [`crate::Step::expand`] no longer applies: the inner slots of fused steps are gone.
pub fn assign_slots(program: &mut Program) {
    let mut last_use: HashMap<Slot, usize> = HashMap::new();
    for (i, step) in program.steps.iter().enumerate() {
        for slot in step.reads().into_iter().chain(step.writes()) {
            last_use.insert(slot, i);
        }
    }
    for kept in program.taps.iter().map(|tap| tap.slot).chain([program.logits]) {
        last_use.insert(kept, usize::MAX);
    }

    let mut physical: Vec<SlotSpec> = Vec::new();
    let mut free: Vec<Slot> = Vec::new();
    let mut assigned: HashMap<Slot, Slot> = HashMap::new();
    let old = std::mem::take(&mut program.slots);
    for (i, step) in program.steps.iter_mut().enumerate() {
        let touched: Vec<Slot> = step.reads().into_iter().chain(step.writes()).collect();
        step.map_slots(&mut |slot| {
            *slot = *assigned.entry(*slot).or_insert_with(|| {
                let spec = old[slot.0 as usize];
                match free.iter().position(|f| physical[f.0 as usize] == spec) {
                    Some(at) => free.swap_remove(at),
                    None => {
                        physical.push(spec);
                        Slot((physical.len() - 1) as u16)
                    }
                }
            });
        });
        for slot in touched {
            if last_use.get(&slot) == Some(&i)
                && let Some(buffer) = assigned.get(&slot)
                && !free.contains(buffer)
            {
                free.push(*buffer);
            }
        }
    }
    program.logits = assigned[&program.logits];
    program.taps.iter_mut().for_each(|tap| tap.slot = assigned[&tap.slot]);
    program.slots = physical;
}
