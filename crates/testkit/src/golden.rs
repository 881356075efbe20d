//! Paths and expected values of the golden models.

use std::path::{Path, PathBuf};
use weights::safetensors::SafetensorsFile;

/// The folder of a golden model.
pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)
}

/// Reference values of one golden model.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The prompt.
    pub tokens: Vec<u32>,
    /// `[tokens, vocab]`.
    pub logits: Vec<f32>,
    /// Width of a row of logits.
    pub vocab: usize,
}

impl Expected {
    /// Reads `golden/<model>/<file>`.
    ///
    /// # Panics
    /// If the file is not there or not what it should be.
    pub fn read(model: &str, file: &str) -> Self {
        let path = golden(model).join(file);
        let file = SafetensorsFile::open(&path).unwrap_or_else(|e| panic!("{e}"));
        let tensor = |name| file.weights().require(name).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let tokens = tensor("tokens").bytes().as_chunks::<8>().0;
        let tokens = tokens.iter().map(|id| u32::try_from(i64::from_le_bytes(*id)).expect("a token id")).collect();
        let logits = tensor("logits");
        Self { tokens, vocab: logits.cols(), logits: logits.to_f32().expect("logits are f32") }
    }
}

/// The largest absolute difference.
pub fn worst(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Σ(a-b)² / Σb².
pub fn nmse(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |x: f64| x * x;
    let error: f64 = a.iter().zip(b).map(|(a, b)| square(*a as f64 - *b as f64)).sum();
    error / b.iter().map(|b| square(*b as f64)).sum::<f64>()
}

/// One file of a golden model and the file of its expected values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoldenFile {
    /// The model's folder.
    pub model: &'static str,
    /// The checkpoint.
    pub file: &'static str,
    /// The expected values.
    pub expected: &'static str,
}

impl GoldenFile {
    /// Where the checkpoint is.
    pub fn path(&self) -> PathBuf {
        golden(self.model).join(self.file)
    }

    /// The reference values.
    pub fn expected(&self) -> Expected {
        Expected::read(self.model, self.expected)
    }

    /// Positions whose logits depend on the order of equal scores: which of several equally good blocks of keys is
    /// read is not defined there.
    fn undecided(&self) -> &'static [usize] {
        if self.model == "qwen4_exp" { &[21, 29, 31] } else { &[] }
    }

    /// The largest absolute difference of each position's logits from the reference.
    pub fn errors(&self, logits: &[f32]) -> Vec<f32> {
        let expected = self.expected();
        assert_eq!(logits.len(), expected.logits.len());
        let rows = logits.chunks(expected.vocab).zip(expected.logits.chunks(expected.vocab)).enumerate();
        rows.filter(|(row, _)| !self.undecided().contains(row)).map(|(_, (a, b))| worst(a, b)).collect()
    }
}

/// The families' golden models, in each container they come in.
pub fn families() -> Vec<GoldenFile> {
    const MODELS: &[&str] = &[
        "llama",
        "llama_rope3",
        "llama_tied",
        "mistral",
        "mixtral",
        "qwen2",
        "qwen3",
        "qwen3_moe",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen4_exp",
        "qwen4_exp_ple64",
        "gemma3",
        "gemma4_dense",
        "gemma4_moe",
        "gemma4_e",
        "gpt_oss",
        "gpt_oss_lim7",
        "spark2_5",
        "muse_glimmer",
        "minimax_m2",
        "minimax_m3",
        "minimax_m3_lim7",
        "deepseek2",
        "deepseek2_lite27",
        "deepseek2_qlora",
        "deepseek2_group",
    ];
    const FILES: [&str; 4] = ["model.safetensors", "model.gguf", "model-mxfp4.safetensors", "model-mxfp4.gguf"];
    let files = MODELS.iter().flat_map(|model| {
        FILES.map(|file| {
            // A GGUF file cannot express Mistral's window, so its values come from llama.cpp.
            let departs = *model == "mistral" && file == "model.gguf";
            let expected = if departs { "expected-llamacpp.safetensors" } else { "expected.safetensors" };
            GoldenFile { model, file, expected }
        })
    });
    files.filter(|f| crate::parts::exists(&f.path())).collect()
}

/// One model in each quantised type llama.cpp writes.
pub fn quantised() -> Vec<GoldenFile> {
    macro_rules! files {
        ($($name:literal)*) => {
            [$((concat!("model-", $name, ".gguf"), concat!("expected-", $name, ".safetensors"))),*]
        };
    }
    files!("F16" "Q4_0" "Q4_1" "Q5_0" "Q5_1" "Q8_0" "Q2_K" "Q3_K_S" "Q4_K_S" "Q5_K_S" "Q6_K" "IQ4_NL" "IQ4_XS" "IQ3_S")
        .map(|(file, expected)| GoldenFile { model: "llama_k256", file, expected })
        .to_vec()
}
