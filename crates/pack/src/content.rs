//! What a file will hold, and any range of it on demand.

use crate::PackError;
use std::ops::Range;
use std::sync::Arc;
use weights::{DType, Tensor};

/// Values rounded at a time.
const VALUES_AT_A_TIME: usize = 1 << 22;

/// The parts of a file, in order; what lies between them is zeros.
#[derive(Default)]
pub(crate) struct Content {
    pub(crate) bytes: u64,
    parts: Vec<Part>,
}

struct Part {
    offset: u64,
    length: u64,
    what: What,
}

enum What {
    Bytes(Vec<u8>),
    Rows(Rows),
}

/// Some rows of a tensor, in a type.
pub(crate) struct Rows {
    pub(crate) tensor: Tensor,
    pub(crate) rows: Range<usize>,
    pub(crate) to: DType,
    pub(crate) importance: Option<Arc<[f32]>>,
}

impl Content {
    /// A file of so many zeros.
    pub(crate) fn empty(bytes: u64) -> Self {
        Self { bytes, parts: Vec::new() }
    }

    /// A file of these bytes.
    pub(crate) fn of_bytes(bytes: Vec<u8>) -> Self {
        let mut content = Self::empty(bytes.len() as u64);
        content.push_bytes(0, bytes);
        content
    }

    pub(crate) fn push_bytes(&mut self, offset: u64, bytes: Vec<u8>) {
        self.parts.push(Part { offset, length: bytes.len() as u64, what: What::Bytes(bytes) });
    }

    pub(crate) fn push_rows(&mut self, offset: u64, length: u64, rows: Rows) {
        self.parts.push(Part { offset, length, what: What::Rows(rows) });
    }

    /// Puts the parts in order, whatever order they came in.
    pub(crate) fn sort(&mut self) {
        self.parts.sort_by_key(|part| part.offset);
    }

    /// Gives the bytes of a range to `sink`, in order and in pieces.
    pub(crate) fn produce(
        &self,
        range: Range<u64>,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), PackError>,
    ) -> Result<(), PackError> {
        let mut at = range.start;
        let first = self.parts.partition_point(|part| part.offset + part.length <= range.start);
        for part in self.parts[first..].iter().take_while(|part| part.offset < range.end) {
            zeros(part.offset.saturating_sub(at), sink)?;
            at = at.max(part.offset);
            let inside = at - part.offset..range.end.min(part.offset + part.length) - part.offset;
            match &part.what {
                What::Bytes(bytes) => sink(&bytes[inside.start as usize..inside.end as usize])?,
                What::Rows(rows) => rows.produce(inside.start as usize..inside.end as usize, sink)?,
            }
            at = part.offset + inside.end;
        }
        zeros(range.end - at, sink)
    }
}

impl Rows {
    /// The bytes of a range of the rows; only rows with bytes in it are computed.
    fn produce(
        &self,
        range: Range<usize>,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), PackError>,
    ) -> Result<(), PackError> {
        let cols = self.tensor.cols();
        let stride = self.to.bytes_for(cols).unwrap_or_default();
        if stride == 0 || range.is_empty() {
            return Ok(());
        }
        let at_a_time = (VALUES_AT_A_TIME / cols).max(1);
        let end = range.end.div_ceil(stride);
        let mut row = range.start / stride;
        while row < end {
            let next = end.min(row + at_a_time);
            let stored = self.tensor.row_range(self.rows.start + row..self.rows.start + next)?;
            let cut = |bytes: &[u8], sink: &mut dyn FnMut(&[u8]) -> Result<(), PackError>| {
                let start = row * stride;
                sink(&bytes[range.start.saturating_sub(start)..bytes.len().min(range.end - start)])
            };
            if self.to == stored.dtype() {
                cut(stored.bytes(), sink)?;
            } else {
                cut(self.rounded(&stored, row)?.bytes(), sink)?;
            }
            // What was read is not needed again: the model may be larger than memory.
            stored.mapping_advise_dont_need();
            row = next;
        }
        Ok(())
    }

    fn rounded(&self, stored: &Tensor, first: usize) -> Result<Tensor, PackError> {
        let cols = stored.cols();
        let Some(all) = self.importance.as_deref().filter(|all| !all.is_empty()) else {
            return Ok(stored.quantised(self.to)?);
        };
        // One row of importance for all of the tensor's rows, or one for each of equally many.
        let matrices = all.len() / cols;
        let misfit = || PackError::BadValue {
            found: format!("{} numbers for {}", all.len(), self.tensor.name()),
            reason: format!("importance needs {cols} numbers, or as many for each matrix of {:?}", self.tensor.shape()),
        };
        if matrices == 0 || all.len() != matrices * cols || !self.tensor.rows().is_multiple_of(matrices) {
            return Err(misfit());
        }
        let each = self.tensor.rows() / matrices;
        let rows = self.rows.start + first..self.rows.start + first + stored.rows();
        if rows.start / each == (rows.end - 1) / each {
            let importance = &all[rows.start / each * cols..][..cols];
            return Ok(stored.quantised_for(self.to, Some(importance))?);
        }
        let by_row: Vec<f32> = rows.flat_map(|row| &all[row / each * cols..][..cols]).copied().collect();
        Ok(stored.quantised_for(self.to, Some(&by_row))?)
    }
}

fn zeros(mut count: u64, sink: &mut dyn FnMut(&[u8]) -> Result<(), PackError>) -> Result<(), PackError> {
    const ZEROS: [u8; 4096] = [0; 4096];
    while count > 0 {
        let now = count.min(ZEROS.len() as u64);
        sink(&ZEROS[..now as usize])?;
        count -= now;
    }
    Ok(())
}
