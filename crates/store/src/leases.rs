//! The contract of leases: ownership of shards, and the other columns of the shard rows.
//!
//! A server acquires the lease of a shard before it [loads](crate::Commits::load) or [commits](crate::Commits::commit)
//! rows of the shard. It renews the lease while it leads and releases the lease when it stops. Each lease has an epoch;
//! a commit under an older epoch than the newest is refused.
//!
//! Callers: the leader's shell in the server (`server::node`), `belfry store restored` and `belfry store reset-clock`,
//! and the tests.
//!
//! # Invariants
//! - The epoch of a shard increases with every [`acquire`](Leases::acquire), also after a restore from a backup.
//! - No shard is acquired while a commit of its owner is in flight.
//! - A call under a lease with an older epoch changes nothing.
//!
//! # Cost
//! Each call is one small write. [`shards_with_lost_commits`](Leases::shards_with_lost_commits) and [`clock`](Leases::clock) only read; methods
//! that are not `async` only read memory. Renewals never wait for queries or checks.

use async_trait::async_trait;
use model::record::Lease;
use model::{Duration, ShardId, Timestamp};

use crate::StoreError;

/// Maximum duration of a shard lease. A server refuses a longer setting. So a lease that ends later than this was
/// granted before the store's clock was set back.
pub const LEASE_MAX: Duration = Duration::from_secs(60);

/// After a loss of commits, epochs continue at the next multiple of this number; otherwise they grow by one.
pub(crate) const EPOCH_STEP_AFTER_LOSS: i64 = 1 << 20;

/// After a loss of commits, the event feed skips this number of positions, so that no two events share a position.
pub(crate) const EVENT_GAP_AFTER_LOSS: u64 = 1 << 32;

/// Ownership of shards.
#[async_trait]
pub trait Leases: Send + Sync + 'static {
    /// Returns the number of shards, chosen when the store was created.
    fn shards(&self) -> u16;

    /// Acquires every shard in `shards` that is free or whose lease has expired; acquires none while a commit of the
    /// owner is in flight.
    ///
    /// The epoch of each acquired shard is higher than all its earlier epochs. `owner` names the process and must be
    /// unique. The lease expires `ttl` after its last renewal, on the store's clock.
    async fn acquire(&self, shards: &[ShardId], owner: &str, ttl: Duration)
    -> Result<Vec<Lease>, StoreError>;

    /// Returns the time, measured from now on the clock of this machine, during which the previous owner may still
    /// act as the owner of the shards. The previous owner is the one from which the newest [`acquire`](Self::acquire)
    /// took shards. It can no longer commit, but it may still renew worker leases.
    ///
    /// Zero if that owner released the shards or cannot be alive.
    fn former_owner(&self) -> Duration;

    /// Extends all these leases to `ttl` from now.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if one of the shards has a newer epoch.
    async fn renew(&self, leases: &[Lease], ttl: Duration) -> Result<(), StoreError>;

    /// Returns whether no other process can own a shard while this process has the store open.
    ///
    /// The owner then needs no lease, so a slow disk does not end its leadership.
    fn is_exclusive(&self) -> bool;

    /// Releases shards; a shard that another server has acquired is left unchanged.
    async fn release(&self, leases: &[Lease]) -> Result<(), StoreError>;

    /// Returns the leased shards whose last commits may be lost, after a restore from a backup or a failover to a
    /// database standby without these commits.
    ///
    /// [`acquire`](Self::acquire) has raised their epochs above all that can have been issued. The store may not know
    /// what the workers run. So a job that must not run twice is not started until all workers have reported. A shard
    /// stays in this list, also under later owners, until [`mark_reconciled`](Self::mark_reconciled).
    async fn shards_with_lost_commits(&self, leases: &[Lease]) -> Result<Vec<ShardId>, StoreError>;

    /// Records that the lost commits of these shards were reconciled; shards that another server has acquired are
    /// ignored.
    async fn mark_reconciled(&self, leases: &[Lease]) -> Result<(), StoreError>;

    /// Records that the store was restored from a backup, in cases that the store cannot detect.
    ///
    /// All shards lose their owner. The next owner finds them in [`shards_with_lost_commits`](Self::shards_with_lost_commits), with epochs above
    /// all that can have been issued. The event feed continues at a position above all that were published.
    async fn mark_restored(&self) -> Result<(), StoreError>;

    /// Returns the time of the store's own clock; `None` if the store uses the clock of this machine.
    ///
    /// # Errors
    /// If the store does not answer.
    async fn clock(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Sets the engine time back to `now` if it is ahead. The caller has changed the rows accordingly, and no server
    /// runs.
    async fn reset_clock(&self, now: Timestamp) -> Result<(), StoreError>;
}
