//! The K formats: 256 elements a block, eight parts, scales and minima as small integers.

use super::{Head, Layout, Min, bytes_at, u16_at};

/// 16 bytes of factor and minimum nibbles, 64 of 2-bit codes, f16 scale, f16 minimum.
#[derive(Clone, Copy, Default)]
pub(in super::super) struct Q2K;

/// 32 bytes of third bits, 64 of 2-bit codes, 12 of 6-bit factors, f16 scale.
#[derive(Clone, Copy, Default)]
pub(in super::super) struct Q3K;

/// f16 scale, f16 minimum, 12 bytes of 6-bit factors and minima, 128 of nibbles.
#[derive(Clone, Copy, Default)]
pub(in super::super) struct Q4K;

/// As Q4_K, with 32 bytes of fifth bits before the nibbles.
#[derive(Clone, Copy, Default)]
pub(in super::super) struct Q5K;

/// 128 bytes of low nibbles, 64 of upper bit pairs, 16 signed factors, f16 scale.
#[derive(Clone, Copy, Default)]
pub(in super::super) struct Q6K;

impl Layout<84> for Q2K {
    const PARTS: usize = 8;
    const GREATEST: Option<i16> = Some(3);
    const HALVES: bool = true;
    const MIN: Min = Min::Halves;

    #[inline(always)]
    fn head(block: &[u8; 84]) -> Head {
        let both = u128::from_le_bytes(*bytes_at(block, 0));
        const LOW: u128 = u128::from_ne_bytes([15; 16]);
        Head {
            unit: u16_at(block, 80),
            min_unit: u16_at(block, 82),
            factors: (both & LOW).to_le_bytes().map(|byte| byte as i8),
            minima: (both >> 4 & LOW).to_le_bytes().map(|byte| byte as i8),
        }
    }

    fn codes(block: &[u8; 84], part: usize) -> [i8; 32] {
        bit_pairs(bytes_at(block, 16 + part / 4 * 32), part)
    }
}

impl Layout<110> for Q3K {
    const PARTS: usize = 8;
    const OFFSET: i16 = 4;
    const GREATEST: Option<i16> = Some(7);
    const HALVES: bool = true;

    #[inline(always)]
    fn head(block: &[u8; 110]) -> Head {
        let low = u64::from_le_bytes(*bytes_at(block, 96));
        let high = u64::from(u32::from_le_bytes(*bytes_at(block, 104)));
        const NIBBLES: u64 = u64::from_ne_bytes([15; 8]);
        const PAIRS: u64 = u64::from_ne_bytes([3; 8]);
        let first = low & NIBBLES | ((high | high << 30) & PAIRS) << 4;
        let last = low >> 4 & NIBBLES | ((high >> 4 | high >> 6 << 32) & PAIRS) << 4;
        let factors = u128::from(first) | u128::from(last) << 64;
        Head { unit: u16_at(block, 108), factors: factors.to_le_bytes().map(|byte| byte as i8 - 32), ..Head::default() }
    }

    fn codes(block: &[u8; 110], part: usize) -> [i8; 32] {
        let third: &[u8; 32] = bytes_at(block, 0);
        let mut codes = bit_pairs(bytes_at(block, 32 + part / 4 * 32), part);
        for (code, third) in codes.iter_mut().zip(third) {
            *code |= ((third >> part & 1) << 2) as i8;
        }
        codes
    }
}

impl Layout<144> for Q4K {
    const PARTS: usize = 8;
    const GREATEST: Option<i16> = Some(15);
    const MIN: Min = Min::Part;

    #[inline(always)]
    fn head(block: &[u8; 144]) -> Head {
        six_bit_head(u16_at(block, 0), u16_at(block, 2), bytes_at(block, 4))
    }

    fn codes(block: &[u8; 144], part: usize) -> [i8; 32] {
        nibbles(bytes_at(block, 16 + part / 2 * 32), part % 2)
    }
}

impl Layout<176> for Q5K {
    const PARTS: usize = 8;
    const GREATEST: Option<i16> = Some(31);
    const MIN: Min = Min::Part;

    #[inline(always)]
    fn head(block: &[u8; 176]) -> Head {
        six_bit_head(u16_at(block, 0), u16_at(block, 2), bytes_at(block, 4))
    }

    fn codes(block: &[u8; 176], part: usize) -> [i8; 32] {
        let fifth: &[u8; 32] = bytes_at(block, 16);
        let mut codes = nibbles(bytes_at(block, 48 + part / 2 * 32), part % 2);
        for (code, fifth) in codes.iter_mut().zip(fifth) {
            *code |= ((fifth >> part & 1) << 4) as i8;
        }
        codes
    }
}

impl Layout<210> for Q6K {
    const PARTS: usize = 8;
    const OFFSET: i16 = 32;
    const GREATEST: Option<i16> = Some(63);
    const HALVES: bool = true;

    #[inline(always)]
    fn head(block: &[u8; 210]) -> Head {
        Head {
            unit: u16_at(block, 208),
            factors: bytes_at::<16, 210>(block, 192).map(|byte| byte as i8),
            ..Head::default()
        }
    }

    fn codes(block: &[u8; 210], part: usize) -> [i8; 32] {
        let low = nibbles(bytes_at(block, part / 4 * 64 + part % 2 * 32), part % 4 / 2);
        let high = bit_pairs(bytes_at(block, 128 + part / 4 * 32), part);
        std::array::from_fn(|i| low[i] | high[i] << 4)
    }
}

/// Eight 6-bit factors and minima: the first four in the low six bits of bytes 0–3 and 4–7, the others as nibbles in bytes 8–11
/// with their upper two bits on top of the first four.
#[inline(always)]
fn six_bit_head(unit: u16, min_unit: u16, packed: &[u8; 12]) -> Head {
    let word = |at| u32::from_le_bytes(*bytes_at(packed, at));
    let (a, b, c) = (word(0), word(4), word(8));
    const SIX: u32 = u32::from_ne_bytes([63; 4]);
    const FOUR: u32 = u32::from_ne_bytes([15; 4]);
    const TWO: u32 = u32::from_ne_bytes([3; 4]);
    let widen = |low: u32, high: u32| {
        let eight = u64::from(low) | u64::from(high) << 32;
        u128::from(eight).to_le_bytes().map(|byte| byte as i8)
    };
    Head {
        unit,
        min_unit,
        factors: widen(a & SIX, c & FOUR | (a >> 6 & TWO) << 4),
        minima: widen(b & SIX, c >> 4 & FOUR | (b >> 6 & TWO) << 4),
    }
}

/// The low (0) or high (1) nibbles.
fn nibbles(packed: &[u8; 32], which: usize) -> [i8; 32] {
    packed.map(|byte| (byte >> (4 * which) & 15) as i8)
}

/// The bit pairs of a part: part modulo four says which of each byte.
fn bit_pairs(packed: &[u8; 32], part: usize) -> [i8; 32] {
    packed.map(|byte| (byte >> (part % 4 * 2) & 3) as i8)
}
