//! gpt-oss: the same bits wherever the experts are kept.

mod residency;

#[test]
fn residency_changes_no_bit() {
    residency::residency_changes_no_bit(residency::SUITES[1]);
}
