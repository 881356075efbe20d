//! Statistics and decisions, for people on standard error and for machines as JSON.

use crate::generate::Answer;
use crate::{logprobs, output};
use runtime::{
    Engine, ExpertStats, GenerationConfig, KvChoice, OpenOptions, OpenReport, PrefixStatus, RawDecodeResult,
    StopReason, mebibytes,
};
use selection::Sampler;
use serde_json::{Value, json};
use std::time::Duration;

/// What was decided when a model was opened.
pub(crate) fn opened(report: &OpenReport, options: &OpenOptions) {
    output::aside(&format!(
        "device {}, {} threads, context {} of {} trained, kv {}, prefill chunk {}, opened in {:.2} s",
        options.device,
        report.threads,
        report.context,
        report.trained_context,
        options.kv,
        options.prefill_chunk,
        report.elapsed.as_secs_f64()
    ));
    if let (Some(kv), KvChoice::Plan(_)) = (&report.kv, &options.kv)
        && kv.divergence.is_some()
    {
        output::aside(&kv.to_string());
    }
    if let Some(budget) = &report.budget {
        let available = report.available.map_or(String::new(), |bytes| format!(" of {} available", mebibytes(bytes)));
        output::aside(&format!(
            "memory {}{available} = weights {} + cache {} ({} B a position) + activations {}",
            mebibytes(budget.total()),
            mebibytes(budget.weights),
            mebibytes(budget.states),
            budget.per_position,
            mebibytes(budget.slots)
        ));
    }
    report.experts.iter().for_each(|experts| output::aside(&experts.to_string()));
    output::aside(&prefix_memory(options));
    if let Some(to) = options.quantize {
        output::aside(&format!("matrices stored as plain floats were rounded to {to}"));
    }
    options.steer.iter().for_each(|file| output::aside(&format!("steered by {file}")));
    if !report.unused.is_empty() {
        output::aside(&unused(&report.unused));
    }
}

/// Where beginnings of prompts are kept.
pub(crate) fn prefix_memory(options: &OpenOptions) -> String {
    match options.prefixes.memory {
        _ if !options.keeps_prefixes() => "no beginnings of prompts are kept".to_owned(),
        Some(bytes) => format!("beginnings of prompts are kept in at most {} of the cache", mebibytes(bytes)),
        None => "beginnings of prompts are kept in what of the cache nothing else needs".to_owned(),
    }
}

/// What kept beginnings have been good for.
pub(crate) fn prefixes(status: &PrefixStatus) {
    let PrefixStatus { states, bytes, reuse } = status;
    output::aside(&format!(
        "{states} kept beginnings, {}; {} of {} prompts went on from one, {} of {} tokens were not read again, {} given up",
        mebibytes(*bytes),
        reuse.hits,
        reuse.lookups,
        reuse.reused,
        reuse.tokens,
        reuse.evictions
    ));
}

/// Tensors that are not read, in one line.
pub(crate) fn unused(unused: &[(String, usize)]) -> String {
    let count: usize = unused.iter().map(|(_, count)| count).sum();
    let names: Vec<_> = unused.iter().map(|(name, count)| format!("{name} ({count})")).collect();
    format!("{count} tensors that this model does not read: {}", names.join(", "))
}

/// The cache's types where they were chosen by measure, whether or not more is to be said.
pub(crate) fn chosen_kv(report: &OpenReport, options: &OpenOptions) {
    if let (Some(kv), KvChoice::Auto(_)) = (&report.kv, &options.kv) {
        output::aside(&kv.to_string());
    }
}

/// How tokens will be chosen.
pub(crate) fn sampling(config: &GenerationConfig) {
    let o = config.shaping.options();
    let max_new = config.max_new_tokens.map_or("until a stop or the end of the context".to_owned(), |n| n.to_string());
    let window = o.penalty_window.map_or(String::new(), |n| format!(" over the last {n} tokens"));
    output::aside(&format!(
        "temperature {}, top-k {}, top-p {}, min-p {}, repetition penalty {}, presence penalty {}, \
         frequency penalty {}{window}, seed {}, max new {max_new}, stop {:?}",
        o.temperature,
        o.top_k,
        o.top_p,
        o.min_p,
        o.repetition_penalty,
        o.presence_penalty,
        o.frequency_penalty,
        o.seed,
        config.stop_strings
    ));
    let mut chain = format!("samplers {}", o.samplers);
    if o.uses(Sampler::TypicalP) {
        chain += &format!("; typical-p {}", o.typical_p);
    }
    if o.uses(Sampler::Xtc) {
        chain += &format!("; xtc probability {}, threshold {}", o.xtc_probability, o.xtc_threshold);
    }
    if let Some(dry) = o.dry {
        let range = dry.range.map_or("all".to_owned(), |range| range.to_string());
        chain += &format!(
            "; dry multiplier {}, base {}, allowed length {}, range {range}",
            dry.multiplier, dry.base, dry.allowed_length
        );
    }
    if let Some(mirostat) = o.mirostat {
        chain += &format!("; mirostat 2, tau {}, eta {}", mirostat.tau, mirostat.eta);
    }
    if !config.shaping.bias().is_empty() {
        let bias: Vec<_> = config.shaping.bias().iter().map(|(id, add)| format!("{id}={add}")).collect();
        chain += &format!("; logit bias {}", bias.join(", "));
    }
    output::aside(&chain);
}

/// The same for machines; what is off is null, or has the value that does nothing.
fn sampling_json(config: &GenerationConfig) -> Value {
    let o = config.shaping.options();
    let finite = |add: f32| if add.is_finite() { json!(add) } else { json!("-inf") };
    json!({
        "samplers": o.samplers.order().iter().map(|sampler| sampler.name()).collect::<Vec<_>>(),
        "temperature": o.temperature,
        "top_k": o.top_k,
        "top_p": o.top_p,
        "min_p": o.min_p,
        "typical_p": o.typical_p,
        "xtc_probability": o.xtc_probability,
        "xtc_threshold": o.xtc_threshold,
        "repetition_penalty": o.repetition_penalty,
        "presence_penalty": o.presence_penalty,
        "frequency_penalty": o.frequency_penalty,
        "penalty_window": o.penalty_window,
        "dry": o.dry.map(|dry| json!({
            "multiplier": dry.multiplier, "base": dry.base, "allowed_length": dry.allowed_length, "range": dry.range,
        })),
        "mirostat": o.mirostat.map(|mirostat| json!({ "tau": mirostat.tau, "eta": mirostat.eta })),
        "logit_bias": config.shaping.bias().iter().map(|(id, add)| json!([id.0, finite(*add)])).collect::<Vec<_>>(),
    })
}

/// Says that a constrained answer was cut off, whether or not more is to be said.
pub(crate) fn incomplete(config: &GenerationConfig, result: &RawDecodeResult) {
    let cut = matches!(result.reason, StopReason::MaxTokens | StopReason::StopString);
    if config.constraint.is_some() && cut {
        output::warn(&format!(
            "the answer ended ({}) before its constraint was satisfied or could be; raise --max-new, or bound what may be written",
            result.reason.name()
        ));
    }
}

/// One line about a finished generation.
pub(crate) fn statistics(result: &RawDecodeResult) {
    let reused = match result.reused_prefix_tokens {
        0 => String::new(),
        n => format!(" ({n} reused)"),
    };
    output::aside(&format!(
        "[prompt {} tokens{reused}{}, answer {} tokens{}, {}{}]",
        result.prompt_tokens,
        rate(computed(result), result.prefill),
        result.new_tokens,
        rate(decoded(result), result.decode),
        result.reason.name(),
        if result.session_slot_evicted { "; another conversation was given up" } else { "" }
    ));
}

/// How streamed experts served a generation.
pub(crate) fn experts(stats: Option<&ExpertStats>) {
    output::aside(&match stats {
        Some(stats) => format!("[experts {}]", expert_stats(stats)),
        None => "[no experts are streamed]".to_owned(),
    });
}

/// How streamed experts served, in words.
pub(crate) fn expert_stats(stats: &ExpertStats) -> String {
    format!(
        "{:.1} % of {} in memory, {} read a token, {:.3} s waited for reads, {} at most in memory",
        100.0 * stats.hits as f64 / stats.requests.max(1) as f64,
        stats.requests,
        mebibytes(stats.bytes_read / stats.rows.max(1)),
        stats.exposed.as_secs_f64(),
        mebibytes(stats.peak_bytes)
    )
}

/// The same for machines.
pub(crate) fn expert_json(stats: &ExpertStats) -> Value {
    json!({
        "rows": stats.rows, "requests": stats.requests, "hits": stats.hits, "bytes_read": stats.bytes_read,
        "exposed_s": stats.exposed.as_secs_f64(), "peak_bytes": stats.peak_bytes,
    })
}

/// The record of a generation for machines.
pub(crate) fn json(model: &str, engine: &Engine, config: &GenerationConfig, answer: &Answer) -> Value {
    let (result, kept) = (&answer.result, engine.prefix_status());
    json!({
        "model": model,
        "text": result.text,
        "ids": result.ids.iter().map(|id| id.0).collect::<Vec<_>>(),
        "reason": result.reason.name(),
        "counts": {
            "prompt": result.prompt_tokens,
            "new": result.new_tokens,
            "reused": result.reused_prefix_tokens,
        },
        "prefix_cache": {
            "states": kept.states,
            "bytes": kept.bytes,
            "evictions": kept.reuse.evictions,
        },
        "session_slot_evicted": result.session_slot_evicted,
        "timings": {
            "load_s": engine.report().elapsed.as_secs_f64(),
            "prefill_s": result.prefill.as_secs_f64(),
            "decode_s": result.decode.as_secs_f64(),
            "prefill_tok_s": per_second(computed(result), result.prefill),
            "decode_tok_s": per_second(decoded(result), result.decode),
        },
        "peak_memory_pressure": result.peak_memory_pressure.map(runtime::MemoryPressure::name),
        "seed": config.shaping.options().seed,
        "sampling": sampling_json(config),
        "constrained": config.constraint.is_some(),
        "logprobs": logprobs::json(engine.tokenizer(), result),
        "experts": answer.experts.as_ref().map(expert_json),
    })
}

/// Prompt tokens that were really computed.
fn computed(result: &RawDecodeResult) -> usize {
    result.prompt_tokens - result.reused_prefix_tokens
}

/// Tokens that cost a step of decoding; the first one comes from the prompt's logits.
fn decoded(result: &RawDecodeResult) -> usize {
    result.new_tokens.saturating_sub(1)
}

fn per_second(tokens: usize, time: Duration) -> Option<f64> {
    (tokens > 0 && !time.is_zero()).then(|| tokens as f64 / time.as_secs_f64())
}

fn rate(tokens: usize, time: Duration) -> String {
    per_second(tokens, time).map_or(String::new(), |rate| format!(" at {rate:.1}/s"))
}
