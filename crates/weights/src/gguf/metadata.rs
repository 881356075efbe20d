//! The key-value pairs of a GGUF file, in file order.

use super::value::{Array, GgufString, Value};
use std::collections::HashMap;

/// Ordered metadata with typed reads. A typed read gives `None` both for an absent key and for another type; ask
/// [`Metadata::get`] to tell them apart.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    places: HashMap<String, usize>,
}

impl Metadata {
    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.places.get(key).map(|&place| &self.entries[place].1)
    }

    /// The pairs in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is no key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The pairs that a file of its own may have: all but those that link the parts of a split model.
    pub fn without_split(&self) -> Self {
        let mut whole = Self::default();
        for (key, value) in self.iter().filter(|(key, _)| !key.starts_with("split.")) {
            whole.set(key, value.clone());
        }
        whole
    }

    /// A string that is valid UTF-8.
    pub fn str(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    /// An integer of any type that is not negative.
    pub fn u64(&self, key: &str) -> Option<u64> {
        self.get(key)?.as_u64()
    }

    /// An integer of any type that fits.
    pub fn i64(&self, key: &str) -> Option<i64> {
        self.get(key)?.as_i64()
    }

    /// A float of either type (`f64` is rounded to nearest).
    pub fn f32(&self, key: &str) -> Option<f32> {
        self.get(key)?.as_f32()
    }

    /// A truth value.
    pub fn bool(&self, key: &str) -> Option<bool> {
        self.get(key)?.as_bool()
    }

    /// An array of any type.
    pub fn array(&self, key: &str) -> Option<&Array> {
        self.get(key)?.as_array()
    }

    /// An array of strings.
    pub fn strings(&self, key: &str) -> Option<&[GgufString]> {
        match self.array(key)? {
            Array::String(values) => Some(values),
            _ => None,
        }
    }

    /// An array of `f32`.
    pub fn f32s(&self, key: &str) -> Option<&[f32]> {
        match self.array(key)? {
            Array::F32(values) => Some(values),
            _ => None,
        }
    }

    /// An array of truth values.
    pub fn bools(&self, key: &str) -> Option<&[bool]> {
        match self.array(key)? {
            Array::Bool(values) => Some(values),
            _ => None,
        }
    }

    /// An array of integers of any type, none negative.
    pub fn u64s(&self, key: &str) -> Option<Vec<u64>> {
        self.array(key)?.to_u64s()
    }

    /// An array of integers of any type that fit.
    pub fn i64s(&self, key: &str) -> Option<Vec<i64>> {
        self.array(key)?.to_i64s()
    }

    /// Sets `key` to `value`, keeping the place of a key that exists.
    pub fn set(&mut self, key: impl Into<String>, value: Value) {
        let key = key.into();
        match self.places.get(&key) {
            Some(&place) => self.entries[place].1 = value,
            None => {
                self.places.insert(key.clone(), self.entries.len());
                self.entries.push((key, value));
            }
        }
    }
}
