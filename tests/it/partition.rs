//! Network partitions between a leader and its database: no job has overlapping executions, and work that another
//! server accepts starts soon.
//!
//! ```text
//!   w1 ──── A ──╳── PostgreSQL      A leads. w1 reaches only A, and runs an `exactly_once` job.
//!           ╳            │          During the partition w2 reaches only B, and B leads.
//!   w2 ───────────── B ──┘
//! ```
//!
//! The faults last longer than the leases of a server and a worker together. `PARTITION_ROUNDS` sets the number of
//! rounds of each variant (`make partitions`).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use client::{Client, Timeouts};
use harness::proxy::{Conditions, Proxy};
use harness::witness::Line;
use harness::{Site, until, within};
use model::spec::Delivery;
use model::{JobSpec, JobStatus};
use store::suite::cluster::Cluster;

/// Maximum time until the other server leads, has waited for the lease of the cut-off worker, and has started the job
/// again.
const TAKEOVER: Duration = Duration::from_secs(60);
/// How long both executions are observed after the second one has started.
const WATCHED: Duration = Duration::from_secs(6);
/// Maximum time until a leader is not ready: its lease (2.5 s), on a machine with other tests.
const NOT_READY: Duration = Duration::from_secs(5);
/// Maximum time until a job that the other server accepts has started, on a machine with other tests.
const STARTED: Duration = Duration::from_secs(20);
/// The same in `make partitions`, without other tests.
const STARTED_ALONE: Duration = Duration::from_secs(6);
/// Minimum number of rounds for which no other tests are assumed to run.
const ALONE: usize = 20;

/// A variant of the partition.
#[derive(Debug, Clone, Copy)]
struct Variant {
    name: &'static str,
    /// Connection between the leader and its database.
    database: Conditions,
    /// Whether the second worker loses the connection to the leader too; otherwise it must leave the leader by
    /// itself.
    worker: bool,
    /// Whether jobs are submitted to the leader meanwhile, so that commits hang.
    loaded: bool,
    /// Whether the leader's process is paused for the first seconds.
    paused: bool,
    /// Whether the database's clock leaps ahead at the same time, by more than the lease.
    leaps: bool,
}

const HELD: Variant = Variant {
    name: "held",
    database: Conditions::CUT,
    worker: true,
    loaded: false,
    paused: false,
    leaps: false,
};

/// Returns how long the first execution continued after the second one had started.
fn overlap(lines: &[Line]) -> Duration {
    let first = lines.iter().map(|line| line.fence).min();
    let (of_first, of_second): (Vec<_>, Vec<_>) = lines.iter().partition(|line| Some(line.fence) == first);
    let ends = of_first.iter().map(|line| line.at).fold(f64::MIN, f64::max);
    let begins = of_second.iter().map(|line| line.at).fold(f64::MAX, f64::min);
    Duration::from_secs_f64((ends - begins).max(0.0))
}

/// Returns the number of executions of the job.
fn executions(lines: &[Line]) -> usize {
    lines.iter().map(|line| line.fence).collect::<BTreeSet<_>>().len()
}

/// Result of a round.
#[derive(Debug)]
struct Shown {
    overlap: Duration,
    /// Time from the partition until a job that the other server accepted has started.
    started: Duration,
    /// Time from the partition until the job of the cut-off worker has started again.
    again: Duration,
}

async fn play(variant: Variant) -> Shown {
    let database = Cluster::shared().database();
    let url = database.url();
    let address = url.split_once('@').and_then(|(_, rest)| rest.split_once('/')).unwrap().0;
    let to_database = Proxy::start("127.0.0.1", address.parse().unwrap()).await;
    // The workers learn the advertised addresses, so these are cut as well.
    let (to_a, to_b) =
        (Proxy::start_without_target("127.0.0.1").await, Proxy::start_without_target("127.0.0.1").await);
    let of_a = url.replace(address, &to_database.address().to_string());
    let settings = |store: String, advertised: String| {
        [
            ("BELFRY_SERVER__STORE", store),
            // The test database does not fsync.
            ("BELFRY_SERVER__STORE_ALLOW_UNSAFE", "true".to_owned()),
            ("BELFRY_SERVER__ADVERTISE_URL", advertised),
        ]
    };
    let (first, second) = (settings(of_a, to_a.url()), settings(url.clone(), to_b.url()));
    let mut site = Site::server_only(&first.each_ref().map(|(k, v)| (*k, v.as_str()))).await;
    site.add_server(&second.each_ref().map(|(k, v)| (*k, v.as_str()))).await;
    to_a.set_target(site.server.address());
    to_b.set_target(site.servers().nth(1).unwrap().address());
    site.add_worker().await;

    let witness = site.witness();
    let mut spec = witness.job_that("while :; do tell beat; pause 0.05; done");
    spec.delivery = Delivery::ExactlyOnce;
    let job = site.submit(&spec).await;
    site.until_status(job, JobStatus::Running).await;
    until("the task runs", TAKEOVER, async || (witness.count("beat") > 0).then_some(())).await;
    site.add_worker_behind_proxies().await;

    let patience = Timeouts { retry_for: TAKEOVER, ..Timeouts::default() };
    let at_b = Client::with_patience(
        &site.servers().nth(1).unwrap().url(),
        site.server.token().as_deref(),
        patience,
    )
    .unwrap();
    let cut = Instant::now();
    // Observed from the start of the partition. A paused process does not answer, so it is not ready either.
    let ends = async { within(NOT_READY, async || !site.server.is_ready().await).await };
    to_database.set(variant.database);
    for road in [&to_a, &to_b] {
        road.set(Conditions::CUT);
    }
    if variant.worker {
        site.workers[1].road().proxies[0].set(Conditions::CUT);
    }
    if variant.leaps {
        // For a reader of the table, this equals a clock that is an hour ahead.
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
    assert!(variant.paused || ends.await, "a leader without a lease must not be ready");
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
    until("the job has started again", TAKEOVER, async || (witness.count("start") > 1).then_some(())).await;
    let again = cut.elapsed();
    tokio::time::sleep(WATCHED).await;
    to_database.set(Conditions::default());
    for road in [&to_a, &to_b, &site.workers[1].road().proxies[0]] {
        road.set(Conditions::default());
    }
    if let Some(load) = load {
        load.abort();
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let lines = witness.lines();
    assert_eq!(executions(&lines), 2, "{variant:?}: the job was started more than twice");
    Shown { overlap: overlap(&lines), started, again }
}

async fn check(variant: Variant) {
    let rounds = std::env::var("PARTITION_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let started_max = if rounds >= ALONE { STARTED_ALONE } else { STARTED };
    let mut all = Vec::new();
    for round in 0..rounds {
        let shown = play(variant).await;
        println!("{} {round}: {shown:?}", variant.name);
        assert_eq!(shown.overlap, Duration::ZERO, "{variant:?}: two executions overlapped");
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

/// D2, D6. Data in both directions between the leader and the database is lost silently.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_with_a_silent_database_causes_no_overlap() {
    check(HELD).await;
}

/// D2, D6. The database refuses connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_the_database_refuses_causes_no_overlap() {
    check(Variant { name: "refused", database: Conditions::REFUSED, ..HELD }).await;
}

/// D2, D6. The database executes the leader's requests, but its answers are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "beside the others in `make partitions`"]
async fn a_leader_without_answers_causes_no_overlap() {
    let deaf = Conditions { up_cut: false, ..Conditions::CUT };
    check(Variant { name: "one way: answers lost", database: deaf, ..HELD }).await;
}

/// D2, D6. The leader's requests are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "beside the others in `make partitions`"]
async fn a_leader_whose_requests_are_lost_causes_no_overlap() {
    let mute = Conditions { down_cut: false, ..Conditions::CUT };
    check(Variant { name: "one way: requests lost", database: mute, ..HELD }).await;
}

/// D6. Only the leader is cut off: workers leave it by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_leave_a_leader_that_alone_is_cut_off_from_the_database() {
    check(Variant { name: "leader alone", worker: false, ..HELD }).await;
}

/// D2, D6. Commits hang while clients wait for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "beside the others in `make partitions`"]
async fn a_partitioned_leader_under_load_causes_no_overlap() {
    check(Variant { name: "held, loaded", loaded: true, ..HELD }).await;
}

/// D2, D6. The leader's process is paused for longer than its lease, and resumes during the partition.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "beside the others in `make partitions`"]
async fn a_paused_leader_causes_no_overlap() {
    check(Variant { name: "held, paused", paused: true, ..HELD }).await;
}

/// D7. The lease in the table ends immediately, and the leader cannot learn it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "beside the others in `make partitions`"]
async fn a_partitioned_leader_with_a_clock_leap_causes_no_overlap() {
    check(Variant { name: "held, clock leaps", leaps: true, ..HELD }).await;
}
