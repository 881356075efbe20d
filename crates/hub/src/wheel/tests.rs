//! Archives that are right, and archives that lie.

#[path = "../../tests/support/archive.rs"]
mod archive;

use std::fs;

use archive::archive;

use super::*;

const NAME: &str = "pkg/data/model.gguf";

fn content() -> Vec<u8> {
    (0..100_000u32).map(|i| (i % 251) as u8).collect()
}

/// What comes out of an archive of these bytes, or the error's text.
fn extracted(bytes: &[u8], name: &str, at_most: u64) -> Result<Vec<u8>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.whl");
    fs::write(&path, bytes).unwrap();
    let mut out = Vec::new();
    Wheel::open(&path)
        .and_then(|mut wheel| wheel.extract(name, at_most, (&mut out, &path), &PullOptions::default()))
        .map_err(|error| error.to_string())?;
    Ok(out)
}

fn good() -> Vec<u8> {
    archive(&[(NAME, &content()), ("pkg/METADATA", b"plain")])
}

/// Where the first directory entry begins.
fn directory_at(bytes: &[u8]) -> usize {
    u32_at(bytes, bytes.len() - 6) as usize
}

#[test]
fn members_come_out_whole() {
    assert_eq!(extracted(&good(), NAME, 100_000).unwrap(), content());
    assert_eq!(extracted(&good(), "pkg/METADATA", 5).unwrap(), b"plain");
    // A comment after the end record, with a false end record inside.
    let comment = b"PK\x05\x06 a false end record";
    let mut commented = good();
    let at = commented.len() - 2;
    commented[at] = comment.len() as u8;
    commented.extend(comment);
    assert_eq!(extracted(&commented, NAME, 100_000).unwrap(), content());
}

#[test]
fn lies_are_refused() {
    type Lie = fn(&mut Vec<u8>, usize);
    let lies: [(&str, &str, Lie); 11] = [
        ("a flipped bit", "", |bytes, _| bytes[5_000 % 400 + 60] ^= 4),
        ("another CRC", "CRC-32", |bytes, at| bytes[at + 16] ^= 1),
        ("encryption", "encrypted", |bytes, at| bytes[at + 8] |= 1),
        ("an unknown method", "method 93", |bytes, at| bytes[at + 10] = 93),
        ("a shorter length", "more than", |bytes, at| bytes[at + 25] -= 1),
        ("a longer length", "100001 announced", |bytes, at| bytes[at + 24] += 1),
        ("data past the directory", "outside", |bytes, at| bytes[at + 22] = 0xff),
        ("a header past the directory", "outside", |bytes, at| bytes[at + 44] = 0xff),
        ("a header elsewhere", "local header", |bytes, at| bytes[at + 42] = 1),
        ("a long name", "", |bytes, at| bytes[at + 29] = 0xff),
        ("no entry signature", "damaged", |bytes, at| bytes[at] = b'Q'),
    ];
    for (lie, expected, change) in lies {
        let mut bytes = good();
        let at = directory_at(&bytes);
        change(&mut bytes, at);
        let error = extracted(&bytes, NAME, 200_000).expect_err(lie);
        assert!(error.contains(expected), "{lie}: {error}");
    }
}

#[test]
fn a_false_end_record_is_refused() {
    for (at_end, value, expected) in [
        (18, 1, "volume"),
        (10, 0xff, "passes its end record"),
        (3, 0xff, "passes its end record"),
        (22, b'X', "no end record"),
        (2, 1, "no end record"),
    ] {
        let mut bytes = good();
        let at = bytes.len() - at_end;
        bytes[at] = value;
        let error = extracted(&bytes, NAME, 200_000).unwrap_err();
        assert!(error.contains(expected), "{at_end}: {error}");
    }
    let mut zip64 = good();
    let at = zip64.len() - 6;
    zip64[at..at + 4].fill(0xff);
    assert!(extracted(&zip64, NAME, 200_000).unwrap_err().contains("zip64"));
}

#[test]
fn every_cut_and_every_flipped_byte_ends_without_a_panic() {
    let small = archive(&[("m", b"some content that deflates"), ("n", b"x")]);
    for length in 0..small.len() {
        assert!(extracted(&small[..length], "m", 100).is_err(), "cut to {length}");
    }
    for at in 0..small.len() {
        for value in [0, 0x7f, 0xff] {
            let mut bytes = small.clone();
            bytes[at] = value;
            if let Ok(out) = extracted(&bytes, "m", 100) {
                assert_eq!(out, b"some content that deflates");
            }
        }
    }
}

#[test]
fn what_is_missing_doubled_or_too_large_is_named() {
    let error = extracted(&good(), "pkg/other", 1).unwrap_err();
    assert!(error.contains("no member pkg/other"), "{error}");
    let doubled = archive(&[("m", b"a"), ("m", b"b")]);
    assert!(extracted(&doubled, "m", 10).unwrap_err().contains("two members"));
    let error = extracted(&good(), NAME, 99_999).unwrap_err();
    assert!(error.contains("100000 bytes; at most 99999"), "{error}");
}
