//! How fast this machine reads memory.

use std::hint::black_box;
use std::time::Instant;

/// Larger than any last-level cache it is meant to miss, in 8-byte words.
const WORDS: usize = (512 << 20) / 8;

/// A large buffer and the threads that read it.
pub(super) struct Bandwidth {
    buffer: Vec<u64>,
    threads: usize,
}

impl Bandwidth {
    /// A buffer whose pages really exist.
    pub(super) fn new(threads: usize) -> Self {
        Self { buffer: (0..WORDS as u64).collect(), threads }
    }

    /// Bytes a second of one pass over the buffer.
    pub(super) fn measure(&mut self) -> f64 {
        let started = Instant::now();
        std::thread::scope(|scope| {
            for part in self.buffer.chunks(WORDS.div_ceil(self.threads)) {
                scope.spawn(move || black_box(sum(part)));
            }
        });
        (WORDS * 8) as f64 / started.elapsed().as_secs_f64()
    }
}

/// Independent sums, so that the loads and not the additions are what takes time.
fn sum(words: &[u64]) -> u64 {
    let (chunks, rest) = words.as_chunks::<32>();
    let mut sums = [0u64; 32];
    for chunk in chunks {
        for (sum, word) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().chain(rest).fold(0, |total, word| total.wrapping_add(*word))
}
