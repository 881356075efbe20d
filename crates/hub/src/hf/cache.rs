//! Files other programs have already fetched into the hub's cache layout.

use std::fs;
use std::path::{Path, PathBuf};

use super::listing::{RemoteFile, Repository};
use crate::error::HubError;
use crate::model_ref::HfRef;

/// The file of the same commit, behind the snapshot's link.
pub(super) fn find(
    cache: Option<&Path>,
    reference: &HfRef,
    repository: &Repository,
    file: &RemoteFile,
) -> Option<PathBuf> {
    let folder = format!("models--{}--{}", reference.owner, reference.repo);
    let snapshot = cache?.join(folder).join("snapshots").join(&repository.commit);
    fs::canonicalize(snapshot.join(&file.name)).ok()
}

/// Makes `to` the same file where the file system can, and a copy where it cannot.
pub(super) fn link_or_copy(from: &Path, to: &Path) -> Result<(), HubError> {
    if fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    fs::copy(from, to).and_then(|_| fs::File::open(to)?.sync_all()).map_err(|source| HubError::io("write", to, source))
}
