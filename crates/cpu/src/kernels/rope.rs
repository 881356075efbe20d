//! Rotary position embedding: one table of angles a run, shared by all layers and heads.

use model::Pairing;

/// Fills `to` with (cos, sin) of every position's angles times `amplitude`, `[rows, frequencies]`.
pub fn angles(positions: &[u32], frequencies: &[f32], amplitude: f32, to: &mut Vec<[f32; 2]>) {
    to.clear();
    for position in positions {
        to.extend(frequencies.iter().map(|f| {
            let (sin, cos) = (*position as f32 * f).sin_cos();
            [cos * amplitude, sin * amplitude]
        }));
    }
}

/// Rotates the leading `2 · angles.len()` channels of a head in place.
pub fn rotate(head: &mut [f32], angles: &[[f32; 2]], pairing: Pairing) {
    match pairing {
        Pairing::Half => {
            let (low, high) = head.split_at_mut(angles.len());
            for ((x, y), [cos, sin]) in low.iter_mut().zip(high).zip(angles) {
                (*x, *y) = (*x * cos - *y * sin, *x * sin + *y * cos);
            }
        }
        Pairing::Interleaved => {
            for ([x, y], [cos, sin]) in head.as_chunks_mut::<2>().0.iter_mut().zip(angles) {
                (*x, *y) = (*x * cos - *y * sin, *x * sin + *y * cos);
            }
        }
    }
}
