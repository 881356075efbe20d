//! Muse Glimmer and Spark in chunks.

#[macro_use]
mod families;

chunked!["muse_glimmer", "spark2_5"];
