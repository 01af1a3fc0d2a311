//! [`Reads`]: every query runs on the replica of this server, after it has applied all that was acknowledged before.

use async_trait::async_trait;
use model::calendar::CalendarRecord;
use model::checkpoint::CheckpointRecord;
use model::failures::FailureGroup;
use model::firing::LedgerRecord;
use model::record::{NamespaceRecord, QueueRecord, WorkerRecord};
use model::run::{ElementBatch, StepRecord, WorkflowHead};
use model::{BackfillId, ExecutionId, JobId, RunId, ScheduleId, ServiceId, Timestamp, WorkflowId};
use store::failures::FailureQuery;
use store::query::{
    BackfillRow, Counts, EventPage, EventSeq, ExecutionFilter, ExecutionRow, JobFilter, JobRow, LedgerCounts,
    LedgerFilter, LedgerPosition, Page, Paged, ReplicaRow, RunFilter, RunRow, ScheduleCounts, ScheduleFilter,
    ScheduleRow, ServiceFilter, ServiceRow, WorkflowFilter, WorkflowRow,
};
use store::statistics::{Series, StatisticsQuery};
use store::{Reads, StoreError};

use super::RaftStore;

macro_rules! reads {
    ($($method:ident($($argument:ident: $Type:ty),*) -> $Answer:ty;)*) => {
        #[async_trait]
        impl Reads for RaftStore {
            $(async fn $method(&self, $($argument: $Type),*) -> Result<$Answer, StoreError> {
                Reads::$method(&*self.read().await?, $($argument),*).await
            })*
        }
    };
}

reads! {
    job(id: JobId) -> Option<JobRow>;
    checkpoint(job: JobId) -> Option<CheckpointRecord>;
    jobs(filter: &JobFilter, page: Page<JobId>) -> Paged<JobRow>;
    counts(namespace: Option<&str>) -> Counts;
    schedule(id: ScheduleId) -> Option<ScheduleRow>;
    schedule_named(namespace: &str, name: &str) -> Option<ScheduleRow>;
    schedules(filter: &ScheduleFilter, page: Page<ScheduleId>) -> Paged<ScheduleRow>;
    schedule_counts(namespace: Option<&str>) -> ScheduleCounts;
    upcoming(filter: &ScheduleFilter, after: Option<(Timestamp, ScheduleId)>, limit: usize) -> Vec<ScheduleRow>;
    ledger(filter: &LedgerFilter, page: Page<LedgerPosition>) -> Paged<(LedgerPosition, LedgerRecord)>;
    ledger_counts(schedule: ScheduleId, since: Option<Timestamp>) -> LedgerCounts;
    backfill(id: BackfillId) -> Option<BackfillRow>;
    backfills(schedule: Option<ScheduleId>, namespace: Option<&str>, page: Page<BackfillId>) -> Paged<BackfillRow>;
    calendars(namespace: Option<&str>) -> Vec<CalendarRecord>;
    calendar(namespace: &str, name: &str) -> Option<CalendarRecord>;
    workflow(id: WorkflowId) -> Option<WorkflowRow>;
    workflow_named(namespace: &str, name: &str) -> Option<WorkflowRow>;
    workflow_version(id: WorkflowId, generation: u64) -> Option<WorkflowHead>;
    workflows(filter: &WorkflowFilter, page: Page<WorkflowId>) -> Paged<WorkflowRow>;
    run(id: RunId) -> Option<RunRow>;
    runs(filter: &RunFilter, page: Page<RunId>) -> Paged<RunRow>;
    run_steps(run: RunId) -> Vec<StepRecord>;
    run_elements(run: RunId, step: u32, after: Option<u32>, limit: usize) -> Vec<StepRecord>;
    element_batches(run: RunId) -> Vec<ElementBatch>;
    service(id: ServiceId) -> Option<ServiceRow>;
    service_named(namespace: &str, name: &str) -> Option<ServiceRow>;
    services(filter: &ServiceFilter, page: Page<ServiceId>) -> Paged<ServiceRow>;
    replicas(service: ServiceId) -> Vec<ReplicaRow>;
    replicas_in(namespaces: Option<&[String]>, limit: usize) -> Paged<ReplicaRow>;
    executions(filter: &ExecutionFilter, page: Page<ExecutionId>) -> Paged<ExecutionRow>;
    execution(id: ExecutionId) -> Option<ExecutionRow>;
    events(after: EventSeq, limit: usize) -> EventPage;
    statistics(query: &StatisticsQuery) -> Series;
    failures(query: &FailureQuery) -> Vec<FailureGroup>;
    workers() -> Vec<WorkerRecord>;
    queues() -> Vec<QueueRecord>;
    namespaces() -> Vec<NamespaceRecord>;
}
