//! Rounding to blocks, against the reference rounding of the formats.

use turbospark_weights::{DType, Tensor};

/// Values of several sizes, with a run of zeros: `[64, 128]`.
fn values() -> Vec<f32> {
    let value = |i: usize| {
        let size = [1.0, 1.0 / 512.0, 32.0][i % 96 / 32];
        if (100..132).contains(&i) { 0.0 } else { ((i * 7919 % 1009) as f32 - 504.0) / 64.0 * size }
    };
    (0..64 * 128).map(value).collect()
}

/// The bytes are those that the reference implementation of the formats writes (`gguf` 0.19's `quants.quantize`).
#[test]
fn bytes_are_the_reference_implementations() {
    let tensor = Tensor::from_f32("x", vec![64, 128], &values());
    for (dtype, expected) in [(DType::Q8_0, 0x5d15_f59a_c263_4f53_u64), (DType::Q4_0, 0xf54e_aa48_42d1_960c)] {
        let rounded = tensor.quantised(dtype).expect("whole blocks");
        assert_eq!((rounded.dtype(), rounded.shape()), (dtype, tensor.shape()));
        let hash = rounded.bytes().iter().fold(0u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(*byte)));
        assert_eq!(hash, expected, "{dtype}: {hash:#x}");
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let narrow = Tensor::from_f32("narrow.weight", vec![2, 48], &[1.0; 96]);
    let message = narrow.quantised(DType::Q8_0).expect_err("48 columns").to_string();
    assert!(message.contains("`narrow.weight`") && message.contains("multiple of 32") && message.contains("48"));
    let mut values = values();
    values[5000] = f32::NAN;
    let broken = Tensor::from_f32("broken.weight", vec![64, 128], &values);
    let message = broken.quantised(DType::Q4_0).expect_err("no number").to_string();
    assert!(message.contains("`broken.weight`") && message.contains("NaN"), "{message}");
    let empty = Tensor::from_f32("empty", vec![0, 32], &[]);
    assert!(empty.quantised(DType::Q8_0).expect("nothing to do").bytes().is_empty());
}
