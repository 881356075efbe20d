//! What a layer is, in a line for people.

use super::{Ffn, Layer, Mixer};
use std::fmt;

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.mixer.op, self.ffn.op)
    }
}

impl fmt::Display for Mixer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attention(a) => {
                write!(f, "attention {}/{} heads of {}", a.q_heads, a.kv_heads, a.head_dim)?;
                a.window.map_or(Ok(()), |w| write!(f, ", window {w}"))
            }
            Self::Latent(l) => write!(f, "latent attention, {} heads, rank {}", l.heads, l.rank),
            Self::DeltaNet(d) => {
                write!(f, "delta net {}/{} heads of {}/{}", d.v_heads, d.k_heads, d.v_dim, d.k_dim)
            }
        }
    }
}

impl fmt::Display for Ffn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gated(g) => write!(f, "gated {:?} {}", g.activation, g.down.inputs),
            Self::Moe(m) => {
                write!(f, "{} of {} experts {}", m.router.routing.top_k, m.bank.experts, m.bank.inner)?;
                m.shared.as_ref().map_or(Ok(()), |s| write!(f, " + shared {}", s.ffn.down.inputs))
            }
            Self::Sum(branches) => {
                for (i, branch) in branches.iter().enumerate() {
                    write!(f, "{}{}", if i > 0 { " + " } else { "" }, branch.op)?;
                }
                Ok(())
            }
        }
    }
}
