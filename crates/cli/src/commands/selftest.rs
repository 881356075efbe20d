//! `turbospark selftest`: the conformance suite on a device of this machine.

use crate::arguments::{device, positive};
use crate::failure::Failure;
use crate::output;
use clap::{Args, ValueEnum};
use conformance::{Failures, exact, golden, steps};
use plan::Device;
use runtime::{DeviceKind, RuntimeError, UseDevice};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Instant;

/// Check a device against the scalar reference, the golden models and the exactness contract
#[derive(Args, Debug)]
pub(crate) struct Selftest {
    /// Device: cpu, reference, cuda or cuda:N
    #[arg(long, value_name = "NAME", default_value = "cpu", value_parser = device)]
    device: DeviceKind,
    /// Threads [default: as many as the machine and the container give]
    #[arg(long, value_name = "N", value_parser = positive)]
    threads: Option<usize>,
    /// Folder of the golden models, crates/testkit/golden of the source [default: where this was built]
    ///
    /// Without them only the steps can be checked.
    #[arg(long, value_name = "FOLDER")]
    golden: Option<PathBuf>,
    /// Check only this; may be given several times [default: all]
    #[arg(long, value_name = "WHAT")]
    only: Vec<Suite>,
}

/// A part of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Every step, storage type and shape against the reference device
    Steps,
    /// Every golden model against its publisher's logits
    Golden,
    /// The same bits for all chunks, neighbours, rewinds and forks
    Exact,
}

impl Selftest {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        if let Some(folder) = &self.golden {
            testkit::find_golden_in(folder.clone());
        }
        let folder = testkit::golden("");
        let found = folder.join("llama").is_dir();
        let asked = |suite: Suite| self.only.contains(&suite);
        if !found && (self.golden.is_some() || asked(Suite::Golden) || asked(Suite::Exact)) {
            return Err(Failure::message(format!(
                "there are no golden models in {}; name the folder crates/testkit/golden of the source with --golden",
                folder.display()
            )));
        }
        let all = [Suite::Steps, Suite::Golden, Suite::Exact];
        let chosen: Vec<_> = all.into_iter().filter(|s| self.only.is_empty() || asked(*s)).collect();
        if !found && chosen.len() > 1 {
            output::warn("no golden models were found, so only the steps are checked; --golden names their folder");
        }
        let suites = chosen.into_iter().filter(|s| found || *s == Suite::Steps).collect();
        // A part that stops is told as a line of its own.
        std::panic::set_hook(Box::new(|_| {}));
        let failed = self.device.open(self.threads, Check { device: self.device, suites })?;
        if failed > 0 {
            return Err(Failure::message(format!("{failed} checks of {} failed", self.device)));
        }
        Ok(())
    }
}

/// Runs suites on a device; how many cases failed.
struct Check {
    device: DeviceKind,
    suites: Vec<Suite>,
}

impl UseDevice for Check {
    type Output = usize;

    fn with<D: Device>(self, device: &D, _: usize) -> Result<usize, RuntimeError> {
        let mut failed = 0;
        for suite in &self.suites {
            match suite {
                Suite::Steps => failed += self.parts("steps", device, &[("steps", steps::<D>)]),
                Suite::Golden => failed += self.parts("golden", device, &[("golden models", golden::<D>)]),
                Suite::Exact => {
                    let parts: &[Part<D>] = &[
                        ("chunks", exact::chunks_change_no_bit::<D>),
                        ("wanted rows", exact::wanted_rows_change_no_bit::<D>),
                        ("neighbours", exact::neighbours_change_no_bit::<D>),
                        ("forks and snapshots", exact::the_way_to_a_past_changes_no_bit::<D>),
                        ("rewinds", exact::a_rewind_to_any_position_changes_no_bit::<D>),
                    ];
                    failed += self.parts("exact", device, parts);
                }
            }
        }
        Ok(failed)
    }
}

/// A name and what it checks.
type Part<D> = (&'static str, fn(&D, &mut Failures));

impl Check {
    /// Runs parts of a suite and prints a line each, and a line for each case that failed; how many did.
    fn parts<D: Device>(&self, suite: &str, device: &D, parts: &[Part<D>]) -> usize {
        let mut all = 0;
        for (name, part) in parts {
            let started = Instant::now();
            let mut failures = Failures::default();
            // A device that refuses or fails ends its part with a panic, as in a test.
            let stopped = catch_unwind(AssertUnwindSafe(|| part(device, &mut failures))).err();
            let (cases, mut failed) = failures.told();
            if cases == 0 && stopped.is_none() {
                failed.push("no case was run".to_owned());
            }
            if let Some(panic) = stopped {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|t| (*t).to_owned()));
                failed.push(format!("stopped: {}", text.unwrap_or_else(|| "for a reason that is no text".to_owned())));
            }
            let seconds = started.elapsed().as_secs_f64();
            let right = cases.saturating_sub(failed.len());
            // Progress is for people; the exit code counts.
            let _ =
                output::write(&format!("{} {suite}: {name}: {right} of {cases} right, {seconds:.1} s\n", self.device));
            for case in &failed {
                let _ = output::write(&format!("  {case}\n"));
            }
            all += failed.len();
        }
        all
    }
}
