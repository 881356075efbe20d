//! Llama as mixture of experts: Mixtral.

#[macro_use]
mod families;

family!["mixtral"];
