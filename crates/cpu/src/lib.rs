//! The CPU device: thread pool and SIMD kernels.
//!
//! Knows instruction sets, cache blocking and threads; knows no model family and no file format beyond the block layouts of
//! [`weights`].

mod attention;
mod cache;
mod device;
mod exec;
pub mod isa;
pub mod kernels;
mod load;
pub mod pool;
mod runs;

pub use device::CpuDevice;
pub(crate) use device::DEVICE_NAME;
pub use exec::{ColumnSquares, CpuExec};
