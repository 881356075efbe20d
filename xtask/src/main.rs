//! Developer commands: `cargo xtask verify-real`.
#![forbid(unsafe_code)]

mod verify_real;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["verify-real"] => verify_real::run(None),
        ["verify-real", model] => verify_real::run(Some(model)),
        _ => {
            eprintln!("usage: cargo xtask verify-real [MODEL]   check real models against recorded llama.cpp runs");
            std::process::exit(2)
        }
    }
}
