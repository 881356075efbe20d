//! The counter-based generator behind every draw: Philox4x32-10.
//!
//! Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// The draw of `seed` at `position`: a multiple of 2⁻⁵³ in [0, 1).
///
/// Any position can be drawn without the ones before it, so a sequence continued from a cache
/// draws the same numbers as one computed from its start.
pub fn uniform(seed: u64, position: u64) -> f64 {
    draw_for(seed, position, Purpose::Token)
}

/// What a draw decides. Draws of one position for different purposes are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Token = 0,
    Xtc = 1,
    Acceptance = 2,
    Replacement = 3,
}

/// As [`uniform`], for one purpose.
pub(crate) fn draw_for(seed: u64, position: u64, purpose: Purpose) -> f64 {
    let counter = [position as u32, (position >> 32) as u32, purpose as u32, 0];
    let words = philox4x32_10(counter, [seed as u32, (seed >> 32) as u32]);
    let bits = (u64::from(words[1]) << 32 | u64::from(words[0])) >> 11;
    bits as f64 * (1.0 / (1u64 << 53) as f64)
}

/// A seed for a request that brought none; two calls differ. Report it, so that the request can
/// be repeated.
pub fn fresh_seed() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    hasher.write_u128(now.as_nanos());
    hasher.finish()
}

fn philox4x32_10(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let a = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
        let b = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
        counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_matches_the_published_vectors() {
        let cases = [
            ([0; 4], [0; 2], [0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408F_276D, 0x41C8_3B0E, 0xA20B_C7C6, 0x6D54_51FD]),
            (
                [0x243F_6A88, 0x85A3_08D3, 0x1319_8A2E, 0x0370_7344],
                [0xA409_3822, 0x299F_31D0],
                [0xD16C_FE09, 0x94FD_CCEB, 0x5001_E420, 0x2412_6EA1],
            ),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(philox4x32_10(counter, key), expected);
        }
    }

    #[test]
    fn uniform_stays_in_range_and_depends_on_both_keys() {
        assert_ne!(uniform(7, 0), uniform(8, 0));
        assert_ne!(uniform(7, 0), uniform(7, 1));
        assert_ne!(uniform(7, 1), uniform(7, 1 << 32));
        assert!((0..1000).all(|p| (0.0..1.0).contains(&uniform(u64::MAX, p))));
    }

    #[test]
    fn fresh_seeds_differ() {
        assert_ne!(fresh_seed(), fresh_seed());
    }
}
