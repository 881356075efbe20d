//! How hot the machine is and how short of memory, where the operating system says so.

use std::path::{Path, PathBuf};

/// How hot the machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thermal {
    /// Cool.
    Nominal,
    /// Warm, with nothing to do about it.
    Fair,
    /// The system has begun to slow down.
    Serious,
    /// The system is about to stop.
    Critical,
}

/// How short of memory the machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryPressure {
    /// Enough.
    Normal,
    /// Some work waits for memory.
    Warning,
    /// All work waits for memory.
    Critical,
}

impl MemoryPressure {
    /// The level as one word, for machines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// What a machine says of itself; `None` where it does not.
pub trait Sensors {
    /// How hot it is.
    fn thermal(&self) -> Option<Thermal>;

    /// How short of memory it is.
    fn memory(&self) -> Option<MemoryPressure>;
}

/// Linux: pressure stall information and thermal zones. Elsewhere the files are absent and it says nothing.
#[derive(Clone, Debug)]
pub struct LinuxSensors {
    /// `memory.pressure` of the process's group or `/proc/pressure/memory`: the first that can be read counts.
    pub pressure: Vec<PathBuf>,
    /// The folder of `thermal_zone*`.
    pub thermal: PathBuf,
}

impl Default for LinuxSensors {
    fn default() -> Self {
        Self {
            pressure: vec!["/sys/fs/cgroup/memory.pressure".into(), "/proc/pressure/memory".into()],
            thermal: "/sys/class/thermal".into(),
        }
    }
}

/// Percent of the last ten seconds during which work waited, from which on pressure counts.
const STALLED: f64 = 10.0;

/// Thousandths of a degree below a trip point at which it is near.
const NEAR: i64 = 5000;

impl Sensors for LinuxSensors {
    fn thermal(&self) -> Option<Thermal> {
        let folders = std::fs::read_dir(&self.thermal).ok()?;
        let zones = folders.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("thermal_zone"));
        zones.filter_map(|zone| zone_level(&zone.path())).max()
    }

    fn memory(&self) -> Option<MemoryPressure> {
        let text = self.pressure.iter().find_map(|path| std::fs::read_to_string(path).ok())?;
        let stalled = |kind: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
            line.split_whitespace().find_map(|field| field.strip_prefix("avg10="))?.parse::<f64>().ok()
        };
        let some = stalled("some ")?;
        Some(match stalled("full ") {
            Some(full) if full >= STALLED => MemoryPressure::Critical,
            _ if some >= STALLED => MemoryPressure::Warning,
            _ => MemoryPressure::Normal,
        })
    }
}

/// A zone beside its own trip points; `None` if it has no temperature or no points.
fn zone_level(zone: &Path) -> Option<Thermal> {
    let read = |name: String| Some(std::fs::read_to_string(zone.join(name)).ok()?.trim().to_owned());
    let number = |name: String| read(name)?.parse::<i64>().ok();
    let temperature = number("temp".to_owned())?;
    let points = (0..16).filter_map(|n| {
        let at = number(format!("trip_point_{n}_temp")).filter(|at| *at > 0)?;
        Some(match read(format!("trip_point_{n}_type"))?.as_str() {
            "critical" | "hot" if temperature >= at - NEAR => Thermal::Critical,
            "passive" | "active" if temperature >= at => Thermal::Serious,
            _ if temperature >= at - NEAR => Thermal::Fair,
            _ => Thermal::Nominal,
        })
    });
    points.max()
}
