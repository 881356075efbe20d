//! SmolLM2 as a mixture of identical experts: real weights through the code of mixtures.

use crate::random::Random;
use crate::real::{model_store, smollm2};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use weights::gguf::write::GgufWriter;
use weights::gguf::{GgufFile, Value};
use weights::{Tensor, WeightsError};

/// Experts of the mixture, of which a token uses [`USED`].
const EXPERTS: usize = 4;
const USED: usize = 2;

/// How the mixture's router chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Router {
    /// All zeros: both experts of a token weigh exactly a half, so the logits have the dense model's bits.
    Even,
    /// Random: unequal weights that add up to one but for a rounding.
    Random,
}

/// A GGUF file that is [`smollm2`] with four copies of each feed-forward part as experts, two for each token. Written on
/// first use, beside the model.
///
/// # Panics
/// If it cannot be written.
pub fn upcycled(router: Router) -> PathBuf {
    static PATHS: [OnceLock<PathBuf>; 2] = [OnceLock::new(), OnceLock::new()];
    let written = PATHS[router as usize].get_or_init(|| {
        let name = format!("smollm2-upcycled-{router:?}.gguf").to_lowercase();
        let path = model_store().home().join(name);
        if !path.exists() {
            // Other processes may do the same: each writes a file of its own, and the names are equal at the end.
            let own = path.with_extension(std::process::id().to_string());
            write(&smollm2(), router, &own).unwrap_or_else(|e| panic!("{e}"));
            std::fs::rename(&own, &path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
        path
    });
    written.clone()
}

/// Rewrites a dense llama as a mixture. The writer holds the banks, once, until the file is done; all else stays mapped.
fn write(dense: &Path, router: Router, path: &Path) -> Result<(), WeightsError> {
    let mut random = Random::new(1);
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
                    let name = format!("{layer}.ffn_gate_inp.weight");
                    let size = EXPERTS * tensor.cols();
                    let values = match router {
                        Router::Even => vec![0.0; size],
                        Router::Random => random.normals(size, 0.0, 0.1),
                    };
                    writer.tensor(Tensor::from_f32(name, vec![EXPERTS, tensor.cols()], &values));
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
