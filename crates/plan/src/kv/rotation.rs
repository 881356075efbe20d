//! The rotation of tq types: seeded sign flips, then an orthonormal Walsh–Hadamard transform, in pieces that are powers of two.
//!
//! It spreads a vector's energy evenly over its channels, so that one table of levels fits every channel.

/// The smallest piece.
pub(super) const SMALLEST: usize = 8;

/// The largest piece.
pub(super) const LARGEST: usize = 512;

/// Lengths of the pieces of a vector of `dim` channels, a multiple of [`SMALLEST`]: the largest powers of two first.
pub(super) fn pieces(dim: usize) -> impl Iterator<Item = usize> {
    let mut left = dim;
    std::iter::from_fn(move || {
        let piece = LARGEST.min(1 << left.checked_ilog2()?);
        left -= piece;
        Some(piece)
    })
}

/// A sign for each channel: the lowest bits of splitmix64's numbers from `seed + dim · 7919` on.
pub(super) fn signs(seed: u64, dim: usize) -> Vec<f32> {
    let mut state = seed.wrapping_add(dim as u64 * 7919);
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    (0..dim).map(|_| if next() & 1 == 0 { 1.0 } else { -1.0 }).collect()
}

/// Rotates one piece.
pub(super) fn rotate(x: &mut [f32], signs: &[f32]) {
    x.iter_mut().zip(signs).for_each(|(x, sign)| *x *= sign);
    hadamard(x);
}

/// The inverse of [`rotate`].
pub(super) fn unrotate(x: &mut [f32], signs: &[f32]) {
    hadamard(x);
    x.iter_mut().zip(signs).for_each(|(x, sign)| *x *= sign);
}

/// The orthonormal transform: sums and differences at distances 1, 2, 4, …, then a division by the square root of the length.
fn hadamard(x: &mut [f32]) {
    let mut half = 1;
    while half < x.len() {
        for pair in x.chunks_exact_mut(2 * half) {
            let (a, b) = pair.split_at_mut(half);
            for (a, b) in a.iter_mut().zip(b) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
    let scale = 1.0 / (x.len() as f32).sqrt();
    x.iter_mut().for_each(|x| *x *= scale);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_powers_of_two() {
        for (dim, expected) in [(8, vec![8]), (80, vec![64, 16]), (576, vec![512, 64]), (1032, vec![512, 512, 8])] {
            assert_eq!(pieces(dim).collect::<Vec<_>>(), expected);
        }
        assert_eq!(pieces(0).count(), 0);
    }

    #[test]
    fn the_rotation_keeps_lengths_and_has_an_inverse() {
        for n in [8, 32, 64, 256] {
            let x: Vec<f32> = (0..n).map(|i| ((i * i + 3) % 17) as f32 - 5.0).collect();
            let signs = signs(1, n);
            let mut y = x.clone();
            rotate(&mut y, &signs);
            let square = |v: &[f32]| v.iter().map(|x| x * x).sum::<f32>();
            assert!((square(&x) - square(&y)).abs() < 1e-4 * square(&x));
            assert!(x.iter().zip(&y).any(|(x, y)| (x - y).abs() > 0.1));
            unrotate(&mut y, &signs);
            assert!(x.iter().zip(&y).all(|(x, y)| (x - y).abs() < 1e-4), "{n}");
        }
        let flips = signs(0, 256).iter().filter(|s| **s < 0.0).count();
        assert!((96..160).contains(&flips) && signs(0, 64) != signs(1, 64));
    }
}
