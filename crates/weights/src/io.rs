//! Reads of whole stretches of a file into memory of their own, past the page cache where the system allows it.

use crate::WeightsError;
use bytemuck::{Pod, Zeroable};
use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What direct reads are aligned to, in the file and in memory: as much as any disk in use asks for.
pub const PAGE: usize = 4096;

/// A stretch of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// The file.
    pub path: Arc<Path>,
    /// Its first byte.
    pub offset: u64,
    /// How many.
    pub bytes: usize,
}

impl FileRange {
    /// Bytes of [`Pages`] that hold it whatever its alignment: [`read`] fetches whole pages.
    pub fn window(&self) -> usize {
        (self.head() + self.bytes).next_multiple_of(PAGE)
    }

    /// Bytes between the page's beginning and the first byte.
    fn head(&self) -> usize {
        (self.offset % PAGE as u64) as usize
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// Memory aligned for direct reads.
pub struct Pages(Vec<Page>);

impl Pages {
    /// Zeros, at least `bytes` of them.
    pub fn new(bytes: usize) -> Self {
        Self(bytemuck::allocation::zeroed_vec(bytes.div_ceil(PAGE)))
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }

    /// All bytes, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages", self.0.len())
    }
}

/// A file that can be read anywhere, by several threads at once.
pub trait ReadAt: fmt::Debug + Send + Sync {
    /// Reads some bytes at `offset`; 0 means that the file ends there.
    ///
    /// # Errors
    /// The system's.
    fn read_at(&self, offset: u64, to: &mut [u8]) -> io::Result<usize>;
}

/// How files are opened for reading: [`Disk`], or what a test puts in its place.
pub trait OpenFiles: fmt::Debug + Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// The system's.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadAt>>;
}

/// The file system, without its cache (`O_DIRECT`) where that works and with it elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl OpenFiles for Disk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadAt>> {
        let cached = File::open(path)?;
        Ok(Arc::new(DiskFile { cached, direct: open_direct(path), refused: AtomicBool::new(false) }))
    }
}

/// A file opened twice: direct reads are for whole pages only, and some file systems accept the flag and then refuse them.
#[derive(Debug)]
struct DiskFile {
    cached: File,
    direct: Option<File>,
    refused: AtomicBool,
}

#[cfg(target_os = "linux")]
fn open_direct(path: &Path) -> Option<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().read(true).custom_flags(libc::O_DIRECT).open(path).ok()
}

#[cfg(not(target_os = "linux"))]
fn open_direct(_: &Path) -> Option<File> {
    None
}

#[cfg(unix)]
fn read_file(file: &File, offset: u64, to: &mut [u8]) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, to, offset)
}

#[cfg(windows)]
fn read_file(file: &File, offset: u64, to: &mut [u8]) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, to, offset)
}

impl ReadAt for DiskFile {
    fn read_at(&self, offset: u64, to: &mut [u8]) -> io::Result<usize> {
        let whole_pages = offset.is_multiple_of(PAGE as u64) && to.len().is_multiple_of(PAGE);
        if let Some(direct) = self.direct.as_ref().filter(|_| whole_pages && !self.refused.load(Ordering::Relaxed)) {
            match read_file(direct, offset, to) {
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    self.refused.store(true, Ordering::Relaxed);
                }
                other => return other,
            }
        }
        read_file(&self.cached, offset, to)
    }
}

/// Reads a stretch of a file and returns where it begins in `pages`, which hold at least its [`FileRange::window`].
///
/// # Errors
/// [`WeightsError::Read`] if the system fails or the file ends before the stretch does.
pub fn read(file: &dyn ReadAt, range: &FileRange, pages: &mut Pages) -> Result<usize, WeightsError> {
    let head = range.head();
    let (start, wanted) = (range.offset - head as u64, head + range.bytes);
    let window = &mut pages.bytes_mut()[..range.window()];
    let failed = |got: usize, reason: String| WeightsError::Read {
        path: range.path.to_path_buf(),
        offset: range.offset,
        expected: range.bytes,
        found: got.saturating_sub(head),
        reason,
    };
    let mut got = 0;
    while got < wanted {
        match file.read_at(start + got as u64, &mut window[got..]) {
            Ok(0) => return Err(failed(got, "the file ends there".to_owned())),
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(got, error.to_string())),
        }
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Crumbs(Vec<u8>, usize);

    impl ReadAt for Crumbs {
        fn read_at(&self, offset: u64, to: &mut [u8]) -> io::Result<usize> {
            let rest = &self.0[(offset as usize).min(self.0.len())..];
            let some = rest.len().min(to.len()).min(self.1);
            to[..some].copy_from_slice(&rest[..some]);
            Ok(some)
        }
    }

    fn content() -> Vec<u8> {
        (0..3 * PAGE + 777).map(|i| (i * 31 % 251) as u8).collect()
    }

    /// Any place and length, direct or not, in one read or in crumbs.
    #[test]
    fn stretches_come_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, content()).expect("written");
        let disk = Disk.open(&path).expect("opened");
        let files: [&dyn ReadAt; 3] = [&*disk, &Crumbs(content(), 5), &Crumbs(content(), PAGE)];
        for (offset, bytes) in [(0, 1), (0, PAGE), (1, PAGE), (PAGE - 1, 2), (5000, 8000), (3 * PAGE + 700, 77)] {
            let range = FileRange { path: path.as_path().into(), offset: offset as u64, bytes };
            for file in files {
                let mut pages = Pages::new(range.window());
                let at = read(file, &range, &mut pages).expect("read");
                assert_eq!(pages.bytes()[at..at + bytes], content()[offset..offset + bytes], "{offset} {bytes}");
            }
        }
    }

    #[test]
    fn a_short_file_is_said_to_be_short() {
        let range = FileRange { path: Path::new("/models/x.gguf").into(), offset: 3 * PAGE as u64 + 700, bytes: 100 };
        let error = read(&Crumbs(content(), 10), &range, &mut Pages::new(range.window())).expect_err("too short");
        let text = error.to_string();
        for part in ["/models/x.gguf", "100 bytes", "at byte 12988", "77 came"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
