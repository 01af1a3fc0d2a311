//! [`Housekeeping`] for SQLite: artifacts, retention, quarantine and health check.
//!
//! First the queries, then the changes that the writer thread executes in its transactions. Deletes are
//! bounded, so that a batch never waits long for one.
//!
//! A run is deleted in two stages: first its rows and its definition, with a note in `runs_deleted`; then its
//! steps, elements and pins, some [`STEPS_AT_ONCE`] rows in a transaction, also after an interruption. Ledger entries
//! are selected by a reader and deleted by the writer, which checks them again, because they may have changed
//! in between.

use async_trait::async_trait;
use model::failures::{FailureGroupId, FailureMark};
use model::firing::FiringOutcome;
use model::{BackfillId, ExecutionId, JobId, RunId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, Statement, ToSql, params};

use super::commit::{delete_labels, write_counters};
use super::error::Failure;
use super::operation::Operation;
use super::statements::Statements;
use super::{SqliteStore, quarantine};
use crate::batch::Counters;
use crate::codec::firing_outcome_code;
use crate::command::{EVENTS_AT_ONCE, STEPS_AT_ONCE, Update};
use crate::query::{Artifact, ArtifactDeletion, ArtifactFilter, DeletionReason, LedgerPosition, Quarantined};
use crate::{Housekeeping, StoreError};

/// Number of steps that a batch of elements counts as there; the batch may take a megabyte.
pub(super) const STEPS_A_BATCH: usize = 20;

#[async_trait]
impl Housekeeping for SqliteStore {
    async fn put_artifact(&self, artifact: &Artifact) -> Result<(), StoreError> {
        self.writer.done(Update::PutArtifact(artifact.clone())).await
    }

    async fn artifacts(&self, filter: &ArtifactFilter, limit: usize) -> Result<Vec<Artifact>, StoreError> {
        let filter = filter.clone();
        self.readers.read(move |connection| artifacts(connection, &filter, limit)).await
    }

    async fn delete_artifact(
        &self,
        artifact: &Artifact,
        reason: DeletionReason,
    ) -> Result<ArtifactDeletion, StoreError> {
        self.writer.artifact(Update::DeleteArtifact { artifact: artifact.clone(), reason }).await
    }

    async fn superseded_artifacts(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<Artifact>, StoreError> {
        self.readers.read(move |connection| superseded_artifacts(connection, before, limit)).await
    }

    async fn expired_jobs(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(JobId, Vec<ExecutionId>)>, StoreError> {
        self.readers.read(move |connection| expired_jobs(connection, now, limit)).await
    }

    async fn delete_jobs(&self, jobs: &[JobId]) -> Result<(), StoreError> {
        self.writer.done(Update::DeleteJobs(jobs.to_vec())).await
    }

    async fn expired_runs(&self, now: Timestamp, limit: usize) -> Result<Vec<RunId>, StoreError> {
        self.readers.read(move |connection| expired_runs(connection, now, limit)).await
    }

    async fn delete_runs(&self, runs: &[RunId]) -> Result<(), StoreError> {
        self.writer.done(Update::DeleteRuns(runs.to_vec())).await?;
        while self.writer.changed(Update::DeleteSteps).await? > 0 {}
        Ok(())
    }

    async fn trim_events(&self, before: Timestamp) -> Result<(), StoreError> {
        self.writer.done(Update::TrimEvents(before)).await
    }

    async fn trim_ledger(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        match self.trimmable_ledger(before, limit).await? {
            Some(trim) => self.writer.changed(trim).await,
            None => Ok(0),
        }
    }

    async fn fold_statistics(&self) -> Result<u64, StoreError> {
        self.writer.changed(Update::FoldStatistics(self.clock.now())).await
    }

    async fn trim_statistics(&self, now: Timestamp) -> Result<u64, StoreError> {
        self.writer.changed(Update::TrimStatistics(now)).await
    }

    async fn mark_failures(
        &self,
        namespace: &str,
        id: FailureGroupId,
        mark: Option<&FailureMark>,
    ) -> Result<bool, StoreError> {
        Ok(self.writer.changed(Update::mark_failures(namespace, id, mark)).await? > 0)
    }

    async fn quarantined(&self, limit: usize) -> Result<Vec<Quarantined>, StoreError> {
        self.readers.read(move |connection| quarantine::list(connection, limit)).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.writer.done(Operation::Check(self.clock.now())).await
    }
}

impl SqliteStore {
    /// Returns the change that deletes what [`Housekeeping::trim_ledger`] would delete now; `None` if that is nothing.
    ///
    /// # Errors
    /// As those of a query.
    pub async fn trimmable_ledger(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Option<Update>, StoreError> {
        let trimmable = move |connection: &Connection| {
            let lines = trimmable_lines(connection, before, limit)?;
            let backfills = trimmable_backfills(connection, before, limit - lines.len())?;
            Ok((lines, backfills))
        };
        let (lines, backfills) = self.readers.read(trimmable).await?;
        let is_empty = lines.is_empty() && backfills.is_empty();
        Ok((!is_empty).then_some(Update::TrimLedger { before, lines, backfills }))
    }
}

/// Returns artifact versions, newest first; versions with equal creation time are ordered by namespace and name.
fn artifacts(
    connection: &Connection,
    filter: &ArtifactFilter,
    limit: usize,
) -> Result<Vec<Artifact>, Failure> {
    let mut statement = connection.prepare_cached(
        "SELECT namespace, name, sha256, size_bytes, created_at, created_by FROM artifacts a
         WHERE (?1 IS NULL OR namespace = ?1) AND (?2 IS NULL OR name = ?2) AND (?3 IS NULL OR sha256 = ?3)
           AND (?4 IS NULL OR created_at < ?4 OR (created_at = ?4 AND (namespace, name) > (?5, ?6)))
           AND (NOT ?7 OR created_at = (SELECT max(created_at) FROM artifacts n
                                        WHERE n.namespace = a.namespace AND n.name = a.name))
         ORDER BY created_at DESC, namespace, name LIMIT ?8",
    )?;
    let after = filter.after.as_ref();
    let rows = statement.query_map(
        params![
            filter.namespace,
            filter.name,
            filter.sha256,
            after.map(|(_, _, at)| at.as_micros()),
            after.map(|(namespace, _, _)| namespace),
            after.map(|(_, name, _)| name),
            filter.newest_only,
            i64::try_from(limit).unwrap_or(i64::MAX),
        ],
        artifact,
    )?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Returns artifact versions, oldest first, that a newer version superseded before `before` and that no run needs.
fn superseded_artifacts(
    connection: &Connection,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<Artifact>, Failure> {
    let mut statement = connection.prepare_cached(
        "SELECT namespace, name, sha256, size_bytes, created_at, created_by FROM artifacts a
         WHERE EXISTS (SELECT 1 FROM artifacts n WHERE n.namespace = a.namespace AND n.name = a.name
                           AND n.created_at > a.created_at AND n.created_at < ?1)
           AND NOT EXISTS (SELECT 1 FROM artifact_pins p JOIN runs r ON r.id = p.run
                           WHERE p.sha256 = a.sha256 AND p.name = a.name AND r.namespace = a.namespace)
         ORDER BY created_at, namespace, name LIMIT ?2",
    )?;
    let rows = statement
        .query_map(params![before.as_micros(), i64::try_from(limit).unwrap_or(i64::MAX)], artifact)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn artifact(row: &Row<'_>) -> rusqlite::Result<Artifact> {
    Ok(Artifact {
        namespace: row.get(0)?,
        name: row.get(1)?,
        sha256: row.get(2)?,
        size_bytes: row.get(3)?,
        created_at: Timestamp::from_micros(row.get(4)?),
        created_by: row.get(5)?,
    })
}

/// Returns ended jobs whose retention is over, longest expired first, with their executions.
fn expired_jobs(
    connection: &Connection,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<(JobId, Vec<ExecutionId>)>, Failure> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let jobs = ids(
        connection,
        "SELECT id FROM jobs_ended INDEXED BY jobs_ended_expiry
         WHERE expires_at IS NOT NULL AND expires_at <= ?1 ORDER BY expires_at LIMIT ?2",
        params![now.as_micros(), limit],
    )?;
    jobs.into_iter()
        .map(|job| {
            let sql = "SELECT id FROM executions_ended WHERE job = ?1 ORDER BY number";
            let executions = ids(connection, sql, params![job.to_be_bytes()])?;
            Ok((JobId::from_bits(job), executions.into_iter().map(ExecutionId::from_bits).collect()))
        })
        .collect()
}

/// Returns ended runs whose retention is over, longest expired first.
fn expired_runs(connection: &Connection, now: Timestamp, limit: usize) -> Result<Vec<RunId>, Failure> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let runs = ids(
        connection,
        "SELECT id FROM runs INDEXED BY runs_expiry
         WHERE expires_at IS NOT NULL AND expires_at <= ?1 AND status >= 4 ORDER BY expires_at LIMIT ?2",
        params![now.as_micros(), limit],
    )?;
    Ok(runs.into_iter().map(RunId::from_bits).collect())
}

fn ids(connection: &Connection, sql: &str, values: &[&dyn ToSql]) -> Result<Vec<u128>, Failure> {
    let mut statement = connection.prepare_cached(sql)?;
    let ids = statement.query_map(values, |row| row.get(0).map(u128::from_be_bytes))?;
    Ok(ids.collect::<rusqlite::Result<_>>()?)
}

/// Returns at most `limit` ledger entries that were decided before `before`, oldest scheduled time first.
///
/// A scheduled time is decided after it has passed, so these entries are at the start of the table, and no index by
/// decision time is needed. Entries that must stay are skipped.
fn trimmable_lines(
    connection: &Connection,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<LedgerPosition>, Failure> {
    let mut statement = connection.prepare_cached(
        "SELECT first, schedule, generation, cause, backfill FROM ledger
         WHERE first < ?1 AND decided_at < ?1 AND outcome <> ?2
         ORDER BY first, schedule, generation, cause, backfill LIMIT ?3",
    )?;
    let buffered = firing_outcome_code(FiringOutcome::Buffered);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let places = statement.query_map(params![before.as_micros(), buffered, limit], |row| {
        let backfill: Vec<u8> = row.get(4)?;
        Ok(LedgerPosition {
            first_micros: row.get(0)?,
            schedule: row.get(1).map(u128::from_be_bytes)?,
            generation: row.get(2)?,
            cause: row.get(3)?,
            backfill: <[u8; 16]>::try_from(&*backfill).map_or(0, u128::from_be_bytes),
        })
    })?;
    Ok(places.collect::<rusqlite::Result<_>>()?)
}

/// Returns at most `limit` backfills that ended before `before`. Reads all backfills, because there are few.
fn trimmable_backfills(
    connection: &Connection,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<BackfillId>, Failure> {
    let mut statement = connection.prepare_cached(
        "SELECT id FROM backfills WHERE status <> 0 AND finished_at < ?1 ORDER BY id LIMIT ?2",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let ids = statement.query_map(params![before.as_micros(), limit], |row| {
        row.get(0).map(|bits| BackfillId::from_bits(u128::from_be_bytes(bits)))
    })?;
    Ok(ids.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn put_artifact(statements: &mut Statements<'_>, artifact: &Artifact) -> Result<(), Failure> {
    let newest: Option<i64> = statements
        .artifact_newest
        .query_row(params![artifact.namespace, artifact.name], |row| row.get(0))
        .optional()?;
    // Two versions of one name never have the same creation time, so that their order, and thus the newest version, is
    // always defined.
    let at = artifact.created_at.as_micros().max(newest.map_or(i64::MIN, |at| at.saturating_add(1)));
    statements.artifact_put.execute(params![
        artifact.namespace,
        artifact.name,
        at,
        artifact.sha256,
        artifact.size_bytes,
        artifact.created_by,
    ])?;
    Ok(())
}

/// Deletes a version unless a run needs it. Retention deletes only the version that it listed: if it was stored again
/// since, it is the newest version.
pub(super) fn delete_artifact(
    statements: &mut Statements<'_>,
    artifact: &Artifact,
    reason: DeletionReason,
) -> Result<ArtifactDeletion, Failure> {
    let Artifact { namespace, name, sha256, .. } = artifact;
    let is_retention = reason == DeletionReason::Retention;
    let pinned: Option<[u8; 16]> = statements
        .artifact_pinned
        .query_row(params![namespace, name, sha256, is_retention], |row| row.get(0))
        .optional()?;
    if let Some(run) = pinned {
        return Ok(ArtifactDeletion::Pinned(RunId::from_bits(u128::from_be_bytes(run))));
    }
    let created_at = is_retention.then_some(artifact.created_at.as_micros());
    match statements.artifact_delete.execute(params![namespace, name, sha256, created_at])? {
        0 => Ok(ArtifactDeletion::Absent),
        _ => Ok(ArtifactDeletion::Deleted),
    }
}

pub(super) fn delete_jobs(statements: &mut Statements<'_>, jobs: &[JobId]) -> Result<(), Failure> {
    let mut counters = Counters::default();
    for &job in jobs {
        let key = job.to_bits().to_be_bytes();
        let found: Option<(u8, String, Vec<u8>)> = statements
            .job_look_ended
            .query_row([key], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        let Some((status, namespace, head)) = found else { continue };
        delete_labels(statements, job, &head)?;
        statements.executions_delete_ended.execute([key])?;
        statements.checkpoint_delete.execute([key])?;
        statements.job_delete_ended.execute([key])?;
        counters.add(&namespace, status, -1);
    }
    write_counters(statements, counters.changes())
}

/// Deletes ended runs, without their steps and elements, and definitions that no run uses any more.
///
/// A run that starts with such a definition at the same time is written before or after this: one thread writes, and a
/// new run contains its definition.
pub(super) fn delete_runs(statements: &mut Statements<'_>, runs: &[RunId]) -> Result<(), Failure> {
    for run in runs {
        let key = run.to_bits().to_be_bytes();
        if statements.run_forget.execute([key])? > 0 {
            statements.run_head_delete.execute([key])?;
            statements.run_delete.execute([key])?;
        }
    }
    statements.run_definitions_trim.execute([])?;
    Ok(())
}

/// Deletes steps and elements of deleted runs. Returns the approximate number of deleted rows; 0 means that none are
/// left.
pub(super) fn delete_steps(statements: &mut Statements<'_>) -> Result<u64, Failure> {
    let mut room = STEPS_AT_ONCE;
    while room > 0 {
        let next: Option<[u8; 16]> =
            statements.run_deleted_next.query_row([], |row| row.get(0)).optional()?;
        let Some(run) = next else { break };
        let Statements { elements_bound, elements_delete_to, .. } = statements;
        let batches = delete_first(elements_bound, elements_delete_to, run, room.div_ceil(STEPS_A_BATCH))?;
        room = room.saturating_sub(batches * STEPS_A_BATCH);
        if room == 0 {
            break;
        }
        let Statements { pins_bound, pins_delete_to, .. } = statements;
        room -= delete_first_pins(pins_bound, pins_delete_to, run, room)?;
        if room == 0 {
            break;
        }
        let Statements { steps_bound, steps_delete_to, .. } = statements;
        let steps = delete_first(steps_bound, steps_delete_to, run, room)?;
        room -= steps;
        if room > 0 {
            // The run's own row counts too, so that many runs with few steps also reach the limit.
            statements.run_deleted_forget.execute([run])?;
            room -= 1;
        }
    }
    Ok((STEPS_AT_ONCE - room) as u64)
}

/// Deletes the first rows of a run in a table, at most `limit`. Fewer deleted rows mean that none are left.
fn delete_first(
    bound: &mut Statement<'_>,
    delete_to: &mut Statement<'_>,
    run: [u8; 16],
    limit: usize,
) -> Result<usize, Failure> {
    let last: Option<(i64, i64)> =
        bound.query_row(params![run, limit - 1], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let (first, second) = last.unwrap_or((i64::MAX, i64::MAX));
    Ok(delete_to.execute(params![run, first, second])?)
}

/// Deletes versions that a run pinned, as [`delete_first`] does.
fn delete_first_pins(
    bound: &mut Statement<'_>,
    delete_to: &mut Statement<'_>,
    run: [u8; 16],
    limit: usize,
) -> Result<usize, Failure> {
    let last: Option<(String, String)> =
        bound.query_row(params![run, limit - 1], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    // Names are ASCII, so this sorts after all of them.
    let (name, sha256) = last.unwrap_or_else(|| ("\u{10ffff}".into(), String::new()));
    Ok(delete_to.execute(params![run, name, sha256])?)
}

/// Deletes event rows from the oldest on; stops at the first row that is new enough.
pub(super) fn trim_events(statements: &mut Statements<'_>, before: Timestamp) -> Result<(), Failure> {
    let oldest: Vec<(i64, i64)> = statements
        .events_oldest
        .query_map([EVENTS_AT_ONCE], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (first, _) in oldest.iter().take_while(|(_, at)| *at < before.as_micros()) {
        statements.event_delete.execute([first])?;
    }
    Ok(())
}

/// Deletes the listed ledger entries and backfills if they are still old enough.
pub(super) fn trim_ledger(
    statements: &mut Statements<'_>,
    before: Timestamp,
    lines: &[LedgerPosition],
    backfills: &[BackfillId],
) -> Result<u64, Failure> {
    let mut deleted = 0;
    for place in lines {
        let backfill = if place.backfill == 0 { Vec::new() } else { place.backfill.to_be_bytes().to_vec() };
        deleted += statements.ledger_trim.execute(params![
            place.first_micros,
            place.schedule.to_be_bytes(),
            place.generation,
            place.cause,
            backfill,
            before.as_micros(),
            firing_outcome_code(FiringOutcome::Buffered),
        ])?;
    }
    for id in backfills {
        let key = id.to_bits().to_be_bytes();
        let gone = statements.backfill_trim.execute(params![key, before.as_micros()])?;
        if gone > 0 {
            statements.backfill_head_delete.execute([key])?;
        }
        deleted += gone;
    }
    Ok(deleted as u64)
}
