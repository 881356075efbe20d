//! Models split into several GGUF files, named `…-00001-of-00003.gguf` and linked by the keys `split.*`.

use super::header::Header;
use super::metadata::Metadata;
use super::value::Value;
use crate::WeightsError;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

const NUMBER: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";
/// The length of `-00001-of-00003.gguf`; numbers have five digits.
const SUFFIX_LEN: usize = 20;
const MAX_PARTS: u64 = 99_999;

/// The other parts of the model whose first part is at `path`; none if it is not split. All of them exist.
pub(super) fn others(path: &Path, first: &Header) -> Result<Vec<PathBuf>, WeightsError> {
    let count = match first.metadata.get(COUNT) {
        None => 1,
        Some(value) => match value.as_u64() {
            Some(count) if count <= MAX_PARTS => count,
            _ => return Err(field(path, COUNT, "a number of parts up to 99999", value)),
        },
    };
    if count <= 1 {
        return Ok(Vec::new());
    }
    let stem = path.file_name().and_then(|name| stem(name, count));
    let number = first.metadata.u64(NUMBER);
    if number != Some(0) {
        let found = first.metadata.get(NUMBER).map_or("no such key".into(), |v| format!("{v:?}"));
        return Err(WeightsError::Field {
            path: path.into(),
            field: format!("value of key `{NUMBER}`"),
            offset: 0,
            expected: format!("0, the first of {count} parts"),
            found,
            remedy: "open the part whose name contains -00001-of-",
        });
    }
    let Some(stem) = stem else {
        return Err(WeightsError::Field {
            path: path.into(),
            field: "file name".into(),
            offset: 0,
            expected: format!("a name that ends in -00001-of-{count:05}.gguf, because the model has {count} parts"),
            found: path.file_name().unwrap_or_default().display().to_string(),
            remedy: "give the parts their original names",
        });
    };
    let parts: Vec<PathBuf> = (2..=count).map(|no| path.with_file_name(part_name(&stem, no, count))).collect();
    let missing: Vec<String> = parts
        .iter()
        .filter(|part| !part.is_file())
        .map(|part| part.file_name().unwrap_or_default().display().to_string())
        .collect();
    if !missing.is_empty() {
        return Err(WeightsError::MissingFiles { path: path.into(), missing: missing.join(", ") });
    }
    Ok(parts)
}

/// Checks that part `index` (from 0) of `count` says that it is that part.
pub(super) fn check_part(path: &Path, part: &Header, index: usize, count: usize) -> Result<(), WeightsError> {
    for (key, expected) in [(NUMBER, index), (COUNT, count)] {
        if part.metadata.u64(key) != Some(expected as u64) {
            let found = part.metadata.get(key).cloned().unwrap_or(Value::String("no such key".into()));
            return Err(field(path, key, &expected.to_string(), &found));
        }
    }
    Ok(())
}

/// Checks the number of tensors of all parts against the one the first part declares.
pub(super) fn check_total(path: &Path, metadata: &Metadata, tensors: usize) -> Result<(), WeightsError> {
    match metadata.get(TENSORS) {
        Some(value) if value.as_u64() != Some(tensors as u64) => {
            Err(field(path, TENSORS, &format!("{tensors}, the tensors in all parts"), value))
        }
        _ => Ok(()),
    }
}

fn field(path: &Path, key: &str, expected: &str, found: &Value) -> WeightsError {
    WeightsError::Field {
        path: path.into(),
        field: format!("value of key `{key}`"),
        offset: 0,
        expected: expected.into(),
        found: match found {
            Value::Array(_) => "an array".into(),
            other => format!("{other:?}"),
        },
        remedy: "use parts that belong together, from one download",
    }
}

fn part_name(stem: &OsStr, number: u64, count: u64) -> OsString {
    let mut name = stem.to_owned();
    name.push(format!("-{number:05}-of-{count:05}.gguf"));
    name
}

/// The file name without its part suffix, if that is the one of the first of `count` parts.
fn stem(name: &OsStr, count: u64) -> Option<OsString> {
    let bytes = name.as_encoded_bytes();
    let cut = bytes.len().checked_sub(SUFFIX_LEN)?;
    let expected = format!("-00001-of-{count:05}.gguf");
    if &bytes[cut..] != expected.as_bytes() {
        return None;
    }
    Some(os_prefix(name, cut))
}

/// The first `cut` bytes of `name`, of which the rest is ASCII.
#[cfg(unix)]
fn os_prefix(name: &OsStr, cut: usize) -> OsString {
    use std::os::unix::ffi::OsStrExt;
    OsStr::from_bytes(&name.as_bytes()[..cut]).to_owned()
}

/// `name` without its last characters, as many as there are bytes from `cut` on, all ASCII.
#[cfg(windows)]
fn os_prefix(name: &OsStr, cut: usize) -> OsString {
    use std::os::windows::ffi::{OsStrExt, OsStringExt};
    let wide: Vec<u16> = name.encode_wide().collect();
    let dropped = name.as_encoded_bytes().len() - cut;
    OsString::from_wide(&wide[..wide.len() - dropped])
}

/// The first `cut` bytes of `name`, of which the rest is ASCII.
#[cfg(not(any(unix, windows)))]
fn os_prefix(name: &OsStr, cut: usize) -> OsString {
    name.to_string_lossy().chars().take(cut).collect::<String>().into()
}
