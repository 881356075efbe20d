//! Any bytes as a GGUF file: an error or a header whose ranges lie inside the bytes.
//!
//! `cargo +nightly fuzz run gguf fuzz/corpus/gguf fuzz/seeds/gguf -- -rss_limit_mb=64 -timeout=1`
#![no_main]

use libfuzzer_sys::fuzz_target;
use weights::gguf::GgufFile;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = GgufFile::parse(bytes) {
        for info in &header.tensors {
            assert!(bytes.get(info.offset..info.offset + info.length).is_some());
        }
    }
});
