//! Rounding to blocks, against the reference rounding of the formats.

use turbospark_weights::block::quantise;
use turbospark_weights::{DType, Tensor};

/// The number at a place of a random sequence, in [0, 1) (SplitMix64, seed 7).
fn unit(at: u64) -> f32 {
    let mut z = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(7);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 40) as f32 / (1u32 << 24) as f32
}

/// Values of many sizes, a block of zeros, one of equal values and one of halves.
fn of_many_sizes() -> Vec<f32> {
    let mut values: Vec<f32> =
        (0..32 * 4096).map(|i| (unit(i as u64) - 0.5) * 2.0f32.powi((i / 32) % 24 - 16)).collect();
    values[..32].fill(0.0);
    values[32..64].fill(-3.5);
    values[64..96].iter_mut().enumerate().for_each(|(i, x)| *x = (i as f32 - 16.0) / 2.0);
    values
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

/// The hashes are of the bytes that the Python package `gguf` 0.19 (`gguf.quants.quantize`) gives for these values.
#[test]
fn bytes_of_plain_types_are_those_of_the_reference() {
    let tensor = Tensor::from_f32("x", vec![64, 2048], &of_many_sizes());
    for (dtype, expected) in [(DType::Q8_0, 0x5d8b_74ee_af2b_e00f), (DType::Q4_0, 0xce53_cb73_093b_27c2)] {
        let rounded = tensor.quantised(dtype).expect("whole blocks");
        assert_eq!((rounded.dtype(), rounded.shape()), (dtype, tensor.shape()));
        assert_eq!(hash(rounded.bytes()), expected, "{dtype}");
    }
}

const ROWS: usize = 48;
const COLS: usize = 1024;

/// Rows of bell-shaped values, every third with heavy tails, every third around a half; importance of the columns.
fn rows() -> (Vec<f32>, Vec<f32>) {
    let value = |i: usize| {
        let part = |k| unit(4 * i as u64 + k);
        let bell = ((part(0) + part(1)) + part(2)) + part(3) - 2.0;
        [bell, bell * bell.abs(), bell + 0.5][i / COLS % 3] * 0.0625
    };
    let importance = |i: usize| {
        let u = unit((4 * ROWS * COLS + i) as u64);
        u * u + 0.01
    };
    ((0..ROWS * COLS).map(value).collect(), (0..COLS).map(importance).collect())
}

/// The root of the weighted squares of the errors over those of the values.
fn error(tensor: &Tensor, rounded: &Tensor, weight: impl Fn(usize) -> f32) -> f64 {
    let (x, y) = (tensor.to_f32().expect("f32"), rounded.to_f32().expect("expands"));
    let sum = |of: &dyn Fn(usize) -> f64| -> f64 { (0..x.len()).map(|i| f64::from(weight(i % COLS)) * of(i)).sum() };
    let off = sum(&|i| (f64::from(x[i]) - f64::from(y[i])).powi(2));
    (off / sum(&|i| f64::from(x[i]).powi(2))).sqrt()
}

/// The figures are those of the Python package `libgguf` 0.2.2 (`quantize_rows`) for these rows: the plain error without
/// importance, and the weighted error with importance.
#[test]
fn errors_are_within_a_hundredth_of_the_references() {
    let references = [
        (DType::Q8_0, 0.005_636_309, 0.005_675_696),
        (DType::Q4_0, 0.086_702_794, 0.079_428_355),
        (DType::Q4_1, 0.074_131_168, 0.061_746_070),
        (DType::Q5_0, 0.043_862_261, 0.040_426_761),
        (DType::Q5_1, 0.035_999_645, 0.030_196_072),
        (DType::Q2K, 0.280_481_485, 0.219_330_234),
        (DType::Q3K, 0.146_849_386, 0.132_381_458),
        (DType::Q4K, 0.067_075_648, 0.062_709_842),
        (DType::Q5K, 0.034_217_684, 0.032_102_825),
        (DType::Q6K, 0.018_282_637, 0.017_050_143),
        (DType::IQ4NL, 0.076_037_262, 0.071_814_680),
        (DType::IQ4XS, 0.076_600_833, 0.072_573_730),
        (DType::MXFP4, 0.117_356_683, 0.117_870_520),
    ];
    assert_eq!(references.map(|(dtype, ..)| dtype), DType::QUANTISERS);
    let (values, importance) = rows();
    let tensor = Tensor::from_f32("x", vec![ROWS, COLS], &values);
    let mut failures = Vec::new();
    for (dtype, plain, weighted) in references {
        let found = [
            error(&tensor, &tensor.quantised(dtype).expect("rounds"), |_| 1.0) / plain,
            error(&tensor, &tensor.quantised_for(dtype, Some(&importance)).expect("rounds"), |i| importance[i])
                / weighted,
        ];
        println!("{dtype}: {:.4} of the reference's error, {:.4} with importance", found[0], found[1]);
        if found.iter().any(|ratio| *ratio > 1.01) {
            failures.push((dtype, found));
        }
    }
    assert!(failures.is_empty(), "{failures:?}");
}

#[test]
fn rounding_depends_on_nothing_but_the_values() {
    let (values, importance) = rows();
    let tensor = Tensor::from_f32("x", vec![2, ROWS / 2, COLS], &values);
    let twice = [importance.clone(), vec![1.0; COLS]].concat();
    for dtype in DType::QUANTISERS {
        // One row at a time on one thread, and all rows on all threads.
        let whole = tensor.quantised_for(dtype, Some(&twice)).expect("rounds");
        let stride = whole.bytes().len() / ROWS;
        for row in [0, 1, ROWS / 2, ROWS - 1] {
            let importance = if row < ROWS / 2 { &importance[..] } else { &twice[COLS..] };
            let mut bytes = vec![0; stride];
            quantise(dtype, &values[row * COLS..][..COLS], Some(importance), &mut bytes).expect("rounds");
            assert!(bytes == whole.bytes()[row * stride..][..stride], "{dtype}, row {row}");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let narrow = Tensor::from_f32("narrow.weight", vec![2, 48], &[1.0; 96]);
    let message = narrow.quantised(DType::Q8_0).expect_err("48 columns").to_string();
    assert!(message.contains("`narrow.weight`") && message.contains("multiple of 32") && message.contains("48"));
    let message = narrow.quantised(DType::IQ3S).expect_err("no quantiser").to_string();
    assert!(message.contains("`narrow.weight`"), "{message}");
    let mut values = rows().0;
    values[5000] = f32::NAN;
    let broken = Tensor::from_f32("broken.weight", vec![ROWS, COLS], &values);
    let message = broken.quantised(DType::Q4_0).expect_err("no number").to_string();
    assert!(message.contains("`broken.weight`") && message.contains("NaN"), "{message}");
    let message = broken.quantised_for(DType::Q4K, Some(&[1.0; 7])).expect_err("7 columns").to_string();
    assert!(message.contains("`broken.weight`") && message.contains("7 numbers"), "{message}");
    let empty = Tensor::from_f32("empty", vec![0, 32], &[]);
    assert!(empty.quantised(DType::Q8_0).expect("nothing to do").bytes().is_empty());
}
