//! The SQLite replica as the machine of a node.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use store::StoreError;
use store::command::{self, Command, GroupBuilder, LogPosition, Refused, Reply};
use store::pace::Pace;
use store::replica::{self, Replica};

use crate::machine::{AppliedState, Content, Entry, Group, Machine, MachineError};
use crate::types::{LogId, NodeId};

/// Maximum number of rows that the commands of one entry write.
const ROWS_MAX: usize = 8_192;
/// Size of a group from which the next command begins another one.
const BYTES_MAX: usize = 1 << 20;

/// Whether the commits of this process are refused. After a failed commit, later ones depend on it, and are refused until
/// the owner of the shards has loaded its rows again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Halt(Arc<AtomicBool>);

impl Halt {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn clear(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// A command, and what may refuse it before it reaches the log.
#[derive(Debug)]
pub(crate) struct Proposal {
    pub(crate) command: Command,
    /// For a commit.
    pub(crate) halt: Option<Halt>,
}

impl From<command::Update> for Proposal {
    fn from(update: command::Update) -> Self {
        Self { command: update.into(), halt: None }
    }
}

/// Why a command was not applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Rejection {
    /// The replicas have refused it.
    Refused(Refused),
    /// A commit before it has failed.
    Halted,
}

/// Answer to a command.
pub(crate) type Answer = Result<Reply, Rejection>;

/// Commands of one entry.
#[derive(Default)]
pub(crate) struct Commands {
    group: GroupBuilder,
    rows: usize,
}

impl Group for Commands {
    type Command = Proposal;
    type Answer = Answer;

    fn push(&mut self, proposal: Proposal) -> Result<(), Answer> {
        let Proposal { command, halt } = proposal;
        if halt.as_ref().is_some_and(Halt::is_set) {
            return Err(Err(Rejection::Halted));
        }
        let pushed = self.group.push(&command);
        pushed.map_err(|error| {
            Err(Rejection::Refused(match error {
                StoreError::Fenced { shard } => Refused::Fenced(shard),
                other => Refused::Broken(other.to_string()),
            }))
        })?;
        self.rows += command.rows();
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.rows >= ROWS_MAX || self.group.size() >= BYTES_MAX
    }

    fn finish(self) -> Vec<u8> {
        self.group.finish()
    }
}

/// A replica as the machine of a node.
#[derive(Debug)]
pub(crate) struct ReplicaMachine {
    replica: Arc<Replica>,
}

impl ReplicaMachine {
    pub(crate) fn new(replica: Arc<Replica>) -> Self {
        Self { replica }
    }

    pub(crate) fn replica(&self) -> &Arc<Replica> {
        &self.replica
    }
}

fn log_id(position: LogPosition) -> LogId {
    let leader = openraft::LeaderId::new(position.term, NodeId(position.node));
    LogId::new(leader, position.index)
}

pub(super) fn position(id: LogId) -> LogPosition {
    LogPosition { term: id.leader_id.term, node: id.leader_id.node_id.0, index: id.index }
}

fn state_of(state: replica::AppliedState) -> AppliedState {
    AppliedState {
        applied: state.applied.map(log_id),
        membership_at: state.membership_at.map(log_id),
        membership: state.membership,
    }
}

fn failed(problem: &'static str) -> impl Fn(StoreError) -> MachineError {
    move |error| MachineError::caused(format!("{problem}: {error}"), error)
}

impl Machine for ReplicaMachine {
    type Command = Proposal;
    type Answer = Answer;
    type Group = Commands;

    fn state(&self) -> AppliedState {
        state_of(self.replica.applied().borrow().clone())
    }

    async fn apply(&self, entries: Vec<Entry>) -> Result<Vec<Vec<Answer>>, MachineError> {
        let entry = |entry: Entry| command::Entry {
            position: position(entry.position),
            content: match entry.content {
                Content::Blank => command::Content::Blank,
                Content::Membership(bytes) => command::Content::Membership(bytes),
                Content::Group(bytes) => command::Content::Group(bytes),
            },
        };
        let entries = entries.into_iter().map(entry).collect();
        let answers = self.replica.apply(entries).await.map_err(failed("cannot apply entries of the log"))?;
        let answer = |answer: Result<Reply, Refused>| answer.map_err(Rejection::Refused);
        Ok(answers.into_iter().map(|of_entry| of_entry.into_iter().map(answer).collect()).collect())
    }

    async fn sync(&self) -> Result<AppliedState, MachineError> {
        self.replica.sync().await.map(state_of).map_err(failed("cannot sync the replica"))
    }

    async fn copy_to(&self, path: &Path, pace: Pace) -> Result<AppliedState, MachineError> {
        self.replica.copy_to(path, pace).await.map(state_of).map_err(failed("cannot copy the replica"))
    }

    fn inspect(&self, path: &Path) -> Result<AppliedState, MachineError> {
        replica::read_applied(path).map(state_of).map_err(failed("a snapshot cannot be used"))
    }

    async fn install(&self, path: &Path) -> Result<AppliedState, MachineError> {
        self.replica.install(path).await.map(state_of).map_err(failed("cannot install a snapshot"))
    }

    fn encode_answer(answer: &Answer, bytes: &mut Vec<u8>) {
        let written = std::mem::take(bytes);
        *bytes = postcard::to_extend(answer, written).expect("answers are plain data");
    }

    fn decode_answer(bytes: &[u8]) -> Result<Answer, MachineError> {
        postcard::from_bytes(bytes)
            .map_err(|error| MachineError::caused("cannot decode the answer of another server", error))
    }
}
