//! What may become of the database under several servers: its primary dies and a standby takes over; its
//! sessions end.
//!
//! `CHAOS_PROMOTIONS` says how often a standby takes over (`make chaos` sets it).

use std::sync::Arc;
use std::time::Duration;

use harness::pair::{Pair, Replication};
use harness::until;
use model::Timestamp;
use sim::history::{Answer, What};

use super::nemesis::{Fault, Planned, plan};
use super::scene::{Kept, Rows};
use super::{RECOVERY, SMOKE, Storm, from_env};

/// How often a standby takes over in `make test`.
const PROMOTIONS: u64 = 2;

/// How long it took until the work went on, counted from when the promoted standby took writes.
#[derive(Debug, Clone, Copy)]
struct Resumed {
    accepted: Duration,
    started: Duration,
}

/// Something that blocks, beside the storm.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("it does not panic")
}

impl Storm {
    fn pair(&self) -> Arc<Pair> {
        let Rows::Pair(pair) = &self.scene.rows else { panic!("this storm has no standby") };
        Arc::clone(pair)
    }

    /// The primary is killed and the standby promoted. Returns when that took writes.
    async fn fail_over(&mut self) -> Timestamp {
        let (pair, fault) = (self.pair(), "kill primary, promote standby");
        self.load.recorder.expect_leap();
        self.load.recorder.fault(fault, true);
        beside(move || pair.fail_over()).await;
        self.load.recorder.fault(fault, false);
        *self.nemesis.counts.entry(fault.into()).or_default() += 1;
        self.load.recorder.now()
    }

    /// The killed primary comes back as a standby.
    async fn mend(&mut self) {
        let pair = self.pair();
        beside(move || pair.mend()).await;
    }

    /// Waits until a job was accepted and a task was started after that time.
    async fn until_resumed(&self, since: Timestamp) -> Resumed {
        let recorder = &self.load.recorder;
        let accepted = |what: &What| matches!(what, What::Answered { answer: Answer::Submitted { .. }, .. });
        let (accepted, started) = until("work goes on at the promoted standby", RECOVERY, async || {
            let events = recorder.events();
            let accepted = events.iter().find(|event| event.at >= since && accepted(&event.what))?.at;
            let since_secs = since.as_micros() as f64 / 1e6;
            let lines = self.load.witness.lines();
            let starts = lines.iter().filter(|line| line.kind == "start").map(|line| line.at);
            let started = starts.filter(|at| *at >= since_secs).min_by(f64::total_cmp)?;
            Some((accepted, started - since_secs))
        })
        .await;
        Resumed { accepted: accepted.since(since).to_std(), started: Duration::from_secs_f64(started) }
    }
}

fn show(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() as f64 * share).ceil() as usize).clamp(1, times.len()) - 1];
    println!(
        "{} promotions, {name} after the standby took writes: p50 {:?}, p99 {:?}, slowest {:?}",
        times.len(),
        at(0.5),
        at(0.99),
        at(1.0),
    );
}

/// F11, D7. The primary is killed (`kill -9`), the synchronous standby promoted; servers follow, and the
/// old primary comes back as a standby, again and again. Nothing is lost and nothing is doubled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synchronous_standby_that_takes_over_from_a_killed_primary_loses_and_doubles_nothing() {
    let promotions = from_env("CHAOS_PROMOTIONS", PROMOTIONS);
    let mut storm = Storm::gather("promotions", 0, Kept::WithStandby(Replication::Synchronous)).await;
    let mut resumed = Vec::new();
    for _ in 0..promotions {
        let since = storm.fail_over().await;
        resumed.push(storm.until_resumed(since).await);
        storm.mend().await;
        storm.until_it_gets_on().await;
    }
    show("jobs were accepted", resumed.iter().map(|times| times.accepted).collect());
    show("tasks were started", resumed.iter().map(|times| times.started).collect());
    storm.judge().await;
}

/// F13. Sessions of servers end at any moment, most of them while they commit, under other faults.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_end_inside_commit_leave_nothing_lost_or_doubled() {
    let seed = from_env("CHAOS_SEED", std::process::id().into());
    let seconds = from_env("CHAOS_SECONDS", SMOKE / 2);
    let mut storm = Storm::gather("sessions", seed, Kept::InSlowPostgres).await;
    let always = Planned {
        at: Duration::ZERO,
        lasts: Duration::from_secs(seconds),
        fault: Fault::Sessions,
        choice: 0,
    };
    let mut planned = plan(seed, Duration::from_secs(seconds), storm.scene.able);
    planned.retain(|planned| planned.fault != Fault::Sessions);
    planned.insert(0, always);
    storm.rage(&planned).await;
    let (ended, in_commit) = storm.nemesis.tools.sessions.as_ref().expect("there is one").ended();
    println!("{ended} sessions ended, {in_commit} of them inside COMMIT");
    assert!(in_commit > 0, "of {ended} sessions none was ended inside COMMIT");
    storm.judge().await;
}
