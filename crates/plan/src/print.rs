//! A program as text: one line a step.

use crate::program::{Program, Rows};
use crate::step::{Part, Step, WeightId};
use std::fmt;

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, slot) in self.slots.iter().enumerate() {
            let rows = if slot.rows == Rows::All { "rows" } else { "wanted" };
            writeln!(f, "slot s{i}: [{rows}, {}]", slot.width)?;
        }
        for (i, rope) in self.ropes.iter().enumerate() {
            writeln!(
                f,
                "rope r{i}: theta {}, {} channels, {:?} pairs, scaling {:?}",
                rope.theta, rope.rotary_dim, rope.pairing, rope.scaling
            )?;
        }
        for (i, step) in self.steps.iter().enumerate() {
            writeln!(f, "{i:4}  {}", Line(self, step))?;
        }
        writeln!(f, "logits in s{}", self.logits.0)
    }
}

struct Line<'a>(&'a Program, &'a Step);

impl Line<'_> {
    fn weight(&self, id: WeightId) -> String {
        self.0.weight(id).source.to_string()
    }

    fn part(&self, part: &Part) -> String {
        let bias = part.bias.map_or(String::new(), |b| format!(" + {}", self.weight(b)));
        format!("{}{bias}", self.weight(part.weight))
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Step::Embed { table, scale, to } => {
                write!(f, "embed      s{} = {scale} · {}[token]", to.0, self.weight(*table))
            }
            Step::Norm { x, weight, eps, to } => {
                write!(f, "norm       s{} = rms(s{}, {}, {eps:e})", to.0, x.0, self.weight(*weight))
            }
            Step::Linear { x, part } => write!(f, "linear     s{} = s{} · {}", part.to.0, x.0, self.part(part)),
            Step::HeadNorm { x, weight, heads, eps } => {
                write!(f, "head_norm  s{} = rms({heads} heads, {}, {eps:e})", x.0, self.weight(*weight))
            }
            Step::Rope { x, heads, rope } => {
                write!(f, "rope       s{} = r{}({heads} heads)", x.0, rope.0)
            }
            Step::Append { k, v, state } => {
                write!(f, "append     kv{} ← s{}, s{}", state.0, k.0, v.0)
            }
            Step::Attend { q, state, heads, scale, window, to } => {
                let window = window.map_or(String::new(), |w| format!(", window {w}"));
                write!(
                    f,
                    "attend     s{} = attend(s{}, kv{}, {heads} heads, scale {scale}{window})",
                    to.0, q.0, state.0
                )
            }
            Step::GatedAct { gate, up, activation, to } => {
                write!(f, "gated_act  s{} = {activation:?}(s{}) · s{}", to.0, gate.0, up.0)
            }
            Step::Add { into, x } => write!(f, "add        s{} += s{}", into.0, x.0),
            Step::TakeRows { x, to } => write!(f, "take_rows  s{} = wanted rows of s{}", to.0, x.0),
            Step::Linears { x, parts } => {
                let outs: Vec<_> = parts.iter().map(|p| format!("s{} = {}", p.to.0, self.part(p))).collect();
                write!(f, "linears    s{} · [{}]", x.0, outs.join("; "))
            }
            Step::LinearAdd { x, part, into } => {
                write!(f, "linear_add s{} += s{} · {}", into.0, x.0, self.part(part))
            }
            Step::GateUpAct { x, gate, up, activation, to } => write!(
                f,
                "gate_up    s{} = {activation:?}(s{} · {}) · (s{} · {})",
                to.0,
                x.0,
                self.part(gate),
                x.0,
                self.part(up)
            ),
        }
    }
}
