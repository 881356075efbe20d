//! Paths and expected values of the golden models.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use weights::Tensor;
use weights::safetensors::SafetensorsFile;

/// Where the golden models are, if not where this crate was built.
static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Says, once, where the golden models are: for a binary that runs where this crate was not built.
pub fn find_golden_in(folder: PathBuf) {
    FOLDER.get_or_init(|| folder);
}

/// The folder of a golden model, or with an empty name of all.
pub fn golden(name: &str) -> PathBuf {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    FOLDER.get().map_or_else(built, PathBuf::clone).join(name)
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
    /// The residual stream after each layer but the last, whose value the reference code shows only normed: entry `i` is
    /// `[hidden_rows, hidden]` after layer `i`. Some files have none.
    pub hidden: Vec<Vec<f32>>,
    /// The positions whose hidden states are kept.
    pub hidden_rows: Vec<usize>,
    /// The reference code's greedy continuation, each token with how far its logit was above the second best.
    pub greedy: Vec<(u32, f32)>,
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
        let integers = |tensor: &Tensor| -> Vec<u32> {
            let values = tensor.bytes().as_chunks::<8>().0.iter();
            values.map(|value| u32::try_from(i64::from_le_bytes(*value)).expect("not negative")).collect()
        };
        let logits = tensor("logits");
        let hidden = (1..).map_while(|i| file.weights().get(&format!("hidden.{i}")));
        let greedy = file.weights().get("greedy").map(integers).unwrap_or_default();
        let margins =
            file.weights().get("greedy_margin").map(|m| m.to_f32().expect("margins are f32")).unwrap_or_default();
        let rows = file.weights().get("hidden_rows").map(integers).unwrap_or_default();
        Self {
            tokens: integers(tensor("tokens")),
            vocab: logits.cols(),
            logits: logits.to_f32().expect("logits are f32"),
            hidden: hidden.map(|h| h.to_f32().expect("hidden states are f32")).collect(),
            hidden_rows: rows.into_iter().map(|row| row as usize).collect(),
            greedy: greedy.into_iter().zip(margins.into_iter().chain(std::iter::repeat(f32::INFINITY))).collect(),
        }
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

impl GoldenFile {
    /// The layers whose output is off by more than 1e-3 of its largest value, and by how much of that, given the
    /// residual stream after each layer, `[positions, hidden]`.
    ///
    /// # Panics
    /// If there are not as many layers as the reference has.
    pub fn layers_off(&self, layers: &[Vec<f32>]) -> Vec<(usize, f32)> {
        let Expected { hidden, hidden_rows, tokens, .. } = self.expected();
        assert!(hidden.is_empty() || layers.len() == hidden.len() + 1, "{} layers", layers.len());
        let decided: Vec<_> = hidden_rows.iter().map(|row| !self.undecided().contains(row)).collect();
        let errors = layers.iter().zip(&hidden).map(|(found, expected)| {
            let width = found.len() / tokens.len();
            assert_eq!(expected.len(), hidden_rows.len() * width);
            let largest = expected.iter().fold(0.0, |max: f32, x| max.max(x.abs()));
            let rows =
                hidden_rows.iter().zip(expected.chunks_exact(width)).zip(&decided).filter(|(_, decided)| **decided);
            rows.map(|((row, expected), _)| worst(&found[row * width..][..width], expected) / largest)
                .fold(0.0, f32::max)
        });
        errors.enumerate().filter(|(_, error)| error.is_nan() || *error > 1e-3).collect()
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
        "olmo2",
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
