//! The contract of housekeeping: what no engine decides. Tokens, artifacts, retention, the quarantine and the check.
//!
//! Any server may make these calls, whoever owns the shards: they touch the history and the registry, never a live row.
//! Retention comes in two steps, so that nothing is left behind whatever fails in between: the expired are listed, the
//! caller deletes their files, and only then are the rows deleted.
//!
//! Callers: `server::housekeeping`, `server::objects` (artifacts), `server::auth` (tokens) and the health check.
//!
//! # Always true
//! - Retention deletes no row that prevents duplicates: idempotency keys go only when they have expired by themselves.
//! - A version of an artifact that a live run needs is never deleted.
//! - A row in the quarantine keeps its bytes.
//!
//! # Cost
//! Every delete is bounded, by `limit` or by a number of rows in one transaction, so that no commit waits long behind
//! it.

use async_trait::async_trait;
use model::{ExecutionId, JobId, RunId, Timestamp};

use crate::StoreError;
use crate::query::{Artifact, ArtifactDeletion, ArtifactFilter, DeletionReason, Quarantined, Token};

/// Tokens, artifacts, retention, quarantine and health.
#[async_trait]
pub trait Housekeeping: Send + Sync + 'static {
    /// Keeps a token's hash; one of the same id is replaced.
    async fn put_token(&self, token: &Token) -> Result<(), StoreError>;

    /// Every token's hash.
    async fn tokens(&self) -> Result<Vec<Token>, StoreError>;

    /// Records a version of an artifact; a second time for the same bytes changes nothing but makes
    /// it the newest.
    async fn put_artifact(&self, artifact: &Artifact) -> Result<(), StoreError>;

    /// Artifact versions, newest first; those of one instant by namespace and name.
    async fn artifacts(&self, filter: &ArtifactFilter, limit: usize) -> Result<Vec<Artifact>, StoreError>;

    /// Deletes a version of an artifact, unless a run needs it.
    ///
    /// A run needs the versions that its steps stored ([`StepState::pinned_versions`]). A live run needs them whatever
    /// the reason is, an ended one keeps them from retention for as long as it is kept itself. Retention deletes the
    /// version only if it is the one of this `created_at`: one that was stored again meanwhile is the newest.
    ///
    /// [`StepState::pinned_versions`]: model::run::StepState::pinned_versions
    async fn delete_artifact(
        &self,
        artifact: &Artifact,
        reason: DeletionReason,
    ) -> Result<ArtifactDeletion, StoreError>;

    /// Artifact versions that a newer version of the same name superseded before `before` and that no run which is kept
    /// needs, oldest first; at most `limit`.
    async fn superseded_artifacts(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<Artifact>, StoreError>;

    /// Ended jobs whose retention is over, with their executions; at most `limit`.
    ///
    /// Their logs are deleted first, then [`delete_jobs`](Self::delete_jobs) is called, so that nothing is left
    /// behind whatever fails in between.
    async fn expired_jobs(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(JobId, Vec<ExecutionId>)>, StoreError>;

    /// Deletes ended jobs and their executions. Idempotency keys stay until they expire by themselves.
    async fn delete_jobs(&self, jobs: &[JobId]) -> Result<(), StoreError>;

    /// Ended runs whose retention is over at `now`; at most `limit`.
    async fn expired_runs(&self, now: Timestamp, limit: usize) -> Result<Vec<RunId>, StoreError>;

    /// Deletes ended runs with their steps and what was added to these, and definitions that no run is pinned
    /// to any more.
    ///
    /// A run is gone at once and its other rows after it, a bounded number at a time. What an earlier call that
    /// broke off has left behind is deleted too.
    async fn delete_runs(&self, runs: &[RunId]) -> Result<(), StoreError>;

    /// Deletes events older than `before`.
    async fn trim_events(&self, before: Timestamp) -> Result<(), StoreError>;

    /// Deletes lines of the ledger that were decided before `before`, and backfills that ended before
    /// it; at most `limit` of both together. Says how many: fewer than `limit` means that none is left.
    ///
    /// Lines of firings that still wait for their turn stay.
    async fn trim_ledger(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;

    /// Rows that were set aside because they could not be read.
    async fn quarantined(&self, limit: usize) -> Result<Vec<Quarantined>, StoreError>;

    /// Whether it answers, and whether it takes writes (`Full` where only reading works).
    async fn check(&self) -> Result<(), StoreError>;
}
