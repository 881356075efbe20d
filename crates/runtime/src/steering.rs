//! Files of steering directions: what a user asks for, and what the instrumenting pass is given.

use crate::RuntimeError;
use model::{ModelSpec, Source};
use plan::{Edit, Steer, SteerMode};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use weights::gguf::GgufFile;
use weights::safetensors::SafetensorsFile;
use weights::{Tensor, Weights};

/// Layers, counted from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerSet(Vec<RangeInclusive<usize>>);

impl LayerSet {
    fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().cloned().flatten()
    }
}

impl FromStr for LayerSet {
    type Err = RuntimeError;

    /// Numbers and ranges, separated by commas: `4`, `3-8`, `0,2,10-12`.
    fn from_str(text: &str) -> Result<Self, RuntimeError> {
        let number = |t: &str| t.parse::<usize>().ok();
        let range = |part: &str| match part.split_once('-') {
            Some((first, last)) => Some(number(first)?..=number(last)?).filter(|r| !r.is_empty()),
            None => number(part).map(|layer| layer..=layer),
        };
        let layers: Option<Vec<_>> = text.split(',').map(range).collect();
        layers.map(Self).ok_or_else(|| RuntimeError::BadValue {
            found: text.to_owned(),
            reason: "expected layers as 4, 3-8 or 0,2,10-12, counted from 0".to_owned(),
        })
    }
}

/// A file of directions and how they are applied.
#[derive(Clone, Debug, PartialEq)]
pub struct SteerFile {
    /// A control vector in GGUF, or a safetensors file; one direction a layer, `direction.N` or `layer.N`.
    pub file: PathBuf,
    /// What each direction does.
    pub edit: Edit,
    /// Which of the file's layers; `None`: all.
    pub layers: Option<LayerSet>,
}

/// The names of modes.
const MODES: [(&str, SteerMode); 4] = [
    ("add", SteerMode::Add),
    ("ablate", SteerMode::Ablate),
    ("clamp", SteerMode::Clamp { target: 0.0 }),
    ("renorm", SteerMode::Renorm),
];

impl FromStr for SteerFile {
    type Err = RuntimeError;

    /// `FILE[:alpha[:mode[:layers]]]`: 1, `add` and all layers unless given; `clamp=TARGET` clamps to another value than 0.
    /// The first colon that a number follows ends the file's name.
    fn from_str(text: &str) -> Result<Self, RuntimeError> {
        let parts: Vec<&str> = text.split(':').collect();
        let alpha = |part: &&str| part.trim().parse::<f32>().is_ok();
        let end = (parts.len().saturating_sub(3).max(1)..parts.len()).find(|at| alpha(&parts[*at]));
        let bad = |reason: String| RuntimeError::BadValue { found: text.to_owned(), reason };
        if end.is_none() && parts.len() > 1 {
            return Err(bad(format!("expected FILE[:alpha[:mode[:layers]]]; `{}` is no number", parts[1])));
        }
        let (file, fields) = parts.split_at(end.unwrap_or(parts.len()));
        let file = file.join(":");
        if file.is_empty() {
            return Err(bad("expected FILE[:alpha[:mode[:layers]]]; the file has no name".to_owned()));
        }
        let strength = fields.first().map_or(Some(1.0), |alpha| alpha.trim().parse().ok());
        let strength = strength.filter(|alpha: &f32| alpha.is_finite());
        let strength = strength.ok_or_else(|| bad(format!("alpha must be a finite number, found `{}`", fields[0])))?;
        let mode = fields.get(1).map_or(Ok(SteerMode::Add), |name| mode(name).map_err(bad))?;
        let layers = fields.get(2).map(|layers| layers.parse()).transpose()?;
        Ok(Self { file: file.into(), edit: Edit { mode, strength, threshold: 0.0 }, layers })
    }
}

fn mode(text: &str) -> Result<SteerMode, String> {
    if let Some(target) = text.strip_prefix("clamp=") {
        let target = target.parse().ok().filter(|target: &f32| target.is_finite());
        return target.map(|target| SteerMode::Clamp { target }).ok_or(format!("`{text}` needs a finite number"));
    }
    MODES.iter().find(|(name, _)| *name == text).map(|(_, mode)| *mode).ok_or_else(|| {
        let known = MODES.map(|(name, _)| name).join(", ");
        format!("mode `{text}` is not one of {known}, clamp=TARGET")
    })
}

impl fmt::Display for SteerFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Edit { mode, strength, .. } = self.edit;
        write!(f, "{}: {mode:?} {strength}", self.file.display())
    }
}

/// Directions and what is done with them.
#[derive(Debug, Default)]
pub(crate) struct Steering {
    /// For the instrumenting pass.
    pub(crate) steer: Vec<Steer>,
    /// The directions, by the names that `steer` uses.
    pub(crate) directions: Vec<Tensor>,
}

impl Steering {
    /// Reads the files and checks everything in them against the model.
    pub(crate) fn load(files: &[SteerFile], spec: &ModelSpec) -> Result<Self, RuntimeError> {
        let mut steering = Self::default();
        for (number, asked) in files.iter().enumerate() {
            let refused = |reason| RuntimeError::Steering { file: asked.file.clone(), reason };
            for (layer, values) in asked.directions(spec).map_err(|e| e.in_file(&asked.file))? {
                check(layer, &values, spec.hidden).map_err(refused)?;
                // No checkpoint's tensor has a name with a space.
                let name = format!("steering {number}, layer {layer}");
                let (width, edit) = (spec.hidden, asked.edit);
                steering.directions.push(Tensor::from_f32(name.as_str(), vec![width], &values));
                steering.steer.push(Steer { layer, direction: Source::tensor(name), width, edit });
            }
        }
        Ok(steering)
    }

    /// A checkpoint's tensors with the directions beside them; copies no values.
    pub(crate) fn beside(&self, weights: &Weights) -> Weights {
        let mut all = weights.clone();
        self.directions.iter().for_each(|direction| {
            all.insert(direction.clone());
        });
        all
    }
}

/// Why a file of directions cannot be used.
enum Unfit {
    Reason(String),
    Other(RuntimeError),
}

impl Unfit {
    fn in_file(self, file: &Path) -> RuntimeError {
        match self {
            Self::Reason(reason) => RuntimeError::Steering { file: file.to_owned(), reason },
            Self::Other(error) => error,
        }
    }
}

impl<E: Into<RuntimeError>> From<E> for Unfit {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

impl SteerFile {
    /// The directions asked for, by layer.
    fn directions(&self, spec: &ModelSpec) -> Result<BTreeMap<usize, Vec<f32>>, Unfit> {
        let Edit { mode, strength, threshold } = self.edit;
        let target = if let SteerMode::Clamp { target } = mode { target } else { 0.0 };
        if !(strength.is_finite() && target.is_finite() && threshold >= 0.0 && threshold.is_finite()) {
            let found = format!("alpha {strength}, target {target}, threshold {threshold}");
            return Err(Unfit::Reason(format!("expected finite numbers and a threshold of at least 0, found {found}")));
        }
        let mut all = BTreeMap::new();
        for tensor in self.read()?.iter() {
            let number = tensor.name().strip_prefix("direction.").or_else(|| tensor.name().strip_prefix("layer."));
            let Some(layer) = number.and_then(|n| n.parse::<usize>().ok()) else {
                let found = tensor.name();
                return Err(Unfit::Reason(format!("expected tensors direction.N or layer.N, found `{found}`")));
            };
            if all.insert(layer, tensor.to_f32()?).is_some() {
                return Err(Unfit::Reason(format!(
                    "layer {layer} has two directions, direction.{layer} and layer.{layer}"
                )));
            }
        }
        let in_file = || all.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        if let Some(layers) = &self.layers {
            if let Some(missing) = layers.iter().find(|layer| !all.contains_key(layer)) {
                let have = in_file();
                return Err(Unfit::Reason(format!(
                    "layer {missing} was asked for; the file has directions for {have}"
                )));
            }
            all.retain(|layer, _| layers.iter().any(|asked| asked == *layer));
        }
        let Some(last) = all.keys().max() else {
            return Err(Unfit::Reason("it holds no direction".to_owned()));
        };
        if *last >= spec.layers.len() {
            let layers = spec.layers.len();
            return Err(Unfit::Reason(format!(
                "it steers layer {last}, but the model has {layers} layers, 0 to {}; name the layers to steer",
                layers - 1
            )));
        }
        Ok(all)
    }

    fn read(&self) -> Result<Weights, Unfit> {
        let mut magic = [0; 4];
        let read = std::fs::File::open(&self.file).and_then(|mut file| file.read(&mut magic));
        read.map_err(|source| RuntimeError::Read { path: self.file.clone(), source })?;
        if &magic != b"GGUF" {
            return Ok(SafetensorsFile::open(&self.file)?.weights().clone());
        }
        let file = GgufFile::open(&self.file)?;
        match file.metadata().str("general.architecture") {
            Some("controlvector") => Ok(file.weights().clone()),
            other => {
                let found = other.unwrap_or("none");
                Err(Unfit::Reason(format!("expected general.architecture `controlvector`, found `{found}`")))
            }
        }
    }
}

fn check(layer: usize, values: &[f32], hidden: usize) -> Result<(), String> {
    if values.len() != hidden {
        let found = values.len();
        return Err(format!("the direction of layer {layer} has {found} values; the model's hidden width is {hidden}"));
    }
    if let Some(at) = values.iter().position(|v| !v.is_finite()) {
        return Err(format!("the direction of layer {layer} holds {} at {at}; expected finite numbers", values[at]));
    }
    let square = values.iter().map(|v| v * v).sum::<f32>();
    if !(square.is_finite() && square > 0.0) {
        return Err(format!("the direction of layer {layer} has length {}; it points nowhere", square.sqrt()));
    }
    Ok(())
}
