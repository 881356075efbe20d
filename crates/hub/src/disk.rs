//! Folders, free space and files that appear all at once.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::error::{Bytes, HubError};
use crate::options::PullOptions;

/// Kept free beside what a pull needs, for records and the file system's own growth.
const SLACK: u64 = 16 << 20;

/// Creates a folder and its parents.
pub(crate) fn create_folder(path: &Path) -> Result<(), HubError> {
    fs::create_dir_all(path).map_err(|source| match HubError::io("create", path, source) {
        HubError::NotWritable { source, .. } => HubError::NotWritable { path: path.to_path_buf(), source },
        HubError::Io { source, .. } => HubError::NotWritable { path: path.to_path_buf(), source },
        other => other,
    })
}

/// Removes a folder and what it holds; one that is not there is fine.
pub(crate) fn remove_folder(path: &Path) -> Result<(), HubError> {
    match fs::remove_dir_all(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(HubError::io("remove", path, source)),
        _ => Ok(()),
    }
}

/// Refuses to begin what the disk cannot hold. `parts` are named sizes that add up to the need.
pub(crate) fn check_room(folder: &Path, parts: &[(&str, u64)], options: &PullOptions) -> Result<(), HubError> {
    let available = match options.available_bytes {
        Some(bytes) => bytes,
        // A file system that cannot say how much is free is written to until it is full.
        None => match fs4::available_space(folder) {
            Ok(bytes) => bytes,
            Err(_) => return Ok(()),
        },
    };
    let needed = parts.iter().fold(SLACK, |sum, (_, bytes)| sum.saturating_add(*bytes));
    if needed <= available {
        return Ok(());
    }
    let mut detail: Vec<String> = parts.iter().map(|(name, bytes)| format!("{name} {}", Bytes(*bytes))).collect();
    detail.push(format!("reserve {}", Bytes(SLACK)));
    Err(HubError::NotEnoughSpace { path: folder.to_path_buf(), needed, detail: detail.join(" + "), available })
}

/// Gives a complete, synced file its final name in one step.
pub(crate) fn publish(from: &Path, to: &Path) -> Result<(), HubError> {
    fs::rename(from, to).map_err(|source| HubError::io("write", to, source))?;
    // The name is durable once its folder is; not every system can sync one.
    if let Some(folder) = to.parent().and_then(|folder| File::open(folder).ok()) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// Writes a small file so that readers see the old or the new content, never a part.
pub(crate) fn write_atomically(path: &Path, content: &[u8]) -> Result<(), HubError> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    let temporary = path.with_file_name(name);
    let written = File::create(&temporary).and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()));
    if let Err(source) = written {
        let _ = fs::remove_file(&temporary);
        return Err(HubError::io("write", &temporary, source));
    }
    publish(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d59_room_is_checked_with_its_arithmetic() {
        let options = PullOptions { available_bytes: Some(100_000_000), ..PullOptions::default() };
        let parts = [("model", 98_000_000), ("download", 92_000_000)];
        let error = check_room(Path::new("/store"), &parts, &options).unwrap_err().to_string();
        for part in ["/store", "206.8 MB needed", "model 98.0 MB", "100.0 MB available", "106.8 MB short"] {
            assert!(error.contains(part), "{part:?} is not in {error}");
        }
        assert!(check_room(Path::new("/store"), &[("model", 1)], &options).is_ok());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn d59_a_full_disk_is_named() {
        let path = Path::new("/dev/full");
        let mut file = File::options().write(true).open(path).unwrap();
        let error = HubError::io("write", path, file.write_all(b"x").unwrap_err());
        assert!(matches!(error, HubError::DiskFull { .. }), "{error}");
    }
}
