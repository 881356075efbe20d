//! What each cache type changes in a real model's predictions, and what it takes, as a Markdown table.

use anyhow::{Result, anyhow};
use hub::{CATALOGUE, PullOptions, VERIFY_MODELS, pull};
use plan::{KvPlan, KvType, KvTypes};
use runtime::{Engine, KvChoice, ModelFiles, OpenOptions, all_logits, compare};
use std::path::Path;
use testkit::model_store;
use tokenizer::Encode;

/// Tokens read at once.
const WINDOW: usize = 512;

/// Windows of the text.
const WINDOWS: usize = 4;

/// Types for all layers, keys and values apart, and with the last layer kept wide.
const PLANS: &[&str] = &[
    "f16", "q8", "q4", "tq4", "tq3.5", "tq3", "tq2", "f16:q8", "q8:f16", "f16:q4", "q4:f16", "q8:q4", "q4:q8",
    "f16:tq4", "tq4:f16", "q8:tq4", "q8:tq3", "q4:tq3", "f16:tq2", "tq2:f16",
];

/// Measures one model over the project's own documents.
pub(crate) fn run(alias: &str) -> Result<()> {
    let model = CATALOGUE.iter().chain(VERIFY_MODELS).find(|m| m.alias == alias);
    let model = model.ok_or_else(|| anyhow!("there is no model named {alias}"))?;
    let path = pull(&model_store(), model, &PullOptions::default(), &mut |_| {})?.path;
    let text = include_str!("../../ARCHITECTURE.md");

    let mut engine = open(&path, KvTypes::both(KvType::F32).into())?;
    let vocab = engine.producer().vocab();
    let tokens = engine.tokenizer().encode(text, Encode { special: false, bos: true })?;
    let windows: Vec<_> = tokens.chunks(WINDOW).take(WINDOWS).collect();
    let read = |engine: &mut Engine| -> Result<Vec<f32>> {
        let mut all = Vec::new();
        for window in &windows {
            all.extend(all_logits(engine.producer(), window, WINDOW)?);
        }
        Ok(all)
    };
    let expected = read(&mut engine)?;
    let last = ModelFiles::open(&path)?.spec.layers.len() - 1;
    drop(engine);
    println!("| cache | bytes a token | mean KL to f32 | largest | same best token |\n|---|---|---|---|---|");
    let kept = |types: &str| format!("{types},{last}=f16");
    for plan in PLANS.iter().map(|p| (*p).to_owned()).chain(["q4", "tq4", "tq3", "tq2"].map(kept)) {
        let parsed: KvPlan = plan.parse().map_err(|e: String| anyhow!(e))?;
        let mut engine = open(&path, KvChoice::Plan(parsed))?;
        let found = compare(&read(&mut engine)?, &expected, vocab);
        let bytes = engine.report().budget.as_ref().map_or(0, |b| b.per_position);
        println!(
            "| {plan} | {bytes} | {:.6} ± {:.6} | {:.4} | {:.2} % |",
            found.mean_kl,
            found.kl_standard_error,
            found.max_kl,
            100.0 * found.top1_agreement
        );
    }
    Ok(())
}

fn open(path: &Path, kv: KvChoice) -> Result<Engine> {
    let options =
        OpenOptions { context: Some(WINDOW), all_logits: true, prefill_chunk: WINDOW, kv, ..OpenOptions::default() };
    Ok(Engine::open(path, &options)?)
}
