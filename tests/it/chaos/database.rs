//! Fault injection at the database of several servers: failover to a standby, ended sessions, full disks, a
//! killed pooler, and lost commits.
//!
//! Each test is a storm of its own, with the load and the checker of the other storms. It ends with the
//! question whether anything was lost or duplicated: nothing may be, except in the last test, whose promoted
//! standby lacks the newest commits. There, jobs that must not overlap wait until all workers have reported.
//!
//! `CHAOS_PROMOTIONS` sets the number of failovers (set by `make chaos`). Tests need PostgreSQL's programs,
//! and PgBouncer for the pooler.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::{JobFilter, Page};
use harness::cluster::Cluster;
use harness::pair::{Pair, Replication};
use harness::pooler::Pooler;
use harness::story::Stored;
use harness::{Recorder, poll_pause, until};
use model::why::Reason;
use model::{JobStatus, Timestamp};
use sim::dice::Dice;
use sim::history::{Answer, What};

use super::nemesis::{Fault, Planned, plan};
use super::resumed;
use super::rows::{DatabaseDisk, Rows, SmallDiskDatabase, StoreKind};
use super::scene::open_database;
use super::{RECOVERY, SMOKE, Storm, from_env, seed};

/// Default number of failovers, for `make test`.
const PROMOTIONS: u64 = 2;

/// Runs a blocking function on a separate thread.
async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("the function does not panic")
}

impl Storm {
    fn pair(&self) -> Arc<Pair> {
        let Rows::Pair(pair) = &self.scene.rows else { panic!("this test has no standby database") };
        Arc::clone(pair)
    }

    /// Kills the primary and promotes the standby. Returns the time from which it accepts writes.
    async fn fail_over(&mut self) -> Timestamp {
        let (pair, fault) = (self.pair(), "kill primary, promote standby");
        self.load.recorder.expect_leap();
        self.load.recorder.fault(fault, true);
        run_blocking(move || pair.fail_over()).await;
        self.load.recorder.fault(fault, false);
        self.count(fault);
        self.load.recorder.now()
    }

    /// Restarts the killed primary as a standby.
    async fn restore_standby(&mut self) {
        let pair = self.pair();
        run_blocking(move || pair.restore_standby()).await;
    }
}

/// F11, D7. The primary is killed (`kill -9`), and the synchronous standby promoted. Servers follow, and the old
/// primary returns as a standby, repeatedly. Nothing is lost or duplicated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failover_to_a_synchronous_standby_loses_and_duplicates_nothing() {
    let promotions = from_env("CHAOS_PROMOTIONS", PROMOTIONS);
    let mut storm =
        Storm::start_storm("promotions", 0, StoreKind::WithStandby(Replication::Synchronous)).await;
    let mut resumed = Vec::new();
    for number in 0..promotions {
        resumed.push(storm.resumes_after(number, Storm::fail_over).await);
        storm.restore_standby().await;
        storm.until_progress().await;
    }
    resumed::show("promotions", "the standby accepted writes", &resumed);
    storm.judge().await;
}

/// F13. Sessions of servers end at random times, most of them during a commit, combined with other faults.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_end_during_commit_lose_and_duplicate_nothing() {
    let seed = seed();
    let seconds = from_env("CHAOS_SECONDS", SMOKE / 2);
    let mut storm = Storm::start_storm("sessions", seed, StoreKind::InSlowPostgres).await;
    let always = Planned {
        at: Duration::ZERO,
        lasts: Duration::from_secs(seconds),
        fault: Fault::Sessions,
        choice: 0,
    };
    let mut planned = plan(seed, Duration::from_secs(seconds), storm.scene.able);
    planned.retain(|planned| planned.fault != Fault::Sessions);
    planned.insert(0, always);
    storm.set_active(&planned).await;
    let (ended, in_commit) = storm.nemesis.tools.sessions.as_ref().expect("there is one").ended();
    println!("{ended} sessions ended, {in_commit} of them during COMMIT");
    assert!(in_commit > 0, "none of {ended} sessions was ended during COMMIT");
    storm.judge().await;
}

/// How long a disk of the database stays full after the first refused request.
const FULL: Duration = Duration::from_secs(1);

impl Storm {
    /// Fills a disk of the database until a request is refused, and for [`FULL`] more.
    async fn fill_disk(&mut self, crowded: &Arc<SmallDiskDatabase>, room: DatabaseDisk) {
        let fault = format!("database disk full: {room:?}");
        let since = self.load.recorder.now();
        self.load.recorder.fault(&fault, true);
        let filled = Arc::clone(crowded);
        run_blocking(move || filled.fill(room)).await;
        if room == DatabaseDisk::Data {
            self.until_refused(since, "storage_full").await;
        }
        self.tend_until(Instant::now() + FULL).await;
        let cleared = Arc::clone(crowded);
        run_blocking(move || cleared.clear(room)).await;
        self.load.recorder.fault(&fault, false);
        self.count(&fault);
        self.until_resumed(self.load.recorder.now()).await;
    }

    /// Waits until a request was refused for this reason after that time.
    async fn until_refused(&self, since: Timestamp, wanted: &str) {
        until(&format!("a request is refused: {wanted}"), RECOVERY, async || {
            let events = self.load.recorder.events();
            let refused = |what: &What| matches!(what, What::Answered { answer: Answer::Refused { code }, .. } if code == wanted);
            events.iter().rfind(|event| event.at >= since && refused(&event.what)).map(drop)
        })
        .await;
    }
}

/// F8, C1. The disk of the database's tables is full, then the disk of its log, which stops the whole database. New
/// work is refused with a specific error. Nothing is lost, and work continues once there is space.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_with_full_disks_loses_nothing_and_recovers() {
    let crowded = match SmallDiskDatabase::start() {
        Ok(crowded) => Arc::new(crowded),
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let seconds = from_env("CHAOS_SECONDS", 0);
    let mut storm = Storm::over("full", 0, Rows::Crowded(Arc::clone(&crowded))).await;
    let begun = Instant::now();
    loop {
        storm.fill_disk(&crowded, DatabaseDisk::Data).await;
        storm.fill_disk(&crowded, DatabaseDisk::Log).await;
        storm.until_progress().await;
        if begun.elapsed().as_secs() >= seconds {
            break;
        }
    }
    drop(crowded);
    storm.judge().await;
}

/// Maximum time for which a pooler is down.
const POOLER_AWAY: Duration = Duration::from_millis(1_500);
/// Maximum time for which a pooler runs before it is killed.
const POOLER_THERE: Duration = Duration::from_secs(3);

/// Kills and restarts a pooler until it is stopped; returns the number of kills.
async fn kill_repeatedly(
    pooler: Arc<Pooler>,
    mut dice: Dice,
    recorder: Recorder,
    stop: Arc<AtomicBool>,
) -> u32 {
    let mut kills = 0;
    while !rest(&mut dice, POOLER_THERE, &stop).await {
        recorder.fault(POOLER, true);
        let killed = Arc::clone(&pooler);
        run_blocking(move || killed.kill()).await;
        rest(&mut dice, POOLER_AWAY, &stop).await;
        let started = Arc::clone(&pooler);
        run_blocking(move || started.start_again()).await;
        recorder.fault(POOLER, false);
        kills += 1;
    }
    kills
}

const POOLER: &str = "kill pooler";

/// Waits for a random time of at most `longest`; returns whether it was stopped.
async fn rest(dice: &mut Dice, longest: Duration, stop: &AtomicBool) -> bool {
    let end = Instant::now() + dice.millis(100, longest.as_millis() as u64).to_std();
    while Instant::now() < end && !stop.load(Ordering::Relaxed) {
        poll_pause().await;
    }
    stop.load(Ordering::Relaxed)
}

/// F13. Sessions are shared per transaction by a pooler that is killed, combined with other faults.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_behind_a_killed_pooler_violates_no_guarantee() {
    let pooler = match Pooler::start(Cluster::shared()) {
        Ok(pooler) => Arc::new(pooler),
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let seed = seed();
    let seconds = from_env("CHAOS_SECONDS", SMOKE / 3);
    let rows = Rows::Pooled(Cluster::shared().database(), Arc::clone(&pooler));
    let mut storm = Storm::over("pooler", seed, rows).await;
    let stop = Arc::new(AtomicBool::new(false));
    let (recorder, dice) = (storm.load.recorder.clone(), Dice::new(seed, 3));
    let kills = tokio::spawn(kill_repeatedly(pooler, dice, recorder, Arc::clone(&stop)));
    let planned = plan(seed, Duration::from_secs(seconds), storm.scene.able);
    storm.set_active(&planned).await;
    stop.store(true, Ordering::Relaxed);
    let kills = kills.await.expect("killing and starting the pooler succeeds");
    assert!(kills > 0, "the pooler was never killed");
    *storm.nemesis.counts.entry(POOLER.into()).or_default() += kills;
    storm.judge().await;
}

/// Number of jobs that end without being replicated to the standby.
const FORGOTTEN: u64 = 10;

impl Storm {
    /// Cuts off the standby, lets work continue, kills the primary, and promotes the standby.
    async fn lose_the_tail(&mut self) {
        let pair = self.pair();
        let since = self.load.recorder.now();
        let parted = Arc::clone(&pair);
        run_blocking(move || parted.disconnect_standby()).await;
        let enough = self.load.recorder.ended() + FORGOTTEN;
        let ended = async || (self.load.recorder.ended() >= enough).then_some(());
        until("jobs end that are not replicated to the standby", RECOVERY, ended).await;
        let until_then = self.fail_over().await;
        self.until_resumed(until_then).await;
        self.until_jobs_are_held().await;

        let recorder = self.load.recorder.clone();
        until("the feed continues", RECOVERY, async || recorder.has_leapt().then_some(())).await;
        let store = self.scene.open_store().await.store;
        let mut jobs = Vec::new();
        for job in recorder.live_jobs() {
            if store.job(job).await.expect("cannot read the database").is_none() {
                jobs.push(job);
            }
        }
        let recalled = Arc::clone(&pair);
        let old = open_database(&run_blocking(move || recalled.start_killed()).await).await;
        let (before, after) = (Stored::read_feed(&*old).await, Stored::read_feed(&*store).await);
        let forgotten = before.keys().filter(|place| !after.contains_key(place)).count();
        assert!(forgotten > 0, "no commit was lost");
        println!("{forgotten} events were lost, with {} live jobs", jobs.len());
        recorder.lost(since..until_then, forgotten as u32, &jobs);
        drop(old);
        self.restore_standby().await;
    }

    /// Waits until a job is held until all workers have reported.
    async fn until_jobs_are_held(&self) {
        let client = self.scene.site.client();
        let filter = JobFilter { status: vec![JobStatus::Waiting], ..JobFilter::default() };
        until("a job is held until the workers have reported", RECOVERY, async || {
            let page = client.jobs_page(&filter, &Page { limit: Some(20), cursor: None }).await.ok()?;
            for job in page.items {
                let reasons = client.why(job.id).await.ok()?.reasons;
                if reasons.iter().any(|reason| matches!(reason.known(), Some(Reason::Reconciling { .. }))) {
                    return Some(());
                }
            }
            None
        })
        .await;
    }
}

/// F12, D8. A standby that lags behind is promoted. Only its missing commits are lost. Executions that these had
/// started are reported before a job is started that must not overlap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lagging_standby_loses_only_its_missing_commits() {
    let promotions = from_env("CHAOS_PROMOTIONS", 1);
    let mut storm = Storm::start_storm("tails", 0, StoreKind::WithStandby(Replication::Asynchronous)).await;
    for _ in 0..promotions {
        storm.lose_the_tail().await;
        storm.until_progress().await;
    }
    storm.judge().await;
}
