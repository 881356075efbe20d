//! How keys and values are kept: the types, their spelling, and their choice layer by layer.

mod codec;
mod levels;
mod rotation;

pub use codec::{Codec, Section, Side, head_bytes};

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// How cached keys or values are stored; [`Codec`] is the arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KvType {
    /// Four bytes a value.
    F32,
    /// Two bytes a value.
    F16,
    /// Blocks of 32 channels: an f16 step and 8 bits a value.
    Q8,
    /// Blocks of 32 channels: an f16 step, an f16 minimum and 4 bits a value.
    Q4,
    /// Rotated, then the nearest of 16 levels times the f32 norm.
    Tq4,
    /// Rotated, then the nearest of 8 levels times the f32 norm.
    Tq3,
    /// Rotated, then the nearest of 4 levels times the f32 norm.
    Tq2,
}

impl KvType {
    /// Every type, widest first.
    pub const ALL: [KvType; 7] = [Self::F32, Self::F16, Self::Q8, Self::Q4, Self::Tq4, Self::Tq3, Self::Tq2];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Q8 => "q8",
            Self::Q4 => "q4",
            Self::Tq4 => "tq4",
            Self::Tq3 => "tq3",
            Self::Tq2 => "tq2",
        }
    }

    /// Whether values are codes with a scale, not floats.
    pub fn packed(self) -> bool {
        !matches!(self, Self::F32 | Self::F16)
    }

    /// Whether vectors are rotated before they are stored.
    pub fn rotated(self) -> bool {
        matches!(self, Self::Tq4 | Self::Tq3 | Self::Tq2)
    }

    /// Whether heads of `dim` channels can be stored: rotations need pieces of 8 channels or a larger power of two.
    pub fn fits(self, dim: usize) -> bool {
        !self.rotated() || dim.is_multiple_of(rotation::SMALLEST)
    }

    /// Bytes of one head's vector of `dim` channels.
    pub fn bytes(self, dim: usize) -> usize {
        match self {
            Self::F32 => 4 * dim,
            Self::F16 => 2 * dim,
            packed => codec::sections(packed, dim).last().map_or(0, |s| s.at + s.bytes(packed)),
        }
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The names of all types, for messages.
fn known() -> String {
    let names: Vec<_> = KvType::ALL.iter().map(|t| t.name()).collect();
    format!("{} or {HALF}", names.join(", "))
}

impl FromStr for KvType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|t| t.name() == text);
        found.ok_or_else(|| format!("`{text}` is not a cache type; use one of {}, or a pair K:V", known()))
    }
}

/// The spelling of [`KvType::Tq3`] keys beside [`KvType::Tq4`] values.
const HALF: &str = "tq3.5";

/// Storage types of keys and of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KvTypes {
    /// For keys.
    pub k: KvType,
    /// For values.
    pub v: KvType,
}

impl KvTypes {
    /// One type for both.
    pub const fn both(kind: KvType) -> Self {
        Self { k: kind, v: kind }
    }

    /// Whether either is packed.
    pub fn packed(self) -> bool {
        self.k.packed() || self.v.packed()
    }
}

impl FromStr for KvTypes {
    type Err = String;

    /// `TYPE`, or `K:V` with a type each; `tq3.5` is `tq3:tq4`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            _ if text == HALF => Ok(Self { k: KvType::Tq3, v: KvType::Tq4 }),
            Some((k, v)) => Ok(Self { k: k.parse()?, v: v.parse()? }),
            None => Ok(Self::both(text.parse()?)),
        }
    }
}

impl fmt::Display for KvTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.k, self.v) {
            (KvType::Tq3, KvType::Tq4) => f.write_str(HALF),
            (k, v) if k == v => write!(f, "{k}"),
            (k, v) => write!(f, "{k}:{v}"),
        }
    }
}

/// Types for all layers, and others for some of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvPlan {
    /// Where `layers` says nothing.
    pub all: KvTypes,
    /// By the layer's number.
    pub layers: BTreeMap<usize, KvTypes>,
}

impl KvPlan {
    /// A layer's types.
    pub fn of(&self, layer: usize) -> KvTypes {
        self.layers.get(&layer).copied().unwrap_or(self.all)
    }

    /// Whether any layer has a packed type.
    pub fn packed(&self) -> bool {
        self.all.packed() || self.layers.values().any(|t| t.packed())
    }
}

impl From<KvTypes> for KvPlan {
    fn from(all: KvTypes) -> Self {
        Self { all, layers: BTreeMap::new() }
    }
}

impl FromStr for KvPlan {
    type Err = String;

    /// Types, then exceptions by layer: `q4`, `q8:q4,0=f16`, `tq3,0-1=q8,29=f16`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let mut plan = Self::from(parts.next().unwrap_or_default().parse::<KvTypes>()?);
        for part in parts {
            let bad = || format!("`{part}` should be LAYER=TYPE or FIRST-LAST=TYPE, as in q4,0=f16");
            let (layers, types) = part.split_once('=').ok_or_else(bad)?;
            let (first, last) = layers.split_once('-').unwrap_or((layers, layers));
            let number = |text: &str| text.parse::<u16>().map(usize::from).map_err(|_| bad());
            let (first, last, types) = (number(first)?, number(last)?, types.parse()?);
            if first > last {
                return Err(bad());
            }
            plan.layers.extend((first..=last).map(|layer| (layer, types)));
        }
        Ok(plan)
    }
}

impl fmt::Display for KvPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.all)?;
        let mut layers = self.layers.iter().peekable();
        while let Some((first, types)) = layers.next() {
            let mut last = first;
            while let Some((next, _)) = layers.next_if(|(next, t)| **next == last + 1 && *t == types) {
                last = next;
            }
            let range = if first == last { first.to_string() } else { format!("{first}-{last}") };
            write!(f, ",{range}={types}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_are_read_and_written() {
        for text in ["f16", "q8:q4", "tq3.5", "f32:tq2", "q4,0=f16,2-4=q8:q4", "tq2,65535=f32"] {
            let plan: KvPlan = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(plan.to_string(), text);
        }
        assert_eq!("q4,1=q8,2=q8".parse::<KvPlan>().map(|p| p.to_string()).as_deref(), Ok("q4,1-2=q8"));
        for text in ["", "q5", "q8:", ":q8", "q4,", "q4,f16", "q4,3-1=f16", "q4,-1=f16", "q4,0=q9", "q4,70000=q8", "Q8"]
        {
            assert!(text.parse::<KvPlan>().is_err(), "{text}");
        }
        let error = "int4".parse::<KvTypes>().expect_err("unknown");
        assert!(KvType::ALL.iter().all(|t| error.contains(t.name())) && error.contains(HALF), "{error}");
    }
}
