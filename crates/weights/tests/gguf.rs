//! GGUF headers: what is read, and what is refused.

use std::path::Path;
use std::time::Instant;
use turbospark_weights::gguf::write::GgufWriter;
use turbospark_weights::gguf::{Array, GgufFile, GgufString, Value};
use turbospark_weights::{DType, Tensor, WeightsError};

/// Bytes from hex digits; spaces are skipped.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

fn refusal(bytes: &[u8]) -> String {
    GgufFile::parse(bytes).expect_err("must be refused").to_string()
}

/// A file of one or more tensor descriptions and `data` zero bytes after the padding.
fn described(tensors: &[(&str, &[u64], u32, u64)], data: usize) -> Vec<u8> {
    let mut out = hex("47475546 03000000");
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend(0u64.to_le_bytes());
    for (name, dims, dtype, offset) in tensors {
        out.extend((name.len() as u64).to_le_bytes());
        out.extend(name.as_bytes());
        out.extend((dims.len() as u32).to_le_bytes());
        dims.iter().for_each(|d| out.extend(d.to_le_bytes()));
        out.extend(dtype.to_le_bytes());
        out.extend(offset.to_le_bytes());
    }
    out.resize(out.len().next_multiple_of(32) + data, 0);
    out
}

fn every_value() -> Vec<(&'static str, Value)> {
    vec![
        ("u8", Value::U8(200)),
        ("i8", Value::I8(-100)),
        ("u16", Value::U16(60_000)),
        ("i16", Value::I16(-30_000)),
        ("u32", Value::U32(4_000_000_000)),
        ("i32", Value::I32(-2_000_000_000)),
        ("f32", Value::F32(0.5)),
        ("bool", Value::Bool(true)),
        ("string", Value::String("größe".into())),
        ("raw", Value::String(GgufString::from(vec![0xff, 0xfe]))),
        ("u64", Value::U64(u64::MAX)),
        ("i64", Value::I64(i64::MIN)),
        ("f64", Value::F64(0.1)),
        ("a.i32", Value::Array(Array::I32(vec![-1, 2, 3]))),
        ("a.f32", Value::Array(Array::F32(vec![1.5, -2.5]))),
        ("a.bool", Value::Array(Array::Bool(vec![true, false]))),
        ("a.string", Value::Array(Array::String(vec!["a".into(), vec![0x80].into()]))),
        ("a.empty", Value::Array(Array::U64(vec![]))),
        ("a.nested", Value::Array(Array::Nested(vec![Array::U8(vec![1]), Array::String(vec![])]))),
    ]
}

fn sample() -> GgufWriter {
    let mut writer = GgufWriter::new();
    for (key, value) in every_value() {
        writer.set(key, value);
    }
    writer.tensor(Tensor::from_f32("f", vec![2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    writer.tensor(Tensor::from_bytes("q", DType::Q4_0, vec![2, 32], vec![7; 36]).unwrap());
    writer
}

#[test]
fn written_files_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    sample().write(&path).unwrap();
    let file = GgufFile::open(&path).unwrap();
    assert_eq!(file.version(), 3);
    let read: Vec<(&str, Value)> = file.metadata().iter().map(|(k, v)| (k, v.clone())).collect();
    assert_eq!(read, every_value());
    let f = file.weights().require("f").unwrap();
    assert_eq!(f.shape(), [2, 3], "outermost first");
    assert_eq!(f.to_f32().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(file.weights().require("q").unwrap().bytes(), [7; 36]);
    assert_eq!(std::fs::read(&path).unwrap(), sample().to_bytes().unwrap());
}

#[test]
fn typed_reads_of_metadata() {
    let header = GgufFile::parse(&sample().to_bytes().unwrap()).unwrap();
    let metadata = &header.metadata;
    assert_eq!(metadata.u64("u8"), Some(200));
    assert_eq!(metadata.u64("u64"), Some(u64::MAX));
    assert_eq!(metadata.u64("i8"), None);
    assert_eq!(metadata.i64("i8"), Some(-100));
    assert_eq!(metadata.f32("f32"), Some(0.5));
    assert_eq!(metadata.f32("u8"), None);
    assert_eq!(metadata.bool("bool"), Some(true));
    assert_eq!(metadata.str("string"), Some("größe"));
    assert_eq!(metadata.str("raw"), None);
    assert_eq!(metadata.get("raw"), Some(&Value::String(GgufString::from(vec![0xff, 0xfe]))));
    assert_eq!(metadata.i64s("a.i32"), Some(vec![-1, 2, 3]));
    assert_eq!(metadata.u64s("a.i32"), None);
    assert_eq!(metadata.u64s("a.empty"), Some(vec![]));
    assert_eq!(metadata.bools("a.bool"), Some(&[true, false][..]));
    assert_eq!(metadata.strings("a.string").unwrap()[1].as_bytes(), [0x80]);
    assert_eq!(metadata.array("a.nested").unwrap().len(), 2);
    assert_eq!(metadata.get("absent"), None);
}

#[test]
fn version_2_reads_and_others_are_refused_by_name() {
    let mut bytes = sample().to_bytes().unwrap();
    bytes[4] = 2;
    assert_eq!(GgufFile::parse(&bytes).unwrap().version, 2);
    bytes[4] = 1;
    assert!(refusal(&bytes).contains("version 2 or 3, found 1"));
    bytes[4..8].copy_from_slice(&[0, 0, 0, 3]);
    assert!(refusal(&bytes).contains("big-endian version 3"));
    bytes[..4].copy_from_slice(b"GGML");
    assert!(refusal(&bytes).contains("GGML"));
}

#[test]
fn d53_lengths_beyond_the_file_are_refused_before_allocation() {
    let empty = hex("47475546 03000000 0000000000000000 0000000000000000");
    assert_eq!(GgufFile::parse(&empty).unwrap().tensors.len(), 0);
    let string = "47475546 03000000 0000000000000000 0100000000000000 0000000000000080";
    let array = "47475546 03000000 0000000000000000 0100000000000000 0100000000000000 6b
                 09000000 00000000 0000000000000080";
    let tensors = "47475546 03000000 0000000000000080 0000000000000000";
    let cases = [(string, "key count"), (array, "value of key `k`"), (tensors, "tensor count")];
    for (bytes, field) in cases {
        let message = refusal(&hex(bytes));
        assert!(message.contains(field) && message.contains("at byte"), "{message}");
    }
    // The string alone, with bytes enough for the pair count.
    let mut long = hex(string);
    long.extend([0; 32]);
    assert!(refusal(&long).contains("key at byte 32 needs 9223372036854775808 bytes, found 32"));
}

#[test]
fn d53_every_truncation_is_an_error() {
    let bytes = sample().to_bytes().unwrap();
    // The last tensor's padding may be missing, its bytes may not.
    let needed = bytes.len() - 28;
    for length in 0..needed {
        assert!(GgufFile::parse(&bytes[..length]).is_err(), "{length} bytes");
    }
    assert!(GgufFile::parse(&bytes[..needed]).is_ok());
}

#[test]
fn d53_nesting_is_capped() {
    let nested = |depth| (0..depth).fold(Array::U8(vec![1]), |inner, _| Array::Nested(vec![inner]));
    let file = |depth| GgufWriter::new().set("k", Value::Array(nested(depth))).to_bytes().unwrap();
    assert!(GgufFile::parse(&file(3)).is_ok());
    assert!(refusal(&file(4)).contains("nested at most 4 deep"));
    assert!(GgufFile::parse(&file(5_000)).is_err());
}

#[test]
fn d54_sizes_offsets_and_shapes_are_checked() {
    let wrapping = "47475546 03000000 0100000000000000 0000000000000000 0100000000000000 74
                    02000000 0000000000000040 0400000000000000 00000000 0000000000000000";
    assert!(refusal(&hex(wrapping)).contains("dimensions of tensor `t`"));
    let good: (&str, &[u64], u32, u64) = ("t", &[8], 0, 0);
    assert!(GgufFile::parse(&described(&[good], 32)).is_ok());
    let near_end = u64::MAX - 31;
    let cases: &[(&str, Vec<u8>, &str)] = &[
        ("offset 2^64-32", described(&[("t", &[8], 0, near_end)], 32), "data of tensor `t`"),
        ("unaligned", described(&[("t", &[8], 0, 8)], 64), "multiple of the alignment 32"),
        ("past the end", described(&[("t", &[9], 0, 0)], 32), "data of tensor `t`"),
        ("overlap", described(&[("t", &[16], 0, 0), ("u", &[8], 0, 32)], 64), "end of tensor `t`"),
        ("same bytes", described(&[("t", &[8], 0, 0), ("u", &[8], 0, 0)], 32), "end of tensor"),
        ("q4 row of 33", described(&[("t", &[33], 2, 0)], 64), "divisible by 32 for Q4_0"),
        ("q4 row of 16", described(&[("t", &[16, 2], 2, 0)], 64), "divisible by 32 for Q4_0"),
        ("zero dimension", described(&[("t", &[8, 0], 0, 0)], 32), "each at least 1"),
        ("no dimension", described(&[("t", &[], 0, 0)], 32), "1 to 4 dimensions"),
        ("five dimensions", described(&[("t", &[1, 1, 1, 1, 1], 0, 0)], 32), "1 to 4 dimensions"),
        ("unknown type", described(&[("t", &[8], 4, 0)], 32), "type of tensor `t`"),
        ("duplicate", described(&[("t", &[8], 0, 0), ("t", &[8], 0, 32)], 64), "`t` occurs twice"),
        ("wrapping bytes", described(&[("t", &[1 << 62], 0, 0)], 32), "size that fits"),
    ];
    let passed: Vec<&str> = cases
        .iter()
        .filter(|(_, bytes, text)| match GgufFile::parse(bytes) {
            Ok(_) => true,
            Err(error) => !error.to_string().contains(text),
        })
        .map(|(name, _, _)| *name)
        .collect();
    assert!(passed.is_empty(), "not refused, or not by name: {passed:?}");
}

#[test]
fn d54_a_large_vocabulary_loads_fast() {
    let tokens = (0..250_000).map(|i| format!("token{i}").into()).collect();
    let merges = (0..500_000).map(|i| format!("tok en{i}").into()).collect();
    let mut writer = GgufWriter::new();
    writer.set("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
    writer.set("tokenizer.ggml.merges", Value::Array(Array::String(merges)));
    writer.set("tokenizer.ggml.scores", Value::Array(Array::F32(vec![0.0; 250_000])));
    writer.set("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![1; 250_000])));
    let bytes = writer.to_bytes().unwrap();
    let start = Instant::now();
    let header = GgufFile::parse(&bytes).unwrap();
    let elapsed = start.elapsed();
    assert_eq!(header.metadata.strings("tokenizer.ggml.merges").unwrap().len(), 500_000);
    assert!(elapsed.as_secs_f64() < 0.5, "{elapsed:?}");
}

#[test]
fn alignment_is_validated() {
    let mut writer = sample();
    writer.set("general.alignment", Value::U32(64));
    let bytes = writer.to_bytes().unwrap();
    let header = GgufFile::parse(&bytes).unwrap();
    assert_eq!((header.alignment, header.data_offset % 64), (64, 0));
    let at = bytes.windows(17).position(|w| w == b"general.alignment").unwrap() + 17 + 4;
    for bad in [0u32, 1, 4, 33, 1 << 21, u32::MAX] {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&bad.to_le_bytes());
        assert!(refusal(&bytes).contains("general.alignment"), "{bad}");
    }
    assert!(writer.set("general.alignment", Value::U32(12)).to_bytes().is_err());
}

#[test]
fn names_and_values_are_validated() {
    let base = sample().to_bytes().unwrap();
    let place = |text: &[u8]| base.windows(text.len()).position(|w| w == text).unwrap();
    let mut twice = base.clone();
    twice[place(b"u16")..][..3].copy_from_slice(b"u32");
    assert!(refusal(&twice).contains("key `u32` occurs twice"));
    let mut invalid = base.clone();
    invalid[place(b"u16")] = 0xff;
    assert!(refusal(&invalid).contains("UTF-8"));
    let mut boolean = base.clone();
    boolean[place(b"bool") + 4 + 4] = 2;
    assert!(refusal(&boolean).contains("0 or 1, found 2"));
    let mut kind = base.clone();
    kind[place(b"bool") + 4] = 13;
    assert!(refusal(&kind).contains("value type 0..=12, found 13"));
}

#[test]
fn unsupported_types_are_listed() {
    let dtype = DType::from_ggml(16).unwrap();
    let mut writer = sample();
    writer.tensor(Tensor::from_bytes("iq2", dtype, vec![256], vec![0; 66]).unwrap());
    let header = GgufFile::parse(&writer.to_bytes().unwrap()).unwrap();
    assert_eq!(header.tensors[2].dtype, dtype);
}

#[test]
fn the_writer_refuses_what_the_format_cannot_hold() {
    let bools = Tensor::from_bytes("b", DType::Bool, vec![1], vec![1]).unwrap();
    assert!(GgufWriter::new().tensor(bools).to_bytes().is_err());
    let scalar = Tensor::from_f32("s", vec![], &[1.0]);
    assert!(GgufWriter::new().tensor(scalar).to_bytes().is_err());
    let one = Tensor::from_f32("s", vec![1], &[1.0]);
    assert!(GgufWriter::new().tensor(one.clone()).tensor(one).to_bytes().is_err());
}

#[test]
fn files_that_are_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let absent = GgufFile::open(&dir.path().join("absent.gguf")).unwrap_err();
    assert!(matches!(absent, WeightsError::NotFound { .. }), "{absent}");
    let directory = GgufFile::open(dir.path()).unwrap_err();
    assert!(matches!(directory, WeightsError::Directory { .. }), "{directory}");
    let empty = dir.path().join("empty.gguf");
    std::fs::write(&empty, b"").unwrap();
    let empty = GgufFile::open(&empty).unwrap_err();
    assert!(matches!(empty, WeightsError::Empty { .. }), "{empty}");
}

#[test]
fn d58_paths_that_are_not_ascii() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("größe 张 модель 🙂/a b");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("модель.gguf");
    sample().write(&path).unwrap();
    assert_eq!(GgufFile::open(&path).unwrap().weights().len(), 2);
}

#[cfg(unix)]
#[test]
fn d58_paths_that_are_not_unicode() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let name = |number: &str| {
        let name = [b"\xff-", number.as_bytes(), b"-of-00002.gguf"].concat();
        dir.path().join(std::ffi::OsStr::from_bytes(&name))
    };
    // Some file systems refuse such a name; then there is nothing to open.
    if std::fs::write(name("00001"), b"x").is_err() {
        return;
    }
    write_part(&name("00001"), 0, 2, &["a"]);
    write_part(&name("00002"), 1, 2, &["b"]);
    assert_eq!(GgufFile::open(&name("00001")).unwrap().weights().len(), 2);
}

fn write_part(path: &Path, number: u16, count: u16, tensors: &[&str]) {
    let mut writer = GgufWriter::new();
    writer.set("split.no", Value::U16(number));
    writer.set("split.count", Value::U16(count));
    writer.set("split.tensors.count", Value::I32(i32::from(count)));
    for name in tensors {
        writer.tensor(Tensor::from_f32(*name, vec![1], &[f32::from(number)]));
    }
    writer.write(path).unwrap();
}

/// Writes a three-part model into `dir` and gives the path of part `number` (from 1).
fn split_model(dir: &Path) -> impl Fn(usize) -> std::path::PathBuf {
    let dir = dir.to_owned();
    let path = move |number: usize| dir.join(format!("m-{number:05}-of-00003.gguf"));
    for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
        write_part(&path(number + 1), number as u16, 3, &[name]);
    }
    path
}

#[test]
fn split_files_are_joined() {
    let dir = tempfile::tempdir().unwrap();
    let path = split_model(dir.path());
    let file = GgufFile::open(&path(1)).unwrap();
    let values: Vec<f32> = file.weights().iter().map(|t| t.to_f32().unwrap()[0]).collect();
    assert_eq!(values, [0.0, 1.0, 2.0]);
}

#[test]
fn split_files_that_do_not_fit_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = split_model(dir.path());
    let message = |path: &Path| GgufFile::open(path).unwrap_err().to_string();

    assert!(message(&path(2)).contains("-00001-of-"));

    let renamed = dir.path().join("renamed.gguf");
    std::fs::copy(path(1), &renamed).unwrap();
    assert!(message(&renamed).contains("ends in -00001-of-00003.gguf"));

    write_part(&path(2), 2, 3, &["b"]);
    assert!(message(&path(1)).contains("split.no"));
    write_part(&path(2), 1, 4, &["b"]);
    assert!(message(&path(1)).contains("split.count"));
    write_part(&path(2), 1, 3, &["a"]);
    assert!(message(&path(1)).contains("tensor `a` occurs twice"));
    write_part(&path(2), 1, 3, &["b", "d"]);
    assert!(message(&path(1)).contains("split.tensors.count"));

    std::fs::remove_file(path(2)).unwrap();
    std::fs::remove_file(path(3)).unwrap();
    assert!(message(&path(1)).contains("m-00002-of-00003.gguf, m-00003-of-00003.gguf"));
}
