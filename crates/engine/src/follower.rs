//! An engine that decides nothing yet: it follows the rows of another owner, so that it can go on at once.
//!
//! ```text
//! rows  ──> restore ─┐
//!         loaded ────┤
//! touched ──> follow ┼─> stale ──> (rows are read again) ──> refresh ··· again and again
//!                    └─> own(leases) ──> Engine::start
//! ```
//!
//! Rows come while others change them, so they may contradict each other on the way. That harms nothing:
//! whatever changed is named by [`follow`](Follower::follow), stands among the [`stale`](Follower::stale)
//! from then on, and is taken in anew. Once nobody else commits, and nothing is stale, the follower is
//! what an engine would be that was restored from the rows as they are now.
//!
//! # Cost
//! What [`Engine::restore`] costs, for each row when it is read. What is left for the moment of the
//! take-over is what was touched last, and one look at each job and each schedule.

use std::collections::{BTreeMap, BTreeSet};

use model::changelog::{LiveKey, Touched};
use model::record::{Lease, LiveRow};
use model::{JobId, JobStatus, ShardId, Timestamp};
use mutation::{Mutation, is_on};

use crate::clock::Now;
use crate::config::Config;
use crate::engine::{Engine, KnownKey};
use crate::timer::Timer;

/// See the [module's page](self).
#[derive(Debug)]
pub struct Follower {
    engine: Engine,
    /// Whose rows are to be read again.
    stale: BTreeSet<LiveKey>,
    /// What happened while the rows came first: one that has ended meanwhile may still be on its way.
    meanwhile: Option<Vec<Touched>>,
}

/// A change that a follower cannot take in: begin anew with another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("calendars changed, and with them what any schedule may mean")]
pub struct Unfollowed;

impl Follower {
    /// One that knows nothing and waits for rows; `shards` is how many there are.
    ///
    /// # Panics
    /// If `shards` is zero.
    pub fn new(config: Config, shards: u16, now: impl Into<Now>) -> Self {
        // The wall clock of today may have been set back by the time of the start; rows tell how far engine time is.
        let now = Now { wall: Timestamp::default(), ..now.into() };
        let engine = Engine::of_no_shards(config, shards, now);
        Self { engine, stale: BTreeSet::new(), meanwhile: Some(Vec::new()) }
    }

    /// Takes in one of all live rows; in the order of [`Engine::restore`].
    pub fn restore(&mut self, row: LiveRow) {
        let key = LiveKey::of(&row);
        // What contradicts the others was changed in between, or is damaged: reading it again tells which.
        if self.engine.restore(row).is_err() {
            self.stale.extend(key);
        }
    }

    /// Says that all live rows were given, as they were while they were read.
    pub fn loaded(&mut self) {
        if let Some(meanwhile) = self.meanwhile.take() {
            self.apply(&meanwhile);
        }
    }

    /// Takes in what commits touched, in their order: everything since before the first row was read.
    ///
    /// # Errors
    /// [`Unfollowed`]: this follower is of no use any more.
    pub fn follow(&mut self, touched: &[Touched]) -> Result<(), Unfollowed> {
        let rows = touched.iter().filter_map(|touched| match touched {
            Touched::Rows(key) => Some(*key),
            _ => None,
        });
        if rows.clone().any(|key| key == LiveKey::Calendars) {
            return Err(Unfollowed);
        }
        let missed =
            |key: &LiveKey| matches!(key, LiveKey::Job(_)) && is_on(Mutation::EngineMissesWhatOthersChange);
        self.stale.extend(rows.filter(|key| !missed(key)));
        let others = touched.iter().filter(|touched| !matches!(touched, Touched::Rows(_)));
        for ended in others.clone() {
            if let Touched::Ended(job) = ended {
                self.stale.remove(&LiveKey::Job(*job));
            }
        }
        match &mut self.meanwhile {
            Some(meanwhile) => meanwhile.extend(others),
            None => self.apply(&others.copied().collect::<Vec<_>>()),
        }
        Ok(())
    }

    fn apply(&mut self, touched: &[Touched]) {
        // All shards forget at once, and a look at every key is enough for them.
        let forgets = |touched: &Touched| matches!(touched, Touched::KeysForgotten { .. });
        for together in touched.chunk_by(|a, b| forgets(a) && forgets(b)) {
            match *together {
                [Touched::Ended(job)] => self.engine.forget_job(job),
                [Touched::Key(key)] => {
                    self.engine.keys.insert(key.key, KnownKey::from(key));
                }
                [Touched::RunKey(key)] => {
                    self.engine.workflows.keys.insert(key.key, key);
                }
                _ => self.forget_keys(together),
            }
        }
    }

    fn forget_keys(&mut self, forgotten: &[Touched]) {
        let stays = |of: ShardId, expires_at: Timestamp| {
            !forgotten.iter().any(|touched| match *touched {
                Touched::KeysForgotten { shard, expired_before } => {
                    of == shard && expires_at <= expired_before
                }
                _ => false,
            })
        };
        self.engine.keys.retain(|_, key| stays(key.job.shard(), key.expires_at));
        self.engine.workflows.keys.retain(|_, key| stays(key.run.shard(), key.expires_at));
    }

    /// Those whose rows are to be read again, at most `most`; runs before jobs.
    pub fn stale(&self, most: usize) -> Vec<LiveKey> {
        self.stale.iter().take(most).copied().collect()
    }

    /// How many are stale.
    pub fn count_stale(&self) -> usize {
        self.stale.len()
    }

    /// Takes in the rows of `keys` as they are now, in the order of [`Engine::restore`]; those of them that have none
    /// are not live any more. What contradicts other rows stays stale.
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
            LiveKey::Workers => engine.workers.clear(),
            LiveKey::Queues => engine.queues.forget_settings(),
            // `follow` lets none come this far.
            LiveKey::Calendars => {}
            LiveKey::Schedule(id) => engine.forget_schedule(id),
            LiveKey::Backfill(id) => {
                engine.schedules.backfills.remove(&id);
            }
            LiveKey::Workflow(id) => engine.forget_workflow(id),
            LiveKey::Run(id) => engine.forget_run(id),
            LiveKey::Job(id) => engine.forget_job(id),
        }
    }

    /// How many live jobs of each status it knows.
    pub fn live(&self) -> &BTreeMap<JobStatus, u64> {
        self.engine.live_counts.all()
    }

    /// The engine that goes on with what was followed, as the owner of the leased shards.
    ///
    /// `None` if something is stale: then its rows must be loaded.
    ///
    /// # Panics
    /// If no shard is leased.
    pub fn own(mut self, leases: &[Lease]) -> Option<Engine> {
        if !self.stale.is_empty() || self.meanwhile.is_some() {
            return None;
        }
        self.engine.own(leases);
        Some(self.engine)
    }
}

impl Engine {
    /// Forgets a live job as if its rows had never come. Comes before [`start`](Self::start).
    fn forget_job(&mut self, id: JobId) {
        let Some(job) = self.jobs.swap_remove(&id) else { return };
        self.live_counts.sub(job.state.status);
        if let Some(deadline) = job.deadline {
            self.agenda.disarm(deadline, Timer::Deadline(id));
        }
        match job.state.status {
            JobStatus::Ready | JobStatus::Retrying => self.agenda.disarm(job.state.due_at, Timer::Due(id)),
            JobStatus::Waiting => self.queues.remove(id, &job),
            _ => {}
        }
        if let Some(live) = job.live {
            self.executions.swap_remove(&live.record.id);
        }
    }
}
