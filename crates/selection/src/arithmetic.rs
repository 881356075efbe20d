//! `exp` and `ln` from IEEE additions and multiplications alone, so that every machine gets the
//! same bits. Rust never contracts `a * b + c` into a fused operation.

const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// ln 2 split so that `k * LN_2_HIGH` is exact for every exponent `k` of a double.
const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
/// Adding 1.5·2⁵² rounds to an integer and leaves it in the low bits of the sum.
const ROUNDER: f64 = 6_755_399_441_055_744.0;
/// Below this the result is zero; above it no step leaves the normal numbers.
const LOWEST: f64 = -700.0;

/// e^x for x ≤ 0, relative error below 1e-15; zero below −700, exactly 1 at 0.
///
/// Branch-free, so that a loop over it vectorises: x = k·ln 2 + r with |r| ≤ ln 2 / 2, a Taylor
/// polynomial of degree 12 in r, and 2^k put in the exponent field.
#[inline(always)]
pub(crate) fn exp_of_non_positive(x: f64) -> f64 {
    let clamped = if x > LOWEST { x } else { LOWEST };
    let shifted = clamped * LOG2_E + ROUNDER;
    let k = shifted - ROUNDER;
    let r = (clamped - k * LN_2_HIGH) - k * LN_2_LOW;
    // Estrin's scheme: half the latency of Horner's.
    let (r2, c) = (r * r, &COEFFICIENTS);
    let r4 = r2 * r2;
    let pair = |n: usize| c[n] + c[n + 1] * r;
    let quad = |n: usize| pair(n) + pair(n + 2) * r2;
    let sum = quad(0) + (quad(4) + (quad(8) + c[12] * r4) * r4) * r4;
    let scale = f64::from_bits(1f64.to_bits().wrapping_add(shifted.to_bits() << 52));
    if x > LOWEST { sum * scale } else { 0.0 }
}

/// 1/0! to 1/12!.
const COEFFICIENTS: [f64; 13] = [
    1.0,
    1.0,
    0.5,
    1.0 / 6.0,
    1.0 / 24.0,
    1.0 / 120.0,
    1.0 / 720.0,
    1.0 / 5_040.0,
    1.0 / 40_320.0,
    1.0 / 362_880.0,
    1.0 / 3_628_800.0,
    1.0 / 39_916_800.0,
    1.0 / 479_001_600.0,
];

/// ln x for a normal x > 0, relative error below 1e-14.
///
/// x = 2^k·m with m in [√½, √2), and ln m = 2·artanh((m − 1)/(m + 1)) as a series.
pub(crate) fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut k = (bits >> 52) as i64 - 1023;
    let mut m = f64::from_bits((bits & ((1 << 52) - 1)) | 1f64.to_bits());
    if m >= std::f64::consts::SQRT_2 {
        m *= 0.5;
        k += 1;
    }
    let s = (m - 1.0) / (m + 1.0);
    let s2 = s * s;
    let mut sum = 0.0;
    for odd in (0..12).rev() {
        sum = sum * s2 + 1.0 / f64::from(2 * odd + 1);
    }
    let k = k as f64;
    k * LN_2_HIGH + (2.0 * s * sum + k * LN_2_LOW)
}

/// The sum in a fixed order that still vectorises: four lanes, then the lanes, then the rest.
pub(crate) fn sum(values: &[f64]) -> f64 {
    let mut lanes = [0f64; 4];
    let chunks = values.chunks_exact(4);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += value;
        }
    }
    let head = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    rest.iter().fold(head, |total, value| total + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_1e_15_of_the_platform() {
        assert_eq!(exp_of_non_positive(0.0), 1.0);
        assert_eq!(exp_of_non_positive(f64::NEG_INFINITY), 0.0);
        assert_eq!(exp_of_non_positive(-701.0), 0.0);
        for step in 0..700_000 {
            let x = f64::from(step) * -0.001;
            let (own, platform) = (exp_of_non_positive(x), x.exp());
            assert!((own / platform - 1.0).abs() < 1e-15, "{x}: {own} {platform}");
        }
    }

    #[test]
    fn ln_is_close_to_the_platform() {
        assert_eq!(ln(1.0), 0.0);
        for step in 1..200_000 {
            let x = f64::from(step) * 1.37;
            assert!((ln(x) / x.ln() - 1.0).abs() < 1e-14, "{x}");
            let x = 1.0 / x;
            assert!((ln(x) - x.ln()).abs() <= 1e-14 * x.ln().abs() + 1e-16, "{x}");
        }
    }

    #[test]
    fn results_have_the_same_bits_everywhere() {
        let exps = [-0.1, -1.0, -2.5, -33.3].map(|x| exp_of_non_positive(x).to_bits());
        assert_eq!(exps, [0x3fec_f46d_99d5_2b3b, 0x3fd7_8b56_362c_ef38, 0x3fb5_0385_c094_f425, 0x3cef_165b_b9b5_9d94]);
        let lns = [2.0, 3.0, 1e6].map(|x| ln(x).to_bits());
        assert_eq!(lns, [0x3fe6_2e42_fefa_39ef, 0x3ff1_93ea_7aad_030b, 0x402b_a18a_998f_ffa0]);
    }
}
