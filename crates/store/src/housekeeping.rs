//! The contract of housekeeping: artifacts, retention, statistics, failure groups, quarantine and the health
//! check. The engine decides none of these.
//!
//! Any server may call these methods, no matter which server owns the shards: they change the history and the
//! registered objects, never a live row.
//! Retention has two steps, so that a failure leaves no files behind: the store lists the expired rows, the caller
//! deletes their files, and then the store deletes the rows.
//!
//! Callers: `server::housekeeping`, `server::objects` (artifacts) and the health check.
//!
//! # Invariants
//! - Retention deletes no row that prevents duplicates: an idempotency key is deleted only after its own expiry.
//! - An artifact version that a live run needs is never deleted.
//! - A quarantined row keeps its bytes.
//!
//! # Cost
//! Every delete is bounded, by `limit` or by a number of rows for each transaction, so that no commit waits long for
//! it.

use async_trait::async_trait;
use model::failures::{FailureGroupId, FailureMark};
use model::{ExecutionId, JobId, RunId, Timestamp};

use crate::StoreError;
use crate::query::{Artifact, ArtifactDeletion, ArtifactFilter, DeletionReason, Quarantined};

/// Artifacts, retention, quarantine and health.
#[async_trait]
pub trait Housekeeping: Send + Sync + 'static {
    /// Records an artifact version. If the same content is recorded again, the version only becomes the newest one.
    async fn put_artifact(&self, artifact: &Artifact) -> Result<(), StoreError>;

    /// Returns artifact versions, newest first; versions with equal creation time are ordered by namespace and name.
    async fn artifacts(&self, filter: &ArtifactFilter, limit: usize) -> Result<Vec<Artifact>, StoreError>;

    /// Deletes an artifact version, unless a run needs it.
    ///
    /// A run needs the versions that its steps stored ([`StepState::pinned_versions`]). A live run protects them from
    /// every deletion. An ended run protects them from retention, as long as the run itself is stored.
    /// Retention deletes the version only if its `created_at` is unchanged: a version that was stored again is the
    /// newest one.
    ///
    /// [`StepState::pinned_versions`]: model::run::StepState::pinned_versions
    async fn delete_artifact(
        &self,
        artifact: &Artifact,
        reason: DeletionReason,
    ) -> Result<ArtifactDeletion, StoreError>;

    /// Returns at most `limit` artifact versions, oldest first, that a newer version of the same name superseded before
    /// `before` and that no stored run needs.
    async fn superseded_artifacts(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<Artifact>, StoreError>;

    /// Returns at most `limit` ended jobs whose retention is over, with their executions.
    ///
    /// The caller first deletes their logs and then calls [`delete_jobs`](Self::delete_jobs), so that a failure leaves
    /// no logs behind.
    async fn expired_jobs(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(JobId, Vec<ExecutionId>)>, StoreError>;

    /// Deletes ended jobs and their executions. Idempotency keys stay until their own expiry.
    async fn delete_jobs(&self, jobs: &[JobId]) -> Result<(), StoreError>;

    /// Returns at most `limit` ended runs whose retention is over at `now`.
    async fn expired_runs(&self, now: Timestamp, limit: usize) -> Result<Vec<RunId>, StoreError>;

    /// Deletes ended runs with their steps and added elements, and definitions that no run uses any more.
    ///
    /// The row of a run is deleted first, then its other rows in bounded transactions. The call also deletes rows that
    /// an interrupted earlier call left behind.
    async fn delete_runs(&self, runs: &[RunId]) -> Result<(), StoreError>;

    /// Deletes events older than `before`.
    async fn trim_events(&self, before: Timestamp) -> Result<(), StoreError>;

    /// Deletes at most `limit` ledger entries that were decided, and backfills that ended, before `before`. Returns the
    /// number of deleted rows: fewer than `limit` means that none is left.
    ///
    /// Entries of firings that wait for earlier runs to end are not deleted.
    async fn trim_ledger(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;

    /// Adds counts that commits left pending to the series of statistics and to the groups of failures, in one
    /// transaction. Returns the number of added commits; commits that are left over have to wait for the next call.
    ///
    /// Queries return the same before and after. If two servers fold at the same time, one of them changes nothing.
    async fn fold_statistics(&self) -> Result<u64, StoreError>;

    /// Deletes a bounded number of chunks of series, and of groups of failures, whose retention is over at `now`. Returns
    /// their number: 0 means that none is left.
    ///
    /// Of a namespace with more than 900 groups, and of more than 50,000 groups in total, it also deletes those without
    /// a mark that have the oldest failures.
    async fn trim_statistics(&self, now: Timestamp) -> Result<u64, StoreError>;

    /// Sets the mark of a group of failures, or removes it. Returns whether the group exists: one of which all failures
    /// are still pending does not.
    async fn mark_failures(
        &self,
        namespace: &str,
        id: FailureGroupId,
        mark: Option<&FailureMark>,
    ) -> Result<bool, StoreError>;

    /// Returns at most `limit` quarantined rows.
    async fn quarantined(&self, limit: usize) -> Result<Vec<Quarantined>, StoreError>;

    /// Checks that the store answers and accepts writes; returns [`StoreError::Full`] if only reads work.
    async fn check(&self) -> Result<(), StoreError>;
}
