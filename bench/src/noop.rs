//! Jobs per second through the whole path with a fake worker: submitted over HTTP, stored, placed, assigned, started,
//! ended, acknowledged, recorded in the history. Every commit is durable.
//!
//! The fake worker uses gRPC like a real one; load, worker and server share the machine. Also measures the CPU time
//! per job by part.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use harness::{Pid, Server, until};
use model::{Bytes, JobSpec, Millicores};
use server::testing::{FakeOptions, FakeWorker};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::costs::Costs;
use crate::environment::{self, Shared, Store};
use crate::load::{Load, batch};
use crate::report::{Figure, Goal};
use crate::spawn::until_all_ended;

const GOAL: f64 = 15_000.0;
const GOAL_POSTGRES: f64 = 12_000.0;
/// With three servers on one machine.
const GOAL_RAFT: f64 = 25_000.0;
/// Number of jobs of one request.
pub(crate) const BATCH: u64 = 100;
/// Number of concurrent requests: 1,600 jobs are pending, so that the producer is not the bottleneck.
pub(crate) const CONNECTIONS: u64 = 16;
/// Name of the threads of the fake workers, to measure their share.
const WORKER_THREAD: &str = "fake-worker";
/// Name of the server's writer thread in [`Passed::costs`].
pub(crate) const STORE_THREAD: &str = "server: store-writer";

/// Servers of which the first leads, fake workers, and clients.
pub(crate) struct Path {
    shared: Shared,
    /// Load for the first server.
    pub(crate) load: Load,
    workers: Vec<FakeWorker>,
    threads: Option<Runtime>,
    /// Folder of a temporary store, if any.
    folder: Option<TempDir>,
}

/// Measurements of a number of jobs.
pub(crate) struct Passed {
    pub(crate) jobs: u64,
    pub(crate) submitted: Duration,
    pub(crate) ended: Duration,
    /// CPU time by thread, of the server and of this process.
    pub(crate) costs: Vec<(String, Duration)>,
}

impl Passed {
    /// Returns the number of jobs per second.
    pub(crate) fn rate(&self) -> f64 {
        self.jobs as f64 / self.ended.as_secs_f64()
    }

    /// Returns the CPU time per job in microseconds, of the threads selected by `whose`.
    pub(crate) fn micros_a_job(&self, whose: impl Fn(&str) -> bool) -> f64 {
        let times = self.costs.iter().filter(|(name, _)| whose(name)).map(|(_, time)| *time);
        times.sum::<Duration>().as_secs_f64() * 1e6 / self.jobs as f64
    }
}

/// The submitted job.
pub(crate) fn job() -> JobSpec {
    let mut spec = JobSpec::command(["true"]);
    spec.resources.cpu = Some(Millicores(1));
    spec.resources.memory = Some(Bytes(1 << 20));
    spec
}

impl Path {
    /// Creates a path over a new store, with this number of workers.
    pub(crate) async fn new(workers: usize) -> anyhow::Result<Self> {
        let folder = environment::folder()?;
        let path = Self::over(&folder, workers).await?;
        Ok(path.keeping(folder))
    }

    /// Creates a path over the store in the folder, which is kept.
    pub(crate) async fn over(folder: &TempDir, workers: usize) -> anyhow::Result<Self> {
        let server = environment::server(folder.path()).await?;
        Self::with(server.into(), workers).await
    }

    /// Creates a path with this number of servers, which share a store on the same machine.
    pub(crate) async fn shared(store: Store, servers: usize) -> anyhow::Result<Self> {
        let folder = environment::folder()?;
        let path = Self::with(environment::servers(folder.path(), store, servers).await?, 1).await?;
        Ok(path.keeping(folder))
    }

    /// Returns a server; the first one leads.
    pub(crate) fn server(&self, number: usize) -> &Server {
        &self.shared.servers[number]
    }

    /// Sends nothing more to the last server, and returns it.
    pub(crate) fn take_last(&mut self) -> Option<Server> {
        self.shared.servers.pop()
    }

    fn keeping(mut self, folder: TempDir) -> Self {
        self.folder = Some(folder);
        self
    }

    async fn with(shared: Shared, workers: usize) -> anyhow::Result<Self> {
        let server = &shared.servers[0];
        let token = std::fs::read_to_string(server.data().join("worker-token"))?;
        let threads = Builder::new_multi_thread().thread_name(WORKER_THREAD).enable_all().build()?;
        let workers: Vec<_> = {
            let _theirs = threads.enter();
            (0..workers).map(|_| FakeWorker::start(FakeOptions::new(server.url(), token.trim()))).collect()
        };
        for worker in &workers {
            worker.sessions(1).await;
        }
        let load = Load::of(server)?;
        Ok(Self { shared, load, workers, threads: Some(threads), folder: None })
    }

    /// Submits about this number of jobs, and waits until all have ended.
    pub(crate) async fn pass(&mut self, jobs: u64) -> anyhow::Result<Passed> {
        let requests = (jobs / BATCH / CONNECTIONS).max(1);
        let jobs = requests * CONNECTIONS * BATCH;
        let started = || self.workers.iter().map(FakeWorker::starts).sum::<u64>();
        let before = started();
        let costs = self.costs()?;
        let body = batch(&job(), usize::try_from(BATCH)?);
        let begun = Instant::now();
        let mut submitting = Vec::new();
        let token = self.shared.servers[0].token().context("a started server has created its token")?;
        for (_, server) in (0..CONNECTIONS).zip(self.shared.servers.iter().cycle()) {
            let (load, body) = (Load::new(&server.url(), token.clone())?, body.clone());
            submitting.push(tokio::spawn(async move {
                for _ in 0..requests {
                    load.submit_once(body.clone()).await?;
                }
                anyhow::Ok(())
            }));
        }
        for connection in submitting {
            connection.await??;
        }
        let submitted = begun.elapsed();
        until("every job has started", Duration::from_secs(600), async || {
            (started() >= before + jobs).then_some(())
        })
        .await;
        until_all_ended(&self.shared.servers[0].client()).await;
        let ended = begun.elapsed();
        Ok(Passed { jobs, submitted, ended, costs: self.costs()?.since(&costs) })
    }

    fn costs(&self) -> anyhow::Result<Costs> {
        let this = Pid(std::process::id().cast_signed());
        self.shared.servers.iter().try_fold(Costs::of(this)?, |costs, server| {
            Ok(costs.and(Costs::of(server.pid())?.prefixed("server: ")))
        })
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

/// Labels of threads in the table, and the prefixes of their names. The first matching prefix counts.
const PARTS: &[(&str, &str)] = &[
    ("server, store: rows, log, sync", STORE_THREAD),
    ("server, engine: decisions, batches", "server: belfry-engine"),
    ("server, HTTP and gRPC", "server: tokio-rt-worker"),
    ("server, everything else", "server: "),
    ("worker that does nothing", WORKER_THREAD),
    ("clients", ""),
];

/// Returns the number of jobs that take this time at this rate.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
fn jobs_of(rate: f64, time: Duration) -> u64 {
    (rate * time.as_secs_f64()) as u64
}

pub(crate) async fn run(time: Duration) -> anyhow::Result<Vec<Figure>> {
    let jobs = jobs_of(GOAL, time);
    let passed = Path::new(1).await?.pass(jobs).await?;
    let submitted = passed.jobs as f64 / passed.submitted.as_secs_f64();
    let mut figures = vec![
        Figure::new("jobs through the whole path", passed.rate(), "jobs/s", Goal::AtLeast(GOAL)),
        Figure::new("submitted meanwhile", submitted, "jobs/s", Goal::None),
        Figure::new("processor time of a job", passed.micros_a_job(|_| true), "µs", Goal::None),
    ];
    for (place, (part, _)) in PARTS.iter().enumerate() {
        let first_of = |name: &str| PARTS.iter().position(|(_, begin)| name.starts_with(begin));
        let micros = passed.micros_a_job(|name| first_of(name) == Some(place));
        figures.push(Figure::new(format!("of it: {part}"), micros, "µs", Goal::None));
    }
    Ok(figures)
}

/// Measures on PostgreSQL on the same machine, with one server and with three.
pub(crate) async fn on_postgres(time: Duration) -> anyhow::Result<Vec<Figure>> {
    let jobs = jobs_of(GOAL_POSTGRES, time);
    let one = Path::shared(Store::Postgres, 1).await?.pass(jobs).await?;
    let three = Path::shared(Store::Postgres, 3).await?.pass(jobs).await?;
    let goal = Goal::AtLeast(GOAL_POSTGRES);
    Ok(vec![
        Figure::new("jobs through the whole path, one server", one.rate(), "jobs/s", goal),
        Figure::new(
            "of a job: processor time without PostgreSQL",
            one.micros_a_job(|_| true),
            "µs",
            Goal::None,
        ),
        Figure::new("jobs through the whole path, three servers", three.rate(), "jobs/s", Goal::None),
        Figure::new("three servers against one", three.rate() / one.rate(), "", Goal::AtLeast(0.85)),
    ])
}

/// Measures on the Raft store, with one server and with three, each compared with the embedded store at the same time.
pub(crate) async fn on_raft(time: Duration) -> anyhow::Result<Vec<Figure>> {
    let jobs = jobs_of(GOAL, time);
    let embedded = Path::new(1).await?.pass(jobs).await?;
    let one = Path::shared(Store::Raft, 1).await?.pass(jobs).await?;
    let three = Path::shared(Store::Raft, 3).await?.pass(jobs).await?;
    let against = |passed: &Passed| passed.rate() / embedded.rate();
    let micros = |passed: &Passed| passed.micros_a_job(|_| true);
    Ok(vec![
        Figure::new("jobs through the whole path, one server", one.rate(), "jobs/s", Goal::None),
        Figure::new("one server against the embedded store", against(&one), "", Goal::AtLeast(1.0)),
        Figure::new("of a job: processor time, one server", micros(&one), "µs", Goal::None),
        Figure::new(
            "jobs through the whole path, three servers",
            three.rate(),
            "jobs/s",
            Goal::AtLeast(GOAL_RAFT),
        ),
        Figure::new("three servers against the embedded store", against(&three), "", Goal::None),
        Figure::new("of a job: processor time, three servers", micros(&three), "µs", Goal::None),
    ])
}
