//! Mixtures of experts in chunks.

#[macro_use]
mod families;

chunked![
    "mixtral",
    "qwen3_moe",
    "minimax_m2",
    "minimax_m3",
    "minimax_m3_lim7",
    "deepseek2",
    "deepseek2_group",
    "deepseek2_lite27",
    "deepseek2_qlora"
];
