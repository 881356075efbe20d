//! How many conversations an engine keeps, and in how much memory.

use super::SessionPool;
use crate::RuntimeError;
use crate::open::{Compiled, OpenOptions, OpenReport, UseExec};
use crate::producer::LogitProducer;
use crate::real_forward::RealForwardRunner;
use plan::{Budget, Exec, KV_BLOCK, Limits};

/// Conversations that one engine keeps: see [`SessionPool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sessions {
    /// How many, the live one included. Memory is kept for a whole context of each, unless `bytes` says less.
    pub slots: usize,
    /// Most bytes of cache that the parked ones may hold.
    pub bytes: Option<u64>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self { slots: 1, bytes: None }
    }
}

impl Sessions {
    /// Refuses what does not go together.
    pub(crate) fn check(&self, options: &OpenOptions) -> Result<(), RuntimeError> {
        let refused = |reason| Err(RuntimeError::Sessions { reason });
        match self {
            Self { slots: 0, .. } => refused("there must be room for one at least (--session-slots 1)"),
            Self { slots: 1, bytes: Some(_) } => {
                refused("with one slot nothing is parked, so there are no bytes to bound; raise --session-slots")
            }
            Self { slots: 2.., .. } if !options.capture.is_empty() => {
                refused("a capture follows one conversation; leave either it or --session-slots out")
            }
            _ => Ok(()),
        }
    }

    /// `limits` for all conversations, with no more blocks of `block` bytes than one of `context` positions and the
    /// parked ones can hold.
    pub(crate) fn bound(&self, limits: Limits, context: usize, block: u64) -> Limits {
        let Some(bytes) = self.bytes else { return limits };
        let parked = usize::try_from(bytes / block.max(1)).unwrap_or(usize::MAX);
        Limits { blocks: limits.blocks.min(context.div_ceil(KV_BLOCK).saturating_add(parked)), ..limits }
    }
}

/// Bytes of a block in all layers without a window.
pub(crate) fn block_bytes(budget: &Budget) -> u64 {
    budget.groups.iter().filter(|group| group.window.is_none()).map(|group| group.block()).sum()
}

/// Makes a producer of a compiled model: of one conversation, or of several.
pub(crate) struct AsProducer(pub(crate) Sessions);

impl UseExec for AsProducer {
    type Output = Box<dyn LogitProducer + Send>;

    fn with<E: Exec + Send + 'static>(self, model: Compiled<E>) -> (Self::Output, OpenReport) {
        let Self(Sessions { slots, bytes }) = self;
        let Compiled { exec, recorder, prefixes, mut report } = model;
        if slots > 1 {
            let pool = SessionPool::new(exec, report.context, slots);
            let pool = match bytes.zip(report.budget.clone()) {
                Some((bytes, budget)) => pool.within(bytes, budget),
                None => pool,
            };
            return (Box::new(pool), report);
        }
        let runner = RealForwardRunner::new(exec, report.context);
        let runner = match recorder {
            Some(recorder) => runner.recorded_by(recorder),
            None => {
                let (runner, note) = runner.keeping(prefixes);
                report.notes.extend(note);
                runner
            }
        };
        (Box::new(runner), report)
    }
}
