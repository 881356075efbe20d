//! Plain integers, little-endian, and booleans (one byte, 0 or 1).

use crate::DType;

/// All values as `i64`; `None` if the type is no integer or a value does not fit.
pub fn widen(dtype: DType, bytes: &[u8]) -> Option<Vec<i64>> {
    match dtype {
        DType::I8 => each(bytes, |b: [u8; 1]| Some(i8::from_le_bytes(b).into())),
        DType::I16 => each(bytes, |b| Some(i16::from_le_bytes(b).into())),
        DType::I32 => each(bytes, |b| Some(i32::from_le_bytes(b).into())),
        DType::I64 => each(bytes, |b| Some(i64::from_le_bytes(b))),
        DType::U8 => each(bytes, |b: [u8; 1]| Some(b[0].into())),
        DType::U16 => each(bytes, |b| Some(u16::from_le_bytes(b).into())),
        DType::U32 => each(bytes, |b| Some(u32::from_le_bytes(b).into())),
        DType::U64 => each(bytes, |b| u64::from_le_bytes(b).try_into().ok()),
        DType::Bool => each(bytes, |b: [u8; 1]| (b[0] < 2).then_some(b[0].into())),
        _ => None,
    }
}

/// All values as `f32`; `None` if the type is no integer or a value is not exact in `f32`.
pub(super) fn to_f32(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Option<()> {
    for (out, value) in out.iter_mut().zip(widen(dtype, bytes)?) {
        *out = value as f32;
        if *out as i128 != i128::from(value) {
            return None;
        }
    }
    Some(())
}

fn each<const N: usize>(bytes: &[u8], convert: impl Fn([u8; N]) -> Option<i64>) -> Option<Vec<i64>> {
    bytes.as_chunks::<N>().0.iter().map(|b| convert(*b)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_integers_become_floats() {
        let mut out = [0.0];
        assert_eq!(to_f32(DType::I32, &(-5i32).to_le_bytes(), &mut out), Some(()));
        assert_eq!(out, [-5.0]);
        assert_eq!(to_f32(DType::I32, &16_777_217i32.to_le_bytes(), &mut out), None);
        assert_eq!(to_f32(DType::I64, &i64::MAX.to_le_bytes(), &mut out), None);
        assert_eq!(to_f32(DType::U64, &u64::MAX.to_le_bytes(), &mut out), None);
        assert_eq!(to_f32(DType::Bool, &[2], &mut out), None);
    }
}
