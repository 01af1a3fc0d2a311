//! A leader that is cut off from its database while everything else works: no job runs twice at the same time, and
//! work that another server accepts starts soon.
//!
//! ```text
//!   w1 ──── A ──╳── PostgreSQL      A leads. w1 reaches A alone, and runs an `exactly_once` job.
//!           ╳            │          During the cut w2 reaches B alone, and B leads.
//!   w2 ───────────── B ──┘
//! ```
//!
//! The faults last longer than the leases of a server and of a worker together. `PARTITION_ROUNDS` says how often each
//! variant is played (`make partitions`).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use client::{Client, Patience};
use harness::proxy::{Proxy, Weather};
use harness::witness::Line;
use harness::{Site, until, within};
use model::spec::Delivery;
use model::{JobSpec, JobStatus};
use store::suite::cluster::Cluster;

/// The other server leads, waits for the lease of the cut-off worker, and starts the job again within this time.
const TAKEOVER: Duration = Duration::from_secs(60);
/// For how long both executions are watched after the second one has begun.
const WATCHED: Duration = Duration::from_secs(6);
/// A leader stops calling itself ready within its lease (2.5 s), on a machine that everything shares.
const NOT_READY: Duration = Duration::from_secs(5);
/// A job that the other server accepts is started within this time, on a machine that everything shares.
const STARTED: Duration = Duration::from_secs(20);
/// The same in `make partitions`, where nothing else runs.
const STARTED_ALONE: Duration = Duration::from_secs(6);
/// From this many rounds on, nothing else runs beside them.
const ALONE: usize = 20;

/// What the cut does.
#[derive(Debug, Clone, Copy)]
struct Variant {
    name: &'static str,
    /// Between the leader and its database.
    database: Weather,
    /// Whether the second worker loses the leader too; else it is to leave it by itself.
    worker: bool,
    /// Whether jobs are submitted to the leader meanwhile, so that commits hang.
    loaded: bool,
    /// Whether the leader's process stands still for the first seconds.
    paused: bool,
    /// Whether the database's clock leaps ahead at the same moment, by more than the lease.
    leaps: bool,
}

const HELD: Variant = Variant {
    name: "held",
    database: Weather::CUT,
    worker: true,
    loaded: false,
    paused: false,
    leaps: false,
};

/// For how long the first execution went on after the second one had begun.
fn overlap(lines: &[Line]) -> Duration {
    let first = lines.iter().map(|line| line.fence).min();
    let (of_first, of_second): (Vec<_>, Vec<_>) = lines.iter().partition(|line| Some(line.fence) == first);
    let ends = of_first.iter().map(|line| line.at).fold(f64::MIN, f64::max);
    let begins = of_second.iter().map(|line| line.at).fold(f64::MAX, f64::min);
    Duration::from_secs_f64((ends - begins).max(0.0))
}

/// How often the job was started.
fn executions(lines: &[Line]) -> usize {
    lines.iter().map(|line| line.fence).collect::<BTreeSet<_>>().len()
}

/// What a round showed.
#[derive(Debug)]
struct Shown {
    overlap: Duration,
    /// From the cut until a job that the other server accepted had started.
    started: Duration,
    /// From the cut until the job of the cut-off worker had begun a second time.
    again: Duration,
}

async fn play(variant: Variant) -> Shown {
    let database = Cluster::shared().database();
    let url = database.url();
    let address = url.split_once('@').and_then(|(_, rest)| rest.split_once('/')).unwrap().0;
    let to_database = Proxy::start("127.0.0.1", address.parse().unwrap()).await;
    // Where the servers say that they are: the workers learn it, so it is cut as well.
    let (to_a, to_b) = (Proxy::leading_nowhere("127.0.0.1").await, Proxy::leading_nowhere("127.0.0.1").await);
    let folder = tempfile::tempdir().unwrap();
    let objects = folder.path().join("objects").display().to_string();
    let of_a = url.replace(address, &to_database.address().to_string());
    let settings = |store: String, advertised: String| {
        [
            ("BELFRY_SERVER__STORE", store),
            // The tests' database does not wait for its disk.
            ("BELFRY_SERVER__STORE_ALLOW_UNSAFE", "true".to_owned()),
            ("BELFRY_SERVER__OBJECTS_DIR", objects.clone()),
            ("BELFRY_SERVER__ADVERTISE_URL", advertised),
        ]
    };
    let (first, second) = (settings(of_a, to_a.url()), settings(url.clone(), to_b.url()));
    let mut site = Site::server_only(&first.each_ref().map(|(k, v)| (*k, v.as_str()))).await;
    site.add_server(&second.each_ref().map(|(k, v)| (*k, v.as_str()))).await;
    to_a.lead_to(site.server.address());
    to_b.lead_to(site.servers().nth(1).unwrap().address());
    site.add_worker().await;

    let witness = site.witness();
    let mut spec = witness.job_that("while :; do tell beat; sleep 0.05; done");
    spec.delivery = Delivery::ExactlyOnce;
    let job = site.submit(&spec).await;
    site.until_status(job, JobStatus::Running).await;
    until("the task writes", TAKEOVER, async || (witness.count("beat") > 0).then_some(())).await;
    site.add_worker_behind_proxies().await;

    let patience = Patience { retry_for: TAKEOVER, ..Patience::default() };
    let at_b = Client::with_patience(
        &site.servers().nth(1).unwrap().url(),
        site.server.token().as_deref(),
        patience,
    )
    .unwrap();
    let cut = Instant::now();
    // Watched from the cut on. A process that stands still answers nothing, so it is not ready either.
    let ends = async { within(NOT_READY, async || !site.server.is_ready().await).await };
    to_database.set(variant.database);
    for road in [&to_a, &to_b] {
        road.set(Weather::CUT);
    }
    if variant.worker {
        site.workers[1].road().proxies[0].set(Weather::CUT);
    }
    if variant.leaps {
        // To whoever compares the two, the same as a clock that is an hour ahead.
        database.execute("UPDATE shards SET expires_at = expires_at - 3600000000");
    }
    let load = variant.loaded.then(|| {
        let at_a = site.client();
        tokio::spawn(async move {
            loop {
                let _refused = at_a.submit(&JobSpec::command(["true"])).await;
            }
        })
    });
    assert!(variant.paused || ends.await, "a leader without a lease is not ready");
    if variant.paused {
        site.server.pid().pause();
        tokio::time::sleep(Duration::from_secs(4)).await;
        site.server.pid().resume();
    }
    let accepted = at_b.submit(&JobSpec::command(["true"])).await.unwrap().id;
    until("a job that the other server accepted has started", TAKEOVER, async || {
        let job = at_b.job(accepted).await.ok()?;
        matches!(job.status, JobStatus::Running | JobStatus::Succeeded).then_some(())
    })
    .await;
    let started = cut.elapsed();
    until("the job has begun a second time", TAKEOVER, async || (witness.count("start") > 1).then_some(()))
        .await;
    let again = cut.elapsed();
    tokio::time::sleep(WATCHED).await;
    to_database.set(Weather::default());
    for road in [&to_a, &to_b, &site.workers[1].road().proxies[0]] {
        road.set(Weather::default());
    }
    if let Some(load) = load {
        load.abort();
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let lines = witness.lines();
    assert_eq!(executions(&lines), 2, "{variant:?}: started once more than there was reason to");
    Shown { overlap: overlap(&lines), started, again }
}

async fn check(variant: Variant) {
    let rounds = std::env::var("PARTITION_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let started_max = if rounds >= ALONE { STARTED_ALONE } else { STARTED };
    let mut all = Vec::new();
    for round in 0..rounds {
        let shown = play(variant).await;
        println!("{} {round}: {shown:?}", variant.name);
        assert_eq!(shown.overlap, Duration::ZERO, "{variant:?}: two executions ran at the same time");
        assert!(shown.started < started_max, "{variant:?}: {shown:?}");
        all.push(shown);
    }
    all.sort_by_key(|shown| shown.started);
    if let (Some(fastest), Some(slowest)) = (all.first(), all.last()) {
        println!(
            "{}: {rounds} rounds, overlap 0; accepted work started after {:?} to {:?}; the job again after {:?} at most",
            variant.name,
            fastest.started,
            slowest.started,
            all.iter().map(|shown| shown.again).max().unwrap_or_default()
        );
    }
}

/// D2, D6. What the leader sends to the database, and what that answers, is lost in silence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_database_is_silent_runs_no_job_beside_its_next_execution() {
    check(HELD).await;
}

/// D2, D6. The database refuses connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_database_refuses_it_runs_no_job_beside_its_next_execution() {
    check(Variant { name: "refused", database: Weather::REFUSED, ..HELD }).await;
}

/// D2, D6. The database does what the leader asks, and its answers are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "beside the others in `make partitions`"]
async fn a_leader_that_hears_no_answers_runs_no_job_beside_its_next_execution() {
    let deaf = Weather { up_cut: false, ..Weather::CUT };
    check(Variant { name: "one way: answers lost", database: deaf, ..HELD }).await;
}

/// D2, D6. What the leader asks never arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "beside the others in `make partitions`"]
async fn a_leader_that_is_not_heard_runs_no_job_beside_its_next_execution() {
    let mute = Weather { down_cut: false, ..Weather::CUT };
    check(Variant { name: "one way: requests lost", database: mute, ..HELD }).await;
}

/// D6. Nobody but the leader is cut off: workers leave it by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_leave_a_leader_that_alone_is_cut_off_from_the_database() {
    check(Variant { name: "leader alone", worker: false, ..HELD }).await;
}

/// D2, D6. Commits hang, and clients wait for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "beside the others in `make partitions`"]
async fn a_leader_under_load_that_is_cut_off_runs_no_job_beside_its_next_execution() {
    check(Variant { name: "held, loaded", loaded: true, ..HELD }).await;
}

/// D2, D6. Its process stands still for longer than its lease, and goes on during the cut.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "beside the others in `make partitions`"]
async fn a_leader_that_stood_still_runs_no_job_beside_its_next_execution() {
    check(Variant { name: "held, paused", paused: true, ..HELD }).await;
}

/// D7. The lease in the table ends at once, and the leader cannot learn it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "beside the others in `make partitions`"]
async fn a_leader_that_is_cut_off_while_the_clock_leaps_runs_no_job_beside_its_next_execution() {
    check(Variant { name: "held, clock leaps", leaps: true, ..HELD }).await;
}
