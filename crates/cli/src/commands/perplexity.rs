//! `perplexity`: how well a model predicts a text, and how far it is from a reference.

use super::{print_json, text_file};
use crate::arguments::{ModelArgument, OpenFlags, StoreFlags, VerboseFlag};
use crate::failure::Failure;
use crate::models::Models;
use crate::{open, output, progress};
use clap::Args;
use foundation::{LogitValue, TokenId};
use runtime::{Comparison, LogitProducer, ModelFiles, OpenOptions, RuntimeError, all_logits, byte_tokenizer, compare};
use runtime::{open_logits, perplexity};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokenizer::{Encode, Tokenizer};
use weights::safetensors::SafetensorsFile;

/// Measure how well a model predicts a text.
///
/// The text is cut into windows of --ctx tokens, 512 unless given; each window's first token is given, not predicted.
/// With --against also the mean Kullback-Leibler divergence from the reference and how often both prefer the same
/// token.
#[derive(Args, Debug)]
pub(crate) struct Perplexity {
    #[command(flatten)]
    model: ModelArgument,
    /// The text; may be left out where --against names a file of logits
    #[arg(long, value_name = "FILE", required_unless_present = "against")]
    text: Option<PathBuf>,
    /// A reference: another model, or a file that `turbospark logits --out` wrote
    #[arg(long, value_name = "MODEL|FILE")]
    against: Option<OsString>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    open: OpenFlags,
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    verbose: VerboseFlag,
}

/// Tokens of a window unless --ctx says otherwise.
const WINDOW: usize = 512;

/// What a model is compared with.
enum Reference {
    Model(Box<dyn LogitProducer + Send>),
    Logits { tokens: Vec<TokenId>, logits: Vec<LogitValue>, vocab: usize },
}

impl Perplexity {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let models = self.store.models(self.json)?;
        let model = models.locate(self.model.name()?)?;
        let (window, reference) = self.reference(&models)?;
        let options = OpenOptions { context: Some(window), all_logits: true, ..self.open.options() };
        let tokens = self.tokens(&model, reference.as_ref())?;
        let (mut producer, _) = open::logits(&model, &options, self.verbose.verbose)?;
        let chunk = options.prefill_chunk;
        let mut comparisons = Comparisons { reference, chunk, all: Vec::new(), failure: None };
        let vocab = producer.vocab();
        let bar = progress::bar("windows", tokens.len().div_ceil(window), false);
        let found = perplexity(&mut *producer, &tokens, window, chunk, &mut |_, tokens, logits| {
            comparisons.take(tokens, logits, vocab);
            bar.inc(1);
        });
        bar.finish_and_clear();
        let found = found.map_err(|error| match error {
            RuntimeError::EmptyPrompt => {
                Failure::message("the text has fewer than two tokens; nothing can be predicted")
            }
            other => other.into(),
        })?;
        let comparison = comparisons.total()?;
        self.print(&found, comparison.as_ref())
    }

    /// The window, and the reference with it.
    fn reference(&self, models: &Models) -> Result<(usize, Option<Reference>), Failure> {
        let window = self.open.place.ctx;
        let Some(given) = &self.against else { return Ok((window.unwrap_or(WINDOW), None)) };
        if let Some(reference) = logits_of(given)? {
            let Reference::Logits { tokens, .. } = &reference else { return Ok((WINDOW, Some(reference))) };
            if let Some(window) = window.filter(|w| *w != tokens.len()) {
                let have = tokens.len();
                let what = format!("the reference is one window of {have} tokens; leave --ctx {window} out");
                return Err(Failure::usage("perplexity", what));
            }
            return Ok((tokens.len(), Some(reference)));
        }
        let window = window.unwrap_or(WINDOW);
        // The reference is the model as it is stored.
        let plain = OpenOptions { quantize: None, steer: Vec::new(), ..self.open.options() };
        let options = OpenOptions { context: Some(window), all_logits: true, ..plain };
        let (producer, _) = open_logits(models.locate(given)?, &options)?;
        Ok((window, Some(Reference::Model(producer))))
    }

    fn tokens(&self, model: &OsStr, reference: Option<&Reference>) -> Result<Vec<TokenId>, Failure> {
        let given = match reference {
            Some(Reference::Logits { tokens, .. }) => Some(tokens),
            _ => None,
        };
        let Some(path) = &self.text else {
            let missing = || Failure::usage("perplexity", "--text is needed: the reference is a model, not logits");
            return given.cloned().ok_or_else(missing);
        };
        let mut tokens = tokenizer_of(model)?.encode(&text_file(path)?, Encode { special: false, bos: true })?;
        if let Some(given) = given {
            if !tokens.starts_with(given) {
                return Err(Failure::message(
                    "the reference's tokens are not those the text begins with; they belong to another text or tokenizer",
                ));
            }
            tokens.truncate(given.len());
        }
        Ok(tokens)
    }

    fn print(&self, found: &runtime::Perplexity, comparison: Option<&Comparison>) -> Result<(), Failure> {
        let agreement_error = |c: &Comparison| {
            let p = c.top1_agreement;
            (p * (1.0 - p) / c.positions.max(1) as f64).sqrt()
        };
        if self.json {
            return print_json(&json!({
                "perplexity": found.value,
                "nll_standard_error": found.standard_error,
                "tokens": found.tokens,
                "against": comparison.map(|c| json!({
                    "mean_kl": c.mean_kl,
                    "kl_standard_error": c.kl_standard_error,
                    "max_kl": c.max_kl,
                    "top1_agreement": c.top1_agreement,
                    "top1_standard_error": agreement_error(c),
                    "positions": c.positions,
                })),
            }));
        }
        let spread = found.value * found.standard_error;
        let mut text = format!("perplexity {:.4} ± {spread:.4} over {} tokens\n", found.value, found.tokens);
        if let Some(c) = comparison {
            text += &format!(
                "mean KL {:.6} ± {:.6} nats (largest {:.4}), top-1 agreement {:.2} % ± {:.2} over {} positions\n",
                c.mean_kl,
                c.kl_standard_error,
                c.max_kl,
                100.0 * c.top1_agreement,
                100.0 * agreement_error(c),
                c.positions
            );
        }
        output::write(&text)
    }
}

/// The comparisons of all windows.
struct Comparisons {
    reference: Option<Reference>,
    chunk: usize,
    all: Vec<Comparison>,
    failure: Option<Failure>,
}

impl Comparisons {
    fn take(&mut self, tokens: &[TokenId], logits: &[LogitValue], vocab: usize) {
        let Some(reference) = self.reference.as_mut().filter(|_| self.failure.is_none()) else { return };
        let other = match reference {
            Reference::Model(producer) => producer.vocab(),
            Reference::Logits { vocab, .. } => *vocab,
        };
        if other != vocab {
            let what =
                format!("the model has {vocab} logits a position and the reference {other}; they do not compare");
            self.failure = Some(Failure::message(what));
            return;
        }
        let compared = match reference {
            Reference::Model(producer) => {
                all_logits(&mut **producer, tokens, self.chunk).map(|there| compare(logits, &there, vocab))
            }
            Reference::Logits { logits: there, .. } => Ok(compare(logits, &there[..logits.len()], vocab)),
        };
        match compared {
            Ok(comparison) => self.all.push(comparison),
            Err(error) => self.failure = Some(error.into()),
        }
    }

    /// All windows as one.
    fn total(self) -> Result<Option<Comparison>, Failure> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        Ok((!self.all.is_empty()).then(|| pooled(&self.all)))
    }
}

/// Pools means and variances of several samples.
fn pooled(all: &[Comparison]) -> Comparison {
    let positions: usize = all.iter().map(|c| c.positions).sum();
    let n = positions as f64;
    let mean = |value: fn(&Comparison) -> f64| all.iter().map(|c| value(c) * c.positions as f64).sum::<f64>() / n;
    let mean_kl = mean(|c| c.mean_kl);
    let squares: f64 = all
        .iter()
        .map(|c| {
            let (n, off) = (c.positions as f64, c.mean_kl - mean_kl);
            (n - 1.0).max(0.0) * c.kl_standard_error.powi(2) * n + n * off * off
        })
        .sum();
    Comparison {
        mean_kl,
        kl_standard_error: (squares / (n - 1.0).max(1.0) / n).sqrt(),
        max_kl: all.iter().map(|c| c.max_kl).fold(0.0, f64::max),
        top1_agreement: mean(|c| c.top1_agreement),
        positions,
    }
}

/// The reference logits in a file; `None` if it is something else, a model for example.
fn logits_of(given: &OsStr) -> Result<Option<Reference>, Failure> {
    let path = Path::new(given);
    if path.extension() != Some(OsStr::new("safetensors")) || !path.is_file() {
        return Ok(None);
    }
    let file = SafetensorsFile::open(path)?;
    let (Some(ids), Some(logits)) = (file.weights().get("tokens"), file.weights().get("logits")) else {
        return Ok(None);
    };
    let bad = || Failure::message(format!("{}: `tokens` must be [T] ids and `logits` [T, V]", path.display()));
    let tokens: Result<Vec<_>, _> = ids.to_i64()?.into_iter().map(|id| u32::try_from(id).map(TokenId)).collect();
    let tokens = tokens.map_err(|_| bad())?;
    match logits.shape() {
        [rows, vocab] if *rows == tokens.len() && *rows > 0 => {
            Ok(Some(Reference::Logits { tokens, logits: logits.to_f32()?, vocab: *vocab }))
        }
        _ => Err(bad()),
    }
}

fn tokenizer_of(model: &OsStr) -> Result<Arc<Tokenizer>, Failure> {
    Ok(match crate::models::is_scripted(model) {
        true => Arc::new(byte_tokenizer()?),
        false => ModelFiles::open(Path::new(model))?.tokenizer()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pooled_windows_equal_one_long_one() {
        let vocab = 3;
        let row = |i: usize| [(i % 5) as f32, (i % 3) as f32 * 0.5, 1.0];
        let a: Vec<f32> = (0..12).flat_map(row).collect();
        let b: Vec<f32> = (0..12).flat_map(|i| row(i + 1)).collect();
        let whole = compare(&a, &b, vocab);
        let parts = [compare(&a[..12], &b[..12], vocab), compare(&a[12..], &b[12..], vocab)];
        let pooled = pooled(&parts);
        assert!((pooled.mean_kl - whole.mean_kl).abs() < 1e-12);
        assert!((pooled.kl_standard_error - whole.kl_standard_error).abs() < 1e-12);
        assert!((pooled.top1_agreement - whole.top1_agreement).abs() < 1e-12);
        assert_eq!(pooled.positions, whole.positions);
    }
}
