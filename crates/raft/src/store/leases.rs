//! [`Leases`]: ownership of shards, which only the leader of the log can have.
//!
//! The leader keeps the end of each lease in memory: a renewal is a round with the other servers, not an entry of the log.
//! A new leader begins with an empty table, and with rows without owners.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration as StdDuration;

use async_trait::async_trait;
use model::id::Epoch;
use model::record::Lease;
use model::{Duration, ShardId, Timestamp};
use store::command::{Reply, Update};
use store::{Leases, StoreError};
use tokio::time::Instant;

use super::{RaftStore, reply, unexpected};

/// Maximum time in which an acquisition waits for the leadership of the log.
const LEADERSHIP_PATIENCE: StdDuration = StdDuration::from_millis(400);
/// Maximum wait of a release for a majority. A server that stops must not wait for servers that have stopped.
const RELEASE_PATIENCE: StdDuration = StdDuration::from_secs(2);
/// Pause between two looks at the leadership.
const LOOK_AGAIN: StdDuration = StdDuration::from_millis(10);

/// Leases that this process has acquired as the leader.
#[derive(Debug, Default)]
pub(super) struct LeaseTable(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// Term in which this server led when it acquired the leases. Those of another term are void.
    term: u64,
    leases: BTreeMap<ShardId, Held>,
    /// When shards were taken from an owner that did not release them.
    taken_over: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) epoch: Epoch,
    pub(super) expires_at: Timestamp,
}

impl LeaseTable {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lease of a shard, if its epoch is the newest and this server leads in `term`.
    pub(super) fn held(&self, term: u64, shard: ShardId, epoch: Epoch) -> Option<Held> {
        let table = self.lock();
        let held = table.leases.get(&shard).copied().filter(|held| held.epoch == epoch);
        held.filter(|_| table.term == term)
    }

    /// Returns whether this server owns no shard.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().leases.is_empty()
    }

    /// Forgets the leases of another term.
    fn begin(&self, term: u64) {
        let mut table = self.lock();
        if table.term != term {
            table.leases.clear();
            table.term = term;
        }
    }

    /// Forgets all leases, because all shards have lost their owner.
    pub(super) fn clear(&self) {
        self.lock().leases.clear();
    }

    fn unheld(&self, shards: &[ShardId], now: Timestamp) -> Vec<ShardId> {
        let table = self.lock();
        let is_free = |shard: &ShardId| table.leases.get(shard).is_none_or(|held| held.expires_at <= now);
        shards.iter().copied().filter(is_free).collect()
    }

    fn add(&self, leases: &[Lease], until: Timestamp, was_owned: bool) {
        let mut table = self.lock();
        for lease in leases {
            table.leases.insert(lease.shard, Held { epoch: lease.epoch, expires_at: until });
        }
        if !leases.is_empty() {
            table.taken_over = was_owned.then(Instant::now);
        }
    }

    /// Returns the first of the leases that is no longer the newest one of its shard, or of another term.
    fn first_lost(&self, term: Option<u64>, leases: &[Lease]) -> Option<ShardId> {
        let table = self.lock();
        let is_lost = |lease: &&Lease| {
            term != Some(table.term)
                || table.leases.get(&lease.shard).is_none_or(|held| held.epoch != lease.epoch)
        };
        leases.iter().find(is_lost).map(|lease| lease.shard)
    }

    fn extend(&self, leases: &[Lease], until: Timestamp) {
        let mut table = self.lock();
        for lease in leases {
            if let Some(held) = table.leases.get_mut(&lease.shard).filter(|held| held.epoch == lease.epoch) {
                held.expires_at = until;
            }
        }
    }

    fn remove(&self, leases: &[Lease]) {
        let mut table = self.lock();
        for lease in leases {
            if table.leases.get(&lease.shard).is_some_and(|held| held.epoch == lease.epoch) {
                table.leases.remove(&lease.shard);
            }
        }
    }
}

impl RaftStore {
    /// Waits for the leadership of the log, with its lease. Returns whether this node has it.
    async fn wait_for_leadership(&self) -> bool {
        let give_up = Instant::now() + LEADERSHIP_PATIENCE;
        let mut leadership = self.node.leadership();
        loop {
            if self.node.leads() && self.node.confirm().await {
                return true;
            }
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            // The leadership may be there, and the first entry of its own not be applied yet.
            let patience = if self.node.led_term().is_some() { LOOK_AGAIN.min(left) } else { left };
            let _ = tokio::time::timeout(patience, leadership.changed()).await;
        }
    }
}

#[async_trait]
impl Leases for RaftStore {
    fn shards(&self) -> u16 {
        self.shards
    }

    async fn acquire(
        &self,
        shards: &[ShardId],
        owner: &str,
        ttl: Duration,
    ) -> Result<Vec<Lease>, StoreError> {
        if !self.wait_for_leadership().await {
            return Ok(Vec::new());
        }
        let Some(term) = self.node.led_term() else { return Ok(Vec::new()) };
        self.table.begin(term);
        let now = self.clock.now();
        let (shards, until) = (self.table.unheld(shards, now), now + ttl);
        if shards.is_empty() {
            return Ok(Vec::new());
        }
        let take = Update::TakeShards { shards, owner: owner.to_owned(), now, until };
        let answered = self.node.propose(take.into()).await;
        match reply(answered)? {
            Reply::Taken { leases, was_owned } => {
                self.table.add(&leases, until, was_owned);
                Ok(leases)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// A leader that was deposed without noticing it may act for the rest of its lease.
    fn former_owner(&self) -> Duration {
        let taken_over = self.table.lock().taken_over;
        taken_over.map_or(Duration::ZERO, |at| Duration::from(self.timing.lease.saturating_sub(at.elapsed())))
    }

    async fn renew(&self, leases: &[Lease], ttl: Duration) -> Result<(), StoreError> {
        let fenced = |shard| Err(StoreError::Fenced { shard });
        let term = self.node.led_term();
        if let Some(shard) = self.table.first_lost(term, leases) {
            return fenced(shard);
        }
        let until = self.clock.now() + ttl;
        if self.node.confirm().await {
            // The leadership, or the owner, may have changed during the round.
            if let Some(shard) =
                self.table.first_lost(self.node.led_term().filter(|now| Some(*now) == term), leases)
            {
                return fenced(shard);
            }
            self.table.extend(leases, until);
            return Ok(());
        }
        match leases.first() {
            Some(lease) if !self.node.leads() => fenced(lease.shard),
            _ => Err(StoreError::Unavailable {
                source: "the other servers have not confirmed that this one leads".into(),
            }),
        }
    }

    fn is_exclusive(&self) -> bool {
        false
    }

    async fn release(&self, leases: &[Lease]) -> Result<(), StoreError> {
        self.table.remove(leases);
        // Otherwise the shards have no owner any more, or will have none when another server is elected.
        if !self.node.leads() || !self.node.confirm().await {
            return Ok(());
        }
        let release = self.node.propose(Update::ReleaseShards(leases.to_vec()).into());
        match tokio::time::timeout(RELEASE_PATIENCE, release).await {
            Ok(answered) => reply(answered)?,
            Err(_) => {
                let source = "a majority of the servers did not confirm the release in time".into();
                return Err(StoreError::OutcomeUnknown { source });
            }
        };
        self.leave_leadership_if_drained().await
    }

    async fn shards_with_lost_commits(&self, leases: &[Lease]) -> Result<Vec<ShardId>, StoreError> {
        self.read().await?.shards_with_lost_commits(leases).await
    }

    async fn mark_reconciled(&self, leases: &[Lease]) -> Result<(), StoreError> {
        self.done(Update::MarkReconciled(leases.to_vec())).await
    }

    async fn mark_restored(&self) -> Result<(), StoreError> {
        self.done(Update::MarkRestored).await?;
        self.table.clear();
        Ok(())
    }

    async fn clock(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(None)
    }

    async fn reset_clock(&self, now: Timestamp) -> Result<(), StoreError> {
        self.done(Update::ResetClock(now)).await
    }
}
