//! What can be wrong with GPUs.

/// A GPU cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// There is no driver.
    #[error("no CUDA driver was found (libcuda.so.1, or nvcuda.dll); install NVIDIA's driver, or use --device cpu")]
    NoDriver,
    /// No such GPU.
    #[error("there is no GPU {asked}: the driver shows {found}; `turbospark devices` lists them")]
    NoGpu {
        /// The number asked for.
        asked: usize,
        /// How many there are.
        found: usize,
    },
    /// A GPU that the kernels cannot run on.
    #[error("GPU {number} ({name}) has compute capability {}.{}; the kernels need 8.0 or later; use --device cpu", found.0, found.1)]
    TooOld {
        /// Its number.
        number: usize,
        /// Its name.
        name: String,
        /// What it has.
        found: (i32, i32),
    },
    /// The driver refused something.
    #[error("{doing}: {what}")]
    Driver {
        /// What was tried.
        doing: String,
        /// What the driver says.
        what: String,
    },
}
