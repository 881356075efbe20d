//! `pack`: a model as a `.gturbo` folder or as a GGUF file.

use crate::arguments::{StoreFlags, quantize};
use crate::failure::Failure;
use crate::progress::PackProgress;
use crate::{interrupt, models, output};
use clap::Args;
use indicatif::HumanBytes;
use pack::{Importance, Keep, PackOptions, Packed};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use weights::DType;

/// Pack a model as a .gturbo folder, or as a GGUF file if OUT ends in .gguf.
///
/// A .gturbo folder has every expert in one piece and hashes of all bytes, and can be moved. Unless rounding is asked for, it
/// gives exactly the logits of its source. Nothing is at OUT before all is written; after an interruption the same command
/// goes on where it was, in OUT.partial.
#[derive(Args, Debug)]
pub(crate) struct Pack {
    /// The model to pack, as other commands take it
    #[arg(value_name = "SRC")]
    source: OsString,
    /// The folder (NAME.gturbo) or file (NAME.gguf) to make
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Round matrices stored as plain floats to this type
    #[arg(long, value_name = "TYPE", value_parser = quantize)]
    quantize: Option<DType>,
    /// Round experts to this type instead
    #[arg(long, value_name = "TYPE", value_parser = quantize)]
    experts: Option<DType>,
    /// Round the tensors of this name (* is any text) to a type of their own, or leave them `stored`
    #[arg(long, value_name = "TENSOR=TYPE", value_parser = keep)]
    keep: Vec<Keep>,
    /// Round again what is rounded already
    #[arg(long)]
    requantize: bool,
    /// How much errors in each column count: llama.cpp's imatrix in its GGUF form
    #[arg(long, value_name = "FILE")]
    imatrix: Option<PathBuf>,
    /// No progress and no summary
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    store: StoreFlags,
}

fn keep(text: &str) -> Result<Keep, String> {
    text.parse().map_err(|error| match error {
        pack::PackError::BadValue { reason, .. } => reason,
        other => other.to_string(),
    })
}

impl Pack {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let make = match self.out.extension().and_then(OsStr::to_str) {
            Some("gturbo") => pack::pack,
            Some("gguf") => pack::export,
            _ => {
                let found = self.out.display();
                return Err(Failure::usage("pack", format!("OUT ends in .gturbo or .gguf, and {found} does not")));
            }
        };
        let source = self.store.models(self.quiet)?.locate(&self.source)?;
        if models::is_scripted(&source) {
            return Err(Failure::message("a scripted model has no tensors to pack"));
        }
        let listening = interrupt::listen();
        let options = PackOptions {
            quantize: self.quantize,
            experts: self.experts,
            keep: self.keep,
            requantize: self.requantize,
            importance: self.imatrix.as_deref().map(Importance::read).transpose()?,
            cancel: listening.flag(),
            ..PackOptions::default()
        };
        let mut progress = PackProgress::new("packing");
        let mut events = |event| {
            if !self.quiet {
                progress.event(event);
            }
        };
        let packed = make(Path::new(&source), &self.out, &options, &mut events).inspect_err(tell_cancelled)?;
        drop(progress);
        if !self.quiet {
            packed.notes.iter().for_each(|note| output::warn(note));
            output::note(&summary(&packed));
        }
        Ok(())
    }
}

/// Says what a stopped command has left.
pub(super) fn tell_cancelled(error: &pack::PackError) {
    if matches!(error, pack::PackError::Cancelled { .. }) {
        output::note(&error.to_string());
    }
}

fn summary(packed: &Packed) -> String {
    let types: Vec<_> = packed.types.iter().map(|(name, count)| format!("{count} {name}")).collect();
    let resumed = match packed.resumed {
        0 => String::new(),
        bytes => format!(", {} of them from before", HumanBytes(bytes)),
    };
    format!("{}: {}{resumed}; tensors: {}", packed.path.display(), HumanBytes(packed.bytes), types.join(", "))
}
