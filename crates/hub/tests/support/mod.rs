//! What the tests of this crate share.
#![allow(dead_code, reason = "each test program uses a part")]

pub(crate) mod archive;
pub(crate) mod server;

use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use turbospark_hub::{Event, PullOptions};

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that repeat nowhere soon.
pub(crate) fn content(length: usize) -> Vec<u8> {
    (0..length as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// Four attempts without waits.
pub(crate) fn quick() -> PullOptions {
    PullOptions { backoff: vec![Duration::ZERO; 3], poll: Duration::from_millis(5), ..PullOptions::default() }
}

/// Every file below a folder, relative, sorted.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    fn walk(folder: &Path, root: &Path, out: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => walk(&path, root, out),
                false => out.push(path.strip_prefix(root).unwrap().to_path_buf()),
            }
        }
    }
    let mut out = Vec::new();
    walk(folder, folder, &mut out);
    out.sort();
    out
}

/// Fails when progress went back or passed its total.
pub(crate) fn assert_monotone(events: &[Event]) {
    let mut before = 0;
    for event in events {
        match event {
            Event::Started { .. } => before = 0,
            Event::Bytes { done, total } => {
                assert!(*done > before, "{done} after {before}");
                assert!(total.is_none_or(|total| *done <= total), "{done} of {total:?}");
                before = *done;
            }
            _ => {}
        }
    }
}
