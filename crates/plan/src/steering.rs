//! Steering: directions that change the residual stream where a layer ends.

use crate::experts::Residency;
use crate::program::{Program, WeightRole, WeightUse};
use crate::step::{Place, Point, Slot, Step, WeightId};
use model::Source;

/// What a direction does to a row, with `ĉ` the row's component along the direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SteerMode {
    /// Adds the direction itself, `strength` times.
    Add,
    /// Takes `strength` of the component away; 1 projects the direction out.
    Ablate,
    /// Moves `ĉ` to the target, `strength` of the way.
    Clamp {
        /// Where `ĉ` goes.
        target: f32,
    },
    /// As [`SteerMode::Ablate`], and the row gets its length back.
    Renorm,
}

/// How a direction is applied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edit {
    /// What it does.
    pub mode: SteerMode,
    /// How much; 0 does nothing.
    pub strength: f32,
    /// Rows with `|ĉ|` below this stay as they are.
    pub threshold: f32,
}

/// A direction in the residual stream at the end of one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Steer {
    /// The layer, from 0.
    pub layer: usize,
    /// `[width]`, finite and not all zeros; the device finds it among the weights it is given.
    pub direction: Source,
    /// The width of the residual stream. Where a model has several streams side by side, each is changed alike.
    pub width: usize,
    /// What is done.
    pub edit: Edit,
}

/// The sums an edit is computed from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Products {
    /// `x · d`.
    pub along: f32,
    /// `x · x`.
    pub row: f32,
    /// `d · d`.
    pub direction: f32,
}

impl Edit {
    /// `(factor, scale)` such that the row becomes `scale · (x + factor · d)`; `None` if it stays.
    ///
    /// With `ĉ = x·d / ‖d‖`: add is `x + α d`; ablate `x - α (x·d / d·d) d`; clamp `x + α (target - ĉ) d / ‖d‖`; renorm is
    /// ablate times `√(x·x / (x·x - α (2 - α) ĉ²))`. A row that ablation leaves nothing of keeps that nothing.
    pub fn change(&self, products: Products) -> Option<(f32, f32)> {
        let Products { along, row, direction } = products;
        let length = direction.sqrt();
        let component = along / length;
        if component.abs() < self.threshold {
            return None;
        }
        let ablate = -self.strength * along / direction;
        Some(match self.mode {
            SteerMode::Add => (self.strength, 1.0),
            SteerMode::Ablate => (ablate, 1.0),
            SteerMode::Clamp { target } => (self.strength * (target - component) / length, 1.0),
            SteerMode::Renorm => {
                let left = row - self.strength * (2.0 - self.strength) * component * component;
                // What rounding leaves of a row along the direction has no length to give back.
                let scale = if left > f32::EPSILON * row { (row / left).sqrt() } else { 1.0 };
                (ablate, scale)
            }
        })
    }
}

/// Adds the steps of all directions that apply at a place, in order.
pub(crate) fn steer(program: &mut Program, steering: &[Steer], place: Place, x: Slot, steps: &mut Vec<Step>) {
    let here = |s: &&Steer| place == Place { layer: s.layer, point: Point::Residual } && s.edit.strength != 0.0;
    for Steer { direction, width, edit, .. } in steering.iter().filter(here) {
        debug_assert!(program.slot(x).width.is_multiple_of(*width));
        let used = WeightUse {
            source: direction.clone(),
            shape: [1, *width],
            role: WeightRole::Vector,
            to: None,
            residency: Residency::Ram,
        };
        let at = program.weights.iter().position(|w| *w == used).unwrap_or_else(|| {
            program.weights.push(used);
            program.weights.len() - 1
        });
        steps.push(Step::Steer { x, direction: WeightId(at as u32), edit: *edit });
    }
}
