//! The command line as clap reads it: the commands, and the groups of flags they share.

mod constraint;
mod groups;
mod sampling;
mod values;

pub(crate) use groups::{
    CaptureFlags, GenerationFlags, HomeFlag, ModelArgument, OpenFlags, PlaceFlags, PrefixFlags, PrefixMemoryFlag,
    SessionFlags, StoreFlags, VerboseFlag,
};
pub(crate) use values::{Tokens, device, positive, quantize};

use crate::commands::{
    bench, chat_template, complete, completions, devices, imatrix, inspect, list, logits, pack, path, perplexity, pull,
    rm, run, selftest, tokenize, verify,
};
use crate::failure::Failure;
use clap::{CommandFactory, Parser, Subcommand};

/// Run language models on this machine.
///
/// MODEL is a catalogued name (`turbospark list`), a file or folder, `hf:owner/repo[@revision][/file]`, or
/// `scripted:FILE`. A catalogued or `hf:` model that is not here yet is pulled first.
#[derive(Debug, Parser)]
#[command(name = "turbospark", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Chat with a model, with its template
    Run(run::Run),
    /// Continue a text as it is, without a template
    Complete(complete::Complete),
    /// Fetch a model
    Pull(pull::Pull),
    /// List pulled models and those that can be pulled
    List(list::List),
    /// Remove a pulled model
    Rm(rm::Rm),
    /// Print where a pulled model lies
    Path(path::PathOf),
    /// Pack a model as a .gturbo folder or a GGUF file, rounded if asked
    Pack(pack::Pack),
    /// Collect what errors in each column of a model count, for `pack --imatrix`
    Imatrix(imatrix::Imatrix),
    /// Check all bytes of a packed model, and repair them
    Verify(verify::Verify),
    /// Describe a model and the memory it takes
    Inspect(inspect::Inspect),
    /// Print the tokens of a text
    Tokenize(tokenize::Tokenize),
    /// Print the prompt that a conversation becomes
    ChatTemplate(chat_template::ChatTemplate),
    /// Print or write the logits of every position
    Logits(logits::Logits),
    /// Measure speed beside the memory bandwidth
    Bench(bench::Bench),
    /// Measure how well a model predicts a text, also against a reference
    Perplexity(perplexity::Perplexity),
    /// List what models can run on here, and why something cannot be used
    Devices(devices::Devices),
    /// Check a device against the scalar reference, the golden models and the exactness contract
    Selftest(selftest::Selftest),
    /// Print a completion script for a shell
    Completions(completions::Completions),
}

/// Reads the arguments of the process; help, version and malformed calls end it here.
pub(crate) fn parse() -> Result<Command, Failure> {
    Ok(Cli::parse().command)
}

/// The command as clap knows it.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}
