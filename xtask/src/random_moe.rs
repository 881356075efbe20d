//! A mixture of Qwen3-30B-A3B's shape with random weights and fewer layers, to measure experts on disk with: at 4 bits, every
//! layer has 340 MB of experts.

use anyhow::Context;
use std::io::{BufWriter, Write};
use std::path::Path;
use testkit::{Random, smollm2};
use weights::gguf::write::{Described, layout};
use weights::gguf::{GgufFile, Metadata, Value};
use weights::{DType, Tensor};

const HIDDEN: usize = 2048;
const INNER: usize = 768;
const EXPERTS: usize = 128;
const USED: usize = 8;
const HEADS: usize = 32;
const KV_HEADS: usize = 4;
const HEAD_DIM: usize = 128;

/// What all channels of the embeddings have in common, beside noise of 1. A router's row has a product with it that is the same
/// for all tokens, which makes some experts likelier than others. What layers add grows it: of 300 random tokens' picks a
/// quarter of the experts gets 47 % in the first layer and 97 % in the twelfth, 82 % on average.
const MEAN: f32 = 0.18;

/// How far weights that add to the residual stream are from zero, relative to others.
const SMALL: f32 = 0.15;

/// Writes `file`, a GGUF of `layers` layers with SmolLM2's vocabulary.
pub(crate) fn write(file: &Path, layers: usize) -> anyhow::Result<()> {
    let vocabulary = GgufFile::open(&smollm2())?;
    let vocab = vocabulary.weights().require("token_embd.weight")?.rows();
    let tensors = tensors(vocab, layers);
    let describe = |t: &Planned| Described { name: t.name.clone(), dtype: t.dtype, shape: t.shape.clone() };
    let described: Vec<_> = tensors.iter().map(describe).collect();
    let layout = layout(&keys(vocabulary.metadata(), layers), &described)?;
    let mut out = BufWriter::new(std::fs::File::create(file).with_context(|| file.display().to_string())?);
    out.write_all(&layout.header)?;
    let mut at = layout.header.len() as u64;
    for (tensor, start) in tensors.iter().zip(&layout.offsets) {
        out.write_all(&vec![0; (start - at) as usize])?;
        at = start + tensor.write(&mut out)?;
    }
    out.write_all(&vec![0; (layout.bytes - at) as usize])?;
    out.flush()?;
    println!("{}: {layers} layers of {EXPERTS} experts, {} bytes", file.display(), layout.bytes);
    Ok(())
}

fn keys(vocabulary: &Metadata, layers: usize) -> Metadata {
    let mut keys = Metadata::default();
    keys.set("general.architecture", Value::String("qwen3moe".into()));
    keys.set("general.name", Value::String("random mixture".into()));
    for (name, value) in [
        ("block_count", layers),
        ("context_length", 32_768),
        ("embedding_length", HIDDEN),
        ("feed_forward_length", 3 * HIDDEN),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", KV_HEADS),
        ("attention.key_length", HEAD_DIM),
        ("attention.value_length", HEAD_DIM),
        ("expert_count", EXPERTS),
        ("expert_used_count", USED),
        ("expert_feed_forward_length", INNER),
    ] {
        keys.set(format!("qwen3moe.{name}"), Value::U32(value as u32));
    }
    keys.set("qwen3moe.attention.layer_norm_rms_epsilon", Value::F32(1e-6));
    keys.set("qwen3moe.rope.freq_base", Value::F32(1e6));
    for (key, value) in vocabulary.iter().filter(|(key, _)| key.starts_with("tokenizer.")) {
        keys.set(key, value.clone());
    }
    keys
}

/// A tensor that is made when it is written.
struct Planned {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    mean: f32,
    deviation: f32,
}

impl Planned {
    /// Writes the values and returns how many bytes they took. Experts are one random matrix, its rows turned by another number
    /// each: as different to a disk and to a sum as others, and quickly made.
    fn write(&self, out: &mut impl Write) -> anyhow::Result<u64> {
        let seed = self.name.bytes().fold(7, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        let mut random = Random::new(seed);
        let [experts, rows, cols] = match self.shape[..] {
            [cols] => [1, 1, cols],
            [rows, cols] => [1, rows, cols],
            [experts, rows, cols] => [experts, rows, cols],
            _ => anyhow::bail!("{} has a shape of its own", self.name),
        };
        let one = if self.mean == 0.0 {
            random.tensor(&self.name, self.dtype, [rows, cols], self.deviation)
        } else {
            let values = random.normals(rows * cols, self.mean, self.deviation);
            let plain = Tensor::from_f32(&self.name, vec![rows, cols], &values);
            if self.dtype == DType::F32 { plain } else { plain.quantised(self.dtype)? }
        };
        let row = one.bytes().len() / rows;
        for expert in 0..experts {
            let (end, start) = one.bytes().split_at(expert * 5 % rows * row);
            out.write_all(start)?;
            out.write_all(end)?;
        }
        Ok((experts * one.bytes().len()) as u64)
    }
}

fn tensors(vocab: usize, layers: usize) -> Vec<Planned> {
    let usual = |inputs: usize| 1.0 / (inputs as f32).sqrt();
    let matrix = |name: &str, shape: &[usize], scale: f32| {
        let deviation = scale * usual(shape[shape.len() - 1]);
        Planned { name: format!("{name}.weight"), dtype: DType::Q4K, shape: shape.to_vec(), mean: 0.0, deviation }
    };
    let norm = |name: &str, width| Planned {
        name: format!("{name}.weight"),
        dtype: DType::F32,
        shape: vec![width],
        mean: 1.0,
        deviation: 0.05,
    };
    let embedding =
        Planned { dtype: DType::Q8_0, mean: MEAN, deviation: 1.0, ..matrix("token_embd", &[vocab, HIDDEN], 1.0) };
    let mut all = vec![embedding, norm("output_norm", HIDDEN), matrix("output", &[vocab, HIDDEN], 1.0)];
    for layer in 0..layers {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let (queries, keys) = (HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM);
        all.extend([
            norm(&name("attn_norm"), HIDDEN),
            norm(&name("ffn_norm"), HIDDEN),
            norm(&name("attn_q_norm"), HEAD_DIM),
            norm(&name("attn_k_norm"), HEAD_DIM),
            matrix(&name("attn_q"), &[queries, HIDDEN], 1.0),
            matrix(&name("attn_k"), &[keys, HIDDEN], 1.0),
            matrix(&name("attn_v"), &[keys, HIDDEN], 1.0),
            matrix(&name("attn_output"), &[HIDDEN, queries], SMALL),
            Planned { dtype: DType::F32, ..matrix(&name("ffn_gate_inp"), &[EXPERTS, HIDDEN], 1.0) },
            matrix(&name("ffn_gate_exps"), &[EXPERTS, INNER, HIDDEN], 1.0),
            matrix(&name("ffn_up_exps"), &[EXPERTS, INNER, HIDDEN], 1.0),
            matrix(&name("ffn_down_exps"), &[EXPERTS, HIDDEN, INNER], SMALL),
        ]);
    }
    all
}
