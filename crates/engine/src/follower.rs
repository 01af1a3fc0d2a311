//! The engine of a standby: it follows the rows of the current owner, so that a takeover needs no full load.
//!
//! ```text
//! rows  ──> restore ─┐
//!         loaded ────┤
//! touched ──> follow ┼─> stale ──> (rows are read again) ──> refresh ··· again and again
//!                    └─> own(leases) ──> Engine::start
//! ```
//!
//! Rows are read while others change them, so they may contradict each other for a while. Every change is
//! reported by [`follow`](Follower::follow); its key is then [`stale`](Follower::stale) until the rows are
//! read again. Once no other server commits and no key is stale, the follower equals an engine restored from
//! the current rows.
//!
//! # Cost
//! [`Engine::restore`] for each row that is read. At the takeover, only the last changes remain, and one
//! visit of each job and each schedule.

use std::collections::{BTreeMap, BTreeSet};

use model::changelog::{LiveChange, LiveKey};
use model::record::{Lease, LiveRow};
use model::{JobStatus, ShardId, Timestamp};
use mutation::{Mutation, is_on};

use crate::clock::Now;
use crate::config::Config;
use crate::engine::Engine;

/// The engine of a standby; see the [module's page](self).
#[derive(Debug)]
pub struct Follower {
    engine: Engine,
    /// Keys whose rows must be read again.
    stale: BTreeSet<LiveKey>,
    /// Changes during the initial load, to apply after it: a row that has ended meanwhile may still arrive.
    /// `None` after the load.
    during_load: Option<Vec<LiveChange>>,
}

/// A change that a follower cannot apply: it must be replaced by a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("calendars changed, so the timing of any schedule may have changed")]
pub struct FollowError;

impl Follower {
    /// Creates a follower without rows; `shards` is the total number of shards.
    ///
    /// # Panics
    /// If `shards` is zero.
    pub fn new(config: Config, shards: u16, now: impl Into<Now>) -> Self {
        // The wall clock of today may be set back before the start; engine time comes from the rows.
        let now = Now { wall: Timestamp::default(), ..now.into() };
        let engine = Engine::without_shards(config, shards, now);
        Self { engine, stale: BTreeSet::new(), during_load: Some(Vec::new()) }
    }

    /// Restores one live row, in the order of [`Engine::restore`].
    pub fn restore(&mut self, row: LiveRow) {
        let key = LiveKey::of(&row);
        // A row that contradicts others was changed meanwhile or is damaged; reading it again decides which.
        if self.engine.restore(row).is_err() {
            self.stale.extend(key);
        }
    }

    /// Ends the initial load: all live rows, as they were when they were read, have been restored.
    pub fn loaded(&mut self) {
        if let Some(meanwhile) = self.during_load.take() {
            self.apply(&meanwhile);
        }
    }

    /// Applies the keys that commits changed, in commit order, starting before the first row was read.
    ///
    /// # Errors
    /// [`FollowError`]: this follower can no longer be used.
    pub fn follow(&mut self, touched: &[LiveChange]) -> Result<(), FollowError> {
        let rows = touched.iter().filter_map(|touched| match touched {
            LiveChange::Rows(key) => Some(*key),
            _ => None,
        });
        if rows.clone().any(|key| key == LiveKey::Calendars) {
            return Err(FollowError);
        }
        let missed = |key: &LiveKey| {
            matches!(key, LiveKey::Job(_)) && is_on(Mutation::EngineFollowerMissesChangedJobs)
        };
        self.stale.extend(rows.filter(|key| !missed(key)));
        let others = touched.iter().filter(|touched| !matches!(touched, LiveChange::Rows(_)));
        for ended in others.clone() {
            if let LiveChange::Ended(job) = ended {
                self.stale.remove(&LiveKey::Job(*job));
            }
        }
        match &mut self.during_load {
            Some(meanwhile) => meanwhile.extend(others),
            None => self.apply(&others.copied().collect::<Vec<_>>()),
        }
        Ok(())
    }

    fn apply(&mut self, touched: &[LiveChange]) {
        // All shards expire keys together, so one pass over all keys is enough.
        let forgets = |touched: &LiveChange| matches!(touched, LiveChange::KeysPurged { .. });
        for together in touched.chunk_by(|a, b| forgets(a) && forgets(b)) {
            match *together {
                [LiveChange::Ended(job)] => self.engine.jobs.remove_restored_job(&mut self.engine.cx, job),
                [LiveChange::Key(key)] => {
                    self.engine.jobs.insert_key(key);
                }
                [LiveChange::RunKey(key)] => {
                    self.engine.workflows.insert_key(key);
                }
                _ => self.purge_keys(together),
            }
        }
    }

    fn purge_keys(&mut self, forgotten: &[LiveChange]) {
        let stays = |of: ShardId, expires_at: Timestamp| {
            !forgotten.iter().any(|touched| match *touched {
                LiveChange::KeysPurged { shard, expired_before } => {
                    of == shard && expires_at <= expired_before
                }
                _ => false,
            })
        };
        self.engine.jobs.retain_keys(|key| stays(key.job.shard(), key.expires_at));
        self.engine.workflows.retain_keys(|key| stays(key.run.shard(), key.expires_at));
    }

    /// Returns at most `most` keys whose rows must be read again; runs before jobs.
    pub fn stale(&self, most: usize) -> Vec<LiveKey> {
        self.stale.iter().take(most).copied().collect()
    }

    /// Returns the number of stale keys.
    pub fn stale_count(&self) -> usize {
        self.stale.len()
    }

    /// Applies the current rows of `keys`, in the order of [`Engine::restore`]; a key without a row is no
    /// longer live. Rows that contradict others stay stale.
    pub fn refresh(&mut self, keys: &[LiveKey], rows: Vec<LiveRow>) {
        for key in keys {
            self.stale.remove(key);
            self.forget(*key);
        }
        for row in rows {
            self.restore(row);
        }
    }

    fn forget(&mut self, key: LiveKey) {
        let engine = &mut self.engine;
        match key {
            LiveKey::Workers => engine.jobs.clear_workers(),
            LiveKey::Queues => engine.jobs.clear_queue_settings(),
            LiveKey::Namespaces => engine.jobs.clear_namespace_settings(),
            // `follow` refuses changes of calendars.
            LiveKey::Calendars => {}
            LiveKey::Schedule(id) => {
                engine.schedules.remove_restored_schedule(&mut engine.cx, &mut engine.jobs, id)
            }
            LiveKey::Backfill(id) => {
                engine.schedules.remove_restored_backfill(id);
            }
            LiveKey::Service(id) => engine.services.remove_restored_service(id),
            LiveKey::Workflow(id) => engine.workflows.remove_restored_workflow(id),
            LiveKey::Run(id) => engine.workflows.remove_restored_run(id),
            LiveKey::Job(id) => engine.jobs.remove_restored_job(&mut engine.cx, id),
        }
    }

    /// Returns the number of live jobs by status.
    pub fn live(&self) -> &BTreeMap<JobStatus, u64> {
        self.engine.jobs.live_counts()
    }

    /// Returns the engine, as the owner of the leased shards.
    ///
    /// `None` if a key is stale or the load is not finished: then the rows must be loaded again.
    ///
    /// # Panics
    /// If no shard is leased.
    pub fn own(mut self, leases: &[Lease]) -> Option<Engine> {
        if !self.stale.is_empty() || self.during_load.is_some() {
            return None;
        }
        self.engine.cx.own(leases);
        Some(self.engine)
    }
}
