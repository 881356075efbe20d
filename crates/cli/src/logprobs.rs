//! How probable the tokens of an answer were: for people on standard error, for machines as JSON.
//!
//! `model` is the model's own distribution, the softmax of the raw logits; `shaped` is what was drawn from, after every sampler,
//! bias and mask. Natural logarithms.

use crate::output;
use foundation::TokenId;
use runtime::{RawDecodeResult, TokenLogProbs};
use selection::LogProb;
use serde_json::{Value, json};
use tokenizer::Tokenizer;

/// A line a token; nothing if it was not asked for.
pub(crate) fn print(tokenizer: &Tokenizer, result: &RawDecodeResult) {
    let tokens = result.logprobs.iter().flatten().enumerate();
    for (at, TokenLogProbs { model, shaped }) in tokens {
        let token = quoted(tokenizer, model.chosen.token);
        let best = |name: &str, top: &[LogProb]| {
            let top: Vec<String> =
                top.iter().map(|one| format!("{} {:.4}", quoted(tokenizer, one.token), one.logprob)).collect();
            if top.is_empty() { String::new() } else { format!("; {name} best: {}", top.join(", ")) }
        };
        output::note(&format!(
            "[token {at} {token} model {:.4}, shaped {:.4}{}{}]",
            model.chosen.logprob,
            shaped.chosen.logprob,
            best("model", &model.top),
            best("shaped", &shaped.top)
        ));
    }
}

/// A list with an object a token; null if it was not asked for.
pub(crate) fn json(tokenizer: &Tokenizer, result: &RawDecodeResult) -> Value {
    let Some(tokens) = &result.logprobs else { return Value::Null };
    let one = |one: &LogProb| {
        let mut entry = entry(tokenizer, one.token);
        entry["logprob"] = one.logprob.into();
        entry
    };
    let all = tokens.iter().map(|TokenLogProbs { model, shaped }| {
        let mut entry = entry(tokenizer, model.chosen.token);
        entry["model_logprob"] = model.chosen.logprob.into();
        entry["shaped_logprob"] = shaped.chosen.logprob.into();
        entry["model_top"] = model.top.iter().map(one).collect();
        entry["shaped_top"] = shaped.top.iter().map(one).collect();
        entry
    });
    all.collect()
}

fn entry(tokenizer: &Tokenizer, id: TokenId) -> Value {
    let bytes = tokenizer.token_bytes(id).unwrap_or_default();
    json!({ "id": id.0, "token": text(tokenizer, id), "bytes": bytes })
}

/// The token's own text; a control token's piece; bytes that are no text as escapes.
fn text(tokenizer: &Tokenizer, id: TokenId) -> String {
    match tokenizer.token_bytes(id).map(String::from_utf8) {
        Some(Ok(text)) if !text.is_empty() => text,
        Some(Err(error)) => error.as_bytes().escape_ascii().to_string(),
        _ => tokenizer.piece(id).unwrap_or_default(),
    }
}

fn quoted(tokenizer: &Tokenizer, id: TokenId) -> String {
    format!("{:?}", text(tokenizer, id))
}
