//! The program as a user meets it: one test binary, one module a subject.
#![forbid(unsafe_code)]

mod bad_calls;
mod constrained;
mod experts;
mod generation;
mod golden;
mod inside;
mod packing;
mod prefixes;
mod sampling;
mod session;
mod store;
mod support;
