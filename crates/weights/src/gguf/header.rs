//! The header of one GGUF file: keys, tensor descriptions, and the checks on their ranges.

use super::cursor::{Cursor, What};
use super::metadata::Metadata;
use super::value::Value;
use crate::tensor::element_count;
use crate::{DType, WeightsError};
use std::collections::HashSet;
use std::path::Path;

pub(super) const MAGIC: &[u8; 4] = b"GGUF";
/// The key of the alignment of tensor data.
pub(super) const ALIGNMENT_KEY: &str = "general.alignment";
/// The alignment of a file that does not say.
pub(super) const DEFAULT_ALIGNMENT: usize = 32;
/// Larger alignments than this are not sensible and would only waste the file.
const MAX_ALIGNMENT: u64 = 1 << 20;
/// The least bytes of a pair: a length, one character, a type, a value.
const LEAST_PAIR: usize = 8 + 1 + 4 + 1;
/// The least bytes of a tensor description: a length, one character, a rank, one dimension, a type, an offset.
const LEAST_TENSOR: usize = 8 + 1 + 4 + 8 + 4 + 8;

/// The checked header of one file.
#[derive(Debug)]
pub struct Header {
    /// The format version: 2 or 3.
    pub version: u32,
    /// The key-value pairs.
    pub metadata: Metadata,
    /// The tensors in file order.
    pub tensors: Vec<TensorInfo>,
    /// The alignment of tensor data in bytes.
    pub alignment: usize,
    /// Where the data section starts in the file.
    pub data_offset: usize,
}

/// The description of one tensor; its range lies inside the file and overlaps no other.
#[derive(Debug)]
pub struct TensorInfo {
    /// The name.
    pub name: String,
    /// The type.
    pub dtype: DType,
    /// The dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Where its bytes start, counted from the start of the file.
    pub offset: usize,
    /// How many bytes it has.
    pub length: usize,
}

/// Reads and checks the header of the file whose content is `bytes`; `path` is for errors.
pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<Header, WeightsError> {
    let mut cursor = Cursor::new(bytes, path);
    let version = read_version(&mut cursor)?;
    let tensor_count = cursor.count(What::Plain("tensor count"), LEAST_TENSOR)?;
    let pair_count = cursor.count(What::Plain("key count"), LEAST_PAIR)?;
    let metadata = read_metadata(&mut cursor, path, pair_count)?;
    let alignment = alignment(&cursor, &metadata)?;

    let mut tensors = Vec::with_capacity(tensor_count);
    let mut places = Vec::with_capacity(tensor_count);
    for _ in 0..tensor_count {
        places.push(cursor.at());
        tensors.push(read_tensor(&mut cursor, alignment)?);
    }
    // The header was read, so it is far below the largest usize.
    let data_offset = cursor.at().next_multiple_of(alignment);
    for (info, place) in tensors.iter_mut().zip(places) {
        let end = data_offset.checked_add(info.offset).and_then(|start| start.checked_add(info.length));
        if end.is_none_or(|end| end > bytes.len()) {
            let expected = format!("{} bytes inside the {} of the file", info.length, bytes.len());
            let found = format!("offset {} in the data section at byte {data_offset}", info.offset);
            return Err(cursor.field(What::Tensor(&info.name, "data"), place, expected, found));
        }
        info.offset += data_offset;
    }
    check_apart(&cursor, path, &tensors)?;
    Ok(Header { version, metadata, tensors, alignment, data_offset })
}

fn read_version(cursor: &mut Cursor<'_>) -> Result<u32, WeightsError> {
    let magic = cursor.array::<4>(What::Plain("magic"))?;
    if &magic != MAGIC {
        let found = format!("\"{}\"", magic.escape_ascii());
        return Err(cursor.field(What::Plain("magic"), 0, "\"GGUF\"", found));
    }
    let what = What::Plain("version");
    let version = cursor.u32(what)?;
    match version {
        2 | 3 => Ok(version),
        _ if matches!(version.swap_bytes(), 1..=3) => {
            let found = format!("big-endian version {}", version.swap_bytes());
            Err(cursor.field(what, 4, "a little-endian file of version 2 or 3", found))
        }
        _ => Err(cursor.field(what, 4, "version 2 or 3", version.to_string())),
    }
}

fn read_metadata(cursor: &mut Cursor<'_>, path: &Path, count: usize) -> Result<Metadata, WeightsError> {
    let mut metadata = Metadata::default();
    for _ in 0..count {
        let start = cursor.at();
        let key = cursor.name(What::Plain("key"))?;
        if metadata.get(&key).is_some() {
            return Err(duplicate(path, "key", &key, start));
        }
        let id = cursor.u32(What::Key(&key))?;
        let value = Value::read(cursor, &key, id)?;
        metadata.set(key, value);
    }
    Ok(metadata)
}

fn alignment(cursor: &Cursor<'_>, metadata: &Metadata) -> Result<usize, WeightsError> {
    let Some(value) = metadata.get(ALIGNMENT_KEY) else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    match value.as_u64() {
        Some(n) if n.is_power_of_two() && (8..=MAX_ALIGNMENT).contains(&n) => Ok(n as usize),
        _ => {
            let expected = format!("a power of two from 8 to {MAX_ALIGNMENT}");
            let found = match value {
                Value::Array(_) => "an array".into(),
                other => format!("{other:?}"),
            };
            Err(cursor.field(What::Key(ALIGNMENT_KEY), cursor.at(), expected, found))
        }
    }
}

/// Reads one description; `offset` is still relative to the data section.
fn read_tensor(cursor: &mut Cursor<'_>, alignment: usize) -> Result<TensorInfo, WeightsError> {
    let name = cursor.name(What::Plain("tensor name"))?;
    let what = |part| What::Tensor(&name, part);
    let start = cursor.at();
    let rank = cursor.u32(what("rank"))?;
    if !(1..=4).contains(&rank) {
        return Err(cursor.field(what("rank"), start, "1 to 4 dimensions", rank.to_string()));
    }
    let start = cursor.at();
    let dims = (0..rank).map(|_| cursor.u64(what("dimensions"))).collect::<Result<Vec<u64>, _>>()?;
    if dims.contains(&0) {
        return Err(cursor.field(what("dimensions"), start, "each at least 1", format!("{dims:?}")));
    }
    let type_start = cursor.at();
    let id = cursor.u32(what("type"))?;
    let Some(dtype) = DType::from_ggml(id) else {
        return Err(cursor.field(what("type"), type_start, "a known ggml type", id.to_string()));
    };
    if !dims[0].is_multiple_of(dtype.block_len() as u64) {
        let expected = format!("a row length divisible by {} for {dtype}", dtype.block_len());
        return Err(cursor.field(what("dimensions"), start, expected, format!("{dims:?}")));
    }
    let shape = dims.iter().rev().map(|&d| usize::try_from(d).ok()).collect::<Option<Vec<_>>>();
    let length = shape.as_deref().and_then(element_count).and_then(|n| dtype.bytes_for(n));
    let (Some(shape), Some(length)) = (shape, length) else {
        let expected = "a size that fits in memory";
        return Err(cursor.field(what("dimensions"), start, expected, format!("{dims:?}")));
    };
    let start = cursor.at();
    let offset = cursor.u64(what("offset"))?;
    if !offset.is_multiple_of(alignment as u64) {
        let expected = format!("a multiple of the alignment {alignment}");
        return Err(cursor.field(what("offset"), start, expected, offset.to_string()));
    }
    let Ok(offset) = usize::try_from(offset) else {
        return Err(cursor.field(what("offset"), start, "an offset inside the file", offset.to_string()));
    };
    Ok(TensorInfo { name, dtype, shape, offset, length })
}

/// Checks that no two tensors share a name or bytes.
fn check_apart(cursor: &Cursor<'_>, path: &Path, tensors: &[TensorInfo]) -> Result<(), WeightsError> {
    let mut names = HashSet::with_capacity(tensors.len());
    for info in tensors {
        if !names.insert(info.name.as_str()) {
            return Err(duplicate(path, "tensor", &info.name, info.offset));
        }
    }
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_by_key(|info| info.offset);
    for pair in order.windows(2) {
        let end = pair[0].offset + pair[0].length;
        if end > pair[1].offset {
            let expected = format!("data after byte {end}, the end of tensor `{}`", pair[0].name);
            let found = format!("a start at byte {}", pair[1].offset);
            return Err(cursor.field(What::Tensor(&pair[1].name, "data"), pair[1].offset, expected, found));
        }
    }
    Ok(())
}

fn duplicate(path: &Path, kind: &'static str, name: &str, offset: usize) -> WeightsError {
    WeightsError::Duplicate { path: path.into(), kind, name: name.into(), place: format!("again at byte {offset}") }
}
