//! The contract of reads: everything that the API and the dashboard show.
//!
//! Rows come with their history, live or ended; lists come in pages by id, newest first, with a filter whose every
//! condition must hold. [`query`](crate::query) has the filters and the rows. No read needs a lease, and the engine is
//! never asked.
//!
//! Callers: `server::api` and `server::grpc`, alerts and the members' view of workers, and the tests.
//!
//! # Always true
//! - A read sees every commit that was answered before it began.
//! - A row that cannot be read is set aside in the quarantine, or, where an engine may have it in memory, passed over;
//!   the rest of the page is answered. A damaged row is never an error of the caller.
//!
//! # Cost
//! A single row is a lookup by id, a page is read from an index in its order, and counts are kept with every commit:
//! none of them grows with the number of jobs. Reads share a few connections and wait for one another, with a limit.

use async_trait::async_trait;
use model::calendar::CalendarRecord;
use model::checkpoint::CheckpointRecord;
use model::firing::LedgerRecord;
use model::record::{QueueRecord, WorkerRecord};
use model::run::{ElementBatch, StepRecord, WorkflowHead};
use model::{BackfillId, ExecutionId, JobId, RunId, ScheduleId, Timestamp, WorkflowId};

use crate::StoreError;
use crate::query::{
    BackfillRow, Counts, EventPage, EventSeq, ExecutionFilter, ExecutionRow, JobFilter, JobRow, LedgerCounts,
    LedgerFilter, LedgerPlace, Page, Paged, RunFilter, RunRow, ScheduleCounts, ScheduleFilter, ScheduleRow,
    WorkflowFilter, WorkflowRow,
};

/// Queries, each answered from one state of the store.
#[async_trait]
pub trait Reads: Send + Sync + 'static {
    /// One job with its history, live or ended.
    async fn job(&self, id: JobId) -> Result<Option<JobRow>, StoreError>;

    /// The last checkpoint of a job, live or ended, if it saved one.
    async fn checkpoint(&self, job: JobId) -> Result<Option<CheckpointRecord>, StoreError>;

    /// Jobs, newest first, without their histories.
    async fn jobs(&self, filter: &JobFilter, page: Page<JobId>) -> Result<Paged<JobRow>, StoreError>;

    /// How many jobs there are of each status.
    async fn counts(&self, namespace: Option<&str>) -> Result<Counts, StoreError>;

    /// One schedule.
    async fn schedule(&self, id: ScheduleId) -> Result<Option<ScheduleRow>, StoreError>;

    /// The schedule of this name.
    async fn schedule_named(&self, namespace: &str, name: &str) -> Result<Option<ScheduleRow>, StoreError>;

    /// Schedules, newest first.
    async fn schedules(
        &self,
        filter: &ScheduleFilter,
        page: Page<ScheduleId>,
    ) -> Result<Paged<ScheduleRow>, StoreError>;

    /// How many schedules there are of each status.
    async fn schedule_counts(&self, namespace: Option<&str>) -> Result<ScheduleCounts, StoreError>;

    /// Schedules that have a next instant, by it and then by id, at most `limit`.
    ///
    /// Begins behind the one that `after` names by its next instant and id. A schedule that fires
    /// between two pages has moved on, so it may be met again.
    async fn upcoming(
        &self,
        filter: &ScheduleFilter,
        after: Option<(Timestamp, ScheduleId)>,
        limit: usize,
    ) -> Result<Vec<ScheduleRow>, StoreError>;

    /// Lines of the fire ledger, the newest nominal instant first.
    async fn ledger(
        &self,
        filter: &LedgerFilter,
        page: Page<LedgerPlace>,
    ) -> Result<Paged<(LedgerPlace, LedgerRecord)>, StoreError>;

    /// How many nominal instants of a schedule came to each outcome: of the lines whose last instant is
    /// not before `since`.
    async fn ledger_counts(
        &self,
        schedule: ScheduleId,
        since: Option<Timestamp>,
    ) -> Result<LedgerCounts, StoreError>;

    /// One backfill.
    async fn backfill(&self, id: BackfillId) -> Result<Option<BackfillRow>, StoreError>;

    /// Backfills, newest first.
    async fn backfills(
        &self,
        schedule: Option<ScheduleId>,
        namespace: Option<&str>,
        page: Page<BackfillId>,
    ) -> Result<Paged<BackfillRow>, StoreError>;

    /// All calendars, by namespace and name.
    async fn calendars(&self, namespace: Option<&str>) -> Result<Vec<CalendarRecord>, StoreError>;

    /// One calendar.
    async fn calendar(&self, namespace: &str, name: &str) -> Result<Option<CalendarRecord>, StoreError>;

    /// A workflow with its newest spec.
    async fn workflow(&self, id: WorkflowId) -> Result<Option<WorkflowRow>, StoreError>;

    /// The workflow of this name.
    async fn workflow_named(&self, namespace: &str, name: &str) -> Result<Option<WorkflowRow>, StoreError>;

    /// What a generation of a workflow was asked to be. All are kept as long as the workflow is there.
    async fn workflow_version(
        &self,
        id: WorkflowId,
        generation: u64,
    ) -> Result<Option<WorkflowHead>, StoreError>;

    /// Workflows, newest first.
    async fn workflows(
        &self,
        filter: &WorkflowFilter,
        page: Page<WorkflowId>,
    ) -> Result<Paged<WorkflowRow>, StoreError>;

    /// A run, live or ended, with its history.
    async fn run(&self, id: RunId) -> Result<Option<RunRow>, StoreError>;

    /// Runs, newest first, each with the newest transition of its history alone. Equal definitions in a page are one.
    async fn runs(&self, filter: &RunFilter, page: Page<RunId>) -> Result<Paged<RunRow>, StoreError>;

    /// The steps of a run that are no longer pending, by their numbers, without elements of lists.
    async fn run_steps(&self, run: RunId) -> Result<Vec<StepRecord>, StoreError>;

    /// The elements of a step that have a row, in their order: those behind `after`, at most `limit`.
    async fn run_items(
        &self,
        run: RunId,
        step: u32,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<StepRecord>, StoreError>;

    /// What tasks of a run, live or ended, added to its steps: by the number of the step, then of the first
    /// element.
    async fn element_batches(&self, run: RunId) -> Result<Vec<ElementBatch>, StoreError>;

    /// Executions, newest first.
    async fn executions(
        &self,
        filter: &ExecutionFilter,
        page: Page<ExecutionId>,
    ) -> Result<Paged<ExecutionRow>, StoreError>;

    /// One execution, live or ended.
    async fn execution(&self, id: ExecutionId) -> Result<Option<ExecutionRow>, StoreError>;

    /// Events from `after` on (exclusive), at most `limit`.
    async fn events(&self, after: EventSeq, limit: usize) -> Result<EventPage, StoreError>;

    /// All workers that were not removed.
    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError>;

    /// All queues that were set up.
    async fn queues(&self) -> Result<Vec<QueueRecord>, StoreError>;
}
