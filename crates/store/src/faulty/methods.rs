//! The methods of a store, each in one line, and the [`Operation`] by which a test names it.
//!
//! The list generates both the enum and the implementations, so a new method of a trait needs one line here, and
//! without it the crate does not compile. Methods that do more than forward a call, or in which no fault can be
//! injected, are written in the block `by hand`; the names in its brackets are the operations among them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use model::calendar::CalendarRecord;
use model::checkpoint::CheckpointRecord;
use model::failures::{FailureGroup, FailureGroupId, FailureMark};
use model::firing::LedgerRecord;
use model::record::{Batch, Lease, LiveRow, NamespaceRecord, QueueRecord, WorkerRecord};
use model::run::{ElementBatch, StepRecord, WorkflowHead};
use model::{
    BackfillId, Duration, ExecutionId, JobId, RunId, ScheduleId, ServerId, ServiceId, ShardId, Timestamp,
    WorkflowId,
};
use tokio::sync::mpsc::Sender;

use super::{FaultyStore, Waiting};
use crate::audit::{AuditChain, AuditFilter, AuditLink, AuditRow};
use crate::changelog::Changelog;
use crate::cluster::{Cluster, Members, ServerRecord};
use crate::failures::FailureQuery;
use crate::query::{
    Artifact, ArtifactDeletion, ArtifactFilter, BackfillRow, Counts, DeletionReason, EventPage, EventSeq,
    ExecutionFilter, ExecutionRow, JobFilter, JobRow, LedgerCounts, LedgerFilter, LedgerPosition, Page,
    Paged, Quarantined, ReplicaRow, RunFilter, RunRow, ScheduleCounts, ScheduleFilter, ScheduleRow,
    ServiceFilter, ServiceRow, WorkflowFilter, WorkflowRow,
};
use crate::statistics::{Series, StatisticsQuery};
use crate::{
    Access, AccessRow, AccessRows, AlertChange, AlertRows, Alerts, Audit, Commits, Committed, Housekeeping,
    Leases, Loaded, Reads, Store, StoreError,
};

macro_rules! methods {
    ($(
        impl $Contract:ident {
            $($Name:ident: $method:ident($($argument:ident: $Type:ty),*) -> $Answer:ty;)*
        } $(by hand [$($Own:ident),*] { $($own:tt)* })?
    )*) => {
        /// Method of [`Store`] in which a fault can be injected.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each is the method of its name")]
        pub enum Operation {
            $($($($Own,)*)? $($Name,)*)*
        }

        $(#[async_trait]
        impl<S: Store> $Contract for FaultyStore<S> {
            $(async fn $method(&self, $($argument: $Type),*) -> Result<$Answer, StoreError> {
                self.call(Operation::$Name, self.inner.$method($($argument),*)).await
            })*

            $($($own)*)?
        })*
    };
}

methods! {
    impl Leases {
        Release: release(leases: &[Lease]) -> ();
        LostTails: shards_with_lost_commits(leases: &[Lease]) -> Vec<ShardId>;
        TailsReconciled: mark_reconciled(leases: &[Lease]) -> ();
    } by hand [Acquire, Renew] {
        fn shards(&self) -> u16 {
            self.inner.shards()
        }

        async fn acquire(&self, shards: &[ShardId], owner: &str, ttl: Duration) -> Result<Vec<Lease>, StoreError> {
            let taken = async {
                let leases = self.inner.acquire(shards, owner, ttl).await?;
                self.tell_simulation(|world| world.leased(&leases, ttl));
                Ok(leases)
            };
            self.call(Operation::Acquire, taken).await
        }

        fn former_owner(&self) -> Duration {
            self.inner.former_owner()
        }

        async fn renew(&self, leases: &[Lease], ttl: Duration) -> Result<(), StoreError> {
            let renewed = async {
                self.inner.renew(leases, ttl).await?;
                self.tell_simulation(|world| world.leased(leases, ttl));
                Ok(())
            };
            self.call(Operation::Renew, renewed).await
        }

        fn is_exclusive(&self) -> bool {
            !self.shared && self.inner.is_exclusive()
        }

        async fn mark_restored(&self) -> Result<(), StoreError> {
            self.inner.mark_restored().await
        }

        async fn clock(&self) -> Result<Option<Timestamp>, StoreError> {
            self.inner.clock().await
        }

        async fn reset_clock(&self, now: Timestamp) -> Result<(), StoreError> {
            self.inner.reset_clock(now).await
        }
    }

    impl Members {
        Announce: announce(server: &ServerRecord, lag: Option<Duration>, ttl: Duration) -> ();
        Cluster: cluster() -> Cluster;
        SetDraining: set_draining(server: ServerId, draining: bool) -> bool;
        Depart: remove_member(server: ServerId) -> ();
        Secret: secret(name: &str, proposed: &[u8; 32]) -> [u8; 32];
    }

    impl Commits {
    } by hand [Load, Commit] {
        async fn load(&self, leases: &[Lease], rows: Sender<Vec<LiveRow>>) -> Result<Loaded, StoreError> {
            let loaded = async {
                self.halted.store(false, Ordering::Relaxed);
                self.inner.load(leases, rows).await
            };
            self.call(Operation::Load, loaded).await
        }

        async fn commit(&self, leases: &[Lease], batch: Arc<Batch>) -> Result<Committed, StoreError> {
            let committed = async {
                let committed = self.inner.commit(leases, Arc::clone(&batch)).await?;
                self.tell_simulation(|world| world.committed(leases, &batch));
                Ok(committed)
            };
            let waiting = Waiting::among(&self.waiting_commits);
            let _turn = self.turn.lock().await;
            drop(waiting);
            if self.halted.load(Ordering::Relaxed) && !self.plan().fatal {
                return Err(StoreError::Unavailable { source: "an earlier commit failed".into() });
            }
            let result = self.call(Operation::Commit, committed).await;
            let may_be_repeated = matches!(result, Err(StoreError::Full)) && !self.has_reserve();
            self.halted.fetch_or(result.is_err() && !may_be_repeated, Ordering::Relaxed);
            result
        }

        fn commits_ahead(&self) -> usize {
            self.inner.commits_ahead()
        }

        fn has_reserve(&self) -> bool {
            !self.shared && self.inner.has_reserve()
        }

        /// No fault can be injected in the methods of the changelog.
        fn changelog(&self) -> Option<&dyn Changelog> {
            self.changelog.as_deref().or_else(|| self.inner.changelog())
        }
    }

    impl Reads {
        Job: job(id: JobId) -> Option<JobRow>;
        Checkpoint: checkpoint(job: JobId) -> Option<CheckpointRecord>;
        Jobs: jobs(filter: &JobFilter, page: Page<JobId>) -> Paged<JobRow>;
        Counts: counts(namespace: Option<&str>) -> Counts;
        Schedule: schedule(id: ScheduleId) -> Option<ScheduleRow>;
        ScheduleNamed: schedule_named(namespace: &str, name: &str) -> Option<ScheduleRow>;
        Schedules: schedules(filter: &ScheduleFilter, page: Page<ScheduleId>) -> Paged<ScheduleRow>;
        ScheduleCounts: schedule_counts(namespace: Option<&str>) -> ScheduleCounts;
        Upcoming: upcoming(filter: &ScheduleFilter, after: Option<(Timestamp, ScheduleId)>, limit: usize)
            -> Vec<ScheduleRow>;
        Ledger: ledger(filter: &LedgerFilter, page: Page<LedgerPosition>) -> Paged<(LedgerPosition, LedgerRecord)>;
        LedgerCounts: ledger_counts(schedule: ScheduleId, since: Option<Timestamp>) -> LedgerCounts;
        Backfill: backfill(id: BackfillId) -> Option<BackfillRow>;
        Backfills: backfills(schedule: Option<ScheduleId>, namespace: Option<&str>, page: Page<BackfillId>)
            -> Paged<BackfillRow>;
        Calendars: calendars(namespace: Option<&str>) -> Vec<CalendarRecord>;
        Calendar: calendar(namespace: &str, name: &str) -> Option<CalendarRecord>;
        Workflow: workflow(id: WorkflowId) -> Option<WorkflowRow>;
        WorkflowNamed: workflow_named(namespace: &str, name: &str) -> Option<WorkflowRow>;
        WorkflowVersion: workflow_version(id: WorkflowId, generation: u64) -> Option<WorkflowHead>;
        Workflows: workflows(filter: &WorkflowFilter, page: Page<WorkflowId>) -> Paged<WorkflowRow>;
        Run: run(id: RunId) -> Option<RunRow>;
        Runs: runs(filter: &RunFilter, page: Page<RunId>) -> Paged<RunRow>;
        RunSteps: run_steps(run: RunId) -> Vec<StepRecord>;
        RunElements: run_elements(run: RunId, step: u32, after: Option<u32>, limit: usize) -> Vec<StepRecord>;
        ElementBatches: element_batches(run: RunId) -> Vec<ElementBatch>;
        Service: service(id: ServiceId) -> Option<ServiceRow>;
        ServiceNamed: service_named(namespace: &str, name: &str) -> Option<ServiceRow>;
        Services: services(filter: &ServiceFilter, page: Page<ServiceId>) -> Paged<ServiceRow>;
        Replicas: replicas(service: ServiceId) -> Vec<ReplicaRow>;
        ReplicasIn: replicas_in(namespaces: Option<&[String]>, limit: usize) -> Paged<ReplicaRow>;
        Executions: executions(filter: &ExecutionFilter, page: Page<ExecutionId>) -> Paged<ExecutionRow>;
        Execution: execution(id: ExecutionId) -> Option<ExecutionRow>;
        Events: events(after: EventSeq, limit: usize) -> EventPage;
        Statistics: statistics(query: &StatisticsQuery) -> Series;
        Failures: failures(query: &FailureQuery) -> Vec<FailureGroup>;
        Workers: workers() -> Vec<WorkerRecord>;
        Queues: queues() -> Vec<QueueRecord>;
        Namespaces: namespaces() -> Vec<NamespaceRecord>;
    }

    impl Access {
        Access: access(since: u64) -> AccessRows;
        ChangeAccess: change_access(expected: u64, next: u64, rows: &[AccessRow]) -> bool;
        DeleteAccess: delete_access(rows: &[AccessRow]) -> ();
    }

    impl Alerts {
        Alerts: alerts() -> AlertRows;
        ChangeAlerts: change_alerts(expected: u64, next: u64, changes: &[AlertChange]) -> bool;
    }

    impl Audit {
        AuditChain: audit_chain() -> AuditChain;
        AppendAudit: append_audit(expected: &AuditLink, rows: &[AuditRow]) -> bool;
        AuditAfter: audit_after(after: u64, limit: usize) -> Vec<AuditRow>;
        Audit: audit(filter: &AuditFilter, page: Page<u64>) -> Paged<AuditRow>;
        TrimAudit: trim_audit(before: Timestamp, limit: usize) -> u64;
    }

    impl Housekeeping {
        PutArtifact: put_artifact(artifact: &Artifact) -> ();
        Artifacts: artifacts(filter: &ArtifactFilter, limit: usize) -> Vec<Artifact>;
        DeleteArtifact: delete_artifact(artifact: &Artifact, reason: DeletionReason) -> ArtifactDeletion;
        SupersededArtifacts: superseded_artifacts(before: Timestamp, limit: usize) -> Vec<Artifact>;
        ExpiredJobs: expired_jobs(now: Timestamp, limit: usize) -> Vec<(JobId, Vec<ExecutionId>)>;
        DeleteJobs: delete_jobs(jobs: &[JobId]) -> ();
        ExpiredRuns: expired_runs(now: Timestamp, limit: usize) -> Vec<RunId>;
        DeleteRuns: delete_runs(runs: &[RunId]) -> ();
        TrimEvents: trim_events(before: Timestamp) -> ();
        TrimLedger: trim_ledger(before: Timestamp, limit: usize) -> u64;
        FoldStatistics: fold_statistics() -> u64;
        TrimStatistics: trim_statistics(now: Timestamp) -> u64;
        MarkFailures: mark_failures(namespace: &str, id: FailureGroupId, mark: Option<&FailureMark>) -> bool;
        Quarantined: quarantined(limit: usize) -> Vec<Quarantined>;
        Check: check() -> ();
    }
}
