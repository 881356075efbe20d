//! What a user types for a model, to a file or folder on disk.

use crate::arguments::{HomeFlag, StoreFlags};
use crate::environment;
use crate::failure::Failure;
use crate::interrupt;
use crate::output;
use crate::progress::PullProgress;
use hub::{CatalogueEntry, HfRef, Installed, ModelRef, PullOptions, Store, catalogue_entry};
use indicatif::HumanBytes;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The model that `run` takes when none is named.
pub(crate) const DEFAULT_MODEL: &str = "smollm2";

/// The prefix of models that replay a script.
const SCRIPTED: &str = "scripted:";

/// Whether a model replays a script.
pub(crate) fn is_scripted(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(SCRIPTED.as_bytes())
}

/// The store, and how absent models get into it.
#[derive(Debug)]
pub(crate) struct Models {
    pub(crate) store: Store,
    python: Option<PathBuf>,
    quiet: bool,
}

/// What a model's name stands for.
#[derive(Debug)]
pub(crate) enum Found {
    /// A file or folder on disk, or a script.
    Here(OsString),
    /// A catalogued model that is not here yet.
    Catalogued(&'static CatalogueEntry),
    /// A model of a Hugging Face hub that is not here yet.
    OnHub(HfRef),
}

impl HomeFlag {
    /// The folder to use.
    pub(crate) fn folder(&self) -> Result<PathBuf, Failure> {
        let home = self.home.clone().or_else(environment::home);
        home.ok_or_else(|| Failure::message("this user has no home folder; name one with --home or TURBOSPARK_HOME"))
    }

    /// The store in it.
    pub(crate) fn store(&self) -> Result<Store, Failure> {
        Ok(Store::new(self.folder()?))
    }
}

impl StoreFlags {
    /// The models under the home folder.
    pub(crate) fn models(&self, quiet: bool) -> Result<Models, Failure> {
        Ok(Models { store: self.home.store()?, python: self.python.clone(), quiet })
    }
}

impl Models {
    /// What a name stands for; fetches nothing.
    pub(crate) fn find(&self, name: &OsStr) -> Result<Found, Failure> {
        let here = |path: &OsStr| Ok(Found::Here(path.to_owned()));
        if is_scripted(name) {
            return here(name);
        }
        let exists = || !name.is_empty() && Path::new(name).exists();
        let reference = match ModelRef::parse(name) {
            Err(_) if exists() => return here(name),
            other => other?,
        };
        match reference {
            ModelRef::Alias(alias) => match (self.store.path(&alias), catalogue_entry(&alias)) {
                (Some(path), _) => here(path.as_os_str()),
                (None, Ok(entry)) => Ok(Found::Catalogued(entry)),
                (None, Err(_)) if exists() => here(name),
                (None, Err(_)) => here(self.store.resolve(&ModelRef::Alias(alias))?.as_os_str()),
            },
            ModelRef::Hf(reference) => match self.store.find_hf(&reference) {
                Some(installed) => here(installed.path.as_os_str()),
                None => Ok(Found::OnHub(reference)),
            },
            path @ ModelRef::Path(_) => here(self.store.resolve(&path)?.as_os_str()),
        }
    }

    /// What `Engine::open` takes for a model, pulled first if it is absent.
    pub(crate) fn fetch(&self, found: Found) -> Result<OsString, Failure> {
        Ok(match found {
            Found::Here(path) => path,
            Found::Catalogued(entry) => self.pull_entry(entry)?.path.into_os_string(),
            Found::OnHub(reference) => self.pull_hf(&reference)?.path.into_os_string(),
        })
    }

    /// Finds and fetches.
    pub(crate) fn locate(&self, name: &OsStr) -> Result<OsString, Failure> {
        self.fetch(self.find(name)?)
    }

    /// Whether a word is a model rather than the beginning of a prompt.
    pub(crate) fn names_a_model(&self, word: &OsStr) -> bool {
        let text = word.to_string_lossy();
        if is_scripted(word) || text.starts_with("hf:") || Path::new(word).exists() {
            return true;
        }
        match ModelRef::parse(word) {
            Ok(ModelRef::Path(_)) => !text.contains(char::is_whitespace),
            Ok(ModelRef::Alias(alias)) => catalogue_entry(&alias).is_ok() || self.store.path(&alias).is_some(),
            Ok(ModelRef::Hf(_)) => true,
            Err(_) => false,
        }
    }

    /// Fetches a catalogued model, its licence and size shown first.
    pub(crate) fn pull_entry(&self, entry: &CatalogueEntry) -> Result<Installed, Failure> {
        if !self.quiet {
            output::note(&format!(
                "pulling {}: {} ({} to fetch, {} on disk; licence {})",
                entry.alias,
                entry.description,
                HumanBytes(entry.download_bytes),
                HumanBytes(entry.file_bytes),
                entry.licence
            ));
        }
        self.pull(|options, events| hub::pull(&self.store, entry, options, events))
    }

    /// Fetches a model of a Hugging Face hub.
    #[cfg(feature = "hf")]
    pub(crate) fn pull_hf(&self, reference: &HfRef) -> Result<Installed, Failure> {
        let hf = environment::hf_options();
        self.pull(|options, events| hub::pull_hf(&self.store, reference, options, &hf, events))
    }

    /// Fails: this build cannot reach the hub.
    #[cfg(not(feature = "hf"))]
    pub(crate) fn pull_hf(&self, reference: &HfRef) -> Result<Installed, Failure> {
        let known = hub::CATALOGUE.iter().map(|entry| entry.alias.to_owned()).collect();
        Err(hub::HubError::HfNotBuilt { reference: reference.to_string(), known }.into())
    }

    fn pull(
        &self,
        fetch: impl FnOnce(&PullOptions, &mut dyn FnMut(hub::Event)) -> Result<Installed, hub::HubError>,
    ) -> Result<Installed, Failure> {
        let listening = interrupt::listen();
        let options = PullOptions { python: self.python.clone(), cancel: listening.flag(), ..PullOptions::default() };
        let mut progress = PullProgress::new(self.quiet);
        let installed = fetch(&options, &mut |event| progress.event(event)).inspect_err(|error| {
            if matches!(error, hub::HubError::Cancelled) {
                output::note(&error.to_string());
            }
        })?;
        if !self.quiet {
            output::note(&format!(
                "{} is at {} ({}; licence {})",
                installed.alias,
                installed.path.display(),
                HumanBytes(installed.bytes),
                installed.licence
            ));
        }
        Ok(installed)
    }
}
