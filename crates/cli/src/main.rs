//! `turbospark`: run language models on this machine.
#![forbid(unsafe_code)]
// Comments on arguments are help texts, whose brackets are no links.
#![allow(rustdoc::broken_intra_doc_links)]

mod arguments;
mod chat;
mod commands;
mod environment;
mod failure;
mod generate;
mod interrupt;
mod logprobs;
mod models;
mod open;
mod output;
mod progress;
mod report;

use std::process::ExitCode;

fn main() -> ExitCode {
    interrupt::install();
    let outcome = arguments::parse().and_then(commands::execute);
    failure::exit_code(outcome)
}
