//! Seeded random numbers and tensors, so that a case of a test is one number.

use half::{bf16, f16};
use weights::{DType, Tensor};

/// A small generator (SplitMix64, Steele et al. 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.word() % end as u64) as usize
    }

    /// One of the items.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f32 {
        (self.word() >> 40) as f32 / (1u32 << 24) as f32
    }

    /// Standard normal (Box & Muller 1958).
    pub fn normal(&mut self) -> f32 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f32::consts::TAU * self.unit()).cos()
    }

    /// Normal values.
    pub fn normals(&mut self, count: usize, mean: f32, deviation: f32) -> Vec<f32> {
        (0..count).map(|_| mean + deviation * self.normal()).collect()
    }

    /// Token ids below `vocab`.
    pub fn tokens(&mut self, count: usize, vocab: usize) -> Vec<u32> {
        (0..count).map(|_| self.below(vocab) as u32).collect()
    }

    /// A matrix of `[rows, cols]` whose products with unit activations are of unit size.
    ///
    /// # Panics
    /// As [`Self::tensor`].
    pub fn matrix(&mut self, name: &str, dtype: DType, shape: [usize; 2]) -> Tensor {
        self.tensor(name, dtype, shape, (shape[1] as f32).powf(-0.5))
    }

    /// A matrix of `[rows, cols]` with values of about this size: normal ones for float types, blocks of random
    /// codes under fitting scales for quantised ones.
    ///
    /// # Panics
    /// If `cols` is no whole number of blocks, or the type holds integers.
    pub fn tensor(&mut self, name: &str, dtype: DType, [rows, cols]: [usize; 2], deviation: f32) -> Tensor {
        let floats = |r: &mut Self| r.normals(rows * cols, 0.0, deviation);
        let bytes = match dtype {
            DType::F32 => floats(self).iter().flat_map(|x| x.to_le_bytes()).collect(),
            DType::F16 => floats(self).iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect(),
            DType::BF16 => floats(self).iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect(),
            _ => self.blocks(dtype, rows * cols / dtype.block_len(), deviation),
        };
        Tensor::from_bytes(name, dtype, vec![rows, cols], bytes).unwrap_or_else(|e| panic!("{e}"))
    }

    fn blocks(&mut self, dtype: DType, count: usize, deviation: f32) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..count * dtype.block_bytes()).map(|_| self.word() as u8).collect();
        for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
            let scale = deviation * (0.5 + self.unit());
            let mut put = |at: usize, x: f32| block[at..at + 2].copy_from_slice(&f16::from_f32(x).to_le_bytes());
            // The divisors are the usual size of a code, so that values come out as large as `scale`.
            match dtype {
                DType::Q4_0 => put(0, scale / 4.6),
                DType::Q5_0 => put(0, scale / 9.2),
                DType::Q8_0 | DType::IQ4NL => put(0, scale / 74.0),
                DType::Q4_1 => {
                    put(0, scale / 4.6);
                    put(2, scale * -7.5 / 4.6);
                }
                DType::Q5_1 => {
                    put(0, scale / 9.2);
                    put(2, scale * -15.5 / 9.2);
                }
                DType::Q2K => {
                    put(80, scale / 10.0);
                    put(82, scale / 7.0);
                }
                DType::Q3K => put(108, scale / 42.0),
                DType::Q4K => {
                    put(0, scale / 160.0);
                    put(2, scale / 21.0);
                }
                DType::Q5K => {
                    put(0, scale / 320.0);
                    put(2, scale / 21.0);
                }
                DType::Q6K => put(208, scale / 1400.0),
                DType::IQ4XS => put(0, scale / 1370.0),
                DType::IQ3S => put(0, scale / 128.0),
                DType::MXFP4 => block[0] = (127.0 + scale.log2() - 1.0).clamp(1.0, 254.0) as u8,
                other => panic!("{other} is no type of weights"),
            }
        }
        bytes
    }
}
