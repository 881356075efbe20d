//! Experts that stay on disk: one is read when a row needs it, and stays in memory as long as it is used more than others.
//!
//! [`BankPlace`] says what reading one takes, [`Streams`] reads and keeps them. Knows files and bytes; knows no kernel and no
//! device, and decides nothing about the answer: whoever computes gets the bytes of the expert it asked for.
#![forbid(unsafe_code)]

mod place;
mod readers;
mod slots;
mod streams;

pub use place::{BankPlace, banks, slots_within, streamed_bytes};
pub use streams::{Arrived, Held, Streams};
