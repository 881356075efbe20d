//! The part of the driver that is used: memory, copies, launches. All calls into it are here.
#![allow(unsafe_code)]

use crate::error::CudaError;
use crate::kernels;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUfunction, CUmodule};
use cudarc::driver::{CudaContext, CudaStream, DriverError, result};
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::fmt;
use std::mem::size_of;
use std::panic::catch_unwind;
use std::sync::Arc;

/// An address on the device.
pub(crate) type At = u64;

pub(crate) fn failed(doing: impl Into<String>) -> impl FnOnce(DriverError) -> CudaError {
    let doing = doing.into();
    move |error| CudaError::Driver { doing, what: error.to_string() }
}

/// Whether the driver's library can be loaded.
pub(crate) fn present() -> bool {
    // SAFETY: loading the library runs its initialisers, as any use of CUDA does.
    unsafe { sys::is_culib_present() }
}

/// What is known of a GPU before it is opened.
pub(crate) struct Facts {
    pub(crate) name: String,
    pub(crate) total: u64,
    pub(crate) capability: (i32, i32),
}

/// Starts the driver and counts the GPUs.
pub(crate) fn count() -> Result<usize, CudaError> {
    if !present() {
        return Err(CudaError::NoDriver);
    }
    // A library that lacks a function panics inside the binding.
    let started = catch_unwind(result::init)
        .map_err(|_| CudaError::Driver { doing: "starting the CUDA driver".into(), what: "it is too old".into() })?;
    match started {
        Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => return Ok(0),
        other => other.map_err(failed("starting the CUDA driver"))?,
    }
    let count = result::device::get_count().map_err(failed("counting GPUs"))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Looks at a GPU without opening it.
pub(crate) fn facts(number: usize) -> Result<Facts, CudaError> {
    let doing = || failed(format!("looking at GPU {number}"));
    let device = result::device::get(number as i32).map_err(doing())?;
    // SAFETY: `device` comes from the driver.
    let (total, major, minor) = unsafe {
        (
            result::device::total_mem(device).map_err(doing())?,
            result::device::get_attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
                .map_err(doing())?,
            result::device::get_attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
                .map_err(doing())?,
        )
    };
    let name = result::device::get_name(device).map_err(doing())?;
    Ok(Facts { name, total: total as u64, capability: (major, minor) })
}

/// The virtual architecture from which on the images' kernels wait by themselves for those before: that of the machine code, not
/// that of the PTX.
const WAITS: i32 = 90;

/// An open GPU with its kernels.
pub(crate) struct Gpu {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    modules: Vec<CUmodule>,
    functions: HashMap<String, CUfunction>,
    pub(crate) processors: usize,
    /// Whether all kernels wait by themselves for those before, so that they may be placed early.
    early: bool,
}

// SAFETY: handles of modules and functions are names of the context's objects, which the driver lets every thread use; each call
// binds the context to its thread first.
unsafe impl Send for Gpu {}
// SAFETY: as above; the driver's functions are thread-safe.
unsafe impl Sync for Gpu {}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gpu").field("number", &self.context.ordinal()).field("kernels", &self.functions.len()).finish()
    }
}

impl Gpu {
    pub(crate) fn open(number: usize) -> Result<Arc<Self>, CudaError> {
        let doing = || failed(format!("opening GPU {number}"));
        let context = CudaContext::new(number).map_err(doing())?;
        let stream = context.new_stream().map_err(doing())?;
        let processors =
            context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).map_err(doing())? as usize;
        let (modules, functions) = (Vec::new(), HashMap::new());
        let mut gpu = Self { context, stream, modules, functions, processors, early: true };
        for (image, names) in kernels::IMAGES.iter().zip(kernels::names()) {
            // SAFETY: the image is a whole fat binary, which says its own length.
            let module = unsafe { result::module::load_data(image.as_ptr().cast()) };
            let module = module.map_err(failed("loading the kernels; a newer driver may be needed"))?;
            gpu.modules.push(module);
            for name in names {
                let found = CString::new(name.as_str()).unwrap_or_default();
                // SAFETY: `module` was loaded above and lives as long as `gpu`.
                let function = unsafe { result::module::get_function(module, found) };
                let doing = || failed(format!("finding the kernel {name}"));
                let function = function.map_err(doing())?;
                let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION;
                // SAFETY: the function was just found.
                let made_for = unsafe { result::function::get_function_attribute(function, attribute) };
                gpu.early &= made_for.map_err(doing())? >= WAITS;
                gpu.functions.insert(name, function);
            }
        }
        Ok(Arc::new(gpu))
    }

    /// Bytes of memory that are free.
    pub(crate) fn free(&self) -> Result<u64, CudaError> {
        self.bind()?;
        Ok(result::mem_get_info().map_err(failed("asking for free GPU memory"))?.0 as u64)
    }

    /// Makes the context that of this thread; every call into the driver needs it.
    fn bind(&self) -> Result<(), CudaError> {
        self.context.bind_to_thread().map_err(failed("using the GPU"))
    }

    /// Waits until all that was started is done.
    pub(crate) fn wait(&self) -> Result<(), CudaError> {
        self.bind()?;
        self.stream.synchronize().map_err(failed("running on the GPU"))
    }

    /// Starts a kernel after those before it. Parameters must be those of the kernel's definition.
    pub(crate) fn launch(
        &self,
        name: &str,
        grid: [usize; 3],
        block: usize,
        shared: usize,
        params: &Params,
    ) -> Result<(), CudaError> {
        let Some(function) = self.functions.get(name) else {
            return Err(CudaError::Driver {
                doing: format!("starting {name}"),
                what: "there is no such kernel".into(),
            });
        };
        let mut pointers: [*mut c_void; Params::MOST] = [std::ptr::null_mut(); Params::MOST];
        let starts = params.starts();
        for (pointer, start) in pointers.iter_mut().zip(starts) {
            *pointer = params.words.as_ptr().cast::<u8>().wrapping_add(*start).cast_mut().cast();
        }
        let [x, y, z] = grid.map(|n| n as u32);
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: block as u32,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared as u32,
            hStream: self.stream.cu_stream(),
            attrs: &mut attribute,
            numAttrs: u32::from(self.early),
        };
        // SAFETY: the function belongs to this context; the driver reads as many parameters as the kernel has, each at a place
        // inside `params`, whose room is larger than any kernel's parameters. What the kernel does with addresses is its own matter:
        // they are of memory that the program's owner holds.
        let started =
            unsafe { sys::cuLaunchKernelEx(&config, *function, pointers.as_mut_ptr(), std::ptr::null_mut()).result() };
        started.map_err(failed(format!("starting {name} on {x} x {y} x {z} blocks of {block}")))
    }

    /// Records what `launches` starts, to be started again at one go; nothing runs yet.
    pub(crate) fn record(
        self: &Arc<Self>,
        launches: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<Recorded, CudaError> {
        const DOING: &str = "recording a run";
        self.bind()?;
        let stream = self.stream.cu_stream();
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is this GPU's.
        unsafe { result::stream::begin_capture(stream, mode) }.map_err(failed(DOING))?;
        let launched = launches();
        // SAFETY: the stream is recording, and ends that even where a launch failed.
        let graph = unsafe { result::stream::end_capture(stream) };
        launched?;
        let graph = graph.map_err(failed(DOING))?;
        // SAFETY: the graph was just recorded, and is not used after it was made executable.
        let executable = unsafe {
            let executable = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0));
            let _ = result::graph::destroy(graph);
            executable
        };
        Ok(Recorded { gpu: Arc::clone(self), executable: executable.map_err(failed(DOING))? })
    }

    /// Must come before a run's launches.
    pub(crate) fn begin(&self) -> Result<(), CudaError> {
        self.bind()
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if self.bind().is_ok() {
            for module in self.modules.drain(..) {
                // SAFETY: loaded by `open`, and nobody launches its functions any more. A failure leaves it to the context's end.
                let _ = unsafe { result::module::unload(module) };
            }
        }
    }
}

/// Memory on a GPU.
pub(crate) struct Memory {
    gpu: Arc<Gpu>,
    at: At,
    bytes: usize,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("bytes", &self.bytes).finish()
    }
}

impl Memory {
    /// Takes zeroed memory; `what` it is for is told if there is none.
    pub(crate) fn new(gpu: &Arc<Gpu>, bytes: usize, what: &str) -> Result<Self, CudaError> {
        gpu.bind()?;
        let doing = || failed(format!("taking {bytes} bytes of GPU memory for {what}"));
        // SAFETY: any size may be asked for.
        let at = unsafe { result::malloc_sync(bytes.max(1)) }.map_err(doing())?;
        let memory = Self { gpu: Arc::clone(gpu), at, bytes };
        memory.clear(0, bytes)?;
        Ok(memory)
    }

    pub(crate) fn at(&self, offset: usize) -> At {
        self.at + offset as u64
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn check(&self, offset: usize, bytes: usize, doing: &str) -> Result<(), CudaError> {
        self.gpu.bind()?;
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            let what = format!("{bytes} bytes at {offset} are outside {} bytes of memory", self.bytes);
            return Err(CudaError::Driver { doing: doing.to_owned(), what });
        }
        Ok(())
    }

    /// Writes after what was started before; `from` can be used again at once.
    pub(crate) fn write(&self, offset: usize, from: &[u8]) -> Result<(), CudaError> {
        const DOING: &str = "copying to the GPU";
        self.check(offset, from.len(), DOING)?;
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: the range was checked. From pageable memory the driver returns once it has read `from`.
        unsafe { result::memcpy_htod_async(self.at(offset), from, self.gpu.stream.cu_stream()) }.map_err(failed(DOING))
    }

    /// Reads after what was started before, and waits for it.
    pub(crate) fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), CudaError> {
        const DOING: &str = "running on the GPU";
        self.check(offset, to.len(), DOING)?;
        if to.is_empty() {
            return Ok(());
        }
        // SAFETY: the range was checked, and `to` is not used before the wait.
        unsafe { result::memcpy_dtoh_async(to, self.at(offset), self.gpu.stream.cu_stream()) }
            .map_err(failed(DOING))?;
        self.gpu.wait()
    }

    /// Copies inside this memory; the ranges do not overlap.
    pub(crate) fn copy(&self, from: usize, to: usize, bytes: usize) -> Result<(), CudaError> {
        const DOING: &str = "copying on the GPU";
        self.check(from, bytes, DOING)?;
        self.check(to, bytes, DOING)?;
        // SAFETY: both ranges were checked.
        unsafe { result::memcpy_dtod_async(self.at(to), self.at(from), bytes, self.gpu.stream.cu_stream()) }
            .map_err(failed(DOING))
    }

    /// Writes zeros.
    pub(crate) fn clear(&self, offset: usize, bytes: usize) -> Result<(), CudaError> {
        const DOING: &str = "clearing GPU memory";
        self.check(offset, bytes, DOING)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the range was checked.
        unsafe { result::memset_d8_async(self.at(offset), 0, bytes, self.gpu.stream.cu_stream()) }
            .map_err(failed(DOING))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.gpu.wait().is_ok() {
            // SAFETY: taken by `new`, and nothing that runs uses it. After a fault the context's end frees it.
            let _ = unsafe { result::free_sync(self.at) };
        }
    }
}

/// A recorded run.
pub(crate) struct Recorded {
    gpu: Arc<Gpu>,
    executable: sys::CUgraphExec,
}

// SAFETY: the handle is a name of the context's object; every call binds the context first, and only one thread has it.
unsafe impl Send for Recorded {}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorded")
    }
}

impl Recorded {
    /// Starts it after what was started before. The memory that was recorded must still be held.
    pub(crate) fn start(&self) -> Result<(), CudaError> {
        self.gpu.bind()?;
        // SAFETY: made by `record` for this GPU's stream; its owner drops it before the memory it uses.
        unsafe { result::graph::launch(self.executable, self.gpu.stream.cu_stream()) }
            .map_err(failed("starting a recorded run"))
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if self.gpu.wait().is_ok() {
            // SAFETY: made by `record`, and it does not run any more.
            let _ = unsafe { result::graph::exec_destroy(self.executable) };
        }
    }
}

/// The parameters of a kernel: several, or one struct whose fields they are.
pub(crate) struct Params {
    words: [u64; Params::MOST],
    len: usize,
    starts: [usize; Params::MOST],
    count: usize,
    one: bool,
}

impl Params {
    const MOST: usize = 32;

    /// Each value is a parameter.
    pub(crate) fn each() -> Self {
        Self { words: [0; Self::MOST], len: 0, starts: [0; Self::MOST], count: 0, one: false }
    }

    /// Each value is a field of the only parameter, a struct.
    pub(crate) fn fields() -> Self {
        Self::each().structure()
    }

    /// The values to come are fields of one parameter, a struct that holds addresses.
    pub(crate) fn structure(mut self) -> Self {
        self.len = self.len.next_multiple_of(size_of::<At>());
        self.starts[self.count] = self.len;
        self.count += 1;
        self.one = true;
        self
    }

    /// Ends a struct that is a field: what follows is aligned as an address is.
    pub(crate) fn end_inner(self) -> Self {
        Self { len: self.len.next_multiple_of(size_of::<At>()), ..self }
    }

    /// Ends that.
    pub(crate) fn end_structure(self) -> Self {
        Self { one: false, ..self }
    }

    fn starts(&self) -> &[usize] {
        &self.starts[..self.count]
    }

    fn push<const N: usize>(mut self, bytes: [u8; N]) -> Self {
        let start = self.len.next_multiple_of(N);
        bytemuck::cast_slice_mut::<u64, u8>(&mut self.words)[start..start + N].copy_from_slice(&bytes);
        self.len = start + N;
        if !self.one {
            self.starts[self.count] = start;
            self.count += 1;
        }
        self
    }

    pub(crate) fn at(self, at: At) -> Self {
        self.push(at.to_ne_bytes())
    }

    pub(crate) fn maybe(self, at: Option<At>) -> Self {
        self.at(at.unwrap_or(0))
    }

    pub(crate) fn int(self, value: usize) -> Self {
        self.push((value as i32).to_ne_bytes())
    }

    pub(crate) fn flag(self, value: bool) -> Self {
        self.int(usize::from(value))
    }

    pub(crate) fn long(self, value: usize) -> Self {
        self.push((value as i64).to_ne_bytes())
    }

    pub(crate) fn float(self, value: f32) -> Self {
        self.push(value.to_ne_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::Params;

    #[test]
    fn parameters_are_aligned_as_in_c() {
        let params = Params::fields().int(1).at(2).float(3.0).long(4);
        let bytes: &[u8] = bytemuck::cast_slice(&params.words);
        assert_eq!((params.starts(), params.len), (&[0][..], 32));
        assert_eq!([bytes[0], bytes[8], bytes[24]], [1, 2, 4]);
        assert_eq!(bytes[16..20], 3.0f32.to_ne_bytes());
        let params = Params::each().int(1).at(2).flag(true);
        assert_eq!(params.starts(), [0, 8, 16]);
    }
}
