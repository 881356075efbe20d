//! SHA-256 of bytes as they pass.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::HubError;
use crate::options::PullOptions;

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The digest and length of a file.
pub(crate) fn of_file(path: &Path, options: &PullOptions) -> Result<(String, u64), HubError> {
    let read = |source| HubError::io("read", path, source);
    let mut file = File::open(path).map_err(read)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    let mut length = 0;
    loop {
        options.check_cancelled()?;
        let count = file.read(&mut buffer).map_err(read)?;
        if count == 0 {
            return Ok((hex(&hasher.finalize()), length));
        }
        hasher.update(&buffer[..count]);
        length += count as u64;
    }
}

/// Passes bytes on and hashes them.
pub(crate) struct HashingWriter<W> {
    inner: W,
    hasher: Sha256,
    length: u64,
}

impl<W: Write> HashingWriter<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self { inner, hasher: Sha256::new(), length: 0 }
    }

    /// The writer, the digest and the number of bytes passed.
    pub(crate) fn finish(self) -> (W, String, u64) {
        (self.inner, hex(&self.hasher.finalize()), self.length)
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        self.length += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
