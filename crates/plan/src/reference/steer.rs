//! `Steer`: a direction that changes rows.

use crate::steering::{Edit, Products};

/// Each part of a row as wide as the direction, in place.
pub fn steer(row: &mut [f32], direction: &[f32], edit: &Edit) {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    for x in row.chunks_mut(direction.len()) {
        let products = Products { along: dot(x, direction), row: dot(x, x), direction: dot(direction, direction) };
        if let Some((factor, scale)) = edit.change(products) {
            x.iter_mut().zip(direction).for_each(|(x, d)| *x = scale * (*x + factor * d));
        }
    }
}
