//! `imatrix`: how much errors in each column of a model's matrices count, from a text.

use super::text_file;
use crate::arguments::{StoreFlags, positive};
use crate::failure::Failure;
use crate::{models, output, progress};
use clap::Args;
use pack::Importance;
use runtime::ModelFiles;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tokenizer::Encode;

/// Collect from a text how much errors in each column of a model's matrices count.
///
/// The model reads the text in windows of --ctx tokens, and the squares of what each matrix is multiplied with are summed up. The
/// file is in the GGUF form of llama.cpp's imatrix; `turbospark pack --imatrix` reads it.
#[derive(Args, Debug)]
pub(crate) struct Imatrix {
    /// The model, as other commands take it: not rounded, or as little as there is
    #[arg(value_name = "MODEL")]
    model: OsString,
    /// The text
    #[arg(long, value_name = "FILE")]
    text: PathBuf,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Tokens of a window
    #[arg(long, value_name = "N", default_value = "512", value_parser = positive)]
    ctx: usize,
    /// Most windows to read [default: the whole text]
    #[arg(long, value_name = "N", value_parser = positive)]
    windows: Option<usize>,
    /// Threads [default: as many as the machine and the container give]
    #[arg(long, value_name = "N", value_parser = positive)]
    threads: Option<usize>,
    /// No progress and no summary
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    store: StoreFlags,
}

impl Imatrix {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let model = self.store.models(self.quiet)?.locate(&self.model)?;
        if models::is_scripted(&model) {
            return Err(Failure::message("a scripted model has no matrices"));
        }
        let files = ModelFiles::open(Path::new(&model))?;
        let mut tokens = files.tokenizer()?.encode(&text_file(&self.text)?, Encode { special: false, bos: true })?;
        tokens.truncate(self.windows.unwrap_or(usize::MAX).saturating_mul(self.ctx));
        let bar = progress::bar("windows", tokens.len().div_ceil(self.ctx), self.quiet);
        let found =
            Importance::collect(&files, &tokens, (self.ctx, self.threads), &mut |done| bar.set_position(done as u64));
        bar.finish_and_clear();
        let importance = found?;
        importance.write(&self.out)?;
        if !self.quiet {
            let (out, matrices, tokens) = (self.out.display(), importance.matrices(), tokens.len());
            output::note(&format!("{out}: {matrices} matrices over {tokens} tokens"));
        }
        Ok(())
    }
}
