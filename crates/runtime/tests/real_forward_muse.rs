//! Muse Glimmer.

#[macro_use]
mod families;

family!["muse_glimmer"];
