//! Everything that can be wrong with a checkpoint's description.

/// Why a checkpoint cannot become a [`crate::ModelSpec`].
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The architecture is not one of the families.
    #[error("unknown architecture `{found}`: this build knows {known}")]
    UnknownArchitecture {
        /// The name in the checkpoint.
        found: String,
        /// The names that would have been accepted.
        known: String,
    },
    /// The checkpoint names no architecture at all.
    #[error(
        "the checkpoint names no architecture: expected `architectures` or `model_type` in config.json, or `general.architecture` in a GGUF file"
    )]
    NoArchitecture,
    /// `config.json` is not a JSON object.
    #[error("config.json is not a JSON object: {reason}")]
    NotJson {
        /// What the parser said.
        reason: String,
    },
    /// A key the family needs is absent.
    #[error("config key `{key}` is missing; the `{family}` family needs it")]
    MissingKey {
        /// Full path of the key.
        key: String,
        /// The family that asked.
        family: String,
    },
    /// A key holds a value of another kind or range.
    #[error("config key `{key}`: expected {expected}, found {found}")]
    BadValue {
        /// Full path of the key.
        key: String,
        /// What would have been accepted.
        expected: String,
        /// What was there.
        found: String,
    },
    /// A key nobody read, whose value might change the mathematics.
    #[error(
        "config key `{key}` = {found} is not understood by the `{family}` family; refusing to run a model whose equations may differ"
    )]
    UnreadKey {
        /// Full path of the key.
        key: String,
        /// Its value.
        found: String,
        /// The family that did not read it.
        family: String,
    },
    /// A tensor the spec refers to is absent.
    #[error("tensor `{name}` is missing from the checkpoint (the `{family}` family needs it)")]
    MissingTensor {
        /// Canonical (Hugging Face) name.
        name: String,
        /// The family that asked.
        family: String,
    },
    /// A tensor has another shape than the config says.
    #[error("tensor `{name}` has shape {found:?}, expected {expected:?} from the config")]
    BadShape {
        /// Canonical (Hugging Face) name.
        name: String,
        /// What the config implies, outermost dimension first.
        expected: Vec<usize>,
        /// What the file holds.
        found: Vec<usize>,
    },
}
