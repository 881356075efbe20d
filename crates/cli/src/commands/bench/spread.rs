//! Median and extremes of repeated measurements.

/// A few measurements of one thing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Spread {
    /// NaN throughout for no measurements.
    pub(super) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (sorted.first().copied(), sorted.last().copied()) else {
            return Self { median: f64::NAN, least: f64::NAN, most: f64::NAN };
        };
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            1 => sorted[middle],
            _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
        };
        Self { median, least, most }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        for (values, expected) in [(&[3.0, 1.0, 2.0][..], 2.0), (&[4.0, 1.0, 2.0, 3.0], 2.5), (&[7.0], 7.0)] {
            assert_eq!(Spread::of(values).median, expected);
        }
    }
}
