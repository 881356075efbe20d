//! Models packed anew: as `.gturbo` folders (see [`weights::gturbo`]) or as GGUF files, rounded on the way if asked.
//!
//! Responsible for: which tensor is rounded to what, where it lies, writing it so that an interruption costs no more than a
//! chunk and nothing unfinished is ever taken for a model, and repairing damaged chunks from the model that was packed.
//!
//! Deliberately unknown here: families, and how a packed model is read. A device is used only to collect the importance of columns. One tensor's rows are in memory at a time.
#![forbid(unsafe_code)]

mod choose;
mod collect;
mod content;
mod error;
mod export;
mod importance;
mod layout;
mod options;
mod pack;
mod repair;
mod write;

pub use error::PackError;
pub use export::export;
pub use importance::Importance;
pub use options::{Event, Keep, PackOptions, Packed};
pub use pack::pack;
pub use repair::{Checked, verify};
