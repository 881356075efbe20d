//! The one error type of the crate.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a name was refused or a model could not be fetched.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HubError {
    /// The text is no model reference.
    #[error(
        "{given:?} is not a model: {why}; expected an alias such as smollm2, a path such as \
         ./model.gguf, or hf:owner/repo[@revision][/file]"
    )]
    BadReference {
        /// What was typed.
        given: String,
        /// What is wrong with it.
        why: String,
    },
    /// No catalogued or installed model has this name.
    #[error("{}", unknown_alias(alias, near, known))]
    UnknownAlias {
        /// What was typed.
        alias: String,
        /// Known names that look like it.
        near: Vec<String>,
        /// Every known name.
        known: Vec<String>,
    },
    /// The model is known, but its file is not in the store.
    #[error("{alias} is not installed under {}; fetch it with: turbospark pull {alias}", models.display())]
    NotInstalled {
        /// The reference to pull.
        alias: String,
        /// The folder searched.
        models: PathBuf,
    },
    /// A path given as a model does not exist.
    #[error("no model at {}: {source}", path.display())]
    NoSuchPath {
        /// The path given.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A name from a repository or archive must not become a path.
    #[error("the {what} {name:?} is refused: {why}; nothing was written")]
    UnsafeName {
        /// What carries the name.
        what: &'static str,
        /// The name as received.
        name: String,
        /// The rule it breaks.
        why: &'static str,
    },
    /// No Python with pip was found.
    #[error(
        "pulling this model needs Python's pip, and none works. Tried: {}. Install Python 3 with \
         pip, or name an interpreter with --python",
        tried.join("; ")
    )]
    NoPip {
        /// Each command tried, with why it does not serve.
        tried: Vec<String>,
    },
    /// The package index or hub could not be reached.
    #[error(
        "{what} could not be downloaded: this machine seems to be offline, or a proxy or the \
         server does not answer ({attempts} attempts). Check the connection and the proxy or pip \
         settings, then pull again. Last message: {detail}"
    )]
    Offline {
        /// What was being fetched.
        what: String,
        /// Attempts made.
        attempts: u32,
        /// The last message of the failing side.
        detail: String,
    },
    /// The package index has no such version.
    #[error(
        "the package index has no {requirement}; it may have been withdrawn, or the index pip is \
         configured for does not carry it. pip said: {detail}"
    )]
    PackageMissing {
        /// The pinned requirement.
        requirement: String,
        /// The end of pip's log.
        detail: String,
    },
    /// The package index serves another file than the pinned one.
    #[error(
        "the package index serves a {requirement} with another SHA-256 than the expected \
         {expected}; it is not used. pip said: {detail}"
    )]
    PackageChanged {
        /// The pinned requirement.
        requirement: String,
        /// The pinned digest.
        expected: String,
        /// The end of pip's log.
        detail: String,
    },
    /// pip failed for another reason.
    #[error("{command} failed for {requirement} ({status}, {attempts} attempts). It said: {detail}")]
    PipFailed {
        /// The command run.
        command: String,
        /// The pinned requirement.
        requirement: String,
        /// Its exit status.
        status: String,
        /// Attempts made.
        attempts: u32,
        /// The end of pip's log.
        detail: String,
    },
    /// An archive is not the expected wheel.
    #[error("{} is not a usable wheel: {why}", path.display())]
    BadArchive {
        /// The archive.
        path: PathBuf,
        /// What is wrong with it, with the values found.
        why: String,
    },
    /// A complete file has another length than announced.
    #[error("{what} has {found} bytes; expected {expected}. The source changed or was cut short; pull again")]
    WrongLength {
        /// The file.
        what: String,
        /// Bytes announced.
        expected: u64,
        /// Bytes received.
        found: u64,
    },
    /// A complete file has another digest than announced.
    #[error(
        "{what} has SHA-256 {found}; expected {expected}. It was discarded; pull again, and if it \
         happens twice do not trust the source"
    )]
    WrongDigest {
        /// The file.
        what: String,
        /// Digest announced.
        expected: String,
        /// Digest of the bytes received.
        found: String,
    },
    /// The disk cannot hold the download.
    #[error(
        "not enough room under {}: {} needed ({detail}), {} available, {} short; free some space or \
         choose another folder with --home",
        path.display(), Bytes(*needed), Bytes(*available), Bytes(needed.saturating_sub(*available))
    )]
    NotEnoughSpace {
        /// The folder written to.
        path: PathBuf,
        /// Bytes needed.
        needed: u64,
        /// How the need adds up.
        detail: String,
        /// Bytes available.
        available: u64,
    },
    /// The disk became full while writing.
    #[error(
        "the disk holding {} is full; free some space or choose another folder with --home, then \
         pull again",
        path.display()
    )]
    DiskFull {
        /// The file being written.
        path: PathBuf,
    },
    /// The store cannot be written.
    #[error(
        "cannot write under {}: {source}. Make the folder writable or choose another with --home",
        path.display()
    )]
    NotWritable {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Another file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was attempted, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A receipt or download record in the store cannot be read.
    #[error("{} is damaged ({why}); remove the model and pull it again", path.display())]
    BadReceipt {
        /// The receipt.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Another process is pulling the model.
    #[error("{alias} is being pulled by another process; stop that pull, or wait for it, and try again")]
    Busy {
        /// The model.
        alias: String,
    },
    /// The caller asked to stop.
    #[error("the pull was cancelled; nothing was installed")]
    Cancelled,
    /// The feature that serves `hf:` references is not compiled in.
    #[error("{reference} needs a build with the feature `hf`; this one can pull only: {}", known.join(", "))]
    HfNotBuilt {
        /// The reference.
        reference: String,
        /// Aliases this build can pull.
        known: Vec<String>,
    },
    /// The hub answered with an error.
    #[error("{url} answered {status}: {hint}")]
    HttpStatus {
        /// The address asked, without credentials.
        url: String,
        /// The status code.
        status: u16,
        /// What to do about it.
        hint: String,
    },
    /// The hub's answer makes no sense.
    #[error("{url} gave an unusable answer: {why}")]
    BadAnswer {
        /// The address asked.
        url: String,
        /// What is wrong, with the values found.
        why: String,
    },
    /// The remote file changed while it was downloaded.
    #[error("{what} changed on the server during the download (validator {expected} became {found}); pull again")]
    RemoteChanged {
        /// The file.
        what: String,
        /// The validator at first.
        expected: String,
        /// The validator now.
        found: String,
    },
    /// The repository holds several models and none was named.
    #[error("{repository} holds {} GGUF files; name one as {repository}/FILE: {}", files.len(), list(files))]
    SeveralFiles {
        /// The reference without a file.
        repository: String,
        /// What it offers.
        files: Vec<Offered>,
    },
    /// The repository does not hold the file, or nothing this program can use.
    #[error("{repository} holds no {wanted}; it offers: {}", list(files))]
    FileMissing {
        /// The reference without a file.
        repository: String,
        /// What was looked for.
        wanted: String,
        /// What it offers.
        files: Vec<Offered>,
    },
    /// The connection failed.
    #[cfg(feature = "hf")]
    #[error("{url} could not be read: {source}; check the connection and the proxy settings, then pull again")]
    Http {
        /// The address asked.
        url: String,
        /// The client's reason.
        source: Box<ureq::Error>,
    },
}

/// A file a repository offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Path inside the repository.
    pub name: String,
    /// Size in bytes, where the hub gives one.
    pub bytes: Option<u64>,
}

impl HubError {
    /// An I/O error with its place; a full disk and a refused permission get their own variants.
    pub(crate) fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        use std::io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        let path = path.to_path_buf();
        match source.kind() {
            StorageFull | QuotaExceeded => Self::DiskFull { path },
            PermissionDenied | ReadOnlyFilesystem if action == "create" || action == "write" => {
                let folder = path.parent().map(Path::to_path_buf).unwrap_or(path);
                Self::NotWritable { path: folder, source }
            }
            _ => Self::Io { action, path, source },
        }
    }
}

/// Prints a number of bytes exactly and readably.
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..1_000 => return write!(f, "{} bytes", self.0),
            1_000..1_000_000 => (1e3, "kB"),
            1_000_000..1_000_000_000 => (1e6, "MB"),
            _ => (1e9, "GB"),
        };
        write!(f, "{:.1} {name}", self.0 as f64 / unit)
    }
}

fn list(files: &[Offered]) -> String {
    if files.is_empty() {
        return "nothing".to_owned();
    }
    let shown: Vec<String> = files
        .iter()
        .map(|file| match file.bytes {
            Some(bytes) => format!("{} ({})", file.name, Bytes(bytes)),
            None => file.name.clone(),
        })
        .collect();
    shown.join(", ")
}

fn unknown_alias(alias: &str, near: &[String], known: &[String]) -> String {
    let near = match near {
        [] => String::new(),
        near => format!(" Did you mean {}?", near.join(" or ")),
    };
    format!(
        "no model is called {alias:?}.{near} Known: {}. A file needs a path, such as ./{alias}; a \
         Hugging Face repository starts with hf:",
        known.join(", ")
    )
}
