//! The formats with one 32-element part a block: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.

use super::{Head, Layout, Min, bytes_at, split_nibbles, u16_at};

/// f16 scale, 16 bytes of nibbles.
#[derive(Clone, Copy, Default)]
pub(in super::super) struct Q4_0;

/// f16 scale, f16 minimum, 16 bytes of nibbles.
#[derive(Clone, Copy, Default)]
pub(in super::super) struct Q4_1;

/// f16 scale, 32 fifth bits, 16 bytes of nibbles.
#[derive(Clone, Copy, Default)]
pub(in super::super) struct Q5_0;

/// f16 scale, f16 minimum, 32 fifth bits, 16 bytes of nibbles.
#[derive(Clone, Copy, Default)]
pub(in super::super) struct Q5_1;

/// f16 scale, 32 signed bytes.
#[derive(Clone, Copy, Default)]
pub(in super::super) struct Q8_0;

impl Layout<18> for Q4_0 {
    const PARTS: usize = 1;
    const OFFSET: i16 = 8;
    const GREATEST: Option<i16> = Some(15);

    #[inline(always)]
    fn head(block: &[u8; 18]) -> Head {
        Head { unit: u16_at(block, 0), ..Head::default() }
    }

    fn codes(block: &[u8; 18], _: usize) -> [i8; 32] {
        split_nibbles(bytes_at(block, 2))
    }
}

impl Layout<20> for Q4_1 {
    const PARTS: usize = 1;
    const GREATEST: Option<i16> = Some(15);
    const MIN: Min = Min::Part;

    #[inline(always)]
    fn head(block: &[u8; 20]) -> Head {
        Head { unit: u16_at(block, 0), min_unit: u16_at(block, 2), ..Head::default() }
    }

    fn codes(block: &[u8; 20], _: usize) -> [i8; 32] {
        split_nibbles(bytes_at(block, 4))
    }
}

impl Layout<22> for Q5_0 {
    const PARTS: usize = 1;
    const OFFSET: i16 = 16;
    const GREATEST: Option<i16> = Some(31);

    #[inline(always)]
    fn head(block: &[u8; 22]) -> Head {
        Head { unit: u16_at(block, 0), ..Head::default() }
    }

    fn codes(block: &[u8; 22], _: usize) -> [i8; 32] {
        with_fifth_bits(bytes_at(block, 2), bytes_at(block, 6))
    }
}

impl Layout<24> for Q5_1 {
    const PARTS: usize = 1;
    const GREATEST: Option<i16> = Some(31);
    const MIN: Min = Min::Part;

    #[inline(always)]
    fn head(block: &[u8; 24]) -> Head {
        Head { unit: u16_at(block, 0), min_unit: u16_at(block, 2), ..Head::default() }
    }

    fn codes(block: &[u8; 24], _: usize) -> [i8; 32] {
        with_fifth_bits(bytes_at(block, 4), bytes_at(block, 8))
    }
}

impl Layout<34> for Q8_0 {
    const PARTS: usize = 1;
    const GREATEST: Option<i16> = None;

    #[inline(always)]
    fn head(block: &[u8; 34]) -> Head {
        Head { unit: u16_at(block, 0), ..Head::default() }
    }

    fn codes(block: &[u8; 34], _: usize) -> [i8; 32] {
        bytes_at::<32, 34>(block, 2).map(|byte| byte as i8)
    }
}

/// Bit `i` of `fifth` is bit 4 of code `i`.
fn with_fifth_bits(fifth: &[u8; 4], packed: &[u8; 16]) -> [i8; 32] {
    let fifth = u32::from_le_bytes(*fifth);
    let mut codes = split_nibbles(packed);
    for (i, code) in codes.iter_mut().enumerate() {
        *code |= ((fifth >> i & 1) << 4) as i8;
    }
    codes
}
