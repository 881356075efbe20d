//! Element-wise functions, softmax and normalisation: ordinary lane-wise Rust, compiled once for each level of [`Isa`], so that
//! all levels give the same bits. Sums run in eight interleaved chains folded in a fixed order.

use crate::isa::{Isa, Kernel, Widen};

/// Interleaved chains of a sum.
const LANES: usize = 8;

/// `eˣ` within 2 units in the last place; subnormal results included.
///
/// Range reduction `x = n·ln 2 + r`, then the polynomial of Cephes' `expf`.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Beyond these the result is 0 or infinite. Written so that a NaN stays.
    let x = if x < -104.0 { -104.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let (n, exponent) = nearest_integer(x * std::f32::consts::LOG2_E);
    let r = n.mul_add(-0.693_359_4, x);
    let r = n.mul_add(2.121_944_4e-4, r);
    let p = 1.987_569_1e-4_f32;
    let p = p.mul_add(r, 1.398_2e-3);
    let p = p.mul_add(r, 8.333_452e-3);
    let p = p.mul_add(r, 4.166_579_6e-2);
    let p = p.mul_add(r, 1.666_666_5e-1);
    let p = p.mul_add(r, 0.5);
    let p = p.mul_add(r * r, r) + 1.0;
    // Two factors, because 2ⁿ itself may be out of range.
    let half = exponent >> 1;
    p * power_of_two(half) * power_of_two(exponent - half)
}

/// The nearest integer, ties to even, as float and as integer; for |x| < 2²².
#[inline(always)]
fn nearest_integer(x: f32) -> (f32, i32) {
    // Adding 1.5 · 2²³ rounds and leaves the integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let rounded = x + ROUND;
    (rounded - ROUND, (rounded.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32))
}

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `1 / (1 + e⁻ˣ)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x / (1 + e⁻ˣ)`.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// `tanh x`, from `e^(−2|x|)`; a polynomial near 0.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let e = exp(-2.0 * x.abs());
    let far = ((1.0 - e) / (1.0 + e)).copysign(x);
    let s = x * x;
    let p = -5.704_988_7e-3_f32;
    let p = p.mul_add(s, 2.063_909e-2);
    let p = p.mul_add(s, -5.373_971_7e-2);
    let p = p.mul_add(s, 1.333_144_3e-1);
    let p = p.mul_add(s, -3.333_328e-1);
    let near = (p * s).mul_add(x, x);
    if x.abs() < 0.625 { near } else { far }
}

/// The tanh form of GELU: `x/2 · (1 + tanh y)` with `y = √(2/π)·(x + 0.044715·x³)`, computed as `x / (1 + e⁻²ʸ)`.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    let y = (0.044_715 * x * x).mul_add(x, x) * 0.797_884_6;
    x / (1.0 + exp(-2.0 * y))
}

/// The error-function form of GELU: `x/2 · (1 + erf(x/√2))`.
#[inline(always)]
pub fn gelu_erf(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

/// The error function within a few units in the last place: a polynomial near 0, `1 − e^p(|x|)` beyond.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let (t, s) = (x.abs(), x * x);
    let u = (-3.883_964_4e-3_f32).mul_add(t, 2.425_462_2e-2);
    let p = (-1.728_534_7e-5_f32).mul_add(t, 3.831_974_3e-4);
    let p = p.mul_add(s, u);
    let p = p.mul_add(t, -1.067_778_8e-1);
    let p = p.mul_add(t, -6.348_467e-1);
    let p = p.mul_add(t, -1.287_175_1e-1);
    let far = (1.0 - exp(p.mul_add(t, -t))).copysign(x);
    let p = -5.967_617e-4_f32;
    let p = p.mul_add(s, 4.991_194_2e-3);
    let p = p.mul_add(s, -2.676_813_5e-2);
    let p = p.mul_add(s, 1.128_199_25e-1);
    let p = p.mul_add(s, -3.761_253_4e-1);
    let p = p.mul_add(s, 1.283_791_7e-1);
    let near = p.mul_add(x, x);
    if t > 0.927_734_4 { far } else { near }
}

/// Maps each element.
struct Map<'a, F>(&'a mut [f32], F);

impl<F: Fn(f32) -> f32> Kernel for Map<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<W: Widen>(self, _: W) {
        for x in self.0 {
            *x = self.1(*x);
        }
    }
}

/// Combines each element of two inputs.
struct Zip<'a, F>([&'a [f32]; 2], &'a mut [f32], F);

impl<F: Fn(f32, f32) -> f32> Kernel for Zip<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<W: Widen>(self, _: W) {
        for ((out, a), b) in self.1.iter_mut().zip(self.0[0]).zip(self.0[1]) {
            *out = self.2(*a, *b);
        }
    }
}

/// Combines each element with one of another input, in place.
struct Update<'a, F>(&'a mut [f32], &'a [f32], F);

impl<F: Fn(f32, f32) -> f32> Kernel for Update<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<W: Widen>(self, _: W) {
        for (a, b) in self.0.iter_mut().zip(self.1) {
            *a = self.2(*a, *b);
        }
    }
}

fn map(isa: Isa, x: &mut [f32], f: impl Fn(f32) -> f32) {
    isa.run(Map(x, f));
}

fn zip(isa: Isa, a: &[f32], b: &[f32], out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    assert!(a.len() == out.len() && b.len() == out.len(), "slices of {}, {} and {}", a.len(), b.len(), out.len());
    isa.run(Zip([a, b], out, f));
}

fn update(isa: Isa, a: &mut [f32], b: &[f32], f: impl Fn(f32, f32) -> f32) {
    assert_eq!(a.len(), b.len(), "slices of the same length");
    isa.run(Update(a, b, f));
}

/// `x = eˣ`.
pub fn exp_in_place(isa: Isa, x: &mut [f32]) {
    map(isa, x, exp);
}

/// `x = 1 / (1 + e⁻ˣ)`.
pub fn sigmoid_in_place(isa: Isa, x: &mut [f32]) {
    map(isa, x, sigmoid);
}

/// `x = silu(x)`.
pub fn silu_in_place(isa: Isa, x: &mut [f32]) {
    map(isa, x, silu);
}

/// `x = tanh x`.
pub fn tanh_in_place(isa: Isa, x: &mut [f32]) {
    map(isa, x, tanh);
}

/// `x = gelu_tanh(x)`.
pub fn gelu_tanh_in_place(isa: Isa, x: &mut [f32]) {
    map(isa, x, gelu_tanh);
}

/// `x = gelu_erf(x)`.
pub fn gelu_erf_in_place(isa: Isa, x: &mut [f32]) {
    map(isa, x, gelu_erf);
}

/// `x = x · factor`.
pub fn scale(isa: Isa, x: &mut [f32], factor: f32) {
    map(isa, x, |x| x * factor);
}

/// `x = cap · tanh(x / cap)`.
pub fn softcap(isa: Isa, x: &mut [f32], cap: f32) {
    map(isa, x, |x| cap * tanh(x / cap));
}

/// `out = silu(gate) · up`.
///
/// # Panics
/// If the lengths differ.
pub fn silu_mul(isa: Isa, gate: &[f32], up: &[f32], out: &mut [f32]) {
    zip(isa, gate, up, out, |gate, up| silu(gate) * up);
}

/// `out = gelu_tanh(gate) · up`.
///
/// # Panics
/// If the lengths differ.
pub fn gelu_tanh_mul(isa: Isa, gate: &[f32], up: &[f32], out: &mut [f32]) {
    zip(isa, gate, up, out, |gate, up| gelu_tanh(gate) * up);
}

/// `out = gelu_erf(gate) · up`.
///
/// # Panics
/// If the lengths differ.
pub fn gelu_erf_mul(isa: Isa, gate: &[f32], up: &[f32], out: &mut [f32]) {
    zip(isa, gate, up, out, |gate, up| gelu_erf(gate) * up);
}

/// `out = (u + 1) · g · sigmoid(alpha · g)` with `g = min(gate, limit)` and `u = clamp(up, ±limit)`.
///
/// # Panics
/// If the lengths differ.
pub fn clamped_mul(isa: Isa, [limit, alpha]: [f32; 2], gate: &[f32], up: &[f32], out: &mut [f32]) {
    zip(isa, gate, up, out, |gate, up| {
        let g = if gate > limit { limit } else { gate };
        let u = if up > limit { limit } else { up };
        let u = if u < -limit { -limit } else { u };
        (u + 1.0) * (g * sigmoid(alpha * g))
    });
}

/// `x = x + y`.
///
/// # Panics
/// If the lengths differ.
pub fn add(isa: Isa, x: &mut [f32], y: &[f32]) {
    update(isa, x, y, |x, y| x + y);
}

/// `x = x · y`.
///
/// # Panics
/// If the lengths differ.
pub fn mul(isa: Isa, x: &mut [f32], y: &[f32]) {
    update(isa, x, y, |x, y| x * y);
}

/// `x = fma(factor, y, x)`.
///
/// # Panics
/// If the lengths differ.
pub fn add_scaled(isa: Isa, x: &mut [f32], y: &[f32], factor: f32) {
    update(isa, x, y, |x, y| factor.mul_add(y, x));
}

/// `x = x · sigmoid(y)`.
///
/// # Panics
/// If the lengths differ.
pub fn mul_sigmoid(isa: Isa, x: &mut [f32], y: &[f32]) {
    update(isa, x, y, |x, y| x * sigmoid(y));
}

/// Folds eight chains: lanes four apart, then two, then one.
#[inline(always)]
fn fold(chains: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let [a, b, c, d, e, g, h, i] = chains;
    f(f(f(a, e), f(c, h)), f(f(b, g), f(d, i)))
}

/// Runs eight interleaved chains over `x`; a short last group takes part in the first chains only.
#[inline(always)]
fn chains(x: &[f32], start: f32, step: impl Fn(f32, f32) -> f32) -> [f32; LANES] {
    let mut chains = [start; LANES];
    let (groups, tail) = x.as_chunks::<LANES>();
    for group in groups {
        for (chain, x) in chains.iter_mut().zip(group) {
            *chain = step(*chain, *x);
        }
    }
    for (chain, x) in chains.iter_mut().zip(tail) {
        *chain = step(*chain, *x);
    }
    chains
}

/// The greatest element; −∞ for none. NaNs are passed over.
pub fn max(isa: Isa, x: &[f32]) -> f32 {
    struct Max<'a>(&'a [f32]);
    impl Kernel for Max<'_> {
        type Output = f32;
        #[inline(always)]
        fn run<W: Widen>(self, _: W) -> f32 {
            let greater = |a: f32, b: f32| if b > a { b } else { a };
            fold(chains(self.0, f32::NEG_INFINITY, greater), greater)
        }
    }
    isa.run(Max(x))
}

/// The sum, in eight chains.
pub fn sum(isa: Isa, x: &[f32]) -> f32 {
    struct Sum<'a>(&'a [f32]);
    impl Kernel for Sum<'_> {
        type Output = f32;
        #[inline(always)]
        fn run<W: Widen>(self, _: W) -> f32 {
            fold(chains(self.0, 0.0, |a, b| a + b), |a, b| a + b)
        }
    }
    isa.run(Sum(x))
}

/// The sum of squares, in eight fma chains.
pub fn sum_of_squares(isa: Isa, x: &[f32]) -> f32 {
    struct SumOfSquares<'a>(&'a [f32]);
    impl Kernel for SumOfSquares<'_> {
        type Output = f32;
        #[inline(always)]
        fn run<W: Widen>(self, _: W) -> f32 {
            fold(chains(self.0, 0.0, |acc, x| x.mul_add(x, acc)), |a, b| a + b)
        }
    }
    isa.run(SumOfSquares(x))
}

/// `Σ x · y`, in eight fma chains.
///
/// # Panics
/// If the lengths differ.
pub fn dot(isa: Isa, x: &[f32], y: &[f32]) -> f32 {
    struct Dot<'a>(&'a [f32], &'a [f32]);
    impl Kernel for Dot<'_> {
        type Output = f32;
        #[inline(always)]
        fn run<W: Widen>(self, _: W) -> f32 {
            let mut chains = [0.0_f32; LANES];
            for (x, y) in self.0.chunks(LANES).zip(self.1.chunks(LANES)) {
                for ((chain, x), y) in chains.iter_mut().zip(x).zip(y) {
                    *chain = x.mul_add(*y, *chain);
                }
            }
            fold(chains, |a, b| a + b)
        }
    }
    assert_eq!(x.len(), y.len(), "slices of the same length");
    isa.run(Dot(x, y))
}

/// `x = e^(x − max)`; returns the sum. Elements of −∞ become 0, also when `max` is −∞.
pub fn exp_minus_max(isa: Isa, x: &mut [f32], max: f32) -> f32 {
    let max = if max == f32::NEG_INFINITY { 0.0 } else { max };
    map(isa, x, |x| exp(x - max));
    // `exp` of −∞ is that of −104, which is 0 in f32.
    sum(isa, x)
}

/// Softmax in place; all zeros where every element is −∞.
pub fn softmax(isa: Isa, x: &mut [f32]) {
    let max = max(isa, x);
    let sum = exp_minus_max(isa, x, max);
    if sum > 0.0 {
        scale(isa, x, 1.0 / sum);
    }
}

/// Root-mean-square norm of one row: `out = x · (1 / √(mean(x²) + eps)) · weight`.
///
/// # Panics
/// If the lengths differ.
pub fn rms_norm(isa: Isa, x: &[f32], weight: Option<&[f32]>, eps: f32, out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "a row has the same length before and after the norm");
    let factor = rms_factor(isa, x, eps);
    match weight {
        Some(weight) => zip(isa, x, weight, out, |x, weight| x * factor * weight),
        None => zip(isa, x, x, out, |x, _| x * factor),
    }
}

/// As [`rms_norm`], in place.
///
/// # Panics
/// If the lengths differ.
pub fn rms_norm_in_place(isa: Isa, x: &mut [f32], weight: Option<&[f32]>, eps: f32) {
    let factor = rms_factor(isa, x, eps);
    match weight {
        Some(weight) => update(isa, x, weight, |x, weight| x * factor * weight),
        None => scale(isa, x, factor),
    }
}

fn rms_factor(isa: Isa, x: &[f32], eps: f32) -> f32 {
    1.0 / (sum_of_squares(isa, x) / x.len() as f32 + eps).sqrt()
}
