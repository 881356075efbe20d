//! Rounding to blocks gives the bytes of ggml's reference.

use turbospark_weights::DType;
use turbospark_weights::block::quantise;

/// The number at a place of a random sequence, in [0, 1) (SplitMix64, seed 7).
fn unit(at: u64) -> f32 {
    let mut z = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(7);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 40) as f32 / (1u32 << 24) as f32
}

/// Values of many sizes, a block of zeros, one of equal values and one of halves.
fn values() -> Vec<f32> {
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
fn bytes_are_those_of_the_reference() {
    for (dtype, expected) in [(DType::Q8_0, 0x5d8b_74ee_af2b_e00f), (DType::Q4_0, 0xce53_cb73_093b_27c2)] {
        let values = values();
        let mut bytes = vec![0; dtype.bytes_for(values.len()).expect("whole blocks")];
        quantise(dtype, &values, &mut bytes).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(hash(&bytes), expected, "{dtype}");
    }
}
