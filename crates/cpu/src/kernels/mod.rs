//! The arithmetic of the CPU device, one file an operation.
//!
//! Every kernel has one result, bit for bit, at every [`Level`](crate::isa::Level): however the work is split among tasks and
//! whatever other rows are computed with it.

pub mod activation;
pub mod attend;
pub mod attention;
pub mod conv;
pub mod delta;
pub mod hyper;
pub mod kv;
pub mod math;
pub mod matmul;
pub mod rope;
