//! One file a command: its flags, and what it does.

pub(crate) mod bench;
pub(crate) mod chat_template;
pub(crate) mod complete;
pub(crate) mod completions;
pub(crate) mod devices;
pub(crate) mod imatrix;
pub(crate) mod inspect;
pub(crate) mod list;
pub(crate) mod logits;
pub(crate) mod pack;
pub(crate) mod path;
pub(crate) mod perplexity;
pub(crate) mod pull;
pub(crate) mod rm;
pub(crate) mod run;
pub(crate) mod selftest;
pub(crate) mod tokenize;
pub(crate) mod verify;

use crate::arguments::Command;
use crate::failure::Failure;
use crate::output;
use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;

/// Does what was asked.
pub(crate) fn execute(command: Command) -> Result<(), Failure> {
    match command {
        Command::Run(run) => run.execute(),
        Command::Complete(complete) => complete.execute(),
        Command::Pull(pull) => pull.execute(),
        Command::List(list) => list.execute(),
        Command::Rm(rm) => rm.execute(),
        Command::Path(path) => path.execute(),
        Command::Pack(pack) => pack.execute(),
        Command::Imatrix(imatrix) => imatrix.execute(),
        Command::Verify(verify) => verify.execute(),
        Command::Inspect(inspect) => inspect.execute(),
        Command::Tokenize(tokenize) => tokenize.execute(),
        Command::ChatTemplate(template) => template.execute(),
        Command::Logits(logits) => logits.execute(),
        Command::Devices(devices) => devices.execute(),
        Command::Selftest(selftest) => selftest.execute(),
        Command::Bench(bench) => bench.execute(),
        Command::Perplexity(perplexity) => perplexity.execute(),
        Command::Completions(completions) => completions.execute(),
    }
}

/// All of standard input, which must be UTF-8.
fn standard_input() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(|error| Failure::message(format!("cannot read standard input: {error}")))?;
    utf8(bytes, "standard input")
}

/// A text file, which must be UTF-8.
fn text_file(path: &Path) -> Result<String, Failure> {
    let bytes = std::fs::read(path);
    utf8(bytes.map_err(|e| Failure::message(format!("cannot read {}: {e}", path.display())))?, &path.display())
}

/// An argument as text.
fn text_argument(text: &OsStr) -> Result<String, Failure> {
    utf8(text.as_encoded_bytes().to_vec(), "the prompt")
}

fn utf8(bytes: Vec<u8>, what: &(impl std::fmt::Display + ?Sized)) -> Result<String, Failure> {
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Failure::message(format!("{what} is not UTF-8: the byte at offset {at} belongs to no character"))
    })
}

/// A JSON value on one line of standard output.
fn print_json(json: &serde_json::Value) -> Result<(), Failure> {
    output::write(&format!("{json}\n"))
}
