//! Importance of columns: the mean square of what a matrix was multiplied with, as llama.cpp's `imatrix` collects it.

use crate::PackError;
use cpu::ColumnSquares;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use weights::Tensor;
use weights::gguf::write::GgufWriter;
use weights::gguf::{GgufFile, Value};

/// Numbers of the columns of matrices, by the matrices' names.
#[derive(Clone, Debug, Default)]
pub struct Importance {
    columns: BTreeMap<String, Arc<[f32]>>,
    /// What they are the means of, where it was collected here.
    sums: BTreeMap<String, ColumnSquares>,
}

const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";

impl Importance {
    /// Reads a GGUF file with `NAME.in_sum2` (sums of squares, `[matrices,] columns`) and `NAME.counts` (`[matrices]`).
    pub fn read(path: &Path) -> Result<Self, PackError> {
        let file = GgufFile::open(path)?;
        let bad = |reason: String| PackError::BadValue { found: path.display().to_string(), reason };
        let mut all = BTreeMap::new();
        for sums in file.weights().iter() {
            let Some(name) = sums.name().strip_suffix(SUMS) else { continue };
            let counts = file.weights().require(&format!("{name}{COUNTS}"))?.to_f32()?;
            let values = sums.to_f32()?;
            if counts.len() != sums.rows() {
                let (rows, found) = (sums.rows(), counts.len());
                return Err(bad(format!("{name} has {rows} rows of sums and {found} counts, expected as many")));
            }
            if let Some(x) = values.iter().find(|x| !x.is_finite() || **x < 0.0) {
                return Err(bad(format!("{name} holds {x}, expected numbers of at least 0; collect them again")));
            }
            let sums = values.into_iter().map(f64::from).collect();
            all.insert(name.to_owned(), ColumnSquares { sums, rows: counts.into_iter().map(|n| n as u64).collect() });
        }
        if all.is_empty() {
            return Err(bad(format!("it holds no tensor NAME{SUMS}; expected the GGUF form of llama.cpp's imatrix")));
        }
        Ok(Self::of_sums(all))
    }

    /// The means of sums.
    pub(crate) fn of_sums(sums: BTreeMap<String, ColumnSquares>) -> Self {
        let mean = |ColumnSquares { sums, rows }: &ColumnSquares| {
            let cols = (sums.len() / rows.len().max(1)).max(1);
            let row = |(sums, rows): (&[f64], &u64)| -> Vec<f32> {
                // An expert that nothing was routed to has no better or worse columns.
                sums.iter().map(|x| if *rows > 0 { (x / *rows as f64) as f32 } else { 1.0 }).collect()
            };
            sums.chunks_exact(cols).zip(rows).flat_map(row).collect()
        };
        Self { columns: sums.iter().map(|(name, sums)| (name.clone(), mean(sums))).collect(), sums }
    }

    /// Writes a file that [`Importance::read`] reads.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), PackError> {
        let mut writer = GgufWriter::new();
        writer.set("general.type", Value::String("imatrix".into()));
        for (name, ColumnSquares { sums, rows }) in &self.sums {
            let (matrices, sums) = (rows.len(), sums.iter().map(|x| *x as f32).collect::<Vec<_>>());
            let counts: Vec<_> = rows.iter().map(|n| *n as f32).collect();
            let shape = vec![matrices, sums.len() / matrices.max(1)];
            writer.tensor(Tensor::from_f32(format!("{name}{SUMS}"), shape, &sums));
            writer.tensor(Tensor::from_f32(format!("{name}{COUNTS}"), vec![matrices, 1], &counts));
        }
        Ok(writer.write(path)?)
    }

    /// How many matrices it has numbers of.
    pub fn matrices(&self) -> usize {
        self.columns.len()
    }

    /// The numbers for a matrix, by one of its names.
    pub(crate) fn of(&self, names: [&str; 2]) -> Option<Arc<[f32]>> {
        names.iter().find_map(|name| self.columns.get(*name).cloned())
    }
}
