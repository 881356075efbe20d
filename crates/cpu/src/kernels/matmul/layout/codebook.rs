//! The 4-bit formats whose codes are looked up: IQ4_NL, IQ4_XS, MXFP4.

use super::{Head, Layout, Unit, bytes_at, split_nibbles, u16_at};

/// The integers of IQ4_NL and IQ4_XS.
pub(in super::super) const IQ4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The values of FP4 (E2M1) doubled, plus 12 to be unsigned.
pub(in super::super) const FP4: [i8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

/// f16 scale, 16 bytes of nibbles.
#[derive(Clone, Copy, Default)]
pub(in super::super) struct Iq4Nl;

/// f16 scale, 16 bits and 4 bytes of 6-bit factors, 128 bytes of nibbles.
#[derive(Clone, Copy, Default)]
pub(in super::super) struct Iq4Xs;

/// Exponent byte, 16 bytes of nibbles.
#[derive(Clone, Copy, Default)]
pub(in super::super) struct Mxfp4;

impl Layout<18> for Iq4Nl {
    const PARTS: usize = 1;
    const GREATEST: Option<i16> = None;

    #[inline(always)]
    fn head(block: &[u8; 18]) -> Head {
        Head { unit: u16_at(block, 0), ..Head::default() }
    }

    fn codes(block: &[u8; 18], _: usize) -> [i8; 32] {
        split_nibbles(bytes_at(block, 2)).map(|code| IQ4[code as usize])
    }
}

impl Layout<136> for Iq4Xs {
    const PARTS: usize = 8;
    const GREATEST: Option<i16> = None;

    #[inline(always)]
    fn head(block: &[u8; 136]) -> Head {
        let high = u16_at(block, 2);
        let low: &[u8; 4] = bytes_at(block, 4);
        let factor = |part: usize| (low[part / 2] >> (part % 2 * 4) & 15) as i8 | ((high >> (part * 2) & 3) << 4) as i8;
        let factors = std::array::from_fn(|part| if part < 8 { factor(part) - 32 } else { 0 });
        Head { unit: u16_at(block, 0), factors, ..Head::default() }
    }

    fn codes(block: &[u8; 136], part: usize) -> [i8; 32] {
        split_nibbles(bytes_at(block, 8 + part * 16)).map(|code| IQ4[code as usize])
    }
}

impl Layout<17> for Mxfp4 {
    const PARTS: usize = 1;
    const OFFSET: i16 = 12;
    const GREATEST: Option<i16> = Some(24);
    const UNIT: Unit = Unit::Exponent;
    // These are experts behind a router, and one rounded activation can make a router choose otherwise.
    const PLANES: usize = 2;

    #[inline(always)]
    fn head(block: &[u8; 17]) -> Head {
        Head { unit: u16::from(block[0]), ..Head::default() }
    }

    fn codes(block: &[u8; 17], _: usize) -> [i8; 32] {
        split_nibbles(bytes_at(block, 1)).map(|code| FP4[code as usize])
    }
}
