//! Dequantisation bit for bit against values made by other programs.

use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use turbospark_weights::gguf::GgufFile;
use turbospark_weights::{DType, Tensor, block};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/golden/llama_k256")
}

fn sha256_of_f32(values: &[f32]) -> String {
    let mut hash = Sha256::new();
    values.iter().for_each(|v| hash.update(v.to_le_bytes()));
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// Every tensor of one quantised file against the digests of its reference values.
fn check_file(kind: &str) {
    let text = std::fs::read_to_string(golden().join("quant.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
    let tensors = expected[kind]["tensors"].as_object().unwrap();
    let file = GgufFile::open(&golden().join(format!("model-{kind}.gguf"))).unwrap();
    assert_eq!(file.weights().len(), tensors.len());
    let mut wrong = Vec::new();
    for (name, about) in tensors {
        let tensor = file.weights().require(name).unwrap();
        assert_eq!(about["type"], tensor.dtype().name(), "{name}");
        let values = tensor.to_f32().unwrap();
        if about["sha256_f32"] != sha256_of_f32(&values) {
            wrong.push(name);
        }
        let mut row = vec![0.0; tensor.cols()];
        let last = tensor.rows() - 1;
        tensor.row_to_f32(last, &mut row).unwrap();
        assert_eq!(row, values[last * tensor.cols()..], "{name}");
    }
    assert!(wrong.is_empty(), "{kind}: {wrong:?}");
}

macro_rules! files {
    ($($test:ident $kind:literal;)*) => {
        $(#[test] fn $test() { check_file($kind) })*

        #[test]
        fn every_golden_file_has_a_test() {
            let text = std::fs::read_to_string(golden().join("quant.json")).unwrap();
            let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
            let mut kinds: Vec<&str> = expected.as_object().unwrap().keys().map(String::as_str).collect();
            let mut tested = vec![$($kind),*];
            kinds.sort();
            tested.sort();
            assert_eq!(kinds, tested);
        }
    };
}

files! {
    golden_f16 "F16";
    golden_iq3_s "IQ3_S";
    golden_iq4_nl "IQ4_NL";
    golden_iq4_xs "IQ4_XS";
    golden_q2_k "Q2_K";
    golden_q3_k_s "Q3_K_S";
    golden_q4_0 "Q4_0";
    golden_q4_1 "Q4_1";
    golden_q4_k_s "Q4_K_S";
    golden_q5_0 "Q5_0";
    golden_q5_1 "Q5_1";
    golden_q5_k_s "Q5_K_S";
    golden_q6_k "Q6_K";
    golden_q8_0 "Q8_0";
}

/// Random blocks of every format (see `data/make_blocks.py`): all bits of every field take part.
#[test]
fn random_blocks_of_every_format() {
    let mut data: &[u8] = include_bytes!("data/blocks.bin");
    let mut seen = Vec::new();
    while !data.is_empty() {
        let dtype = DType::from_ggml(take_u32(&mut data)).unwrap();
        let length = take_u32(&mut data) as usize;
        let (blocks, rest) = data.split_at(length);
        data = rest;
        let count = take_u32(&mut data) as usize;
        let (values, rest) = data.split_at(count * 4);
        data = rest;

        let mut out = vec![0.0; count];
        block::dequantise(dtype, blocks, &mut out).unwrap();
        let expected: Vec<u32> = values.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
        let found: Vec<u32> = out.iter().map(|v| v.to_bits()).collect();
        let first = (0..count).find(|&i| expected[i] != found[i]);
        assert_eq!(first, None, "{dtype}: first difference at this element");
        seen.push(dtype);
    }
    let missing: Vec<DType> =
        DType::all().filter(|d| d.is_quantised() && !matches!(d, DType::Unsupported(_)) && !seen.contains(d)).collect();
    assert_eq!(missing, [], "formats without random blocks");
}

fn take_u32(data: &mut &[u8]) -> u32 {
    let (word, rest) = data.split_first_chunk().unwrap();
    *data = rest;
    u32::from_le_bytes(*word)
}

#[test]
fn use_of_an_unsupported_type_names_tensor_and_type() {
    let dtype = DType::from_ggml(16).unwrap();
    let tensor = Tensor::from_bytes("blk.0.ffn_up.weight", dtype, vec![1, 256], vec![0; 66]).unwrap();
    let message = tensor.to_f32().unwrap_err().to_string();
    assert!(message.contains("blk.0.ffn_up.weight") && message.contains("IQ2_XXS"), "{message}");
    assert!(tensor.row_to_f32(0, &mut [0.0; 256]).is_err());
}

#[test]
fn plain_types_convert_exactly() {
    let bf16 = Tensor::from_bytes("t", DType::BF16, vec![2], vec![0x80, 0x3f, 0x00, 0xc0]).unwrap();
    assert_eq!(bf16.to_f32().unwrap(), [1.0, -2.0]);
    let f64s = Tensor::from_bytes("t", DType::F64, vec![1], 0.1f64.to_le_bytes().to_vec()).unwrap();
    assert_eq!(f64s.to_f32().unwrap(), [0.1f32]);
    let i64s = Tensor::from_bytes("t", DType::I64, vec![1], i64::MIN.to_le_bytes().to_vec()).unwrap();
    assert_eq!(i64s.to_i64().unwrap(), [i64::MIN]);
    assert_eq!(i64s.to_f32().unwrap(), [-9.223_372e18]);
    let bools = Tensor::from_bytes("t", DType::Bool, vec![2], vec![0, 1]).unwrap();
    assert_eq!(bools.to_f32().unwrap(), [0.0, 1.0]);
    assert!(bf16.to_i64().is_err());
}

#[test]
fn shape_queries_and_arguments() {
    let values: Vec<f32> = (0..24).map(|v| v as f32).collect();
    let tensor = Tensor::from_f32("t", vec![2, 3, 4], &values);
    assert_eq!((tensor.rows(), tensor.cols(), tensor.elements()), (6, 4, 24));
    let mut row = [0.0; 4];
    tensor.row_to_f32(5, &mut row).unwrap();
    assert_eq!(row, [20.0, 21.0, 22.0, 23.0]);
    assert!(tensor.row_to_f32(6, &mut row).is_err());
    assert!(tensor.row_to_f32(0, &mut [0.0; 3]).is_err());
    let scalar = Tensor::from_f32("s", vec![], &[7.0]);
    assert_eq!((scalar.rows(), scalar.cols(), scalar.elements()), (1, 1, 1));
    let mut one = [0.0];
    scalar.row_to_f32(0, &mut one).unwrap();
    assert_eq!(one, [7.0]);
    assert_eq!(tensor.renamed("u").name(), "u");
    assert!(Tensor::from_bytes("t", DType::Q4_0, vec![2, 16], vec![0; 18]).is_err());
    assert!(Tensor::from_bytes("t", DType::F32, vec![2], vec![0; 4]).is_err());
    assert!(Tensor::from_bytes("t", DType::F32, vec![usize::MAX, 2], vec![]).is_err());
}

#[test]
fn dropped_pages_read_the_same_again() {
    let file = GgufFile::open(&golden().join("model-F16.gguf")).unwrap();
    let tensor = file.weights().require("token_embd.weight").unwrap();
    let before = tensor.to_f32().unwrap();
    tensor.mapping_advise_dont_need();
    assert_eq!(tensor.to_f32().unwrap(), before);
}
