//! The one error type of this crate.

use std::path::PathBuf;

/// Why a weight file or tensor was refused: what, where, what was expected and found, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The operating system refused an operation.
    #[error("cannot {action} {}: {source}; check that the file is readable and the disk has room", .path.display())]
    Io {
        /// The refused operation, a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// There is no such file.
    #[error("{} does not exist; check the path", .path.display())]
    NotFound {
        /// The path looked for.
        path: PathBuf,
    },
    /// A directory was given where a file is read.
    #[error("{} is a directory, expected a file; name the weight file inside it", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// The file has no bytes.
    #[error("{} is empty (0 bytes), expected a weight file; download it again", .path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The bytes end before a declared field does.
    #[error("{}: {field} at byte {offset} needs {needed} bytes, found {left} left in the file; the file is truncated or damaged, download it again", .path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The field that was read.
        field: String,
        /// Where in the file.
        offset: u64,
        /// Bytes that the field declares (at least).
        needed: u64,
        /// Bytes that are there.
        left: u64,
    },
    /// A field has a value that the format forbids or this reader does not serve.
    #[error("{}: {field} at byte {offset}: expected {expected}, found {found}; {remedy}", .path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field that was read.
        field: String,
        /// Where in the file.
        offset: u64,
        /// What the format allows there.
        expected: String,
        /// What is there.
        found: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A name occurs twice.
    #[error("{}: {kind} `{name}` occurs twice ({place}), expected once; the file is damaged or was built wrongly, download or convert it again", .path.display())]
    Duplicate {
        /// The file.
        path: PathBuf,
        /// What is named: a key, a tensor.
        kind: &'static str,
        /// The name.
        name: String,
        /// Where the second one is.
        place: String,
    },
    /// Parts of a model in several files are missing.
    #[error("{}: missing {missing}, expected beside it; download the missing files into the same directory", .path.display())]
    MissingFiles {
        /// The file that asks for them.
        path: PathBuf,
        /// The missing names, separated by commas.
        missing: String,
    },
    /// Bytes of a packed model are not what was packed.
    #[error("{}: {count} damaged part{}: {first}{}; `turbospark verify` lists them all, and repairs them from the model that was packed with --repair SOURCE", .path.display(), if *.count == 1 { "" } else { "s" }, if *.count == 1 { "" } else { ", and more" })]
    Damaged {
        /// The folder.
        path: PathBuf,
        /// How many parts.
        count: usize,
        /// The first one.
        first: String,
    },
    /// A part of an open file could not be read.
    #[error("{}: {expected} bytes were to be read at byte {offset} and {found} came: {reason}; check the disk, and that the file is whole (`turbospark verify` checks a packed model)", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Where in the file.
        offset: u64,
        /// Bytes wanted.
        expected: usize,
        /// Bytes that came before the failure.
        found: usize,
        /// The system's answer.
        reason: String,
    },
    /// No tensor of this name.
    #[error("no tensor `{name}` among {count}{}; check that the file holds this kind of model", near_text(.near))]
    MissingTensor {
        /// The name asked for.
        name: String,
        /// How many tensors there are.
        count: usize,
        /// The most similar names that exist.
        near: Vec<String>,
    },
    /// A tensor's type cannot be used this way.
    #[error("tensor `{tensor}` has type {dtype}, expected {expected}; use a file with another type for it")]
    UnsupportedType {
        /// The tensor.
        tensor: String,
        /// Its type.
        dtype: &'static str,
        /// The types that work.
        expected: &'static str,
    },
    /// Bytes, shape and type of a tensor disagree, or an argument does not fit the tensor.
    #[error("tensor `{tensor}`: {field}: expected {expected}, found {found}; pass a value that fits the tensor")]
    Argument {
        /// The tensor.
        tensor: String,
        /// The argument that does not fit.
        field: &'static str,
        /// What would fit.
        expected: String,
        /// What was given.
        found: String,
    },
}

impl WeightsError {
    /// The same complaint about a tensor by its name.
    pub(crate) fn of_tensor(self, name: &str) -> Self {
        match self {
            Self::Argument { field, expected, found, .. } => {
                Self::Argument { tensor: name.to_owned(), field, expected, found }
            }
            other => other,
        }
    }
}

fn near_text(near: &[String]) -> String {
    if near.is_empty() {
        return String::new();
    }
    format!(", similar: `{}`", near.join("`, `"))
}
