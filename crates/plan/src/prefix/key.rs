//! What else than tokens decides what is in a cache.

/// Everything but the tokens that changes keys, values or recurrent states: adapters with their scale, steering vectors,
/// attached images, storage types. Equal keys promise equal states for equal tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextKey(pub(super) Vec<u8>);

impl ContextKey {
    /// A key with one more part, by its content rather than by a name that others may share.
    ///
    /// Parts are told apart by their lengths: `("a", "bc")` and `("ab", "c")` are different keys.
    pub fn with(mut self, kind: &str, content: &[u8]) -> Self {
        for part in [kind.as_bytes(), content] {
            self.0.extend_from_slice(&(part.len() as u64).to_le_bytes());
            self.0.extend_from_slice(part);
        }
        self
    }
}
