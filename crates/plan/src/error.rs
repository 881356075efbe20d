//! What can go wrong before a program runs, and while it does.

use crate::sequences::SequenceId;
use weights::WeightsError;

/// A program cannot be made, or not on this device.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A tensor is absent.
    #[error("tensor `{name}` is missing from the checkpoint")]
    MissingTensor {
        /// Canonical name.
        name: String,
    },
    /// The model cannot be rounded to a type while it is loaded.
    #[error("cannot quantise to {to} while loading: {reason}; choose another type, or open it as it is stored")]
    CannotQuantise {
        /// The type asked for.
        to: &'static str,
        /// Why not.
        reason: String,
    },
    /// A tensor has another shape than the model needs.
    #[error("tensor `{name}` has shape {found:?}, expected {expected:?}")]
    BadShape {
        /// Canonical name.
        name: String,
        /// What the model needs.
        expected: Vec<usize>,
        /// What the file holds.
        found: Vec<usize>,
    },
    /// Tensors do not fit the expression that combines them.
    #[error("{name}: expected {expected}, found {found:?}; the checkpoint does not fit its config")]
    BadSource {
        /// The expression.
        name: String,
        /// What it needs.
        expected: String,
        /// Rows and columns it was given.
        found: Vec<usize>,
    },
    /// A layer shares keys and values with one that has none.
    #[error("layer {layer} shares the keys and values of layer {wanted}, which stores none before it")]
    NoSharedCache {
        /// The layer.
        layer: usize,
        /// Whose keys and values it wants.
        wanted: usize,
    },
    /// A sum without anything to add.
    #[error("a feed-forward part is a sum of no branches")]
    NoBranches,
    /// The device has no kernel for a tensor's type.
    #[error(
        "tensor `{name}` is stored as {dtype}, which {device} cannot compute with; convert the model to one of {known}"
    )]
    UnsupportedType {
        /// Canonical name.
        name: String,
        /// The tensor's type.
        dtype: String,
        /// The device.
        device: String,
        /// What it could have used.
        known: String,
    },
    /// The device cannot keep keys and values in the type asked for.
    #[error("{device} cannot keep keys and values as {found}; use one of {known}")]
    UnsupportedKv {
        /// The device.
        device: String,
        /// The type asked for.
        found: String,
        /// What it could have used.
        known: String,
    },
    /// Heads of a size that a type cannot store.
    #[error(
        "layer {layer} has {what} of {dim} channels a head, which {found} cannot store: it needs a multiple of 8; use one of {known}"
    )]
    KvHeadSize {
        /// The layer.
        layer: usize,
        /// Keys or values.
        what: &'static str,
        /// Channels of a head.
        dim: usize,
        /// The type asked for.
        found: String,
        /// What could be used.
        known: String,
    },
    /// A storage type for a layer that stores no keys and values.
    #[error(
        "a cache type was asked for layer {layer}, which keeps no keys and values of its own; `turbospark inspect` lists the layers"
    )]
    NoCache {
        /// The layer.
        layer: usize,
    },
    /// Experts that cannot be kept as asked, because each is not a piece of the files by itself.
    #[error(
        "the experts of `{name}` do not lie apart from each other, so they cannot be read one by one; keep them in memory with --experts ram"
    )]
    ExpertsTogether {
        /// The expression.
        name: String,
    },
    /// Experts that are not in the file as they are used.
    #[error(
        "the experts of `{name}` cannot be used where they are mapped: they are stored in another order or type than they are used in; use --experts streamed or --experts ram"
    )]
    ExpertsNotMapped {
        /// The expression.
        name: String,
    },
    /// A device that keeps all experts in memory.
    #[error("{device} keeps all experts in memory; leave --experts out or give --experts ram")]
    ExpertsElsewhere {
        /// The device.
        device: &'static str,
    },
    /// The device itself failed, or has too little of something.
    #[error("{device}: {what}")]
    Device {
        /// The device.
        device: String,
        /// What it was doing, and what it said.
        what: String,
    },
    /// A weight's values could not be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}

/// A run that did not happen; no state has changed.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// A token that is no row of the embedding table.
    #[error("token id {token} is outside the vocabulary of {vocab} entries")]
    TokenOutsideVocabulary {
        /// The id.
        token: u32,
        /// Rows of the table.
        vocab: usize,
    },
    /// More rows than the program was compiled for.
    #[error("a batch of {found} rows exceeds the {limit} this program was compiled for; feed smaller chunks")]
    TooManyRows {
        /// Rows in the batch.
        found: usize,
        /// Rows compiled for.
        limit: usize,
    },
    /// The output buffer does not hold the wanted rows.
    #[error("the output buffer holds {found} values, the wanted rows need {expected}")]
    OutputSize {
        /// wanted rows × vocabulary.
        expected: usize,
        /// What the caller gave.
        found: usize,
    },
    /// A batch without rows, or a feed without tokens.
    #[error("a batch needs at least one token")]
    Empty,
    /// No block of cache is free.
    #[error(
        "the cache{} is full: {needed} more blocks of {block} positions are needed and {free} of {total} are free; shorten the context, close a sequence or raise --memory",
        of_layers(*window)
    )]
    StateFull {
        /// Which layers' cache: those with this window.
        window: Option<usize>,
        /// Blocks the feed needs.
        needed: usize,
        /// Blocks nobody holds.
        free: usize,
        /// Blocks in all.
        total: usize,
        /// Positions in a block.
        block: usize,
    },
    /// No copy of the recurrent state is free.
    #[error("all {total} copies of the model's recurrent state are in use; close a sequence or release a snapshot")]
    StateSlotsFull {
        /// Copies in all.
        total: usize,
    },
    /// A sequence that is closed, was never opened, or appears twice in one batch.
    #[error("sequence {sequence:?} is not open, or was named twice in one batch")]
    NoSuchSequence {
        /// The sequence.
        sequence: SequenceId,
    },
    /// A state that was to be kept under other tokens than it has seen.
    #[error("the sequence has been fed {position} tokens, and {tokens} were named as its past")]
    WrongPast {
        /// Where the sequence is.
        position: usize,
        /// Tokens named.
        tokens: usize,
    },
    /// Weights that the run needed could not be read.
    #[error("{0}; this run failed and nothing else")]
    Weights(#[from] WeightsError),
    /// The device itself failed; its states are lost where it says so.
    #[error("{device}: {what}")]
    Device {
        /// The device.
        device: String,
        /// What it was doing, and what it said.
        what: String,
    },
    /// A fault a test asked for.
    #[error("injected fault at run {run}: {what}")]
    Injected {
        /// How many runs came before.
        run: usize,
        /// The test's text.
        what: String,
    },
    /// A scripted run wants more rows than were prepared.
    #[error("the script is exhausted: row {row} was wanted and {prepared} are prepared")]
    ScriptExhausted {
        /// The row wanted.
        row: usize,
        /// Rows prepared.
        prepared: usize,
    },
}

fn of_layers(window: Option<usize>) -> String {
    window.map_or_else(String::new, |w| format!(" of the layers with a window of {w}"))
}
