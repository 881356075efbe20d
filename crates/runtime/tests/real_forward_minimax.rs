//! MiniMax M2 and M3.

#[macro_use]
mod families;

family!["minimax_m2", "minimax_m3", "minimax_m3_lim7"];
