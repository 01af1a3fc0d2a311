//! The operations of the writer thread.
//!
//! An operation may be applied more than once: if a transaction of several operations fails, each is repeated on its
//! own.

use model::Timestamp;
use model::record::Lease;
use rusqlite::Connection;

use super::error::Failure;
use super::statements::Statements;
use super::{access, alerts, audit, commit, housekeeping, leases, members, quarantine, statistics};
use crate::command::{Answers, Command, Entry, Reply, Update};

/// A change that must become durable.
#[derive(Debug)]
pub(super) enum Operation {
    Command(Command),
    Renew {
        leases: Vec<Lease>,
        until: Timestamp,
    },
    /// The owner of the shards loads them again. After a failed batch, its further batches were refused until now.
    Resume,
    /// Writes the time of a health check.
    Check(Timestamp),
    /// Applies entries of a log to a replica.
    Apply(Vec<Entry>),
    /// Makes a replica durable.
    Sync,
}

/// Result of an operation.
#[derive(Debug)]
pub(super) enum Answer {
    Reply(Reply),
    Applied(Answers),
}

impl From<Update> for Operation {
    fn from(update: Update) -> Self {
        Self::Command(update.into())
    }
}

impl Operation {
    /// Returns the approximate number of rows that the operation writes.
    pub(super) fn rows(&self) -> usize {
        match self {
            Self::Command(command) => command.rows(),
            Self::Renew { leases, .. } => leases.len(),
            Self::Check(_) => 1,
            Self::Apply(entries) => entries.len(),
            Self::Resume | Self::Sync => 0,
        }
    }

    /// Returns whether the operation adds work, beyond continuing or ending existing work. Such operations get little
    /// of the reserve.
    pub(super) fn adds_work(&self) -> bool {
        matches!(self, Self::Command(command) if command.adds_work())
    }

    /// Applies the operation inside the transaction that the caller began.
    ///
    /// # Errors
    /// After [`Failure::Fenced`] nothing was written, and the transaction may continue.
    pub(super) fn apply(
        &self,
        connection: &Connection,
        statements: &mut Statements<'_>,
        next_event: &mut u64,
    ) -> Result<Reply, Failure> {
        match self {
            Self::Command(Command::Commit { leases, batch, statistics }) => {
                commit::commit(statements, leases, batch, *statistics, next_event).map(Reply::Committed)
            }
            Self::Command(Command::Update(update)) => apply(update, connection, statements, next_event),
            Self::Renew { leases, until } => leases::renew(statements, leases, *until).map(|()| Reply::Done),
            Self::Resume | Self::Sync => Ok(Reply::Done),
            Self::Apply(_) => Err(Failure::Broken("entries of a log have a transaction of their own".into())),
            Self::Check(now) => {
                statements.checked.execute([now.as_micros()])?;
                Ok(Reply::Done)
            }
        }
    }
}

/// Applies an update inside the transaction that the caller began.
pub(super) fn apply(
    update: &Update,
    connection: &Connection,
    statements: &mut Statements<'_>,
    next_event: &mut u64,
) -> Result<Reply, Failure> {
    let done = |()| Reply::Done;
    match update {
        Update::TakeShards { shards, owner, now, until } => {
            leases::acquire(statements, shards, owner, *now, *until)
        }
        Update::ReleaseShards(leases) => leases::release(statements, leases).map(done),
        Update::MarkReconciled(leases) => leases::reconciled(statements, leases).map(done),
        Update::MarkRestored => leases::mark_restored(statements, next_event).map(done),
        Update::ResetClock(to) => leases::reset_clock(statements, *to, next_event).map(done),
        Update::ChangeAccess { expected, next, rows } => {
            access::change(statements, *expected, *next, rows).map(Reply::Changed)
        }
        Update::DeleteAccess(rows) => access::delete(statements, rows).map(done),
        Update::ChangeAlerts { expected, next, changes } => {
            alerts::change(statements, *expected, *next, changes).map(Reply::Changed)
        }
        Update::AppendAudit { expected, rows } => {
            audit::append(statements, expected, rows).map(Reply::Changed)
        }
        Update::TrimAudit { before, limit } => audit::trim(statements, *before, *limit).map(Reply::Changed),
        Update::PutSecret { name, proposed } => {
            members::secret(statements, name, proposed).map(Reply::Secret)
        }
        Update::PutArtifact(artifact) => housekeeping::put_artifact(statements, artifact).map(done),
        Update::DeleteArtifact { artifact, reason } => {
            housekeeping::delete_artifact(statements, artifact, *reason).map(Reply::Artifact)
        }
        Update::DeleteJobs(jobs) => housekeeping::delete_jobs(statements, jobs).map(done),
        Update::DeleteRuns(runs) => housekeeping::delete_runs(statements, runs).map(done),
        Update::DeleteSteps => housekeeping::delete_steps(statements).map(Reply::Changed),
        Update::TrimEvents(before) => housekeeping::trim_events(statements, *before).map(done),
        Update::FoldStatistics(now) => statistics::fold(connection, statements, *now).map(Reply::Changed),
        Update::TrimStatistics(now) => statistics::trim(statements, *now).map(Reply::Changed),
        Update::MarkFailures { namespace, id, mark } => {
            statistics::mark_failures(statements, namespace, *id, mark.as_deref()).map(Reply::Changed)
        }
        Update::TrimLedger { before, lines, backfills } => {
            housekeeping::trim_ledger(statements, *before, lines, backfills).map(Reply::Changed)
        }
        Update::MoveToQuarantine { rows, now } => {
            quarantine::move_to_quarantine(connection, statements, rows, *now).map(done)
        }
        Update::SetDraining { server, .. } => {
            let reason = format!("only a replica keeps that the server {server} is being drained");
            Err(Failure::Broken(reason))
        }
    }
}
