//! Models of a Hugging Face hub: listed, chosen, downloaded in verified chunks, installed.
//!
//! The hub gives one SHA-256 a file (and none for small files kept in Git), not one a chunk. So:
//! each chunk's digest is recorded as it arrives, and a resumed download fetches again exactly
//! the chunks that are missing or no longer match the disk. When every chunk matches its record
//! and the whole file is still wrong, the bytes arrived wrong: the file is discarded and fetched
//! once more, and then refused.

mod cache;
mod choose;
mod client;
mod download;
mod listing;
mod record;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::digest::of_file;
use crate::disk::{check_room, create_folder, publish, remove_folder};
use crate::error::HubError;
use crate::lock::Lock;
use crate::model_ref::HfRef;
use crate::options::{Event, PullOptions, Sink};
use crate::store::{Installed, Receipt, ReceiptFile, Store, hf_alias, now};
use client::Client;
use download::{Download, Progress};
use listing::{RemoteFile, Repository};

/// How a Hugging Face hub is reached.
#[derive(Clone)]
pub struct HfOptions {
    /// Scheme and host of the hub.
    pub endpoint: String,
    /// An access token; sent to the endpoint's host only, never to where it redirects.
    pub token: Option<String>,
    /// `http://host:port` of a proxy.
    pub proxy: Option<String>,
    /// The hub cache of other programs (`HF_HUB_CACHE`, or `hub` under `HF_HOME`). A file of the
    /// same commit found there is linked or copied instead of downloaded; nothing is written to
    /// it.
    pub cache: Option<PathBuf>,
    /// Bytes between two records of a download.
    pub chunk_bytes: u64,
    /// How long a connection may stay silent.
    pub timeout: Duration,
}

impl Default for HfOptions {
    fn default() -> Self {
        Self {
            endpoint: "https://huggingface.co".to_owned(),
            token: None,
            proxy: None,
            cache: None,
            chunk_bytes: 8 << 20,
            timeout: Duration::from_secs(60),
        }
    }
}

impl fmt::Debug for HfOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HfOptions")
            .field("endpoint", &self.endpoint)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("proxy", &self.proxy.as_ref().map(|_| "…"))
            .field("cache", &self.cache)
            .field("chunk_bytes", &self.chunk_bytes)
            .field("timeout", &self.timeout)
            .finish()
    }
}

/// Fetches a model of a Hugging Face hub into the store, unless it is there already.
///
/// With a file named, that file (and the other parts of a split GGUF) is fetched. Without one, the
/// repository's only GGUF, or else its safetensors with their configuration and tokenizer.
///
/// An interrupted download is kept beside the model and resumed by the next pull.
///
/// # Errors
/// Every failure of the hub, the network, the disk and the store; whichever it is, nothing
/// incomplete is left under a final name.
pub fn pull_hf(
    store: &Store,
    reference: &HfRef,
    options: &PullOptions,
    hf: &HfOptions,
    events: &mut dyn FnMut(Event),
) -> Result<Installed, HubError> {
    create_folder(&store.models_dir())?;
    let client = Client::new(hf)?;
    let repository = options.retry(events, |_, _| listing::list(&client, reference, options))?;
    let files = choose::choose(reference, &repository.files)?;
    let alias = alias_of(reference, &files);
    let _lock = Lock::take(&store.lock_path(&alias)?, options, events)?;
    let source = source_of(reference, &repository, &files);
    if let Some(installed) = store.find(&alias)
        && installed.source == source
    {
        events(Event::Done);
        return Ok(installed);
    }
    store.clean();
    let pull = Pull { reference, repository: &repository, options, hf, client: &client };
    let fetched = pull.files(&store.folder(&alias), &files, events)?;
    let one = match fetched.as_slice() {
        [file] => file.sha256.clone(),
        _ => None,
    };
    let installed = store.install(&Receipt {
        alias,
        source,
        licence: repository.licence.clone(),
        date: now(),
        bytes: fetched.iter().map(|file| file.bytes).sum(),
        sha256: one,
        files: fetched,
    })?;
    events(Event::Done);
    Ok(installed)
}

/// One GGUF is named after its file, so that several of a repository can be installed.
fn alias_of(reference: &HfRef, files: &[RemoteFile]) -> String {
    let first = files.first().map(|file| file.name.clone());
    let file = first.filter(|name| reference.file.is_some() || name.ends_with(".gguf"));
    hf_alias(&HfRef { file, ..reference.clone() })
}

fn source_of(reference: &HfRef, repository: &Repository, files: &[RemoteFile]) -> String {
    let file = match files {
        [file] => Some(file.name.clone()),
        _ => reference.file.clone(),
    };
    HfRef { revision: Some(repository.commit.clone()), file, ..reference.clone() }.to_string()
}

/// What the files of one pull have in common.
struct Pull<'a> {
    reference: &'a HfRef,
    repository: &'a Repository,
    options: &'a PullOptions,
    hf: &'a HfOptions,
    client: &'a Client,
}

impl Pull<'_> {
    fn files(&self, folder: &Path, files: &[RemoteFile], events: Sink<'_>) -> Result<Vec<ReceiptFile>, HubError> {
        let partial = folder.join(".partial");
        create_folder(&partial)?;
        let total = files.iter().map(|file| file.bytes).sum::<Option<u64>>();
        let present = record::bytes_on_disk(&partial);
        if let Some(total) = total {
            check_room(&partial, &[("what is still to fetch", total.saturating_sub(present))], self.options)?;
        }
        events(Event::Started { what: self.reference.to_string(), total });
        let mut progress = Progress::new(total);
        let mut fetched = Vec::new();
        for file in files {
            let done = self.file(folder, file, &mut progress, events)?;
            progress.file_done(done.bytes, events);
            fetched.push(done);
        }
        remove_folder(&partial)?;
        Ok(fetched)
    }

    fn file(
        &self,
        folder: &Path,
        file: &RemoteFile,
        progress: &mut Progress,
        events: Sink<'_>,
    ) -> Result<ReceiptFile, HubError> {
        let target = folder.join(&file.name);
        let staged = folder.join(".partial").join(&file.name);
        for path in [&target, &staged] {
            if let Some(parent) = path.parent() {
                create_folder(parent)?;
            }
        }
        if self.is_good(&target, file, events)? {
            let bytes = file.bytes.unwrap_or_default();
            return Ok(ReceiptFile { name: file.name.clone(), bytes, sha256: file.sha256.clone() });
        }
        if let Some(cached) = cache::find(self.hf.cache.as_deref(), self.reference, self.repository, file)
            && self.is_good(&cached, file, events)?
        {
            // A download of the same file may have begun before it came into the cache.
            let _ = fs::remove_file(&staged);
            cache::link_or_copy(&cached, &staged)?;
            publish(&staged, &target)?;
            let bytes = file.bytes.unwrap_or_default();
            return Ok(ReceiptFile { name: file.name.clone(), bytes, sha256: file.sha256.clone() });
        }
        let mut download = Download::new(self.client, self.options, self.url(file), file, &staged);
        let (bytes, sha256) = download.run(self.hf.chunk_bytes, progress, events)?;
        publish(&staged, &target)?;
        record::remove(&staged)?;
        Ok(ReceiptFile { name: file.name.clone(), bytes, sha256: Some(sha256) })
    }

    /// Whether a file on disk is the one listed; one whose digest is not listed is fetched again.
    fn is_good(&self, path: &Path, file: &RemoteFile, events: Sink<'_>) -> Result<bool, HubError> {
        let (Some(bytes), Some(sha256)) = (file.bytes, &file.sha256) else { return Ok(false) };
        if !fs::metadata(path).is_ok_and(|found| found.len() == bytes) {
            return Ok(false);
        }
        events(Event::Verifying);
        Ok(of_file(path, self.options)?.0 == *sha256)
    }

    fn url(&self, file: &RemoteFile) -> String {
        let HfRef { owner, repo, .. } = self.reference;
        let path = format!("/{owner}/{repo}/resolve/{}/{}", self.repository.commit, file.name);
        self.client.address(&path)
    }
}
