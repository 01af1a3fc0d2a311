//! A standby follows the rows that the leader changes, so that its engine is ready for a takeover.
//!
//! ```text
//! read all rows, slowly ─> changelog ─> rows that were touched ─> …        (while another server leads)
//!                          changelog ─> rows that were touched ─> engine   (at the takeover: `take_over`)
//! ```
//!
//! So the time without a leader does not grow with the number of live rows. A standby takes only a small share of the
//! database's time: it pauses after each read for as long as the read took, and after each look at the changelog for
//! many times that.
//!
//! A store that is away for a while costs nothing but what it did not tell. After any other failure the standby drops
//! its engine, and a takeover loads all rows. A takeover also loads all rows where the database may have forgotten
//! commits, or where the standby counts other jobs than the store.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use engine::{Engine, Follower};
use model::changelog::Place;
use model::record::{Lease, LiveRow};
use model::{JobStatus, Timestamp};
use store::changelog::{Changelog, Reread};
use store::{Store, StoreError};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::NodeConfig;

/// So long another one has owned the shards before this one begins to read the rows, and so much longer for each live
/// job: the owner may have to read them itself, and has to be first.
const SETTLED: Duration = Duration::from_secs(2);
const SETTLED_FOR_EACH: Duration = Duration::from_micros(15);
/// How long after a failure it begins anew: twice as long after each that follows, up to the second.
const BEGIN_AGAIN: Duration = Duration::from_secs(10);
const BEGIN_AGAIN_MAX: Duration = Duration::from_secs(300);
/// How soon it asks a store again that was away.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// The same once the shards are taken, when each moment counts, and how often.
const ASK_SOON: Duration = Duration::from_millis(100);
const ASKS: usize = 10;
/// Chunks of rows on their way from the store.
const CHUNKS: usize = 2;
/// Rows that are read again at a time.
const ROWS: usize = 1_024;
/// How often the changelog is looked at while the rows are read the first time.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What is owed of the pauses while they are read is made up for in pieces of this length at least.
const REST: Duration = Duration::from_millis(20);
/// How long it pauses between two looks at the changelog, at least and at most.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// It pauses for so many times as long as a look took.
const PAUSES: u32 = 40;
/// The pause while the shards are about to be free; for so long.
const PAUSE_SOON: Duration = Duration::from_millis(5);
const HURRIES_FOR: Duration = Duration::from_secs(10);

/// An engine that follows, and how far it is.
pub(super) struct Standby {
    follower: Box<Follower>,
    place: Place,
    now: Timestamp,
}

/// Why a standby cannot go on with what it has read.
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
    #[error("it has not read everything")]
    Unread,
    #[error("it counts other live jobs than the store: {here:?} here, {there:?} there")]
    Miscounted { here: BTreeMap<JobStatus, u64>, there: BTreeMap<JobStatus, u64> },
    #[error("the engine failed on a row")]
    Panicked,
}

/// Keeps a standby in `slot` while it is polled, and goes on with one that is there. It may be dropped at
/// any time: what is in the slot then is whole.
pub(super) async fn follow_leader(
    store: &dyn Store,
    config: &NodeConfig,
    slot: &mut Option<Standby>,
) -> Infallible {
    let Some(changelog) = store.changelog().filter(|_| config.warm_standby) else {
        return std::future::pending().await;
    };
    if slot.is_none() {
        settle(store).await;
    }
    let mut pause = BEGIN_AGAIN;
    loop {
        let was_there = slot.is_some();
        let Err(lost) = follow(store, changelog, config, slot).await;
        if slot.is_some() && matches!(lost, Lost::Store(StoreError::Unavailable { .. })) {
            // What was heard so far holds all the same.
            tracing::debug!(reason = %lost, "cannot follow the owner now; trying again");
            tokio::time::sleep(ASK_AGAIN).await;
            continue;
        }
        pause = if was_there || slot.is_some() { BEGIN_AGAIN } else { (pause * 2).min(BEGIN_AGAIN_MAX) };
        drop_in_background(slot.take());
        show_lag(config, None);
        tracing::info!(
            reason = %lost,
            seconds = pause.as_secs(),
            "this server does not follow the live rows; it will read them anew"
        );
        if matches!(lost, Lost::Panicked) {
            config.metrics.engine_panicked();
        }
        tokio::time::sleep(pause).await;
    }
}

/// Tells the others, and whoever looks at metrics, since when nothing was heard of the owner; `None` where it is not
/// followed.
pub(super) fn show_lag(config: &NodeConfig, heard: Option<Instant>) {
    config.members.heard(heard);
    config.metrics.stands_by(heard.is_some());
}

/// Lets go of what takes long to let go of: millions of jobs are not forgotten in a moment.
pub(super) fn drop_in_background<T: Send + 'static>(what: T) {
    // Without a thread it takes its time here.
    let _forgetting = std::thread::Builder::new().name("belfry-forget".into()).spawn(move || drop(what));
}

async fn settle(store: &dyn Store) {
    tokio::time::sleep(SETTLED).await;
    if let Ok(counts) = store.counts(None).await {
        let live: u64 = counts.iter().filter(|(status, _)| !status.is_final()).map(|(_, count)| count).sum();
        tokio::time::sleep(SETTLED_FOR_EACH * u32::try_from(live).unwrap_or(u32::MAX)).await;
    }
}

async fn follow(
    store: &dyn Store,
    changelog: &dyn Changelog,
    config: &NodeConfig,
    slot: &mut Option<Standby>,
) -> Result<Infallible, Lost> {
    let standby = match slot {
        Some(standby) => standby,
        None => slot.insert(Standby::read(store, changelog, config).await?),
    };
    let mut standing = config.standing.clone();
    let mut hurries_since = None;
    loop {
        let begun = Instant::now();
        standby.catch_up(changelog).await?;
        show_lag(config, Some(begun));
        let hurries = standing.borrow().hurries;
        hurries_since = hurries.then(|| hurries_since.unwrap_or(begun));
        if hurries_since.is_some_and(|since| begun - since < HURRIES_FOR) {
            tokio::time::sleep(PAUSE_SOON).await;
            continue;
        }
        let pause = (begun.elapsed() * PAUSES).clamp(PAUSE_MIN, PAUSE_MAX);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            Ok(_) = standing.wait_for(|standing| standing.hurries), if !hurries => {}
        }
    }
}

/// The engine's settings, with a seed of its own for each: under the same epoch and within the same millisecond,
/// two engines must not make the same ids.
fn engine_config(config: &NodeConfig) -> engine::Config {
    engine::Config { seed: config.engine.seed ^ rand::random::<u64>(), ..config.engine.clone() }
}

impl Standby {
    /// Reads all rows, while others change them.
    async fn read(store: &dyn Store, changelog: &dyn Changelog, config: &NodeConfig) -> Result<Self, Lost> {
        let started = Instant::now();
        let place = changelog.end().await?;
        let follower = Box::new(Follower::new(engine_config(config), store.shards(), config.clock.both()));
        let mut standby = Self { follower, place, now: Timestamp::default() };
        // Of an owner who writes no changelog it hears nothing, and need not read anything.
        standby.hear(changelog).await?;
        let (rows_tx, rows) = mpsc::channel(CHUNKS);
        let (read, taken) = tokio::join!(changelog.preload(rows_tx), standby.take(changelog, rows));
        taken?;
        let read = read?;
        if read.quarantined > 0 {
            return Err(Lost::Damaged(read.quarantined));
        }
        standby.guarded(Follower::loaded)?;
        standby.catch_up(changelog).await?;
        let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::info!(rows = read.rows, millis, "live rows read: this server is ready to take over");
        Ok(standby)
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
            if begun.elapsed() >= REST {
                tokio::time::sleep(begun.elapsed()).await;
                begun = Instant::now();
            }
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
            let Reread { rows, unreadable } = changelog.live_rows(&keys).await?;
            if unreadable > 0 {
                return Err(Lost::Damaged(unreadable));
            }
            self.guarded(|follower| follower.refresh(&keys, rows))?;
        }
        // Rows that are read at one moment contradict each other only if they are damaged.
        match self.follower.count_stale() {
            0 => Ok(()),
            stale => Err(Lost::Inconsistent(stale)),
        }
    }

    /// Becomes the engine of the shards that were just taken: nobody else commits any more. `None`, with the
    /// reason in the log, if the rows have to be loaded.
    ///
    /// Answers also with the engine time of the newest commit.
    pub(super) async fn take_over(
        mut self,
        store: &dyn Store,
        leases: &[Lease],
    ) -> Option<(Engine, Timestamp)> {
        let mut asked = 0;
        let lost = loop {
            asked += 1;
            match self.see_all(store).await {
                Ok(()) => match self.follower.own(leases) {
                    Some(engine) => return Some((engine, self.now)),
                    None => break Lost::Unread,
                },
                Err(Lost::Store(StoreError::Unavailable { .. })) if asked < ASKS => {
                    tokio::time::sleep(ASK_SOON).await;
                }
                Err(lost) => {
                    drop_in_background(self);
                    break lost;
                }
            }
        };
        tracing::warn!(reason = %lost, "what this server followed is of no use; all live rows are loaded");
        None
    }

    /// Hears and reads the last of it, and counts whether that is all.
    async fn see_all(&mut self, store: &dyn Store) -> Result<(), Lost> {
        let changelog = store.changelog().ok_or(Lost::OutOfReach)?;
        let (caught_up, counts) = tokio::join!(self.catch_up(changelog), store.counts(None));
        caught_up?;
        let live =
            |(status, count): (JobStatus, u64)| (!status.is_final() && count > 0).then_some((status, count));
        let there: BTreeMap<JobStatus, u64> = counts?.into_iter().filter_map(live).collect();
        let here = self.follower.live().iter().map(|(&status, &count)| (status, count));
        let here: BTreeMap<JobStatus, u64> = here.filter_map(live).collect();
        if here == there { Ok(()) } else { Err(Lost::Miscounted { here, there }) }
    }

    /// A row that makes the engine fail costs the standby and not the server.
    fn guarded<T>(&mut self, act: impl FnOnce(&mut Follower) -> T) -> Result<T, Lost> {
        catch_unwind(AssertUnwindSafe(|| act(&mut self.follower))).map_err(|_| Lost::Panicked)
    }
}
