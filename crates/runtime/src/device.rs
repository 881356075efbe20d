//! Which device runs a model, and how it is opened.

use crate::RuntimeError;
use cpu::CpuDevice;
use plan::Device;
use plan::reference::ReferenceDevice;
use std::fmt;
use std::str::FromStr;

/// Which device runs the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceKind {
    /// The CPU's kernels.
    #[default]
    Cpu,
    /// The scalar reference interpreter: slow, and what every other device is measured against.
    Reference,
    /// A GPU by its number; only in builds with the feature `cuda`.
    Cuda(usize),
}

impl FromStr for DeviceKind {
    type Err = RuntimeError;

    fn from_str(text: &str) -> Result<Self, RuntimeError> {
        let unknown = || RuntimeError::UnknownDevice { found: text.to_owned() };
        match text.split_once(':') {
            None if text == "cpu" || text == "auto" => Ok(Self::Cpu),
            None if text == "reference" => Ok(Self::Reference),
            None if text == "cuda" => gpu(0),
            Some(("cuda", number)) => number.parse().map_err(|_| unknown()).and_then(gpu),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Reference => f.write_str("reference"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

/// A GPU, in builds that have them.
fn gpu(number: usize) -> Result<DeviceKind, RuntimeError> {
    if cfg!(feature = "cuda") { Ok(DeviceKind::Cuda(number)) } else { Err(RuntimeError::NoCuda) }
}

/// What to do with a device, whichever it is.
pub trait UseDevice {
    /// What comes of it.
    type Output;

    /// Does it; `threads` are those of the machine's CPU that the device computes with.
    fn with<D: Device>(self, device: &D, threads: usize) -> Result<Self::Output, RuntimeError>
    where
        D::Exec: Send + 'static;
}

impl DeviceKind {
    /// Opens the device and hands it to its user. Errors if it is not there.
    pub fn open<U: UseDevice>(self, threads: Option<usize>, user: U) -> Result<U::Output, RuntimeError> {
        match self {
            Self::Cpu => {
                let device = CpuDevice::new(threads);
                user.with(&device, device.threads())
            }
            Self::Reference => user.with(&ReferenceDevice, 1),
            #[cfg(feature = "cuda")]
            Self::Cuda(number) => user.with(&cuda::CudaDevice::open(number)?, 1),
            #[cfg(not(feature = "cuda"))]
            Self::Cuda(_) => Err(RuntimeError::NoCuda),
        }
    }
}

/// Bytes a second that copies inside a device's own memory read and write; `None`: it uses the machine's.
pub fn copy_bandwidth(device: DeviceKind) -> Result<Option<f64>, RuntimeError> {
    match device {
        #[cfg(feature = "cuda")]
        DeviceKind::Cuda(number) => Ok(Some(cuda::CudaDevice::open(number)?.copy_bandwidth()?)),
        _ => Ok(None),
    }
}

/// A device as `turbospark devices` tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// As `--device` takes it.
    pub name: String,
    /// What it is.
    pub what: String,
    /// Bytes of memory of its own.
    pub memory: Option<u64>,
    /// Why it cannot be used, if it cannot.
    pub unusable: Option<String>,
}

/// The devices of this build on this machine, and why there are no more.
pub fn devices() -> Vec<DeviceFacts> {
    let cpu = CpuDevice::new(None);
    let plain = |name: &str, what: String| DeviceFacts { name: name.to_owned(), what, memory: None, unusable: None };
    let mut all = vec![
        plain("cpu", format!("{} threads, {:?}", cpu.threads(), cpu.isa())),
        plain("reference", "the scalar interpreter, slow, for checking".to_owned()),
    ];
    all.extend(gpus());
    all
}

/// The GPUs, or one entry that says why there are none.
#[cfg(feature = "cuda")]
fn gpus() -> Vec<DeviceFacts> {
    let none = |why: String| {
        let (name, what) = ("cuda".to_owned(), "NVIDIA GPUs".to_owned());
        vec![DeviceFacts { name, what, memory: None, unusable: Some(why) }]
    };
    match cuda::gpus() {
        Err(error) => none(error.to_string()),
        Ok(found) if found.is_empty() => none("the driver shows no GPU".to_owned()),
        Ok(found) => found
            .into_iter()
            .map(|gpu| DeviceFacts {
                name: DeviceKind::Cuda(gpu.number).to_string(),
                what: format!("{}, compute capability {}.{}", gpu.name, gpu.capability.0, gpu.capability.1),
                memory: Some(gpu.total),
                unusable: gpu.unusable.map(|error| error.to_string()),
            })
            .collect(),
    }
}

/// What a build without GPUs says of them.
#[cfg(not(feature = "cuda"))]
fn gpus() -> Vec<DeviceFacts> {
    let (name, what) = ("cuda".to_owned(), "NVIDIA GPUs".to_owned());
    vec![DeviceFacts { name, what, memory: None, unusable: Some(RuntimeError::NoCuda.to_string()) }]
}

#[cfg(test)]
mod tests {
    use super::{DeviceKind, devices};

    #[test]
    fn names_are_read_and_written() {
        for name in ["cpu", "reference"] {
            assert_eq!(name.parse::<DeviceKind>().map(|d| d.to_string()).ok().as_deref(), Some(name));
        }
        assert_eq!("auto".parse::<DeviceKind>().ok(), Some(DeviceKind::Cpu));
        for name in ["", "gpu", "cpu:0", "cuda:", "cuda:x", "cuda:-1", "cuda:1:2", "CUDA"] {
            assert!(name.parse::<DeviceKind>().is_err(), "{name}");
        }
        if cfg!(feature = "cuda") {
            assert_eq!("cuda".parse::<DeviceKind>().ok(), Some(DeviceKind::Cuda(0)));
            assert_eq!("cuda:3".parse::<DeviceKind>().ok(), Some(DeviceKind::Cuda(3)));
        } else {
            let error = "cuda".parse::<DeviceKind>().expect_err("not in this build").to_string();
            assert!(error.contains("--features cuda"), "{error}");
        }
    }

    /// Where there is no GPU, the list says why.
    #[test]
    fn devices_are_listed() {
        let all = devices();
        assert!(all.iter().any(|d| d.name == "cpu" && d.unusable.is_none()));
        assert!(all.iter().any(|d| d.name.starts_with("cuda")));
    }
}
