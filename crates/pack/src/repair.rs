//! Checks a `.gturbo` folder and repairs it.

use crate::layout::{contents, sides};
use crate::{Event, Importance, PackError, PackOptions};
use runtime::ModelFiles;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::Ordering;
use weights::gturbo::{CHUNK_BYTES, Damage, Manifest, digest};

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Files looked at, the manifest not counted.
    pub files: usize,
    /// Bytes read.
    pub bytes: u64,
    /// What is damaged, or was before it was repaired.
    pub damaged: Vec<Damage>,
    /// Whether it was repaired.
    pub repaired: bool,
}

/// Checks all hashes of the folder at `folder`. Damaged chunks are made again from the model at `repair`, if there is one: only
/// those are read and rounded, and written only if they get the hash they had.
pub fn verify(
    folder: &Path,
    repair: Option<&Path>,
    options: &PackOptions,
    events: &mut (dyn FnMut(Event) + Send),
) -> Result<Checked, PackError> {
    let manifest = Manifest::read(folder)?;
    let bytes = manifest.files.values().map(|entry| entry.bytes).sum();
    let mut damaged = check(folder, &manifest, options, events)?;
    let repaired = match repair {
        Some(source) if !damaged.is_empty() => {
            mend(folder, &manifest, &damaged, (source, options.importance.as_ref()))?;
            let left = check(folder, &manifest, options, events)?;
            let all = left.is_empty();
            if !all {
                damaged = left;
            }
            all
        }
        _ => false,
    };
    Ok(Checked { files: manifest.files.len(), bytes, damaged, repaired })
}

fn check(
    folder: &Path,
    manifest: &Manifest,
    options: &PackOptions,
    events: &mut (dyn FnMut(Event) + Send),
) -> Result<Vec<Damage>, PackError> {
    events(Event::Started { total: manifest.files.values().map(|entry| entry.bytes).sum() });
    let mut done = 0;
    let damaged = manifest.damage(folder, &mut |bytes| {
        done += bytes;
        events(Event::Bytes { done });
        !options.cancel.load(Ordering::Relaxed)
    })?;
    match options.cancel.load(Ordering::Relaxed) {
        true => Err(PackError::Cancelled { path: folder.to_owned() }),
        false => Ok(damaged),
    }
}

fn mend(
    folder: &Path,
    manifest: &Manifest,
    damaged: &[Damage],
    (source, importance): (&Path, Option<&Importance>),
) -> Result<(), PackError> {
    let other = |reason: String| PackError::OtherSource { path: source.to_owned(), reason };
    if manifest.quantisation.importance && importance.is_none() {
        return Err(other("it was rounded with importance of columns, and none is given (--imatrix)".to_owned()));
    }
    let files = ModelFiles::open(source)?;
    let mut all = contents(manifest, &files, importance)?;
    all.extend(sides(&files)?);
    for damage in damaged {
        let entry = &manifest.files[&damage.file];
        let path = folder.join(&damage.file);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(PackError::io("create", parent))?;
        }
        let open = File::options().create(true).truncate(false).write(true).open(&path);
        let mut file = open.map_err(PackError::io("write", &path))?;
        file.set_len(entry.bytes).map_err(PackError::io("write", &path))?;
        let content = all.get(&damage.file).filter(|content| content.bytes == entry.bytes);
        let content = content.ok_or_else(|| other(format!("it has no {} of {} bytes", damage.file, entry.bytes)))?;
        // Damage behind the end of a file is gone with it.
        if damage.bytes.start >= entry.bytes {
            continue;
        }
        let expected = &entry.chunks[(damage.bytes.start / CHUNK_BYTES) as usize];
        let mut bytes = Vec::new();
        content.produce(damage.bytes.start..damage.bytes.end.min(entry.bytes), &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        if digest(&bytes) != *expected {
            return Err(other(format!("it gives other bytes for {damage}")));
        }
        let written = file.seek(SeekFrom::Start(damage.bytes.start)).and_then(|_| file.write_all(&bytes));
        written.and_then(|()| file.sync_all()).map_err(PackError::io("write", &path))?;
    }
    Ok(())
}
