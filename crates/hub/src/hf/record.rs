//! What is known about a partial file: which chunks arrived, and their digests then.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::digest::hex;
use crate::disk::write_atomically;
use crate::error::HubError;
use crate::options::PullOptions;

/// Kept beside the partial file, rewritten after every chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// What names the remote file: its SHA-256, or else its commit and name.
    pub(super) identity: String,
    pub(super) bytes: u64,
    pub(super) chunk_bytes: u64,
    /// The validator of the server that sends the bytes.
    pub(super) etag: Option<String>,
    /// SHA-256 of each chunk as it arrived.
    pub(super) chunks: Vec<Option<String>>,
}

impl Record {
    pub(super) fn new(identity: &str, bytes: u64, chunk_bytes: u64) -> Self {
        let chunk_bytes = chunk_bytes.max(1);
        let count = bytes.div_ceil(chunk_bytes) as usize;
        let identity = identity.to_owned();
        Self { identity, bytes, chunk_bytes, etag: None, chunks: vec![None; count] }
    }

    /// The record of a partial file, if there is one of the same remote file.
    pub(super) fn load(partial: &Path, identity: &str, bytes: u64) -> Option<Self> {
        let record = read(&record_path(partial))?;
        (record.identity == identity && record.bytes == bytes).then_some(record)
    }

    pub(super) fn save(&self, partial: &Path) -> Result<(), HubError> {
        let path = record_path(partial);
        let text = serde_json::to_vec(self)
            .map_err(|error| HubError::BadReceipt { path: path.clone(), why: error.to_string() })?;
        write_atomically(&path, &text)
    }

    /// Where chunk `index` begins and ends.
    pub(super) fn range(&self, index: usize) -> (u64, u64) {
        let start = index as u64 * self.chunk_bytes;
        (start, (start + self.chunk_bytes).min(self.bytes))
    }

    /// The first run of chunks that are missing.
    pub(super) fn missing(&self) -> Option<(usize, usize)> {
        let first = self.chunks.iter().position(Option::is_none)?;
        let rest = self.chunks[first..].iter().position(Option::is_some);
        Some((first, rest.map_or(self.chunks.len(), |count| first + count)))
    }

    /// Bytes of the chunks that arrived.
    pub(super) fn present(&self) -> u64 {
        let chunks = self.chunks.iter().enumerate().filter(|(_, digest)| digest.is_some());
        chunks.map(|(index, _)| self.range(index)).map(|(start, end)| end - start).sum()
    }

    /// Forgets every chunk.
    pub(super) fn reset(&mut self) {
        self.chunks.fill(None);
        self.etag = None;
    }

    /// Reads the partial file, forgets the chunks that do not match what arrived, and gives the
    /// digest of the whole and how many were forgotten.
    pub(super) fn check(&mut self, partial: &Path, options: &PullOptions) -> Result<(String, usize), HubError> {
        let read = |source| HubError::io("read", partial, source);
        let mut file = File::open(partial).map_err(read)?;
        let mut whole = Sha256::new();
        let mut forgotten = 0;
        let mut buffer = vec![0; 1 << 18];
        for index in 0..self.chunks.len() {
            let (start, end) = self.range(index);
            let mut left = end - start;
            let mut chunk = Sha256::new();
            while left > 0 {
                options.check_cancelled()?;
                let wanted = left.min(buffer.len() as u64) as usize;
                let count = file.read(&mut buffer[..wanted]).map_err(read)?;
                if count == 0 {
                    break;
                }
                whole.update(&buffer[..count]);
                chunk.update(&buffer[..count]);
                left -= count as u64;
            }
            let expected = &mut self.chunks[index];
            if expected.is_some() && (left > 0 || *expected != Some(hex(&chunk.finalize()))) {
                *expected = None;
                forgotten += 1;
            }
        }
        Ok((hex(&whole.finalize()), forgotten))
    }
}

/// Removes the record of a file that is complete.
pub(super) fn remove(partial: &Path) -> Result<(), HubError> {
    let path = record_path(partial);
    fs::remove_file(&path).map_err(|source| HubError::io("remove", &path, source))
}

/// Bytes that earlier downloads into a folder have recorded; nothing for one that is not there.
pub(super) fn bytes_on_disk(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let sizes = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        if path.is_dir() {
            return Some(bytes_on_disk(&path));
        }
        let is_record = path.extension().is_some_and(|extension| extension == "record");
        is_record.then(|| read(&path).map_or(0, |record| record.present()))
    });
    sizes.sum()
}

/// Bytes recorded of one partial file.
pub(super) fn bytes_recorded(partial: &Path) -> u64 {
    read(&record_path(partial)).map_or(0, |record| record.present())
}

fn read(path: &Path) -> Option<Record> {
    let record: Record = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    let fits = record.chunk_bytes > 0 && record.chunks.len() as u64 == record.bytes.div_ceil(record.chunk_bytes);
    fits.then_some(record)
}

fn record_path(partial: &Path) -> PathBuf {
    let mut name = partial.file_name().unwrap_or_default().to_os_string();
    name.push(".record");
    partial.with_file_name(name)
}
