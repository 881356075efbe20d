//! The pass that rounds a checkpoint's matrices to a smaller type when they are loaded.

use crate::program::{Program, WeightRole};
use crate::source::stored_type;
use crate::step::{Step, WeightId};
use crate::{PlanError, program::WeightUse};
use model::WeightIndex;
use std::collections::BTreeSet;
use weights::DType;

/// Marks the matrices of products and experts that are stored as plain floats to be rounded to `to`.
///
/// Vectors and mere lookup tables stay as they are, and so do routers, whose small differences choose experts, and
/// matrices whose rows are no whole number of blocks. Errors if `to` is no type that can be rounded to, or if nothing is
/// left to round.
pub fn quantise(program: &mut Program, index: &WeightIndex, to: DType) -> Result<(), PlanError> {
    if !DType::QUANTISERS.contains(&to) {
        let known = DType::QUANTISERS.map(DType::name).join(", ");
        return Err(PlanError::CannotQuantise { to: to.name(), reason: format!("only to {known}") });
    }
    let routers = routers(program);
    let (mut rounded, mut found) = (0, BTreeSet::new());
    for (id, used) in program.weights.iter_mut().enumerate() {
        let is_product = matches!(used.role, WeightRole::Matrix | WeightRole::Experts(_));
        if !is_product || routers.contains(&WeightId(id as u32)) {
            continue;
        }
        let stored = stored_type(&used.source, &|name| index.dtype(name))?;
        found.insert(stored.name());
        if stored.is_float() && to.bytes_for(used.shape[1]).is_some() {
            used.to = Some(to);
            rounded += 1;
        }
    }
    if rounded == 0 {
        let found: Vec<_> = found.into_iter().collect();
        let reason = format!(
            "no matrix is stored as plain floats in rows of a multiple of {} values; found {}",
            to.block_len(),
            found.join(", ")
        );
        return Err(PlanError::CannotQuantise { to: to.name(), reason });
    }
    Ok(())
}

/// The matrices whose outputs choose experts.
pub fn routers(program: &Program) -> BTreeSet<WeightId> {
    let logits: Vec<_> = program
        .steps
        .iter()
        .filter_map(|step| if let Step::Route { logits, .. } = step { Some(*logits) } else { None })
        .collect();
    let of = |step: &Step| match step {
        Step::Linear { part, .. } if logits.contains(&part.to) => Some(part.weight),
        _ => None,
    };
    program.steps.iter().filter_map(of).collect()
}

impl WeightUse {
    /// The type the weight has once it is loaded, given the types of the stored tensors; a vector is expanded instead.
    pub fn loaded_type(&self, dtype: &dyn Fn(&str) -> Option<DType>) -> Result<DType, PlanError> {
        match self.to {
            Some(to) => Ok(to),
            None => stored_type(&self.source, dtype),
        }
    }
}
