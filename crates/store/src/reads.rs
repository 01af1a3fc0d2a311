//! The contract of reads: all queries of the API and the dashboard.
//!
//! A single row is returned with its history, live or ended. Lists are paged by ID, newest first; all conditions of a
//! filter must match. [`query`](crate::query) defines the filters and the rows. Reads need no lease and never touch the
//! engine.
//!
//! Callers: `server::api`, `server::grpc`, alerts, the view of workers in the other servers, and the tests.
//!
//! # Invariants
//! - A read sees every commit that was acknowledged before the read started.
//! - A row that cannot be decoded is quarantined; if an engine may hold the row in memory, it is skipped instead. The
//!   rest of the page is returned. A damaged row never makes a request of a user fail.
//!
//! # Cost
//! A single row is a lookup by ID. A page is read in index order. Counts are maintained by every commit. So no read
//! grows with the number of jobs. Reads share a few connections; a read waits for a free one for a limited time.

use async_trait::async_trait;
use model::calendar::CalendarRecord;
use model::checkpoint::CheckpointRecord;
use model::failures::FailureGroup;
use model::firing::LedgerRecord;
use model::record::{NamespaceRecord, QueueRecord, WorkerRecord};
use model::run::{ElementBatch, StepRecord, WorkflowHead};
use model::{BackfillId, ExecutionId, JobId, RunId, ScheduleId, ServiceId, Timestamp, WorkflowId};

use crate::StoreError;
use crate::failures::FailureQuery;
use crate::query::{
    BackfillRow, Counts, EventPage, EventSeq, ExecutionFilter, ExecutionRow, JobFilter, JobRow, LedgerCounts,
    LedgerFilter, LedgerPosition, Page, Paged, ReplicaRow, RunFilter, RunRow, ScheduleCounts, ScheduleFilter,
    ScheduleRow, ServiceFilter, ServiceRow, WorkflowFilter, WorkflowRow,
};
use crate::statistics::{Series, StatisticsQuery};

/// Queries. Each one reads a single snapshot of the store.
#[async_trait]
pub trait Reads: Send + Sync + 'static {
    /// Returns a job with its history, live or ended.
    async fn job(&self, id: JobId) -> Result<Option<JobRow>, StoreError>;

    /// Returns the last checkpoint of a job, live or ended; `None` if the job saved none.
    async fn checkpoint(&self, job: JobId) -> Result<Option<CheckpointRecord>, StoreError>;

    /// Returns jobs, newest first, without their histories.
    async fn jobs(&self, filter: &JobFilter, page: Page<JobId>) -> Result<Paged<JobRow>, StoreError>;

    /// Returns the number of jobs in each status.
    async fn counts(&self, namespace: Option<&str>) -> Result<Counts, StoreError>;

    /// Returns a schedule by ID.
    async fn schedule(&self, id: ScheduleId) -> Result<Option<ScheduleRow>, StoreError>;

    /// Returns a schedule by name.
    async fn schedule_named(&self, namespace: &str, name: &str) -> Result<Option<ScheduleRow>, StoreError>;

    /// Returns schedules, newest first.
    async fn schedules(
        &self,
        filter: &ScheduleFilter,
        page: Page<ScheduleId>,
    ) -> Result<Paged<ScheduleRow>, StoreError>;

    /// Returns the number of schedules in each status.
    async fn schedule_counts(&self, namespace: Option<&str>) -> Result<ScheduleCounts, StoreError>;

    /// Returns at most `limit` schedules that have a next scheduled time, ordered by that time and then by ID.
    ///
    /// The page starts after the schedule that `after` names by its next scheduled time and ID. A schedule that fires
    /// between two pages gets a later time, so a later page may return it again.
    async fn upcoming(
        &self,
        filter: &ScheduleFilter,
        after: Option<(Timestamp, ScheduleId)>,
        limit: usize,
    ) -> Result<Vec<ScheduleRow>, StoreError>;

    /// Returns ledger entries, newest scheduled time first.
    async fn ledger(
        &self,
        filter: &LedgerFilter,
        page: Page<LedgerPosition>,
    ) -> Result<Paged<(LedgerPosition, LedgerRecord)>, StoreError>;

    /// Returns the number of scheduled times of a schedule for each outcome. Counts only ledger entries whose last
    /// scheduled time is `since` or later.
    async fn ledger_counts(
        &self,
        schedule: ScheduleId,
        since: Option<Timestamp>,
    ) -> Result<LedgerCounts, StoreError>;

    /// Returns a backfill by ID.
    async fn backfill(&self, id: BackfillId) -> Result<Option<BackfillRow>, StoreError>;

    /// Returns backfills, newest first.
    async fn backfills(
        &self,
        schedule: Option<ScheduleId>,
        namespace: Option<&str>,
        page: Page<BackfillId>,
    ) -> Result<Paged<BackfillRow>, StoreError>;

    /// Returns all calendars, ordered by namespace and name.
    async fn calendars(&self, namespace: Option<&str>) -> Result<Vec<CalendarRecord>, StoreError>;

    /// Returns a calendar by name.
    async fn calendar(&self, namespace: &str, name: &str) -> Result<Option<CalendarRecord>, StoreError>;

    /// Returns a workflow with its newest spec.
    async fn workflow(&self, id: WorkflowId) -> Result<Option<WorkflowRow>, StoreError>;

    /// Returns a workflow by name, with its newest spec.
    async fn workflow_named(&self, namespace: &str, name: &str) -> Result<Option<WorkflowRow>, StoreError>;

    /// Returns the spec of one generation of a workflow. All generations are kept until the workflow is deleted.
    async fn workflow_version(
        &self,
        id: WorkflowId,
        generation: u64,
    ) -> Result<Option<WorkflowHead>, StoreError>;

    /// Returns workflows, newest first.
    async fn workflows(
        &self,
        filter: &WorkflowFilter,
        page: Page<WorkflowId>,
    ) -> Result<Paged<WorkflowRow>, StoreError>;

    /// Returns a run, live or ended, with its history.
    async fn run(&self, id: RunId) -> Result<Option<RunRow>, StoreError>;

    /// Returns runs, newest first. The history of each has only the newest transition. Runs of a page with equal
    /// definitions share one parsed definition.
    async fn runs(&self, filter: &RunFilter, page: Page<RunId>) -> Result<Paged<RunRow>, StoreError>;

    /// Returns the steps of a run that are no longer pending, ordered by number, without the elements of the steps.
    async fn run_steps(&self, run: RunId) -> Result<Vec<StepRecord>, StoreError>;

    /// Returns the elements of a step that have a row, ordered by index: at most `limit`, starting after `after`.
    async fn run_elements(
        &self,
        run: RunId,
        step: u32,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<StepRecord>, StoreError>;

    /// Returns the elements that tasks of a run, live or ended, added to its steps, ordered by step number and then by
    /// the index of the first element.
    async fn element_batches(&self, run: RunId) -> Result<Vec<ElementBatch>, StoreError>;

    /// Returns a service with its revisions.
    async fn service(&self, id: ServiceId) -> Result<Option<ServiceRow>, StoreError>;

    /// Returns a service by name, with its revisions.
    async fn service_named(&self, namespace: &str, name: &str) -> Result<Option<ServiceRow>, StoreError>;

    /// Returns services, newest first.
    async fn services(
        &self,
        filter: &ServiceFilter,
        page: Page<ServiceId>,
    ) -> Result<Paged<ServiceRow>, StoreError>;

    /// Returns the live replicas of a service with their executions, ordered by number and then by job.
    async fn replicas(&self, service: ServiceId) -> Result<Vec<ReplicaRow>, StoreError>;

    /// Returns at most `limit` live replicas of the services of these namespaces, or of all namespaces, with their
    /// executions. They are ordered by namespace, service, number and job.
    async fn replicas_in(
        &self,
        namespaces: Option<&[String]>,
        limit: usize,
    ) -> Result<Paged<ReplicaRow>, StoreError>;

    /// Returns executions, newest first.
    async fn executions(
        &self,
        filter: &ExecutionFilter,
        page: Page<ExecutionId>,
    ) -> Result<Paged<ExecutionRow>, StoreError>;

    /// Returns an execution, live or ended.
    async fn execution(&self, id: ExecutionId) -> Result<Option<ExecutionRow>, StoreError>;

    /// Returns at most `limit` events after the position `after` (exclusive).
    async fn events(&self, after: EventSeq, limit: usize) -> Result<EventPage, StoreError>;

    /// Returns statistics of one subject by interval, or the sums of many subjects. Intervals without any count or
    /// sample are left out.
    async fn statistics(&self, query: &StatisticsQuery) -> Result<Series, StoreError>;

    /// Returns the groups of failures, the newest failure first; at most 5,000.
    async fn failures(&self, query: &FailureQuery) -> Result<Vec<FailureGroup>, StoreError>;

    /// Returns all workers that were not removed.
    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError>;

    /// Returns all configured queues.
    async fn queues(&self) -> Result<Vec<QueueRecord>, StoreError>;

    /// Returns all namespaces that have settings.
    async fn namespaces(&self) -> Result<Vec<NamespaceRecord>, StoreError>;
}
