//! What a stored weight block means to the integer kernels, format by format.
//!
//! Every quantised format is seen as 32-element parts with
//! * codes: 32 small integers `q`, and one constant `OFFSET` so that the weight's integer is `q − OFFSET`;
//! * integer factors `f0`, `f1` of the two halves of the part (1 where the format has none);
//! * a float `scale` of the part, and for some formats a float `min` with integer factors of its own.
//!
//! With activation codes `a`, their scale `da` and half sums `s0`, `s1`, a part adds to an output, in this order:
//! ```text
//! i   = f0·Σ₀(q−OFFSET)·a + f1·Σ₁(q−OFFSET)·a         exact, i32
//! acc = fma(scale·da, i, acc)
//! acc = fma(min, da·(s0+s1), acc)                    Min::Part
//! acc = fma(min·da, m0·s0 + m1·s1, acc)              Min::Halves
//! ```
//! A format that takes two planes of activations does all this for the first and then for the second.
//!
//! This is the arithmetic of the format; kernels may only choose the order of the integer sum.

mod codebook;
mod k;
mod legacy;

pub(super) use codebook::{Iq4Nl, Iq4Xs, Mxfp4};
pub(super) use k::{Q2K, Q3K, Q4K, Q5K, Q6K};
pub(super) use legacy::{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};

/// How a format stores its common scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// An f16.
    F16,
    /// A power of two: exponent plus 127, halved for codes that are stored doubled.
    Exponent,
}

/// What a format subtracts beside its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Min {
    /// Nothing.
    None,
    /// One float a part: the second f16 itself, or minus the second f16 times the part's integer minimum.
    Part,
    /// Minus the second f16, with an integer factor for each half.
    Halves,
}

/// The integers at the head of a stored block; a format fills what it has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Head {
    /// Bits of the common scale: an f16, or the exponent byte.
    pub(super) unit: u16,
    /// Bits of the f16 of the minimum.
    pub(super) min_unit: u16,
    /// Integer factors, one a part or one a half of a part.
    pub(super) factors: [i8; 16],
    /// Integer minima, one a part or one a half of a part.
    pub(super) minima: [i8; 16],
}

/// A stored block format of `B` bytes.
pub(super) trait Layout<const B: usize>: Copy + Default {
    /// 32-element parts in a block.
    const PARTS: usize;
    /// Subtracted from each code.
    const OFFSET: i16 = 0;
    /// The greatest code, for unsigned codes; `None` for signed ones.
    const GREATEST: Option<i16>;
    /// Whether the halves of a part have integer factors; otherwise a factor multiplies the float scale.
    const HALVES: bool = false;
    /// How the scale is stored.
    const UNIT: Unit = Unit::F16;
    /// The minimum.
    const MIN: Min = Min::None;
    /// Planes of activations it takes.
    const PLANES: usize = 1;

    /// Reads the head.
    fn head(block: &[u8; B]) -> Head;

    /// The codes of a part. Unsigned ones are returned as the same bits.
    fn codes(block: &[u8; B], part: usize) -> [i8; 32];
}

/// Planes of activations a format takes.
pub(super) const fn planes<L: Layout<B>, const B: usize>() -> usize {
    L::PLANES
}

/// The 16 bits at a byte offset.
#[inline(always)]
fn u16_at<const B: usize>(block: &[u8; B], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

/// Part of a block, as an array.
#[inline(always)]
pub(super) fn bytes_at<const N: usize, const B: usize>(block: &[u8; B], at: usize) -> &[u8; N] {
    block[at..].first_chunk().expect("a field lies inside its block")
}

/// Codes stored as nibbles: the low nibbles are the first half of the part, the high ones the second.
#[inline(always)]
fn split_nibbles(packed: &[u8; 16]) -> [i8; 32] {
    std::array::from_fn(|i| if i < 16 { packed[i] & 15 } else { packed[i - 16] >> 4 } as i8)
}

/// The integer formats, each with the type that describes it.
macro_rules! with_layout {
    ($dtype:expr, $layout:ident => $body:expr, else $other:expr) => {
        match $dtype {
            DType::Q4_0 => {
                type $layout = layout::Q4_0;
                $body
            }
            DType::Q4_1 => {
                type $layout = layout::Q4_1;
                $body
            }
            DType::Q5_0 => {
                type $layout = layout::Q5_0;
                $body
            }
            DType::Q5_1 => {
                type $layout = layout::Q5_1;
                $body
            }
            DType::Q8_0 => {
                type $layout = layout::Q8_0;
                $body
            }
            DType::Q2K => {
                type $layout = layout::Q2K;
                $body
            }
            DType::Q3K => {
                type $layout = layout::Q3K;
                $body
            }
            DType::Q4K => {
                type $layout = layout::Q4K;
                $body
            }
            DType::Q5K => {
                type $layout = layout::Q5K;
                $body
            }
            DType::Q6K => {
                type $layout = layout::Q6K;
                $body
            }
            DType::IQ4NL => {
                type $layout = layout::Iq4Nl;
                $body
            }
            DType::IQ4XS => {
                type $layout = layout::Iq4Xs;
                $body
            }
            DType::MXFP4 => {
                type $layout = layout::Mxfp4;
                $body
            }
            _ => $other,
        }
    };
}
pub(super) use codebook::{FP4, IQ4};
pub(super) use with_layout;
