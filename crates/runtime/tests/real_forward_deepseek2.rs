//! DeepSeek 2: latent attention.

#[macro_use]
mod families;

family!["deepseek2", "deepseek2_lite27", "deepseek2_qlora", "deepseek2_group"];
