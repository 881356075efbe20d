//! Matrix products straight from the stored weight blocks: `y[row, o] = Σₖ W[o, k] · x[row, k]`.
//!
//! Each format has one arithmetic, stated in `layout` for the integer formats and in `float` for the others. The same bits
//! come out for one row or many, for any split of the outputs among tasks, and at every level of [`Isa`].

mod float;
mod layout;
mod scalar;

#[cfg(target_arch = "x86_64")]
mod avx2;

use std::ops::Range;

use weights::DType;

use super::activation::Activations;
use crate::isa::Isa;
use crate::pool::TileMut;

/// Outputs that are computed together: splitting work at multiples of this wastes nothing.
pub const OUTPUTS: usize = 8;

/// A stored weight matrix: `rows` outputs of `cols` elements each.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// The format.
    pub dtype: DType,
    /// The number of outputs.
    pub rows: usize,
    /// The number of elements an output takes: a whole number of the format's blocks.
    pub cols: usize,
    /// The blocks, output by output.
    pub bytes: &'a [u8],
}

/// The activation rows, in the form [`planes`] asks for.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Plain values.
    F32 {
        /// `[rows, width]`, row by row.
        x: &'a [f32],
        /// The number of rows.
        rows: usize,
        /// The values in a row.
        width: usize,
    },
    /// Quantised in blocks of 32.
    Quantised(&'a Activations),
}

impl Input<'_> {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        match self {
            Self::F32 { rows, .. } => *rows,
            Self::Quantised(activations) => activations.rows(),
        }
    }

    /// The values in a row.
    pub fn width(&self) -> usize {
        match self {
            Self::F32 { width, .. } => *width,
            Self::Quantised(activations) => activations.width(),
        }
    }
}

impl<'a> Matrix<'a> {
    fn row_bytes(&self) -> usize {
        self.cols / self.dtype.block_len() * self.dtype.block_bytes()
    }

    fn row(&self, row: usize) -> &'a [u8] {
        let bytes = self.row_bytes();
        &self.bytes[row * bytes..][..bytes]
    }
}

/// How many planes of quantised activations products with this format take; `None` for those that take f32.
pub fn planes(dtype: DType) -> Option<usize> {
    layout::with_layout!(dtype, L => Some(layout::planes::<L, _>()), else None)
}

/// Computes the given outputs for all activation rows: `out.row_mut(r)[o - outputs.start] = y[r, o]`.
///
/// # Panics
/// If the sizes of matrix, input and tile do not agree, or the input has not the form that [`planes`] says.
pub fn matmul(isa: Isa, w: &Matrix<'_>, outputs: Range<usize>, x: &Input<'_>, out: &mut TileMut<'_>) {
    assert_eq!(
        w.cols % w.dtype.block_len(),
        0,
        "a row of {} elements is no whole number of {:?} blocks",
        w.cols,
        w.dtype
    );
    assert_eq!(w.bytes.len(), w.rows * w.row_bytes(), "the bytes of a {}×{} matrix of {:?}", w.rows, w.cols, w.dtype);
    assert!(outputs.end <= w.rows, "outputs {outputs:?} of {}", w.rows);
    assert_eq!(x.width(), w.cols, "the width of the activations is that of the matrix");
    assert_eq!((out.rows(), out.cols()), (x.rows(), outputs.len()), "the tile has a row for each activation row");
    match *x {
        Input::Quantised(x) => integer(isa, w, outputs, x, out),
        Input::F32 { x, width, .. } => {
            assert!(planes(w.dtype).is_none(), "{:?} weights take quantised activations", w.dtype);
            assert_eq!(x.len(), out.rows() * width, "the input is whole rows");
            float::matmul(isa, w, outputs, x, out);
        }
    }
}

fn integer(isa: Isa, w: &Matrix<'_>, outputs: Range<usize>, x: &Activations, out: &mut TileMut<'_>) {
    #[cfg(target_arch = "x86_64")]
    if let Some(token) = isa.avx2() {
        return layout::with_layout!(w.dtype, L => avx2::matmul::<L, _>(token, w, outputs, x, out), else not_integer(w.dtype));
    }
    let _ = isa;
    layout::with_layout!(w.dtype, L => scalar::matmul::<L, _>(w, outputs, x, out), else not_integer(w.dtype))
}

fn not_integer(dtype: DType) -> ! {
    panic!("{dtype:?} weights take f32 activations")
}
