//! Golden GGUF files that hold mostly the bytes of the safetensors file beside them, kept as what they add.
//!
//! `model.gguf.parts`: the length of a JSON list (8 bytes, little-endian), the list, and bytes of its own. The list's
//! entries `[source, offset, length]` are the pieces of the GGUF file in order. Source 0 is the file itself, after the
//! list; source 1 is the whole safetensors file of the same name; source 2 is that file with two zero bytes before every
//! two bytes, which is each of its BF16 tensors as F32.
//!
//! An entry may go on with `count, stride` pairs: it then stands for `count` pieces whose offsets are `stride` apart, the
//! first pair being the outermost loop. `[1, o, 128, 4, 2048, 8, 128, 2, 1024]` is a matrix of 4 heads of 16 rows of 128
//! bytes whose rotated pairs are made neighbours.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use weights::WeightsError;
use weights::gguf::GgufFile;
use weights::safetensors::SafetensorsFile;

/// The file that stands for `gguf`.
fn parts_of(gguf: &Path) -> PathBuf {
    let mut name = gguf.as_os_str().to_owned();
    name.push(".parts");
    PathBuf::from(name)
}

/// Whether a golden file is there, whole or in parts.
pub(crate) fn exists(path: &Path) -> bool {
    path.exists() || parts_of(path).exists()
}

/// Calls `open` with the path of a golden file, put together in a temporary place where it is kept in parts.
pub fn with_whole<T>(path: &Path, open: impl FnOnce(&Path) -> T) -> T {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    if path.exists() || !parts_of(path).exists() {
        return open(path);
    }
    let name = format!("turbospark-golden-{}-{}.gguf", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let whole = std::env::temp_dir().join(name);
    let bytes = assemble(&read(&parts_of(path)), &read(&tensors_of(path)));
    std::fs::write(&whole, bytes).unwrap_or_else(|e| panic!("{}: {e}", whole.display()));
    let opened = open(&whole);
    // An open mapping outlives the name; where it does not, the file stays in the temporary folder.
    let _ = std::fs::remove_file(&whole);
    opened
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The safetensors file beside `gguf`.
fn tensors_of(gguf: &Path) -> PathBuf {
    gguf.with_extension("safetensors")
}

/// What source 2 holds.
fn widened(bytes: &[u8]) -> Vec<u8> {
    bytes.as_chunks::<2>().0.iter().flat_map(|[low, high]| [0, 0, *low, *high]).collect()
}

fn assemble(parts: &[u8], tensors: &[u8]) -> Vec<u8> {
    let (length, rest) = parts.split_first_chunk::<8>().expect("a length");
    let (list, own) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let widened = widened(tensors);
    let sources = [own, tensors, widened.as_slice()];
    let mut whole = Vec::new();
    for piece in serde_json::from_slice::<Vec<Vec<usize>>>(list).expect("a list of pieces") {
        let [source, offset, length, loops @ ..] = piece.as_slice() else { panic!("{piece:?} is no piece") };
        append(&mut whole, &sources[*source][*offset..], *length, loops);
    }
    whole
}

/// Appends the first `length` bytes of `source`, once for every turn of the `count, stride` loops.
fn append(whole: &mut Vec<u8>, source: &[u8], length: usize, loops: &[usize]) {
    match loops {
        [count, stride, inner @ ..] => {
            (0..*count).for_each(|turn| append(whole, &source[turn * stride..], length, inner));
        }
        _ => whole.extend_from_slice(&source[..length]),
    }
}

/// What to keep as `model.gguf.parts` instead of a GGUF file: rows of its tensors that are also rows of the safetensors
/// file beside it, in any order and as BF16 or F32, are taken from there.
///
/// # Panics
/// If one of the files is not there or not what it should be.
pub fn take_apart(gguf: &Path) -> Vec<u8> {
    // Shorter rows are not worth an entry.
    const LEAST: usize = 64;
    let file = read(gguf);
    let [wanted, there] = [gguf, &tensors_of(gguf)].map(|path| rows_of(path).unwrap_or_else(|e| panic!("{e}")));
    let mut known = HashMap::new();
    for (at, row) in &there {
        known.entry(row.clone()).or_insert((1, *at));
        known.entry(widened(row)).or_insert((2, 2 * at));
    }
    let (mut pieces, mut own, mut done) = (Vec::new(), Vec::new(), 0);
    for (at, row) in wanted.iter().filter(|(_, row)| row.len() >= LEAST) {
        if let Some((source, offset)) = known.get(row)
            && *at >= done
        {
            keep(&mut pieces, &mut own, &file[done..*at]);
            extend(&mut pieces, [*source, *offset, row.len()]);
            done = at + row.len();
        }
    }
    keep(&mut pieces, &mut own, &file[done..]);
    let list = serde_json::to_vec(&pieces).expect("a list of numbers");
    [&(list.len() as u64).to_le_bytes(), list.as_slice(), own.as_slice()].concat()
}

fn keep(pieces: &mut Vec<[usize; 3]>, own: &mut Vec<u8>, bytes: &[u8]) {
    extend(pieces, [0, own.len(), bytes.len()]);
    own.extend_from_slice(bytes);
}

/// Adds a piece, to the last one if it continues it.
fn extend(pieces: &mut Vec<[usize; 3]>, piece: [usize; 3]) {
    match pieces.last_mut() {
        _ if piece[2] == 0 => (),
        Some(last) if last[0] == piece[0] && last[1] + last[2] == piece[1] => last[2] += piece[2],
        _ => pieces.push(piece),
    }
}

/// The rows of a file's tensors with their places in it, in order.
fn rows_of(path: &Path) -> Result<Vec<(usize, Vec<u8>)>, WeightsError> {
    let weights = if path.extension() == Some(OsStr::new("gguf")) {
        GgufFile::open(path)?.weights().clone()
    } else {
        SafetensorsFile::open(path)?.weights().clone()
    };
    let file = read(path);
    let mut rows = Vec::new();
    for tensor in weights.iter() {
        let (bytes, row) = (tensor.bytes(), tensor.bytes().len() / tensor.rows());
        let start = file.windows(bytes.len()).position(|window| window == bytes).expect("is in its file");
        rows.extend((start..).step_by(row).zip(bytes.chunks(row).map(<[u8]>::to_vec)));
    }
    rows.sort();
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::{assemble, read, take_apart, tensors_of};
    use crate::golden;

    #[test]
    fn a_file_taken_apart_is_small_and_whole_again() {
        let gguf = golden("llama").join("model.gguf");
        let (file, parts) = (read(&gguf), take_apart(&gguf));
        assert!(parts.len() < file.len() / 10, "{} bytes of {}", parts.len(), file.len());
        assert!(assemble(&parts, &read(&tensors_of(&gguf))) == file);
    }
}
