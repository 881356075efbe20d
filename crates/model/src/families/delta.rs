//! The gated delta rule as the Qwen families name it.

use super::Checkpoint;
use super::parts::Dims;
use crate::{DeltaNet, HeadOrder, ModelError, Source};

/// Layers from one of full attention to the next.
const INTERVAL: usize = 4;

/// Which layers are linear: `layer_types`, a list of booleans, or all but each `full_attention_interval`-th.
pub(super) fn linear_layers(checkpoint: &Checkpoint, layers: usize) -> Result<Vec<bool>, ModelError> {
    let c = &checkpoint.config;
    let interval = c.opt_size("full_attention_interval")?.unwrap_or(INTERVAL);
    // A GGUF file lists its prediction blocks too.
    let listed = c.get("recurrent_layers").and_then(|v| v.as_array()).map(|a| a.len().max(layers));
    if let Some(flags) = c.flags("recurrent_layers", listed.unwrap_or(layers))? {
        return Ok(flags[..layers].to_vec());
    }
    let Some(types) = c.texts("layer_types", layers)? else {
        return Ok((0..layers).map(|i| (i + 1) % interval != 0).collect());
    };
    let known = |t: &&str| match *t {
        "linear_attention" => Ok(true),
        "full_attention" | "indexed_attention" => Ok(false),
        other => Err(c.bad("layer_types", "linear_attention, full_attention or indexed_attention", &other.into())),
    };
    types.iter().map(known).collect()
}

/// The layer under `at`, with a gate of `silu(z)`.
pub(super) fn delta_net(checkpoint: &Checkpoint, at: &str, d: &Dims) -> Result<DeltaNet, ModelError> {
    let c = &checkpoint.config;
    let (k_heads, v_heads) = (c.size("linear_num_key_heads")?, c.size("linear_num_value_heads")?);
    if v_heads % k_heads != 0 {
        let expected = format!("a multiple of linear_num_key_heads = {k_heads}");
        return Err(c.bad("linear_num_value_heads", &expected, &v_heads.into()));
    }
    let k_dim = c.size("linear_key_head_dim")?;
    let v_dim = match c.opt_size("linear_inner_size")? {
        Some(inner) => inner / v_heads,
        None => c.size("linear_value_head_dim")?,
    };
    let kernel = c.size("linear_conv_kernel_dim")?;
    let (v_width, channels) = (v_heads * v_dim, 2 * k_heads * k_dim + v_heads * v_dim);
    let linear = |name: &str, outputs| checkpoint.linear(&format!("{at}.{name}"), outputs, d.hidden);
    let conv = format!("{at}.conv1d.weight");
    let (order, conv, a) = if checkpoint.is_gguf() {
        let a = checkpoint.shaped(&format!("{at}.a"), &[v_heads])?;
        (HeadOrder::Tiled, checkpoint.shaped(&conv, &[channels, kernel])?, a)
    } else {
        let a = checkpoint.shaped(&format!("{at}.A_log"), &[v_heads]).map(Source::neg_exp)?;
        (HeadOrder::Grouped, checkpoint.shaped(&conv, &[channels, 1, kernel])?, a)
    };
    Ok(DeltaNet {
        k_heads,
        v_heads,
        k_dim,
        v_dim,
        order,
        kernel,
        qkv: linear("in_proj_qkv", channels)?,
        z: linear("in_proj_z", v_width)?,
        beta: linear("in_proj_b", v_heads)?,
        decay: linear("in_proj_a", v_heads)?,
        conv,
        a,
        dt_bias: checkpoint.shaped(&format!("{at}.dt_bias"), &[v_heads])?,
        norm: checkpoint.norm(&format!("{at}.norm"), v_dim, d.eps)?,
        silu_gate: true,
        out: checkpoint.linear(&format!("{at}.out_proj"), d.hidden, v_width)?,
    })
}
