//! Importance of columns: the mean square of what a matrix was multiplied with, as llama.cpp's `imatrix` collects it.

use crate::PackError;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use weights::gguf::GgufFile;

/// Numbers of the columns of matrices, by the matrices' names.
#[derive(Clone, Debug, Default)]
pub struct Importance {
    columns: BTreeMap<String, Arc<[f32]>>,
}

const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";

impl Importance {
    /// Reads a GGUF file with `NAME.in_sum2` (sums of squares, `[matrices,] columns`) and `NAME.counts` (`[matrices]`).
    pub fn read(path: &Path) -> Result<Self, PackError> {
        let file = GgufFile::open(path)?;
        let bad = |reason: String| PackError::BadValue { found: path.display().to_string(), reason };
        let mut columns = BTreeMap::new();
        for sums in file.weights().iter() {
            let Some(name) = sums.name().strip_suffix(SUMS) else { continue };
            let counts = file.weights().require(&format!("{name}{COUNTS}"))?.to_f32()?;
            let mut values = sums.to_f32()?;
            if counts.len() != sums.rows() {
                let (rows, found) = (sums.rows(), counts.len());
                return Err(bad(format!("{name} has {rows} rows of sums and {found} counts, expected as many")));
            }
            for (row, count) in values.chunks_exact_mut(sums.cols().max(1)).zip(&counts) {
                // An expert that nothing was routed to has no better or worse columns.
                row.iter_mut().for_each(|x| *x = if *count > 0.0 { *x / count } else { 1.0 });
            }
            if let Some(x) = values.iter().find(|x| !x.is_finite() || **x < 0.0) {
                return Err(bad(format!("{name} holds {x}, expected numbers of at least 0; collect them again")));
            }
            columns.insert(name.to_owned(), values.into());
        }
        if columns.is_empty() {
            return Err(bad(format!("it holds no tensor NAME{SUMS}; expected the GGUF form of llama.cpp's imatrix")));
        }
        Ok(Self { columns })
    }

    /// The numbers for a matrix, by one of its names.
    pub(crate) fn of(&self, names: [&str; 2]) -> Option<Arc<[f32]>> {
        names.iter().find_map(|name| self.columns.get(*name).cloned())
    }
}
