//! The check of packed caches when a model is opened, and the choice of types by measure.

use plan::KvType;
use std::path::Path;
use testkit::golden;
use turbospark_runtime::{KV_WARNING, KvChoice, OpenOptions, OpenReport, RuntimeError, all_logits, open_logits};
use weights::safetensors::{self, SafetensorsFile};
use weights::{Tensor, Weights};

const CONTEXT: usize = 96;

fn open(path: &Path, kv: KvChoice) -> Result<OpenReport, RuntimeError> {
    let options = OpenOptions { context: Some(CONTEXT), threads: Some(2), kv, ..OpenOptions::default() };
    open_logits(path, &options).map(|(_, report)| report)
}

fn plan(text: &str) -> KvChoice {
    KvChoice::Plan(text.parse().expect("types"))
}

/// Case D33: keys of one layer that 4 bits cannot hold are noticed, and keeping that layer wide is the cure.
#[test]
fn d33_a_layer_whose_keys_need_more_bits_is_named() {
    let tiny = golden("qwen2");
    let report = open(&tiny, plan("q8")).unwrap_or_else(|e| panic!("{e}"));
    let kl = report.kv.and_then(|kv| kv.divergence).expect("packed types are measured");
    assert!(kl < 1e-3 && report.notes.is_empty(), "{kl}: {:?}", report.notes);

    let file = SafetensorsFile::open(&tiny.join("model.safetensors")).expect("a checkpoint");
    let mut weights: Weights = file.weights().iter().cloned().collect();
    let name = "model.layers.0.self_attn.k_proj.bias";
    let bias = weights.require(name).expect("is there").to_f32().expect("floats");
    let biased: Vec<f32> = bias.iter().enumerate().map(|(i, b)| b + if i % 3 == 0 { 600.0 } else { -600.0 }).collect();
    weights.insert(Tensor::from_f32(name, vec![biased.len()], &biased));
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::copy(tiny.join("config.json"), folder.path().join("config.json")).expect("copied");
    let tensors: Vec<_> = weights.iter().cloned().collect();
    safetensors::write(&folder.path().join("model.safetensors"), &tensors, &Default::default()).expect("written");

    let report = open(folder.path(), plan("q4:f16")).unwrap_or_else(|e| panic!("{e}"));
    println!("{}", report.kv.as_ref().expect("measured"));
    let [warning] = &report.notes[..] else { panic!("one warning: {:?}", report.notes) };
    assert!(warning.contains("by layer 0 (") && warning.contains(",0=f16"), "{warning}");
    let report = open(folder.path(), plan("q4:f16,0=f16")).unwrap_or_else(|e| panic!("{e}"));
    assert!(report.notes.is_empty(), "{:?}", report.notes);
}

#[test]
fn types_are_chosen_within_the_bytes_given() {
    let tiny = golden("llama");
    let bytes = |kv: KvChoice| {
        let report = open(&tiny, kv).unwrap_or_else(|e| panic!("{e}"));
        (report.budget.expect("a budget").states, report.kv.expect("types"))
    };
    let (wide, _) = bytes(plan("f16"));
    let (narrow, _) = bytes(plan("tq2"));
    let mut last = f64::INFINITY;
    for share in [0.0, 0.3, 0.6, 1.0] {
        let budget = narrow + ((wide - narrow) as f64 * share) as u64;
        let (taken, kv) = bytes(KvChoice::Auto(budget));
        println!("{budget}: {kv}");
        assert!(taken <= budget, "{taken} of {budget}: {kv}");
        let divergence = kv.divergence.expect("measured");
        assert!(divergence <= last + 1e-3, "more bytes made it worse: {kv}");
        last = divergence;
    }
    assert_eq!(last, 0.0, "everything fits as f16");
    let error = open(&tiny, KvChoice::Auto(narrow - 1)).expect_err("too few bytes");
    assert!(matches!(error, RuntimeError::KvBudget { .. }), "{error}");
    assert!(error.to_string().contains(&narrow.to_string()), "{error}");
}

#[test]
fn layers_without_a_cache_are_refused() {
    let error = open(&golden("llama"), plan("q8,99=f16")).expect_err("no such layer");
    assert!(error.to_string().contains("layer 99"), "{error}");
}

/// A layer kept wide changes nothing of the others.
#[test]
fn a_plan_for_single_layers_is_that_plan() {
    let tokens: Vec<_> = (0..40).map(|i| foundation::TokenId(i * 7 % 60)).collect();
    let logits = |kv| {
        let options = OpenOptions { context: Some(CONTEXT), all_logits: true, kv, ..OpenOptions::default() };
        let (mut producer, report) = open_logits(golden("llama"), &options).unwrap_or_else(|e| panic!("{e}"));
        let layers = report.kv.map_or(0, |kv| kv.plan.layers.len());
        (all_logits(&mut *producer, &tokens, 16).unwrap_or_else(|e| panic!("{e}")), layers)
    };
    assert!(KV_WARNING > 0.0 && KvType::ALL.len() == 7);
    let (all, none) = logits(plan("f16"));
    let (same, named) = logits(plan("q4,0-3=f16"));
    assert_eq!((none, named), (0, 4));
    assert_eq!(all, same);
    assert_ne!(all, logits(plan("f16,1=q4")).0);
}
