//! Jobs a second through the whole path with a worker that does nothing: submitted over HTTP, stored,
//! placed, assigned, started, ended, acknowledged, in the history; every commit durable.
//!
//! The worker speaks gRPC as a real one does; load, worker and server share the machine.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use harness::{Server, until};
use model::{Bytes, JobSpec, Millicores};
use server::testing::{FakeOptions, FakeWorker};

use crate::load::{Load, batch};
use crate::place;
use crate::report::{Figure, Goal};
use crate::spawn::until_all_ended;

const GOAL: f64 = 15_000.0;
const GOAL_POSTGRES: f64 = 12_000.0;
/// Jobs of one request.
const BATCH: u64 = 100;
/// Requests at a time.
const CONNECTIONS: u64 = 4;

fn job() -> JobSpec {
    let mut spec = JobSpec::command(["true"]);
    spec.resources.cpu = Some(Millicores(1));
    spec.resources.memory = Some(Bytes(1 << 20));
    spec
}

pub(crate) async fn run(time: Duration) -> anyhow::Result<Vec<Figure>> {
    let folder = place::folder()?;
    let server = place::server(folder.path()).await?;
    let Rates { jobs, submitted, ended } = through(&[&server], GOAL, time).await?;
    let accepted = format!("{jobs} jobs submitted meanwhile");
    Ok(vec![
        Figure::new("noop", accepted, submitted, "jobs/s", Goal::None),
        Figure::new("noop", "the same through the whole path", ended, "jobs/s", Goal::AtLeast(GOAL)),
    ])
}

/// The same on PostgreSQL on the same machine, with one server and with three.
pub(crate) async fn on_postgres(time: Duration) -> anyhow::Result<Vec<Figure>> {
    const NAME: &str = "noop-postgres";
    let mut ended = Vec::new();
    let mut figures = Vec::new();
    for (count, goal) in [(1, Goal::AtLeast(GOAL_POSTGRES)), (3, Goal::None)] {
        let folder = place::folder()?;
        let shared = place::servers(folder.path(), count).await?;
        let servers: Vec<_> = shared.servers.iter().collect();
        let rates = through(&servers, GOAL_POSTGRES, time).await?;
        let what = format!("{} jobs through the whole path, servers: {count}", rates.jobs);
        figures.push(Figure::new(NAME, what, rates.ended, "jobs/s", goal));
        ended.push(rates.ended);
    }
    let share = ended[1] / ended[0];
    figures.push(Figure::new(NAME, "three servers against one", share, "", Goal::AtLeast(0.85)));
    Ok(figures)
}

/// What a run came to, a second.
struct Rates {
    jobs: u64,
    submitted: f64,
    ended: f64,
}

/// Submits to all servers, of which the first leads, as many jobs as `goal` would do in this time.
async fn through(servers: &[&Server], goal: f64, time: Duration) -> anyhow::Result<Rates> {
    let leader = servers[0];
    let token = std::fs::read_to_string(leader.data().join("worker-token"))?;
    let worker = FakeWorker::start(FakeOptions::new(leader.url(), token.trim()));
    worker.sessions(1).await;

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
    let requests = ((goal * time.as_secs_f64()) as u64 / BATCH / CONNECTIONS).max(1);
    let jobs = requests * CONNECTIONS * BATCH;
    let body = batch(&job(), usize::try_from(BATCH)?);
    let admin = leader.token().context("a server that started has a token")?;
    let begun = Instant::now();
    let mut submitting = Vec::new();
    for (connection, server) in (0..CONNECTIONS).zip(servers.iter().cycle()) {
        let (load, body) = (Load::new(&server.url(), admin.clone())?, body.clone());
        submitting.push(tokio::spawn(async move {
            for request in 0..requests {
                load.submit(body.clone(), connection * requests + request).await?;
            }
            anyhow::Ok(())
        }));
    }
    for connection in submitting {
        connection.await??;
    }
    let submitted = begun.elapsed();
    until("every job has started", Duration::from_secs(600), async || {
        (worker.starts() >= jobs).then_some(())
    })
    .await;
    until_all_ended(&leader.client()).await;
    let ended = begun.elapsed();
    let rate = |elapsed: Duration| jobs as f64 / elapsed.as_secs_f64();
    Ok(Rates { jobs, submitted: rate(submitted), ended: rate(ended) })
}
