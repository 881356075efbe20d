//! One puller a model: a file lock that the system releases when its process ends.

use std::fs::{File, TryLockError};
use std::path::Path;

use crate::error::HubError;
use crate::options::{Event, PullOptions, Sink};

/// Held until dropped.
pub(crate) struct Lock {
    file: File,
}

impl Drop for Lock {
    /// Closing the file is not enough: a child process that is just being started holds a copy of it until it runs its program.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl Lock {
    /// Takes the lock, waiting for another holder and reporting once that it waits.
    pub(crate) fn take(path: &Path, options: &PullOptions, sink: Sink<'_>) -> Result<Self, HubError> {
        let mut reported = false;
        loop {
            if let Some(lock) = Self::try_take(path)? {
                return Ok(lock);
            }
            if !reported {
                sink(Event::Waiting { lock: path.to_path_buf() });
                reported = true;
            }
            options.pause(options.poll)?;
        }
    }

    /// Takes the lock if nobody holds it.
    pub(crate) fn try_take(path: &Path) -> Result<Option<Self>, HubError> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(|source| HubError::io("create", path, source))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(HubError::io("lock", path, source)),
        }
    }
}
