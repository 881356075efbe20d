//! Hashes of files and of their chunks: which bytes are not what was written.

use super::{CHUNK_BYTES, FileEntry, Manifest};
use crate::WeightsError;
use sha2::{Digest, Sha256};
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What is checked when a packed model is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// The hashes of all bytes.
    Full,
    /// That every file has its size.
    #[default]
    Size,
    /// Nothing but what reading needs: that tensors lie within their files.
    Off,
}

/// A part of a file that is not what was packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file, relative to the folder.
    pub file: String,
    /// The bytes of it that are wrong or missing, one chunk or less.
    pub bytes: Range<u64>,
    /// What is wrong.
    pub why: String,
    /// Tensors with bytes there.
    pub tensors: Vec<String>,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 3;
        write!(f, "{} bytes {}..{}: {}", self.file, self.bytes.start, self.bytes.end, self.why)?;
        match self.tensors.len() {
            0 => Ok(()),
            1..=SHOWN => write!(f, " (in {})", self.tensors.join(", ")),
            n => write!(f, " (in {} and {} more)", self.tensors[..SHOWN].join(", "), n - SHOWN),
        }
    }
}

/// The SHA-256 of bytes, as lower-case hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Size and hashes of a file.
pub fn hash_file(path: &Path) -> std::io::Result<FileEntry> {
    let mut file = File::open(path)?;
    let (mut all, mut entry, mut chunk) = (Sha256::new(), FileEntry::default(), Vec::new());
    loop {
        chunk.clear();
        (&mut file).take(CHUNK_BYTES).read_to_end(&mut chunk)?;
        if chunk.is_empty() {
            break;
        }
        entry.bytes += chunk.len() as u64;
        entry.chunks.push(digest(&chunk));
        all.update(&chunk);
    }
    entry.sha256 = all.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(entry)
}

impl Verify {
    /// Checks the files of a folder; the error names the first damage.
    pub(super) fn check(self, folder: &Path, manifest: &Manifest) -> Result<(), WeightsError> {
        let damaged = match self {
            Self::Off => return Ok(()),
            Self::Size => manifest.wrong_sizes(folder)?,
            Self::Full => manifest.damage(folder, &mut |_| true)?,
        };
        match damaged.first() {
            None => Ok(()),
            Some(first) => {
                Err(WeightsError::Damaged { path: folder.into(), count: damaged.len(), first: first.to_string() })
            }
        }
    }
}

impl Manifest {
    /// The files that are missing or have another size.
    pub fn wrong_sizes(&self, folder: &Path) -> Result<Vec<Damage>, WeightsError> {
        let mut damaged = Vec::new();
        for (name, entry) in &self.files {
            let path = folder.join(name);
            let found = match std::fs::metadata(&path) {
                Ok(about) => about.len(),
                Err(error) if error.kind() == ErrorKind::NotFound => 0,
                Err(source) => return Err(WeightsError::Io { action: "inspect", path, source }),
            };
            if found != entry.bytes {
                let why = format!("{found} bytes there, {} expected", entry.bytes);
                damaged.push(self.damage_at(name, found.min(entry.bytes)..entry.bytes.max(found), why));
            }
        }
        Ok(damaged)
    }

    /// Every chunk that is not what was packed, in order, found on as many threads as there are cores. `progress` gets the
    /// bytes of each chunk that has been read; when it says no, the search ends early.
    pub fn damage(
        &self,
        folder: &Path,
        progress: &mut (dyn FnMut(u64) -> bool + Send),
    ) -> Result<Vec<Damage>, WeightsError> {
        let chunks_of = |(name, entry): (&'_ String, &'_ FileEntry)| -> Vec<(String, Range<u64>, String)> {
            let chunk = |(i, digest): (usize, &String)| {
                let start = i as u64 * CHUNK_BYTES;
                (name.clone(), start..entry.bytes.min(start + CHUNK_BYTES), digest.clone())
            };
            entry.chunks.iter().enumerate().map(chunk).collect()
        };
        let chunks: Vec<_> = self.files.iter().flat_map(chunks_of).collect();
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let results = Mutex::new((Vec::new(), progress));
        let work = || {
            let mut buffer = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let Some((name, range, expected)) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                let why = read(&folder.join(name), range, &mut buffer);
                let why = why.or_else(|| (digest(&buffer) != *expected).then(|| "other bytes than were packed".into()));
                let mut results = results.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                results.0.extend(why.map(|why| self.damage_at(name, range.clone(), why)));
                if !(results.1)(range.end - range.start) {
                    stop.store(true, Ordering::Relaxed);
                }
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(chunks.len().max(1));
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
        let (mut damaged, _) = results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        // What is behind the end of a file belongs to no chunk.
        let longer = self.wrong_sizes(folder)?.into_iter().filter(|d| d.bytes.start >= self.files[&d.file].bytes);
        damaged.extend(longer);
        damaged.sort_by(|a: &Damage, b| (&a.file, a.bytes.start).cmp(&(&b.file, b.bytes.start)));
        Ok(damaged)
    }

    fn damage_at(&self, file: &str, bytes: Range<u64>, why: String) -> Damage {
        let tensors = self.tensors_in(file, bytes.clone()).map(str::to_owned).collect();
        Damage { file: file.to_owned(), bytes, why, tensors }
    }
}

/// Reads a range of a file; says what is missing, if something is.
fn read(path: &Path, range: &Range<u64>, buffer: &mut Vec<u8>) -> Option<String> {
    buffer.clear();
    let wanted = range.end - range.start;
    let read = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(range.start))?;
        file.take(wanted).read_to_end(buffer)
    });
    match read {
        Ok(found) if found as u64 == wanted => None,
        Ok(found) => Some(format!("{found} bytes there, {wanted} expected")),
        Err(error) if error.kind() == ErrorKind::NotFound => Some("the file is missing".into()),
        // A sector that cannot be read is damage as well, not the end of the search.
        Err(error) => Some(format!("cannot be read ({error})")),
    }
}
