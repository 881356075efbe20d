//! A named, typed tensor over bytes of a mapped file or of its own.

use crate::io::FileRange;
use crate::map::Map;
use crate::{DType, WeightsError, block};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A tensor: name, type, shape and bytes. Cloning copies no data.
#[derive(Clone)]
pub struct Tensor {
    name: Arc<str>,
    dtype: DType,
    shape: Arc<[usize]>,
    elements: usize,
    storage: Storage,
}

#[derive(Clone)]
enum Storage {
    Mapped { map: Arc<Map>, range: Range<usize> },
    Owned { bytes: Arc<Vec<u8>>, range: Range<usize> },
    Spread(Arc<Spread>),
}

/// Equal parts of a map, equally far apart: the matrices of a bank whose experts lie each in a place of their own.
#[derive(Debug)]
struct Spread {
    map: Arc<Map>,
    start: usize,
    part: usize,
    stride: usize,
    count: usize,
    /// The parts one after the other, for who wants them so.
    together: OnceLock<Vec<u8>>,
}

impl Spread {
    fn part(&self, index: usize) -> Range<usize> {
        let start = self.start + index * self.stride;
        start..start + self.part
    }

    fn together(&self) -> &[u8] {
        self.together.get_or_init(|| {
            let parts = (0..self.count).flat_map(|index| &self.map.bytes()[self.part(index)]);
            parts.copied().collect()
        })
    }

    /// Where some of the bytes are in the map, if they are of one part.
    fn within(&self, bytes: &Range<usize>) -> Option<Range<usize>> {
        let index = bytes.start.checked_div(self.part).filter(|index| *index < self.count)?;
        let offset = self.part(index).start - index * self.part;
        (bytes.end <= (index + 1) * self.part).then(|| bytes.start + offset..bytes.end + offset)
    }
}

/// Elements of a shape (1 for a scalar); `None` on overflow. Every leading product is checked too.
pub(crate) fn element_count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
}

fn owned(bytes: Vec<u8>) -> Storage {
    let range = 0..bytes.len();
    Storage::Owned { bytes: Arc::new(bytes), range }
}

impl Tensor {
    /// A tensor over `range` of a map. The caller has checked type, shape and range against each other.
    pub(crate) fn mapped(name: &str, dtype: DType, shape: &[usize], map: &Arc<Map>, range: Range<usize>) -> Self {
        debug_assert!(range.start <= range.end && range.end <= map.bytes().len());
        Self {
            name: name.into(),
            dtype,
            shape: shape.into(),
            elements: element_count(shape).expect("checked by the reader"),
            storage: Storage::Mapped { map: map.clone(), range },
        }
    }

    /// A tensor whose outermost entries lie `stride` bytes apart in a map, the first at `start`. The caller has checked
    /// type, shape and places against each other.
    pub(crate) fn spread(
        name: &str,
        dtype: DType,
        shape: &[usize],
        map: &Arc<Map>,
        (start, stride): (usize, usize),
    ) -> Self {
        let elements = element_count(shape).expect("checked by the reader");
        let count = shape[0];
        let part = dtype.bytes_for(elements / count.max(1)).expect("checked by the reader");
        debug_assert!(count == 0 || start + (count - 1) * stride + part <= map.bytes().len());
        let spread = Spread { map: map.clone(), start, part, stride, count, together: OnceLock::new() };
        Self { name: name.into(), dtype, shape: shape.into(), elements, storage: Storage::Spread(Arc::new(spread)) }
    }

    /// A tensor that owns its bytes; `shape` is outermost first. Errors if `bytes` is not what type and shape
    /// need, or the last dimension is not a whole number of blocks.
    pub fn from_bytes(
        name: impl Into<String>,
        dtype: DType,
        shape: Vec<usize>,
        bytes: Vec<u8>,
    ) -> Result<Self, WeightsError> {
        let name = name.into();
        let misfit = |field, expected, found| WeightsError::Argument { tensor: name.clone(), field, expected, found };
        let cols = shape.last().copied().unwrap_or(1);
        if !cols.is_multiple_of(dtype.block_len()) {
            let expected = format!("a last dimension divisible by {} for {dtype}", dtype.block_len());
            return Err(misfit("shape", expected, format!("{shape:?}")));
        }
        let sized = element_count(&shape).and_then(|n| Some((n, dtype.bytes_for(n)?)));
        let Some((elements, needed)) = sized else {
            return Err(misfit("shape", "a size below 2^64 bytes".into(), format!("{shape:?}")));
        };
        if bytes.len() != needed {
            let expected = format!("{needed} for {dtype} {shape:?}");
            return Err(misfit("bytes", expected, bytes.len().to_string()));
        }
        Ok(Self { name: name.into(), dtype, shape: shape.into(), elements, storage: owned(bytes) })
    }

    /// An `F32` tensor that owns a copy of `values`.
    ///
    /// # Panics
    /// If `shape` does not have as many elements as `values`.
    pub fn from_f32(name: impl Into<String>, shape: Vec<usize>, values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self::from_bytes(name, DType::F32, shape, bytes).expect("shape and values agree")
    }

    /// The name, as in the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of the elements or blocks.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The dimensions, outermost first, whatever the file's own order is.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of elements: the product of the shape, 1 for a scalar.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// The bytes as stored. They are not aligned to anything in general. Of a bank whose experts lie apart this makes one
    /// copy, kept as long as the tensor; [`Self::row_range`] within one expert makes none.
    pub fn bytes(&self) -> &[u8] {
        match &self.storage {
            Storage::Mapped { map, range } => &map.bytes()[range.clone()],
            Storage::Owned { bytes, range } => &bytes[range.clone()],
            Storage::Spread(spread) => spread.together(),
        }
    }

    /// How many bytes [`Self::bytes`] has; reads none.
    pub fn stored_bytes(&self) -> usize {
        self.dtype.bytes_for(self.elements).unwrap_or_default()
    }

    /// Where the bytes lie, if they are one piece of a file.
    pub fn file_range(&self) -> Option<FileRange> {
        match &self.storage {
            Storage::Mapped { map, range } => {
                Some(FileRange { path: map.path().clone(), offset: range.start as u64, bytes: range.len() })
            }
            Storage::Owned { .. } | Storage::Spread(_) => None,
        }
    }

    /// The product of all dimensions but the last; 1 for a vector or scalar.
    pub fn rows(&self) -> usize {
        let outer = self.shape.len().saturating_sub(1);
        self.shape[..outer].iter().product()
    }

    /// The last dimension; 1 for a scalar.
    pub fn cols(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Some neighbouring rows as a matrix of their own; copies nothing.
    pub fn row_range(&self, rows: Range<usize>) -> Result<Self, WeightsError> {
        let stride = self.dtype.bytes_for(self.cols()).filter(|_| rows.start <= rows.end && rows.end <= self.rows());
        let Some(stride) = stride else {
            return Err(WeightsError::Argument {
                tensor: self.name().into(),
                field: "rows",
                expected: format!("a range within {} rows of whole blocks", self.rows()),
                found: format!("{rows:?}"),
            });
        };
        let bytes = rows.start * stride..rows.end * stride;
        let storage = match &self.storage {
            Storage::Mapped { map, range } => {
                Storage::Mapped { map: map.clone(), range: range.start + bytes.start..range.start + bytes.end }
            }
            Storage::Owned { bytes: owned, range } => {
                Storage::Owned { bytes: owned.clone(), range: range.start + bytes.start..range.start + bytes.end }
            }
            Storage::Spread(spread) => match spread.within(&bytes) {
                Some(range) => Storage::Mapped { map: spread.map.clone(), range },
                None => owned(spread.together()[bytes].to_vec()),
            },
        };
        let shape = [rows.len(), self.cols()];
        Ok(Self {
            name: self.name.clone(),
            dtype: self.dtype,
            shape: shape.into(),
            elements: shape[0] * shape[1],
            storage,
        })
    }

    /// The same data under another name.
    pub fn renamed(&self, name: impl Into<String>) -> Self {
        Self { name: name.into().into(), ..self.clone() }
    }

    /// All elements as `f32`, exactly as the format defines them (`F64` is rounded to nearest; an integer that
    /// `f32` cannot hold is an error).
    pub fn to_f32(&self) -> Result<Vec<f32>, WeightsError> {
        let mut out = vec![0.0; self.elements];
        self.convert(self.bytes(), &mut out)?;
        Ok(out)
    }

    /// Row `row` of [`Self::rows`] as `f32` into `out`, whose length is [`Self::cols`].
    pub fn row_to_f32(&self, row: usize, out: &mut [f32]) -> Result<(), WeightsError> {
        let misfit = |field, expected, found: usize| WeightsError::Argument {
            tensor: self.name().into(),
            field,
            expected,
            found: found.to_string(),
        };
        if row >= self.rows() {
            return Err(misfit("row", format!("less than {}", self.rows()), row));
        }
        if out.len() != self.cols() {
            return Err(misfit("length of the output", self.cols().to_string(), out.len()));
        }
        let Some(stride) = self.dtype.bytes_for(self.cols()) else {
            return Err(self.unsupported("a type whose rows are whole blocks"));
        };
        let bytes = row * stride..(row + 1) * stride;
        match &self.storage {
            Storage::Spread(spread) => match spread.within(&bytes) {
                Some(range) => self.convert(&spread.map.bytes()[range], out),
                None => self.convert(&spread.together()[bytes], out),
            },
            _ => self.convert(&self.bytes()[bytes], out),
        }
    }

    /// The values rounded to one of [`DType::QUANTISERS`], on as many threads as there are cores; no more than the result
    /// and a few rows of `f32` are held. Errors if the last dimension is no whole number of blocks or a value does not fit.
    pub fn quantised(&self, dtype: DType) -> Result<Self, WeightsError> {
        self.quantised_for(dtype, None)
    }

    /// As [`Self::quantised`], with how much the squared error of each column counts: as many numbers as columns, or as
    /// many for each of the matrices that are one above the other.
    pub fn quantised_for(&self, dtype: DType, importance: Option<&[f32]>) -> Result<Self, WeightsError> {
        const ELEMENTS_AT_A_TIME: usize = 1 << 16;
        let misfit =
            |expected, found| WeightsError::Argument { tensor: self.name().into(), field: "columns", expected, found };
        let (rows, cols) = (self.rows(), self.cols());
        let Some(stride) = dtype.bytes_for(cols) else {
            return Err(misfit(format!("a multiple of {} for {dtype}", dtype.block_len()), cols.to_string()));
        };
        let matrices = importance.map_or(1, |all| all.len() / cols.max(1)).max(1);
        if let Some(found) = importance.map(<[f32]>::len)
            && (found != matrices * cols || !rows.is_multiple_of(matrices))
        {
            let expected = format!("importance of {cols} columns for each of equally many of {rows} rows");
            return Err(misfit(expected, format!("{found} numbers")));
        }
        let rows_a_matrix = rows / matrices;
        let mut bytes = vec![0; rows * stride];
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let rows_at_a_time = (ELEMENTS_AT_A_TIME / cols.max(1)).max(1);
        let rows_a_thread = rows.div_ceil(threads).next_multiple_of(rows_at_a_time);
        let convert = |first: usize, out: &mut [u8]| -> Result<(), WeightsError> {
            let mut values = vec![0.0; rows_at_a_time * cols];
            let mut counts = vec![0.0; importance.map_or(0, |_| values.len())];
            for (index, out) in out.chunks_mut(rows_at_a_time * stride).enumerate() {
                let first = first + index * rows_at_a_time;
                let values = &mut values[..out.len() / stride * cols];
                for (row, values) in values.chunks_exact_mut(cols).enumerate() {
                    self.row_to_f32(first + row, values)?;
                }
                let counts = importance.map(|all| {
                    for (row, counts) in counts.chunks_exact_mut(cols).enumerate().take(values.len() / cols) {
                        counts.copy_from_slice(&all[(first + row) / rows_a_matrix * cols..][..cols]);
                    }
                    &counts[..values.len()]
                });
                block::quantise(dtype, values, counts, out).map_err(|error| error.of_tensor(self.name()))?;
            }
            Ok(())
        };
        if rows > 0 && cols > 0 {
            std::thread::scope(|scope| {
                let parts = bytes.chunks_mut(rows_a_thread * stride).enumerate();
                let threads = parts.map(|(part, out)| scope.spawn(move || convert(part * rows_a_thread, out)));
                let results: Vec<_> = threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join()).collect();
                results.into_iter().try_for_each(|r| r.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            })?;
        }
        Self::from_bytes(self.name(), dtype, self.shape.to_vec(), bytes)
    }

    /// All elements of an integer tensor. Errors for other types and for values above `i64::MAX`.
    pub fn to_i64(&self) -> Result<Vec<i64>, WeightsError> {
        block::integer::widen(self.dtype, self.bytes()).ok_or_else(|| self.unsupported("integers within i64"))
    }

    /// Lets the system drop the pages that lie wholly inside this tensor; they are read from the file again when
    /// next touched. Does nothing for owned tensors and where the system has no such advice.
    pub fn mapping_advise_dont_need(&self) {
        match &self.storage {
            Storage::Mapped { map, range } => map.advise_dont_need(range.clone()),
            Storage::Spread(spread) => {
                (0..spread.count).for_each(|index| spread.map.advise_dont_need(spread.part(index)));
            }
            Storage::Owned { .. } => {}
        }
    }

    fn convert(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), WeightsError> {
        block::dequantise(self.dtype, bytes, out).map_err(|error| match error {
            WeightsError::UnsupportedType { expected, .. } => self.unsupported(expected),
            other => other,
        })
    }

    fn unsupported(&self, expected: &'static str) -> WeightsError {
        WeightsError::UnsupportedType { tensor: self.name().into(), dtype: self.dtype.name(), expected }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?}", self.name, self.dtype, self.shape)
    }
}
