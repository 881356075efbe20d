//! What every family with experts must do wherever they are kept: the suites `mapped_expert_residency*` name golden models and
//! call these checks.
#![allow(dead_code, reason = "a suite calls some of the checks")]

use foundation::TokenId;
use plan::PlanError;
use std::path::Path;
use testkit::{GoldenFile, families, with_whole};
use turbospark_runtime::{
    ExpertChoice, ExpertStats, LogitProducer, OpenOptions, OpenReport, Residency, RuntimeError, all_logits, open_logits,
};

/// The golden models of each suite.
pub(crate) const SUITES: [&[&str]; 4] = [
    &[
        "gemma4_moe",
        "minimax_m2",
        "minimax_m3",
        "minimax_m3_lim7",
        "deepseek2",
        "deepseek2_lite27",
        "deepseek2_qlora",
        "deepseek2_group",
    ],
    &["gpt_oss", "gpt_oss_lim7"],
    &["mixtral"],
    &["qwen3_moe", "qwen3_5_moe", "qwen4_exp", "qwen4_exp_ple64"],
];

/// Each container of the models.
fn files(models: &[&str]) -> Vec<GoldenFile> {
    let files: Vec<_> = families().into_iter().filter(|f| models.contains(&f.model)).collect();
    models.iter().for_each(|model| assert!(files.iter().any(|f| f.model == *model), "there is no {model}"));
    files
}

pub(crate) struct Opened {
    pub(crate) producer: Box<dyn LogitProducer + Send>,
    pub(crate) report: OpenReport,
}

pub(crate) fn open(path: &Path, experts: ExpertChoice, threads: usize) -> Result<Opened, RuntimeError> {
    let options =
        OpenOptions { experts, threads: Some(threads), context: Some(128), all_logits: true, ..OpenOptions::default() };
    let (producer, report) = open_logits(path, &options)?;
    Ok(Opened { producer, report })
}

impl Opened {
    pub(crate) fn logits(&mut self, tokens: &[TokenId], chunk: usize) -> Vec<u32> {
        let logits = all_logits(&mut *self.producer, tokens, chunk).unwrap_or_else(|e| panic!("{e}"));
        logits.into_iter().map(f32::to_bits).collect()
    }

    pub(crate) fn stats(&self) -> ExpertStats {
        self.producer.expert_stats().expect("experts are streamed")
    }
}

/// The same bits of all logits wherever the experts are, with one slot a layer, as many as a row uses, and all, in any chunks.
pub(crate) fn residency_changes_no_bit(models: &[&str]) {
    for golden in files(models) {
        let tokens: Vec<_> = golden.expected().tokens.iter().copied().map(TokenId).take(48).collect();
        let name = format!("{}/{}", golden.model, golden.file);
        let at = |experts| with_whole(&golden.path(), |path| open(path, experts, 2));
        let mut ram = at(ExpertChoice::Ram).unwrap_or_else(|e| panic!("{name}: {e}"));
        let whole = ram.logits(&tokens, usize::MAX);
        let report = ram.report.experts.expect("a mixture");
        let banks = report.layers.len() as u64;
        for slots in [1, 3, 1000] {
            let mut streamed = at(ExpertChoice::Streamed(Some(slots))).unwrap_or_else(|e| panic!("{name}: {e}"));
            let budget = streamed.report.experts.clone().expect("a mixture");
            assert_eq!(budget.layers[0].residency, Residency::Streamed { slots });
            for chunk in [1, 7, usize::MAX] {
                assert!(streamed.logits(&tokens, chunk) == whole, "{name}: {slots} slots, chunks of {chunk}");
            }
            let stats = streamed.stats();
            assert_eq!(stats.rows, 3 * tokens.len() as u64, "{name}");
            assert!(stats.bytes_read > 0 && stats.requests > banks, "{name}: {stats:?}");
            // One expert more, with what is read of it.
            let one = budget.layers.iter().map(|layer| layer.slot).max().expect("a layer") + (8 << 10) * 5;
            assert!(stats.peak_bytes <= budget.held + one, "{name}: {stats:?}, {budget:?}");
            if slots == 1000 {
                // Everything is kept once it was read.
                let (before, _) = (stats, streamed.logits(&tokens, 5));
                assert_eq!(streamed.stats().bytes_read, before.bytes_read, "{name}");
            }
        }
        match at(ExpertChoice::Mapped) {
            Ok(mut mapped) => {
                for chunk in [1, 5, usize::MAX] {
                    assert!(mapped.logits(&tokens, chunk) == whole, "{name}: mapped, chunks of {chunk}");
                }
            }
            Err(RuntimeError::Plan(error)) => {
                let turned = golden.model.starts_with("gpt_oss") && golden.file.ends_with("safetensors");
                assert!(turned && matches!(*error, PlanError::ExpertsNotMapped { .. }), "{name}: {error}");
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
}
