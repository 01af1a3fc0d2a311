//! [`Housekeeping`] for PostgreSQL: artifacts, retention, quarantine and health check.
//!
//! Any server may make these changes, no matter which server owns the shards: they change only the history
//! and the registered objects. Deletes are bounded, so that a commit never waits long for a row that one of
//! them has locked.
//!
//! After the trait come the queries, each with the function that decodes its answer. A run is deleted in two
//! stages: first its rows and its definition, with a note in `runs_deleted`; then its steps, elements and
//! pins, in parts of at most [`STEPS`] rows, also after an interruption.
//!
//! A health check writes a row, because a database that answers reads may still be unable to commit.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use model::failures::{FailureGroupId, FailureMark};
use model::firing::FiringOutcome;
use model::{ExecutionId, JobId, RunId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use super::connection::Query;
use super::guard::clock;
use super::param::{big, flag, ids, int, optional_big, optional_text, text};
use super::{PostgresStore, quarantine, settings};
use crate::codec::{DecodeError, firing_outcome_code};
use crate::query::{Artifact, ArtifactDeletion, ArtifactFilter, DeletionReason, Quarantined};
use crate::rows::Fields as _;
use crate::{Housekeeping, StoreError};

/// Maximum number of event rows that one transaction examines.
const TRIM_ROWS: i64 = 10_000;
/// Maximum number of steps that one statement deletes.
const STEPS: i64 = 10_000;
/// Maximum number of steps and elements of a run that is deleted together with others.
const SMALL_RUN: i64 = 100;
/// Maximum number of batches of elements that one statement deletes; each may take a megabyte.
const BATCHES: i64 = 500;
/// Maximum number of batches of a run that are deleted together with those of others.
const SMALL_RUN_BATCHES: i64 = 5;

/// Extends a relation of the database by some 8 MB: an update of an existing row does not prove that the volume has
/// space. The relation is removed at the end of its transaction.
const SPACE: [&str; 2] = [
    "SELECT set_config('temp_tablespaces', '', true)",
    "CREATE TEMPORARY TABLE belfry_space ON COMMIT DROP AS
     SELECT repeat('x', 1900) AS part FROM generate_series(1, 4400)",
];

#[async_trait]
impl Housekeeping for PostgresStore {
    async fn put_artifact(&self, artifact: &Artifact) -> Result<(), StoreError> {
        self.trust.check()?;
        let put = self.queries.run(self.write(), &put_artifact(artifact)).await;
        // Refused because another server recorded a version at the same time; no invariant is broken.
        put.map(drop).map_err(|stopped| self.judge_query(stopped))
    }

    async fn artifacts(&self, filter: &ArtifactFilter, limit: usize) -> Result<Vec<Artifact>, StoreError> {
        let query = artifacts_query(filter, limit);
        self.ask(&[query], |answers| answers[0].iter().map(artifact).collect()).await
    }

    async fn delete_artifact(
        &self,
        artifact: &Artifact,
        reason: DeletionReason,
    ) -> Result<ArtifactDeletion, StoreError> {
        let answers = self.change(&[delete_artifact(artifact, reason)]).await?;
        artifact_deletion(&answers[0]).map_err(|damage| self.judge_change(damage))
    }

    async fn superseded_artifacts(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<Artifact>, StoreError> {
        let query = superseded_artifacts_query(before, limit);
        self.ask(&[query], |answers| answers[0].iter().map(artifact).collect()).await
    }

    async fn expired_jobs(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(JobId, Vec<ExecutionId>)>, StoreError> {
        self.ask(&[expired_query(now, limit)], |answers| expired(&answers[0])).await
    }

    async fn delete_jobs(&self, jobs: &[JobId]) -> Result<(), StoreError> {
        self.change(&delete_jobs(jobs)).await.map(drop)
    }

    async fn expired_runs(&self, now: Timestamp, limit: usize) -> Result<Vec<RunId>, StoreError> {
        let read = |answers: &[Vec<Row>]| {
            answers[0].iter().map(|row| row.bits(0, "id").map(RunId::from_bits)).collect()
        };
        self.ask(&[expired_runs_query(now, limit)], read).await
    }

    async fn delete_runs(&self, runs: &[RunId]) -> Result<(), StoreError> {
        self.change(&delete_runs(runs)).await?;
        while self.deleted(&delete_steps()).await? > 0 {}
        Ok(())
    }

    async fn trim_events(&self, before: Timestamp) -> Result<(), StoreError> {
        self.change(&trim_events(before)).await.map(drop)
    }

    async fn trim_ledger(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let lines = self.deleted(&trim_lines(before, limit)).await?;
        let room = limit.saturating_sub(usize::try_from(lines).unwrap_or(usize::MAX));
        if room == 0 {
            return Ok(lines);
        }
        Ok(lines + self.deleted(&trim_backfills(before, room)).await?)
    }

    async fn fold_statistics(&self) -> Result<u64, StoreError> {
        self.fold().await
    }

    async fn trim_statistics(&self, now: Timestamp) -> Result<u64, StoreError> {
        self.trim_series(now).await
    }

    async fn mark_failures(
        &self,
        namespace: &str,
        id: FailureGroupId,
        mark: Option<&FailureMark>,
    ) -> Result<bool, StoreError> {
        self.set_mark(namespace, id, mark).await
    }

    async fn quarantined(&self, limit: usize) -> Result<Vec<Quarantined>, StoreError> {
        let list = [quarantine::list(limit)];
        self.ask(&list, |answers| answers[0].iter().map(quarantine::quarantined).collect()).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.trust.check()?;
        let touch = concat!("UPDATE meta SET checked_at = ", clock!(), " WHERE id = 0");
        let queries = [settings::query(), Query::new(touch, Vec::new())];
        let checked = self.checks.run(self.write(), &queries).await;
        self.check_server(&checked.map_err(|stopped| self.judge_change(stopped))?[0])?;
        self.look_for_space().await
    }
}

impl PostgresStore {
    pub(super) async fn deleted(&self, queries: &[Query]) -> Result<u64, StoreError> {
        let answers = self.change(queries).await?;
        let count = answers.last().and_then(|rows| rows.first()).map_or(0, |row| row.get::<_, i64>(0));
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Checks whether space is available again after a change failed for lack of space.
    async fn look_for_space(&self) -> Result<(), StoreError> {
        if !self.full.load(Ordering::Relaxed) {
            return Ok(());
        }
        let queries = SPACE.map(|sql| Query::new(sql, Vec::new()));
        if let Err(stopped) = self.queries.run(self.write(), &queries).await {
            // The account may not create such a table, or the database does not support it: then only a change can
            // tell.
            let code = stopped.failure.state().map_or("", SqlState::code);
            if !code.starts_with("42") && !code.starts_with("0A") {
                return Err(self.judge_change(stopped));
            }
        }
        self.full.store(false, Ordering::Relaxed);
        Ok(())
    }
}

/// Records an artifact version.
///
/// Two versions of one name never have the same creation time, so that their order, and thus the newest version, is
/// always defined. Two servers that record versions of one name at the same time may choose the same creation time;
/// then one of them is refused and writes nothing.
fn put_artifact(artifact: &Artifact) -> Vec<Query> {
    vec![Query::new(
        "INSERT INTO artifacts (namespace, name, created_at, sha256, size_bytes, created_by)
         SELECT $1, $2, greatest($3, coalesce(max(a.created_at) + 1, $3)), $4, $5, $6
         FROM artifacts a WHERE a.namespace = $1 AND a.name = $2
         ON CONFLICT (namespace, name, sha256) DO UPDATE SET created_at = excluded.created_at",
        vec![
            text(&artifact.namespace),
            text(&artifact.name),
            big(artifact.created_at.as_micros()),
            text(&artifact.sha256),
            big(artifact.size_bytes.cast_signed()),
            text(&artifact.created_by),
        ],
    )]
}

/// Deletes a version of an artifact unless a run needs it. Returns that run, and whether the version was deleted.
fn delete_artifact(artifact: &Artifact, reason: DeletionReason) -> Query {
    let is_retention = reason == DeletionReason::Retention;
    Query::new(
        "WITH pinned AS (
             SELECT p.run FROM artifact_pins p JOIN runs r ON r.id = p.run
             WHERE p.sha256 = $3 AND p.name = $2 AND r.namespace = $1 AND ($4 OR r.status < 4) LIMIT 1
         ), gone AS (
             DELETE FROM artifacts WHERE namespace = $1 AND name = $2 AND sha256 = $3
                 AND ($5 IS NULL OR created_at = $5) AND NOT EXISTS (SELECT 1 FROM pinned)
             RETURNING 1
         )
         SELECT (SELECT run FROM pinned), EXISTS (SELECT 1 FROM gone)",
        vec![
            text(&artifact.namespace),
            text(&artifact.name),
            text(&artifact.sha256),
            flag(is_retention),
            optional_big(is_retention.then_some(artifact.created_at.as_micros())),
        ],
    )
}

/// Decodes the answer to [`delete_artifact`].
fn artifact_deletion(answer: &[Row]) -> Result<ArtifactDeletion, DecodeError> {
    let Some(row) = answer.first() else { return Ok(ArtifactDeletion::Absent) };
    let pinned = row.optional_bits(0, "run")?.map(RunId::from_bits);
    Ok(match pinned {
        Some(run) => ArtifactDeletion::Pinned(run),
        None if row.get(1) => ArtifactDeletion::Deleted,
        None => ArtifactDeletion::Absent,
    })
}

/// Deletes ended jobs with their executions and labels.
fn delete_jobs(jobs: &[JobId]) -> Vec<Query> {
    let all = || vec![ids(jobs.iter().map(|job| Uuid::from_u128(job.to_bits())).collect())];
    vec![
        Query::new(
            "DELETE FROM labels WHERE job = ANY($1) AND job IN (SELECT id FROM jobs_ended WHERE id = ANY($1))",
            all(),
        ),
        Query::new(
            "DELETE FROM executions_ended
             WHERE job = ANY($1) AND job IN (SELECT id FROM jobs_ended WHERE id = ANY($1))",
            all(),
        ),
        Query::new(
            "DELETE FROM checkpoints
             WHERE job = ANY($1) AND job IN (SELECT id FROM jobs_ended WHERE id = ANY($1))",
            all(),
        ),
        Query::new(
            "WITH gone AS (DELETE FROM jobs_ended WHERE id = ANY($1) RETURNING namespace, status)
             INSERT INTO job_counts (part, namespace, status, count)
             SELECT -1, namespace, status, -count(*) FROM gone
             GROUP BY namespace, status ORDER BY namespace, status
             ON CONFLICT (part, namespace, status)
             DO UPDATE SET count = job_counts.count + excluded.count",
            all(),
        ),
    ]
}

/// Deletes ended runs, without their steps and elements, and definitions that no run uses any more.
///
/// A server that starts a run with such a definition at the same time locks the definition's row until its commit. This
/// statement waits for the lock and then sees the new run, because each statement sees all commits before its start. In
/// the opposite order, the other server inserts the definition again.
fn delete_runs(runs: &[RunId]) -> Vec<Query> {
    let runs = runs.iter().map(|run| Uuid::from_u128(run.to_bits())).collect();
    vec![
        Query::new(
            "WITH gone AS (
                 DELETE FROM runs WHERE id = ANY($1) AND status >= 4 RETURNING id
             ), heads AS (
                 DELETE FROM run_heads WHERE id IN (SELECT id FROM gone) RETURNING id, definition
             )
             INSERT INTO runs_deleted (run, definition)
             SELECT g.id, h.definition FROM gone g LEFT JOIN heads h ON h.id = g.id
             ON CONFLICT (run) DO NOTHING",
            vec![ids(runs)],
        ),
        Query::new(
            "SELECT hash FROM run_definitions WHERE hash IN (SELECT definition FROM runs_deleted)
             ORDER BY hash FOR UPDATE",
            Vec::new(),
        ),
        Query::new(
            "DELETE FROM run_definitions d WHERE d.hash IN (SELECT definition FROM runs_deleted)
             AND NOT EXISTS (SELECT 1 FROM run_heads h WHERE h.definition = d.hash)",
            Vec::new(),
        ),
    ]
}

/// Deletes steps and elements of deleted runs, and the entries of such runs that have neither any more. Returns the
/// number of entries that are left.
///
/// Rows are selected by their runs, never joined, so that any plan reads only the needed part of the key (`OFFSET`
/// keeps the planner from turning `EXISTS` into a join). Many small runs are deleted at once, a large one in parts.
fn delete_steps() -> Vec<Query> {
    vec![
        Query::new(
            "DELETE FROM element_batches WHERE run = ANY(ARRAY(
                 SELECT d.run FROM runs_deleted d
                 WHERE EXISTS (SELECT 1 FROM element_batches b WHERE b.run = d.run OFFSET 0)
                 AND NOT EXISTS (SELECT 1 FROM element_batches b WHERE b.run = d.run OFFSET $1)
                 ORDER BY d.run LIMIT $2))",
            vec![big(SMALL_RUN_BATCHES), big(BATCHES / SMALL_RUN_BATCHES)],
        ),
        Query::new(
            "DELETE FROM steps WHERE run = ANY(ARRAY(
                 SELECT d.run FROM runs_deleted d
                 WHERE NOT EXISTS (SELECT 1 FROM steps s WHERE s.run = d.run OFFSET $1)
                 ORDER BY d.run LIMIT $2))",
            vec![big(SMALL_RUN), big(STEPS / SMALL_RUN)],
        ),
        Query::new(
            "DELETE FROM artifact_pins WHERE run = ANY(ARRAY(
                 SELECT d.run FROM runs_deleted d
                 WHERE EXISTS (SELECT 1 FROM artifact_pins p WHERE p.run = d.run OFFSET 0)
                 AND NOT EXISTS (SELECT 1 FROM artifact_pins p WHERE p.run = d.run OFFSET $1)
                 ORDER BY d.run LIMIT $2))",
            vec![big(SMALL_RUN), big(STEPS / SMALL_RUN)],
        ),
        Query::new(
            "DELETE FROM runs_deleted d
             WHERE NOT EXISTS (SELECT 1 FROM steps s WHERE s.run = d.run OFFSET 0)
             AND NOT EXISTS (SELECT 1 FROM artifact_pins p WHERE p.run = d.run OFFSET 0)
             AND NOT EXISTS (SELECT 1 FROM element_batches b WHERE b.run = d.run OFFSET 0)",
            Vec::new(),
        ),
        Query::new(
            "WITH one AS (
                 SELECT run FROM runs_deleted ORDER BY run LIMIT 1
             ), bound AS (
                 SELECT name, sha256 FROM artifact_pins WHERE run = (SELECT run FROM one)
                 ORDER BY name, sha256 LIMIT 1 OFFSET $1
             )
             DELETE FROM artifact_pins WHERE run = (SELECT run FROM one)
             AND (NOT EXISTS (SELECT 1 FROM bound)
                  OR (name, sha256) <= ((SELECT name FROM bound), (SELECT sha256 FROM bound)))",
            vec![big(STEPS - 1)],
        ),
        Query::new(
            "WITH one AS (
                 SELECT run FROM runs_deleted ORDER BY run LIMIT 1
             ), bound AS (
                 SELECT step, first FROM element_batches WHERE run = (SELECT run FROM one)
                 ORDER BY step, first LIMIT 1 OFFSET $1
             )
             DELETE FROM element_batches WHERE run = (SELECT run FROM one)
             AND (step, first)
                 <= (coalesce((SELECT step FROM bound), $2), coalesce((SELECT first FROM bound), $2))",
            vec![big(BATCHES - 1), big(i64::MAX)],
        ),
        Query::new(
            "WITH one AS (
                 SELECT run FROM runs_deleted ORDER BY run LIMIT 1
             ), bound AS (
                 SELECT list, number FROM steps WHERE run = (SELECT run FROM one)
                 ORDER BY list, number LIMIT 1 OFFSET $1
             )
             DELETE FROM steps WHERE run = (SELECT run FROM one)
             AND (list, number)
                 <= (coalesce((SELECT list FROM bound), $2), coalesce((SELECT number FROM bound), $2))",
            vec![big(STEPS - 1), big(i64::MAX)],
        ),
        Query::new("SELECT count(*) FROM runs_deleted", Vec::new()),
    ]
}

/// Deletes event rows from the oldest on; stops at the first row that is new enough.
fn trim_events(before: Timestamp) -> Vec<Query> {
    vec![Query::new(
        "DELETE FROM events WHERE first < coalesce(
             (SELECT min(first) FROM (SELECT first, at FROM events ORDER BY first LIMIT $2) AS oldest
              WHERE at >= $1),
             (SELECT max(first) + 1 FROM (SELECT first FROM events ORDER BY first LIMIT $2) AS oldest), 0)",
        vec![big(before.as_micros()), big(TRIM_ROWS)],
    )]
}

/// Deletes old ledger entries, oldest scheduled time first, then old backfills. Returns the number of both.
///
/// A scheduled time is decided after it has passed, so old entries are at the start of the table, and no index by
/// decision time is needed.
fn trim_lines(before: Timestamp, limit: usize) -> Vec<Query> {
    vec![Query::new(
        "WITH old AS (
             SELECT first, schedule, generation, cause, backfill FROM ledger
             WHERE first < $1 AND decided_at < $1 AND outcome <> $2
             ORDER BY first, schedule, generation, cause, backfill LIMIT $3
         ), gone AS (
             DELETE FROM ledger l USING old o
             WHERE l.first = o.first AND l.schedule = o.schedule AND l.generation = o.generation
               AND l.cause = o.cause AND l.backfill = o.backfill AND l.decided_at < $1 AND l.outcome <> $2
             RETURNING 1
         )
         SELECT count(*) FROM gone",
        vec![
            big(before.as_micros()),
            int(firing_outcome_code(FiringOutcome::Buffered).into()),
            big(i64::try_from(limit).unwrap_or(i64::MAX)),
        ],
    )]
}

/// Deletes ended backfills, as [`trim_lines`] does for ledger entries.
fn trim_backfills(before: Timestamp, limit: usize) -> Vec<Query> {
    vec![Query::new(
        "WITH gone AS (
             DELETE FROM backfills WHERE id IN (
                 SELECT id FROM backfills WHERE status <> 0 AND finished_at < $1 ORDER BY id LIMIT $2)
             RETURNING id
         ), heads AS (
             DELETE FROM backfill_heads WHERE id IN (SELECT id FROM gone) RETURNING 1
         )
         SELECT count(*) FROM gone",
        vec![big(before.as_micros()), big(i64::try_from(limit).unwrap_or(i64::MAX))],
    )]
}

/// Selects artifact versions, newest first; versions with equal creation time are ordered by namespace and name.
fn artifacts_query(filter: &ArtifactFilter, limit: usize) -> Query {
    let after = filter.after.as_ref();
    Query::new(
        "SELECT namespace, name, sha256, size_bytes, created_at, created_by FROM artifacts a
         WHERE ($1 IS NULL OR namespace = $1) AND ($2 IS NULL OR name = $2) AND ($3 IS NULL OR sha256 = $3)
           AND ($4 IS NULL OR created_at < $4 OR (created_at = $4 AND (namespace, name) > ($5, $6)))
           AND (NOT $7 OR created_at = (SELECT max(created_at) FROM artifacts n
                                        WHERE n.namespace = a.namespace AND n.name = a.name))
         ORDER BY created_at DESC, namespace, name LIMIT $8",
        vec![
            optional_text(filter.namespace.as_deref()),
            optional_text(filter.name.as_deref()),
            optional_text(filter.sha256.as_deref()),
            optional_big(after.map(|(_, _, at)| at.as_micros())),
            optional_text(after.map(|(namespace, _, _)| namespace.as_str())),
            optional_text(after.map(|(_, name, _)| name.as_str())),
            flag(filter.newest_only),
            big(i64::try_from(limit).unwrap_or(i64::MAX)),
        ],
    )
}

/// Selects artifact versions, oldest first, that a newer version superseded before `before` and that no run needs.
fn superseded_artifacts_query(before: Timestamp, limit: usize) -> Query {
    Query::new(
        "SELECT namespace, name, sha256, size_bytes, created_at, created_by FROM artifacts a
         WHERE EXISTS (SELECT 1 FROM artifacts n WHERE n.namespace = a.namespace AND n.name = a.name
                           AND n.created_at > a.created_at AND n.created_at < $1)
           AND NOT EXISTS (SELECT 1 FROM artifact_pins p JOIN runs r ON r.id = p.run
                           WHERE p.sha256 = a.sha256 AND p.name = a.name AND r.namespace = a.namespace)
         ORDER BY created_at, namespace, name LIMIT $2",
        vec![big(before.as_micros()), big(i64::try_from(limit).unwrap_or(i64::MAX))],
    )
}

/// Decodes a row of [`artifacts_query`].
fn artifact(row: &Row) -> Result<Artifact, DecodeError> {
    Ok(Artifact {
        namespace: row.text(0, "namespace")?.into_owned(),
        name: row.text(1, "name")?.into_owned(),
        sha256: row.text(2, "sha256")?.into_owned(),
        size_bytes: row.number(3, "size_bytes")?,
        created_at: Timestamp::from_micros(row.number(4, "created_at")?),
        created_by: row.text(5, "created_by")?.into_owned(),
    })
}

/// Selects ended runs whose retention is over, longest expired first.
fn expired_runs_query(now: Timestamp, limit: usize) -> Query {
    Query::new(
        "SELECT id FROM runs WHERE expires_at IS NOT NULL AND expires_at <= $1 AND status >= 4
         ORDER BY expires_at, id LIMIT $2",
        vec![big(now.as_micros()), big(i64::try_from(limit).unwrap_or(i64::MAX))],
    )
}

/// Selects ended jobs whose retention is over, longest expired first, with their executions.
fn expired_query(now: Timestamp, limit: usize) -> Query {
    Query::new(
        "SELECT t.id, e.id FROM (
             SELECT id, expires_at FROM jobs_ended WHERE expires_at IS NOT NULL AND expires_at <= $1
             ORDER BY expires_at, id LIMIT $2
         ) AS t LEFT JOIN executions_ended e ON e.job = t.id
         ORDER BY t.expires_at, t.id, e.number",
        vec![big(now.as_micros()), big(i64::try_from(limit).unwrap_or(i64::MAX))],
    )
}

/// Decodes the answer to [`expired_query`].
fn expired(answer: &[Row]) -> Result<Vec<(JobId, Vec<ExecutionId>)>, DecodeError> {
    let mut jobs: Vec<(JobId, Vec<ExecutionId>)> = Vec::new();
    for row in answer {
        let job = JobId::from_bits(row.bits(0, "id")?);
        if jobs.last().is_none_or(|(last, _)| *last != job) {
            jobs.push((job, Vec::new()));
        }
        if let (Some((_, executions)), Some(bits)) = (jobs.last_mut(), row.optional_bits(1, "id")?) {
            executions.push(ExecutionId::from_bits(bits));
        }
    }
    Ok(jobs)
}
