//! Matrix products against dequantised references, across levels, row counts and splits.

use proptest::prelude::*;
use turbospark_cpu::isa::{Isa, Level};
use turbospark_cpu::kernels::activation::{Activations, BLOCK};
use turbospark_cpu::kernels::matmul::{Input, Matrix, matmul, planes};
use turbospark_cpu::pool::{Pool, Tiles};
use weights::DType;

/// A small generator, so that a case is one number.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    fn unit(&mut self) -> f32 {
        (self.next() as f32 / 2f32.powi(31)) - 1.0
    }

    /// Values of very different sizes, with zeros of both signs and whole zero blocks.
    fn activations(&mut self, count: usize, extreme: bool) -> Vec<f32> {
        let mut size = 1.0;
        (0..count)
            .map(|i| {
                if extreme && i % BLOCK == 0 {
                    size = [1.0, 1e-30, 1e12, 0.0, 1e-42, -0.0][self.next() as usize % 6];
                }
                if extreme && self.next().is_multiple_of(7) { -0.0 } else { self.unit() * size }
            })
            .collect()
    }

    /// Blocks with any codes; f16 scales anything finite if `extreme`, else small.
    fn weights(&mut self, dtype: DType, elements: usize, extreme: bool) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            (0..elements / dtype.block_len() * dtype.block_bytes()).map(|_| self.next() as u8).collect();
        let f16s: &[usize] = match dtype {
            DType::Q2K => &[80, 82],
            DType::Q3K => &[108],
            DType::Q6K => &[208],
            DType::Q4_1 | DType::Q5_1 | DType::Q4K | DType::Q5K => &[0, 2],
            _ => &[0],
        };
        for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
            match dtype {
                DType::F32 => block.copy_from_slice(&self.unit().to_le_bytes()),
                DType::BF16 => block.copy_from_slice(&half::bf16::from_f32(self.unit()).to_le_bytes()),
                DType::MXFP4 => block[0] = if extreme { self.next() as u8 % 200 } else { 118 + self.next() as u8 % 8 },
                _ => {
                    for &at in f16s {
                        let any = half::f16::from_bits(self.next() as u16);
                        let small = half::f16::from_f32(self.unit() * 0.1);
                        let scale = if extreme && any.is_finite() { any } else { small };
                        block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
                    }
                }
            }
        }
        bytes
    }
}

struct Case {
    dtype: DType,
    outputs: usize,
    width: usize,
    bytes: Vec<u8>,
    x: Vec<f32>,
}

impl Case {
    fn new(dtype: DType, [outputs, width, rows]: [usize; 3], seed: u64, extreme: bool) -> Self {
        let mut random = Random(seed);
        let width = width.next_multiple_of(dtype.block_len());
        let bytes = random.weights(dtype, outputs * width, extreme);
        let x = random.activations(rows * width, extreme);
        Self { dtype, outputs, width, bytes, x }
    }

    fn matrix(&self) -> Matrix<'_> {
        Matrix { dtype: self.dtype, rows: self.outputs, cols: self.width, bytes: &self.bytes }
    }

    /// The product of some activation rows, in tiles of `tile` outputs.
    fn product(&self, isa: Isa, rows: std::ops::Range<usize>, tile: usize) -> Vec<f32> {
        let x = &self.x[rows.start * self.width..rows.end * self.width];
        let mut quantised = Activations::default();
        quantised.quantise(isa, x, self.width, planes(self.dtype).unwrap_or(1));
        let input = match planes(self.dtype) {
            Some(_) => Input::Quantised(&quantised),
            None => Input::F32 { x, rows: rows.len(), width: self.width },
        };
        let mut out = vec![f32::NAN; rows.len() * self.outputs];
        let tiles = Tiles::columns(&mut out, rows.len(), self.outputs, tile);
        Pool::new(2).run_tiles(tiles, &|_, mut tile| {
            let outputs = tile.first_col()..tile.first_col() + tile.cols();
            matmul(isa, &self.matrix(), outputs, &input, &mut tile);
        });
        out
    }

    /// The product in f64 from dequantised weights and the given activations.
    fn reference(&self, x: &[f32]) -> Vec<f64> {
        let mut w = vec![0.0; self.outputs * self.width];
        weights::block::dequantise(self.dtype, &self.bytes, &mut w).expect("whole blocks");
        let dot = |w: &[f32], x: &[f32]| w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
        x.chunks_exact(self.width).flat_map(|x| w.chunks_exact(self.width).map(move |w| dot(w, x))).collect()
    }
}

/// The activations as the codes of so many planes say.
fn dequantised(x: &[f32], width: usize, planes: usize) -> Vec<f32> {
    let mut quantised = Activations::default();
    quantised.quantise(Isa::SCALAR, x, width, planes);
    let mut values = vec![0.0; x.len()];
    for (row, values) in values.chunks_exact_mut(width).enumerate() {
        for plane in 0..planes {
            let codes = quantised.plane(plane, row).iter().flat_map(|b| b.codes.map(|code| f32::from(code) * b.scale));
            values.iter_mut().zip(codes).for_each(|(value, code)| *value += code);
        }
    }
    values
}

fn nmse(found: &[f32], expected: &[f64]) -> f64 {
    let error: f64 = found.iter().zip(expected).map(|(found, expected)| (f64::from(*found) - expected).powi(2)).sum();
    error / expected.iter().map(|value| value * value).sum::<f64>()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn levels() -> Vec<Isa> {
    [Level::Scalar, Level::Avx2].into_iter().filter_map(Isa::with).collect()
}

#[test]
fn products_agree_with_the_dequantised_reference() {
    for dtype in DType::MATRICES {
        let case = Case::new(dtype, [24, 512, 8], 7, false);
        for isa in levels() {
            let found = case.product(isa, 0..8, 8);
            let plain = nmse(&found, &case.reference(&case.x));
            assert!(plain <= 1e-3, "{dtype}, {isa:?}: NMSE {plain:e} against f32 activations");
            if let Some(planes) = planes(dtype) {
                let same = nmse(&found, &case.reference(&dequantised(&case.x, case.width, planes)));
                assert!(same <= 1e-10, "{dtype}, {isa:?}: NMSE {same:e} against the same activations");
                assert!(planes == 1 || plain <= 1e-9, "{dtype}, {isa:?}: NMSE {plain:e} with {planes} planes");
            }
        }
    }
}

#[test]
fn the_reference_check_can_fail() {
    let mut case = Case::new(DType::Q4_0, [24, 512, 8], 7, false);
    let found = case.product(Isa::SCALAR, 0..8, 8);
    case.bytes[5] ^= 0x70;
    let same = nmse(&found, &case.reference(&dequantised(&case.x, case.width, 1)));
    assert!(same > 1e-10, "one changed code goes unnoticed: {same:e}");
}

#[test]
fn codes_and_activations_at_their_ends_do_not_overflow() {
    for (dtype, planes) in DType::MATRICES.into_iter().filter_map(|dtype| Some((dtype, planes(dtype)?))) {
        for fill in [0x00, 0x7f, 0x80, 0xff] {
            for sign in [1.0, -1.0] {
                let mut case = Case::new(dtype, [8, 512, 5], 3, false);
                let scales = case.bytes.clone();
                let block = dtype.block_bytes();
                for (at, byte) in case.bytes.iter_mut().enumerate() {
                    let head = match dtype {
                        DType::Q2K => at % block >= 80,
                        DType::Q3K => at % block >= 108,
                        DType::Q6K => at % block >= 208,
                        DType::MXFP4 => at % block < 1,
                        DType::Q4_0 | DType::Q5_0 | DType::Q8_0 | DType::IQ4NL | DType::IQ4XS => at % block < 2,
                        _ => at % block < 4,
                    };
                    *byte = if head { scales[at] } else { fill };
                }
                case.x.fill(sign * 3.0);
                let reference = case.reference(&dequantised(&case.x, case.width, planes));
                for isa in levels() {
                    for rows in [1, 5] {
                        let found = case.product(isa, 0..rows, 8);
                        let scale = reference.iter().fold(1e-6, |max: f64, value| max.max(value.abs()));
                        for (found, expected) in found.iter().zip(&reference) {
                            let error = (f64::from(*found) - expected).abs();
                            assert!(error <= 1e-4 * scale, "{dtype} {fill:#x} {isa:?}: {found}, not {expected}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn activations_that_are_not_finite_show_in_every_output() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut case = Case::new(DType::Q4_0, [9, 64, 2], 1, false);
        case.x[70] = value;
        for isa in levels() {
            let found = case.product(isa, 0..2, 16);
            assert!(found[..9].iter().all(|value| value.is_finite()));
            assert!(found[9..].iter().all(|value| value.is_nan()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn bits_do_not_depend_on_level_rows_or_split(
        outputs in 1..35_usize,
        width in 1..1300_usize,
        rows in 1..10_usize,
        tile in 1..40_usize,
        seed: u64,
        extreme: bool,
    ) {
        for dtype in DType::MATRICES {
            let case = Case::new(dtype, [outputs, width, rows], seed, extreme);
            let expected = case.product(Isa::SCALAR, 0..rows, outputs);
            for isa in levels() {
                let whole = case.product(isa, 0..rows, outputs);
                prop_assert_eq!(bits(&whole), bits(&expected), "{} at {:?}", dtype, isa);
                let split = case.product(isa, 0..rows, tile);
                prop_assert_eq!(bits(&split), bits(&expected), "{} at {:?} in tiles of {}", dtype, isa, tile);
                let one_by_one: Vec<f32> = (0..rows).flat_map(|row| case.product(isa, row..row + 1, outputs)).collect();
                prop_assert_eq!(bits(&one_by_one), bits(&expected), "{} at {:?} row by row", dtype, isa);
            }
        }
    }

    #[test]
    fn many_rows_have_the_bits_of_few(rows in 190..270_usize, seed: u64) {
        for dtype in [DType::F16, DType::Q4_0, DType::Q8_0, DType::Q6K, DType::Q2K, DType::MXFP4] {
            let case = Case::new(dtype, [9, 300, rows], seed, false);
            for isa in levels() {
                let together = case.product(isa, 0..rows, 8);
                let last = case.product(isa, rows - 1..rows, 8);
                prop_assert_eq!(bits(&together[(rows - 1) * 9..]), bits(&last), "{} at {:?}", dtype, isa);
            }
        }
    }

    #[test]
    fn quantised_activations_have_the_same_bits_at_every_level(width in 1..200_usize, rows in 1..6_usize, seed: u64) {
        let x = Random(seed).activations(width * rows, true);
        let [mut scalar, mut other] = [Activations::default(), Activations::default()];
        scalar.quantise(Isa::SCALAR, &x, width, 2);
        for isa in levels() {
            other.quantise_on(&Pool::new(2), isa, &x, width, 2);
            for row in 0..rows {
                for plane in 0..2 {
                    let [expected, found] = [&scalar, &other].map(|a| bytemuck::cast_slice::<_, u8>(a.plane(plane, row)));
                    prop_assert_eq!(expected, found, "plane {}", plane);
                }
                for (block, x) in other.row(row).iter().zip(x[row * width..][..width].chunks(BLOCK)) {
                    for (code, x) in block.codes.iter().zip(x) {
                        let amax = x.abs().max(block.scale * 127.0);
                        let error = (f32::from(*code) * block.scale - x).abs();
                        prop_assert!(error <= block.scale * 0.501 || amax < 2e-36, "{x} became {code}·{}", block.scale);
                    }
                }
                for block in other.row(row) {
                    let halves = [0, 16].map(|start| block.codes[start..start + 16].iter().map(|code| i16::from(*code)).sum::<i16>());
                    prop_assert_eq!(block.sums, halves);
                }
            }
        }
    }
}
