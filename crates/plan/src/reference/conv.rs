//! `Conv`: `to = silu(conv(x))`, depthwise and causal.

use super::silu;

/// One row `x`; `earlier` are the rows before it, oldest first, `(kernel - 1) · dilation` of them, and move on by one.
/// `weight` is `[kernel, channels]`, oldest row first.
pub fn conv(x: &[f32], weight: &[f32], dilation: usize, earlier: &mut [f32], to: &mut [f32]) {
    let (channels, kernel) = (x.len(), weight.len() / x.len());
    for (c, to) in to.iter_mut().enumerate() {
        let tap = |j: usize| weight[j * channels + c];
        let past: f32 = (0..kernel - 1).map(|j| tap(j) * earlier[j * dilation * channels + c]).sum();
        *to = silu(past + tap(kernel - 1) * x[c]);
    }
    if !earlier.is_empty() {
        earlier.copy_within(channels.., 0);
        let last = earlier.len() - channels;
        earlier[last..].copy_from_slice(x);
    }
}
