//! The JSON header of a safetensors file and the checks on its ranges.

use crate::tensor::element_count;
use crate::{DType, WeightsError};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::Path;

/// Larger headers are refused, as the reference implementation does.
const MAX_HEADER: u64 = 100_000_000;
/// The bytes of the header's length.
const LENGTH_BYTES: usize = 8;
/// The name in the header that is no tensor.
pub(super) const METADATA_NAME: &str = "__metadata__";

/// The checked header of one file.
#[derive(Debug)]
pub struct Header {
    /// The strings of `__metadata__`.
    pub metadata: BTreeMap<String, String>,
    /// The tensors in data order.
    pub tensors: Vec<TensorInfo>,
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
    let report = Report { path };
    let (json, data_offset) = header_text(bytes, &report)?;
    let raw: RawHeader = serde_json::from_str(json).map_err(|error| {
        let expected = "a JSON object of tensor descriptions";
        report.field("header".into(), LENGTH_BYTES, expected.into(), error.to_string())
    })?;
    let data_length = bytes.len() - data_offset;
    let mut tensors = Vec::with_capacity(raw.tensors.len());
    for (name, raw) in raw.tensors {
        tensors.push(describe(name, raw, data_length, &report)?);
    }
    tensors.sort_by_key(|info| (info.offset, info.length));
    let mut covered = 0;
    for info in &mut tensors {
        if info.offset != covered {
            let problem = if info.offset < covered { "an overlap" } else { "a gap" };
            let found = format!("{problem}: a start at {}", info.offset);
            let expected = format!("data that starts at {covered}, the end of the tensors before it");
            return Err(report.field(offsets_of(&info.name), data_offset + covered, expected, found));
        }
        covered += info.length;
        info.offset += data_offset;
    }
    if covered != data_length {
        let expected = format!("{covered} bytes, the end of the last tensor");
        let found = format!("{data_length} bytes");
        return Err(report.field("data".into(), data_offset + covered, expected, found));
    }
    Ok(Header { metadata: raw.metadata, tensors, data_offset })
}

/// The header's text and where the data starts.
fn header_text<'a>(bytes: &'a [u8], report: &Report<'_>) -> Result<(&'a str, usize), WeightsError> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(report.truncated("header length", 0, LENGTH_BYTES as u64, bytes.len()));
    };
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER {
        let expected = format!("at most {MAX_HEADER} (is this a safetensors file?)");
        return Err(report.field("header length".into(), 0, expected, length.to_string()));
    }
    let Some(text) = rest.get(..length as usize) else {
        return Err(report.truncated("header", LENGTH_BYTES, length, rest.len()));
    };
    let text = std::str::from_utf8(text).map_err(|error| {
        let at = LENGTH_BYTES + error.valid_up_to();
        report.field("header".into(), at, "UTF-8 text".into(), "other bytes".into())
    })?;
    if !text.starts_with('{') {
        let found = text.chars().next().map_or("nothing".into(), |c| format!("{c:?}"));
        return Err(report.field("header".into(), LENGTH_BYTES, "the character '{'".into(), found));
    }
    Ok((text, LENGTH_BYTES + length as usize))
}

/// Checks one entry; `offset` is still relative to the data section.
fn describe(name: String, raw: RawTensor, data_length: usize, report: &Report<'_>) -> Result<TensorInfo, WeightsError> {
    let at = LENGTH_BYTES;
    let Some(dtype) = DType::from_safetensors(&raw.dtype) else {
        let field = format!("dtype of tensor `{name}`");
        return Err(report.field(field, at, "a known dtype".into(), format!("{:?}", raw.dtype)));
    };
    let (start, end) = raw.data_offsets;
    let Some(length) = end.checked_sub(start).filter(|_| end <= data_length) else {
        let expected = format!("start ≤ end ≤ {data_length}, the length of the data");
        return Err(report.field(offsets_of(&name), at, expected, format!("[{start}, {end}]")));
    };
    let needed = element_count(&raw.shape).and_then(|n| dtype.bytes_for(n));
    if needed != Some(length) {
        let expected = format!("a shape of {length} bytes (as the offsets say) of {dtype}");
        let found = match needed {
            Some(needed) => format!("{:?} of {needed} bytes", raw.shape),
            None => format!("{:?}, which is no whole number of bytes below 2^64", raw.shape),
        };
        return Err(report.field(format!("shape of tensor `{name}`"), at, expected, found));
    }
    Ok(TensorInfo { name, dtype, shape: raw.shape, offset: start, length })
}

fn offsets_of(name: &str) -> String {
    format!("data_offsets of tensor `{name}`")
}

/// Makes errors about one file.
struct Report<'a> {
    path: &'a Path,
}

impl Report<'_> {
    fn field(&self, field: String, offset: usize, expected: String, found: String) -> WeightsError {
        WeightsError::Field {
            path: self.path.into(),
            field,
            offset: offset as u64,
            expected,
            found,
            remedy: "the file is damaged or of a kind not served, download or convert it again",
        }
    }

    fn truncated(&self, field: &str, offset: usize, needed: u64, left: usize) -> WeightsError {
        WeightsError::Truncated {
            path: self.path.into(),
            field: field.into(),
            offset: offset as u64,
            needed,
            left: left as u64,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTensor {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

struct RawHeader {
    metadata: BTreeMap<String, String>,
    tensors: Vec<(String, RawTensor)>,
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

/// Reads the header object, refusing a name that comes twice.
struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = RawHeader;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensor descriptions")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
        let mut raw = RawHeader { metadata: BTreeMap::new(), tensors: Vec::new() };
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            let named = |error| de::Error::custom(format!("`{name}`: {error}"));
            if !names.insert(name.clone()) {
                return Err(de::Error::custom(format!("duplicate name `{name}`")));
            }
            if name == METADATA_NAME {
                raw.metadata = map.next_value::<UniqueStrings>().map_err(named)?.0;
            } else {
                let tensor = map.next_value().map_err(named)?;
                raw.tensors.push((name, tensor));
            }
        }
        Ok(raw)
    }
}

/// A JSON object of strings in which no name comes twice.
pub(super) struct UniqueStrings(pub(super) BTreeMap<String, String>);

impl<'de> Deserialize<'de> for UniqueStrings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(StringsVisitor)
    }
}

struct StringsVisitor;

impl<'de> Visitor<'de> for StringsVisitor {
    type Value = UniqueStrings;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<UniqueStrings, A::Error> {
        let mut strings = BTreeMap::new();
        while let Some((name, value)) = map.next_entry::<String, String>()? {
            if strings.contains_key(&name) {
                return Err(de::Error::custom(format!("duplicate name `{name}`")));
            }
            strings.insert(name, value);
        }
        Ok(UniqueStrings(strings))
    }
}
