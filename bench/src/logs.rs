//! Log throughput: tasks write at full speed through pipe, supervisor, agent and server to the server's objects, from
//! where the log can be read.

use std::time::{Duration, Instant};

use harness::{Worker, until};
use model::{Bytes, JobSpec, Millicores};

use crate::environment;
use crate::load::{Load, batch};
use crate::report::{Figure, Goal};
use crate::spawn::until_all_ended;

/// Number of tasks.
const TASKS: usize = 64;
/// Output of each task in MiB, below the size limit of a log, so that all output is stored.
const MIB: u64 = 4;

pub(crate) async fn run() -> anyhow::Result<Vec<Figure>> {
    let folder = environment::folder()?;
    let server = environment::server(folder.path()).await?;
    let client = server.client();
    client.pause_queue("default", None).await?;
    let (dir, log) = (folder.path().join("worker"), folder.path().join("worker.log"));
    let _worker = Worker::start(&server, "bench", &dir, &log, &[("BELFRY_LOG", "warn")]);
    // Lines of 100 bytes, as in typical logs.
    let script = format!("yes {} | head -c {}", "x".repeat(99), MIB << 20);
    let mut spec = JobSpec::command(["sh", "-c", &script]);
    spec.resources.cpu = Some(Millicores(1));
    spec.resources.memory = Some(Bytes(1 << 20));
    let load = Load::of(&server)?;
    load.submit(batch(&spec, TASKS), 0).await?;
    let begun = Instant::now();
    client.resume_queue("default").await?;
    until_all_ended(&client).await;
    let ended = begun.elapsed();
    let ids = job_ids(&load).await?;
    let mut bytes = 0;
    until("the server has every log", Duration::from_secs(120), async || {
        bytes = 0;
        for id in &ids {
            bytes += load.text(&format!("jobs/{id}/logs")).await.ok()?.len();
        }
        (bytes as u64 >= TASKS as u64 * (MIB << 20)).then_some(())
    })
    .await;
    let rate = |time: Duration| bytes as f64 / f64::from(1 << 20) / time.as_secs_f64();
    Ok(vec![
        Figure::new(
            format!("{TASKS} tasks of {MIB} MiB, until they have ended"),
            rate(ended),
            "MiB/s",
            Goal::None,
        ),
        Figure::new(
            "the same, until all of it can be read from the server",
            rate(begun.elapsed()),
            "MiB/s",
            Goal::None,
        ),
    ])
}

async fn job_ids(load: &Load) -> anyhow::Result<Vec<String>> {
    let page = load.get(&format!("jobs?limit={TASKS}")).await?;
    let ids = page["items"].as_array().into_iter().flatten().filter_map(|job| job["id"].as_str());
    Ok(ids.map(str::to_owned).collect())
}
