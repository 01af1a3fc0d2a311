//! [`Leases`] on the table `shards`, in the writer's transactions.
//!
//! Only one process has the file open, so no other machine can acquire a lease, and a start voids all leases. Leases
//! and epochs are stored anyway: a copy in a database continues from them, and a commit from an earlier leadership of
//! this process is refused by them.

use async_trait::async_trait;
use model::id::Epoch;
use model::record::Lease;
use model::{Duration, ShardId, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use super::SqliteStore;
use super::error::Failure;
use super::operation::Operation;
use super::statements::Statements;
use crate::command::{Reply, Update};
use crate::leases::{EPOCH_STEP_AFTER_LOSS, EVENT_GAP_AFTER_LOSS};
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
        let now = self.clock.now();
        let (shards, owner, until) = (shards.to_vec(), owner.to_owned(), now + ttl);
        self.writer.leases(Update::TakeShards { shards, owner, now, until }).await
    }

    /// The previous owner has closed the file.
    fn former_owner(&self) -> Duration {
        Duration::ZERO
    }

    async fn renew(&self, leases: &[Lease], ttl: Duration) -> Result<(), StoreError> {
        let until = self.clock.now() + ttl;
        self.writer.done(Operation::Renew { leases: leases.to_vec(), until }).await
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    async fn release(&self, leases: &[Lease]) -> Result<(), StoreError> {
        self.writer.done(Update::ReleaseShards(leases.to_vec())).await
    }

    async fn shards_with_lost_commits(&self, leases: &[Lease]) -> Result<Vec<ShardId>, StoreError> {
        let lost = self.readers.read(shards_with_lost_commits).await?;
        Ok(leases.iter().map(|lease| lease.shard).filter(|shard| lost.contains(shard)).collect())
    }

    async fn mark_reconciled(&self, leases: &[Lease]) -> Result<(), StoreError> {
        self.writer.done(Update::MarkReconciled(leases.to_vec())).await
    }

    async fn mark_restored(&self) -> Result<(), StoreError> {
        self.writer.done(Update::MarkRestored).await
    }

    /// The clock of this machine is sufficient: no other machine has the file open.
    async fn clock(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(None)
    }

    async fn reset_clock(&self, now: Timestamp) -> Result<(), StoreError> {
        self.writer.done(Update::ResetClock(now)).await
    }
}

/// Checks that every lease is still valid and that no shard belongs to another owner.
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
    until: Timestamp,
) -> Result<Reply, Failure> {
    let (mut leases, mut was_owned) = (Vec::new(), false);
    for &shard in shards {
        let is_owned = statements.lease_owned.exists([shard.0])?;
        let row = params![shard.0, owner, now.as_micros(), until.as_micros()];
        let epoch = statements.lease_take.query_row(row, |row| row.get(0)).optional()?;
        if let Some(epoch) = epoch {
            leases.push(Lease { shard, epoch: Epoch(epoch) });
            was_owned |= is_owned;
        }
    }
    Ok(Reply::Taken { leases, was_owned })
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

pub(super) fn mark_restored(statements: &mut Statements<'_>, next_event: &mut u64) -> Result<(), Failure> {
    *next_event += EVENT_GAP_AFTER_LOSS;
    statements.feed_leap.execute([*next_event])?;
    // The same backup may be restored again, with the same epochs. The position file still shows how often the feed has
    // skipped positions.
    let leaps = *next_event / EVENT_GAP_AFTER_LOSS;
    statements.tails_lose.execute(params![EPOCH_STEP_AFTER_LOSS, leaps])?;
    Ok(())
}

/// Sets engine time back to `now` if it is ahead.
pub(super) fn reset_clock(
    statements: &mut Statements<'_>,
    now: Timestamp,
    next_event: &mut u64,
) -> Result<(), Failure> {
    statements.reset_clock.execute([now.as_micros()])?;
    // The position of the store never decreases: the position file would report lost commits.
    *next_event += 1;
    statements.feed_leap.execute([*next_event])?;
    Ok(())
}

/// Returns the shards whose last commits may be lost.
fn shards_with_lost_commits(connection: &Connection) -> Result<Vec<ShardId>, Failure> {
    let mut statement = connection.prepare_cached("SELECT shard FROM shards WHERE tail_lost = 1")?;
    let lost = statement.query_map([], |row| row.get(0).map(ShardId))?;
    Ok(lost.collect::<rusqlite::Result<_>>()?)
}
