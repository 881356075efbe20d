//! Spark 2.5.

#[macro_use]
mod families;

family!["spark2_5"];
