//! [`Leases`] on the rows of `shards`, in the writer's transactions.
//!
//! One process has the file, so a lease is never taken over by another machine, and all leases are void at a start.
//! Leases and epochs are kept all the same: they are what a copy to a database continues from, and what a commit of an
//! earlier leadership of this process is refused by.

use async_trait::async_trait;
use model::id::Epoch;
use model::record::Lease;
use model::{Duration, ShardId, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use super::SqliteStore;
use super::error::Failure;
use super::operation::Operation;
use super::statements::Statements;
use crate::leases::{EPOCH_LEAP, EVENT_LEAP};
use crate::{Leases, StoreError};

#[async_trait]
impl Leases for SqliteStore {
    fn shards(&self) -> u16 {
        self.shards
    }

    async fn acquire(
        &self,
        shards: &[ShardId],
        owner: &str,
        ttl: Duration,
    ) -> Result<Vec<Lease>, StoreError> {
        let operation = Operation::Acquire { shards: shards.to_vec(), owner: owner.to_owned(), ttl };
        self.writer.leases(operation).await
    }

    /// Whoever had the file open before has closed it.
    fn former_owner(&self) -> Duration {
        Duration::ZERO
    }

    async fn renew(&self, leases: &[Lease], ttl: Duration) -> Result<(), StoreError> {
        self.writer.done(Operation::Renew { leases: leases.to_vec(), ttl }).await
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    async fn release(&self, leases: &[Lease]) -> Result<(), StoreError> {
        self.writer.done(Operation::Release { leases: leases.to_vec() }).await
    }

    async fn lost_tails(&self, leases: &[Lease]) -> Result<Vec<ShardId>, StoreError> {
        let lost = self.readers.read(lost_tails).await?;
        Ok(leases.iter().map(|lease| lease.shard).filter(|shard| lost.contains(shard)).collect())
    }

    async fn tails_reconciled(&self, leases: &[Lease]) -> Result<(), StoreError> {
        self.writer.done(Operation::Reconciled { leases: leases.to_vec() }).await
    }

    async fn note_restored(&self) -> Result<(), StoreError> {
        self.writer.done(Operation::NoteRestored).await
    }

    /// The clock of this machine is as good: no other machine has the file.
    async fn clock(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(None)
    }

    async fn reset_clock(&self, now: Timestamp) -> Result<(), StoreError> {
        self.writer.done(Operation::ResetClock(now)).await
    }
}

/// Whether every lease still holds, and none of these shards belongs to somebody else.
pub(super) fn check_leases(statements: &mut Statements<'_>, leases: &[Lease]) -> Result<(), Failure> {
    for lease in leases {
        if !statements.lease_holds.exists(params![lease.shard.0, lease.epoch.0])? {
            return Err(Failure::Fenced(lease.shard));
        }
    }
    Ok(())
}

pub(super) fn acquire(
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

pub(super) fn renew(
    statements: &mut Statements<'_>,
    leases: &[Lease],
    until: Timestamp,
) -> Result<(), Failure> {
    check_leases(statements, leases)?;
    for lease in leases {
        statements.lease_renew.execute(params![lease.shard.0, until.as_micros()])?;
    }
    Ok(())
}

pub(super) fn release(statements: &mut Statements<'_>, leases: &[Lease]) -> Result<(), Failure> {
    for lease in leases {
        statements.lease_release.execute(params![lease.shard.0, lease.epoch.0])?;
    }
    Ok(())
}

pub(super) fn reconciled(statements: &mut Statements<'_>, leases: &[Lease]) -> Result<(), Failure> {
    for lease in leases {
        statements.tail_forget.execute(params![lease.shard.0, lease.epoch.0])?;
    }
    Ok(())
}

pub(super) fn note_restored(statements: &mut Statements<'_>, next_event: &mut u64) -> Result<(), Failure> {
    *next_event += EVENT_LEAP;
    statements.feed_leap.execute([*next_event])?;
    // The same backup may be restored again, and has the same epochs then. How often the feed has leapt is known
    // beyond that, from the file beside the database.
    let leaps = *next_event / EVENT_LEAP;
    statements.tails_lose.execute(params![EPOCH_LEAP, leaps])?;
    Ok(())
}

/// Sets engine time back where it is ahead of `now`.
pub(super) fn reset_clock(
    statements: &mut Statements<'_>,
    now: Timestamp,
    next_event: &mut u64,
) -> Result<(), Failure> {
    statements.reset_clock.execute([now.as_micros()])?;
    // The position of the store never goes back: the file beside it would tell of lost commits.
    *next_event += 1;
    statements.feed_leap.execute([*next_event])?;
    Ok(())
}

/// The shards whose last commits may be gone.
fn lost_tails(connection: &Connection) -> Result<Vec<ShardId>, Failure> {
    let mut statement = connection.prepare_cached("SELECT shard FROM shards WHERE tail_lost = 1")?;
    let lost = statement.query_map([], |row| row.get(0).map(ShardId))?;
    Ok(lost.collect::<rusqlite::Result<_>>()?)
}
