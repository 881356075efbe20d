//! Safetensors headers and shards: what is read, and what is refused.

use std::collections::BTreeMap;
use std::path::Path;
use turbospark_weights::safetensors::{SafetensorsFile, write};
use turbospark_weights::{DType, Tensor, WeightsError};

/// A file of this header text and `data` zero bytes.
fn file(header: &str, data: usize) -> Vec<u8> {
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.as_bytes());
    out.resize(out.len() + data, 0);
    out
}

fn tensor(name: &str, value: f32) -> Tensor {
    Tensor::from_f32(name, vec![1], &[value])
}

#[test]
fn written_files_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("größe 张.safetensors");
    let tensors = [
        Tensor::from_bytes("bytes", DType::U8, vec![3], vec![1, 2, 3]).unwrap(),
        Tensor::from_f32("matrix", vec![2, 2], &[1.0, 2.0, 3.0, 4.0]),
        Tensor::from_f32("scalar", vec![], &[5.0]),
        Tensor::from_f32("nothing", vec![0, 4], &[]),
    ];
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    write(&path, &tensors, &metadata).unwrap();
    let file = SafetensorsFile::open(&path).unwrap();
    assert_eq!(file.metadata(), &metadata);
    assert_eq!(file.weights().len(), 4);
    for tensor in &tensors {
        let read = file.weights().require(tensor.name()).unwrap();
        assert_eq!((read.dtype(), read.shape()), (tensor.dtype(), tensor.shape()));
        assert_eq!(read.bytes(), tensor.bytes());
    }
    let quantised = Tensor::from_bytes("q", DType::Q4_0, vec![32], vec![0; 18]).unwrap();
    assert!(write(&path, &[quantised], &metadata).is_err());
    assert!(write(&path, &[tensor("a", 1.0), tensor("a", 2.0)], &metadata).is_err());
}

#[test]
fn d55_valid_edge_cases() {
    let header = r#"{"t":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]}}"#;
    let read = SafetensorsFile::parse_header(&file(header, 0)).unwrap();
    assert_eq!((read.tensors[0].shape.as_slice(), read.tensors[0].length), (&[0, 4][..], 0));
    assert!(SafetensorsFile::parse_header(&file("{}", 0)).is_ok());
    assert!(SafetensorsFile::parse_header(&file("{}    ", 0)).is_ok());
    let scalar = r#"{"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}"#;
    assert!(SafetensorsFile::parse_header(&file(scalar, 4)).is_ok());
    let sub_byte = r#"{"s":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}}"#;
    assert!(SafetensorsFile::parse_header(&file(sub_byte, 3)).is_ok());
}

#[test]
fn d55_what_the_format_forbids_is_refused() {
    let one = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"t":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    let pair = |first: &str, second: &str| {
        format!(
            r#"{{"t":{{"dtype":"U8","shape":[4],"data_offsets":{first}}},
                "u":{{"dtype":"U8","shape":[4],"data_offsets":{second}}}}}"#
        )
    };
    let mut wrapped = file("{}", 0);
    wrapped[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    let mut longer = file("{}", 0);
    longer[0] = 3;
    let nested = format!(r#"{{"t":{}"#, "[".repeat(20_000));
    let nested_metadata = format!(r#"{{"__metadata__":{{"k":{}"#, "[".repeat(20_000));
    let repeated = r#"{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
                       "t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    let repeated_field = r#"{"t":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("length 2^64-1", wrapped, "header length"),
        ("length beyond the file", longer, "header at byte 8 needs 3 bytes, found 2"),
        ("seven bytes", vec![0; 7], "header length at byte 0 needs 8 bytes, found 7"),
        ("no bytes", vec![], "header length"),
        ("empty header", file("", 0), "the character '{'"),
        ("an array", file("[]", 0), "the character '{'"),
        ("not UTF-8", [&1u64.to_le_bytes()[..], b"\xff"].concat(), "UTF-8"),
        ("inverted", file(&one("U8", "[4]", "[4,0]"), 4), "data_offsets of tensor `t`"),
        ("negative", file(&one("U8", "[4]", "[-4,0]"), 4), "`t`: invalid value"),
        ("beyond the data", file(&one("U8", "[4]", "[0,4]"), 3), "data_offsets of tensor `t`"),
        ("shape too small", file(&one("F32", "[3]", "[0,16]"), 16), "shape of tensor `t`"),
        ("wrong dtype", file(&one("F16", "[4]", "[0,16]"), 16), "shape of tensor `t`"),
        ("overflow", file(&one("U8", "[4294967296,4294967296,2]", "[0,0]"), 0), "shape of tensor `t`"),
        ("half a byte", file(&one("F4", "[3]", "[0,1]"), 1), "shape of tensor `t`"),
        ("overlap", file(&pair("[0,4]", "[2,6]"), 6), "an overlap"),
        ("same bytes", file(&pair("[0,4]", "[0,4]"), 4), "an overlap"),
        ("gap", file(&pair("[0,4]", "[5,9]"), 9), "a gap"),
        ("gap at the start", file(&one("U8", "[4]", "[4,8]"), 8), "a gap"),
        ("trailing bytes", file(&one("U8", "[4]", "[0,4]"), 5), "data at byte"),
        ("trailing bytes, no tensor", file("{}", 1), "data at byte"),
        ("duplicate", file(repeated, 1), "duplicate name `t`"),
        ("duplicate field", file(repeated_field, 1), "duplicate field"),
        ("unknown dtype", file(&one("Q9", "[4]", "[0,4]"), 4), "dtype of tensor `t`"),
        ("no shape", file(r#"{"t":{"dtype":"U8","data_offsets":[0,0]}}"#, 0), "missing field `shape`"),
        ("metadata number", file(r#"{"__metadata__":{"k":1}}"#, 0), "`__metadata__`"),
        ("metadata twice", file(r#"{"__metadata__":{"k":"a","k":"b"}}"#, 0), "duplicate name `k`"),
        ("nested", file(&nested, 0), "`t`"),
        ("nested metadata", file(&nested_metadata, 0), "`__metadata__`"),
        ("unknown field", file(r#"{"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1}}"#, 0), "`t`"),
    ];
    let mut wrong = Vec::new();
    for (name, bytes, text) in cases {
        match SafetensorsFile::parse_header(&bytes) {
            Ok(_) => wrong.push(format!("{name}: passed")),
            Err(error) if error.to_string().contains(text) => {}
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn d55_every_truncation_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.safetensors");
    write(&path, &[tensor("a", 1.0), tensor("b", 2.0)], &BTreeMap::new()).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    for length in 0..bytes.len() {
        assert!(SafetensorsFile::parse_header(&bytes[..length]).is_err(), "{length} bytes");
        std::fs::write(&path, &bytes[..length]).unwrap();
        assert!(SafetensorsFile::open(&path).is_err(), "{length} bytes");
    }
}

/// Writes shards and an index with this `weight_map` into `dir`.
fn sharded(dir: &Path, shards: &[(&str, &[&str])], weight_map: &str) {
    for (number, (name, tensors)) in shards.iter().enumerate() {
        let tensors: Vec<Tensor> = tensors.iter().map(|t| tensor(t, number as f32)).collect();
        let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
        write(&dir.join(name), &tensors, &metadata).unwrap();
    }
    let index = format!(r#"{{"metadata":{{"total_size":8}},"weight_map":{weight_map}}}"#);
    std::fs::write(dir.join("model.safetensors.index.json"), index).unwrap();
}

/// File names with the tensors in each.
type Shards = &'static [(&'static str, &'static [&'static str])];

const TWO: Shards = &[("s1.safetensors", &["a"]), ("s2.safetensors", &["b"])];

#[test]
fn shards_are_joined() {
    let dir = tempfile::tempdir().unwrap();
    sharded(dir.path(), TWO, r#"{"a":"s1.safetensors","b":"s2.safetensors"}"#);
    let file = SafetensorsFile::open_dir(dir.path()).unwrap();
    let values: Vec<f32> = file.weights().iter().map(|t| t.to_f32().unwrap()[0]).collect();
    assert_eq!(values, [0.0, 1.0]);
    assert_eq!(file.metadata()["format"], "pt");
}

#[test]
fn d55_d56_shards_that_do_not_fit_are_refused() {
    let both: Shards = &[("s1.safetensors", &["a"]), ("s2.safetensors", &["b", "a"])];
    let good = r#"{"a":"s1.safetensors","b":"s2.safetensors"}"#;
    let cases: &[(Shards, &str, &str)] = &[
        (&TWO[..1], good, "missing s2.safetensors"),
        (both, good, "`a` occurs twice (in s1.safetensors and in s2.safetensors)"),
        (TWO, r#"{"a":"s1.safetensors","a":"s2.safetensors"}"#, "duplicate name `a`"),
        (TWO, r#"{"a":"s2.safetensors","b":"s2.safetensors"}"#, "place of tensor `a`"),
        (TWO, r#"{"a":"s1.safetensors","b":"s2.safetensors","c":"s2.safetensors"}"#, "`c`"),
        (TWO, r#"{"a":1}"#, "weight_map"),
        (TWO, "[]", "weight_map"),
    ];
    let mut wrong = Vec::new();
    for (shards, map, text) in cases {
        let dir = tempfile::tempdir().unwrap();
        sharded(dir.path(), shards, map);
        match SafetensorsFile::open_dir(dir.path()) {
            Ok(_) => wrong.push(format!("{map}: passed")),
            Err(error) if error.to_string().contains(text) => {}
            Err(error) => wrong.push(format!("{map}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn d56_shard_names_stay_in_their_directory() {
    let names = [
        "../a",
        "/a",
        "a/../../b",
        "a/b",
        "./a",
        "C:\\\\a",
        "C:a",
        "a\\u0000b",
        "%2e%2e/a",
        "..",
        ".",
        "",
        "a/",
        "a\\\\b",
    ];
    for name in names {
        let dir = tempfile::tempdir().unwrap();
        sharded(dir.path(), TWO, &format!(r#"{{"a":"{name}"}}"#));
        let message = SafetensorsFile::open_dir(dir.path()).unwrap_err().to_string();
        assert!(message.contains("a file name without directories"), "{name}: {message}");
    }
}

#[test]
fn directories_say_what_was_looked_for() {
    let dir = tempfile::tempdir().unwrap();
    let message = SafetensorsFile::open_dir(dir.path()).unwrap_err().to_string();
    assert!(message.contains("model.safetensors and model.safetensors.index.json"), "{message}");
    let absent = SafetensorsFile::open_dir(&dir.path().join("absent")).unwrap_err();
    assert!(matches!(absent, WeightsError::NotFound { .. }), "{absent}");
    write(&dir.path().join("model.safetensors"), &[tensor("a", 1.0)], &BTreeMap::new()).unwrap();
    assert_eq!(SafetensorsFile::open_dir(dir.path()).unwrap().weights().len(), 1);
    let directory = SafetensorsFile::open(dir.path()).unwrap_err();
    assert!(matches!(directory, WeightsError::Directory { .. }), "{directory}");
}
