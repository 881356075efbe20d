//! The one model that tests download: SmolLM2, pinned by digest.

use hub::{Event, PullOptions, Store, catalogue_entry, pull};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where tests and developer commands keep real models: inside the workspace's build folder.
pub fn model_store() -> Store {
    Store::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-models"))
}

/// The path of SmolLM2-135M-Instruct (Q4_1), fetched on first use.
///
/// # Panics
/// If it cannot be had: its tests are part of the suite and do not pass without it.
pub fn smollm2() -> PathBuf {
    let backoff = [2, 5, 15, 45].map(Duration::from_secs).to_vec();
    let options = PullOptions { backoff, ..PullOptions::default() };
    let report = &mut |event: Event| {
        if let Event::Retry { attempt, of, why, .. } = event {
            eprintln!("smollm2: attempt {attempt} of {of}: {why}");
        }
    };
    let installed = catalogue_entry("smollm2").and_then(|entry| pull(&model_store(), entry, &options, report));
    installed.unwrap_or_else(|error| panic!("the tests need the model smollm2 and could not get it: {error}")).path
}
