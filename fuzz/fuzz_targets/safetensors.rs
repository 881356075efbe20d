//! Any bytes as a safetensors file: an error or a header whose tensors cover the data exactly.
//!
//! `cargo +nightly fuzz run safetensors fuzz/corpus/safetensors fuzz/seeds/safetensors -- -rss_limit_mb=64 -timeout=1`
#![no_main]

use libfuzzer_sys::fuzz_target;
use weights::safetensors::SafetensorsFile;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = SafetensorsFile::parse_header(bytes) {
        let covered: usize = header.tensors.iter().map(|info| info.length).sum();
        assert_eq!(header.data_offset + covered, bytes.len());
    }
});
