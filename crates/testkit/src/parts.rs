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

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

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
pub(crate) fn with_whole<T>(path: &Path, open: impl FnOnce(&Path) -> T) -> T {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    if path.exists() || !parts_of(path).exists() {
        return open(path);
    }
    let name = format!("turbospark-golden-{}-{}.gguf", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let whole = std::env::temp_dir().join(name);
    std::fs::write(&whole, assemble(path)).unwrap_or_else(|e| panic!("{}: {e}", whole.display()));
    let opened = open(&whole);
    // An open mapping outlives the name; where it does not, the file stays in the temporary folder.
    let _ = std::fs::remove_file(&whole);
    opened
}

fn assemble(path: &Path) -> Vec<u8> {
    let read = |path: &Path| std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (parts, tensors) = (read(&parts_of(path)), read(&path.with_extension("safetensors")));
    let (length, rest) = parts.split_first_chunk::<8>().expect("a length");
    let (list, own) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let widened: Vec<u8> = tensors.as_chunks::<2>().0.iter().flat_map(|[low, high]| [0, 0, *low, *high]).collect();
    let sources = [own, tensors.as_slice(), widened.as_slice()];
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
