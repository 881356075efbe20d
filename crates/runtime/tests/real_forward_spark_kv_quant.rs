//! Spark with every type of cached keys and values.

#[macro_use]
mod families;

kv_quant!["spark2_5"];
