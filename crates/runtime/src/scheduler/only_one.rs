//! What follows one sequence, and is therefore refused of many at once: by name, here and nowhere else.

use crate::RuntimeError;
use crate::config::GenerationConfig;
use crate::open::OpenOptions;
use crate::pacing::Pace;

/// Refuses a pace: a step answers all sequences, so none can wait without the others.
pub(super) fn refuse(config: &GenerationConfig) -> Result<(), RuntimeError> {
    if config.pace == Pace::default() {
        return Ok(());
    }
    let what = match config.pace.rate {
        Some(rate) => format!("a rate of {rate} tokens a second"),
        None => format!("the power profile {:?}", config.pace.profile),
    };
    let reason = "every step answers all of them; pace what reads the answer, or use an engine of its own";
    Err(RuntimeError::OneSequence { what, reason })
}

/// Refuses captures: they are of the positions of one sequence.
pub(crate) fn refuse_capture(options: &OpenOptions) -> Result<(), RuntimeError> {
    let Some(kind) = options.capture.first() else { return Ok(()) };
    let reason = "a capture follows one sequence; open the model for one";
    Err(RuntimeError::OneSequence { what: format!("capturing {}", kind.name()), reason })
}
