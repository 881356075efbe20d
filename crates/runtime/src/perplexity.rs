//! How well a model predicts a text, and how far its predictions are from another's.

use crate::RuntimeError;
use crate::producer::{LogitProducer, Want};
use foundation::{LogitValue, TokenId};

/// Perplexity of a text, with the spread of its windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Perplexity {
    /// `exp(mean negative log-likelihood)` over all predicted tokens.
    pub value: f64,
    /// Standard error of the mean negative log-likelihood, in nats.
    pub standard_error: f64,
    /// Tokens predicted.
    pub tokens: usize,
}

/// Distance of a model's predictions from a reference's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Mean Kullback–Leibler divergence from the reference, nats.
    pub mean_kl: f64,
    /// Standard error of that mean.
    pub kl_standard_error: f64,
    /// The largest divergence at one position.
    pub max_kl: f64,
    /// Share of positions where both prefer the same token.
    pub top1_agreement: f64,
    /// Positions compared.
    pub positions: usize,
}

/// Logits of every position of `tokens`, `[tokens, vocab]`, fed in chunks from an empty context.
pub fn all_logits(
    producer: &mut dyn LogitProducer,
    tokens: &[TokenId],
    chunk: usize,
) -> Result<Vec<LogitValue>, RuntimeError> {
    if tokens.is_empty() {
        return Err(RuntimeError::EmptyPrompt);
    }
    producer.reset();
    let (vocab, chunk) = (producer.vocab(), chunk.clamp(1, tokens.len()));
    let mut all = vec![0.0; tokens.len() * vocab];
    for (tokens, out) in tokens.chunks(chunk).zip(all.chunks_mut(chunk * vocab)) {
        producer.produce(tokens, Want::All, out)?;
    }
    Ok(all)
}

/// Told of every window: its number, its tokens and its logits.
pub type OnWindow<'a> = &'a mut dyn FnMut(usize, &[TokenId], &[LogitValue]);

/// Perplexity of `tokens` in windows of `context` tokens; each window's first token is given, not predicted.
pub fn perplexity(
    producer: &mut dyn LogitProducer,
    tokens: &[TokenId],
    context: usize,
    chunk: usize,
    on_window: OnWindow<'_>,
) -> Result<Perplexity, RuntimeError> {
    let mut losses = Vec::new();
    for (index, window) in tokens.chunks(context.max(2)).enumerate() {
        if window.len() < 2 {
            continue;
        }
        let logits = all_logits(producer, window, chunk)?;
        for (row, next) in logits.chunks_exact(producer.vocab()).zip(&window[1..]) {
            losses.push(-log_probability(row, next.index()));
        }
        on_window(index, window, &logits);
    }
    if losses.is_empty() {
        return Err(RuntimeError::EmptyPrompt);
    }
    let (mean, standard_error) = mean_and_error(&losses);
    Ok(Perplexity { value: mean.exp(), standard_error, tokens: losses.len() })
}

/// Compares logits row by row with a reference's.
///
/// # Panics
/// If the lengths differ or are no whole number of rows.
pub fn compare(logits: &[LogitValue], reference: &[LogitValue], vocab: usize) -> Comparison {
    assert_eq!(logits.len(), reference.len(), "the same positions and vocabulary");
    let rows = || logits.chunks_exact(vocab).zip(reference.chunks_exact(vocab));
    let divergences: Vec<f64> = rows().map(|(row, reference)| divergence(reference, row)).collect();
    let agreements = rows().filter(|(row, reference)| best(row) == best(reference)).count();
    let (mean_kl, kl_standard_error) = mean_and_error(&divergences);
    Comparison {
        mean_kl,
        kl_standard_error,
        max_kl: divergences.iter().copied().fold(0.0, f64::max),
        top1_agreement: agreements as f64 / divergences.len().max(1) as f64,
        positions: divergences.len(),
    }
}

/// KL(p ‖ q) of two rows of logits, nats.
fn divergence(p: &[LogitValue], q: &[LogitValue]) -> f64 {
    let (p_norm, q_norm) = (log_sum_exp(p), log_sum_exp(q));
    let term = |(p, q): (&f32, &f32)| {
        let (p, q) = (*p as f64 - p_norm, *q as f64 - q_norm);
        if p == f64::NEG_INFINITY { 0.0 } else { p.exp() * (p - q) }
    };
    p.iter().zip(q).map(term).sum::<f64>().max(0.0)
}

fn log_probability(row: &[LogitValue], index: usize) -> f64 {
    row[index] as f64 - log_sum_exp(row)
}

fn log_sum_exp(row: &[LogitValue]) -> f64 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max) as f64;
    max + row.iter().map(|x| (*x as f64 - max).exp()).sum::<f64>().ln()
}

fn best(row: &[LogitValue]) -> usize {
    let mut best = 0;
    for (i, x) in row.iter().enumerate() {
        if *x > row[best] {
            best = i;
        }
    }
    best
}

/// Mean and its standard error.
fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0).max(1.0);
    (mean, (variance / n).sqrt())
}
