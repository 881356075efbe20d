//! Developer commands: see the usage text below.
#![forbid(unsafe_code)]

mod cuda_kernels;
mod kv_types;
mod random_hybrid;
mod random_moe;
mod verify_real;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["verify-real"] => verify_real::run(None),
        ["verify-real", model] => verify_real::run(Some(model)),
        ["take-apart", gguf] => take_apart(gguf),
        ["kv-types"] => kv_types::run("smollm2"),
        ["kv-types", model] => kv_types::run(model),
        ["cuda-kernels"] => cuda_kernels::run(),
        ["random-hybrid", folder] => random_hybrid::write(folder.as_ref()),
        ["random-moe", file, layers] => random_moe::write(file.as_ref(), layers.parse()?),
        _ => {
            eprintln!(
                "usage: cargo xtask verify-real [MODEL]   check real models against recorded llama.cpp runs\n\
                 usage: cargo xtask take-apart GGUF       write a golden GGUF file as what it adds to its safetensors\n\
                 usage: cargo xtask kv-types [MODEL]      measure every type of cached keys and values\n\
                 usage: cargo xtask random-hybrid FOLDER  write a small Qwen3.5 with random weights, to measure with\n\
                 usage: cargo xtask random-moe FILE LAYERS  write a GGUF of Qwen3-30B-A3B's shape with random weights\n\
                 usage: cargo xtask cuda-kernels          compile the CUDA kernels with the pinned compiler"
            );
            std::process::exit(2)
        }
    }
}

/// Writes `GGUF.parts`.
fn take_apart(gguf: &str) -> anyhow::Result<()> {
    let parts = testkit::take_apart(gguf.as_ref());
    println!("{gguf}.parts: {} bytes instead of {}", parts.len(), std::fs::metadata(gguf)?.len());
    Ok(std::fs::write(format!("{gguf}.parts"), parts)?)
}
