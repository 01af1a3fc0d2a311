//! Time from just before a submission is sent to the start of its task, at several submission rates. The server is
//! otherwise idle, and its store durable.
//!
//! Up to 500 submissions per second, the task is a process that records the time in its `main`, so the time includes
//! the work of the loader. A machine of this size cannot start 5,000 processes per second; at that rate a fake worker
//! records when it receives the job.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::ops::Range;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use harness::{Server, Worker, until};
use model::{Bytes, JobSpec, Millicores};
use serde::Deserialize;
use server::testing::{FakeOptions, FakeWorker, Plan};
use tokio::time::MissedTickBehavior;

use crate::environment;
use crate::load::Load;
use crate::report::{Figure, Goal, percentile};
use crate::stamps::{Stamps, now_micros};

/// Kind of task.
#[derive(Debug, Clone, Copy)]
enum Task {
    Process,
    /// Received by a fake worker that starts no processes.
    Nothing,
}

/// Submissions per second, with goals for p50 and p99 in milliseconds. The second one with 50 is for comparison with
/// schedulers whose workers start no processes.
const RATES: [(u64, Task, Goal, Goal); 5] = [
    (10, Task::Process, Goal::None, Goal::None),
    (50, Task::Process, Goal::AtMost(2.0), Goal::AtMost(10.0)),
    (50, Task::Nothing, Goal::None, Goal::None),
    (500, Task::Process, Goal::None, Goal::None),
    (5_000, Task::Nothing, Goal::None, Goal::AtMost(50.0)),
];

/// Time of an event by job name, in microseconds of the wall clock.
pub(crate) type Times = HashMap<String, u64>;

/// When a fake worker received each job.
#[derive(Debug, Clone, Default)]
pub(crate) struct Starts(Arc<Mutex<Times>>);

impl Starts {
    fn times(&self) -> MutexGuard<'_, Times> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a job was received now; returns its name.
    pub(crate) fn note(&self, task: &server::testing::Task) -> Option<String> {
        #[derive(Deserialize)]
        struct Named {
            name: String,
        }
        let now = now_micros();
        let Named { name } = serde_json::from_slice(&task.spec).ok()?;
        self.times().insert(name.clone(), now);
        Some(name)
    }

    /// Returns whether all jobs with these names were received.
    pub(crate) fn has<'a>(&self, mut names: impl Iterator<Item = &'a String>) -> bool {
        let times = self.times();
        names.all(|name| times.contains_key(name))
    }

    /// Returns all times, and forgets them.
    pub(crate) fn take(&self) -> Times {
        std::mem::take(&mut self.times())
    }
}

pub(crate) async fn run(time: Duration, only: Option<u64>) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let rates = RATES.into_iter().filter(|(rate, ..)| only.is_none_or(|only| only == *rate));
    for (rate, task, p50, p99) in rates {
        let (delays, task) = match task {
            Task::Process => (processes(rate, time).await?, "process"),
            Task::Nothing => (assigned(rate, time).await?, "worker without processes"),
        };
        let mut figure = |share, name, goal| {
            let what = format!(
                "{} submissions/s, to the start in a {task}, {name}",
                crate::report::number(rate as f64)
            );
            figures.push(Figure::new(what, percentile(&delays, share), "ms", goal));
        };
        figure(0.50, "p50", p50);
        figure(0.99, "p99", p99);
        figure(1.0, "slowest", Goal::None);
    }
    let bare = bare_start(time)?;
    let what = "two synced writes and then a bare start of that process, 50 times a second";
    for (share, name) in [(0.50, "p50"), (0.99, "p99")] {
        figures.push(Figure::new(format!("{what}, {name}"), percentile(&bare, share), "ms", Goal::None));
    }
    Ok(figures)
}

/// Measures the minimum for a durable scheduler on this machine: the commit that accepts and places the job, the
/// journal write of the worker, each with an fsync, and the start of a process.
fn bare_start(time: Duration) -> anyhow::Result<Vec<f64>> {
    const RATE: u64 = 50;
    const PAGE: [u8; 4096] = [7; 4096];
    let folder = environment::folder()?;
    let stamps = Stamps::make(folder.path())?;
    let [program, file] = stamps.command();
    let mut logs = Vec::new();
    for name in ["commits", "journal"] {
        logs.push(File::options().create(true).append(true).open(folder.path().join(name))?);
    }
    let (mut begun, mut next) = (Times::new(), Instant::now());
    for number in 0..time.as_secs() * RATE {
        next += Duration::from_secs(1) / u32::try_from(RATE)?;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let name = format!("n{number}");
        begun.insert(name.clone(), now_micros());
        for log in &mut logs {
            log.write_all(&PAGE)?;
            log.sync_data()?;
        }
        let status = Command::new(&program).arg(&file).env("BELFRY_JOB_NAME", &name).status()?;
        anyhow::ensure!(status.success(), "the process exited with {status}");
    }
    delays(&begun, &stamps.read()?.into_iter().collect())
}

/// Measures with a real worker.
async fn processes(rate: u64, time: Duration) -> anyhow::Result<Vec<f64>> {
    let folder = environment::folder()?;
    let server = environment::server(folder.path()).await?;
    let stamps = Stamps::make(folder.path())?;
    let (dir, log) = (folder.path().join("worker"), folder.path().join("worker.log"));
    let _worker = Worker::start(&server, "bench", &dir, &log, &[("BELFRY_LOG", "warn")]);
    until_connected(&server.client()).await;

    let mut spec = JobSpec::command(stamps.command());
    spec.resources.cpu = Some(Millicores(10));
    spec.resources.memory = Some(Bytes(1 << 20));
    let sent = submit(&server, spec, rate, 0..time.as_secs() * rate).await?;
    until("every task has started", Duration::from_secs(60), async || {
        stamps.count().ok().filter(|count| *count == sent.len()).map(drop)
    })
    .await;
    delays(&sent, &stamps.read()?.into_iter().collect())
}

/// Measures with a fake worker that starts no processes.
async fn assigned(rate: u64, time: Duration) -> anyhow::Result<Vec<f64>> {
    let folder = environment::folder()?;
    let server = environment::server(folder.path()).await?;
    let token = std::fs::read_to_string(server.data().join("worker-token"))?;
    let starts = Starts::default();
    let noted = starts.clone();
    let worker = FakeWorker::start(FakeOptions::new(server.url(), token.trim()).plan(move |task| {
        noted.note(task);
        Plan::Succeed
    }));
    worker.sessions(1).await;
    let mut spec = JobSpec::command(["true"]);
    spec.resources.cpu = Some(Millicores(1));
    spec.resources.memory = Some(Bytes(1 << 20));
    let sent = submit(&server, spec, rate, 0..time.as_secs() * rate).await?;
    let all = sent.len() as u64;
    until("every job has started", Duration::from_secs(60), async || (worker.starts() >= all).then_some(()))
        .await;
    delays(&sent, &starts.take())
}

/// Submits jobs with these numbers at a fixed rate without waiting for answers. Returns when each submission was sent.
pub(crate) async fn submit(
    server: &Server,
    mut spec: JobSpec,
    rate: u64,
    numbers: Range<u64>,
) -> anyhow::Result<Times> {
    let load = Load::of(server)?;
    let mut sent = Times::new();
    let mut submissions = Vec::new();
    let mut beat = tokio::time::interval(Duration::from_secs(1) / u32::try_from(rate)?);
    // The timer has millisecond resolution: several submissions may be due at a tick.
    beat.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for number in numbers {
        spec.name = format!("n{number}");
        let body = serde_json::to_string(&spec)?;
        beat.tick().await;
        sent.insert(spec.name.clone(), now_micros());
        let load = load.clone();
        submissions.push(tokio::spawn(async move { load.submit(body, number).await }));
    }
    for submission in submissions {
        submission.await??;
    }
    Ok(sent)
}

/// Returns the sorted delays of the jobs that were sent, in milliseconds.
pub(crate) fn delays(sent: &Times, started: &Times) -> anyhow::Result<Vec<f64>> {
    let delay = |(name, sent): (&String, &u64)| {
        let at = started.get(name).with_context(|| format!("`{name}` has not started"))?;
        Ok(at.saturating_sub(*sent) as f64 / 1_000.0)
    };
    let mut delays = sent.iter().map(delay).collect::<anyhow::Result<Vec<f64>>>()?;
    delays.sort_by(f64::total_cmp);
    Ok(delays)
}

/// Waits until the worker is connected.
async fn until_connected(client: &client::Client) {
    until("the worker is connected", Duration::from_secs(30), async || {
        let workers = client.workers_page(&Default::default(), &Default::default()).await.ok()?.items;
        (!workers.is_empty()).then_some(())
    })
    .await;
}
