//! What the API and the dashboard ask a store, and what it answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::firing::{
    BackfillHead, BackfillState, FiringCause, FiringOutcome, Origin, ScheduleState, ScheduleStatus,
};
use model::record::{Event, ExecutionRecord, JobState};
use model::run::{RunHead, RunState, RunStatus, StepOrigin, WorkflowHead, WorkflowState};
use model::{
    BackfillId, ExecutionStatus, JobId, JobStatus, RunId, ScheduleId, Timestamp, WorkerId, WorkflowId,
};

/// Which page of a list: those with smaller ids than `after`, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page<Id> {
    /// The last id of the page before; the newest where absent.
    pub after: Option<Id>,
    /// The most items; at least 1.
    pub limit: usize,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Paged<T> {
    /// In the list's order.
    pub items: Vec<T>,
    /// Whether there are more behind the last one.
    pub more: bool,
}

/// Which jobs a list has. Every condition that is given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobFilter {
    /// One of these; any where empty. At most some thousands: each is a parameter of the query.
    pub ids: Vec<JobId>,
    /// One of these; any where empty.
    pub statuses: Vec<JobStatus>,
    /// In this namespace; in any where absent.
    pub namespace: Option<String>,
    /// With this owner.
    pub owner: Option<String>,
    /// In this queue.
    pub queue: Option<String>,
    /// With this name.
    pub name: Option<String>,
    /// With all these labels.
    pub labels: BTreeMap<String, String>,
    /// Whose newest execution is, or was, on this worker.
    pub worker: Option<WorkerId>,
    /// Created at or after.
    pub created_after: Option<Timestamp>,
    /// Created before.
    pub created_before: Option<Timestamp>,
    /// Of this schedule, whatever brought the firing about.
    pub schedule: Option<ScheduleId>,
    /// Of this backfill.
    pub backfill: Option<BackfillId>,
    /// Of this run of a workflow.
    pub run: Option<RunId>,
}

/// A job as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRow {
    /// Its id.
    pub id: JobId,
    /// Its spec as JSON.
    pub body: Arc<str>,
    /// The ended job that it repeats.
    pub retry_of: Option<JobId>,
    /// The schedule that it belongs to.
    pub origin: Option<Arc<Origin>>,
    /// The run and step that it belongs to.
    pub step: Option<Arc<StepOrigin>>,
    /// Where it stands; the history is empty in lists.
    pub state: JobState,
}

/// How many jobs there are of each status; statuses without any may be missing.
pub type Counts = BTreeMap<JobStatus, u64>;

/// Which executions a list has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExecutionFilter {
    /// Of this job.
    pub job: Option<JobId>,
    /// On this worker.
    pub worker: Option<WorkerId>,
    /// In this namespace.
    pub namespace: Option<String>,
    /// One of these; any where empty.
    pub statuses: Vec<ExecutionStatus>,
}

/// An execution as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutionRow {
    /// The row.
    pub record: ExecutionRecord,
    /// The namespace of its job.
    pub namespace: Arc<str>,
    /// The name of its job.
    pub job_name: Arc<str>,
}

/// Which schedules a list has. Every condition that is given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScheduleFilter {
    /// In this namespace; in any where absent.
    pub namespace: Option<String>,
    /// With this owner.
    pub owner: Option<String>,
    /// With this status.
    pub status: Option<ScheduleStatus>,
    /// With all these labels.
    pub labels: BTreeMap<String, String>,
    /// With this in the name, in upper or lower case.
    pub text: Option<String>,
    /// Whose next instant is before.
    pub due_before: Option<Timestamp>,
}

/// A schedule as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleRow {
    /// Its id.
    pub id: ScheduleId,
    /// Its spec as JSON.
    pub body: Arc<str>,
    /// Where it stands.
    pub state: ScheduleState,
}

/// How many schedules there are of each status; statuses without any are missing.
pub type ScheduleCounts = BTreeMap<ScheduleStatus, u64>;

/// Which lines of the fire ledger a list has. Every condition that is given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LedgerFilter {
    /// Of this schedule, also of one that was deleted.
    pub schedule: Option<ScheduleId>,
    /// Of schedules of this namespace, also of deleted ones.
    pub namespace: Option<String>,
    /// With one of these outcomes; with any where empty.
    pub outcomes: Vec<FiringOutcome>,
    /// Brought about by one of these; by any where empty.
    pub causes: Vec<FiringCause>,
    /// Of this backfill.
    pub backfill: Option<BackfillId>,
    /// With a nominal instant at or after; a line of several instants counts by its last.
    pub from: Option<Timestamp>,
    /// With a nominal instant before; a line of several instants counts by its first.
    pub until: Option<Timestamp>,
}

/// The place of a line in the fire ledger: by its first nominal instant, then by what else makes it
/// unique. Never changes, so a list can go on behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LedgerPlace {
    /// The first nominal instant, in Unix microseconds.
    pub first_micros: i64,
    /// The bits of the schedule's id.
    pub schedule: u128,
    /// The generation of the schedule.
    pub generation: u64,
    /// A code of the cause. Codes never change their meaning.
    pub cause: u8,
    /// The bits of the backfill's id; zero where there is none.
    pub backfill: u128,
}

/// How many nominal instants there are of each outcome; outcomes without any are missing.
pub type LedgerCounts = BTreeMap<FiringOutcome, u64>;

/// A backfill as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackfillRow {
    /// What it was asked to do.
    pub head: BackfillHead,
    /// How far it is.
    pub state: BackfillState,
}

/// A place in the event feed; grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct EventSeq(pub u64);

/// Events in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EventPage {
    /// Each with its place.
    pub events: Vec<(EventSeq, Event)>,
    /// The oldest place that is still kept; a reader that wants an older one has lost some.
    pub oldest: EventSeq,
    /// The place of the newest event that there is; zero before the first.
    pub newest: EventSeq,
}

/// What a token's bearer may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Everything.
    Admin,
    /// Be a worker.
    Worker,
}

/// A token as it is kept: never the token itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The part that may be shown.
    pub id: String,
    /// What its bearer may do.
    pub kind: TokenKind,
    /// Who its bearer is, for the owner of jobs and for histories.
    pub name: String,
    /// SHA-256 of the secret part.
    pub hash: [u8; 32],
    /// When it was made.
    pub created_at: Timestamp,
}

/// One version of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// The tenant.
    pub namespace: String,
    /// The name that versions share.
    pub name: String,
    /// Hash of the bytes, in lower-case hex; names the version.
    pub sha256: String,
    /// How many bytes.
    pub size_bytes: u64,
    /// When it was stored.
    pub created_at: Timestamp,
    /// Who stored it: a principal or an execution.
    pub created_by: String,
}

/// Why a version of an artifact is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeletionReason {
    /// A user asked for it.
    Request,
    /// Its retention is over.
    Retention,
}

/// Result of the deletion of a version of an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArtifactDeletion {
    /// The version is deleted.
    Deleted,
    /// There was no such version.
    Absent,
    /// The version stays: this run needs it.
    Pinned(RunId),
}

/// Which artifact versions a list has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ArtifactFilter {
    /// In this namespace.
    pub namespace: Option<String>,
    /// With this name.
    pub name: Option<String>,
    /// This version.
    pub sha256: Option<String>,
    /// Only the newest version of each name.
    pub newest_only: bool,
    /// Behind this one in the order of the list.
    pub after: Option<(String, String, Timestamp)>,
}

/// A row that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// The table that it stood in.
    pub table: String,
    /// Its key, as text.
    pub key: String,
    /// Why it could not be read.
    pub reason: String,
    /// When it was set aside.
    pub at: Timestamp,
}

/// Which workflows a list has. Every condition that is given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkflowFilter {
    /// In this namespace; in any where absent.
    pub namespace: Option<String>,
    /// With this owner.
    pub owner: Option<String>,
    /// With all these labels.
    pub labels: BTreeMap<String, String>,
    /// With this in the name, in upper or lower case.
    pub text: Option<String>,
}

/// A workflow as it is kept, with its newest spec.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowRow {
    /// Its id.
    pub id: WorkflowId,
    /// What it is asked to be.
    pub head: WorkflowHead,
    /// How it stands.
    pub state: WorkflowState,
}

/// Which runs a list has. Every condition that is given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunFilter {
    /// In this namespace; in any where absent.
    pub namespace: Option<String>,
    /// Of this workflow; those that other runs called have none.
    pub workflow: Option<WorkflowId>,
    /// Of workflows of this name, called ones included.
    pub name: Option<String>,
    /// One of these; any where empty.
    pub statuses: Vec<RunStatus>,
    /// Called by this run.
    pub caller: Option<RunId>,
    /// Of this schedule: those that its firings started, not what these called.
    pub schedule: Option<ScheduleId>,
    /// Of this backfill, likewise.
    pub backfill: Option<BackfillId>,
}

/// A run as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    /// Its id.
    pub id: RunId,
    /// What it was asked to be.
    pub head: Arc<RunHead>,
    /// Where it stands; the history is empty in lists.
    pub state: RunState,
}
