//! Inputs of a [`Leader`](crate::Leader): [`Event`], [`Answer`], [`Failure`]. Outputs: [`Action`], [`Call`],
//! [`Notice`].
//!
//! The shell translates them to sockets, store calls and log messages. Every [`Call`] gets one answer, unless the
//! leader abandons it with [`Action::Abandon`].

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{Effect, Engine, Follower, Input, OrphanedExecution, Reply, Session, Ticket};
use model::changelog::{ChangelogPage, ChangelogPosition, LiveKey, ReloadedRows};
use model::record::{Batch, Lease, LiveRow};
use model::{Duration, JobStatus, Refusal, ShardId, Timestamp};

use crate::suspects::Suspect;

/// Identifies one store call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// An input of a leader. `R` is the destination of the reply to a request.
#[derive(Debug)]
pub enum Event<R> {
    /// A client request.
    Request {
        /// Identifies the request; equal to the ticket in `input`.
        ticket: Ticket,
        /// The request.
        input: Input,
        /// Destination of the reply.
        reply: R,
    },
    /// A message from a worker, or the end of its session.
    Worker(Input),
    /// The answer to a call, or its failure.
    Answered(CallId, Result<Answer, Failure>),
    /// The next rows that a [`Call::Load`] or [`Call::Preload`] found.
    Rows(CallId, Vec<LiveRow>),
    /// The rights of this server changed.
    Standing(Standing),
    /// The process is shutting down.
    Stop,
}

/// The rights of a server on the shards, as decided by [`membership`](crate::membership).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The server may acquire the shards.
    pub may_acquire: bool,
    /// The leader is about to hand over: a standby sends acquire requests often.
    pub takeover_is_near: bool,
    /// A standby that follows the live rows goes first, because this server would have to load them.
    pub yields: bool,
    /// The leader hands over now.
    pub hands_over: bool,
}

impl Default for Standing {
    fn default() -> Self {
        Self { may_acquire: true, takeover_is_near: false, yields: false, hands_over: false }
    }
}

/// A call to the store.
#[derive(Debug, Clone)]
pub enum Call {
    /// Acquires all free shards, for the length of a lease.
    Acquire,
    /// Renews leases.
    Renew(Arc<[Lease]>),
    /// Releases shards, so that another server need not wait for the end of their leases.
    Release(Arc<[Lease]>),
    /// Requests the shards that have lost their newest commits.
    LostTails(Arc<[Lease]>),
    /// Loads all live rows. They arrive as [`Event::Rows`] before the answer.
    Load(Arc<[Lease]>),
    /// Reads the store's own clock.
    Clock,
    /// Commits a batch. Commits are executed in the order of their calls; after a failed commit, none behind it is
    /// executed.
    Commit(Arc<[Lease]>, Arc<Batch>),
    /// Checks whether the store has free space.
    Probe,
    /// Records that the lost commits of the shards were reconciled.
    Reconciled(Arc<[Lease]>),
    /// Requests the end of the changelog.
    ChangelogEnd,
    /// Requests the keys that commits changed after this position.
    ChangelogSince(ChangelogPosition),
    /// Loads all live rows while another server changes them. They arrive as [`Event::Rows`] before the answer, and
    /// not before [`Leader::rows_from`](crate::Leader::rows_from).
    Preload,
    /// Reads the live rows of these keys, all from one snapshot.
    LiveRows(Vec<LiveKey>),
    /// Counts the jobs of each status.
    CountJobs,
}

/// The result of a successful call.
#[derive(Debug)]
pub enum Answer {
    /// To [`Call::Acquire`].
    Acquired {
        /// The shards that were free: all, some or none.
        leases: Vec<Lease>,
        /// How long the former owner may still renew worker leases.
        former_owner: Duration,
    },
    /// To [`Call::LostTails`].
    LostTails(Vec<ShardId>),
    /// To [`Call::Load`] and [`Call::Preload`].
    Loaded(Loaded),
    /// To [`Call::ChangelogEnd`].
    ChangelogEnd(ChangelogPosition),
    /// To [`Call::ChangelogSince`]; `None` if the changelog no longer contains the position.
    ChangelogSince(Option<ChangelogPage>),
    /// To [`Call::LiveRows`].
    LiveRows(ReloadedRows),
    /// To [`Call::CountJobs`].
    Jobs(BTreeMap<JobStatus, u64>),
    /// To [`Call::Clock`]; `None` if the store has none.
    Clock(Option<Timestamp>),
    /// To [`Call::Commit`].
    Committed(Committed),
    /// To any other call.
    Done,
}

/// Result of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Loaded {
    /// Engine time of the newest commit.
    pub now: Timestamp,
    /// Number of live rows.
    pub rows: u64,
    /// Number of these rows that were unreadable and quarantined.
    pub quarantined: u64,
}

/// Result of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Committed {
    /// Position of the batch's first event in the event feed.
    pub first_event: u64,
    /// Whether the commit also renewed the leases.
    pub prolonged: bool,
    /// Whether the commit used space that is reserved for finishing running work.
    pub space_low: bool,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Category of the failure, which determines how the leader continues.
    pub kind: FailureKind,
    /// Error message for people.
    pub message: String,
}

/// Category of a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// Another server owns the shards. Nothing was changed.
    Fenced,
    /// The store has no space. Nothing was changed.
    Full,
    /// The store is unavailable. Nothing was changed.
    Unavailable,
    /// It is unknown whether anything was changed.
    OutcomeUnknown,
    /// The data was written by a newer version. Nothing was changed.
    TooNew,
    /// The store cannot be trusted: the process must end.
    Fatal,
    /// Any other failure. It is unknown whether anything was changed.
    Other,
}

/// Whether a server accepts requests, and why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// The server is a standby, or loads its shards.
    Loading {
        /// What the server waits for, or the failure before.
        reason: String,
    },
    /// The leadership lease has ended without a confirmed renewal: the server decides nothing until the store
    /// confirms one.
    Suspended,
    /// The server accepts all requests.
    Ready,
    /// The store's volume is full: new work is refused, running work continues.
    Full,
    /// The server is shutting down.
    Stopping,
    /// The store cannot be trusted any more: the process must exit.
    Failed {
        /// The failure.
        reason: String,
    },
}

impl Readiness {
    /// Whether the server does not lead now but may do so soon.
    pub fn may_become_ready(&self) -> bool {
        matches!(self, Self::Loading { .. } | Self::Suspended)
    }
}

/// Why a request got no reply of the engine.
#[derive(Debug, Clone, PartialEq)]
pub enum Unanswered {
    /// The engine refused the request. Nothing was changed.
    Refused(Refusal),
    /// It is unknown whether the request took effect.
    OutcomeUnknown,
    /// The store has no space for new work. Nothing was changed.
    Full,
    /// This server does not lead. Nothing was changed.
    Loading,
    /// The same request made the engine panic before. Nothing was changed.
    Poisoned,
}

/// An output of a leader. The shell must carry out actions in their order.
#[derive(Debug)]
pub enum Action<R> {
    /// Calls the store. A call without an answer after `timeout` fails as [`FailureKind::Unavailable`].
    Call {
        /// Identifies the call.
        id: CallId,
        /// The call to make.
        call: Call,
        /// Timeout; `None` if the leader abandons the call itself.
        timeout: Option<Duration>,
    },
    /// Abandons a call: its answer is not needed any more.
    Abandon(CallId),
    /// Replies to a request.
    Reply {
        /// Destination of the reply.
        to: R,
        /// The reply, or why there is none.
        reply: Result<Reply, Unanswered>,
    },
    /// Sends an effect to a worker.
    ToWorker(Effect),
    /// Closes a worker session.
    CloseSession(Session),
    /// Closes all worker sessions.
    CloseSessions,
    /// Publishes the events of a batch to watchers: it is durable, and its effects were released.
    Publish {
        /// The batch.
        batch: Arc<Batch>,
        /// Result of the commit.
        committed: Committed,
        /// Steady time at which the commit was sent.
        sent_at: Timestamp,
        /// Engine time of the batch before.
        before: Timestamp,
    },
    /// Shows the readiness to clients, workers and probes.
    Show(Readiness),
    /// Closes the lanes: no further input of clients and workers is accepted. Inputs that already wait are still
    /// handled.
    CloseLanes,
    /// Reports executions that workers hold and that the store has lost.
    ReportStrays(Vec<OrphanedExecution>),
    /// Drops a value outside the engine's thread, because that may take long.
    Retire(Retired),
    /// Shows how up to date this standby is: the steady time up to which it has all changes of live rows. `None` if
    /// it does not follow them.
    ShowFollowed(Option<Timestamp>),
    /// Logs and counts an event.
    Notice(Notice),
}

/// A value that is dropped outside the engine's thread: it may hold millions of jobs.
#[derive(Debug)]
pub enum Retired {
    /// An engine.
    Engine(Box<Engine>),
    /// The engine of a standby.
    Follower(Box<Follower>),
}

/// An event for operators; the shell logs and counts it.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the variants say what their fields are")]
pub enum Notice {
    /// Another server owns this number of shards.
    BecameStandby { shards: usize },
    /// The shards cannot be acquired or loaded.
    AcquireFailed(Failure),
    /// The engine is about to be rebuilt.
    EngineRebuilds,
    /// Rows were loaded.
    Loaded { rows: u64, quarantined: u64, took: Duration },
    /// A live row was quarantined: it contradicts other rows.
    RowQuarantined(String),
    /// The engine panicked while it restored rows.
    EngineFailedOnRows,
    /// Shards lost their newest commits.
    TailLost { shards: usize },
    /// The wall clock is ahead of a second clock by `ahead`; the second clock, which `second` names, is used.
    ClockDistrusted { ahead: Duration, second: &'static str },
    /// The wall clock is behind the newest commit by this duration.
    ClockBehind(Duration),
    /// This standby has read all live rows: it is ready to take over.
    Follows { rows: u64, took: Duration },
    /// This standby stopped following the live rows, and reads all of them again after a delay.
    NotFollowed { why: NotFollowed, again_in: Duration },
    /// The standby's engine cannot be used for a takeover: all live rows are loaded.
    StandbyDiscarded(NotFollowed),
    /// This server leads.
    Leads { followed: bool, took: Duration },
    /// The leadership lease cannot be renewed.
    RenewalFails(Failure),
    /// The leadership lease can be renewed again.
    RenewalRecovered,
    /// Another server owns the shards.
    ShardsLost(Failure),
    /// The leadership lease ended before the store confirmed a renewal.
    Suspended,
    /// The store confirmed a renewal after a suspension of this length.
    Resumed { after: Duration },
    /// The suspension lasted too long, and leadership ended.
    SuspensionTimedOut,
    /// A commit failed.
    CommitFailed(Failure),
    /// The store's volume is full.
    SpaceLow,
    /// The volume has free space again.
    SpaceRecovered,
    /// Every worker has reported what it holds of lost commits: held jobs are released.
    Reconciled,
    /// The store could not record the reconciliation.
    ReconcileFails(Failure),
    /// The handover to another server begins.
    HandoverStarted,
    /// The shards cannot be released.
    ReleaseFails(Failure),
    /// The engine panicked while it handled this input.
    EngineFailed(Suspect),
    /// An input was dropped: the engine panicked on it before.
    InputDropped(Suspect),
    /// The process must exit.
    Fatal { reason: String },
}

/// Why a standby cannot use the rows that it has read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum NotFollowed {
    #[error("{}", .0.message)]
    Store(Failure),
    #[error("the changelog does not reach back to the position of this standby")]
    OutOfReach,
    #[error(transparent)]
    Unfollowed(#[from] engine::FollowError),
    #[error("{0} live rows are unreadable")]
    Damaged(u64),
    #[error("{0} live rows contradict each other")]
    Inconsistent(usize),
    #[error("this standby had not finished its initial load")]
    Unread,
    #[error("live jobs by status differ: expected {there:?} as in the store, but this standby has {here:?}")]
    Miscounted { here: BTreeMap<JobStatus, u64>, there: BTreeMap<JobStatus, u64> },
    #[error("the engine panicked while it restored a row")]
    Panicked,
}

impl NotFollowed {
    pub(crate) fn is_away(&self) -> bool {
        matches!(self, Self::Store(failure) if failure.kind == FailureKind::Unavailable)
    }
}
