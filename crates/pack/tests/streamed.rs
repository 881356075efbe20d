//! Experts of a packed model, read one by one: each is one stretch of its layer's file.

use foundation::TokenId;
use runtime::{ExpertChoice, LogitProducer, OpenOptions, all_logits, open_logits};
use std::path::Path;
use testkit::{families, with_whole};
use turbospark_pack::{PackOptions, pack};

fn open(model: &Path, experts: ExpertChoice) -> Box<dyn LogitProducer + Send> {
    let options = OpenOptions { experts, context: Some(64), all_logits: true, ..OpenOptions::default() };
    open_logits(model, &options).unwrap_or_else(|e| panic!("{}: {e}", model.display())).0
}

fn bits(producer: &mut (dyn LogitProducer + Send), tokens: &[TokenId]) -> Vec<u32> {
    let logits = all_logits(producer, tokens, 7).unwrap_or_else(|e| panic!("{e}"));
    logits.into_iter().map(f32::to_bits).collect()
}

/// The source's bits wherever a packed model's experts are; one read fetches one expert.
#[test]
fn packed_experts_are_one_read_each() {
    let folder = tempfile::tempdir().expect("a folder");
    let names = ["mixtral", "qwen3_moe", "gemma4_moe", "gpt_oss", "deepseek2"];
    for (number, golden) in families().into_iter().filter(|g| names.contains(&g.model)).enumerate() {
        let out = folder.path().join(format!("{number}.gturbo"));
        let tokens: Vec<_> = golden.expected().tokens.iter().copied().map(TokenId).take(40).collect();
        let whole = with_whole(&golden.path(), |source| {
            pack(source, &out, &PackOptions::default(), &mut |_| {}).unwrap_or_else(|e| panic!("{golden:?}: {e}"));
            bits(&mut *open(source, ExpertChoice::Ram), &tokens)
        });
        for experts in [ExpertChoice::Ram, ExpertChoice::Streamed(Some(1)), ExpertChoice::Streamed(Some(3))] {
            assert!(bits(&mut *open(&out, experts), &tokens) == whole, "{golden:?}: {experts:?}");
        }
        let turned = golden.model == "gpt_oss" && golden.file.ends_with("safetensors");
        if !turned {
            assert!(bits(&mut *open(&out, ExpertChoice::Mapped), &tokens) == whole, "{golden:?} mapped");
        }
    }
}

/// A layer's file that has lost its end fails the run that needed it, by name; put back, the same model goes on.
#[test]
fn a_truncated_layer_loses_one_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("model.gturbo");
    let source = families().into_iter().find(|g| g.model == "qwen3_moe").expect("a golden model").path();
    pack(&source, &out, &PackOptions::default(), &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
    let tokens: Vec<_> = (1..40).map(TokenId).collect();
    let mut producer = open(&out, ExpertChoice::Streamed(Some(1)));
    let whole = bits(&mut *producer, &tokens);
    let layer = out.join("experts/layer_02.bin");
    let bytes = std::fs::read(&layer).expect("read");
    let truncate = |length: u64| std::fs::File::options().write(true).open(&layer).and_then(|f| f.set_len(length));
    truncate(100).expect("shortened");
    let error = all_logits(&mut *producer, &tokens, 64).expect_err("the layer is gone").to_string();
    for part in ["layer_02.bin", "the file ends there", "turbospark verify"] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(producer.position(), 0, "nothing was fed");
    std::fs::write(&layer, bytes).expect("written");
    assert!(bits(&mut *producer, &tokens) == whole);
}
