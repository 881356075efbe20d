//! The folder of saved trees: one file a fingerprint, all of them within one bound, each replaced in one step.

use super::PrefixFileError;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const BEGINNING: &str = "prefixes-";

/// How a whole file's name ends.
const WHOLE: &str = "bin";

/// How the name of one ends that is being written; the number of the process follows.
const PART: &str = "part";

/// The file of a fingerprint.
pub(super) fn file(folder: &Path, fingerprint: &[u8; 32]) -> PathBuf {
    let name: String = fingerprint[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    folder.join(format!("{BEGINNING}{name}.{WHOLE}"))
}

/// Whether a file's name is one that is given here: to a whole file, or else to a part.
fn is_ours(path: &Path, whole: bool) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(BEGINNING));
    let Some((fingerprint, ending)) = name.and_then(|name| name.split_once('.')) else { return false };
    let process = |ending: &str| ending.strip_prefix(PART).is_some_and(|id| id.parse::<u32>().is_ok());
    fingerprint.len() == 16
        && fingerprint.bytes().all(|byte| byte.is_ascii_hexdigit())
        && if whole { ending == WHOLE } else { process(ending) }
}

/// Writes a file beside its place and moves it there when it is complete. Others' files, those written last but longest ago
/// first, make way where all would have more than `limit` bytes.
pub(super) fn publish(folder: &Path, path: &Path, content: &[u8], limit: u64) -> Result<(), PrefixFileError> {
    let io = |path: &Path, source| PrefixFileError::Io { path: path.to_owned(), source };
    fs::create_dir_all(folder).map_err(|e| io(folder, e))?;
    make_way(folder, path, limit.saturating_sub(content.len() as u64)).map_err(|e| io(folder, e))?;
    let part = path.with_extension(format!("{PART}{}", std::process::id()));
    let written = create(&part).and_then(|mut file| {
        // Says that somebody is at work on it; a file system without locks keeps what a crash leaves.
        let _ = file.try_lock();
        file.write_all(content)?;
        file.sync_all()
    });
    let moved = written.and_then(|()| fs::rename(&part, path));
    moved.map_err(|e| {
        // What is left of it is of no use; that it could not be written is what counts.
        let _ = fs::remove_file(&part);
        io(path, e)
    })
}

/// Creates a file that only its owner reads: it tells what was said.
fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Removes what processes that are gone left unfinished, and whole files but `own` until they have at most `limit` bytes.
fn make_way(folder: &Path, own: &Path, limit: u64) -> io::Result<()> {
    let mut others = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // What cannot be looked at or removed is another process's to care for.
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        if !found.is_file() {
            continue;
        }
        if is_ours(&path, false) && File::open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = fs::remove_file(&path);
        } else if is_ours(&path, true) && path != own {
            others.push((found.modified().unwrap_or(SystemTime::UNIX_EPOCH), found.len(), path));
        }
    }
    others.sort();
    let mut bytes: u64 = others.iter().map(|(_, bytes, _)| bytes).sum();
    for (_, size, path) in others {
        if bytes <= limit {
            break;
        }
        if fs::remove_file(path).is_ok() {
            bytes -= size;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (name, whole, part) in [
            ("prefixes-0123456789abcdef.bin", true, false),
            ("prefixes-0123456789abcdef.part12", false, true),
            ("prefixes-0123456789abcdef.part", false, false),
            ("prefixes-0123456789abcde.bin", false, false),
            ("prefixes-0123456789abcdeg.bin", false, false),
            ("prefixes-0123456789abcdef.bin.bak", false, false),
            ("other.bin", false, false),
        ] {
            assert_eq!((is_ours(name.as_ref(), true), is_ours(name.as_ref(), false)), (whole, part), "{name}");
        }
        assert!(is_ours(&file("x".as_ref(), &[7; 32]), true));
    }
}
