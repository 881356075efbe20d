//! Damaged files: any change of a valid file ends in success or an error, never in a panic.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use turbospark_weights::gguf::write::GgufWriter;
use turbospark_weights::gguf::{Array, GgufFile, Value};
use turbospark_weights::safetensors::{SafetensorsFile, write};
use turbospark_weights::{DType, Tensor};

fn tensors() -> Vec<Tensor> {
    vec![
        Tensor::from_f32("a.weight", vec![2, 4], &[0.5; 8]),
        Tensor::from_bytes("b.weight", DType::F16, vec![4], vec![0; 8]).unwrap(),
        Tensor::from_bytes("c.weight", DType::I32, vec![1, 1, 2], vec![0; 8]).unwrap(),
    ]
}

static GGUF: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut writer = GgufWriter::new();
    writer.set("general.architecture", Value::String("llama".into()));
    writer.set("general.alignment", Value::U32(32));
    writer.set("k.u64", Value::U64(3));
    writer.set("k.strings", Value::Array(Array::String(vec!["a".into(), "bc".into()])));
    writer.set("k.nested", Value::Array(Array::Nested(vec![Array::Bool(vec![true])])));
    writer.set("k.numbers", Value::Array(Array::F32(vec![1.0, 2.0])));
    tensors().into_iter().for_each(|t| {
        writer.tensor(t);
    });
    writer.tensor(Tensor::from_bytes("q.weight", DType::Q4_0, vec![1, 32], vec![1; 18]).unwrap());
    writer.to_bytes().unwrap()
});

static SAFETENSORS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.safetensors");
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    write(&path, &tensors(), &metadata).unwrap();
    std::fs::read(&path).unwrap()
});

/// A change of a file; places are taken modulo its length.
#[derive(Debug, Clone)]
enum Mutation {
    Flip(usize, u8),
    Truncate(usize),
    Word(usize, u64),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Copy { from: usize, to: usize, length: usize },
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let word = prop_oneof![
        any::<u64>(),
        Just(u64::MAX),
        Just(1 << 63),
        Just(u64::MAX - 31),
        Just(1 << 62),
        Just(0),
        0..300u64,
    ];
    prop_oneof![
        6 => (any::<usize>(), 1..=255u8).prop_map(|(at, bits)| Mutation::Flip(at, bits)),
        1 => any::<usize>().prop_map(Mutation::Truncate),
        4 => (any::<usize>(), word).prop_map(|(at, word)| Mutation::Word(at, word)),
        1 => (any::<usize>(), prop::collection::vec(any::<u8>(), 1..40))
            .prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        1 => (any::<usize>(), 1..40usize).prop_map(|(at, length)| Mutation::Remove(at, length)),
        2 => (any::<usize>(), any::<usize>(), 1..40usize)
            .prop_map(|(from, to, length)| Mutation::Copy { from, to, length }),
    ]
}

fn mutate(bytes: &mut Vec<u8>, mutation: &Mutation) {
    let n = bytes.len();
    if n == 0 {
        return;
    }
    match mutation {
        Mutation::Flip(at, bits) => bytes[at % n] ^= bits,
        Mutation::Truncate(at) => bytes.truncate(at % n),
        Mutation::Word(at, word) => {
            let at = at % n;
            let end = (at + 8).min(n);
            bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
        }
        Mutation::Insert(at, new) => {
            let at = at % n;
            bytes.splice(at..at, new.iter().copied());
        }
        Mutation::Remove(at, length) => {
            let at = at % n;
            bytes.drain(at..(at + length).min(n));
        }
        Mutation::Copy { from, to, length } => {
            let (from, to) = (from % n, to % n);
            let length = (*length).min(n - from).min(n - to);
            bytes.copy_within(from..from + length, to);
        }
    }
}

/// What a header promises about ranges, if it parses.
fn check_gguf(bytes: &[u8]) {
    if let Ok(header) = GgufFile::parse(bytes) {
        for info in &header.tensors {
            let elements = info.shape.iter().product();
            assert_eq!(info.dtype.bytes_for(elements), Some(info.length));
            assert!(bytes.get(info.offset..info.offset + info.length).is_some());
        }
    }
}

fn check_safetensors(bytes: &[u8]) {
    if let Ok(header) = SafetensorsFile::parse_header(bytes) {
        let covered: usize = header.tensors.iter().map(|info| info.length).sum();
        assert_eq!(header.data_offset + covered, bytes.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20_000) })]

    #[test]
    fn d53_d54_damaged_gguf_never_panics(mutations in prop::collection::vec(mutation(), 1..6)) {
        let mut bytes = GGUF.clone();
        mutations.iter().for_each(|m| mutate(&mut bytes, m));
        check_gguf(&bytes);
    }

    #[test]
    fn d55_damaged_safetensors_never_panic(mutations in prop::collection::vec(mutation(), 1..6)) {
        let mut bytes = SAFETENSORS.clone();
        mutations.iter().for_each(|m| mutate(&mut bytes, m));
        check_safetensors(&bytes);
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check_gguf(&bytes);
        check_gguf(&[b"GGUF\x03\0\0\0", &bytes[..]].concat());
        check_safetensors(&bytes);
    }
}

#[test]
fn the_valid_files_are_valid() {
    assert_eq!(GgufFile::parse(&GGUF).unwrap().tensors.len(), 4);
    assert_eq!(SafetensorsFile::parse_header(&SAFETENSORS).unwrap().tensors.len(), 3);
}

/// Every byte in turn takes every value of one bit flipped, and the extremes.
#[test]
fn every_single_byte_change() {
    type Check = fn(&[u8]);
    for (valid, check) in [(&*GGUF, check_gguf as Check), (&*SAFETENSORS, check_safetensors)] {
        for at in 0..valid.len() {
            let mut bytes = valid.clone();
            for value in (0..8).map(|bit| valid[at] ^ (1 << bit)).chain([0, 0x7f, 0xff]) {
                bytes[at] = value;
                check(&bytes);
            }
        }
    }
}
