//! Read-only memory maps of whole files: the only `unsafe` code of this crate.
#![allow(unsafe_code)]

use crate::WeightsError;
use memmap2::Mmap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A whole file mapped read-only.
#[derive(Debug)]
pub(crate) struct Map {
    mapping: Mmap,
    path: Arc<Path>,
}

impl Map {
    /// Maps the file at `path`; a missing, empty or irregular file is an error that says so.
    pub(crate) fn open(path: &Path) -> Result<Self, WeightsError> {
        let io = |action| move |source| WeightsError::Io { action, path: path.into(), source };
        let file = match File::open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(WeightsError::NotFound { path: path.into() });
            }
            // Windows refuses to open a directory at all.
            Err(_) if path.is_dir() => return Err(WeightsError::Directory { path: path.into() }),
            other => other.map_err(io("open"))?,
        };
        let about = file.metadata().map_err(io("inspect"))?;
        if about.is_dir() {
            return Err(WeightsError::Directory { path: path.into() });
        }
        if about.len() == 0 {
            return Err(WeightsError::Empty { path: path.into() });
        }
        // SAFETY: the map is read-only and lives as long as every slice handed out, which borrows from it.
        // A file changed or truncated by another program while it is mapped is outside what a process can
        // prevent; opening a model states that its files stay as they are while it is loaded.
        let mapping = unsafe { Mmap::map(&file) }.map_err(io("map"))?;
        Ok(Self { mapping, path: path.into() })
    }

    /// The bytes of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.mapping
    }

    /// The file.
    pub(crate) fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// Lets the system drop the pages wholly inside `range`; they are read again when next touched.
    #[cfg(unix)]
    pub(crate) fn advise_dont_need(&self, range: Range<usize>) {
        // Every page size in use divides 64 KiB, and the map starts on a page.
        const PAGE: usize = 64 * 1024;
        let start = range.start.next_multiple_of(PAGE);
        let end = range.end.min(self.mapping.len()) / PAGE * PAGE;
        if start < end {
            // SAFETY: the map is file-backed and never written, so a dropped page is read from the file again
            // with the same content; the range lies inside the map.
            let advised =
                unsafe { self.mapping.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
            // Advice is a hint: a kernel that declines it changes nothing but memory use.
            drop(advised);
        }
    }

    /// Advice does not exist here: nothing happens.
    #[cfg(not(unix))]
    pub(crate) fn advise_dont_need(&self, _range: Range<usize>) {}
}
