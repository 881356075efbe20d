//! Captures: what the marked places of a forward pass held, position by position, and the files it is written to.

mod write;

use crate::RuntimeError;
use plan::{Place, Point, Program, Step};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// What can be captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CaptureKind {
    /// The residual stream at the end of every layer, after steering.
    Residual,
    /// The experts that every router chose, with their weights.
    Router,
    /// The magnitudes of what the second matrix of every dense feed-forward part reads.
    Ffn,
}

impl CaptureKind {
    const ALL: [Self; 3] = [Self::Residual, Self::Router, Self::Ffn];

    /// As the user writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Residual => "residual",
            Self::Router => "router",
            Self::Ffn => "ffn",
        }
    }

    /// The marks it is read from.
    pub(crate) fn point(self) -> Point {
        match self {
            Self::Residual => Point::Residual,
            Self::Router => Point::Router,
            Self::Ffn => Point::Inner,
        }
    }
}

/// What is captured and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// What.
    pub kind: CaptureKind,
    /// A safetensors file; a description in JSON is written beside it under the same name with `.json` after it.
    pub file: PathBuf,
}

impl FromStr for Capture {
    type Err = RuntimeError;

    /// `WHAT=FILE`.
    fn from_str(text: &str) -> Result<Self, RuntimeError> {
        let known = CaptureKind::ALL.map(CaptureKind::name).join(", ");
        let bad = |reason| RuntimeError::BadValue { found: text.to_owned(), reason };
        let (what, file) = text.split_once('=').unwrap_or((text, ""));
        let kind = CaptureKind::ALL.into_iter().find(|kind| kind.name() == what);
        let kind = kind.ok_or_else(|| bad(format!("expected WHAT=FILE with WHAT one of {known}")))?;
        if file.is_empty() {
            return Err(bad(format!("expected {what}=FILE; the file has no name")));
        }
        Ok(Self { kind, file: file.into() })
    }
}

impl fmt::Display for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.kind.name(), self.file.display())
    }
}

/// Buckets of a magnitude histogram.
pub const BUCKETS: usize = 64;

/// The bucket of a magnitude: 0 for zero, 63 for what is not finite, else `33 + ⌊log2 |x|⌋`, at least 1 and at most 62.
pub fn bucket(x: f32) -> usize {
    if x == 0.0 {
        return 0;
    }
    if !x.is_finite() {
        return BUCKETS - 1;
    }
    // f64 has an exponent for every f32, so that the exponent is the floor of the logarithm.
    let exponent = (f64::from(x).abs().to_bits() >> 52) as i32 - 1023;
    (33 + exponent).clamp(1, BUCKETS as i32 - 2) as usize
}

/// What one place held at the positions now in the cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Captured {
    /// The place.
    pub place: Place,
    /// How many experts the router chooses from; `None` elsewhere.
    pub experts: Option<usize>,
    /// Values of a position.
    pub width: usize,
    /// `[positions, width]`: the stream; chosen experts, then their weights; or how many values fell into each [`bucket`].
    pub values: Vec<f32>,
}

/// Keeps what a program's taps show, in step with a sequence.
#[derive(Debug)]
pub(crate) struct Recorder {
    captured: Vec<Captured>,
    buffers: Vec<Vec<f32>>,
}

impl Recorder {
    /// For the taps of a program.
    pub(crate) fn new(program: &Program) -> Self {
        let mut experts = None;
        let mut captured: Vec<Captured> = Vec::with_capacity(program.taps.len());
        for step in &program.steps {
            match step {
                // A router's mark stands right after its route.
                Step::Route { logits, .. } => experts = Some(program.slot(*logits).width),
                Step::Tap { to, .. } => {
                    let place = program.taps[captured.len()].place;
                    let (experts, width) = match place.point {
                        Point::Residual => (None, program.slot(*to).width),
                        Point::Router => (experts, program.slot(*to).width),
                        Point::Inner => (None, BUCKETS),
                    };
                    captured.push(Captured { place, experts, width, values: Vec::new() });
                }
                _ => {}
            }
        }
        Self { buffers: vec![Vec::new(); captured.len()], captured }
    }

    /// Where a run puts what the taps show.
    pub(crate) fn buffers(&mut self) -> &mut [Vec<f32>] {
        &mut self.buffers
    }

    /// Keeps what a run of `rows` rows has put there.
    pub(crate) fn take(&mut self, rows: usize) {
        for (captured, shown) in self.captured.iter_mut().zip(&self.buffers) {
            if captured.place.point != Point::Inner {
                captured.values.extend_from_slice(shown);
                continue;
            }
            for row in shown.chunks_exact(shown.len() / rows) {
                let from = captured.values.len();
                captured.values.resize(from + BUCKETS, 0.0);
                row.iter().for_each(|x| captured.values[from + bucket(*x)] += 1.0);
            }
        }
    }

    /// Forgets everything from a position on.
    pub(crate) fn rewind(&mut self, position: usize) {
        self.captured.iter_mut().for_each(|c| c.values.truncate(position * c.width));
    }

    pub(crate) fn captured(&self) -> &[Captured] {
        &self.captured
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magnitudes_fall_into_their_buckets() {
        for (x, expected) in [
            (0.0, 0),
            (-0.0, 0),
            (1.0, 33),
            (-1.99, 33),
            (2.0, 34),
            (0.5, 32),
            (0.49, 31),
            (f32::from_bits(1), 1),
            (f32::MAX, 62),
            (f32::INFINITY, 63),
            (f32::NAN, 63),
        ] {
            assert_eq!(bucket(x), expected, "{x}");
        }
    }
}
