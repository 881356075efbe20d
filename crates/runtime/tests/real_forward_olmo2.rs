//! OLMo 2.

#[macro_use]
mod families;

family!["olmo2"];
