//! The contract of leases: who owns which shard, and what the rows of the shards say beside that.
//!
//! A server takes a lease on a shard before it may [load](crate::Commits::load) or [commit](crate::Commits::commit)
//! rows of it, renews the lease while it leads, and gives it back when it stops. Each lease has an epoch; a commit
//! under an epoch that is not the newest is refused.
//!
//! Callers: the leader's shell in the server (`server::node`), `belfry store restored` and `belfry store reset-clock`,
//! and the tests.
//!
//! # Always true
//! - The epoch of a shard grows with every [`acquire`](Leases::acquire), also after a restore from a backup.
//! - No shard is taken while a commit of its owner is in flight.
//! - A call under a lease of an older epoch changes nothing.
//!
//! # Cost
//! One small write for each call but [`lost_tails`](Leases::lost_tails) and [`clock`](Leases::clock), which read, and
//! those that are no `async fn`, which look at memory. Renewals never wait behind queries or checks.

use async_trait::async_trait;
use model::record::Lease;
use model::{Duration, ShardId, Timestamp};

use crate::StoreError;

/// The longest lease of a shard. A server refuses a longer setting, so a lease that ends later than this was granted
/// before the store's clock was set back.
pub const LEASE_MAX: Duration = Duration::from_secs(60);

/// After commits were lost, epochs continue at the next multiple of this; otherwise they grow by one.
pub(crate) const EPOCH_LEAP: i64 = 1 << 20;

/// After commits were lost, the feed skips this many places, so that no two events ever have the same place.
pub(crate) const EVENT_LEAP: u64 = 1 << 32;

/// Ownership of shards.
#[async_trait]
pub trait Leases: Send + Sync + 'static {
    /// Number of shards of the job space; chosen when the store was made.
    fn shards(&self) -> u16;

    /// Takes ownership of every shard in `shards` that is free or whose lease ran out; none while a commit of its owner
    /// is in flight.
    ///
    /// Each taken shard gets an epoch higher than any before. `owner` names the process, and each has a name of its
    /// own; `ttl` is how long the ownership lasts without a renewal, on the store's clock.
    async fn acquire(&self, shards: &[ShardId], owner: &str, ttl: Duration)
    -> Result<Vec<Lease>, StoreError>;

    /// For how long the owner from which the newest [`acquire`](Self::acquire) took shards may still take itself for
    /// their owner, from now on and by this machine's clock. It can no longer commit, but it may renew leases of
    /// workers meanwhile.
    ///
    /// Zero where that owner released the shards, or cannot be alive.
    fn former_owner(&self) -> Duration;

    /// Prolongs all these leases to `ttl` from now.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if one of them has a newer epoch.
    async fn renew(&self, leases: &[Lease], ttl: Duration) -> Result<(), StoreError>;

    /// Whether no other process can own a shard while this one has the store open.
    ///
    /// Its owner needs no lease then: a slow disk ends no leadership.
    fn is_exclusive(&self) -> bool;

    /// Gives shards back; those that were taken over meanwhile are left alone.
    async fn release(&self, leases: &[Lease]) -> Result<(), StoreError>;

    /// Those of the leased shards whose last commits the store may have forgotten: it was restored from
    /// a backup, or a standby took over without them.
    ///
    /// [`acquire`](Self::acquire) has raised their epochs beyond all that can have been given out. What
    /// runs on workers may be unknown here, so nothing that must not be done twice may be started
    /// before all workers have reported. A shard stays among these, through all its owners, until
    /// [`tails_reconciled`](Self::tails_reconciled).
    async fn lost_tails(&self, leases: &[Lease]) -> Result<Vec<ShardId>, StoreError>;

    /// Notes that the lost tails of these shards were dealt with; of those that were taken over
    /// meanwhile, nothing is noted.
    async fn tails_reconciled(&self, leases: &[Lease]) -> Result<(), StoreError>;

    /// Notes that the store was restored from a backup where the store itself cannot notice that.
    ///
    /// All shards are taken from their owner, and whoever takes them next finds them among the
    /// [`lost_tails`](Self::lost_tails), under epochs beyond all that can have been given out. The feed continues at a
    /// place beyond all that were told.
    async fn note_restored(&self) -> Result<(), StoreError>;

    /// Time on a clock of the store's own; `None` where the store uses the clock of this machine.
    ///
    /// # Errors
    /// If the store does not answer.
    async fn clock(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Sets engine time back to `now` where it is ahead of that. The caller has changed the rows accordingly, while no
    /// server runs.
    async fn reset_clock(&self, now: Timestamp) -> Result<(), StoreError>;
}
