//! Which slots a step reads and writes: the one place that lists them for every kind of step.

use super::{Slot, Step};

/// What a step does to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    Update,
}

impl Step {
    /// The slots a step reads.
    pub fn reads(&self) -> Vec<Slot> {
        self.slots(|access| access != Access::Write)
    }

    /// The slots a step writes.
    pub fn writes(&self) -> Vec<Slot> {
        self.slots(|access| access != Access::Read)
    }

    fn slots(&self, wanted: impl Fn(Access) -> bool) -> Vec<Slot> {
        let mut slots = Vec::new();
        self.clone().visit_slots(&mut |slot, access| {
            if wanted(access) {
                slots.push(*slot);
            }
        });
        slots
    }

    /// Applies `f` to every slot the step names.
    pub(crate) fn map_slots(&mut self, f: &mut dyn FnMut(&mut Slot)) {
        self.visit_slots(&mut |slot, _| f(slot));
    }

    fn visit_slots(&mut self, f: &mut dyn FnMut(&mut Slot, Access)) {
        use Access::{Read, Update, Write};
        match self {
            Step::Embed { to, .. } | Step::NgramEmbed { to, .. } => f(to, Write),
            Step::Mark { x, .. } => f(x, Read),
            Step::Norm { x, to, .. }
            | Step::Tap { x, to }
            | Step::TakeRows { x, to }
            | Step::HeadLinear { x, to, .. }
            | Step::TakeColumns { x, to, .. }
            | Step::Repeat { x, to }
            | Step::Conv { x, to, .. }
            | Step::IndexSelect { q: x, to, .. }
            | Step::Route { logits: x, to, .. }
            | Step::GateUpAct { x, to, .. } => {
                f(x, Read);
                f(to, Write);
            }
            Step::Linear { x, part } => {
                f(x, Read);
                f(&mut part.to, Write);
            }
            Step::HeadNorm { x, .. }
            | Step::Rope { x, .. }
            | Step::Steer { x, .. }
            | Step::Silu { x }
            | Step::Scale { x, .. }
            | Step::ScaleBy { x, .. }
            | Step::Softcap { x, .. } => f(x, Update),
            Step::HeadConcat { a, b, to, .. }
            | Step::GatedAct { gate: a, up: b, to, .. }
            | Step::HyperMix { x: a, gate: b, to }
            | Step::Experts { x: a, route: b, to, .. } => {
                f(a, Read);
                f(b, Read);
                f(to, Write);
            }
            Step::Append { k, v, .. } => {
                f(k, Read);
                v.iter_mut().for_each(|v| f(v, Read));
            }
            Step::Attend { q, select, to, .. } => {
                f(q, Read);
                select.iter_mut().for_each(|s| f(&mut s.chosen, Read));
                f(to, Write);
            }
            Step::Delta { qkv: a, beta: b, decay: c, to, .. } | Step::NgramGate { key: a, query: b, value: c, to } => {
                f(a, Read);
                f(b, Read);
                f(c, Read);
                f(to, Write);
            }
            Step::MulSigmoid { x, gate } => {
                f(gate, Read);
                f(x, Update);
            }
            Step::HyperAdd { into, x, inject } => {
                f(x, Read);
                f(inject, Read);
                f(into, Update);
            }
            Step::Add { into, x } | Step::LinearAdd { x, into, .. } => {
                f(x, Read);
                f(into, Update);
            }
            Step::Linears { x, parts } => {
                f(x, Read);
                parts.iter_mut().for_each(|p| f(&mut p.to, Write));
            }
        }
    }
}
