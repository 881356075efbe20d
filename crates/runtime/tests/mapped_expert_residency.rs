//! Gemma 4, MiniMax and DeepSeek: the same bits wherever the experts are kept.

mod residency;

use plan::lower;
use testkit::{Model, families, with_whole};
use turbospark_runtime::{DeviceKind, ExpertChoice, OpenOptions, Residency, open_logits};

#[test]
fn residency_changes_no_bit() {
    residency::residency_changes_no_bit(residency::SUITES[0]);
}

/// No golden model with experts is forgotten.
#[test]
fn every_mixture_is_in_a_suite() {
    let mut named: Vec<_> = residency::SUITES.concat();
    let mut found: Vec<_> = families()
        .into_iter()
        .filter(|golden| {
            let model = Model::open(&golden.path());
            !lower(&model.spec, &model.index).unwrap_or_else(|e| panic!("{e}")).banks().is_empty()
        })
        .map(|golden| golden.model)
        .collect();
    found.dedup();
    named.sort_unstable();
    found.sort_unstable();
    found.dedup();
    assert_eq!(found, named);
}

/// What cannot be kept elsewhere is refused by name, and so is a budget that holds not even one expert a layer.
#[test]
fn what_cannot_be_kept_so_is_refused() {
    let refused = |model: &str, options: OpenOptions| {
        let golden = families().into_iter().find(|g| g.model == model).expect("a golden model");
        match with_whole(&golden.path(), |path| open_logits(path, &options).map(|_| ())) {
            Ok(()) => panic!("{model} was opened with {options:?}"),
            Err(error) => error.to_string(),
        }
    };
    let with = |experts| OpenOptions { experts, ..OpenOptions::default() };
    let message = refused("llama", with(ExpertChoice::Streamed(None)));
    assert!(message.contains("no experts"), "{message}");
    let message = refused("gpt_oss", with(ExpertChoice::Mapped));
    assert!(message.contains("gate_up_proj") && message.contains("streamed"), "{message}");
    let reference = OpenOptions { device: DeviceKind::Reference, ..with(ExpertChoice::Streamed(Some(2))) };
    let message = refused("mixtral", reference);
    assert!(message.contains("reference") && message.contains("--experts"), "{message}");
    let small = OpenOptions { memory: Some(200 << 10), context: Some(32), ..OpenOptions::default() };
    let message = refused("mixtral", small);
    assert!(message.contains("experts") && message.contains("one a layer"), "{message}");
}

/// A budget too small for all experts is kept to, and says its sum.
#[test]
fn a_budget_chooses_the_slots() {
    let golden = families().into_iter().find(|g| g.model == "qwen3_moe").expect("a golden model");
    let options = OpenOptions { context: Some(32), prefill_chunk: 32, ..OpenOptions::default() };
    let (_, whole) = open_logits(golden.path(), &options).unwrap_or_else(|e| panic!("{e}"));
    let (budget, experts) = (whole.budget.expect("a budget"), whole.experts.expect("experts"));
    assert_eq!(experts.layers[0].residency, Residency::Ram);
    let all: u64 = experts.layers.iter().map(|layer| layer.bytes).sum();
    assert_eq!(experts.held, all);
    let memory = budget.total() - all / 8;
    let (producer, tight) =
        open_logits(golden.path(), &OpenOptions { memory: Some(memory), ..options }).unwrap_or_else(|e| panic!("{e}"));
    let (budget, experts) = (tight.budget.expect("a budget"), tight.experts.expect("experts"));
    assert!(budget.total() <= memory, "{budget:?}");
    let Residency::Streamed { slots } = experts.layers[0].residency else { panic!("{experts}") };
    assert!((1..8).contains(&slots) && producer.expert_stats().is_some(), "{experts}");
    let text = experts.to_string();
    for part in ["streamed", "of 8 in each of 4 layers", "available", "weights beside experts", "cache of 32"] {
        assert!(text.contains(part), "{text}");
    }
}
