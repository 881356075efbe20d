//! `turbospark`: run language models on this machine.
#![forbid(unsafe_code)]

mod arguments;
mod chat;
mod commands;
mod environment;
mod failure;
mod generate;
mod interrupt;
mod models;
mod open;
mod output;
mod progress;
mod reasoning;
mod report;

use std::process::ExitCode;

fn main() -> ExitCode {
    interrupt::install();
    let outcome = arguments::parse().and_then(commands::execute);
    failure::exit_code(outcome)
}
