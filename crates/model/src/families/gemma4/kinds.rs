//! What differs from layer to layer in Gemma 4, from the keys of three spellings: one value a kind of layer, one a layer,
//! and GGUF's.

use crate::families::Checkpoint;
use crate::families::parts::{Dims, scaling};
use crate::{ModelError, Pairing, Rope, RopeScaling};

const PATTERN: usize = 6;

/// What differs from layer to layer.
pub(super) struct Kind {
    pub(super) sliding: bool,
    pub(super) dims: Dims,
    pub(super) rope: Rope,
    pub(super) inner: usize,
    /// The layer whose keys and values this one reads.
    pub(super) shares: Option<usize>,
}

/// Heads, widths and ropes of every layer.
pub(super) fn kinds(checkpoint: &Checkpoint) -> Result<Vec<Kind>, ModelError> {
    let c = &checkpoint.config;
    let layers = c.size("num_hidden_layers")?;
    let sliding = checkpoint.sliding_layers(layers, PATTERN)?;
    let first_sharing = layers - c.opt_count("num_kv_shared_layers")?.unwrap_or(0).min(layers);
    let shares = |i: usize| (0..first_sharing).rev().find(|j| i >= first_sharing && sliding[*j] == sliding[i]);
    let kv_heads = kv_heads(checkpoint, &sliding)?;
    let inner = c.sizes("intermediate_size", layers)?.ok_or_else(|| c.missing("intermediate_size"))?;
    let wide = |i: usize, doubled: bool| if doubled && i >= first_sharing { 2 * inner[i] } else { inner[i] };
    let doubled = c.flag("use_double_wide_mlp")?.unwrap_or(false);
    let head_dims = head_dims(checkpoint, &sliding)?;
    let kind = |i: usize| {
        let dims = Dims { head_dim: head_dims[i], ..checkpoint.dims_of(Some(kv_heads[i]))? };
        let rope = rope(checkpoint, sliding[i], dims.head_dim)?;
        Ok(Kind { sliding: sliding[i], rope, inner: wide(i, doubled), shares: shares(i), dims })
    };
    (0..layers).map(kind).collect()
}

/// A value of one layer by itself, in newer configs.
fn own(checkpoint: &Checkpoint, layer: usize, key: &str) -> Result<Option<usize>, ModelError> {
    let all = checkpoint.config.section("per_layer_config")?;
    let layer = all.map(|all| all.section(&layer.to_string())).transpose()?.flatten();
    layer.map_or(Ok(None), |layer| layer.opt_size(key))
}

fn kv_heads(checkpoint: &Checkpoint, sliding: &[bool]) -> Result<Vec<usize>, ModelError> {
    let c = &checkpoint.config;
    let key = "num_key_value_heads";
    let all = c.sizes(key, sliding.len())?.ok_or_else(|| c.missing(key))?;
    let full =
        c.opt_size("num_global_key_value_heads")?.filter(|_| matches!(c.flag("attention_k_eq_v"), Ok(Some(true))));
    let of = |i: usize| Ok(own(checkpoint, i, key)?.or(full.filter(|_| !sliding[i])).unwrap_or(all[i]));
    (0..sliding.len()).map(of).collect()
}

/// Hugging Face's `head_dim` is that of sliding layers, GGUF's `key_length` that of full ones.
fn head_dims(checkpoint: &Checkpoint, sliding: &[bool]) -> Result<Vec<usize>, ModelError> {
    let c = &checkpoint.config;
    let (plain, other) =
        if checkpoint.is_gguf() { ("swa_head_dim", "head_dim") } else { ("head_dim", "global_head_dim") };
    let plain = c.size(plain)?;
    let other = c.opt_size(other)?.unwrap_or(plain);
    for (key, dim) in
        [("value_head_dim", other), ("swa_value_head_dim", plain), ("rotary_dim", other), ("swa_rotary_dim", plain)]
    {
        if c.opt_size(key)?.is_some_and(|found| found != dim) {
            return Err(c.bad(key, &format!("{dim}, as the keys"), &"another width".into()));
        }
    }
    (0..sliding.len())
        .map(|i| Ok(own(checkpoint, i, "head_dim")?.unwrap_or(if sliding[i] { plain } else { other })))
        .collect()
}

fn rope(checkpoint: &Checkpoint, sliding: bool, rotary_dim: usize) -> Result<Rope, ModelError> {
    let c = &checkpoint.config;
    let of = |theta, scaling| Rope { theta, rotary_dim, pairing: Pairing::Half, scaling };
    if checkpoint.is_gguf() {
        let (local, global) = (c.opt_number("rope_local_base_freq")?.unwrap_or(10_000.0), c.number("rope_theta")?);
        if sliding {
            return Ok(of(local, RopeScaling::None));
        }
        return Ok(of(global, RopeScaling::Divisors(checkpoint.shaped("rope_freqs.weight", &[rotary_dim / 2])?)));
    }
    let parameters = c.section("rope_parameters")?.ok_or_else(|| c.missing("rope_parameters"))?;
    let key = if sliding { "sliding_attention" } else { "full_attention" };
    let part = parameters.section(key)?.ok_or_else(|| parameters.missing(key))?;
    let scaling = match part.text("rope_type")? {
        Some("proportional") => {
            let factor = part.opt_number("partial_rotary_factor")?.unwrap_or(1.0);
            RopeScaling::Proportional { pairs: (factor * rotary_dim as f32) as usize / 2 }
        }
        _ => scaling(&part)?,
    };
    Ok(of(part.number("rope_theta")?, scaling))
}
