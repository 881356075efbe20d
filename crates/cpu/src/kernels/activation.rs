//! Activations quantised for integer dot products: blocks of 32 values of one row as i8 codes with one f32 scale.
//!
//! `scale = amax / 127`, `code = round_to_even(x · (127 / amax))`, so codes are in −127..=127. A block whose scale would be
//! subnormal counts as zero (scale 0, codes 0). A block with an infinity or a NaN gets the scale NaN, which every output it
//! takes part in then shows.
//!
//! A second plane may hold what the first leaves, `x − scale · code`, quantised in the same way. Both together are good to one
//! part in 2¹⁵ of a block's largest value, for formats whose models cannot bear a rounding to eight bits.

use crate::isa::{Isa, Kernel, Widen};
use crate::pool::{Pool, Tiles};

/// Values in a block.
pub const BLOCK: usize = 32;

/// Planes there can be.
pub const PLANES: usize = 2;

/// Rows a task quantises at a time.
const ROWS_PER_TASK: usize = 4;

/// 32 quantised values with what the kernels need of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    /// The codes, in order.
    pub codes: [i8; BLOCK],
    /// The value of code 1.
    pub scale: f32,
    /// `scale · (sums[0] + sums[1])`, rounded once.
    pub scaled_sum: f32,
    /// The sums of the first and of the last 16 codes.
    pub sums: [i16; 2],
    padding: [u8; 4],
}

/// Rows of quantised activations.
#[derive(Clone, Debug, Default)]
pub struct Activations {
    /// Row by row, and in a row plane by plane.
    blocks: Vec<Block>,
    rows: usize,
    width: usize,
    planes: usize,
}

impl Activations {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of values in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The blocks of a row: the last is padded with zeros when the width is no multiple of 32.
    pub fn row(&self, row: usize) -> &[Block] {
        self.plane(0, row)
    }

    /// The blocks of a row in one plane; none where there is no such plane.
    pub fn plane(&self, plane: usize, row: usize) -> &[Block] {
        let blocks = self.width.div_ceil(BLOCK);
        if plane < self.planes { &self.blocks[(row * self.planes + plane) * blocks..][..blocks] } else { &[] }
    }

    /// Replaces the contents by `x`, rows of `width` values, in one plane or two.
    ///
    /// # Panics
    /// If `x` is not a whole number of rows.
    pub fn quantise(&mut self, isa: Isa, x: &[f32], width: usize, planes: usize) {
        self.resize(x, width, planes);
        let rows = x.chunks_exact(width.max(1));
        for (row, blocks) in rows.zip(self.blocks.chunks_exact_mut(planes * width.div_ceil(BLOCK).max(1))) {
            quantise_row(isa, row, blocks);
        }
    }

    /// As [`Activations::quantise`], with the rows spread over the pool.
    ///
    /// # Panics
    /// If `x` is not a whole number of rows.
    pub fn quantise_on(&mut self, pool: &Pool, isa: Isa, x: &[f32], width: usize, planes: usize) {
        self.resize(x, width, planes);
        let tiles = Tiles::rows(&mut self.blocks, planes * width.div_ceil(BLOCK), ROWS_PER_TASK);
        pool.run_tiles(tiles, &|_, mut tile| {
            for row in 0..tile.rows() {
                let x = &x[(tile.first_row() + row) * width..][..width];
                quantise_row(isa, x, tile.row_mut(row));
            }
        });
    }

    fn resize(&mut self, x: &[f32], width: usize, planes: usize) {
        self.rows = x.len().checked_div(width).unwrap_or(0);
        (self.width, self.planes) = (width, planes);
        assert_eq!(x.len(), self.rows * width, "activations are whole rows of {width}");
        self.blocks.resize(self.rows * planes * width.div_ceil(BLOCK), Block::default());
    }
}

/// Quantises one row, into a second plane too if there are blocks for it.
///
/// # Panics
/// If there are not `x.len() / 32` blocks, rounded up, or twice as many.
pub fn quantise_row(isa: Isa, x: &[f32], blocks: &mut [Block]) {
    let count = x.len().div_ceil(BLOCK);
    assert!(blocks.len() == count || blocks.len() == 2 * count, "one block or two for each 32 values");
    isa.run(QuantiseRow { x, blocks });
}

struct QuantiseRow<'a> {
    x: &'a [f32],
    blocks: &'a mut [Block],
}

impl Kernel for QuantiseRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Widen>(self, _: W) {
        let (whole, tail) = self.x.as_chunks::<BLOCK>();
        let (blocks, rest) = self.blocks.split_at_mut(self.x.len().div_ceil(BLOCK));
        let mut last = [0.0; BLOCK];
        last[..tail.len()].copy_from_slice(tail);
        let values = || whole.iter().chain([&last]);
        for (x, block) in values().zip(&mut *blocks) {
            *block = quantise_block(x);
        }
        for ((x, block), rest) in values().zip(blocks).zip(rest) {
            *rest = quantise_block(&what_is_left(x, block));
        }
    }
}

/// `x − scale · code`; zeros for a block without a number for a scale, which shows in the first plane.
#[inline(always)]
fn what_is_left(x: &[f32; BLOCK], block: &Block) -> [f32; BLOCK] {
    if block.scale.is_nan() {
        return [0.0; BLOCK];
    }
    std::array::from_fn(|i| (-block.scale).mul_add(f32::from(block.codes[i]), x[i]))
}

#[inline(always)]
fn quantise_block(x: &[f32; BLOCK]) -> Block {
    // The bits of non-negative floats order as integers, with infinity and NaN above all others.
    let mut amax_bits = 0;
    for value in x {
        amax_bits = amax_bits.max(value.abs().to_bits() as i32);
    }
    let amax = f32::from_bits(amax_bits as u32);
    let scale = amax / 127.0;
    if !amax.is_finite() {
        return Block { scale: f32::NAN, scaled_sum: f32::NAN, ..Block::default() };
    }
    if scale < f32::MIN_POSITIVE {
        return Block::default();
    }
    let inverse = 127.0 / amax;
    // Adding 1.5 · 2²³ rounds to an integer, ties to even, and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let mut block = Block { scale, ..Block::default() };
    for (code, value) in block.codes.iter_mut().zip(x) {
        *code = (value * inverse + ROUND).to_bits() as i8;
    }
    for (sum, codes) in block.sums.iter_mut().zip(block.codes.as_chunks::<16>().0) {
        *sum = codes.iter().map(|&code| i16::from(code)).sum();
    }
    block.scaled_sum = scale * f32::from(block.sums[0] + block.sums[1]);
    block
}
