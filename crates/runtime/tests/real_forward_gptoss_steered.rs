//! gpt-oss, steered.

#[macro_use]
mod steered;

steered!["gpt_oss"];
