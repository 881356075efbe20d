//! Which instruction set the kernels use: detected once, proved by a value.
//!
//! An [`Isa`] that names a level exists only on a machine that has it, so holding one is the proof that kernels compiled for
//! that level may run. A new level is a variant of [`Level`], a token like [`Avx2`], a file in this folder and one arm in each
//! dispatching `match`; the scalar arm is the definition every other arm must equal bit for bit.
//!
//! Two ways to use a level: [`Isa::run`] compiles ordinary lane-wise Rust for it (the same source, hence the same bits), and
//! the kernels' own `avx2` files use intrinsics where integer dot products need them.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
pub mod avx2;

use std::sync::OnceLock;

/// The instruction sets with kernels of their own. `Neon` and `Avx512` will be added here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Portable Rust: the definition of every kernel.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
}

/// An instruction set this machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Level);

/// Proof that AVX2, FMA and F16C may be used.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

/// A computation to be compiled once for each level. Its `run` must be `#[inline(always)]` to take the level's features over.
pub trait Kernel {
    /// What the computation returns.
    type Output;
    /// Computes; `widen` converts f16 with the level's own instruction.
    fn run<W: Widen>(self, widen: W) -> Self::Output;
}

/// Exact conversion of eight narrow values to f32.
pub trait Widen: Copy {
    /// Eight f16 bit patterns.
    fn widen(self, bits: &[u16; 8]) -> [f32; 8];

    /// Eight places in a table, each below 16.
    fn look_up(self, table: &[f32; 16], places: &[u8; 8]) -> [f32; 8];
}

#[derive(Clone, Copy)]
struct Portable;

impl Widen for Portable {
    #[inline(always)]
    fn widen(self, bits: &[u16; 8]) -> [f32; 8] {
        bits.map(|b| half::f16::from_bits(b).to_f32_const())
    }

    #[inline(always)]
    fn look_up(self, table: &[f32; 16], places: &[u8; 8]) -> [f32; 8] {
        places.map(|place| table[usize::from(place & 15)])
    }
}

#[cfg(target_arch = "x86_64")]
impl Widen for Avx2 {
    #[inline(always)]
    fn widen(self, bits: &[u16; 8]) -> [f32; 8] {
        // SAFETY: the token proves that F16C is there.
        unsafe { avx2::widen(bits) }
    }

    #[inline(always)]
    fn look_up(self, table: &[f32; 16], places: &[u8; 8]) -> [f32; 8] {
        // SAFETY: the token proves that AVX2 is there.
        unsafe { avx2::look_up(table, places) }
    }
}

impl Isa {
    /// The best level of this machine, found once.
    pub fn detect() -> Self {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| Self::with(Level::Avx2).unwrap_or(Self::SCALAR))
    }

    /// The portable level, which every machine has.
    pub const SCALAR: Isa = Isa(Level::Scalar);

    /// The given level, if this machine has it.
    pub fn with(level: Level) -> Option<Self> {
        match level {
            Level::Scalar => Some(Self::SCALAR),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => {
                let all = is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c");
                all.then_some(Self(Level::Avx2))
            }
            #[cfg(not(target_arch = "x86_64"))]
            Level::Avx2 => None,
        }
    }

    /// The level it stands for.
    pub fn level(self) -> Level {
        self.0
    }

    /// The proof for AVX2 kernels, if this is that level.
    pub fn avx2(self) -> Option<Avx2> {
        (self.0 == Level::Avx2).then_some(Avx2(()))
    }

    /// Runs a computation compiled for this level.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a value of this level exists only where its features were detected.
            Level::Avx2 => unsafe { avx2::run(kernel, Avx2(())) },
            _ => kernel.run(Portable),
        }
    }
}

/// Converts f16 to f32, exactly.
///
/// # Panics
/// If the lengths differ.
pub fn widen_f16(isa: Isa, from: &[half::f16], to: &mut [f32]) {
    struct WidenAll<'a>(&'a [half::f16], &'a mut [f32]);
    impl Kernel for WidenAll<'_> {
        type Output = ();
        #[inline(always)]
        fn run<W: Widen>(self, widen: W) {
            let (from, from_tail) = self.0.as_chunks::<8>();
            let (to, to_tail) = self.1.as_chunks_mut::<8>();
            for (to, from) in to.iter_mut().zip(from) {
                *to = widen.widen(&from.map(half::f16::to_bits));
            }
            for (to, from) in to_tail.iter_mut().zip(from_tail) {
                *to = from.to_f32_const();
            }
        }
    }
    assert_eq!(from.len(), to.len(), "widen_f16 converts a slice into one of the same length");
    isa.run(WidenAll(from, to));
}
