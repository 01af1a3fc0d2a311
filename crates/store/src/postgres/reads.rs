//! [`Reads`]: each query reads one snapshot, in one round trip.
//!
//! `views` builds the queries and decodes their answers. If rows of the history, or registered objects,
//! cannot be decoded, they are quarantined and the query is repeated. Live rows are skipped and left to the
//! owner of their shard.
//!
//! Most methods are one call of [`PostgresStore::ask_all`] or `ask_page`. A page from which rows were skipped
//! still reports that more rows follow, so a list never ends at a damaged row.

use async_trait::async_trait;
use model::calendar::CalendarRecord;
use model::checkpoint::CheckpointRecord;
use model::failures::FailureGroup;
use model::firing::LedgerRecord;
use model::record::{NamespaceRecord, QueueRecord, WorkerRecord};
use model::run::{ElementBatch, StepRecord, WorkflowHead};
use model::{BackfillId, ExecutionId, JobId, RunId, ScheduleId, ServiceId, Timestamp, WorkflowId};
use tokio_postgres::Row;

use super::{PostgresStore, load, param, views};
use crate::codec::DecodeError;
use crate::failures::FailureQuery;
use crate::lists::{self, Dialect, List, Replicas};
use crate::query::{
    BackfillRow, Counts, EventPage, EventSeq, ExecutionFilter, ExecutionRow, JobFilter, JobRow, LedgerCounts,
    LedgerFilter, LedgerPosition, Page, Paged, ReplicaRow, RunFilter, RunRow, ScheduleCounts, ScheduleFilter,
    ScheduleRow, ServiceFilter, ServiceRow, WorkflowFilter, WorkflowRow,
};
use crate::rows as shared;
use crate::statistics::{Series, StatisticsQuery};
use crate::{Reads, StoreError};

#[async_trait]
impl Reads for PostgresStore {
    async fn job(&self, id: JobId) -> Result<Option<JobRow>, StoreError> {
        Ok(self.ask_all(&views::job_queries(id), views::job).await?.into_iter().next())
    }

    async fn checkpoint(&self, job: JobId) -> Result<Option<CheckpointRecord>, StoreError> {
        let read = |answers: &[Vec<Row>]| views::checkpoint(&answers[0]);
        Ok(self.ask_all(&[views::checkpoint_query(job)], read).await?.into_iter().next())
    }

    async fn jobs(&self, filter: &JobFilter, page: Page<JobId>) -> Result<Paged<JobRow>, StoreError> {
        self.ask_page(lists::jobs(filter, page), shared::job, |job| job.id).await
    }

    async fn counts(&self, namespace: Option<&str>) -> Result<Counts, StoreError> {
        self.ask(&[views::counts_query(namespace)], |answers| views::counts(&answers[0])).await
    }

    async fn schedule(&self, id: ScheduleId) -> Result<Option<ScheduleRow>, StoreError> {
        let query = views::schedule_query("t.id = $1", vec![param::id(id.to_bits())]);
        Ok(self.ask_all(&[query], |answers| views::schedule(&answers[0])).await?.pop())
    }

    async fn schedule_named(&self, namespace: &str, name: &str) -> Result<Option<ScheduleRow>, StoreError> {
        let condition = "t.namespace = $1 AND t.name = $2";
        let query = views::schedule_query(condition, vec![param::text(namespace), param::text(name)]);
        Ok(self.ask_all(&[query], |answers| views::schedule(&answers[0])).await?.pop())
    }

    async fn schedules(
        &self,
        filter: &ScheduleFilter,
        page: Page<ScheduleId>,
    ) -> Result<Paged<ScheduleRow>, StoreError> {
        self.ask_page(lists::schedules(filter, page), shared::schedule, |schedule| schedule.id).await
    }

    async fn schedule_counts(&self, namespace: Option<&str>) -> Result<ScheduleCounts, StoreError> {
        self.ask(&views::schedule_counts_queries(namespace), views::schedule_counts).await
    }

    async fn upcoming(
        &self,
        filter: &ScheduleFilter,
        after: Option<(Timestamp, ScheduleId)>,
        limit: usize,
    ) -> Result<Vec<ScheduleRow>, StoreError> {
        let list = lists::upcoming(filter, after, limit);
        let read = |answers: &[Vec<Row>]| views::listed(&list, answers, shared::schedule);
        let mut found = self.ask_all(&views::list_queries(&list), read).await?;
        found.truncate(limit);
        Ok(found)
    }

    async fn ledger(
        &self,
        filter: &LedgerFilter,
        page: Page<LedgerPosition>,
    ) -> Result<Paged<(LedgerPosition, LedgerRecord)>, StoreError> {
        self.ask_page(lists::ledger(filter, page), shared::ledger, |(place, _)| *place).await
    }

    async fn ledger_counts(
        &self,
        schedule: ScheduleId,
        since: Option<Timestamp>,
    ) -> Result<LedgerCounts, StoreError> {
        let query = views::ledger_counts_query(schedule, since);
        self.ask(&[query], |answers| views::ledger_counts(&answers[0])).await
    }

    async fn backfill(&self, id: BackfillId) -> Result<Option<BackfillRow>, StoreError> {
        let query = views::backfill_query(id.to_bits());
        Ok(self.ask_all(&[query], |answers| views::backfill(&answers[0])).await?.pop())
    }

    async fn backfills(
        &self,
        schedule: Option<ScheduleId>,
        namespace: Option<&str>,
        page: Page<BackfillId>,
    ) -> Result<Paged<BackfillRow>, StoreError> {
        let list = lists::backfills(schedule, namespace, page);
        self.ask_page(list, shared::backfill, |backfill| backfill.head.id).await
    }

    async fn calendars(&self, namespace: Option<&str>) -> Result<Vec<CalendarRecord>, StoreError> {
        let query = views::calendars_query(namespace);
        self.ask_all(&[query], |answers| views::calendars(&answers[0])).await
    }

    async fn calendar(&self, namespace: &str, name: &str) -> Result<Option<CalendarRecord>, StoreError> {
        let query = views::calendar_query(namespace, name);
        Ok(self.ask_all(&[query], |answers| views::calendars(&answers[0])).await?.pop())
    }

    async fn workflow(&self, id: WorkflowId) -> Result<Option<WorkflowRow>, StoreError> {
        let query = views::workflow_query("t.id = $1", vec![param::id(id.to_bits())]);
        Ok(self.ask_all(&[query], |answers| views::workflow(&answers[0])).await?.pop())
    }

    async fn workflow_named(&self, namespace: &str, name: &str) -> Result<Option<WorkflowRow>, StoreError> {
        let condition = "t.namespace = $1 AND t.name = $2";
        let query = views::workflow_query(condition, vec![param::text(namespace), param::text(name)]);
        Ok(self.ask_all(&[query], |answers| views::workflow(&answers[0])).await?.pop())
    }

    async fn workflow_version(
        &self,
        id: WorkflowId,
        generation: u64,
    ) -> Result<Option<WorkflowHead>, StoreError> {
        let Ok(generation) = i64::try_from(generation) else { return Ok(None) };
        let query = views::workflow_version_query(id, generation);
        Ok(self.ask_all(&[query], |answers| views::workflow_version(&answers[0])).await?.pop())
    }

    async fn workflows(
        &self,
        filter: &WorkflowFilter,
        page: Page<WorkflowId>,
    ) -> Result<Paged<WorkflowRow>, StoreError> {
        self.ask_page(lists::workflows(filter, page), shared::workflow, |workflow| workflow.id).await
    }

    async fn run(&self, id: RunId) -> Result<Option<RunRow>, StoreError> {
        Ok(self.ask_all(&views::run_queries(id), views::run).await?.pop())
    }

    async fn runs(&self, filter: &RunFilter, page: Page<RunId>) -> Result<Paged<RunRow>, StoreError> {
        let list = lists::runs(filter, page);
        let read = |answers: &[Vec<Row>]| views::runs(&list, answers);
        let found = self.ask_rows(&views::runs_queries(&list), read).await?;
        Ok(listed(&list, found, |run| run.id))
    }

    async fn run_steps(&self, run: RunId) -> Result<Vec<StepRecord>, StoreError> {
        self.ask_all(&[views::run_steps_query(run)], |answers| views::steps(&answers[0])).await
    }

    async fn run_elements(
        &self,
        run: RunId,
        step: u32,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<StepRecord>, StoreError> {
        let query = views::run_elements_query(run, step, after, limit);
        self.ask_all(&[query], |answers| views::steps(&answers[0])).await
    }

    async fn element_batches(&self, run: RunId) -> Result<Vec<ElementBatch>, StoreError> {
        let query = views::element_batches_query(run);
        self.ask_all(&[query], |answers| views::element_batches(&answers[0])).await
    }

    async fn service(&self, id: ServiceId) -> Result<Option<ServiceRow>, StoreError> {
        let query = views::service_query("t.id = $1", vec![param::id(id.to_bits())]);
        Ok(self.ask_all(&[query], |answers| views::service(&answers[0])).await?.pop())
    }

    async fn service_named(&self, namespace: &str, name: &str) -> Result<Option<ServiceRow>, StoreError> {
        let condition = "t.namespace = $1 AND t.name = $2";
        let query = views::service_query(condition, vec![param::text(namespace), param::text(name)]);
        Ok(self.ask_all(&[query], |answers| views::service(&answers[0])).await?.pop())
    }

    async fn services(
        &self,
        filter: &ServiceFilter,
        page: Page<ServiceId>,
    ) -> Result<Paged<ServiceRow>, StoreError> {
        self.ask_page(lists::services(filter, page), shared::service, |service| service.id).await
    }

    async fn replicas(&self, service: ServiceId) -> Result<Vec<ReplicaRow>, StoreError> {
        let of = Replicas::of(service, Dialect::Postgres);
        self.ask_all(&views::replicas_queries(&of), views::replicas).await
    }

    async fn replicas_in(
        &self,
        namespaces: Option<&[String]>,
        limit: usize,
    ) -> Result<Paged<ReplicaRow>, StoreError> {
        let of = Replicas::within(namespaces, limit, Dialect::Postgres);
        let (found, skipped) = self.ask_rows(&views::replicas_queries(&of), views::replicas).await?;
        Ok(of.page(found, skipped))
    }

    async fn executions(
        &self,
        filter: &ExecutionFilter,
        page: Page<ExecutionId>,
    ) -> Result<Paged<ExecutionRow>, StoreError> {
        self.ask_page(lists::executions(filter, page), shared::execution, |row| row.record.id).await
    }

    async fn execution(&self, id: ExecutionId) -> Result<Option<ExecutionRow>, StoreError> {
        Ok(self.ask_all(&views::execution_queries(id), views::execution).await?.into_iter().next())
    }

    async fn events(&self, after: EventSeq, limit: usize) -> Result<EventPage, StoreError> {
        loop {
            let read = |answers: &[Vec<Row>]| views::events(answers, after, limit);
            let (page, damaged) = self.ask(&views::events_queries(after, limit), read).await?;
            if damaged.is_empty() {
                return Ok(page);
            }
            self.move_to_quarantine(&damaged).await?;
        }
    }

    async fn statistics(&self, query: &StatisticsQuery) -> Result<Series, StoreError> {
        self.series(query).await
    }

    async fn failures(&self, query: &FailureQuery) -> Result<Vec<FailureGroup>, StoreError> {
        self.groups(query).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        self.ask_all(&[views::workers_query()], |answers| load::workers(&answers[0])).await
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>, StoreError> {
        self.ask_all(&[views::queues_query()], |answers| load::queues(&answers[0])).await
    }

    async fn namespaces(&self) -> Result<Vec<NamespaceRecord>, StoreError> {
        self.ask_all(&[views::namespaces_query()], |answers| load::namespaces(&answers[0])).await
    }
}

impl PostgresStore {
    pub(super) async fn ask_page<T, Place: Ord>(
        &self,
        list: List,
        decode: impl Fn(&Row) -> Result<T, DecodeError>,
        place: impl Fn(&T) -> Place,
    ) -> Result<Paged<T>, StoreError> {
        let read = |answers: &[Vec<Row>]| views::listed(&list, answers, &decode);
        let found = self.ask_rows(&views::list_queries(&list), read).await?;
        Ok(listed(&list, found, place))
    }
}

/// Returns the page of a list from its rows, and the number of skipped rows.
fn listed<T, Place: Ord>(
    list: &List,
    (good, passed_over): (Vec<T>, usize),
    place: impl Fn(&T) -> Place,
) -> Paged<T> {
    let full = good.len() + passed_over > list.limit;
    let mut page = list.page(good, place);
    page.more |= full;
    page
}
