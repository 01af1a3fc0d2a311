//! The state that a server builds from the entries of the log.
//!
//! A [`Machine`] applies entries; stage 1e implements it for the SQLite replica. openraft calls [`StateMachine`], which only
//! queues entries: the task of `applier` hands everything that waits to the machine at once, so a slow machine gets
//! larger transactions.
//!
//! - `parts` joins the parts of a group that was too large for one entry.
//! - `config` is the configuration of openraft.
//! - `applier` applies entries and publishes the applied position.
//! - `state_machine` implements the traits of openraft.
//! - `snapshot` makes, receives and installs copies of a machine.
//!
//! # Invariants
//! - Entries are applied in the order of the log, each exactly once, a group completely or not at all.
//! - The applied position is before the first part of a group until the whole group is applied.
//! - After an error of the machine nothing is applied or answered any more.

mod applier;
mod config;
pub(crate) mod copies;
#[cfg(any(test, feature = "testing"))]
mod memory;
pub(crate) mod parts;
mod snapshot;
pub(crate) mod snapshot_files;
mod state_machine;

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use store::pace::Pace;
use tokio::sync::oneshot;

pub(crate) use applier::{Applier, Progress};
pub use config::Belfry;
pub use copies::{COPY_RATE, CopyProgress, MachineCopy};
#[cfg(any(test, feature = "testing"))]
pub use memory::{Memory, MemoryGroup};
pub use snapshot::SnapshotData;
pub use state_machine::StateMachine;
pub(crate) use state_machine::meta as snapshot_meta;

use crate::types::LogId;

/// An entry to apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Position of the entry; of the last part for a group in parts.
    pub position: LogId,
    /// What the entry contains.
    pub content: Content,
}

/// Content of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// First entry of a leader; nothing but its position matters.
    Blank,
    /// Members of the cluster, encoded. The machine stores the bytes unread.
    Membership(Arc<[u8]>),
    /// Commands, as [`Group::finish`] encoded them.
    Group(Arc<[u8]>),
}

/// What a machine remembers beside its rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppliedState {
    /// Position of the last applied entry.
    pub applied: Option<LogId>,
    /// Position of the last applied membership.
    pub membership_at: Option<LogId>,
    /// Bytes of the last applied membership; empty before the first one.
    pub membership: Arc<[u8]>,
}

/// Why a machine cannot continue.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct MachineError {
    /// What failed, on which object.
    pub problem: String,
    /// The error that caused it.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl MachineError {
    /// Returns an error without a cause.
    pub fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), source: None }
    }

    /// Returns an error with its cause.
    pub fn caused(
        problem: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { problem: problem.into(), source: Some(source.into()) }
    }
}

/// Encodes commands into the payload of an entry.
pub trait Group: Default + Send + 'static {
    /// What a caller proposes.
    type Command: Send + 'static;
    /// What the application of a command answers.
    type Answer;

    /// Adds a command.
    ///
    /// # Errors
    /// The answer to a command that is refused before it reaches the log. The group is then unchanged.
    fn push(&mut self, command: Self::Command) -> Result<(), Self::Answer>;

    /// Returns whether the next command should begin another group.
    fn is_full(&self) -> bool;

    /// Returns the encoded group: a byte with the format, a byte with flags whose lowest bit is clear, then anything.
    fn finish(self) -> Vec<u8>;
}

/// The state that a server builds from the entries of the log.
///
/// [`Machine::apply`] and [`Machine::install`] are called by one task, one after another; the others at any time. Calls block no
/// thread of the runtime, if not said otherwise. After an error of `apply`, `sync` or `install` the node stops.
pub trait Machine: Send + Sync + Sized + 'static {
    /// What a caller proposes.
    type Command: Send + 'static;
    /// What the application of a command answers. The node never looks into it.
    type Answer: Clone + Debug + Send + Sync + 'static;
    /// Builder of the payload of an entry.
    type Group: Group<Command = Self::Command, Answer = Self::Answer>;

    /// Returns the state of the machine now. It may not be durable.
    fn state(&self) -> AppliedState;

    /// Applies entries in order, in one transaction. Returns the answers of each entry, in the order of its commands;
    /// none for blank entries and memberships. The result is visible to readers when the call returns, but it need not be
    /// durable.
    ///
    /// The answers and the state depend on the earlier entries alone, so they are equal on every server. An entry whose
    /// leader differs from that of the entry before ends all leases.
    ///
    /// # Errors
    /// If the entries cannot be applied now or ever. None of them is applied then.
    fn apply(
        &self,
        entries: Vec<Entry>,
    ) -> impl Future<Output = Result<Vec<Vec<Self::Answer>>, MachineError>> + Send;

    /// Makes everything that is applied durable, and returns the durable state.
    ///
    /// # Errors
    /// If the disk reports an error.
    fn sync(&self) -> impl Future<Output = Result<AppliedState, MachineError>> + Send;

    /// Writes a copy of the machine into a new file, with a pace. Entries are applied meanwhile. The copy is a state at one
    /// position, which is returned.
    ///
    /// # Errors
    /// If the file cannot be written. The machine continues.
    fn copy_to(
        &self,
        path: &Path,
        pace: Pace,
    ) -> impl Future<Output = Result<AppliedState, MachineError>> + Send;

    /// Verifies a copy that another server has made, and returns its state. Does not change the file. Blocks.
    ///
    /// # Errors
    /// If the file is no copy of a machine of this cluster, or is of a newer version.
    fn inspect(&self, path: &Path) -> Result<AppliedState, MachineError>;

    /// Replaces the state by a copy, and takes the file. The new state is durable when the call returns. A crash leaves
    /// the old state and the file, or the new state without the file.
    ///
    /// # Errors
    /// If the file cannot be installed.
    fn install(&self, path: &Path) -> impl Future<Output = Result<AppliedState, MachineError>> + Send;

    /// Appends the bytes of an answer, for a server that has forwarded the command.
    fn encode_answer(answer: &Self::Answer, bytes: &mut Vec<u8>);

    /// Decodes an answer.
    ///
    /// # Errors
    /// If the bytes are no answer that this version knows.
    fn decode_answer(bytes: &[u8]) -> Result<Self::Answer, MachineError>;
}

/// Answers to the commands of an entry.
pub(crate) type Answers<A> = Result<Vec<A>, Discarded>;

/// The group was incomplete: its leader was deposed before it had written all parts. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Discarded;

/// Receives the answers to the commands of an entry when the machine has applied it. openraft gets it as soon as the entry
/// is queued.
#[derive(Debug)]
pub struct Applied<A>(pub(crate) oneshot::Receiver<Answers<A>>);
