//! Gemma 4, dense.

#[macro_use]
mod families;

family!["gemma4_dense"];
