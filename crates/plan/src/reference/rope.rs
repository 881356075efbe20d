//! `Rope`: turns channel pairs of one head by its position (RoFormer, Su et al. 2021).

use model::Pairing;

/// Rotates the leading `2 · frequencies.len()` channels of `head` in place and multiplies them by `amplitude`; the rest
/// passes through.
pub fn rotate(head: &mut [f32], position: u32, frequencies: &[f32], amplitude: f32, pairing: Pairing) {
    let half = frequencies.len();
    for (i, f) in frequencies.iter().enumerate() {
        let (sin, cos) = (position as f32 * f).sin_cos();
        let (sin, cos) = (sin * amplitude, cos * amplitude);
        let (a, b) = match pairing {
            Pairing::Half => (i, i + half),
            Pairing::Interleaved => (2 * i, 2 * i + 1),
        };
        let (x, y) = (head[a], head[b]);
        head[a] = x * cos - y * sin;
        head[b] = x * sin + y * cos;
    }
}
