//! What mixes channels.

use super::Lowering;
use crate::PlanError;
use crate::program::WeightRole;
use crate::step::{BankWeights, Point, Slot, Step};
use model::{Bank, Branch, Gated, Moe, RouterInput};

impl Lowering<'_> {
    pub(super) fn gated(&mut self, x: Slot, g: &Gated) -> Result<Slot, PlanError> {
        let gate = self.linear(x, &g.gate)?;
        let up = self.linear(x, &g.up)?;
        let to = self.slot(g.down.inputs);
        self.steps.push(Step::GatedAct { gate, up, activation: g.activation, to });
        self.mark(Point::Inner, to);
        self.linear(to, &g.down)
    }

    /// Branches of the stream itself, each between its norms, added up.
    pub(super) fn sum(&mut self, x: Slot, h: Slot, branches: &[Branch]) -> Result<Slot, PlanError> {
        let mut sum = None;
        for branch in branches {
            let input = self.norm(h, &branch.entry)?;
            let y = self.ffn(x, input, &branch.op)?;
            let y = self.norm(y, &branch.post)?;
            match sum {
                Some(into) => self.steps.push(Step::Add { into, x: y }),
                None => sum = Some(y),
            }
        }
        sum.ok_or(PlanError::NoBranches)
    }

    /// The shared expert, which is added to the experts' sum, is computed before them: a device may fetch those meanwhile.
    pub(super) fn moe(&mut self, x: Slot, h: Slot, m: &Moe) -> Result<Slot, PlanError> {
        let input = match &m.router.input {
            RouterInput::Branch => h,
            RouterInput::Stream { norm, scale } => {
                let normed = self.norm(x, norm)?;
                self.scale(normed, *scale);
                normed
            }
        };
        let logits = self.linear(input, &m.router.linear)?;
        let experts = m.bank.experts;
        let choice_bias = m.router.choice_bias.as_ref().map(|b| self.vector(b, experts)).transpose()?;
        let expert_scale = m.router.expert_scale.as_ref().map(|s| self.vector(s, experts)).transpose()?;
        let route = self.slot(2 * m.router.routing.top_k);
        self.steps.push(Step::Route { logits, choice_bias, expert_scale, routing: m.router.routing, to: route });
        self.mark(Point::Router, route);
        let shared = m.shared.as_ref().map(|shared| {
            let y = self.gated(h, &shared.ffn)?;
            if let Some(gate) = &shared.gate {
                let gate = self.linear(h, gate)?;
                self.steps.push(Step::MulSigmoid { x: y, gate });
            }
            Ok::<_, PlanError>(y)
        });
        let shared = shared.transpose()?;
        let to = self.slot(self.width(h));
        let bank = self.bank(&m.bank, self.width(h))?;
        self.steps.push(Step::Experts { x: h, route, bank, activation: m.bank.activation, to });
        if let Some(y) = shared {
            self.steps.push(Step::Add { into: to, x: y });
        }
        Ok(to)
    }

    fn bank(&mut self, b: &Bank, hidden: usize) -> Result<BankWeights, PlanError> {
        let role = WeightRole::Experts(b.experts);
        let (inner, outer) = (b.experts * b.inner, b.experts * hidden);
        let biases = match &b.biases {
            Some([gate, up, down]) => {
                Some([self.vector(gate, inner)?, self.vector(up, inner)?, self.vector(down, outer)?])
            }
            None => None,
        };
        Ok(BankWeights {
            gate: self.weight(&b.gate, [inner, hidden], role)?,
            up: self.weight(&b.up, [inner, hidden], role)?,
            down: self.weight(&b.down, [outer, b.inner], role)?,
            biases,
            inner: b.inner,
        })
    }
}
