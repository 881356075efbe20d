//! What changes logits before anything is cut: penalties and DRY in the order of the chain, then biases and the mask.

use crate::chain::Sampler;
use crate::dry::weaken_repeats;
use crate::error::SelectError;
use crate::history::History;
use crate::select::Step;
use crate::shaping::{Shaping, ShapingOptions};
use foundation::LogitValue;

/// Writes the changed row to `row`; false if nothing changes it and nothing was written.
///
/// NaN and +∞ stay as they are, masked or not, so that a broken row is found. A finite logit stays finite, except for a
/// bias of −∞.
pub(crate) fn prepare(
    logits: &[LogitValue],
    shaping: &Shaping,
    step: Step<'_>,
    row: &mut Vec<LogitValue>,
) -> Result<bool, SelectError> {
    let penalised = (shaping.has_penalties() || shaping.has_dry()) && !step.history.is_empty();
    if !penalised && shaping.bias().is_empty() && step.mask.is_none() {
        return Ok(false);
    }
    row.clear();
    match step.mask {
        // Nothing brings a masked token back, so that it may as well be masked first.
        Some(mask) => copy_masked(logits, mask, row),
        None => row.extend_from_slice(logits),
    }
    for sampler in shaping.options().samplers.order() {
        match sampler {
            Sampler::Penalties if shaping.has_penalties() => penalise(row, shaping.options(), step.history),
            Sampler::Dry if shaping.has_dry() => weaken_repeats(row, shaping, step.history.tokens()),
            _ => {}
        }
    }
    for &(id, bias) in shaping.bias() {
        let len = row.len();
        let logit = row.get_mut(id.index()).ok_or(SelectError::NoSuchToken { id, len })?;
        if logit.is_finite() {
            *logit = if bias == f32::NEG_INFINITY { bias } else { (*logit + bias).clamp(f32::MIN, f32::MAX) };
        }
    }
    Ok(true)
}

fn copy_masked(logits: &[LogitValue], mask: &[u32], row: &mut Vec<LogitValue>) {
    const BITS: usize = u32::BITS as usize;
    let words = mask.iter().copied().chain(std::iter::repeat(0));
    for (logits, word) in logits.chunks(BITS).zip(words) {
        if word == u32::MAX {
            row.extend_from_slice(logits);
            continue;
        }
        let keep = |(bit, logit): (usize, &LogitValue)| {
            let broken = logit.is_nan() || *logit == f32::INFINITY;
            if word >> bit & 1 == 1 || broken { *logit } else { f32::NEG_INFINITY }
        };
        row.extend(logits.iter().enumerate().map(keep));
    }
}

/// Changes the logits of the tokens in the history.
fn penalise(row: &mut [LogitValue], options: &ShapingOptions, history: &History) {
    for count in history.counts() {
        let Some(logit) = row.get_mut(count.id.index()) else {
            continue;
        };
        if !logit.is_finite() {
            continue;
        }
        if count.prompt + count.generated > 0 {
            *logit =
                if *logit > 0.0 { *logit / options.repetition_penalty } else { *logit * options.repetition_penalty };
        }
        if count.generated > 0 {
            *logit -= options.presence_penalty;
            *logit -= options.frequency_penalty * count.generated as f32;
        }
        *logit = logit.clamp(f32::MIN, f32::MAX);
    }
}
