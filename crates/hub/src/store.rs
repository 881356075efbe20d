//! The folder of pulled models and the receipts in it.
//!
//! ```text
//! <home>/models/<alias>/<file>         the model, complete and verified
//! <home>/models/<alias>/model.json     its receipt; without one there is no model
//! <home>/models/<alias>/.pull/         a pull in progress, discarded when it ends
//! <home>/models/<alias>/.partial/      a download that can be resumed
//! <home>/models/.locks/<alias>.lock    held by the process that pulls
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::catalogue::{catalogue_entry, unknown_alias};
use crate::disk::{create_folder, remove_folder, write_atomically};
use crate::error::HubError;
use crate::lock::Lock;
use crate::model_ref::{HfRef, ModelRef};
use crate::names::{check_component, check_relative};

const RECEIPT: &str = "model.json";

/// The models under one home folder.
#[derive(Clone, Debug)]
pub struct Store {
    home: PathBuf,
}

/// A model in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The name it is used by.
    pub alias: String,
    /// The model's file, or its folder when it consists of several.
    pub path: PathBuf,
    /// Bytes of all its files.
    pub bytes: u64,
    /// SHA-256 of the file, for a model of one file whose source gives one.
    pub sha256: Option<String>,
    /// Where it came from.
    pub source: String,
    /// Its licence, or what is known in its place.
    pub licence: String,
    /// When it was installed, as `2026-01-31T12:00:00Z`.
    pub date: String,
}

/// What `model.json` records.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) alias: String,
    pub(crate) source: String,
    pub(crate) licence: String,
    pub(crate) date: String,
    pub(crate) bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sha256: Option<String>,
    pub(crate) files: Vec<ReceiptFile>,
}

/// One file of a model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReceiptFile {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sha256: Option<String>,
}

impl Store {
    /// The store under `home`; nothing is created before something is written.
    pub fn new(home: PathBuf) -> Self {
        Self { home }
    }

    /// The home folder.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The folder that holds one folder a model.
    pub fn models_dir(&self) -> PathBuf {
        self.home.join("models")
    }

    /// Every complete model, by alias. Folders without a readable receipt, or whose files are
    /// missing or have another size, are left out.
    pub fn list(&self) -> Vec<Installed> {
        let Ok(entries) = fs::read_dir(self.models_dir()) else { return Vec::new() };
        let mut models: Vec<Installed> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|alias| self.find(&alias))
            .collect();
        models.sort_by(|a, b| a.alias.cmp(&b.alias));
        models
    }

    /// The complete model of this name.
    pub fn find(&self, alias: &str) -> Option<Installed> {
        check_component("alias", alias).ok()?;
        let folder = self.folder(alias);
        let receipt = read_receipt(&folder.join(RECEIPT)).ok()?;
        let complete = receipt
            .files
            .iter()
            .all(|file| fs::metadata(folder.join(&file.name)).is_ok_and(|found| found.len() == file.bytes));
        if !complete {
            return None;
        }
        let path = match receipt.files.as_slice() {
            [] => return None,
            [file] => folder.join(&file.name),
            _ => folder,
        };
        Some(Installed {
            alias: alias.to_owned(),
            path,
            bytes: receipt.bytes,
            sha256: receipt.sha256,
            source: receipt.source,
            licence: receipt.licence,
            date: receipt.date,
        })
    }

    /// The model pulled by this reference, whatever revision it named.
    pub fn find_hf(&self, reference: &HfRef) -> Option<Installed> {
        if reference.file.is_some() {
            return self.find(&hf_alias(reference));
        }
        let alias = hf_alias(reference);
        self.find(&alias).or_else(|| {
            // The repository's only GGUF was pulled under its own file's name.
            let prefix = format!("{alias}--");
            let repository = format!("hf:{}/{}@", reference.owner, reference.repo);
            let mut files = self
                .list()
                .into_iter()
                .filter(|model| model.alias.starts_with(&prefix) && model.source.starts_with(&repository));
            let first = files.next();
            if files.next().is_none() { first } else { None }
        })
    }

    /// The file or folder of a complete model.
    pub fn path(&self, alias: &str) -> Option<PathBuf> {
        self.find(alias).map(|model| model.path)
    }

    /// The file or folder a reference stands for.
    ///
    /// # Errors
    /// A model that is unknown, not installed, or a path where nothing is.
    pub fn resolve(&self, reference: &ModelRef) -> Result<PathBuf, HubError> {
        let not_installed = |alias: String| HubError::NotInstalled { alias, models: self.models_dir() };
        match reference {
            ModelRef::Path(path) => match fs::metadata(path) {
                Ok(_) => Ok(path.clone()),
                Err(source) => Err(HubError::NoSuchPath { path: path.clone(), source }),
            },
            ModelRef::Hf(hf) => self.find_hf(hf).map(|model| model.path).ok_or_else(|| not_installed(hf.to_string())),
            ModelRef::Alias(alias) => match self.path(alias) {
                Some(path) => Ok(path),
                None if catalogue_entry(alias).is_ok() => Err(not_installed(alias.clone())),
                None => Err(unknown_alias(alias, self.list().into_iter().map(|m| m.alias).collect())),
            },
        }
    }

    /// Removes a model and whatever an interrupted pull of it left.
    ///
    /// # Errors
    /// A name that is not in the store, a pull in progress, or files that cannot be removed.
    pub fn remove(&self, alias: &str) -> Result<(), HubError> {
        check_component("alias", alias)?;
        let folder = self.folder(alias);
        if !folder.is_dir() {
            return Err(unknown_alias(alias, self.list().into_iter().map(|m| m.alias).collect()));
        }
        let lock = self.lock_path(alias)?;
        let Some(_lock) = Lock::try_take(&lock)? else {
            return Err(HubError::Busy { alias: alias.to_owned() });
        };
        // Without its receipt a half-removed folder is no model.
        match fs::remove_file(folder.join(RECEIPT)) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(HubError::io("remove", &folder.join(RECEIPT), source))
            }
            _ => remove_folder(&folder),
        }
    }

    /// The folder of a model; `alias` has been checked.
    pub(crate) fn folder(&self, alias: &str) -> PathBuf {
        self.models_dir().join(alias)
    }

    /// The lock file of a model, in a folder that exists.
    pub(crate) fn lock_path(&self, alias: &str) -> Result<PathBuf, HubError> {
        let locks = self.models_dir().join(".locks");
        create_folder(&locks)?;
        Ok(locks.join(format!("{alias}.lock")))
    }

    /// Records a complete model; from here on it is installed.
    pub(crate) fn install(&self, receipt: &Receipt) -> Result<Installed, HubError> {
        let path = self.folder(&receipt.alias).join(RECEIPT);
        let text = serde_json::to_vec_pretty(receipt)
            .map_err(|error| HubError::BadReceipt { path: path.clone(), why: error.to_string() })?;
        write_atomically(&path, &text)?;
        self.find(&receipt.alias).ok_or_else(|| HubError::BadReceipt {
            path,
            why: "a file it names is missing or has another size".to_owned(),
        })
    }

    /// Removes what pulls of processes that no longer run left behind. Best effort: a folder
    /// that cannot be removed now is tried again at the next pull.
    pub(crate) fn clean(&self) {
        let Ok(entries) = fs::read_dir(self.models_dir()) else { return };
        for alias in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
            let staging = self.folder(&alias).join(".pull");
            if check_component("alias", &alias).is_err() || !staging.is_dir() {
                continue;
            }
            let lock = self.lock_path(&alias).and_then(|path| Lock::try_take(&path));
            if let Ok(Some(_lock)) = lock {
                let _ = remove_folder(&staging);
                // Fails, as it should, when the folder holds anything else.
                let _ = fs::remove_dir(self.folder(&alias));
            }
        }
    }
}

/// The name in the store of what a reference pulls; with a file, the file's name is part of it.
pub(crate) fn hf_alias(reference: &HfRef) -> String {
    let mut alias = format!("{}--{}", reference.owner, reference.repo);
    if let Some(revision) = &reference.revision {
        alias.push('@');
        alias.push_str(&revision.replace('/', "-"));
    }
    if let Some(file) = &reference.file {
        let name = file.rsplit('/').next().unwrap_or(file);
        alias.push_str("--");
        alias.push_str(name.strip_suffix(".gguf").unwrap_or(name));
    }
    alias
}

/// The present second in UTC, as RFC 3339 writes it.
pub(crate) fn now() -> String {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    rfc_3339(elapsed.as_secs())
}

/// Days to a date by Howard Hinnant's `civil_from_days`.
fn rfc_3339(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

fn read_receipt(path: &Path) -> Result<Receipt, HubError> {
    let text = fs::read(path).map_err(|source| HubError::io("read", path, source))?;
    let bad = |why: String| HubError::BadReceipt { path: path.to_path_buf(), why };
    let receipt: Receipt = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
    for file in &receipt.files {
        check_relative("file name", &file.name)?;
    }
    Ok(receipt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_across_leap_years() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc_3339(seconds), date);
        }
    }
}
