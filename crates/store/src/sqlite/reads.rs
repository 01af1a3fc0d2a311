//! [`Reads`]: each query runs on a connection of the pool, in one read transaction.
//!
//! `views` has the queries for single rows and counts, `lists` those for pages. If a row cannot be decoded, the writer
//! quarantines it and the query is repeated.

use async_trait::async_trait;
use model::calendar::CalendarRecord;
use model::checkpoint::CheckpointRecord;
use model::failures::FailureGroup;
use model::firing::LedgerRecord;
use model::record::{NamespaceRecord, QueueRecord, WorkerRecord};
use model::run::{ElementBatch, StepRecord, WorkflowHead};
use model::{BackfillId, ExecutionId, JobId, RunId, ScheduleId, ServiceId, Timestamp, WorkflowId};

use super::{SqliteStore, lists, load, statistics, views};
use crate::failures::FailureQuery;
use crate::lists::{Dialect, Replicas};
use crate::query::{
    BackfillRow, Counts, EventPage, EventSeq, ExecutionFilter, ExecutionRow, JobFilter, JobRow, LedgerCounts,
    LedgerFilter, LedgerPosition, Page, Paged, ReplicaRow, RunFilter, RunRow, ScheduleCounts, ScheduleFilter,
    ScheduleRow, ServiceFilter, ServiceRow, WorkflowFilter, WorkflowRow,
};
use crate::statistics::{Series, StatisticsQuery};
use crate::{Reads, StoreError};

#[async_trait]
impl Reads for SqliteStore {
    async fn job(&self, id: JobId) -> Result<Option<JobRow>, StoreError> {
        Ok(self.ask_all(move |connection| views::job(connection, id)).await?.pop())
    }

    async fn checkpoint(&self, job: JobId) -> Result<Option<CheckpointRecord>, StoreError> {
        Ok(self.ask_all(move |connection| views::checkpoint(connection, job)).await?.pop())
    }

    async fn jobs(&self, filter: &JobFilter, page: Page<JobId>) -> Result<Paged<JobRow>, StoreError> {
        let filter = filter.clone();
        self.ask_page(move |connection| lists::jobs(connection, &filter, page)).await
    }

    async fn counts(&self, namespace: Option<&str>) -> Result<Counts, StoreError> {
        let namespace = namespace.map(str::to_owned);
        self.readers.read(move |connection| views::counts(connection, namespace.as_deref())).await
    }

    async fn schedule(&self, id: ScheduleId) -> Result<Option<ScheduleRow>, StoreError> {
        Ok(self.ask_all(move |connection| views::schedule(connection, id)).await?.pop())
    }

    async fn schedule_named(&self, namespace: &str, name: &str) -> Result<Option<ScheduleRow>, StoreError> {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let found = self.ask_all(move |connection| views::schedule_named(connection, &namespace, &name));
        Ok(found.await?.pop())
    }

    async fn schedules(
        &self,
        filter: &ScheduleFilter,
        page: Page<ScheduleId>,
    ) -> Result<Paged<ScheduleRow>, StoreError> {
        let filter = filter.clone();
        self.ask_page(move |connection| lists::schedules(connection, &filter, page)).await
    }

    async fn schedule_counts(&self, namespace: Option<&str>) -> Result<ScheduleCounts, StoreError> {
        let namespace = namespace.map(str::to_owned);
        self.readers.read(move |connection| lists::schedule_counts(connection, namespace.as_deref())).await
    }

    async fn upcoming(
        &self,
        filter: &ScheduleFilter,
        after: Option<(Timestamp, ScheduleId)>,
        limit: usize,
    ) -> Result<Vec<ScheduleRow>, StoreError> {
        let filter = filter.clone();
        self.ask_all(move |connection| lists::upcoming(connection, &filter, after, limit)).await
    }

    async fn ledger(
        &self,
        filter: &LedgerFilter,
        page: Page<LedgerPosition>,
    ) -> Result<Paged<(LedgerPosition, LedgerRecord)>, StoreError> {
        let filter = filter.clone();
        self.ask_page(move |connection| lists::ledger(connection, &filter, page)).await
    }

    async fn ledger_counts(
        &self,
        schedule: ScheduleId,
        since: Option<Timestamp>,
    ) -> Result<LedgerCounts, StoreError> {
        self.readers.read(move |connection| lists::ledger_counts(connection, schedule, since)).await
    }

    async fn backfill(&self, id: BackfillId) -> Result<Option<BackfillRow>, StoreError> {
        Ok(self.ask_all(move |connection| views::backfill(connection, id)).await?.pop())
    }

    async fn backfills(
        &self,
        schedule: Option<ScheduleId>,
        namespace: Option<&str>,
        page: Page<BackfillId>,
    ) -> Result<Paged<BackfillRow>, StoreError> {
        let namespace = namespace.map(str::to_owned);
        self.ask_page(move |connection| lists::backfills(connection, schedule, namespace.as_deref(), page))
            .await
    }

    async fn calendars(&self, namespace: Option<&str>) -> Result<Vec<CalendarRecord>, StoreError> {
        let namespace = namespace.map(str::to_owned);
        self.ask_all(move |connection| views::calendars(connection, namespace.as_deref())).await
    }

    async fn calendar(&self, namespace: &str, name: &str) -> Result<Option<CalendarRecord>, StoreError> {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let found = self.ask_all(move |connection| views::calendar(connection, &namespace, &name));
        Ok(found.await?.pop())
    }

    async fn workflow(&self, id: WorkflowId) -> Result<Option<WorkflowRow>, StoreError> {
        Ok(self.ask_all(move |connection| views::workflow(connection, id)).await?.pop())
    }

    async fn workflow_named(&self, namespace: &str, name: &str) -> Result<Option<WorkflowRow>, StoreError> {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let found = self.ask_all(move |connection| views::workflow_named(connection, &namespace, &name));
        Ok(found.await?.pop())
    }

    async fn workflow_version(
        &self,
        id: WorkflowId,
        generation: u64,
    ) -> Result<Option<WorkflowHead>, StoreError> {
        let Ok(generation) = i64::try_from(generation) else { return Ok(None) };
        let found = self.ask_all(move |connection| views::workflow_version(connection, id, generation));
        Ok(found.await?.pop())
    }

    async fn workflows(
        &self,
        filter: &WorkflowFilter,
        page: Page<WorkflowId>,
    ) -> Result<Paged<WorkflowRow>, StoreError> {
        let filter = filter.clone();
        self.ask_page(move |connection| lists::workflows(connection, &filter, page)).await
    }

    async fn run(&self, id: RunId) -> Result<Option<RunRow>, StoreError> {
        Ok(self.ask_all(move |connection| views::run(connection, id)).await?.pop())
    }

    async fn runs(&self, filter: &RunFilter, page: Page<RunId>) -> Result<Paged<RunRow>, StoreError> {
        let filter = filter.clone();
        self.ask_page(move |connection| lists::runs(connection, &filter, page)).await
    }

    async fn run_steps(&self, run: RunId) -> Result<Vec<StepRecord>, StoreError> {
        self.ask_all(move |connection| views::run_steps(connection, run)).await
    }

    async fn run_elements(
        &self,
        run: RunId,
        step: u32,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<StepRecord>, StoreError> {
        self.ask_all(move |connection| views::run_elements(connection, run, step, after, limit)).await
    }

    async fn element_batches(&self, run: RunId) -> Result<Vec<ElementBatch>, StoreError> {
        self.ask_all(move |connection| views::element_batches(connection, run)).await
    }

    async fn service(&self, id: ServiceId) -> Result<Option<ServiceRow>, StoreError> {
        Ok(self.ask_all(move |connection| views::service(connection, id)).await?.pop())
    }

    async fn service_named(&self, namespace: &str, name: &str) -> Result<Option<ServiceRow>, StoreError> {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let found = self.ask_all(move |connection| views::service_named(connection, &namespace, &name));
        Ok(found.await?.pop())
    }

    async fn services(
        &self,
        filter: &ServiceFilter,
        page: Page<ServiceId>,
    ) -> Result<Paged<ServiceRow>, StoreError> {
        let filter = filter.clone();
        self.ask_page(move |connection| lists::services(connection, &filter, page)).await
    }

    async fn replicas(&self, service: ServiceId) -> Result<Vec<ReplicaRow>, StoreError> {
        let of = Replicas::of(service, Dialect::Sqlite);
        self.ask_all(move |connection| views::replicas(connection, &of)).await
    }

    async fn replicas_in(
        &self,
        namespaces: Option<&[String]>,
        limit: usize,
    ) -> Result<Paged<ReplicaRow>, StoreError> {
        let of = Replicas::within(namespaces, limit, Dialect::Sqlite);
        self.ask_page(move |connection| {
            let found = views::replicas(connection, &of)?;
            Ok(lists::Found { page: of.page(found.good, found.damaged.len()), damaged: found.damaged })
        })
        .await
    }

    async fn executions(
        &self,
        filter: &ExecutionFilter,
        page: Page<ExecutionId>,
    ) -> Result<Paged<ExecutionRow>, StoreError> {
        let filter = filter.clone();
        self.ask_page(move |connection| lists::executions(connection, &filter, page)).await
    }

    async fn execution(&self, id: ExecutionId) -> Result<Option<ExecutionRow>, StoreError> {
        Ok(self.ask_all(move |connection| views::execution(connection, id)).await?.pop())
    }

    async fn events(&self, after: EventSeq, limit: usize) -> Result<EventPage, StoreError> {
        self.ask(move |connection| views::events(connection, after, limit)).await
    }

    async fn statistics(&self, query: &StatisticsQuery) -> Result<Series, StoreError> {
        let query = query.clone();
        self.ask(move |connection| statistics::series(connection, &query)).await
    }

    async fn failures(&self, query: &FailureQuery) -> Result<Vec<FailureGroup>, StoreError> {
        let query = query.clone();
        self.ask(move |connection| statistics::failures(connection, &query)).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        self.ask_all(load::workers).await
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>, StoreError> {
        self.ask_all(load::queues).await
    }

    async fn namespaces(&self) -> Result<Vec<NamespaceRecord>, StoreError> {
        self.ask_all(load::namespaces).await
    }
}
