//! Element-wise functions, sums and attention products: accuracy, and the same bits at every level.

use half::f16;
use proptest::prelude::*;
use turbospark_cpu::isa::{Isa, Level, widen_f16};
use turbospark_cpu::kernels::attention::{KEYS, Stored, add_weighted, scores};
use turbospark_cpu::kernels::math;

fn levels() -> Vec<Isa> {
    [Level::Scalar, Level::Avx2].into_iter().filter_map(Isa::with).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| if value.is_nan() { f32::NAN } else { *value }.to_bits()).collect()
}

/// The error in units of the last place of the f32 nearest to `expected`.
fn ulps(found: f32, expected: f64) -> f64 {
    let nearest = expected as f32;
    let unit = f64::from(f32::from_bits(nearest.abs().to_bits() + 1)) - f64::from(nearest.abs());
    (f64::from(found) - expected).abs() / unit
}

fn erf(x: f64) -> f64 {
    // The series converges everywhere; up to 4 it is exact enough in f64.
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

fn grid(from: f32, to: f32) -> impl Iterator<Item = f32> {
    (0..200_000).map(move |i| from + (to - from) * i as f32 / 200_000.0)
}

#[test]
fn exp_is_within_two_units() {
    let worst = grid(-87.0, 88.7).map(|x| ulps(math::exp(x), f64::from(x).exp())).fold(0.0, f64::max);
    assert!(worst <= 2.0, "{worst} units");
    for (x, expected) in [
        (f32::NEG_INFINITY, 0.0),
        (-200.0, 0.0),
        (0.0, 1.0),
        (-0.0, 1.0),
        (89.0, f32::INFINITY),
        (f32::INFINITY, f32::INFINITY),
    ] {
        assert_eq!(math::exp(x), expected, "exp({x})");
    }
    assert!(math::exp(f32::NAN).is_nan());
    let subnormal = math::exp(-100.0);
    assert!((f64::from(subnormal) - (-100f64).exp()).abs() <= 1.5e-45, "{subnormal:e}");
}

#[test]
fn tanh_and_erf_are_within_a_few_units() {
    let tanh = grid(-10.0, 10.0).map(|x| ulps(math::tanh(x), f64::from(x).tanh())).fold(0.0, f64::max);
    assert!(tanh <= 4.0, "tanh: {tanh} units");
    let worst = grid(-4.0, 4.0).map(|x| ulps(math::erf(x), erf(f64::from(x)))).fold(0.0, f64::max);
    assert!(worst <= 4.0, "erf: {worst} units");
}

#[test]
fn activations_agree_with_their_definitions() {
    let close = |found: f32, expected: f64| (f64::from(found) - expected).abs() <= 2e-6 * (expected.abs() + 0.1);
    for x in grid(-30.0, 30.0) {
        let wide = f64::from(x);
        assert!(close(math::silu(x), wide / (1.0 + (-wide).exp())), "silu({x})");
        let y = (2.0 / std::f64::consts::PI).sqrt() * (wide + 0.044_715 * wide.powi(3));
        assert!(close(math::gelu_tanh(x), 0.5 * wide * (1.0 + y.tanh())), "gelu_tanh({x})");
        if x.abs() < 5.0 {
            let expected = 0.5 * wide * (1.0 + erf(wide / 2f64.sqrt()));
            assert!(close(math::gelu_erf(x), expected), "gelu_erf({x})");
        }
    }
    for (x, silu, gelu) in [(-200.0, 0.0, 0.0), (200.0, 200.0, 200.0), (0.0, 0.0, 0.0)] {
        assert_eq!((math::silu(x), math::gelu_tanh(x)), (silu, gelu), "at {x}");
    }
}

#[test]
fn softmax_handles_masked_rows() {
    for isa in levels() {
        let mut x = [f32::NEG_INFINITY, 1.0, 1.0];
        math::softmax(isa, &mut x);
        assert_eq!(x, [0.0, 0.5, 0.5]);
        let mut x = [f32::NEG_INFINITY; 3];
        math::softmax(isa, &mut x);
        assert_eq!(x, [0.0; 3]);
    }
}

#[test]
fn rms_norm_agrees_with_its_definition() {
    let x: Vec<f32> = (0..77).map(|i| (i as f32 * 0.37).sin() * 3.0).collect();
    let weight: Vec<f32> = (0..77).map(|i| 1.0 + i as f32 / 77.0).collect();
    let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / 77.0;
    for isa in levels() {
        let mut out = vec![0.0; 77];
        math::rms_norm(isa, &x, Some(&weight), 1e-5, &mut out);
        for ((out, x), weight) in out.iter().zip(&x).zip(&weight) {
            let expected = f64::from(*x) / (mean + 1e-5).sqrt() * f64::from(*weight);
            assert!((f64::from(*out) - expected).abs() <= 1e-6 * expected.abs().max(1.0));
        }
        let mut in_place = x.clone();
        math::rms_norm_in_place(isa, &mut in_place, Some(&weight), 1e-5);
        assert_eq!(in_place, out);
    }
}

#[test]
fn attention_products_agree_with_their_definitions() {
    for head_dim in [1, 8, 33, 64, 80] {
        for heads in [1, 2, 3] {
            let value = |i: usize| f16::from_f32(((i * 7 % 23) as f32 - 11.0) / 8.0);
            let narrow: Vec<f16> = (0..head_dim * KEYS).map(value).collect();
            let wide: Vec<f32> = narrow.iter().map(|x| x.to_f32()).collect();
            let q: Vec<f32> = (0..heads * head_dim).map(|i| (i as f32).sin()).collect();
            let p: Vec<f32> = (0..heads * KEYS).map(|i| (i as f32).cos()).collect();
            let expected_scores: Vec<f32> = (0..heads * KEYS)
                .map(|i| {
                    (0..head_dim).fold(0.0, |acc, d| q[i / KEYS * head_dim + d].mul_add(wide[d * KEYS + i % KEYS], acc))
                })
                .collect();
            let keys = 19;
            let expected_out: Vec<f32> = (0..heads * head_dim)
                .map(|i| {
                    (0..keys)
                        .fold(1.0, |acc, k| p[i / head_dim * KEYS + k].mul_add(wide[k * head_dim + i % head_dim], acc))
                })
                .collect();
            for isa in levels() {
                let mut widened = vec![0.0; wide.len()];
                widen_f16(isa, &narrow, &mut widened);
                assert_eq!(widened, wide);
                for stored in [Stored::F32(&wide), Stored::F16(&narrow)] {
                    let mut out = vec![f32::NAN; heads * KEYS];
                    scores(isa, &q, stored, &mut out);
                    assert_eq!(bits(&out), bits(&expected_scores), "scores of {heads}×{head_dim} at {isa:?}");
                }
                for stored in [Stored::F32(&wide[..keys * head_dim]), Stored::F16(&narrow[..keys * head_dim])] {
                    let mut out = vec![1.0; heads * head_dim];
                    add_weighted(isa, &p, stored, head_dim, &mut out);
                    assert_eq!(bits(&out), bits(&expected_out), "outputs of {heads}×{head_dim} at {isa:?}");
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn bits_do_not_depend_on_the_level(raw in prop::collection::vec(any::<u32>(), 1..100), tame: bool) {
        let x: Vec<f32> = raw.iter().map(|raw| if tame { *raw as f32 / 2e8 - 10.0 } else { f32::from_bits(*raw) }).collect();
        let y: Vec<f32> = x.iter().rev().copied().collect();
        let all = |isa: Isa| -> Vec<Vec<u32>> {
            let in_place = |f: &dyn Fn(Isa, &mut [f32])| {
                let mut out = x.clone();
                f(isa, &mut out);
                bits(&out)
            };
            vec![
                in_place(&math::exp_in_place),
                in_place(&math::silu_in_place),
                in_place(&math::tanh_in_place),
                in_place(&math::gelu_tanh_in_place),
                in_place(&math::gelu_erf_in_place),
                in_place(&math::softmax),
                in_place(&|isa, out| math::silu_mul(isa, &x, &y, out)),
                in_place(&|isa, out| math::gelu_tanh_mul(isa, &x, &y, out)),
                in_place(&|isa, out| math::add_scaled(isa, out, &y, 1.7)),
                in_place(&|isa, out| math::mul_sigmoid(isa, out, &y)),
                in_place(&|isa, out| math::rms_norm(isa, &x, Some(&y), 1e-6, out)),
                in_place(&|isa, out| math::softcap(isa, out, 30.0)),
                bits(&[math::max(isa, &x), math::sum(isa, &x), math::sum_of_squares(isa, &x), math::dot(isa, &x, &x)]),
            ]
        };
        let expected = all(Isa::SCALAR);
        for isa in levels() {
            prop_assert_eq!(&all(isa), &expected);
        }
    }
}
