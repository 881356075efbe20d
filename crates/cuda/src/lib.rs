//! The CUDA device: programs on NVIDIA GPUs.
//!
//! The driver is loaded when the first device is opened, so that one binary runs with and without a GPU; nothing of a CUDA toolkit
//! is needed. Kernels are CUDA C++ in `kernels/`, compiled ahead of time (`cargo xtask cuda-kernels`) for compute capability 9.0 and,
//! as PTX that the driver compiles, for 8.0 and later.
//!
//! Every step is one or a few kernels with f32 activations. What a row gets is computed in an order that depends on its position and
//! on shapes alone, never on the other rows of a batch: the exactness contract holds bit for bit.

mod device;
mod driver;
mod error;
mod exec;
mod kernels;
mod layout;
mod load;

pub use device::{CudaDevice, Gpu, gpus};
pub use error::CudaError;
pub use exec::CudaExec;

/// The name used in messages.
pub(crate) const DEVICE_NAME: &str = "the CUDA device";
