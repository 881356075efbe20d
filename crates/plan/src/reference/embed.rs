//! `Embed`: `to = scale · table[token]`.

/// One row of the `[vocab, hidden]` table.
pub fn embed(table: &[f32], token: usize, scale: f32, to: &mut [f32]) {
    let row = &table[token * to.len()..][..to.len()];
    for (to, w) in to.iter_mut().zip(row) {
        *to = scale * w;
    }
}
