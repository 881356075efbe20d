//! `NgramEmbed`, `NgramGate`: features of the last few tokens, by hash.

use super::activation::sigmoid;
use model::NgramHash;

/// The table rows that `token` and the tokens before it name, one a head.
///
/// `earlier` holds the tokens before, each as its id + 1 and 0 for none, oldest first; it moves on by one.
pub fn ngram_rows(hash: &NgramHash, token: u32, earlier: &mut [f32]) -> Vec<usize> {
    let mut last = vec![token];
    for id in earlier.iter().rev() {
        // An end token hides itself and everything before it from the tokens after it.
        let hidden = *id == 0.0 || (last.len() > 1 && last.last() == Some(&hash.end)) || *id as u32 - 1 == hash.end;
        last.push(if hidden { hash.end } else { *id as u32 - 1 });
    }
    let tokens_of = |head: usize| 2 + head / (hash.sizes.len() / (hash.multipliers.len() - 1));
    let row = |(head, (size, offset)): (usize, (&i64, &i64))| {
        let parts = last.iter().zip(&hash.multipliers).take(tokens_of(head));
        let mix = parts.fold(0, |mix, (id, m)| mix ^ i64::from(*id).wrapping_mul(*m));
        (mix.rem_euclid(*size) + offset) as usize
    };
    let rows = hash.sizes.iter().zip(&hash.offsets).enumerate().map(row).collect();
    if let Some(keep) = earlier.len().checked_sub(1) {
        earlier.copy_within(1.., 0);
        earlier[keep] = (token + 1) as f32;
    }
    rows
}

/// `to[c] = sigmoid(s(key[c] · query[c] / √width)) · value`, with `s(z) = sign(z) √max(|z|, 1e-6)`.
pub fn ngram_gate(key: &[f32], query: &[f32], value: &[f32], to: &mut [f32]) {
    let width = value.len();
    for ((key, query), to) in key.chunks(width).zip(query.chunks(width)).zip(to.chunks_mut(width)) {
        let z = key.iter().zip(query).map(|(k, q)| k * q).sum::<f32>() / (width as f32).sqrt();
        let sign = if z == 0.0 { 0.0 } else { z.signum() };
        let gate = sigmoid(sign * z.abs().max(1e-6).sqrt());
        to.iter_mut().zip(value).for_each(|(to, v)| *to = gate * v);
    }
}
