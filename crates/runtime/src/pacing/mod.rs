//! How fast an answer may come: a rate asked for, or steps down when the machine is hot or short of memory.
//!
//! Tokens are due at `anchor + n / rate`, so that one that comes late delays no other; the anchor moves only when the
//! rate changes. Pacing waits between tokens and changes none of them.

mod sensors;

pub use sensors::{LinuxSensors, MemoryPressure, Sensors, Thermal};

use std::str::FromStr;
use std::time::{Duration, Instant};

/// Tokens after which the sensors are read again.
const POLL_EVERY: u64 = 16;

/// Longest wait before cancelling is looked at again.
const SLICE: Duration = Duration::from_millis(50);

/// Tokens a second that are comfortable to read along.
const READING: f64 = 10.0;

/// Tokens a second when the machine is at its limit.
const CRITICAL: f64 = 5.0;

/// What to spare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PowerProfile {
    /// Nothing.
    #[default]
    Performance,
    /// Slower when the machine is hot or short of memory.
    Balanced,
    /// Reading speed, and slower as `Balanced`.
    Efficiency,
}

impl FromStr for PowerProfile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "performance" => Ok(Self::Performance),
            "balanced" => Ok(Self::Balanced),
            "efficiency" => Ok(Self::Efficiency),
            other => Err(format!("`{other}` is no power profile; use performance, balanced or efficiency")),
        }
    }
}

/// How an answer is paced.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Most tokens a second; overrides the profile. Not above zero counts as no limit.
    pub rate: Option<f64>,
    /// What to spare where no rate is asked for.
    pub profile: PowerProfile,
}

impl Pace {
    /// Tokens a second under these readings; `None`: as fast as it goes.
    pub fn rate(&self, thermal: Option<Thermal>, memory: Option<MemoryPressure>) -> Option<f64> {
        if let Some(rate) = self.rate {
            return (rate > 0.0).then_some(rate);
        }
        let thermal = thermal.and_then(|level| match level {
            Thermal::Nominal | Thermal::Fair => None,
            Thermal::Serious => Some(READING),
            Thermal::Critical => Some(CRITICAL),
        });
        let memory = memory.and_then(|level| match level {
            MemoryPressure::Normal => None,
            MemoryPressure::Warning => Some(READING),
            MemoryPressure::Critical => Some(CRITICAL),
        });
        let base = match self.profile {
            PowerProfile::Performance => return None,
            PowerProfile::Balanced => None,
            PowerProfile::Efficiency => Some(READING),
        };
        [thermal, memory, base].into_iter().flatten().reduce(f64::min)
    }
}

/// Time, real or a test's.
pub trait Clock {
    /// Time since some fixed moment.
    fn now(&self) -> Duration;

    /// Waits.
    fn sleep(&mut self, time: Duration);
}

/// The machine's own time.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// Waits after each token of one answer until the next is due.
#[derive(Debug)]
pub struct Pacer<C, S> {
    pace: Pace,
    clock: C,
    sensors: S,
    rate: Option<f64>,
    anchor: Duration,
    /// Tokens since the anchor.
    since: u64,
    tokens: u64,
    peak: Option<MemoryPressure>,
}

impl<C: Clock, S: Sensors> Pacer<C, S> {
    /// A pacer of an answer that begins now.
    pub fn new(pace: Pace, clock: C, sensors: S) -> Self {
        let anchor = clock.now();
        let mut pacer = Self { pace, clock, sensors, rate: None, anchor, since: 0, tokens: 0, peak: None };
        pacer.poll();
        pacer
    }

    /// A token has come: waits until the next is due, or `cancel` is true.
    pub fn token(&mut self, cancel: &dyn Fn() -> bool) {
        self.tokens += 1;
        self.since += 1;
        if self.tokens.is_multiple_of(POLL_EVERY) {
            self.poll();
        }
        let Some(rate) = self.rate else { return };
        // A rate too small for a deadline to be a time is one that never comes.
        let due = Duration::try_from_secs_f64(self.since as f64 / rate).unwrap_or(Duration::MAX);
        let due = self.anchor.saturating_add(due);
        while let Some(left) = due.checked_sub(self.clock.now()).filter(|left| !left.is_zero())
            && !cancel()
        {
            self.clock.sleep(left.min(SLICE));
        }
    }

    /// The worst memory pressure seen; `None` where the system does not say.
    pub fn peak_memory_pressure(&self) -> Option<MemoryPressure> {
        self.peak
    }

    fn poll(&mut self) {
        let memory = self.sensors.memory();
        self.peak = self.peak.max(memory);
        let rate = self.pace.rate(self.sensors.thermal(), memory);
        if rate != self.rate {
            self.rate = rate;
            self.anchor = self.clock.now();
            self.since = 0;
        }
    }
}
