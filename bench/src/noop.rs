//! Jobs a second through the whole path with a worker that does nothing: submitted over HTTP, stored,
//! placed, assigned, started, ended, acknowledged, in the history; every commit durable.
//!
//! The worker speaks gRPC as a real one does; load, worker and server share the machine.

use std::time::{Duration, Instant};

use harness::until;
use model::{Bytes, JobSpec, Millicores};
use server::testing::{FakeOptions, FakeWorker};

use crate::load::{Load, batch};
use crate::place;
use crate::report::{Figure, Goal};
use crate::spawn::until_all_ended;

const GOAL: f64 = 15_000.0;
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
    let token = std::fs::read_to_string(server.data().join("worker-token"))?;
    let worker = FakeWorker::start(FakeOptions::new(server.url(), token.trim()));
    worker.sessions(1).await;

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
    let requests = (GOAL * time.as_secs_f64()) as u64 / BATCH / CONNECTIONS;
    let jobs = requests * CONNECTIONS * BATCH;
    let load = Load::of(&server)?;
    let body = batch(&job(), usize::try_from(BATCH)?);
    let begun = Instant::now();
    let mut submitting = Vec::new();
    for connection in 0..CONNECTIONS {
        let (load, body) = (load.clone(), body.clone());
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
    until_all_ended(&server.client()).await;
    let ended = begun.elapsed();
    let rate = |elapsed: Duration| jobs as f64 / elapsed.as_secs_f64();
    Ok(vec![
        Figure::new(
            "noop",
            format!("{jobs} jobs submitted meanwhile"),
            rate(submitted),
            "jobs/s",
            Goal::None,
        ),
        Figure::new("noop", "the same through the whole path", rate(ended), "jobs/s", Goal::AtLeast(GOAL)),
    ])
}
