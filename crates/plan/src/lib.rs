//! What a device *runs*: a straight list of coarse steps over numbered slots, lowered once from a
//! [`model::ModelSpec`], for every family and every device.
//!
//! The order of passes is `lower` → `instrument` → `quantise` → `fuse` → `assign_slots`. [`mod@reference`] is the scalar interpreter of the
//! steps: the place to read what a step means, and the oracle of every kernel.
#![forbid(unsafe_code)]

mod around;
mod blocks;
mod budget;
mod device;
mod error;
mod experts;
mod fixed;
mod fuse;
mod instrument;
pub mod kv;
mod lower;
mod prefix;
mod print;
mod program;
mod quantise;
pub mod reference;
mod scripted;
mod sequences;
mod slots;
mod source;
mod steering;
mod step;

pub use around::Around;
pub use blocks::{BlockId, StateSlot, Table};
pub use budget::{Budget, GroupBudget, windows};
pub use device::{Batch, Caps, Device, Exec, Limits, Outputs, SequenceArgs, StateCopy, StatePiece};
pub use error::{ExecError, PlanError};
pub use experts::{BankUse, ExpertMatrix, ExpertStats, Residency};
pub use fixed::FixedStates;
pub use fuse::{Fusion, fuse};
pub use instrument::instrument;
pub use kv::{KvPlan, KvType, KvTypes};
pub use lower::{Passes, lower, lower_for, lower_with};
pub use prefix::{ContextKey, Fingerprint, Opened, PrefixFileError, PrefixTree, Prompt, Restored, Reuse, Saved};
pub use program::{KV_BLOCK, KvSpec, Program, ProgramId, Rows, SlotSpec, StateSpec, Tap, WeightRole, WeightUse};
pub use quantise::{quantise, routers};
pub use scripted::{Fault, Script, ScriptedExec};
pub use sequences::{Feed, Room, SequenceId, Sequences, Snapshot, Want};
pub use slots::assign_slots;
pub use source::{bank, check, check_matrix_type, rounded, stored, stored_type, values};
pub use steering::{Edit, Products, Steer, SteerMode};
pub use step::{
    BankWeights, BlockScore, DeltaShape, Part, Place, Point, RopeId, Select, Slot, StateId, Step, WeightId,
};
