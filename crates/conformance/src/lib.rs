//! What every device must do, written once for all of them.
//!
//! [`Graph`] builds a program around one step, [`Driver`] feeds token sequences to compiled programs, and the test
//! files run tables of cases on each device: every step against the reference device, every fused step against its
//! definition, every golden model bit for bit under all ways of cutting up its prompt.
//!
//! It opens models without a runtime or a tokenizer, and panics on mistakes of the tests' own.
#![forbid(unsafe_code)]

mod broken;
mod compare;
mod drive;
pub mod exact;
mod golden;
mod graph;
mod steps;

pub use broken::with_damaged_tables;
pub use compare::{Difference, Failures, difference};
pub use drive::{Driver, TRUNK};
pub use golden::golden;
pub use graph::Graph;
pub use steps::{Case, every_case, steps};
