//! Comparing logits, and telling of every case that failed.

use std::fmt;

/// The first place where two rows of values have other bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Index of the value.
    pub at: usize,
    /// How many values differ.
    pub count: usize,
    /// What was found.
    pub found: f32,
    /// What was expected.
    pub expected: f32,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, count, found, expected } = self;
        write!(f, "{count} values differ, the first at {at}: {found:e}, expected {expected:e}")
    }
}

/// Compares bits; `None` if all are equal.
///
/// # Panics
/// If the lengths differ.
pub fn difference(found: &[f32], expected: &[f32]) -> Option<Difference> {
    assert_eq!(found.len(), expected.len());
    let differ = |i: &usize| found[*i].to_bits() != expected[*i].to_bits();
    let at = (0..found.len()).find(differ)?;
    let count = (at..found.len()).filter(differ).count();
    Some(Difference { at, count, found: found[at], expected: expected[at] })
}

/// Cases that failed, told all together.
#[derive(Debug, Default)]
pub struct Failures {
    cases: usize,
    failed: Vec<String>,
}

impl Failures {
    /// Counts a case and keeps what is wrong with it.
    pub fn check(&mut self, case: impl fmt::Display, wrong: Option<impl fmt::Display>) {
        self.cases += 1;
        if let Some(wrong) = wrong {
            self.failed.push(format!("{case}: {wrong}"));
        }
    }

    /// A case that wants equal bits.
    pub fn same(&mut self, case: impl fmt::Display, found: &[f32], expected: &[f32]) {
        self.check(case, difference(found, expected));
    }

    /// A case that wants an error of at most `limit`; not a number is too much.
    pub fn within(&mut self, case: impl fmt::Display, error: f64, limit: f64) {
        let fits = error <= limit;
        self.check(case, (!fits).then(|| format!("{error:.2e} is above {limit:.0e}")));
    }

    /// How many cases there were, and what is wrong with those that failed.
    pub fn told(self) -> (usize, Vec<String>) {
        (self.cases, self.failed)
    }

    /// # Panics
    /// If a case failed, or there was none.
    pub fn finish(self) {
        assert!(self.cases > 0, "no case was run");
        let (failed, cases) = (self.failed.len(), self.cases);
        assert!(failed == 0, "{failed} of {cases} cases failed:\n{}", self.failed.join("\n"));
        println!("{cases} cases");
    }
}
