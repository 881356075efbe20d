//! Scales for the values of a group: those whose rounding errors, squared and weighted, add up to the least.
//!
//! For codes that are given, the best scale (and offset) is a weighted least-squares solution; for a scale that is given,
//! the best codes are the nearest. A search tries scales around the obvious one, solves, keeps the best, and then alternates.
//! Nothing depends on anything but the values and weights, in one order, so the result is the same on every machine.

/// A group whose largest value is smaller is stored as zeros.
const TINY: f32 = 1e-30;
/// Times the found scale is improved by turns.
const TURNS: usize = 3;

/// The nearest integer of a number below 2^22, ties to even.
pub(super) fn nearest(x: f32) -> f32 {
    const SHIFT: f32 = 12_582_912.0;
    (x + SHIFT) - SHIFT
}

/// `1 / x`, and 0 for 0.
pub(super) fn inverse(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

/// The value farthest from zero, the first of equals.
pub(super) fn farthest(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |far: f32, x| if x.abs() > far.abs() { *x } else { far })
}

/// The best scale so far and how much of the weighted squares it explains.
#[derive(Default)]
struct Best {
    gain: f32,
    scale: f32,
}

impl Best {
    /// Takes the least-squares scale for the codes that `code` gives, if it is better.
    fn consider(&mut self, x: &[f32], w: &[f32], code: impl Fn(f32) -> f32) -> bool {
        let (mut xq, mut qq) = (0.0, 0.0);
        for (x, w) in x.iter().zip(w) {
            let q = code(*x);
            xq += w * x * q;
            qq += w * q * q;
        }
        let better = qq > 0.0 && xq * xq > self.gain * qq;
        if better {
            *self = Self { gain: xq * xq / qq, scale: xq / qq };
        }
        better
    }
}

/// The scale `d` of `x ≈ d · q` with whole numbers `q` from `low` (negative) to `high`.
pub(super) fn scale(x: &[f32], w: &[f32], low: f32, high: f32) -> f32 {
    search(x, w, low, 0.1, |x| nearest(x.clamp(low, high)))
}

/// The scale `d` of `x ≈ d · codebook[q]`.
pub(super) fn codebook_scale(x: &[f32], w: &[f32], codebook: &[i8; 16]) -> f32 {
    search(x, w, f32::from(codebook[0]), 1.0, |x| f32::from(codebook[nearest_index(codebook, x)]))
}

/// Tries scales that give the farthest value codes around `end`, `step` apart.
fn search(x: &[f32], w: &[f32], end: f32, step: f32, code: impl Fn(f32) -> f32) -> f32 {
    const STEPS: i8 = 9;
    let most = farthest(x);
    if most.abs() < TINY {
        return 0.0;
    }
    let mut best = Best { gain: 0.0, scale: most / end };
    for k in -STEPS..=STEPS {
        let inverse = (end + step * f32::from(k)) / most;
        best.consider(x, w, |x| code(x * inverse));
        best.consider(x, w, |x| code(x * -inverse));
    }
    for _ in 0..TURNS {
        let inverse = 1.0 / best.scale;
        if !inverse.is_finite() || !best.consider(x, w, |x| code(x * inverse)) {
            break;
        }
    }
    best.scale
}

/// The index of the value of an ascending codebook that is nearest to `x`, the lower one of two.
pub(super) fn nearest_index(codebook: &[i8; 16], x: f32) -> usize {
    let above = |pair: &[i8]| usize::from(x + x > f32::from(i16::from(pair[0]) + i16::from(pair[1])));
    codebook.windows(2).map(above).sum()
}

/// A scale and an offset: `x ≈ scale · q + floor`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Line {
    pub(super) scale: f32,
    pub(super) floor: f32,
}

impl Line {
    /// The line of `x ≈ scale · (q − middle)`.
    pub(super) fn around(scale: f32, middle: f32) -> Self {
        Self { scale, floor: -middle * scale }
    }

    /// The code of a value, a whole number from 0 to `top`.
    pub(super) fn code(&self, x: f32, top: f32) -> f32 {
        nearest(((x - self.floor) * inverse(self.scale)).clamp(0.0, top))
    }

    /// The weighted least-squares line through the codes that `self` gives, its floor at most `ceiling`.
    fn refit(&self, x: &[f32], w: &[f32], top: f32, ceiling: f32) -> Option<Self> {
        let inverse = inverse(self.scale);
        let (mut sw, mut sx, mut sq, mut sqq, mut sxq) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (x, w) in x.iter().zip(w) {
            let q = nearest(((x - self.floor) * inverse).clamp(0.0, top));
            sw += w;
            sx += w * x;
            sq += w * q;
            sqq += w * q * q;
            sxq += w * x * q;
        }
        let determinant: f32 = sw * sqq - sq * sq;
        if determinant <= 0.0 {
            return None;
        }
        let free = Self { scale: (sw * sxq - sq * sx) / determinant, floor: (sqq * sx - sq * sxq) / determinant };
        let line = if free.floor > ceiling { Self { scale: (sxq - ceiling * sq) / sqq, floor: ceiling } } else { free };
        (line.scale > 0.0 && line.scale.is_finite() && line.floor.is_finite()).then_some(line)
    }

    fn error(&self, x: &[f32], w: &[f32], top: f32) -> f32 {
        let inverse = inverse(self.scale);
        let each = x.iter().zip(w).map(|(x, w)| {
            let q = nearest(((x - self.floor) * inverse).clamp(0.0, top));
            let off = self.scale * q + self.floor - x;
            w * off * off
        });
        each.sum()
    }
}

/// The line of `x ≈ scale · q + floor` with whole numbers `q` from 0 to `top` and a floor of at most `ceiling`.
pub(super) fn line(x: &[f32], w: &[f32], top: f32, ceiling: f32) -> Line {
    const STEPS: i8 = 10;
    let floor = x.iter().copied().fold(ceiling, f32::min);
    let range = x.iter().copied().fold(floor, f32::max) - floor;
    if range < TINY {
        return Line { scale: 0.0, floor };
    }
    let mut best = Line { scale: range / top, floor };
    let mut least = best.error(x, w, top);
    let mut consider = |start: &Line| {
        let found = start.refit(x, w, top, ceiling)?;
        let error = found.error(x, w, top);
        if error < least {
            (best, least) = (found, error);
            return Some(found);
        }
        None
    };
    let mut last = None;
    for k in -STEPS..=STEPS {
        let scale = range / (top + 0.1 * f32::from(k));
        last = consider(&Line { scale, floor }).or(last);
    }
    for _ in 0..TURNS {
        match last.and_then(|line| consider(&line)) {
            None => break,
            better => last = better,
        }
    }
    best
}

/// One scale for the scales of several groups: a half, and their whole multiples from `low` (negative) to `high`.
pub(super) fn signed<const N: usize>(scales: &[f32; N], low: f32, high: f32) -> (f32, [i8; N]) {
    let d = half::f16::from_f32(farthest(scales) / low).to_f32();
    let inverse = inverse(d);
    (d, scales.map(|s| nearest((s * inverse).clamp(low, high)) as i8))
}

/// One scale for the sizes of several groups of values with weights `w`: a half, and their whole multiples from 0 to `top`.
pub(super) fn unsigned<const N: usize>(sizes: &[f32; N], w: &[f32], top: f32) -> (f32, [u8; N]) {
    let groups: [f32; N] = each(w, w, |w, _| w.iter().sum());
    let d = half::f16::from_f32(search(sizes, &groups, top, 0.1, |x| nearest(x.clamp(0.0, top)))).to_f32();
    let inverse = inverse(d);
    (d, sizes.map(|s| nearest((s * inverse).clamp(0.0, top)) as u8))
}

/// The codes of a block of groups of `len` values, each group on its own line of a stored scale and minimum.
pub(super) fn codes(x: &[f32], len: usize, top: f32, line: impl Fn(usize) -> Line) -> [u8; 256] {
    let mut codes = [0; 256];
    for (group, (x, codes)) in x.chunks_exact(len).zip(codes.chunks_exact_mut(len)).enumerate() {
        let line = line(group);
        for (code, x) in codes.iter_mut().zip(x) {
            *code = line.code(*x, top) as u8;
        }
    }
    codes
}

/// The scales of groups of `x.len() / N` values, each from its own search.
pub(super) fn each<T, const N: usize>(x: &[f32], w: &[f32], search: impl Fn(&[f32], &[f32]) -> T) -> [T; N] {
    let len = x.len() / N;
    std::array::from_fn(|g| search(&x[g * len..][..len], &w[g * len..][..len]))
}

/// 32 codes of up to four bits in 16 bytes: code `j` in the low half of byte `j`, `j + 16` in the high one.
pub(super) fn nibbles(codes: &[u8; 32], out: &mut [u8]) {
    for (j, byte) in out[..16].iter_mut().enumerate() {
        *byte = codes[j] & 15 | codes[j + 16] << 4;
    }
}
