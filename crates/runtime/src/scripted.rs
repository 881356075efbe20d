//! `scripted:FILE` models: prepared answers over a byte vocabulary, behind the same loop as a real model.
//!
//! The file is JSON: `{"text": "…"}` or `{"ids": […]}` for the answer, and optionally `"step_ms"` (time each
//! run that answers takes), `"repeat"` (start again when the answer is used up), `"context"` and `"faults"`
//! (`[{"run": n, "what": "…"}]`). Ids 0–255 are bytes; 256 `<bos>`, 257 `<eos>`, 258 `<|im_start|>`,
//! 259 `<|im_end|>`, 260 `<think>`, 261 `</think>`, 262 `<tool_call>`, 263 `</tool_call>`.

use crate::RuntimeError;
use foundation::TokenId;
use plan::{Around, Batch, Exec, Fault, KV_BLOCK, Outputs, Script, ScriptedExec};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tokenizer::{GgufVocab, Tokenizer};

const SPECIAL: [&str; 8] =
    ["<bos>", "<eos>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"];
const EOS: u32 = 257;
const CHAT_TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
     {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
const DEFAULT_CONTEXT: usize = 4096;

/// Width of the byte vocabulary.
pub const VOCAB: usize = 256 + SPECIAL.len();

/// The byte vocabulary with its ChatML template.
pub fn byte_tokenizer() -> Result<Tokenizer, RuntimeError> {
    let pieces = (0..=255u8).map(byte_piece).chain(SPECIAL.map(str::to_owned));
    let types = (0..VOCAB).map(|id| if id < 256 { 1 } else { 3 }).collect();
    Ok(Tokenizer::from_vocab(GgufVocab {
        model: "gpt2".to_owned(),
        pre: Some("gpt-2".to_owned()),
        tokens: pieces.collect(),
        types,
        bos: Some(256),
        eos: Some(EOS),
        eot: Some(259),
        add_bos: Some(false),
        chat_template: Some(CHAT_TEMPLATE.to_owned()),
        ..GgufVocab::default()
    })?)
}

/// A byte in GPT-2's printable alphabet: printable Latin-1 stands for itself, the rest is moved to U+0100 on.
fn byte_piece(byte: u8) -> String {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let moved = (0..byte).filter(|b| !printable(*b)).count() as u32;
    let c = if printable(byte) { Some(byte as char) } else { char::from_u32(0x100 + moved) };
    c.map(String::from).unwrap_or_default()
}

/// A scripted model for some sequences of a context, the context, and the vocabulary, from a file.
pub(crate) fn open(
    path: &Path,
    sequences: usize,
) -> Result<(impl Exec + Send + use<>, usize, Tokenizer), RuntimeError> {
    let bad = |reason: String| RuntimeError::Script { path: path.to_owned(), reason };
    let text = std::fs::read(path).map_err(|source| RuntimeError::Read { path: path.to_owned(), source })?;
    let json: Value = serde_json::from_slice(&text).map_err(|e| bad(format!("expected JSON: {e}")))?;
    let mut ids: Vec<TokenId> = match (&json["text"], &json["ids"]) {
        (Value::String(text), Value::Null) => text.bytes().map(|b| TokenId(b as u32)).chain([TokenId(EOS)]).collect(),
        (Value::Null, Value::Array(ids)) => ids
            .iter()
            .map(|id| id.as_u64().filter(|id| *id < VOCAB as u64).map(|id| TokenId(id as u32)))
            .collect::<Option<_>>()
            .ok_or_else(|| bad(format!("`ids` must be integers from 0 to {}", VOCAB - 1)))?,
        _ => return Err(bad("expected either `text` (a string) or `ids` (a list)".to_owned())),
    };
    if ids.is_empty() {
        return Err(bad("the answer is empty".to_owned()));
    }
    let context = json["context"].as_u64().map_or(DEFAULT_CONTEXT, |c| c as usize);
    if json["repeat"].as_bool() == Some(true) {
        ids = ids.iter().copied().cycle().take(context).collect();
    }
    let mut script = Script::of_ids(VOCAB, &ids);
    for fault in json["faults"].as_array().into_iter().flatten() {
        let run = fault["run"].as_u64().ok_or_else(|| bad("a fault needs `run`, a number".to_owned()))? as usize;
        let what = fault["what"].as_str().unwrap_or("a scripted fault").to_owned();
        script.faults.push(Fault { run, what });
    }
    let step = Duration::from_millis(json["step_ms"].as_u64().unwrap_or(0));
    let blocks = context.div_ceil(KV_BLOCK).saturating_mul(sequences.max(1));
    // Each run that answers takes its time.
    let paced = move |exec: &mut ScriptedExec, program, batch: &Batch<'_>, outputs: &mut Outputs<'_>| {
        exec.run(program, batch, outputs)?;
        if !batch.wanted.is_empty() {
            std::thread::sleep(step);
        }
        Ok(())
    };
    Ok((Around::new(ScriptedExec::new(script, blocks), paced), context, byte_tokenizer()?))
}
