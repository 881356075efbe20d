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
        for tap in &self.taps {
            writeln!(f, "{:?} of layer {} in s{}", tap.place.point, tap.place.layer, tap.slot.0)?;
        }
        writeln!(f, "logits in s{}", self.logits.0)
    }
}

struct Line<'a>(&'a Program, &'a Step);

impl Line<'_> {
    fn weight(&self, id: WeightId) -> String {
        self.0.weight(id).source.to_string()
    }

    fn maybe(&self, id: Option<WeightId>) -> String {
        id.map_or_else(|| "1".to_owned(), |id| self.weight(id))
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
                write!(f, "norm       s{} = rms(s{}, {}, {eps:e})", to.0, x.0, self.maybe(*weight))
            }
            Step::Linear { x, part } => write!(f, "linear     s{} = s{} · {}", part.to.0, x.0, self.part(part)),
            Step::HeadNorm { x, weight, heads, eps } => {
                write!(f, "head_norm  s{} = rms({heads} heads, {}, {eps:e})", x.0, self.maybe(*weight))
            }
            Step::Rope { x, heads, rope } => {
                write!(f, "rope       s{} = r{}({heads} heads)", x.0, rope.0)
            }
            Step::Append { k, v, state } => {
                let v = v.map_or(String::new(), |v| format!(", s{}", v.0));
                write!(f, "append     state{} ← s{}{v}", state.0, k.0)
            }
            Step::Attend { q, state, heads, scale, window, sinks, select, to } => {
                let window = window.map_or(String::new(), |w| format!(", window {w}"));
                let sinks = sinks.map_or(String::new(), |s| format!(", sinks {}", self.weight(s)));
                let select =
                    select.map_or(String::new(), |s| format!(", blocks of {} chosen in s{}", s.block, s.chosen.0));
                write!(
                    f,
                    "attend     s{} = attend(s{}, state{}, {heads} heads, scale {scale}{window}{sinks}{select})",
                    to.0, q.0, state.0
                )
            }
            Step::GatedAct { gate, up, activation, to } => {
                write!(f, "gated_act  s{} = {activation:?}(s{}) · s{}", to.0, gate.0, up.0)
            }
            Step::HeadLinear { x, weight, heads, to } => {
                write!(f, "head_linear s{} = s{} · {} ({heads} heads)", to.0, x.0, self.weight(*weight))
            }
            Step::HeadConcat { a, b, heads, to } => {
                write!(f, "head_concat s{} = [s{} | s{}] ({heads} heads)", to.0, a.0, b.0)
            }
            Step::TakeColumns { x, first, to } => write!(f, "columns    s{} = s{} from {first}", to.0, x.0),
            Step::Repeat { x, to } => write!(f, "repeat     s{} = s{} …", to.0, x.0),
            Step::IndexSelect { q, state, heads, block, score, to } => write!(
                f,
                "select     s{} = blocks of {block} by {score:?} of s{} ({heads} heads), state{}",
                to.0, q.0, state.0
            ),
            Step::Conv { x, weight, dilation, state, to } => write!(
                f,
                "conv       s{} = silu(conv(s{}, {}, dilation {dilation})), state{}",
                to.0,
                x.0,
                self.weight(*weight),
                state.0
            ),
            Step::Delta { qkv, beta, decay, shape, state, to, .. } => write!(
                f,
                "delta      s{} = delta(s{}, beta s{}, decay s{}, {} heads), state{}",
                to.0, qkv.0, beta.0, decay.0, shape.v_heads, state.0
            ),
            Step::Silu { x } => write!(f, "silu       s{}", x.0),
            Step::MulSigmoid { x, gate } => write!(f, "mul        s{} *= sigmoid(s{})", x.0, gate.0),
            Step::Route { logits, routing, to, .. } => {
                write!(f, "route      s{} = {} of s{} by {:?}", to.0, routing.top_k, logits.0, routing.score)
            }
            Step::Experts { x, route, bank, activation, to } => write!(
                f,
                "experts    s{} = {activation:?}(s{} · {}, s{} · {}) · {}, route s{}",
                to.0,
                x.0,
                self.weight(bank.gate),
                x.0,
                self.weight(bank.up),
                self.weight(bank.down),
                route.0
            ),
            Step::Scale { x, factor } => write!(f, "scale      s{} *= {factor}", x.0),
            Step::ScaleBy { x, weight } => write!(f, "scale      s{} *= {}", x.0, self.weight(*weight)),
            Step::Softcap { x, cap } => write!(f, "softcap    s{} = {cap} tanh(s{} / {cap})", x.0, x.0),
            Step::HyperMix { x, gate, to } => {
                write!(f, "hyper_mix  s{} = mean(sigmoid(s{}) · s{})", to.0, gate.0, x.0)
            }
            Step::HyperAdd { into, x, inject } => {
                write!(f, "hyper_add  s{} += 2 sigmoid(s{}) · s{}", into.0, inject.0, x.0)
            }
            Step::NgramEmbed { table, hash, state, to } => write!(
                f,
                "ngram      s{} = {}[hash of {} tokens], state{}",
                to.0,
                self.weight(*table),
                hash.multipliers.len(),
                state.0
            ),
            Step::NgramGate { key, query, value, to } => {
                write!(f, "ngram_gate s{} = sigmoid(s{} · s{}) · s{}", to.0, key.0, query.0, value.0)
            }
            Step::Add { into, x } => write!(f, "add        s{} += s{}", into.0, x.0),
            Step::Mark { place, x } => write!(f, "mark       s{} is {:?} of layer {}", x.0, place.point, place.layer),
            Step::Tap { x, to } => write!(f, "tap        s{} = s{}", to.0, x.0),
            Step::Steer { x, direction, edit } => write!(
                f,
                "steer      s{}: {:?} {} along {}, from {}",
                x.0,
                edit.mode,
                edit.strength,
                self.weight(*direction),
                edit.threshold
            ),
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
