//! Fills a store with rows of every type, for the tests of copies.
//!
//! A new table needs a row here: a test compares the tables of the copied store with those that were filled, and fails
//! for an empty one. The rows are random, from the sampler of the store suite, apart from those that must refer to each
//! other (job and execution, run and step, schedule and backfill).

use std::sync::Arc;

use model::failures::{FailureMark, FailureState};
use model::firing::BackfillStatus;
use model::record::{Batch, Change, JobHead, Lease, RunKeyRecord};
use model::run::{BatchKey, RunStatus, StepKey, StepRecord};
use model::service::ReplicaOrigin;
use model::{ExecutionStatus, JobId, JobStatus, ScheduleId, Timestamp, WorkerId};

use super::{HOUR, SHARDS};

use crate::audit::AuditLink;
use crate::failures::FailureQuery;
use crate::query::Artifact;
use crate::sqlite::SqliteStore;
use crate::suite::sample::{Sampler, schedule_head_of, workflow_head_of};
use crate::{
    Access as _, AccessRow, AlertChange, Alerts as _, Audit as _, Commits as _, Housekeeping as _,
    Leases as _, Members as _, Reads as _,
};

/// Fills an empty store, and closes it.
pub(super) async fn fill(store: SqliteStore) {
    Filling { store, leases: Vec::new(), sampler: Sampler::new(77) }.all().await;
}

/// Store that gets rows of every type.
struct Filling {
    store: SqliteStore,
    leases: Vec<Lease>,
    sampler: Sampler,
}

impl Filling {
    async fn all(mut self) {
        self.leases = self.store.acquire(&SHARDS, "test", HOUR).await.unwrap();
        self.registry().await;
        let schedules = self.schedules().await;
        self.ledger(&schedules).await;
        self.jobs().await;
        self.workflows().await;
        self.runs().await;
        self.services().await;
        // Ledger entries outlive their schedule.
        self.commit(vec![Change::RemoveSchedule(schedules[0])]).await;
        self.statistics().await;
    }

    async fn commit(&mut self, changes: Vec<Change>) {
        let events = (0..self.sampler.below(4)).map(|_| self.sampler.event()).collect();
        let batch = Batch { now: self.sampler.now(), changes, events, ..Batch::default() };
        self.store.commit(&self.leases, Arc::new(batch)).await.unwrap();
    }

    /// Folded and pending ones.
    async fn statistics(&mut self) {
        for part in 0..20 {
            let statistics = self.sampler.statistics(WorkerId::from_bits(7));
            let batch = Batch { now: self.sampler.now(), statistics, ..Batch::default() };
            self.store.commit(&self.leases, Arc::new(batch)).await.unwrap();
            if part == 10 {
                self.store.fold_statistics().await.unwrap();
                let groups = self.store.failures(&FailureQuery::default()).await.unwrap();
                let mark = FailureMark {
                    state: FailureState::Muted,
                    note: Some("n".into()),
                    by: "ann".into(),
                    at: self.sampler.now(),
                    count: 1,
                };
                self.store.mark_failures(&groups[0].namespace, groups[0].id(), Some(&mark)).await.unwrap();
            }
        }
    }

    async fn registry(&mut self) {
        let workers: Vec<_> = (0..9).map(|_| Change::Worker(Arc::new(self.sampler.worker()))).collect();
        self.commit(workers).await;
        let queues: Vec<_> =
            ["a", "", "钟"].map(|name| Change::Queue(Arc::new(self.sampler.queue(name)))).into();
        self.commit(queues).await;
        let namespaces: Vec<_> = ["a", "", "钟"]
            .map(|name| Change::Namespace(Arc::new(self.sampler.namespace_record(name))))
            .into();
        self.commit(namespaces).await;
        for (namespace, name) in [("default", "x"), ("default", "\0y"), ("team-a", "x")] {
            let calendar = self.sampler.calendar(namespace, name);
            self.commit(vec![Change::Calendar(Arc::new(calendar))]).await;
        }
        for (expected, (kind, key)) in (1..).zip([("token", "a"), ("token", "b\0"), ("account", "钟")]) {
            let row = AccessRow { kind: kind.into(), key: key.into(), body: "{\"name\": \"钟\"}".into() };
            self.store.change_access(expected, expected + 1, &[row]).await.unwrap();
        }
        for (expected, (kind, key)) in (1..).zip([("rule", "default/a"), ("alert", "1\0"), ("channel", "钟")])
        {
            let change =
                AlertChange { kind: kind.into(), key: key.into(), body: Some("{\"name\": \"钟\"}".into()) };
            self.store.change_alerts(expected, expected + 1, &[change]).await.unwrap();
        }
        let rows = crate::suite::audit::rows(1..=5);
        self.store.append_audit(&AuditLink::default(), &rows).await.unwrap();
        self.store.trim_audit(Timestamp::from_millis(2_500), 10).await.unwrap();
        for (name, sha256, at) in [("x", "1", 1), ("x", "2", 2), ("y", "3", 2)] {
            let artifact = Artifact {
                namespace: "default".into(),
                name: name.into(),
                sha256: sha256.into(),
                size_bytes: 5,
                created_at: Timestamp::from_millis(at),
                created_by: "me".into(),
            };
            self.store.put_artifact(&artifact).await.unwrap();
        }
        self.store.secret("cursors", &[7; 32]).await.unwrap();
    }

    async fn schedules(&mut self) -> Vec<ScheduleId> {
        let mut ids = Vec::new();
        for n in 0..20 {
            let id = self.sampler.schedule_id(SHARDS[n % SHARDS.len()]);
            let status = self.sampler.schedule_status();
            let head = Some(Arc::new(schedule_head_of(self.sampler.schedule_spec())));
            let state = Box::new(self.sampler.schedule_state(id, status));
            self.commit(vec![Change::Schedule { id, new: true, head, state }]).await;
            ids.push(id);
        }
        for (n, status) in [BackfillStatus::Running, BackfillStatus::Completed].into_iter().enumerate() {
            let head = self.sampler.backfill_head(ids[n + 1]);
            let (id, state) = (head.id, self.sampler.backfill_state(status));
            self.commit(vec![Change::Backfill { id, head: Some(Arc::new(head)), state }]).await;
        }
        ids
    }

    async fn ledger(&mut self, schedules: &[ScheduleId]) {
        for n in 0..60 {
            let schedule = schedules[n % 7];
            let job = (n % 3 == 0).then(|| self.sampler.job_id(schedule.shard()));
            let line = self.sampler.line(schedule, job);
            self.commit(vec![Change::Ledger(Box::new(line))]).await;
        }
    }

    async fn workflows(&mut self) {
        for n in 0..12 {
            let id = self.sampler.workflow_id(SHARDS[n % SHARDS.len()]);
            let first = self.sampler.workflow_spec();
            let mut state = self.sampler.workflow_state();
            for new in [true, false] {
                let mut spec = self.sampler.workflow_spec();
                spec.name.clone_from(&first.name);
                let head = Some(Arc::new(workflow_head_of(spec)));
                self.commit(vec![Change::Workflow { id, new, head, state: state.clone() }]).await;
                state.generation += 1;
            }
        }
    }

    async fn services(&mut self) {
        for n in 0..12 {
            let id = self.sampler.service_id(SHARDS[n % SHARDS.len()]);
            let head = Some(Arc::new(self.sampler.service_head()));
            let state = Box::new(self.sampler.service_state());
            let mut changes = vec![Change::Service { id, new: true, head, state }];
            for replica in 0..2 {
                let job = self.sampler.job_id(SHARDS[n % SHARDS.len()]);
                let origin = ReplicaOrigin { service: id, replica, ..self.sampler.replica_origin() };
                let head = JobHead { replica: Some(Arc::new(origin)), ..(*self.sampler.head()).clone() };
                let state = Box::new(self.sampler.state(JobStatus::Running));
                changes.push(Change::Job { id: job, new: true, head: Some(Arc::new(head)), state });
                let record = self.sampler.execution(job, 1, ExecutionStatus::Running);
                changes.push(Change::Execution { new: true, record: Box::new(record) });
            }
            self.commit(changes).await;
        }
    }

    async fn runs(&mut self) {
        for n in 0..30 {
            let id = self.sampler.run_id(SHARDS[n % SHARDS.len()]);
            let status = self.sampler.pick(RunStatus::ALL);
            let (head, state) = (Some(Arc::new(self.sampler.run_head())), self.sampler.run_state(status));
            let mut changes = vec![Change::Run { id, head, state: Box::new(state) }];
            for step in 0..3 {
                for item in [None, Some(0), Some(7)] {
                    let (key, mut state) = (StepKey { run: id, step, item }, self.sampler.step_state());
                    if item == Some(7) {
                        let version = format!("data@sha256:{n:064x}");
                        state.files = Some(serde_json::json!({ "data": version }).to_string().into());
                    }
                    changes.push(Change::Step(Box::new(StepRecord { key, state })));
                }
                let batch = self.sampler.element_batch(BatchKey { run: id, step, first: step * 7 });
                changes.push(Change::ElementBatch(Box::new(batch)));
            }
            if n % 4 == 0 {
                let expires_at = self.sampler.now() + HOUR;
                changes.push(Change::RunKey(RunKeyRecord {
                    key: id.to_bits(),
                    body: 7,
                    run: id,
                    expires_at,
                }));
            }
            self.commit(changes).await;
        }
        let expired = self.store.expired_runs(Timestamp::MAX, 3).await.unwrap();
        assert_eq!(expired.len(), 3);
        self.store.delete_runs(&expired).await.unwrap();
    }

    async fn jobs(&mut self) {
        for n in 0..90 {
            let id = self.sampler.job_id(SHARDS[n % SHARDS.len()]);
            let live = n % 3 != 0;
            let status = if live { self.sampler.live_status() } else { self.sampler.final_status() };
            let (head, state) = (Some(self.sampler.head()), Box::new(self.sampler.state(status)));
            let mut changes = vec![Change::Job { id, new: true, head, state }];
            for number in 1..=self.sampler.below(3) {
                let status =
                    if live && number > 1 { ExecutionStatus::Running } else { ExecutionStatus::Failed };
                let record = self.sampler.execution(id, u32::try_from(number).unwrap(), status);
                changes.push(Change::Execution { new: true, record: Box::new(record) });
            }
            if n % 5 == 0 {
                changes.push(Change::Checkpoint(Box::new(self.sampler.checkpoint_of(id).1)));
            }
            if n % 4 == 0 {
                changes.push(Change::Key(self.sampler.key(id)));
            }
            self.commit(changes).await;
        }
        let expired = self.store.expired_jobs(Timestamp::MAX, 5).await.unwrap();
        let expired: Vec<JobId> = expired.into_iter().map(|(job, _)| job).collect();
        assert_eq!(expired.len(), 5);
        self.store.delete_jobs(&expired).await.unwrap();
    }
}
