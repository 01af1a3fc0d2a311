//! Changes that no engine decides: tokens, artifacts, retention.
//!
//! Any server may make them, whoever owns the shards: they touch the history and the registry only.

use model::firing::FiringOutcome;
use model::{JobId, RunId, Timestamp};
use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::Query;
use super::param::{big, bytes, flag, ids, int, optional_big, text};
use crate::codec::{Damage, firing_outcome_code, token_kind_code};
use crate::query::{Artifact, ArtifactDeletion, DeletionReason, Token};
use crate::rows::Fields as _;

/// Rows of events that are looked at in one transaction.
const TRIM_ROWS: i64 = 10_000;
/// Steps that one statement deletes.
const STEPS: i64 = 10_000;
/// Steps and elements of a run that is deleted together with others.
const SMALL_RUN: i64 = 100;
/// Batches of elements that one statement deletes; each may be a megabyte.
const BATCHES: i64 = 500;
/// Batches of a run that are deleted together with those of others.
const SMALL_RUN_BATCHES: i64 = 5;

/// Keeps a token's hash.
pub(super) fn put_token(token: &Token) -> Vec<Query> {
    vec![Query::new(
        "INSERT INTO tokens (id, kind, name, hash, created_at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (id) DO UPDATE SET kind = excluded.kind, name = excluded.name,
             hash = excluded.hash, created_at = excluded.created_at",
        vec![
            text(&token.id),
            int(token_kind_code(token.kind).into()),
            text(&token.name),
            bytes(token.hash.to_vec()),
            big(token.created_at.as_micros()),
        ],
    )]
}

/// Records a version of an artifact.
///
/// Two versions of one name never share an instant: the order of the list, and with it which one is the
/// newest, is always clear. Two servers that record versions of one name at the same time may choose
/// the same instant; one of them is refused, and nothing of it is done.
pub(super) fn put_artifact(artifact: &Artifact) -> Vec<Query> {
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

/// Deletes a version of an artifact unless a run needs it. Answers with that run and whether the version was deleted.
pub(super) fn delete_artifact(artifact: &Artifact, reason: DeletionReason) -> Query {
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

/// The answer to [`delete_artifact`].
pub(super) fn artifact_deletion(answer: &[Row]) -> Result<ArtifactDeletion, Damage> {
    let Some(row) = answer.first() else { return Ok(ArtifactDeletion::Absent) };
    let pinned = row.optional_bits(0, "run")?.map(RunId::from_bits);
    Ok(match pinned {
        Some(run) => ArtifactDeletion::Pinned(run),
        None if row.get(1) => ArtifactDeletion::Deleted,
        None => ArtifactDeletion::Absent,
    })
}

/// Deletes ended jobs with their executions and labels.
pub(super) fn delete_jobs(jobs: &[JobId]) -> Vec<Query> {
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

/// Deletes ended runs but for their steps and what was added to these, and definitions that no run is pinned
/// to any more.
///
/// A server that starts a run with such a definition at the same moment holds the definition's row until
/// its commit: this waits for it, and then sees the new run, because each statement sees what was
/// committed before it began. Where this was first, the other one writes the definition anew.
pub(super) fn delete_runs(runs: &[RunId]) -> Vec<Query> {
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

/// Deletes steps of runs that are gone and what was added to these, and forgets such runs that have neither
/// any more. Answers with how many of them are left.
///
/// Rows are named by their runs, never joined: whatever the planner thinks of a table, it reads the wanted
/// part of its key (`OFFSET` keeps it from making a join of `EXISTS`). Many small runs go at once, and a large
/// one in parts.
pub(super) fn delete_steps() -> Vec<Query> {
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

/// Deletes rows of events from the oldest on; stops at the first that is new enough.
pub(super) fn trim_events(before: Timestamp) -> Vec<Query> {
    vec![Query::new(
        "DELETE FROM events WHERE first < coalesce(
             (SELECT min(first) FROM (SELECT first, at FROM events ORDER BY first LIMIT $2) AS oldest
              WHERE at >= $1),
             (SELECT max(first) + 1 FROM (SELECT first FROM events ORDER BY first LIMIT $2) AS oldest), 0)",
        vec![big(before.as_micros()), big(TRIM_ROWS)],
    )]
}

/// Deletes old lines of the ledger, oldest instant first, then old backfills.
///
/// Instants are decided once they have passed, so old lines stand in the front of the table, and no index
/// by the time of decision is needed. Answers with how many of both.
pub(super) fn trim_lines(before: Timestamp, limit: usize) -> Vec<Query> {
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

/// As [`trim_lines`], for backfills that have ended.
pub(super) fn trim_backfills(before: Timestamp, limit: usize) -> Vec<Query> {
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
