//! Disjoint parts of one output buffer, one for each task.
#![allow(unsafe_code)]

use std::marker::PhantomData;

/// A row-major buffer split into tiles that do not overlap.
#[derive(Debug)]
pub struct Tiles<'a, T = f32> {
    start: *mut T,
    rows: usize,
    width: usize,
    tile_rows: usize,
    tile_width: usize,
    buffer: PhantomData<&'a mut [T]>,
}

// SAFETY: it stands for the exclusive borrow of the buffer, which may go to other threads when its elements may.
unsafe impl<T: Send> Send for Tiles<'_, T> {}
// SAFETY: shared access gives out tiles only through an unsafe function that asks for each tile at most once.
unsafe impl<T: Send> Sync for Tiles<'_, T> {}

/// One tile: some columns of some rows, exclusively.
#[derive(Debug)]
pub struct TileMut<'a, T = f32> {
    start: *mut T,
    stride: usize,
    first_row: usize,
    rows: usize,
    first_col: usize,
    cols: usize,
    buffer: PhantomData<&'a mut [T]>,
}

// SAFETY: it stands for an exclusive borrow of its elements.
unsafe impl<T: Send> Send for TileMut<'_, T> {}

impl<'a, T> Tiles<'a, T> {
    /// Splits `[rows, width]` by columns: all rows, `tile_width` columns a tile (the last may be narrower).
    ///
    /// # Panics
    /// If the buffer is not `rows * width` long or `tile_width` is 0.
    pub fn columns(out: &'a mut [T], rows: usize, width: usize, tile_width: usize) -> Self {
        Self::blocks(out, [rows, width], [rows.max(1), tile_width])
    }

    /// Splits `[out.len() / width, width]` by rows: whole rows, `rows_per_tile` a tile (the last may have fewer).
    ///
    /// # Panics
    /// If the buffer is not a whole number of rows or `rows_per_tile` is 0.
    pub fn rows(out: &'a mut [T], width: usize, rows_per_tile: usize) -> Self {
        let rows = out.len().checked_div(width).unwrap_or(0);
        Self::blocks(out, [rows, width], [rows_per_tile, width.max(1)])
    }

    /// Splits `[rows, width]` into tiles of `[tile_rows, tile_width]`, numbered row of tiles by row of tiles.
    ///
    /// # Panics
    /// If the buffer is not `rows * width` long or a side of the tile is 0.
    pub fn blocks(out: &'a mut [T], [rows, width]: [usize; 2], [tile_rows, tile_width]: [usize; 2]) -> Self {
        assert_eq!(Some(out.len()), rows.checked_mul(width), "the buffer is {rows} rows of {width}");
        assert!(tile_rows > 0 && tile_width > 0, "a tile has at least one row and one column");
        Self { start: out.as_mut_ptr(), rows, width, tile_rows, tile_width, buffer: PhantomData }
    }

    /// The number of tiles.
    pub fn len(&self) -> usize {
        self.rows.div_ceil(self.tile_rows) * self.width.div_ceil(self.tile_width)
    }

    /// Whether there is no tile.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The whole buffer as one tile.
    pub fn whole(out: &'a mut [T], rows: usize, width: usize) -> TileMut<'a, T> {
        let tiles = Self::blocks(out, [rows, width], [rows.max(1), width.max(1)]);
        let (start, stride) = (tiles.start, tiles.width);
        TileMut { start, stride, first_row: 0, rows, first_col: 0, cols: width, buffer: PhantomData }
    }

    /// # Safety
    /// No two tiles of the same index may exist at once.
    pub(super) unsafe fn tile(&self, index: usize) -> TileMut<'a, T> {
        assert!(index < self.len(), "tile {index} of {}", self.len());
        let across = self.width.div_ceil(self.tile_width);
        let first_row = index / across * self.tile_rows;
        let first_col = index % across * self.tile_width;
        TileMut {
            // SAFETY: the index is below the number of tiles, so the tile starts inside the buffer.
            start: unsafe { self.start.add(first_row * self.width + first_col) },
            stride: self.width,
            first_row,
            rows: self.tile_rows.min(self.rows - first_row),
            first_col,
            cols: self.tile_width.min(self.width - first_col),
            buffer: PhantomData,
        }
    }
}

impl<T> TileMut<'_, T> {
    /// The row of the buffer that is row 0 of the tile.
    pub fn first_row(&self) -> usize {
        self.first_row
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The column of the buffer that is column 0 of the tile.
    pub fn first_col(&self) -> usize {
        self.first_col
    }

    /// The number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// One row of the tile.
    ///
    /// # Panics
    /// If the tile has no such row.
    pub fn row_mut(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.rows, "row {row} of a tile of {} rows", self.rows);
        // SAFETY: the row lies inside the buffer, no other tile has these columns of it, and `&mut self` allows one at a time.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.stride), self.cols) }
    }
}
