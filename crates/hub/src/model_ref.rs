//! What a user types for a model.

use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;

use crate::error::HubError;
use crate::names::{check_component, check_relative};

/// A model as named on a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelRef {
    /// A bare word: a catalogued or installed model.
    Alias(String),
    /// A file or folder: anything with a separator, a leading dot or a model's extension.
    Path(PathBuf),
    /// `hf:owner/repo[@revision][/file]`.
    Hf(HfRef),
}

/// A repository on a Hugging Face hub, and perhaps one file of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HfRef {
    /// The user or organisation.
    pub owner: String,
    /// The repository's name.
    pub repo: String,
    /// A branch, tag or commit; `None` is the default branch.
    pub revision: Option<String>,
    /// A path inside the repository; `None` takes its only model.
    pub file: Option<String>,
}

impl ModelRef {
    /// Reads a reference. Whether an alias exists is decided by [`catalogue_entry`] or
    /// [`Store::resolve`], whether a path exists by the latter.
    ///
    /// [`catalogue_entry`]: crate::catalogue_entry
    /// [`Store::resolve`]: crate::Store::resolve
    ///
    /// # Errors
    /// Empty text, a malformed `hf:` reference, or names that must not become paths.
    pub fn parse(given: impl AsRef<OsStr>) -> Result<Self, HubError> {
        let given = given.as_ref();
        let Some(text) = given.to_str() else { return Ok(Self::Path(given.into())) };
        if text.is_empty() {
            return Err(bad(text, "it is empty"));
        }
        if let Some(rest) = text.strip_prefix("hf:") {
            return HfRef::parse(text, rest).map(Self::Hf);
        }
        let lower = text.to_ascii_lowercase();
        let is_path = text.contains(['/', '\\'])
            || text.starts_with(['.', '~'])
            || [".gguf", ".gturbo", ".safetensors", ".json"].iter().any(|e| lower.ends_with(e));
        if is_path {
            return Ok(Self::Path(text.into()));
        }
        check_component("alias", text).map_err(|_| bad(text, "an alias is one plain word"))?;
        Ok(Self::Alias(text.to_owned()))
    }
}

impl HfRef {
    fn parse(given: &str, rest: &str) -> Result<Self, HubError> {
        let (owner, rest) = rest.split_once('/').ok_or_else(|| bad(given, "the owner or the repository is missing"))?;
        // A revision may hold slashes only when written %2F, as in the hub's own addresses.
        let (head, file) = match rest.split_once('/') {
            Some((head, file)) => (head, Some(file)),
            None => (rest, None),
        };
        let (repo, revision) = match head.split_once('@') {
            Some((repo, revision)) => (repo, Some(revision.replace("%2F", "/").replace("%2f", "/"))),
            None => (head, None),
        };
        check_component("owner", owner)?;
        check_component("repository name", repo)?;
        if let Some(revision) = &revision {
            check_relative("revision", revision)?;
        }
        if let Some(file) = file {
            check_relative("file name", file)?;
        }
        Ok(Self { owner: owner.to_owned(), repo: repo.to_owned(), revision, file: file.map(str::to_owned) })
    }

    /// The reference without its file.
    pub fn repository(&self) -> String {
        Self { file: None, ..self.clone() }.to_string()
    }
}

impl fmt::Display for HfRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hf:{}/{}", self.owner, self.repo)?;
        if let Some(revision) = &self.revision {
            write!(f, "@{}", revision.replace('/', "%2F"))?;
        }
        if let Some(file) = &self.file {
            write!(f, "/{file}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alias(alias) => f.write_str(alias),
            Self::Path(path) => path.display().fmt(f),
            Self::Hf(reference) => reference.fmt(f),
        }
    }
}

fn bad(given: &str, why: &str) -> HubError {
    HubError::BadReference { given: given.to_owned(), why: why.to_owned() }
}
