//! [`Access`], [`Alerts`], [`Audit`] and [`Housekeeping`]: changes go through the log, reads come from the replica.

use async_trait::async_trait;
use model::failures::{FailureGroupId, FailureMark};
use model::{ExecutionId, JobId, RunId, Timestamp};
use store::audit::{AuditChain, AuditFilter, AuditLink, AuditRow};
use store::command::{Reply, Update};
use store::query::{Artifact, ArtifactDeletion, ArtifactFilter, DeletionReason, Page, Paged, Quarantined};
use store::{Access, AccessRow, AccessRows, AlertChange, AlertRows, Alerts, Audit, Housekeeping, StoreError};

use super::{RaftStore, unexpected};
use crate::log::Space;

/// Maximum number of rows of the audit log that one entry deletes.
const AUDIT_ROWS_AT_ONCE: usize = 1_000;

#[async_trait]
impl Access for RaftStore {
    async fn access(&self, since: u64) -> Result<AccessRows, StoreError> {
        self.read().await?.access(since).await
    }

    async fn change_access(&self, expected: u64, next: u64, rows: &[AccessRow]) -> Result<bool, StoreError> {
        Ok(self.changed(Update::ChangeAccess { expected, next, rows: rows.to_vec() }).await? > 0)
    }

    async fn delete_access(&self, rows: &[AccessRow]) -> Result<(), StoreError> {
        self.done(Update::DeleteAccess(rows.to_vec())).await
    }
}

#[async_trait]
impl Alerts for RaftStore {
    async fn alerts(&self) -> Result<AlertRows, StoreError> {
        self.read().await?.alerts().await
    }

    async fn change_alerts(
        &self,
        expected: u64,
        next: u64,
        changes: &[AlertChange],
    ) -> Result<bool, StoreError> {
        Ok(self.changed(Update::ChangeAlerts { expected, next, changes: changes.to_vec() }).await? > 0)
    }
}

#[async_trait]
impl Audit for RaftStore {
    async fn audit_chain(&self) -> Result<AuditChain, StoreError> {
        self.read().await?.audit_chain().await
    }

    async fn append_audit(&self, expected: &AuditLink, rows: &[AuditRow]) -> Result<bool, StoreError> {
        Ok(self.changed(Update::AppendAudit { expected: *expected, rows: rows.to_vec() }).await? > 0)
    }

    async fn audit_after(&self, after: u64, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
        self.read().await?.audit_after(after, limit).await
    }

    async fn audit(&self, filter: &AuditFilter, page: Page<u64>) -> Result<Paged<AuditRow>, StoreError> {
        self.read().await?.audit(filter, page).await
    }

    async fn trim_audit(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        self.changed(Update::TrimAudit { before, limit: limit.min(AUDIT_ROWS_AT_ONCE) }).await
    }
}

#[async_trait]
impl Housekeeping for RaftStore {
    async fn put_artifact(&self, artifact: &Artifact) -> Result<(), StoreError> {
        self.done(Update::PutArtifact(artifact.clone())).await
    }

    async fn artifacts(&self, filter: &ArtifactFilter, limit: usize) -> Result<Vec<Artifact>, StoreError> {
        self.read().await?.artifacts(filter, limit).await
    }

    async fn delete_artifact(
        &self,
        artifact: &Artifact,
        reason: DeletionReason,
    ) -> Result<ArtifactDeletion, StoreError> {
        match self.update(Update::DeleteArtifact { artifact: artifact.clone(), reason }).await? {
            Reply::Artifact(deletion) => Ok(deletion),
            other => Err(unexpected(&other)),
        }
    }

    async fn superseded_artifacts(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<Artifact>, StoreError> {
        self.read().await?.superseded_artifacts(before, limit).await
    }

    async fn expired_jobs(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(JobId, Vec<ExecutionId>)>, StoreError> {
        self.read().await?.expired_jobs(now, limit).await
    }

    async fn delete_jobs(&self, jobs: &[JobId]) -> Result<(), StoreError> {
        self.done(Update::DeleteJobs(jobs.to_vec())).await
    }

    async fn expired_runs(&self, now: Timestamp, limit: usize) -> Result<Vec<RunId>, StoreError> {
        self.read().await?.expired_runs(now, limit).await
    }

    async fn delete_runs(&self, runs: &[RunId]) -> Result<(), StoreError> {
        self.done(Update::DeleteRuns(runs.to_vec())).await?;
        while self.changed(Update::DeleteSteps).await? > 0 {}
        Ok(())
    }

    async fn trim_events(&self, before: Timestamp) -> Result<(), StoreError> {
        self.done(Update::TrimEvents(before)).await
    }

    async fn trim_ledger(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let trim = self.read().await?.trimmable_ledger(before, limit).await?;
        match trim {
            Some(trim) => self.changed(trim).await,
            None => Ok(0),
        }
    }

    async fn fold_statistics(&self) -> Result<u64, StoreError> {
        self.changed(Update::FoldStatistics(self.clock.now())).await
    }

    async fn trim_statistics(&self, now: Timestamp) -> Result<u64, StoreError> {
        self.changed(Update::TrimStatistics(now)).await
    }

    async fn mark_failures(
        &self,
        namespace: &str,
        id: FailureGroupId,
        mark: Option<&FailureMark>,
    ) -> Result<bool, StoreError> {
        Ok(self.changed(Update::mark_failures(namespace, id, mark)).await? > 0)
    }

    async fn quarantined(&self, limit: usize) -> Result<Vec<Quarantined>, StoreError> {
        self.read().await?.quarantined(limit).await
    }

    /// Succeeds if there is space, and a leader answers.
    async fn check(&self) -> Result<(), StoreError> {
        if self.node.space().get() != Space::Enough {
            return Err(StoreError::Full);
        }
        self.read().await.map(drop)
    }
}
