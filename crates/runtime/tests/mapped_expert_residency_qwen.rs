//! Qwen3, Qwen3.5 and Qwen4: the same bits wherever the experts are kept.

mod residency;

#[test]
fn residency_changes_no_bit() {
    residency::residency_changes_no_bit(residency::SUITES[3]);
}
