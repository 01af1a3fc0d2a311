//! Answers of a store, to compare them with those of another one.

use std::fmt::Debug;

use model::Timestamp;
use model::firing::{FiringCause, FiringOutcome};
use model::record::Lease;
use model::statistics::{Resolution, SubjectKind};

use super::{HOUR, SHARDS};
use crate::failures::FailureQuery;
use crate::query::{
    ArtifactFilter, ExecutionFilter, JobFilter, LedgerFilter, Page, RunFilter, ScheduleFilter, ServiceFilter,
    WorkflowFilter,
};
use crate::statistics::{StatisticsQuery, Subjects};
use crate::suite::sample::Sampler;
use crate::{EventSeq, Store};

const NAMESPACES: [Option<&str>; 4] = [None, Some("default"), Some("team-a"), Some("team-b")];

/// Returns every answer of a store as text.
pub(super) async fn answers(store: &dyn Store) -> Vec<String> {
    let mut told = Answers(Vec::new());
    told.add("shards", store.shards());
    told.add("quarantined", store.quarantined(100).await);
    told.registry(store).await;
    told.jobs(store).await;
    told.schedules(store).await;
    told.workflows(store).await;
    told.services(store).await;
    let leases = store.acquire(&SHARDS, "test", HOUR).await.unwrap();
    told.add("leases", &leases);
    told.live(store, &leases).await;
    let set_aside = store.quarantined(100).await.unwrap();
    told.sorted("quarantined", set_aside.into_iter().map(|row| (row.table, row.key, row.reason)));
    told.0
}

struct Answers(Vec<String>);

impl Answers {
    fn add(&mut self, what: &str, answer: impl Debug) {
        self.0.push(format!("{what}: {answer:?}"));
    }

    fn sorted(&mut self, what: &str, rows: impl IntoIterator<Item = impl Debug>) {
        let mut rows: Vec<_> = rows.into_iter().map(|row| format!("{row:?}")).collect();
        rows.sort();
        self.0.extend(rows.into_iter().map(|row| format!("{what}: {row}")));
    }

    async fn registry(&mut self, store: &dyn Store) {
        self.sorted("worker", store.workers().await.unwrap());
        self.sorted("queue", store.queues().await.unwrap());
        self.sorted("namespace", store.namespaces().await.unwrap());
        self.add("access", store.access(0).await);
        self.add("alerts", store.alerts().await);
        self.add("audit", store.audit_after(0, 100).await);
        self.add("audit chain", store.audit_chain().await);
        self.add("artifacts", store.artifacts(&ArtifactFilter::default(), 100).await);
        self.add("secret", store.secret("cursors", &[0; 32]).await);
        let events = store.events(EventSeq(0), 10_000).await.unwrap();
        self.add("oldest and newest event", (events.oldest, events.newest));
        self.sorted("event", events.events);
        let now = Sampler::new(0).now();
        for &resolution in Resolution::ALL {
            for &kind in SubjectKind::ALL {
                let subjects = Subjects::Each { kind, namespace: None };
                let query = StatisticsQuery { resolution, from: now - HOUR, until: now + HOUR, subjects };
                self.add("statistics", store.statistics(&query).await);
            }
        }
        self.add("failures", store.failures(&FailureQuery::default()).await);
    }

    async fn jobs(&mut self, store: &dyn Store) {
        for namespace in NAMESPACES {
            let of = namespace.map(str::to_owned);
            self.add("counts", store.counts(namespace).await);
            let filter = JobFilter { namespace: of.clone(), ..JobFilter::default() };
            let jobs = store.jobs(&filter, Page { after: None, limit: 1_000 }).await.unwrap();
            for job in &jobs.items {
                self.add("job", store.job(job.id).await);
                self.add("checkpoint", store.checkpoint(job.id).await);
            }
            self.add("jobs", jobs);
            let filter = ExecutionFilter { namespace: of, ..ExecutionFilter::default() };
            let executions = store.executions(&filter, Page { after: None, limit: 1_000 }).await.unwrap();
            for execution in &executions.items {
                self.add("execution", store.execution(execution.record.id).await);
            }
            self.add("executions", executions);
        }
        for value in ["钟", "钟楼", "\0zero", "a", ""] {
            let labels = [("钟".to_owned(), value.to_owned())].into();
            let filter = JobFilter { labels, ..JobFilter::default() };
            self.add("labelled", store.jobs(&filter, Page { after: None, limit: 1_000 }).await);
        }
        self.add("expired", store.expired_jobs(Timestamp::MAX, 1_000).await);
    }

    async fn schedules(&mut self, store: &dyn Store) {
        for namespace in NAMESPACES {
            let of = namespace.map(str::to_owned);
            self.add("calendars", store.calendars(namespace).await);
            self.add("schedule counts", store.schedule_counts(namespace).await);
            let filter = ScheduleFilter { namespace: of.clone(), ..ScheduleFilter::default() };
            self.add("upcoming", store.upcoming(&filter, None, 1_000).await);
            let schedules = store.schedules(&filter, Page { after: None, limit: 1_000 }).await.unwrap();
            for schedule in &schedules.items {
                self.add("schedule", store.schedule(schedule.id).await);
                self.add("ledger counts", store.ledger_counts(schedule.id, None).await);
            }
            self.add("schedules", schedules);
            let lines = LedgerFilter { namespace: of, ..LedgerFilter::default() };
            self.add("ledger", store.ledger(&lines, Page { after: None, limit: 1_000 }).await);
            self.add("backfills", store.backfills(None, namespace, Page { after: None, limit: 1_000 }).await);
        }
        let (outcomes, causes) = (vec![FiringOutcome::Fired], vec![FiringCause::Backfill]);
        let filter = LedgerFilter { outcomes, causes, ..LedgerFilter::default() };
        self.add("fired", store.ledger(&filter, Page { after: None, limit: 1_000 }).await);
        let labels = [("team".to_owned(), "钟楼".to_owned())].into();
        let filter = ScheduleFilter { labels, ..ScheduleFilter::default() };
        self.add("labelled", store.schedules(&filter, Page { after: None, limit: 1_000 }).await);
    }

    async fn workflows(&mut self, store: &dyn Store) {
        for namespace in NAMESPACES {
            let of = namespace.map(str::to_owned);
            let filter = WorkflowFilter { namespace: of.clone(), ..WorkflowFilter::default() };
            let workflows = store.workflows(&filter, Page { after: None, limit: 1_000 }).await.unwrap();
            for workflow in &workflows.items {
                self.add("workflow", store.workflow(workflow.id).await);
                let generation = workflow.state.generation - 1;
                self.add("version", store.workflow_version(workflow.id, generation).await);
            }
            self.add("workflows", workflows);
            let filter = RunFilter { namespace: of, ..RunFilter::default() };
            let runs = store.runs(&filter, Page { after: None, limit: 1_000 }).await.unwrap();
            for run in &runs.items {
                self.add("run", store.run(run.id).await);
                for batch in store.element_batches(run.id).await.unwrap() {
                    self.add("added", batch);
                }
                for step in store.run_steps(run.id).await.unwrap() {
                    let items = store.run_elements(run.id, step.key.step, None, 100).await.unwrap();
                    self.add("step", step);
                    items.into_iter().for_each(|item| self.add("item", item));
                }
            }
            self.add("runs", runs);
        }
        let labels = [("team".to_owned(), "钟楼".to_owned())].into();
        let filter = WorkflowFilter { labels, ..WorkflowFilter::default() };
        self.add("labelled", store.workflows(&filter, Page { after: None, limit: 1_000 }).await);
        self.add("expired", store.expired_runs(Timestamp::MAX, 1_000).await);
    }

    async fn services(&mut self, store: &dyn Store) {
        for namespace in NAMESPACES {
            let filter =
                ServiceFilter { namespace: namespace.map(str::to_owned), ..ServiceFilter::default() };
            let services = store.services(&filter, Page { after: None, limit: 1_000 }).await.unwrap();
            for service in &services.items {
                self.add("service", store.service(service.id).await);
                self.add("replicas", store.replicas(service.id).await);
                let filter = JobFilter { service: Some(service.id), ..JobFilter::default() };
                self.add("jobs of the service", store.jobs(&filter, Page { after: None, limit: 9 }).await);
            }
            self.add("services", services);
        }
        self.add("all replicas", store.replicas_in(None, 1_000).await);
        let labels = [("team".to_owned(), "钟楼".to_owned())].into();
        let filter = ServiceFilter { labels, ..ServiceFilter::default() };
        self.add("labelled", store.services(&filter, Page { after: None, limit: 1_000 }).await);
    }

    async fn live(&mut self, store: &dyn Store, leases: &[Lease]) {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        let take = async {
            let mut rows = Vec::new();
            while let Some(chunk) = receiver.recv().await {
                rows.extend(chunk);
            }
            rows
        };
        let (loaded, rows) = tokio::join!(store.load(leases, sender), take);
        self.add("loaded", loaded);
        self.sorted("live", rows);
    }
}
