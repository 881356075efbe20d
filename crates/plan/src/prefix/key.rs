//! What else than tokens decides what is in a cache.

use sha2::{Digest, Sha256};

/// Everything but the tokens that changes keys, values or recurrent states: adapters with their scale, steering vectors,
/// attached images, storage types. Equal keys promise equal states for equal tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextKey(pub(super) Vec<u8>);

impl ContextKey {
    /// A key with one more part, by its content rather than by a name that others may share.
    ///
    /// The content may be of any size: its SHA-256 stands for it. `("a", "bc")` and `("ab", "c")` are different keys.
    pub fn with(mut self, kind: &str, content: &[u8]) -> Self {
        self.0.extend_from_slice(&(kind.len() as u64).to_le_bytes());
        self.0.extend_from_slice(kind.as_bytes());
        self.0.extend_from_slice(&Sha256::digest(content));
        self
    }
}
