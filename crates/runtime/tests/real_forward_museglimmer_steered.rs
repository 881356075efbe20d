//! Muse Glimmer, steered.

#[macro_use]
mod steered;

steered!["muse_glimmer"];
