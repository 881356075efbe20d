//! SmolLM2 as a mixture of identical experts: real weights through the code of mixtures.

use crate::real::{model_store, smollm2};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use weights::gguf::write::GgufWriter;
use weights::gguf::{GgufFile, Value};
use weights::{Tensor, WeightsError};

/// Experts of the mixture, of which a token uses [`USED`].
const EXPERTS: usize = 4;
const USED: usize = 2;

/// A GGUF file that is [`smollm2`] with four copies of each feed-forward part as experts, two for each token, under a router
/// of zeros: both weigh exactly a half, so its logits have the dense model's bits. Written on first use, beside the model.
///
/// # Panics
/// If it cannot be written.
pub fn upcycled() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    let written = PATH.get_or_init(|| {
        let path = model_store().home().join("smollm2-upcycled-even.gguf");
        if !path.exists() {
            // Other processes may do the same: each writes a file of its own, and the names are equal at the end.
            let own = path.with_extension(std::process::id().to_string());
            write(&smollm2(), &own).unwrap_or_else(|e| panic!("{e}"));
            std::fs::rename(&own, &path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
        path
    });
    written.clone()
}

/// Rewrites a dense llama as a mixture. The writer holds the banks, once, until the file is done; all else stays mapped.
fn write(dense: &Path, path: &Path) -> Result<(), WeightsError> {
    let file = GgufFile::open(dense)?;
    let mut writer = GgufWriter::new();
    for (key, value) in file.metadata().iter() {
        writer.set(key, value.clone());
    }
    writer.set("llama.expert_count", Value::U32(EXPERTS as u32));
    writer.set("llama.expert_used_count", Value::U32(USED as u32));
    for tensor in file.weights().iter() {
        let name = tensor.name();
        match name.split_once(".ffn_") {
            Some((layer, "gate.weight" | "up.weight" | "down.weight")) => {
                if name.ends_with("gate.weight") {
                    let values = vec![0.0; EXPERTS * tensor.cols()];
                    let router = format!("{layer}.ffn_gate_inp.weight");
                    writer.tensor(Tensor::from_f32(router, vec![EXPERTS, tensor.cols()], &values));
                }
                writer.tensor(copies(tensor, &name.replace(".weight", "_exps.weight"))?);
            }
            _ => {
                writer.tensor(tensor.clone());
            }
        }
    }
    writer.write(path)
}

fn copies(tensor: &Tensor, name: &str) -> Result<Tensor, WeightsError> {
    let shape = vec![EXPERTS, tensor.rows(), tensor.cols()];
    Tensor::from_bytes(name, tensor.dtype(), shape, tensor.bytes().repeat(EXPERTS))
}
