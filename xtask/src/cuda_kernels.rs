//! Compiles the CUDA kernels with a pinned compiler from the Python package index; no GPU is needed.

use anyhow::{Context, ensure};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One release of everything that takes part: a newer part beside an older one fails in the assembler.
const WHEELS: [&str; 5] = [
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
];

/// Machine code for Hopper, and PTX that the driver compiles for everything from Ampere on. Products and sums are fused only where
/// the source says so.
const FLAGS: [&str; 5] = [
    "-fatbin",
    "-fmad=false",
    "-std=c++17",
    "-gencode=arch=compute_90,code=sm_90",
    "-gencode=arch=compute_80,code=compute_80",
];

/// Writes `kernels/*.fatbin` and `kernels/SHA256`, which a test of the crate holds against the sources.
pub(crate) fn run() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace")?;
    let folder = root.join("crates/cuda/kernels");
    let nvcc = compiler(&root.join(".cache/cuda-kernels"))?;
    for source in files(&folder, &["cu"])? {
        let image = source.with_extension("fatbin");
        call(Command::new(&nvcc).args(FLAGS).arg("-o").arg(&image).arg(&source))?;
        println!("{} {} bytes", image.display(), fs::metadata(&image)?.len());
    }
    let mut hash = Sha256::new();
    for file in files(&folder, &["cu", "cuh", "fatbin"])? {
        let (name, bytes) = (file.file_name().and_then(|n| n.to_str()).context("a name")?.to_owned(), fs::read(&file)?);
        hash.update(format!("{name} {}\n", bytes.len()));
        hash.update(&bytes);
    }
    let text: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
    Ok(fs::write(folder.join("SHA256"), text + "\n")?)
}

/// The files of a folder with these extensions, by name.
fn files(folder: &Path, extensions: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
    let all = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    let fits = |p: &PathBuf| p.extension().and_then(|e| e.to_str()).is_some_and(|e| extensions.contains(&e));
    let mut files: Vec<_> = all.into_iter().filter(fits).collect();
    files.sort();
    Ok(files)
}

/// `nvcc` in a virtual environment of its own.
fn compiler(venv: &Path) -> anyhow::Result<PathBuf> {
    if !venv.join("bin/pip").exists() {
        call(Command::new("python3").args(["-m", "venv"]).arg(venv))?;
    }
    call(Command::new(venv.join("bin/pip")).args(["install", "--quiet", "--disable-pip-version-check"]).args(WHEELS))?;
    for python in fs::read_dir(venv.join("lib"))? {
        let nvcc = python?.path().join("site-packages/nvidia/cu13/bin/nvcc");
        if nvcc.exists() {
            return Ok(nvcc);
        }
    }
    anyhow::bail!("the wheels hold no nvcc")
}

fn call(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
