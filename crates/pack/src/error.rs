//! The one error type of this crate.

use plan::{ExecError, PlanError};
use runtime::RuntimeError;
use std::path::{Path, PathBuf};
use weights::WeightsError;

/// Why a model could not be packed, checked or repaired.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The model to pack could not be opened.
    #[error(transparent)]
    Model(#[from] RuntimeError),
    /// A weight file.
    #[error(transparent)]
    Weights(Box<WeightsError>),
    /// The model cannot be lowered.
    #[error(transparent)]
    Plan(Box<PlanError>),
    /// The model could not be run.
    #[error(transparent)]
    Run(Box<ExecError>),
    /// A file operation failed.
    #[error("cannot {action} {}: {source}; check that the folder is writable and the disk has room", .path.display())]
    Io {
        /// What was attempted, a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Something is at the place of the result.
    #[error("{} exists already; remove it or choose another place", .path.display())]
    Exists {
        /// The place.
        path: PathBuf,
    },
    /// Another process packs to the same place.
    #[error("another process is packing to {}; wait for it, or choose another place", .path.display())]
    Busy {
        /// The place.
        path: PathBuf,
    },
    /// The disk cannot hold the result.
    #[error("not enough room for {}: {needed} bytes are still to be written and {SLACK} stay free, but {available} are available; free some space or choose another disk", .path.display())]
    NotEnoughSpace {
        /// The place of the result.
        path: PathBuf,
        /// Bytes still to be written.
        needed: u64,
        /// Bytes available.
        available: u64,
    },
    /// The caller asked to stop.
    #[error("stopped; nothing is at {} yet, and the same command goes on where this one was", .path.display())]
    Cancelled {
        /// The place of the result.
        path: PathBuf,
    },
    /// Rounding was asked for and nothing can be rounded.
    #[error("nothing can be rounded to {to}: {reason}")]
    NothingToRound {
        /// The type.
        to: &'static str,
        /// Why not, and what to do.
        reason: String,
    },
    /// A tensor was named that is not there.
    #[error("no tensor is called {pattern:?}, and --keep would do nothing; similar names: {near}")]
    NoSuchTensor {
        /// The name or pattern.
        pattern: String,
        /// Names that look like it.
        near: String,
    },
    /// A value that is not understood.
    #[error("`{found}`: {reason}")]
    BadValue {
        /// The value.
        found: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No GGUF file can be made of the model.
    #[error("{} cannot become a GGUF file: {reason}", .path.display())]
    CannotExport {
        /// The model.
        path: PathBuf,
        /// Why not, and what to do.
        reason: String,
    },
    /// A repair needs the model that was packed, and this is another.
    #[error("{} is not the model that was packed: {reason}; name the source of the packed model", .path.display())]
    OtherSource {
        /// The model given.
        path: PathBuf,
        /// What differs.
        reason: String,
    },
}

/// Kept free on the disk.
pub(crate) const SLACK: u64 = 16 << 20;

impl PackError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

// Boxed, so that a result costs little to pass on.
impl From<WeightsError> for PackError {
    fn from(error: WeightsError) -> Self {
        Self::Weights(Box::new(error))
    }
}

impl From<PlanError> for PackError {
    fn from(error: PlanError) -> Self {
        Self::Plan(Box::new(error))
    }
}
