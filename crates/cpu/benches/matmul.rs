//! Speed of the matrix products: stored bytes per second for one activation row, operations per second for 128.
//!
//! `cargo bench -p turbospark-cpu --bench matmul -- [format…]`. Each line is a format at a size; one and two threads take turns
//! within each round, the first round is dropped, and the figures are medians with the spread of the middle half.

use std::time::Instant;

use turbospark_cpu::isa::Isa;
use turbospark_cpu::kernels::activation::Activations;
use turbospark_cpu::kernels::matmul::{Input, Matrix, OUTPUTS, matmul, planes};
use turbospark_cpu::pool::{Pool, Tiles};
use weights::DType;

/// Outputs × elements.
const SIZES: [[usize; 2]; 4] = [[576, 576], [576, 1536], [2048, 2048], [8192, 2048]];
const PREFILL_ROWS: usize = 128;
/// Rounds beside the dropped first, and the least time of a measurement.
const ROUNDS: usize = 7;
const SECONDS: f64 = 0.03;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let isa = Isa::detect();
    let pools = [Pool::new(1), Pool::new(2)];
    println!(
        "{:?}; decode in GB/s of stored weights, prefill ({PREFILL_ROWS} rows) in Gop/s, for 1 and 2 threads",
        isa.level()
    );
    for dtype in DType::MATRICES {
        let name = format!("{dtype:?}");
        if !wanted.is_empty() && !wanted.contains(&name) {
            continue;
        }
        for [outputs, width] in SIZES {
            if !width.is_multiple_of(dtype.block_len()) {
                continue;
            }
            let bytes = random_weights(dtype, outputs * width);
            let w = Matrix { dtype, rows: outputs, cols: width, bytes: &bytes };
            let decode = measure(isa, &pools, &w, 1).map(|s| scaled(s, bytes.len() as f64));
            let prefill =
                measure(isa, &pools, &w, PREFILL_ROWS).map(|s| scaled(s, (2 * outputs * width * PREFILL_ROWS) as f64));
            println!(
                "{name:6} {outputs:5}×{width:<5} decode {:>16} {:>16}   prefill {:>18} {:>18}",
                decode[0], decode[1], prefill[0], prefill[1]
            );
        }
    }
}

/// Random blocks whose f16 scales are small and finite and whose codes are anything.
fn random_weights(dtype: DType, elements: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    if dtype == DType::F32 {
        return (0..elements).flat_map(|_| (next() as f32 / 2f32.powi(32) + 0.1).to_le_bytes()).collect();
    }
    let mut bytes: Vec<u8> = (0..elements / dtype.block_len() * dtype.block_bytes()).map(|_| next() as u8).collect();
    if dtype == DType::MXFP4 {
        bytes.iter_mut().step_by(dtype.block_bytes()).for_each(|exponent| *exponent = 120 + *exponent % 8);
    } else {
        // The upper byte of an f16 (or bf16) wherever one may be: sign and exponent of a small number.
        let steps: &[usize] = match dtype {
            DType::Q2K => &[81, 83],
            DType::Q3K => &[109],
            DType::Q6K => &[209],
            DType::Q4_1 | DType::Q5_1 | DType::Q4K | DType::Q5K => &[1, 3],
            _ => &[1],
        };
        for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
            for &at in steps {
                block[at] = if dtype == DType::BF16 { 0x3c } else { 0x20 };
            }
        }
    }
    bytes
}

/// Seconds a product for each pool, quartiles of the rounds.
fn measure(isa: Isa, pools: &[Pool; 2], w: &Matrix<'_>, rows: usize) -> [[f64; 3]; 2] {
    let x: Vec<f32> = (0..rows * w.cols).map(|i| ((i * 37 % 1001) as f32 - 500.0) / 300.0).collect();
    let mut quantised = Activations::default();
    quantised.quantise(isa, &x, w.cols, planes(w.dtype).unwrap_or(1));
    let input = match planes(w.dtype) {
        Some(_) => Input::Quantised(&quantised),
        None => Input::F32 { x: &x, rows, width: w.cols },
    };
    let mut out = vec![0.0; rows * w.rows];
    let mut seconds = [const { Vec::new() }; 2];
    for round in 0..=ROUNDS {
        for (pool, seconds) in pools.iter().zip(&mut seconds) {
            let (start, mut runs) = (Instant::now(), 0);
            while runs == 0 || start.elapsed().as_secs_f64() < SECONDS {
                product(isa, pool, w, &input, &mut out);
                runs += 1;
            }
            if round > 0 {
                seconds.push(start.elapsed().as_secs_f64() / f64::from(runs));
            }
        }
    }
    seconds.map(|mut seconds| {
        seconds.sort_by(f64::total_cmp);
        [1, 2, 3].map(|quarter| seconds[seconds.len() * quarter / 4])
    })
}

fn product(isa: Isa, pool: &Pool, w: &Matrix<'_>, input: &Input<'_>, out: &mut [f32]) {
    let width = (w.rows / (8 * pool.threads())).next_multiple_of(2 * OUTPUTS).max(2 * OUTPUTS);
    pool.run_tiles(Tiles::columns(out, input.rows(), w.rows, width), &|_, mut tile| {
        let outputs = tile.first_col()..tile.first_col() + tile.cols();
        matmul(isa, w, outputs, input, &mut tile);
    });
}

fn scaled([fast, middle, slow]: [f64; 3], work: f64) -> String {
    format!("{:.1} ±{:.0}%", work / middle * 1e-9, (slow - fast) / 2.0 / middle * 100.0)
}
