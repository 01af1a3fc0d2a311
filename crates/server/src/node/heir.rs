//! What a server does while another one owns the shards: it keeps an engine ready.
//!
//! ```text
//! read all rows, slowly ─> changelog ─> rows that were touched ─> …        (while another one owns them)
//!                          changelog ─> rows that were touched ─> engine   (once they are taken: `ascend`)
//! ```
//!
//! So the time without an owner does not grow with the number of live rows. What is read here costs the database
//! no more than a small share of its time: reading pauses for as long as it took, and following for
//! many times that.
//!
//! Whatever goes wrong, the heir is given up, and a take-over loads all rows. It does so as well where the
//! database may have forgotten commits, or where the heir counts other jobs than the store.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use engine::{Engine, Follower};
use model::changelog::Place;
use model::record::{Lease, LiveRow};
use model::{JobStatus, Timestamp};
use store::changelog::Changelog;
use store::{Store, StoreError};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::NodeConfig;
use super::ownership::engine_config;

/// So long another one has owned the shards before this one begins to read the rows, and so much longer for each live
/// job: the owner may have to read them itself, and has to be first.
const SETTLED: Duration = Duration::from_secs(2);
const SETTLED_FOR_EACH: Duration = Duration::from_micros(15);
/// How long after a failure it begins anew.
const BEGIN_AGAIN: Duration = Duration::from_secs(10);
/// Chunks of rows on their way from the store.
const CHUNKS: usize = 2;
/// Rows that are read again at a time.
const ROWS: usize = 1_024;
/// How often the changelog is looked at while the rows are read the first time.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long it pauses between two looks at the changelog, at least and at most; and if the shards are about to be free.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(5);
const PAUSE_SOON: Duration = Duration::from_millis(5);
/// It pauses for so many times as long as a look took.
const PAUSES: u32 = 40;

/// An engine that follows, and how far it is.
pub(super) struct Heir {
    follower: Box<Follower>,
    place: Place,
    now: Timestamp,
}

/// Why an heir is of no use any more.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the changelog does not say what happened since")]
    OutOfReach,
    #[error(transparent)]
    Unfollowed(#[from] engine::Unfollowed),
    #[error("{0} live rows cannot be read")]
    Damaged(u64),
    #[error("{0} live rows contradict each other")]
    Inconsistent(usize),
    #[error("it counts other live jobs than the store: {here:?} here, {there:?} there")]
    Miscounted { here: BTreeMap<JobStatus, u64>, there: BTreeMap<JobStatus, u64> },
    #[error("the engine failed on a row")]
    Panicked,
}

/// Keeps an heir in `slot` for as long as it is polled, and goes on with one that is there. It may be dropped at
/// any time: what is in the slot then is whole.
pub(super) async fn stand_by(store: &dyn Store, config: &NodeConfig, slot: &mut Option<Heir>) -> Infallible {
    let Some(changelog) = store.changelog().filter(|_| config.warm_standby) else {
        return std::future::pending().await;
    };
    tokio::time::sleep(SETTLED).await;
    if slot.is_none()
        && let Ok(counts) = store.counts(None).await
    {
        let live: u64 = counts.iter().filter(|(status, _)| !status.is_final()).map(|(_, count)| count).sum();
        tokio::time::sleep(SETTLED_FOR_EACH * u32::try_from(live).unwrap_or(u32::MAX)).await;
    }
    loop {
        let Err(lost) = follow(store, changelog, config, slot).await;
        if matches!(lost, Lost::Store(StoreError::Unavailable { .. })) {
            // What was heard so far holds all the same.
            tracing::debug!(reason = %lost, "cannot follow the owner now; trying again");
            tokio::time::sleep(LOOK_EVERY).await;
            continue;
        }
        *slot = None;
        config.members.heard(None);
        config.metrics.stands_by(false);
        tracing::info!(reason = %lost, "the live rows that this server followed are given up, and will be read anew");
        if matches!(lost, Lost::Panicked) {
            config.metrics.engine_panicked();
        }
        tokio::time::sleep(BEGIN_AGAIN).await;
    }
}

async fn follow(
    store: &dyn Store,
    changelog: &dyn Changelog,
    config: &NodeConfig,
    slot: &mut Option<Heir>,
) -> Result<Infallible, Lost> {
    let heir = match slot {
        Some(heir) => heir,
        None => slot.insert(Heir::read(store, changelog, config).await?),
    };
    let mut standing = config.standing.clone();
    loop {
        let begun = Instant::now();
        heir.catch_up(changelog).await?;
        config.members.heard(Some(begun));
        config.metrics.stands_by(true);
        let pause = (begun.elapsed() * PAUSES).clamp(PAUSE_MIN, PAUSE_MAX);
        if standing.borrow().hurries {
            tokio::time::sleep(PAUSE_SOON).await;
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            Ok(_) = standing.wait_for(|standing| standing.hurries) => {}
        }
    }
}

impl Heir {
    /// Reads all rows, while others change them.
    async fn read(store: &dyn Store, changelog: &dyn Changelog, config: &NodeConfig) -> Result<Self, Lost> {
        let started = Instant::now();
        let place = changelog.end().await?;
        let follower = Box::new(Follower::new(engine_config(config), store.shards(), config.clock.both()));
        let mut heir = Self { follower, place, now: Timestamp::default() };
        let (rows_tx, rows) = mpsc::channel(CHUNKS);
        let (read, taken) = tokio::join!(changelog.preload(rows_tx), heir.take(changelog, rows));
        taken?;
        let read = read?;
        if read.quarantined > 0 {
            return Err(Lost::Damaged(read.quarantined));
        }
        heir.guarded(Follower::loaded)?;
        heir.catch_up(changelog).await?;
        let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::info!(rows = read.rows, millis, "live rows read: this server is ready to take over");
        Ok(heir)
    }

    async fn take(
        &mut self,
        changelog: &dyn Changelog,
        mut rows: mpsc::Receiver<Vec<LiveRow>>,
    ) -> Result<(), Lost> {
        let (mut begun, mut looked) = (Instant::now(), Instant::now());
        while let Some(chunk) = rows.recv().await {
            self.guarded(|follower| chunk.into_iter().for_each(|row| follower.restore(row)))?;
            if looked.elapsed() >= LOOK_EVERY {
                self.hear(changelog).await?;
                looked = Instant::now();
            }
            tokio::time::sleep(begun.elapsed()).await;
            begun = Instant::now();
        }
        Ok(())
    }

    /// Hears what was touched since it looked last.
    async fn hear(&mut self, changelog: &dyn Changelog) -> Result<(), Lost> {
        loop {
            let since = changelog.since(self.place).await?.ok_or(Lost::OutOfReach)?;
            self.guarded(|follower| follower.follow(&since.touched))??;
            (self.place, self.now) = (since.end, since.now);
            if since.whole {
                return Ok(());
            }
        }
    }

    /// Hears what was touched, and reads all of that again, each once.
    async fn catch_up(&mut self, changelog: &dyn Changelog) -> Result<(), Lost> {
        self.hear(changelog).await?;
        let mut left = self.follower.stale(usize::MAX);
        while !left.is_empty() {
            let keys: Vec<_> = left.drain(..left.len().min(ROWS)).collect();
            let rows = changelog.live_rows(&keys).await?;
            self.guarded(|follower| follower.refresh(&keys, rows))?;
        }
        Ok(())
    }

    /// Becomes the engine of the shards that were just taken: nobody commits any more. `None`, with the
    /// reason in the log, if the rows have to be loaded.
    ///
    /// Answers also with the engine time of the newest commit.
    pub(super) async fn ascend(
        self,
        store: &dyn Store,
        leases: &Arc<[Lease]>,
    ) -> Option<(Engine, Timestamp)> {
        match self.try_to_ascend(store, leases).await {
            Ok(ascended) => Some(ascended),
            Err(lost) => {
                tracing::warn!(reason = %lost, "what this server followed is of no use; all live rows are loaded");
                None
            }
        }
    }

    async fn try_to_ascend(
        mut self,
        store: &dyn Store,
        leases: &Arc<[Lease]>,
    ) -> Result<(Engine, Timestamp), Lost> {
        let changelog = store.changelog().ok_or(Lost::OutOfReach)?;
        let (caught_up, counts) = tokio::join!(self.catch_up(changelog), store.counts(None));
        caught_up?;
        let there: BTreeMap<JobStatus, u64> =
            counts?.into_iter().filter(|(status, count)| !status.is_final() && *count > 0).collect();
        let here = self.follower.live().iter().map(|(&status, &count)| (status, count));
        let here: BTreeMap<JobStatus, u64> = here.filter(|(_, count)| *count > 0).collect();
        if here != there {
            return Err(Lost::Miscounted { here, there });
        }
        let stale = self.follower.count_stale();
        let engine = self.follower.own(leases).ok_or(Lost::Inconsistent(stale))?;
        Ok((engine, self.now))
    }

    /// A row that makes the engine fail costs the heir and not the server.
    fn guarded<T>(&mut self, act: impl FnOnce(&mut Follower) -> T) -> Result<T, Lost> {
        catch_unwind(AssertUnwindSafe(|| act(&mut self.follower))).map_err(|_| Lost::Panicked)
    }
}
