//! The files of a capture.

use super::{BUCKETS, Capture, CaptureKind, Captured};
use crate::RuntimeError;
use crate::producer::LogitProducer;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use weights::{DType, Tensor, safetensors};

impl Capture {
    /// The description beside the file.
    pub fn description(&self) -> PathBuf {
        with_end(&self.file, ".json")
    }

    /// Fails if the files cannot be written; leaves nothing behind.
    pub fn check_writable(&self) -> Result<(), RuntimeError> {
        for path in [self.file.clone(), self.description()] {
            if path.is_dir() {
                let source = std::io::Error::from(std::io::ErrorKind::IsADirectory);
                return Err(RuntimeError::Write { path, source });
            }
            replace(&path, &|partial| Ok(std::fs::write(partial, [])?), false)?;
        }
        Ok(())
    }

    /// Writes what a producer has seen at the positions in its cache and returns how many those are; at none, nothing is
    /// written. Each file appears whole or not at all, the description last.
    ///
    /// `tokens` holds the ids, `layer.N` what layer N showed at each of them; a router's file also has `counts`,
    /// `[layers, experts]`, and an `ffn` file `histogram`, `[layers, 64]`.
    pub fn write(&self, model: &str, producer: &dyn LogitProducer) -> Result<usize, RuntimeError> {
        let point = self.kind.point();
        let seen: Vec<&Captured> = producer.captured().iter().filter(|c| c.place.point == point).collect();
        let positions = producer.fed().len();
        if positions == 0 || seen.is_empty() {
            return Ok(0);
        }
        let ids: Vec<u32> = producer.fed().iter().map(|id| id.0).collect();
        let bytes = ids.iter().flat_map(|id| i64::from(*id).to_le_bytes()).collect();
        let mut tensors = vec![Tensor::from_bytes("tokens", DType::I64, vec![positions], bytes)?];
        let layers: Vec<usize> = seen.iter().map(|c| c.place.layer).collect::<BTreeSet<_>>().into_iter().collect();
        let mut description = json!({
            "what": self.kind.name(),
            "model": model,
            "layers": layers,
            "positions": positions,
            "tokens": ids,
        });
        if self.kind != CaptureKind::Ffn {
            let all = seen.iter();
            tensors.extend(all.map(|c| {
                let name = format!("layer.{}", c.place.layer);
                Tensor::from_f32(name, vec![positions, c.width], &c.values)
            }));
            description["width"] = json!(seen[0].width);
        }
        if let Some((name, sums)) = self.sums(&seen) {
            let values: Vec<f32> = sums.values().flatten().map(|n| *n as f32).collect();
            tensors.push(Tensor::from_f32(name, vec![sums.len(), values.len() / sums.len()], &values));
            description[name] = sums.into_values().map(Value::from).collect();
        }
        let text = format!("{description:#}\n");
        replace(&self.file, &|partial| Ok(safetensors::write(partial, &tensors, &BTreeMap::new())?), true)?;
        replace(&self.description(), &|partial| Ok(std::fs::write(partial, &text)?), true)?;
        Ok(positions)
    }

    /// What is counted over all positions, by layer.
    fn sums(&self, seen: &[&Captured]) -> Option<(&'static str, BTreeMap<usize, Vec<u64>>)> {
        let mut sums: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        match self.kind {
            CaptureKind::Residual => None,
            CaptureKind::Router => {
                let widest = seen.iter().filter_map(|c| c.experts).max().unwrap_or(0);
                for captured in seen {
                    let counts = sums.entry(captured.place.layer).or_insert_with(|| vec![0; widest]);
                    for row in captured.values.chunks_exact(captured.width) {
                        row[..captured.width / 2].iter().for_each(|expert| counts[*expert as usize] += 1);
                    }
                }
                Some(("counts", sums))
            }
            CaptureKind::Ffn => {
                for captured in seen {
                    let histogram = sums.entry(captured.place.layer).or_insert_with(|| vec![0; BUCKETS]);
                    for row in captured.values.chunks_exact(BUCKETS) {
                        histogram.iter_mut().zip(row).for_each(|(sum, n)| *sum += *n as u64);
                    }
                }
                Some(("histogram", sums))
            }
        }
    }
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Why a file was not written.
enum Unwritten {
    Io(std::io::Error),
    Other(RuntimeError),
}

impl From<std::io::Error> for Unwritten {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<weights::WeightsError> for Unwritten {
    fn from(error: weights::WeightsError) -> Self {
        Self::Other(error.into())
    }
}

/// Makes a file under the name it is given.
type Writer<'a> = &'a dyn Fn(&Path) -> Result<(), Unwritten>;

/// Lets `write` make a file beside `path` and, if it should `stay`, puts it in its place; else takes it away again.
fn replace(path: &Path, write: Writer<'_>, stay: bool) -> Result<(), RuntimeError> {
    let partial = with_end(path, &format!(".{}.partial", std::process::id()));
    let done = write(&partial)
        .and_then(|()| Ok(if stay { std::fs::rename(&partial, path) } else { std::fs::remove_file(&partial) }?));
    done.map_err(|error| {
        // What is there of it, if anything, is of no use.
        let _ = std::fs::remove_file(&partial);
        match error {
            Unwritten::Io(source) => RuntimeError::Write { path: path.to_owned(), source },
            Unwritten::Other(error) => error,
        }
    })
}
