//! Files that grow in a folder beside their final place and get it all at once, when everything is there.
//!
//! ```text
//! OUT.partial/journal   a line that identifies the job, then one a finished chunk: file, number, SHA-256
//! OUT.partial/…         the files themselves
//! ```
//!
//! An interrupted job goes on after the last chunk that the journal names and whose bytes still have the hash. Nothing in the
//! journal is believed without that.

use crate::content::Content;
use crate::error::SLACK;
use crate::{Event, PackError, PackOptions};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use weights::gturbo::{CHUNK_BYTES, FileEntry, MANIFEST, Manifest, digest};

const JOURNAL: &str = "journal";

/// The folder of a job in progress, held by one process at a time.
pub(crate) struct Partial<'a> {
    out: &'a Path,
    folder: PathBuf,
    journal: File,
    /// Hashes of the chunks that the journal names, by file.
    known: BTreeMap<String, Vec<String>>,
    options: &'a PackOptions,
    progress: Progress<'a>,
}

struct Progress<'a> {
    events: &'a mut dyn FnMut(Event),
    done: u64,
    resumed: u64,
}

impl<'a> Partial<'a> {
    /// Begins the job that `identity` describes, or goes on with it.
    pub(crate) fn open(
        out: &'a Path,
        identity: &[u8],
        options: &'a PackOptions,
        events: &'a mut dyn FnMut(Event),
    ) -> Result<Self, PackError> {
        let mut name = out.as_os_str().to_owned();
        name.push(".partial");
        let folder = PathBuf::from(name);
        let exists = || PackError::Exists { path: out.to_owned() };
        if out.symlink_metadata().is_ok() {
            return Err(exists());
        }
        fs::create_dir_all(&folder).map_err(PackError::io("create", &folder))?;
        let path = folder.join(JOURNAL);
        let open = File::options().create(true).read(true).append(true).open(&path);
        let mut journal = open.map_err(PackError::io("create", &path))?;
        match journal.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(PackError::Busy { path: out.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(PackError::io("lock", &path)(source)),
        }
        // Who held the lock before may have finished meanwhile.
        if out.symlink_metadata().is_ok() {
            return Err(exists());
        }
        let mut text = String::new();
        // A journal with bytes that are no text is no journal of ours.
        let read = journal.read_to_string(&mut text).map(|_| ());
        let identity = digest(identity);
        let known = match read {
            Ok(()) if text.lines().next() == Some(identity.as_str()) => chunks_of(&text),
            _ => {
                clear(&folder)?;
                journal.set_len(0).map_err(PackError::io("write", &path))?;
                writeln!(journal, "{identity}").map_err(PackError::io("write", &path))?;
                BTreeMap::new()
            }
        };
        // An interrupted line must not swallow the next one.
        if !text.is_empty() && !text.ends_with('\n') {
            writeln!(journal).map_err(PackError::io("write", &path))?;
        }
        Ok(Self { out, folder, journal, known, options, progress: Progress { events, done: 0, resumed: 0 } })
    }

    /// Refuses to begin what the disk cannot hold, and announces the work.
    pub(crate) fn begin(&mut self, total: u64) -> Result<(), PackError> {
        let there: u64 = self.known.values().map(|chunks| chunks.len() as u64 * CHUNK_BYTES).sum();
        let needed = total.saturating_sub(there);
        // A file system that cannot say how much is free is written to until it is full.
        let available = self.options.available_bytes.or_else(|| fs4::available_space(&self.folder).ok());
        if let Some(available) = available.filter(|available| *available < needed.saturating_add(SLACK)) {
            return Err(PackError::NotEnoughSpace { path: self.out.to_owned(), needed, available });
        }
        (self.progress.events)(Event::Started { total });
        Ok(())
    }

    /// Writes a file, or what is missing of it.
    pub(crate) fn write(&mut self, name: &str, content: &Content) -> Result<FileEntry, PackError> {
        let path = self.folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(PackError::io("create", parent))?;
        }
        let open = File::options().create(true).truncate(false).read(true).write(true).open(&path);
        let file = open.map_err(PackError::io("create", &path))?;
        let known = self.known.remove(name).unwrap_or_default();
        let entry = FileEntry { bytes: content.bytes, ..FileEntry::default() };
        let mut writing = Writing { job: self, name, path, file, entry, all: Sha256::new(), chunk: Vec::new() };
        let start = writing.resume(&known)?;
        content.produce(start..content.bytes, &mut |bytes| writing.put(bytes))?;
        writing.finish()
    }

    /// Gives a complete folder its name; gives back how many bytes an earlier run had written.
    pub(crate) fn publish_folder(self, manifest: &Manifest) -> Result<u64, PackError> {
        write_synced(&self.folder.join(MANIFEST), &manifest.to_json())?;
        let journal = self.folder.join(JOURNAL);
        drop(self.journal);
        fs::remove_file(&journal).map_err(PackError::io("remove", &journal))?;
        sync_folder(&self.folder);
        rename(&self.folder, self.out)?;
        Ok(self.progress.resumed)
    }

    /// Gives a complete file its name and removes the folder.
    pub(crate) fn publish_file(self, name: &str) -> Result<u64, PackError> {
        rename(&self.folder.join(name), self.out)?;
        drop(self.journal);
        fs::remove_dir_all(&self.folder).map_err(PackError::io("remove", &self.folder))?;
        Ok(self.progress.resumed)
    }
}

/// One file being written.
struct Writing<'w, 'a> {
    job: &'w mut Partial<'a>,
    name: &'w str,
    path: PathBuf,
    file: File,
    entry: FileEntry,
    all: Sha256,
    chunk: Vec<u8>,
}

impl Writing<'_, '_> {
    /// Takes the chunks that are there and as the journal says; gives the place to go on at.
    fn resume(&mut self, known: &[String]) -> Result<u64, PackError> {
        let read = |source| PackError::io("read", &self.path)(source);
        let mut at = 0;
        for expected in known {
            let length = CHUNK_BYTES.min(self.entry.bytes - at);
            self.chunk.clear();
            let found = (&mut self.file).take(length).read_to_end(&mut self.chunk).map_err(read)?;
            if length == 0 || found as u64 != length || digest(&self.chunk) != *expected {
                break;
            }
            self.all.update(&self.chunk);
            self.entry.chunks.push(expected.clone());
            at += length;
            self.job.progress.resumed += length;
            self.job.progress.advance(length);
        }
        self.chunk.clear();
        let write = |source| PackError::io("write", &self.path)(source);
        self.file.set_len(at).map_err(write)?;
        self.file.seek(SeekFrom::Start(at)).map_err(write)?;
        Ok(at)
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<(), PackError> {
        while !bytes.is_empty() {
            let room = CHUNK_BYTES as usize - self.chunk.len();
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            self.chunk.extend_from_slice(now);
            bytes = rest;
            if self.chunk.len() as u64 == CHUNK_BYTES {
                self.end_chunk()?;
            }
        }
        self.check_cancelled()
    }

    fn end_chunk(&mut self) -> Result<(), PackError> {
        self.file.write_all(&self.chunk).map_err(PackError::io("write", &self.path))?;
        let hash = digest(&self.chunk);
        let line = format!("{} {hash} {}\n", self.entry.chunks.len(), self.name);
        let journal = self.job.folder.join(JOURNAL);
        self.job.journal.write_all(line.as_bytes()).map_err(PackError::io("write", &journal))?;
        self.all.update(&self.chunk);
        self.entry.chunks.push(hash);
        self.job.progress.advance(self.chunk.len() as u64);
        self.chunk.clear();
        self.check_cancelled()
    }

    fn check_cancelled(&self) -> Result<(), PackError> {
        match self.job.options.cancel.load(Ordering::Relaxed) {
            true => Err(PackError::Cancelled { path: self.job.out.to_owned() }),
            false => Ok(()),
        }
    }

    fn finish(mut self) -> Result<FileEntry, PackError> {
        if !self.chunk.is_empty() {
            self.end_chunk()?;
        }
        self.file.sync_all().map_err(PackError::io("write", &self.path))?;
        self.entry.sha256 = self.all.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(self.entry)
    }
}

impl Progress<'_> {
    fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        (self.events)(Event::Bytes { done: self.done });
    }
}

/// The journal's chunks of each file, as far as their numbers follow each other. A file written again, because its
/// chunks were damaged, has lines again: the last ones count.
fn chunks_of(journal: &str) -> BTreeMap<String, Vec<String>> {
    let mut known: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in journal.lines().skip(1) {
        let mut words = line.splitn(3, ' ');
        let (Some(number), Some(hash), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
        let Ok(number) = number.parse::<usize>() else { continue };
        let chunks = known.entry(name.to_owned()).or_default();
        if number <= chunks.len() && hash.len() == 64 {
            chunks.truncate(number);
            chunks.push(hash.to_owned());
        }
    }
    known
}

/// Removes what another job left in a folder.
fn clear(folder: &Path) -> Result<(), PackError> {
    for entry in fs::read_dir(folder).map_err(PackError::io("read", folder))? {
        let path = entry.map_err(PackError::io("read", folder))?.path();
        if path.file_name().is_some_and(|name| name == JOURNAL) {
            continue;
        }
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(PackError::io("remove", &path))?;
    }
    Ok(())
}

fn rename(from: &Path, to: &Path) -> Result<(), PackError> {
    // Renaming replaces files and empty folders that came there meanwhile.
    if to.symlink_metadata().is_ok() {
        return Err(PackError::Exists { path: to.to_owned() });
    }
    fs::rename(from, to).map_err(|source| match source.kind() {
        ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty => PackError::Exists { path: to.to_owned() },
        _ => PackError::io("write", to)(source),
    })?;
    to.parent().into_iter().for_each(sync_folder);
    Ok(())
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), PackError> {
    let written = File::create(path).and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
    written.map_err(PackError::io("write", path))
}

/// A name is durable once its folder is; not every system can sync one.
fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}
