//! What the writing thread is asked to do.
//!
//! An operation can be applied more than once: when a transaction of several fails, each is done
//! again alone.

use std::sync::Arc;

use model::firing::FiringOutcome;
use model::record::{Batch, Change, Lease};
use model::{BackfillId, Duration, JobId, RunId, ShardId, Timestamp, id::Epoch};
use rusqlite::{Connection, OptionalExtension, Statement, params};

use super::apply::{self, check_leases, delete_labels, write_counters};
use super::error::Failure;
use super::quarantine::{self, Damaged};
use super::statements::Statements;
use crate::batch::Counters;
use crate::codec::{firing_outcome_code, token_kind_code};
use crate::query::{Artifact, ArtifactDeletion, DeletionReason, LedgerPlace, Token};
use crate::{Committed, EPOCH_LEAP, EVENT_LEAP};

/// Events looked at in one transaction while old ones are trimmed.
const TRIM_ROWS: usize = 10_000;

/// Steps of runs that are gone which are deleted in one transaction, about.
const STEPS: usize = 2_000;

/// As how many rows all shards count.
const SHARDS: usize = 16;

/// As how many steps a batch of elements counts there: it may be a megabyte.
const STEPS_A_BATCH: usize = 20;

/// One thing to make durable.
#[derive(Debug)]
pub(super) enum Operation {
    Commit {
        leases: Vec<Lease>,
        batch: Arc<Batch>,
    },
    Acquire {
        shards: Vec<ShardId>,
        owner: String,
        ttl: Duration,
    },
    Renew {
        leases: Vec<Lease>,
        ttl: Duration,
    },
    Release {
        leases: Vec<Lease>,
    },
    /// The lost tails of these were dealt with.
    Reconciled {
        leases: Vec<Lease>,
    },
    /// The file is an earlier state than one that was there.
    NoteRestored,
    PutToken(Token),
    PutArtifact(Artifact),
    DeleteArtifact {
        artifact: Artifact,
        reason: DeletionReason,
    },
    Secret {
        name: String,
        proposed: [u8; 32],
    },
    DeleteJobs(Vec<JobId>),
    DeleteRuns(Vec<RunId>),
    /// Of runs that are gone, and what was added to them; some.
    DeleteSteps,
    TrimEvents(Timestamp),
    TrimLedger {
        before: Timestamp,
        lines: Vec<LedgerPlace>,
        backfills: Vec<BackfillId>,
    },
    /// Engine time goes back to this.
    ResetClock(Timestamp),
    SetAside(Vec<Damaged>),
    /// The owner of the shards loads them anew; what it sent before is not done any more if a batch failed.
    Resume,
    Check,
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Answer {
    Done,
    Leases(Vec<Lease>),
    Committed(Committed),
    Deleted(u64),
    Secret([u8; 32]),
    Artifact(ArtifactDeletion),
}

fn ends_an_execution(change: &Change) -> bool {
    matches!(change, Change::Execution { record, .. } if record.status.is_final())
}

impl Operation {
    /// About how many rows it writes.
    pub(super) fn rows(&self) -> usize {
        match self {
            Self::Commit { batch, .. } => batch.changes.len() + 1,
            Self::Acquire { shards, .. } => shards.len(),
            Self::Renew { leases, .. } | Self::Release { leases } | Self::Reconciled { leases } => {
                leases.len()
            }
            Self::DeleteJobs(jobs) => jobs.len() * 3,
            Self::DeleteRuns(runs) => runs.len() * 3,
            Self::DeleteSteps => STEPS,
            Self::TrimEvents(_) => TRIM_ROWS,
            Self::TrimLedger { lines, backfills, .. } => lines.len() + backfills.len(),
            Self::SetAside(damaged) => damaged.len(),
            Self::PutToken(_)
            | Self::PutArtifact(_)
            | Self::DeleteArtifact { .. }
            | Self::Secret { .. }
            | Self::ResetClock(_)
            | Self::Check => 1,
            Self::NoteRestored => SHARDS,
            Self::Resume => 0,
        }
    }

    /// Whether it makes the store grow by more than what ends or goes on: such work gets little of the reserve.
    pub(super) fn adds_work(&self) -> bool {
        match self {
            // What an end brings with it (its checkpoint, a run that it triggers) is needed to record the end.
            Self::Commit { batch, .. } if batch.changes.iter().any(ends_an_execution) => false,
            Self::Commit { batch, .. } => batch.changes.iter().any(|change| {
                matches!(
                    change,
                    Change::Job { head: Some(_), .. }
                        | Change::Schedule { head: Some(_), .. }
                        | Change::Backfill { head: Some(_), .. }
                        | Change::Workflow { head: Some(_), .. }
                        | Change::Run { head: Some(_), .. }
                        | Change::ElementBatch(_)
                        | Change::Checkpoint(_)
                )
            }),
            Self::PutArtifact(_) => true,
            _ => false,
        }
    }

    /// Writes it inside the transaction that the caller began.
    ///
    /// # Errors
    /// After [`Failure::Fenced`] nothing was written, and the transaction may go on.
    pub(super) fn apply(
        &self,
        connection: &Connection,
        statements: &mut Statements<'_>,
        now: Timestamp,
        next_event: &mut u64,
    ) -> Result<Answer, Failure> {
        let done = |()| Answer::Done;
        match self {
            Self::Commit { leases, batch } => {
                apply::commit(statements, leases, batch, next_event).map(Answer::Committed)
            }
            Self::Acquire { shards, owner, ttl } => {
                acquire(statements, shards, owner, now, *ttl).map(Answer::Leases)
            }
            Self::Renew { leases, ttl } => renew(statements, leases, now + *ttl).map(done),
            Self::Release { leases } => release(statements, leases).map(done),
            Self::Reconciled { leases } => reconciled(statements, leases).map(done),
            Self::NoteRestored => note_restored(statements, next_event).map(done),
            Self::ResetClock(now) => {
                statements.reset_clock.execute([now.as_micros()])?;
                // The position of the store never goes back: the file beside it would tell of lost commits.
                *next_event += 1;
                statements.feed_leap.execute([*next_event])?;
                Ok(Answer::Done)
            }
            Self::PutToken(token) => put_token(statements, token).map(done),
            Self::Secret { name, proposed } => secret(statements, name, proposed).map(Answer::Secret),
            Self::PutArtifact(artifact) => put_artifact(statements, artifact).map(done),
            Self::DeleteArtifact { artifact, reason } => {
                delete_artifact(statements, artifact, *reason).map(Answer::Artifact)
            }
            Self::DeleteJobs(jobs) => delete_jobs(statements, jobs).map(done),
            Self::DeleteRuns(runs) => delete_runs(statements, runs).map(done),
            Self::DeleteSteps => delete_steps(statements).map(Answer::Deleted),
            Self::TrimEvents(before) => trim_events(statements, *before).map(done),
            Self::TrimLedger { before, lines, backfills } => {
                trim_ledger(statements, *before, lines, backfills).map(Answer::Deleted)
            }
            Self::SetAside(damaged) => quarantine::set_aside(connection, statements, damaged, now).map(done),
            Self::Resume => Ok(Answer::Done),
            Self::Check => {
                statements.checked.execute([now.as_micros()])?;
                Ok(Answer::Done)
            }
        }
    }
}

fn acquire(
    statements: &mut Statements<'_>,
    shards: &[ShardId],
    owner: &str,
    now: Timestamp,
    ttl: Duration,
) -> Result<Vec<Lease>, Failure> {
    let mut leases = Vec::new();
    for &shard in shards {
        let until = now + ttl;
        let row = params![shard.0, owner, now.as_micros(), until.as_micros()];
        let epoch = statements.lease_take.query_row(row, |row| row.get(0)).optional()?;
        leases.extend(epoch.map(|epoch| Lease { shard, epoch: Epoch(epoch) }));
    }
    Ok(leases)
}

fn renew(statements: &mut Statements<'_>, leases: &[Lease], until: Timestamp) -> Result<(), Failure> {
    check_leases(statements, leases)?;
    for lease in leases {
        statements.lease_renew.execute(params![lease.shard.0, until.as_micros()])?;
    }
    Ok(())
}

fn release(statements: &mut Statements<'_>, leases: &[Lease]) -> Result<(), Failure> {
    for lease in leases {
        statements.lease_release.execute(params![lease.shard.0, lease.epoch.0])?;
    }
    Ok(())
}

fn reconciled(statements: &mut Statements<'_>, leases: &[Lease]) -> Result<(), Failure> {
    for lease in leases {
        statements.tail_forget.execute(params![lease.shard.0, lease.epoch.0])?;
    }
    Ok(())
}

fn note_restored(statements: &mut Statements<'_>, next_event: &mut u64) -> Result<(), Failure> {
    *next_event += EVENT_LEAP;
    statements.feed_leap.execute([*next_event])?;
    // The same backup may be restored again, and has the same epochs then. How often the feed has leapt is known
    // beyond that, from the file beside the database.
    let leaps = *next_event / EVENT_LEAP;
    statements.tails_lose.execute(params![EPOCH_LEAP, leaps])?;
    Ok(())
}

/// What is kept under a name; `proposed` is kept where nothing is.
fn secret(statements: &mut Statements<'_>, name: &str, proposed: &[u8; 32]) -> Result<[u8; 32], Failure> {
    statements.secret_put.execute(params![name, proposed])?;
    Ok(statements.secret.query_row([name], |row| row.get(0))?)
}

fn put_token(statements: &mut Statements<'_>, token: &Token) -> Result<(), Failure> {
    statements.token_put.execute(params![
        token.id,
        token_kind_code(token.kind),
        token.name,
        token.hash,
        token.created_at.as_micros(),
    ])?;
    Ok(())
}

fn put_artifact(statements: &mut Statements<'_>, artifact: &Artifact) -> Result<(), Failure> {
    let newest: Option<i64> = statements
        .artifact_newest
        .query_row(params![artifact.namespace, artifact.name], |row| row.get(0))
        .optional()?;
    // Two versions of one name never share an instant: the order of the list, and with it which one
    // is the newest, is always clear.
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

/// Deletes a version unless a run needs it. Retention deletes only the version that it found: one that was stored again
/// meanwhile is the newest.
fn delete_artifact(
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

fn delete_jobs(statements: &mut Statements<'_>, jobs: &[JobId]) -> Result<(), Failure> {
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
    write_counters(statements, &counters)
}

/// Deletes ended runs but for their steps and what was added to these, and definitions that no run is pinned
/// to any more.
///
/// A run that is started with such a definition at the same moment comes before or after: one thread
/// writes, and a new run brings its definition along.
fn delete_runs(statements: &mut Statements<'_>, runs: &[RunId]) -> Result<(), Failure> {
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

/// Deletes steps of runs that are gone, and what was added to these. Says how many rows, about: none means
/// that none are left.
fn delete_steps(statements: &mut Statements<'_>) -> Result<u64, Failure> {
    let mut room = STEPS;
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
            // Its row counts, so that many runs with few steps have an end too.
            statements.run_deleted_forget.execute([run])?;
            room -= 1;
        }
    }
    Ok((STEPS - room) as u64)
}

/// Deletes the first rows of a run in a table, at most `limit`: fewer mean that it has none any more.
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

/// As [`delete_first`], of the versions that a run pinned.
fn delete_first_pins(
    bound: &mut Statement<'_>,
    delete_to: &mut Statement<'_>,
    run: [u8; 16],
    limit: usize,
) -> Result<usize, Failure> {
    let last: Option<(String, String)> =
        bound.query_row(params![run, limit - 1], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    // Names are ASCII, so this is behind all of them.
    let (name, sha256) = last.unwrap_or_else(|| ("\u{10ffff}".into(), String::new()));
    Ok(delete_to.execute(params![run, name, sha256])?)
}

/// Deletes rows of events from the oldest on; stops at the first that is new enough.
fn trim_events(statements: &mut Statements<'_>, before: Timestamp) -> Result<(), Failure> {
    let oldest: Vec<(i64, i64)> = statements
        .events_oldest
        .query_map([TRIM_ROWS], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (first, _) in oldest.iter().take_while(|(_, at)| *at < before.as_micros()) {
        statements.event_delete.execute([first])?;
    }
    Ok(())
}

/// Deletes what was found to be old enough, and still is.
fn trim_ledger(
    statements: &mut Statements<'_>,
    before: Timestamp,
    lines: &[LedgerPlace],
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
