//! The definition of the integer formats' products, one output at a time.

use std::ops::Range;

use super::Matrix;
use super::layout::{Head, Layout, Min, Unit};
use crate::kernels::activation::{Activations, Block};
use crate::pool::TileMut;

/// One 32-element part of one output.
struct Part {
    codes: [i8; 32],
    factors: [i32; 2],
    minima: [i32; 2],
    scale: f32,
    min: f32,
}

pub(super) fn matmul<L: Layout<B>, const B: usize>(
    w: &Matrix<'_>,
    outputs: Range<usize>,
    x: &Activations,
    out: &mut TileMut<'_>,
) {
    for (column, output) in outputs.enumerate() {
        for row in 0..out.rows() {
            out.row_mut(row)[column] = 0.0;
        }
        for (number, block) in w.row(output).as_chunks::<B>().0.iter().enumerate() {
            let head = L::head(block);
            for part in 0..L::PARTS {
                let unpacked = unpack::<L, B>(block, &head, part);
                for row in 0..out.rows() {
                    let acc = &mut out.row_mut(row)[column];
                    for plane in 0..L::PLANES {
                        let a = &x.plane(plane, row)[number * L::PARTS + part];
                        *acc = add_part::<L, B>(*acc, &unpacked, a);
                    }
                }
            }
        }
    }
}

fn unpack<L: Layout<B>, const B: usize>(block: &[u8; B], head: &Head, part: usize) -> Part {
    let f16 = |bits| half::f16::from_bits(bits).to_f32_const();
    let unit = match L::UNIT {
        Unit::F16 => f16(head.unit),
        Unit::Exponent => halved_power(head.unit),
    };
    let pair = |values: &[i8; 16]| [2 * part, 2 * part + 1].map(|half| i32::from(values[half]));
    let (factors, minima) = if L::HALVES { (pair(&head.factors), pair(&head.minima)) } else { ([1; 2], [1; 2]) };
    let scaled = L::PARTS > 1 && !L::HALVES;
    let scale = if scaled { unit * f32::from(head.factors[part]) } else { unit };
    let min = match L::MIN {
        Min::None => 0.0,
        Min::Part if scaled => -(f16(head.min_unit) * f32::from(head.minima[part])),
        Min::Part => f16(head.min_unit),
        Min::Halves => -f16(head.min_unit),
    };
    Part { codes: L::codes(block, part), factors, minima, scale, min }
}

/// `2^(exponent − 128)`, where the smallest two are subnormal.
pub(super) fn halved_power(exponent: u16) -> f32 {
    match exponent {
        0 | 1 => f32::from_bits(0x0020_0000 << exponent),
        _ => f32::from_bits((u32::from(exponent) - 1) << 23),
    }
}

fn add_part<L: Layout<B>, const B: usize>(acc: f32, part: &Part, a: &Block) -> f32 {
    let unsigned = L::GREATEST.is_some();
    let mut sum = 0;
    for half in 0..2 {
        let mut dot = 0;
        for i in 16 * half..16 * (half + 1) {
            let code = if unsigned { i32::from(part.codes[i] as u8) } else { i32::from(part.codes[i]) };
            dot += (code - i32::from(L::OFFSET)) * i32::from(a.codes[i]);
        }
        sum += part.factors[half] * dot;
    }
    let acc = (part.scale * a.scale).mul_add(sum as f32, acc);
    match L::MIN {
        Min::None => acc,
        Min::Part => part.min.mul_add(a.scaled_sum, acc),
        Min::Halves => {
            let sum = part.minima[0] * i32::from(a.sums[0]) + part.minima[1] * i32::from(a.sums[1]);
            (part.min * a.scale).mul_add(sum as f32, acc)
        }
    }
}
