//! The inputs of a [`Leader`](crate::Leader), and its outputs.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{Effect, Engine, Follower, Input, Reply, Session, Stray, Ticket};
use model::changelog::{LiveKey, Place, Reread, Since};
use model::record::{Batch, Lease, LiveRow};
use model::{Duration, JobStatus, Refusal, ShardId, Timestamp};

use crate::suspects::Suspect;

/// Identifies one call of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// An input of a leader. `R` is where the reply to a request goes.
#[derive(Debug)]
pub enum Event<R> {
    /// A request of a client.
    Request {
        /// Identifies it; the same ticket as in `input`.
        ticket: Ticket,
        /// What is asked.
        input: Input,
        /// Where the reply goes.
        reply: R,
    },
    /// A message of a worker, or the end of its session.
    Worker(Input),
    /// The answer to a call, or what became of it.
    Answered(CallId, Result<Answer, Failure>),
    /// Rows that a [`Call::Load`] or [`Call::Preload`] found so far.
    Rows(CallId, Vec<LiveRow>),
    /// What this server may do with the shards changed.
    Standing(Standing),
    /// The process is to end.
    Stop,
}

/// What a server may do with the shards; [`membership`](crate::membership) decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The server may ask for the shards.
    pub may_acquire: bool,
    /// The leader is about to hand over: a standby asks for the shards often.
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

/// What the store is asked for.
#[derive(Debug, Clone)]
pub enum Call {
    /// All shards, for the length of a lease.
    Acquire,
    /// Prolongs leases.
    Renew(Arc<[Lease]>),
    /// Gives shards back, so that another server need not wait for the end of their leases.
    Release(Arc<[Lease]>),
    /// Which shards have lost their newest commits.
    LostTails(Arc<[Lease]>),
    /// All live rows; they come as [`Event::Rows`] before the answer.
    Load(Arc<[Lease]>),
    /// The store's own clock.
    Clock,
    /// Makes a batch durable. Commits are done in the order in which they were asked for, and none behind one that
    /// failed.
    Commit(Arc<[Lease]>, Arc<Batch>),
    /// Whether the store has space.
    Probe,
    /// Notes that the commits that shards had lost were dealt with.
    Reconciled(Arc<[Lease]>),
    /// Where the changelog ends.
    ChangelogEnd,
    /// What commits touched behind this place.
    ChangelogSince(Place),
    /// All live rows, while another server changes them; they come as [`Event::Rows`] before the answer, and not before
    /// [`Leader::rows_from`](crate::Leader::rows_from).
    Preload,
    /// The live rows of these keys, all as they are at one moment.
    LiveRows(Vec<LiveKey>),
    /// How many jobs there are of each status.
    CountJobs,
}

/// What a call was answered with.
#[derive(Debug)]
pub enum Answer {
    /// To [`Call::Acquire`].
    Acquired {
        /// The shards that were free; all, some or none.
        leases: Vec<Lease>,
        /// For how long the owner before may still renew leases of workers.
        former_owner: Duration,
    },
    /// To [`Call::LostTails`].
    LostTails(Vec<ShardId>),
    /// To [`Call::Load`] and [`Call::Preload`].
    Loaded(Loaded),
    /// To [`Call::ChangelogEnd`].
    ChangelogEnd(Place),
    /// To [`Call::ChangelogSince`]; `None` if the changelog does not reach back to the place.
    ChangelogSince(Option<Since>),
    /// To [`Call::LiveRows`].
    LiveRows(Reread),
    /// To [`Call::CountJobs`].
    Jobs(BTreeMap<JobStatus, u64>),
    /// To [`Call::Clock`]; `None` if the store has none.
    Clock(Option<Timestamp>),
    /// To [`Call::Commit`].
    Committed(Committed),
    /// To any other call.
    Done,
}

/// What a load found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Loaded {
    /// Engine time of the newest commit.
    pub now: Timestamp,
    /// How many live rows there were.
    pub rows: u64,
    /// How many of them could not be read and were set aside.
    pub quarantined: u64,
}

/// What a commit did besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Committed {
    /// The place of the first event of the batch in the feed.
    pub first_event: u64,
    /// Whether it also prolonged the leases.
    pub prolonged: bool,
    /// Whether it used space that is reserved for the end of running work.
    pub space_low: bool,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What that means for the caller.
    pub kind: FailureKind,
    /// The same for people.
    pub message: String,
}

/// What a failed call means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// Another server owns the shards. Nothing was changed.
    Fenced,
    /// The store has no space. Nothing was changed.
    Full,
    /// The store is away. Nothing was changed.
    Unavailable,
    /// Whether anything was changed cannot be known.
    OutcomeUnknown,
    /// The data was written by a newer version. Nothing was changed.
    TooNew,
    /// The store cannot be trusted: the process must end.
    Fatal,
    /// Anything else. Whether anything was changed cannot be known.
    Other,
}

/// Whether a server takes requests, and why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// It is a standby, or loads its shards.
    Loading {
        /// What it waits for, or what went wrong before.
        reason: String,
    },
    /// Its leadership lease has ended and the store has not confirmed it: it decides nothing until then.
    Suspended,
    /// It takes everything.
    Ready,
    /// The store's volume is full: new work is refused, running work continues.
    Full,
    /// It is being shut down.
    Stopping,
    /// The store cannot be trusted any more; the process must end.
    Failed {
        /// What happened.
        reason: String,
    },
}

impl Readiness {
    /// Whether it does not decide, and may do so soon.
    pub fn is_to_come(&self) -> bool {
        matches!(self, Self::Loading { .. } | Self::Suspended)
    }
}

/// Why a request got no reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Unanswered {
    /// The engine refused it. Nothing was changed.
    Refused(Refusal),
    /// Whether it happened cannot be known.
    OutcomeUnknown,
    /// The store has no space for new work. Nothing was changed.
    Full,
    /// This server does not lead. Nothing was changed.
    Loading,
    /// The same request made the engine fail before. Nothing was changed.
    Poisoned,
}

/// An output of a leader. Actions are carried out in their order.
#[derive(Debug)]
pub enum Action<R> {
    /// Calls the store. A call that has no answer after `timeout` is given up as [`FailureKind::Unavailable`].
    Call {
        /// Identifies the call.
        id: CallId,
        /// What is asked for.
        call: Call,
        /// How long it may take.
        timeout: Option<Duration>,
    },
    /// Gives a call up: its answer is of no interest any more.
    Abandon(CallId),
    /// Replies to a request.
    Reply {
        /// To whom.
        to: R,
        /// What.
        reply: Result<Reply, Unanswered>,
    },
    /// Sends this to a worker.
    ToWorker(Effect),
    /// Closes a session of a worker.
    CloseSession(Session),
    /// Closes the sessions of all workers.
    CloseSessions,
    /// A batch is durable, and its effects were released: watchers may hear of its events.
    Publish {
        /// The batch.
        batch: Arc<Batch>,
        /// What the commit did besides.
        committed: Committed,
        /// When the commit was sent, on the steady clock.
        sent_at: Timestamp,
        /// Engine time of the batch before.
        before: Timestamp,
    },
    /// Shows this to clients, workers and probes.
    Show(Readiness),
    /// Takes nothing more from clients and workers than what waits already.
    CloseLanes,
    /// Names what workers hold of commits that the store has lost.
    NameStrays(Vec<Stray>),
    /// Drops what is not used any more; that may take long.
    Retire(Retired),
    /// Shows up to which moment (on the steady clock) this standby knows what the leader did to the live rows; `None` if
    /// it does not follow them.
    ShowFollowed(Option<Timestamp>),
    /// Logs and counts this.
    Notice(Notice),
}

/// What is dropped apart from the engine's thread: it may hold millions of jobs.
#[derive(Debug)]
pub enum Retired {
    /// An engine.
    Engine(Box<Engine>),
    /// The engine of a standby.
    Follower(Box<Follower>),
}

/// What people want to know of; the shell logs and counts it.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the variants say what their fields are")]
pub enum Notice {
    /// Another server holds this number of shards.
    StandsBy { shards: usize },
    /// The shards cannot be acquired or loaded.
    NotTaken(Failure),
    /// The engine is to be loaded again.
    Reloads,
    /// Rows were loaded.
    Loaded { rows: u64, quarantined: u64, took: Duration },
    /// A live row was set aside: it contradicts the others.
    RowSetAside(String),
    /// The engine failed while it took rows.
    EngineFailedOnRows,
    /// Shards lost their newest commits.
    TailLost { shards: usize },
    /// The wall clock is so far ahead of a second clock, which is believed.
    ClockNotBelieved { ahead: Duration, second: &'static str },
    /// The wall clock stands so far behind the newest commit.
    ClockBehind(Duration),
    /// This standby has read all live rows: it is ready to take over.
    Follows { rows: u64, took: Duration },
    /// This standby does not follow the live rows, and reads all of them again after a pause.
    NotFollowed { why: NotFollowed, again_in: Duration },
    /// What this standby followed cannot be used for a takeover: all live rows are loaded.
    StandbyUseless(NotFollowed),
    /// This server leads.
    Leads { followed: bool, took: Duration },
    /// The leadership lease cannot be renewed.
    RenewalFails(Failure),
    /// It can again.
    RenewedAgain,
    /// Another server owns the shards.
    Deposed(Failure),
    /// The lease ended before the store confirmed it.
    Suspended,
    /// The store has confirmed it after so long.
    Resumed { after: Duration },
    /// The store did not confirm it for long.
    GivenUp,
    /// A commit failed.
    CommitFailed(Failure),
    /// The store's volume is full.
    SpaceLow,
    /// It has space again.
    SpaceAgain,
    /// Every worker has reported what it holds of lost commits: jobs that waited for that continue.
    Reconciled,
    /// The store could not note that.
    ReconcileFails(Failure),
    /// Another server is to lead.
    HandsOver,
    /// Shards cannot be given back.
    ReleaseFails(Failure),
    /// The engine failed while it handled this.
    EngineFailed(Suspect),
    /// An input was set aside: handling it failed before.
    InputSetAside(Suspect),
    /// The process must end.
    Fatal { reason: String },
}

/// Why a standby cannot use what it has read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum NotFollowed {
    #[error("{}", .0.message)]
    Store(Failure),
    #[error("the changelog does not reach back far enough")]
    OutOfReach,
    #[error(transparent)]
    Unfollowed(#[from] engine::Unfollowed),
    #[error("{0} live rows cannot be read")]
    Damaged(u64),
    #[error("{0} live rows contradict each other")]
    Inconsistent(usize),
    #[error("this server had not read all live rows yet")]
    Unread,
    #[error("this server counts {here:?} live jobs, and the store counts {there:?}")]
    Miscounted { here: BTreeMap<JobStatus, u64>, there: BTreeMap<JobStatus, u64> },
    #[error("the engine failed on a row")]
    Panicked,
}

impl NotFollowed {
    pub(crate) fn is_away(&self) -> bool {
        matches!(self, Self::Store(failure) if failure.kind == FailureKind::Unavailable)
    }
}
