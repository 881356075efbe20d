//! How many tokens a second all sequences together decode, through the scheduler.

use super::some_tokens;
use super::spread::Spread;
use crate::failure::Failure;
use crate::progress;
use runtime::{Event, GenerationConfig, OpenOptions, RawDecodeResult, Request, Served, Stream, open_service};
use std::ffi::OsStr;

/// Tokens of each prompt.
const PROMPT: usize = 8;

/// Measures every number of sequences in turn, `reps` times after a warm-up; the rates of each.
pub(super) fn measure(
    model: &OsStr,
    options: &OpenOptions,
    counts: &[usize],
    (tg, reps, quiet): (usize, usize, bool),
) -> Result<Vec<(usize, Spread)>, Failure> {
    let sequences = counts.iter().max().copied().unwrap_or(1);
    let context = options.context.or(Some(PROMPT + tg));
    let served = open_service(model, &OpenOptions { context, sequences, ..options.clone() })?;
    let mut rates = vec![Vec::new(); counts.len()];
    let bar = progress::bar("repetitions", reps + 1, quiet);
    for rep in 0..=reps {
        for (count, rates) in counts.iter().zip(&mut rates) {
            let rate = together(&served, *count, tg)?;
            if rep > 0 {
                rates.push(rate);
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(counts.iter().zip(rates).map(|(count, rates)| (*count, Spread::of(&rates))).collect())
}

/// Tokens a second from the first token of the last sequence to begin on.
fn together(served: &Served, count: usize, tg: usize) -> Result<f64, Failure> {
    let vocab = served.tokenizer.vocab_size();
    let ask = |at: usize| {
        let prompt = some_tokens(PROMPT + at, vocab).split_off(at);
        let config = GenerationConfig { max_new_tokens: Some(tg), ignore_eos: true, ..GenerationConfig::default() };
        served.service.submit(Request { prompt, config })
    };
    let streams: Vec<_> = (0..count).map(ask).collect();
    let results: Vec<_> = streams.iter().map(record).collect::<Result<_, _>>()?;
    let longest = results.iter().map(|result| result.decode).max().unwrap_or_default();
    let tokens: usize = results.iter().map(|result| result.new_tokens - 1).sum();
    Ok(tokens as f64 / longest.as_secs_f64())
}

fn record(stream: &Stream) -> Result<RawDecodeResult, Failure> {
    loop {
        match stream.recv() {
            Some(Event::Finished(result)) => return Ok(*result),
            Some(Event::Failed(error)) => return Err(error.into()),
            Some(Event::Progress(_)) => {}
            None => return Err(Failure::message("the scheduler ended before the answer")),
        }
    }
}
