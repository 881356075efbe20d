//! Activations quantised for integer dot products: blocks of 32 values of one row as i8 codes with one f32 scale.
//!
//! `scale = amax / 127`, `code = round_to_even(x · (127 / amax))`, so codes are in −127..=127. A block whose scale would be
//! subnormal counts as zero (scale 0, codes 0). A block with an infinity or a NaN gets the scale NaN, which every output it
//! takes part in then shows.

use crate::isa::{Isa, Kernel, Widen};
use crate::pool::{Pool, Tiles};

/// Values in a block.
pub const BLOCK: usize = 32;

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
    blocks: Vec<Block>,
    rows: usize,
    width: usize,
}

impl Activations {
    /// Room for `rows` rows of `width` values without a further allocation.
    pub fn with_capacity(rows: usize, width: usize) -> Self {
        Self { blocks: Vec::with_capacity(rows * width.div_ceil(BLOCK)), rows: 0, width: 0 }
    }

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
        let blocks = self.width.div_ceil(BLOCK);
        &self.blocks[row * blocks..][..blocks]
    }

    /// Replaces the contents by `x`, rows of `width` values.
    ///
    /// # Panics
    /// If `x` is not a whole number of rows.
    pub fn quantise(&mut self, isa: Isa, x: &[f32], width: usize) {
        self.resize(x, width);
        for (row, blocks) in
            x.chunks_exact(width.max(1)).zip(self.blocks.chunks_exact_mut(width.div_ceil(BLOCK).max(1)))
        {
            quantise_row(isa, row, blocks);
        }
    }

    /// As [`Activations::quantise`], with the rows spread over the pool.
    ///
    /// # Panics
    /// If `x` is not a whole number of rows.
    pub fn quantise_on(&mut self, pool: &Pool, isa: Isa, x: &[f32], width: usize) {
        self.resize(x, width);
        let tiles = Tiles::rows(&mut self.blocks, width.div_ceil(BLOCK), ROWS_PER_TASK);
        pool.run_tiles(tiles, &|_, mut tile| {
            for row in 0..tile.rows() {
                let x = &x[(tile.first_row() + row) * width..][..width];
                quantise_row(isa, x, tile.row_mut(row));
            }
        });
    }

    fn resize(&mut self, x: &[f32], width: usize) {
        self.rows = x.len().checked_div(width).unwrap_or(0);
        self.width = width;
        assert_eq!(x.len(), self.rows * width, "activations are whole rows of {width}");
        self.blocks.resize(self.rows * width.div_ceil(BLOCK), Block::default());
    }
}

/// Quantises one row.
///
/// # Panics
/// If there are not `x.len() / 32` blocks, rounded up.
pub fn quantise_row(isa: Isa, x: &[f32], blocks: &mut [Block]) {
    assert_eq!(blocks.len(), x.len().div_ceil(BLOCK), "one block for each 32 values");
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
        let (blocks, last) = self.blocks.split_at_mut(whole.len());
        for (x, block) in whole.iter().zip(blocks) {
            *block = quantise_block(x);
        }
        if let Some(last) = last.first_mut() {
            let mut x = [0.0; BLOCK];
            x[..tail.len()].copy_from_slice(tail);
            *last = quantise_block(&x);
        }
    }
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
