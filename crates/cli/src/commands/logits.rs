//! `logits`: what a model computes at every position.

use crate::arguments::{CaptureFlags, ModelArgument, OpenFlags, StoreFlags, Tokens, VerboseFlag};
use crate::failure::Failure;
use crate::{open, output};
use clap::Args;
use foundation::{LogitValue, TokenId};
use runtime::{OpenOptions, all_logits};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use weights::{DType, Tensor, safetensors};

/// Print the five best tokens of every position, or write all logits to a file.
///
/// Needs no tokenizer. The context is as long as the tokens unless --ctx says otherwise.
#[derive(Args, Debug)]
pub(crate) struct Logits {
    #[command(flatten)]
    model: ModelArgument,
    /// Token ids separated by commas
    #[arg(long, value_name = "IDS", required = true)]
    tokens: Tokens,
    /// Write `tokens` (i64, [T]) and `logits` (f32, [T, V]) to this safetensors file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    capture: CaptureFlags,
    #[command(flatten)]
    open: OpenFlags,
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    verbose: VerboseFlag,
}

/// Candidates printed a position.
const SHOWN: usize = 5;

impl Logits {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let tokens = &self.tokens.0;
        let options = self.capture.prepare(self.open.options())?;
        let name = self.model.name()?;
        let model = self.store.models(false)?.locate(name)?;
        let options = OpenOptions { context: self.open.place.ctx.or(Some(tokens.len())), all_logits: true, ..options };
        let (mut producer, _) = open::logits(&model, &options, self.verbose.verbose)?;
        let logits = all_logits(&mut *producer, tokens, options.prefill_chunk)?;
        self.capture.write(&name.to_string_lossy(), &*producer, false)?;
        match &self.out {
            Some(path) => write(path, tokens, &logits, producer.vocab()),
            None => output::write(&best(tokens, &logits, producer.vocab())),
        }
    }
}

fn write(path: &Path, tokens: &[TokenId], logits: &[LogitValue], vocab: usize) -> Result<(), Failure> {
    let ids = tokens.iter().flat_map(|id| i64::from(id.0).to_le_bytes()).collect();
    let tensors = [
        Tensor::from_bytes("tokens", DType::I64, vec![tokens.len()], ids)?,
        Tensor::from_f32("logits", vec![tokens.len(), vocab], logits),
    ];
    Ok(safetensors::write(path, &tensors, &BTreeMap::new())?)
}

/// One line a position: the token fed, then the best next ones with their logits.
fn best(tokens: &[TokenId], logits: &[LogitValue], vocab: usize) -> String {
    let mut text = String::new();
    for ((position, token), row) in tokens.iter().enumerate().zip(logits.chunks_exact(vocab)) {
        let mut order: Vec<usize> = (0..vocab).collect();
        order.sort_by(|a, b| row[*b].total_cmp(&row[*a]).then(a.cmp(b)));
        let _ = write!(text, "{position}\t{token}");
        for id in order.into_iter().take(SHOWN) {
            let _ = write!(text, "\t{id}:{:.4}", row[id]);
        }
        text.push('\n');
    }
    text
}
