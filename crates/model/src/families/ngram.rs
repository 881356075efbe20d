//! The embedding of the last few tokens by hash, as Qwen4-exp has it: where its numbers come from.

use super::Checkpoint;
use super::parts::Dims;
use crate::{Config, ModelError, Ngram, NgramHash, Source};

/// From the seed of one layer to that of the next.
const LAYER_STEP: u64 = 10_007;

/// The layers that have it, from 0. Hugging Face counts from 1, GGUF from 0.
pub(super) fn layers(checkpoint: &Checkpoint, layers: usize) -> Result<Vec<usize>, ModelError> {
    let c = &checkpoint.config;
    if checkpoint.is_gguf() {
        return Ok(c.indices("ple.layers", layers)?.unwrap_or_default());
    }
    let ids = c.indices("ple_layer_ids", layers + 1)?.unwrap_or_default();
    match ids.iter().find(|id| **id == 0) {
        Some(_) => Err(c.bad("ple_layer_ids", "layers counted from 1", &0.into())),
        None => Ok(ids.into_iter().map(|id| id - 1).collect()),
    }
}

/// The `number`-th such layer, for `streams` residual streams.
pub(super) fn ngram(
    checkpoint: &Checkpoint,
    at: &str,
    d: &Dims,
    (number, streams): (usize, usize),
) -> Result<Ngram, ModelError> {
    let c = &checkpoint.config;
    let (hash, kernel, row_width) = if checkpoint.is_gguf() {
        (stored_hash(c)?, c.size("ple.conv_kernel")?, c.size("hidden_size_per_layer_input")?)
    } else {
        let hash = derived_hash(checkpoint, d, number)?;
        let row_width = c.size("ple_embed_dim")? / hash.sizes.len();
        (hash, c.size("ple_conv_kernel_size")?, row_width)
    };
    let used = hash.sizes.iter().zip(&hash.offsets).map(|(size, offset)| size + offset).max().unwrap_or(0);
    let (table, rows) = table(checkpoint, at, used as usize, row_width)?;
    let (width, e) = (streams * d.hidden, hash.sizes.len() * row_width);
    let norm = |name: &str| checkpoint.centred_norm(&format!("{at}.{name}"), width, d.eps);
    let conv = format!("{at}.conv1d.weight");
    let conv_shape = if checkpoint.is_gguf() { vec![width, kernel] } else { vec![width, 1, kernel] };
    Ok(Ngram {
        table,
        rows,
        row_width,
        key: checkpoint.linear(&format!("{at}.key_proj"), width, e)?,
        value: checkpoint.linear(&format!("{at}.value_proj"), d.hidden, e)?,
        key_norm: norm("norm_key")?,
        query_norm: norm("norm_query")?,
        conv_norm: norm("norm_conv")?,
        conv: checkpoint.shaped(&conv, &conv_shape)?,
        kernel,
        dilation: hash.multipliers.len(),
        hash,
    })
}

/// The table of at least `used` rows, which safetensors checkpoints pad and cut into shards, and its rows.
fn table(checkpoint: &Checkpoint, at: &str, used: usize, row_width: usize) -> Result<(Source, usize), ModelError> {
    let c = &checkpoint.config;
    if checkpoint.is_gguf() {
        let name = "model.embed_tokens_per_layer.weight";
        let found = checkpoint.index.shape(name).and_then(|shape| shape.first().copied()).unwrap_or(0);
        let rows = found.max(used);
        return Ok((checkpoint.shaped(name, &[rows, row_width])?, rows));
    }
    let padded = used.next_multiple_of(c.opt_size("make_ngram_vocab_size_divisible_by")?.unwrap_or(1));
    let shards = c.size("split_ngram_parts")?;
    let each = padded.div_ceil(shards);
    let shard = |i: usize| {
        let rows = each.min(padded - (i * each).min(padded));
        checkpoint.shaped(&format!("{at}.ple_embedding.ngram_embedding.shard_{i}.weight"), &[rows, row_width])
    };
    Ok((Source::Stack((0..shards).map(shard).collect::<Result<_, _>>()?), padded))
}

fn stored_hash(c: &Config) -> Result<NgramHash, ModelError> {
    let list = |key: &str| {
        let values = c.get(key).and_then(|v| v.as_array()).ok_or_else(|| c.missing(key))?;
        let values: Option<Vec<i64>> = values.iter().map(|v| v.as_i64().filter(|v| *v >= 0)).collect();
        values.ok_or_else(|| c.bad(key, "integers from 0 to 2^63", &"others".into()))
    };
    let hash = NgramHash {
        multipliers: list("ple.layer_multipliers")?,
        sizes: list("ple.head_vocab_sizes")?,
        offsets: list("ple.head_offsets")?,
        end: c.opt_count("ple.eos_token_id")?.ok_or_else(|| c.missing("ple.eos_token_id"))? as u32,
    };
    let heads = (c.size("ple.ngram_size")? - 1) * c.size("ple.heads_per_ngram")?;
    let fits = hash.multipliers.len() == c.size("ple.ngram_size")? && hash.offsets.len() == heads;
    if fits && hash.sizes.len() == heads && hash.sizes.iter().all(|size| *size > 0) {
        return Ok(hash);
    }
    Err(c.bad("ple.head_vocab_sizes", &format!("{heads} positive numbers, as many offsets"), &"others".into()))
}

/// Sizes are the primes from a base on; multipliers are odd and come from a seeded generator (SplitMix64).
fn derived_hash(checkpoint: &Checkpoint, d: &Dims, number: usize) -> Result<NgramHash, ModelError> {
    let c = &checkpoint.config;
    let tokens = c.size("ngram_size")?;
    if tokens < 2 {
        return Err(c.bad("ngram_size", "at least 2", &tokens.into()));
    }
    let heads = (tokens - 1) * c.size("heads_per_ngram")?;
    let primes = (c.size("ngram_vocab_size_base")? as i64..).filter(|n| is_prime(*n));
    let sizes: Vec<i64> = primes.skip(number * heads).take(heads).collect();
    let offsets = sizes.iter().scan(0, |end, size| Some(std::mem::replace(end, *end + size))).collect();
    let seed = c.opt_count("seed")?.ok_or_else(|| c.missing("seed"))? as u64 + LAYER_STEP * number as u64;
    let bound = (i64::MAX as u64 / d.vocab as u64 / 2).max(1);
    let multiplier = |i: usize| 2 * (split_mix(seed.wrapping_add(GAMMA.wrapping_mul(i as u64 + 1))) % bound) as i64 + 1;
    let end = c.get("eos_token_id").and_then(|v| v.as_array().map_or(Some(v), |list| list.first())?.as_u64());
    let end = end.ok_or_else(|| c.missing("eos_token_id"))? as u32;
    Ok(NgramHash { multipliers: (0..tokens).map(multiplier).collect(), sizes, offsets, end })
}

fn is_prime(n: i64) -> bool {
    n > 1 && (2..).take_while(|d| d * d <= n).all(|d| n % d != 0)
}

const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64 (Steele et al. 2014).
fn split_mix(state: u64) -> u64 {
    let z = state.wrapping_add(GAMMA);
    let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}
