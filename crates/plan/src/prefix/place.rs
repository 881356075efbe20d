//! Where a state is worth keeping.

use crate::program::KV_BLOCK;

/// How near to its end a prompt is kept at the least.
const NEAR: usize = 16;

/// Places in `from..end`, ascending: the marks, one near the end, and whole blocks whose distances from the end double.
/// Whatever is changed later, what must be fed again is at most about twice what lies behind the change.
pub(super) fn stops(from: usize, end: usize, marks: &[usize]) -> Vec<usize> {
    let last = end.saturating_sub(1);
    let distances = std::iter::successors(Some(NEAR), |d| d.checked_mul(2)).take_while(|d| *d < last);
    let doubling = distances.map(|d| (last - d) / KV_BLOCK * KV_BLOCK).chain([last / NEAR * NEAR]);
    let mut stops: Vec<_> = marks.iter().copied().chain(doubling).filter(|stop| *stop > from && *stop < end).collect();
    stops.sort_unstable();
    stops.dedup();
    stops
}

#[cfg(test)]
mod tests {
    use super::stops;

    #[test]
    fn distances_from_the_end_double_and_marks_are_kept() {
        assert_eq!(stops(0, 200, &[]), [64, 128, 160, 192]);
        assert_eq!(stops(150, 200, &[3, 170, 200, 999]), [160, 170, 192]);
        assert_eq!(stops(0, 16, &[]), [0; 0]);
        assert_eq!(stops(0, 17, &[]), [16]);
        assert_eq!(stops(0, 1, &[]), [0; 0]);
    }
}
