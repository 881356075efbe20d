//! Byte layouts and exact dequantisation, one file a format.
//!
//! A block is [`crate::DType::block_bytes`] bytes for [`crate::DType::block_len`] elements. Every number is
//! little-endian; `half` is IEEE binary16. The `f32` results follow ggml's reference rounding order, each
//! multiplication and addition rounded by itself, so they are the same bits on every machine.

pub mod float;
pub mod integer;
pub mod iq3_s;
mod iq3_s_grid;
pub mod iq4_nl;
pub mod iq4_xs;
pub mod mxfp4;
pub mod q2_k;
pub mod q3_k;
pub mod q4_0;
pub mod q4_1;
pub mod q4_k;
pub mod q5_0;
pub mod q5_1;
pub mod q5_k;
pub mod q6_k;
pub mod q8_0;
mod search;

use crate::{DType, WeightsError};

/// Converts stored `bytes` of type `dtype` to `out`. Errors if the lengths disagree or the type has no conversion.
pub fn dequantise(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<(), WeightsError> {
    if dtype.bytes_for(out.len()) != Some(bytes.len()) {
        return Err(WeightsError::Argument {
            tensor: dtype.name().into(),
            field: "bytes",
            expected: format!("{} in blocks of {}", out.len(), dtype.block_len()),
            found: format!("{} bytes in blocks of {}", bytes.len(), dtype.block_bytes()),
        });
    }
    let unsupported =
        |expected| WeightsError::UnsupportedType { tensor: "bytes".into(), dtype: dtype.name(), expected };
    let convert: fn(&[u8], &mut [f32]) = match dtype {
        DType::F32 => float::f32s,
        DType::F16 => float::f16s,
        DType::BF16 => float::bf16s,
        DType::F64 => float::f64s,
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 => {
            return integer::to_f32(dtype, bytes, out).ok_or_else(|| unsupported("integers that f32 holds exactly"));
        }
        DType::Bool => {
            return integer::to_f32(dtype, bytes, out).ok_or_else(|| unsupported("bytes 0 and 1"));
        }
        DType::Q4_0 => q4_0::dequantise,
        DType::Q4_1 => q4_1::dequantise,
        DType::Q5_0 => q5_0::dequantise,
        DType::Q5_1 => q5_1::dequantise,
        DType::Q8_0 => q8_0::dequantise,
        DType::Q2K => q2_k::dequantise,
        DType::Q3K => q3_k::dequantise,
        DType::Q4K => q4_k::dequantise,
        DType::Q5K => q5_k::dequantise,
        DType::Q6K => q6_k::dequantise,
        DType::IQ4NL => iq4_nl::dequantise,
        DType::IQ4XS => iq4_xs::dequantise,
        DType::IQ3S => iq3_s::dequantise,
        DType::MXFP4 => mxfp4::dequantise,
        DType::Unsupported(_) => return Err(unsupported("a type with a conversion to f32")),
    };
    if dtype.is_quantised() {
        let blocks = bytes.chunks_exact(dtype.block_bytes());
        for (bytes, out) in blocks.zip(out.chunks_exact_mut(dtype.block_len())) {
            convert(bytes, out);
        }
    } else {
        convert(bytes, out);
    }
    Ok(())
}

/// Rounds `values` to blocks of type `dtype` in `bytes`. Errors if the lengths disagree, the type is not one of
/// [`DType::QUANTISERS`], or a value is too large for it or no number.
///
/// `importance` says how much the squared error of each value counts, as many as there are values, finite and not
/// negative; without it, types with searched scales favour large values a little, as their reference quantisers do.
/// `Q8_0` has one way to round and ignores it.
pub fn quantise(
    dtype: DType,
    values: &[f32],
    importance: Option<&[f32]>,
    bytes: &mut [u8],
) -> Result<(), WeightsError> {
    let misfit = |field, expected, found| WeightsError::Argument { tensor: "values".into(), field, expected, found };
    let convert: fn(&[f32], &[f32], &mut [u8]) = match dtype {
        DType::Q4_0 if importance.is_none() => |x, _, block| q4_0::quantise(x, block),
        DType::Q4_0 => q4_0::quantise_weighted,
        DType::Q4_1 => q4_1::quantise,
        DType::Q5_0 => q5_0::quantise,
        DType::Q5_1 => q5_1::quantise,
        DType::Q8_0 => |x, _, block| q8_0::quantise(x, block),
        DType::Q2K => q2_k::quantise,
        DType::Q3K => q3_k::quantise,
        DType::Q4K => q4_k::quantise,
        DType::Q5K => q5_k::quantise,
        DType::Q6K => q6_k::quantise,
        DType::IQ4NL => iq4_nl::quantise,
        DType::IQ4XS => iq4_xs::quantise,
        DType::MXFP4 => mxfp4::quantise,
        _ => {
            let known = DType::QUANTISERS.map(DType::name);
            return Err(misfit("type", format!("one of {}", known.join(", ")), dtype.name().into()));
        }
    };
    if dtype.bytes_for(values.len()) != Some(bytes.len()) {
        let expected = format!("whole blocks of {} values in {} bytes", dtype.block_len(), dtype.block_bytes());
        return Err(misfit("bytes", expected, format!("{} values, {} bytes", values.len(), bytes.len())));
    }
    if let Some(found) = importance.map(<[f32]>::len).filter(|len| *len != values.len()) {
        return Err(misfit("importance", format!("{} numbers", values.len()), found.to_string()));
    }
    if let Some(bad) = importance.unwrap_or_default().iter().find(|w| !w.is_finite() || **w < 0.0) {
        return Err(misfit("importance", "finite numbers of at least 0".into(), bad.to_string()));
    }
    let most = largest(dtype);
    if let Some(bad) = values.iter().find(|x| x.is_nan() || x.abs() > most) {
        return Err(misfit("values", format!("numbers up to {most}"), bad.to_string()));
    }
    let len = dtype.block_len();
    let mut weights = vec![1.0; len];
    for (index, (values, block)) in
        values.chunks_exact(len).zip(bytes.chunks_exact_mut(dtype.block_bytes())).enumerate()
    {
        weigh(dtype, values, importance.map(|all| &all[index * len..][..len]), &mut weights);
        convert(values, &weights, block);
    }
    Ok(())
}

/// The largest value that a type takes: a scale is a half and no more than an eighth of it, a stored offset a half.
fn largest(dtype: DType) -> f32 {
    let half = half::f16::MAX.to_f32();
    if matches!(dtype, DType::Q4_1 | DType::Q5_1) { half } else { 8.0 * half }
}

/// How much the squared error of each value of a block counts.
fn weigh(dtype: DType, x: &[f32], importance: Option<&[f32]>, out: &mut [f32]) {
    let mean_square = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
    let total: f32 = importance.unwrap_or_default().iter().sum();
    match importance {
        // Importance of nothing is no importance.
        Some(importance) if total > 0.0 => {
            for ((out, x), given) in out.iter_mut().zip(x).zip(importance) {
                *out = given * (mean_square + x * x).sqrt();
            }
        }
        _ => {
            let size = mean_square.sqrt();
            for (out, x) in out.iter_mut().zip(x) {
                *out = match dtype {
                    DType::Q2K | DType::Q4K | DType::Q5K => size + x.abs(),
                    DType::Q3K | DType::Q6K | DType::IQ4NL | DType::IQ4XS => x * x,
                    _ => 1.0,
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_the_formats_own() {
        // The value farthest from zero decides sign and scale; of two, the first.
        let mut x: Vec<f32> = (0..32).map(|i| i as f32 / 8.0 - 2.0).collect();
        x[5] = -4.0;
        x[7] = 4.0;
        let mut block = [0; q4_0::BYTES];
        q4_0::quantise(&x, &mut block);
        assert_eq!(float::half_at(&block, 0), 0.5);
        assert_eq!((block[2 + 5] & 15, block[2 + 7] & 15), (0, 15), "-4 is exact and 4 as near as can be");
        let mut block = [0; q8_0::BYTES];
        q8_0::quantise(&x, &mut block);
        assert_eq!((block[2 + 5] as i8, block[2 + 7] as i8), (-127, 127));
        for dtype in DType::QUANTISERS {
            let len = dtype.block_len();
            let mut bytes = vec![0; dtype.block_bytes()];
            for tiny in [0.0, 1e-40] {
                quantise(dtype, &vec![tiny; len], None, &mut bytes).expect("nearly zeros");
                let mut back = vec![1.0; len];
                dequantise(dtype, &bytes, &mut back).expect("a block");
                assert!(back.iter().all(|x| x.abs() < 1e-38), "{dtype}: {back:?}");
            }
            let most = largest(dtype);
            for bad in [f32::NAN, f32::INFINITY, -1e30] {
                let mut x = vec![1.0; len];
                x[len - 1] = bad;
                let message = quantise(dtype, &x, None, &mut bytes).expect_err("cannot be stored").to_string();
                assert!(message.contains(&format!("up to {most}")), "{message}");
                x[len - 1] = most;
                quantise(dtype, &x, None, &mut bytes).expect("the largest");
                let mut back = vec![0.0; len];
                dequantise(dtype, &bytes, &mut back).expect("a block");
                assert!((back[len - 1] / most - 1.0).abs() < 0.15, "{dtype}: {} of {most}", back[len - 1]);
                let given = vec![bad; len];
                assert!(quantise(dtype, &vec![1.0; len], Some(&given), &mut bytes).is_err(), "{dtype}");
            }
        }
        assert!(quantise(DType::IQ3S, &[0.0; 256], None, &mut [0; 110]).is_err());
        assert!(quantise(DType::Q8_0, &[0.0; 33], None, &mut [0; 34]).is_err());
        assert!(quantise(DType::Q8_0, &[0.0; 32], Some(&[1.0; 31]), &mut [0; 34]).is_err());
    }

    #[test]
    fn sizes_agree_with_the_table_of_types() {
        let sizes = [
            (DType::Q4_0, q4_0::LEN, q4_0::BYTES),
            (DType::Q4_1, q4_1::LEN, q4_1::BYTES),
            (DType::Q5_0, q5_0::LEN, q5_0::BYTES),
            (DType::Q5_1, q5_1::LEN, q5_1::BYTES),
            (DType::Q8_0, q8_0::LEN, q8_0::BYTES),
            (DType::Q2K, q2_k::LEN, q2_k::BYTES),
            (DType::Q3K, q3_k::LEN, q3_k::BYTES),
            (DType::Q4K, q4_k::LEN, q4_k::BYTES),
            (DType::Q5K, q5_k::LEN, q5_k::BYTES),
            (DType::Q6K, q6_k::LEN, q6_k::BYTES),
            (DType::IQ4NL, iq4_nl::LEN, iq4_nl::BYTES),
            (DType::IQ4XS, iq4_xs::LEN, iq4_xs::BYTES),
            (DType::IQ3S, iq3_s::LEN, iq3_s::BYTES),
            (DType::MXFP4, mxfp4::LEN, mxfp4::BYTES),
        ];
        for (dtype, len, bytes) in sizes {
            assert_eq!((dtype.block_len(), dtype.block_bytes()), (len, bytes), "{dtype}");
        }
    }

    #[test]
    fn lengths_that_disagree_are_an_error() {
        assert!(dequantise(DType::Q4_0, &[0; 18], &mut [0.0; 31]).is_err());
        assert!(dequantise(DType::Q4_0, &[0; 17], &mut [0.0; 32]).is_err());
        assert!(dequantise(DType::F32, &[0; 8], &mut [0.0; 1]).is_err());
    }
}
