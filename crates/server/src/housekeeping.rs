//! Retention: deletes expired jobs with their logs, ended runs with their steps, superseded artifact versions, old
//! events, and old entries of ledgers, of the audit log and of the changelog.
//!
//! The leader runs it. Each round is bounded, and rounds follow each other at once while there is more to delete.
//!
//! # Invariants
//! - Logs are deleted before their rows, so that a crash in between leaves no orphaned log.
//! - Idempotency keys are not touched: they outlive their jobs, and the engine deletes them.
//! - Expiry is measured by the earlier of the wall clock and `View::purge_before`: a jump of either deletes
//!   nothing early.

use std::time::Duration;

use futures::StreamExt as _;
use model::error_chain::Chain;
use model::{ExecutionId, JobId, Timestamp};
use store::StoreError;
use store::query::DeletionReason;

use crate::clock::{Clock as _, SystemClock};
use crate::objects::ObjectError;
use crate::services::Services;

/// Most jobs of one round.
const JOBS: usize = 500;
/// Most runs of one round. They have many more steps, which the store deletes in bounded batches.
const RUNS: usize = 100;
/// Most artifact versions of one round.
const ARTIFACTS: usize = 100;
/// Most ledger entries deleted at a time.
const LEDGER_LINES: usize = 1_000;
/// Most entries of the audit log deleted at a time.
const AUDIT_ENTRIES: usize = 1_000;
/// Most logs deleted concurrently.
const LOGS: usize = 16;
/// Interval of trimming events and the ledger.
const TRIM_EVERY: Duration = Duration::from_secs(600);

/// Runs rounds until the future is dropped.
pub async fn run(services: Services) {
    let mut rounds = tokio::time::interval(services.config.housekeeping_interval.to_std());
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut trimmed: Option<tokio::time::Instant> = None;
    loop {
        rounds.tick().await;
        // One server of the cluster suffices: the leader.
        if services.node.check_leading().is_err() {
            continue;
        }
        if let Some(changelog) = services.node.store().changelog()
            && let Err(error) = changelog.trim().await
        {
            tracing::warn!(error = %Chain(&error), "cannot trim the changelog; retrying later");
        }
        // Neither a wall clock nor an engine time that jumped ahead may delete anything early.
        let now = services.node.view().purge_before.min(SystemClock.now());
        while sweep(&services, now).await {
            tokio::task::yield_now().await;
        }
        if trimmed.is_none_or(|at| at.elapsed() >= TRIM_EVERY) {
            trim(&services, now).await;
            trimmed = Some(tokio::time::Instant::now());
        }
    }
}

/// Runs one round. Returns whether there is more to delete.
pub async fn sweep(services: &Services, now: Timestamp) -> bool {
    let jobs = delete_expired(services, now).await;
    let runs = delete_expired_runs(services, now).await;
    let artifacts = delete_superseded_artifacts(services, now).await;
    is_full(jobs, JOBS, "jobs") | is_full(runs, RUNS, "runs") | is_full(artifacts, ARTIFACTS, "artifacts")
}

async fn delete_superseded_artifacts(services: &Services, now: Timestamp) -> Result<usize, ObjectError> {
    let Some(retention) = services.config.artifact_retention else { return Ok(0) };
    let superseded = services.node.store().superseded_artifacts(now - retention, ARTIFACTS).await?;
    for artifact in &superseded {
        // Keeps a version that a run has pinned or a user has stored again meanwhile.
        services.objects.artifacts.delete(artifact, DeletionReason::Retention).await?;
    }
    Ok(superseded.len())
}

/// Returns whether the round reached its limit; logs an error.
fn is_full(
    deleted: Result<usize, impl std::error::Error + 'static>,
    limit: usize,
    kind: &'static str,
) -> bool {
    match deleted {
        Ok(deleted) => deleted == limit,
        Err(error) => {
            tracing::warn!(kind, error = %Chain(&error), "cannot delete expired objects; retrying later");
            false
        }
    }
}

async fn delete_expired_runs(services: &Services, now: Timestamp) -> Result<usize, StoreError> {
    let store = services.node.store();
    let runs = store.expired_runs(now, RUNS).await?;
    if !runs.is_empty() {
        store.delete_runs(&runs).await?;
        tracing::debug!(runs = runs.len(), "deleted expired runs");
    }
    Ok(runs.len())
}

async fn delete_expired(services: &Services, now: Timestamp) -> Result<usize, StoreError> {
    let store = services.node.store();
    let expired = store.expired_jobs(now, JOBS).await?;
    let jobs: Vec<JobId> = futures::stream::iter(expired)
        .map(|(job, executions)| async move { delete_logs(services, &executions).await.then_some(job) })
        .buffer_unordered(LOGS)
        .filter_map(std::future::ready)
        .collect()
        .await;
    if !jobs.is_empty() {
        store.delete_jobs(&jobs).await?;
        tracing::debug!(jobs = jobs.len(), "deleted expired jobs");
    }
    Ok(jobs.len())
}

/// Returns whether all logs are deleted; otherwise the job is kept.
async fn delete_logs(services: &Services, executions: &[ExecutionId]) -> bool {
    for &execution in executions {
        if let Err(error) = services.objects.logs.delete(execution).await {
            tracing::warn!(
                execution_id = %execution, error = %Chain(&error),
                "cannot delete a log; retrying later"
            );
            return false;
        }
    }
    true
}

async fn trim(services: &Services, now: Timestamp) {
    let before = now - services.config.event_retention;
    if let Err(error) = services.node.store().trim_events(before).await {
        tracing::warn!(error = %Chain(&error), "cannot trim events; retrying later");
    }
    // Deletes steps left over by an interrupted deletion.
    if let Err(error) = services.node.store().delete_runs(&[]).await {
        tracing::warn!(error = %Chain(&error), "cannot delete the steps of deleted runs; retrying later");
    }
    if let Err(error) = trim_ledger(services, now - services.config.ledger_retention).await {
        tracing::warn!(error = %Chain(&error), "cannot trim the ledger; retrying later");
    }
    if let Err(error) = trim_audit(services, now - services.config.audit_retention).await {
        tracing::warn!(error = %Chain(&error), "cannot trim the audit log; retrying later");
    }
}

async fn trim_audit(services: &Services, before: Timestamp) -> Result<(), StoreError> {
    while services.node.store().trim_audit(before, AUDIT_ENTRIES).await? == AUDIT_ENTRIES as u64 {
        tokio::task::yield_now().await;
    }
    Ok(())
}

async fn trim_ledger(services: &Services, before: Timestamp) -> Result<(), StoreError> {
    while services.node.store().trim_ledger(before, LEDGER_LINES).await? == LEDGER_LINES as u64 {
        tokio::task::yield_now().await;
    }
    Ok(())
}
