//! The levels of tq types: the scalar quantiser of least squared error (Lloyd 1957, Max 1960) for one channel of a random
//! unit vector of `dim` channels, whose density is ∝ (1 − x²)^((dim − 3) / 2).

/// Cells of the half axis the density is sampled on.
const CELLS: usize = 16_384;
const ROUNDS: usize = 100;
const TOLERANCE: f64 = 1e-6;

/// The `2^bits` levels, ascending and symmetric about zero.
pub(super) fn levels(dim: usize, bits: usize) -> Vec<f32> {
    // Sums of the density and of its first moment up to each edge between cells; the other half mirrors this one.
    let mut sums = vec![(0.0, 0.0)];
    let (mut mass, mut moment) = (0.0, 0.0);
    for cell in 0..CELLS {
        let x = (cell as f64 + 0.5) / CELLS as f64;
        let density = (1.0 - x * x).sqrt().powi(dim as i32 - 3);
        (mass, moment) = (mass + density, moment + density * x);
        sums.push((mass, moment));
    }
    let edge = |x: f64| ((x * CELLS as f64).round() as usize).min(CELLS);
    let count = 1 << (bits - 1);
    let spread = 3.0 / (dim as f64).sqrt();
    let mut half: Vec<f64> = (0..count).map(|i| spread.min(1.0) * (i as f64 + 0.5) / count as f64).collect();
    for _ in 0..ROUNDS {
        let mut moved: f64 = 0.0;
        let mut from = 0;
        for i in 0..count {
            let to = if i + 1 < count { edge((half[i] + half[i + 1]) / 2.0) } else { CELLS };
            let (mass, moment) = (sums[to].0 - sums[from].0, sums[to].1 - sums[from].1);
            if mass > 0.0 {
                moved = moved.max((moment / mass - half[i]).abs());
                half[i] = moment / mass;
            }
            from = to;
        }
        if moved < TOLERANCE {
            break;
        }
    }
    let negative = half.iter().rev().map(|x| -x);
    negative.chain(half.iter().copied()).map(|x| x as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For many channels the density nears a normal one of variance 1 / dim, whose levels Max tabulated.
    #[test]
    fn levels_near_those_of_a_normal_density() {
        const NORMAL: [&[f32]; 3] = [
            &[0.4528, 1.510],
            &[0.2451, 0.7560, 1.344, 2.152],
            &[0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733],
        ];
        for (bits, expected) in (2..).zip(NORMAL) {
            let found = levels(512, bits);
            assert!(found.is_sorted() && found.len() == 1 << bits);
            for (found, expected) in found[expected.len()..].iter().zip(expected) {
                let found = found * 512f32.sqrt();
                assert!(
                    (found - expected).abs() < 0.02 * expected + 0.004,
                    "{bits} bits: {found}, expected {expected}"
                );
            }
        }
        for dim in [8, 16, 64] {
            let found = levels(dim, 4);
            assert!(found.is_sorted() && found[15] < 1.0 && found[0] == -found[15], "{found:?}");
        }
    }
}
