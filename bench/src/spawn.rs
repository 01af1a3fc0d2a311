//! `/bin/true` through the whole path with a real worker, compared with the bare spawn rate of this machine in the
//! same run. The ratio shows the cost of Belfry independent of the machine.
//!
//! The worker has more slots than the default of 16 per core. A slot is held from the decision to the acknowledged
//! end, for several commits, so that tasks of a millisecond would leave the cores idle.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use client::{Client, JobFilter, Page};
use harness::{Worker, until};
use model::{Bytes, JobSpec, JobStatus, Millicores};

use crate::environment;
use crate::load::{Load, batch};
use crate::report::{Figure, Goal};

const SLOTS: &str = "128";

/// Spawns processes and waits for them on every core; returns the rate per second.
fn bare_rate(time: Duration) -> anyhow::Result<f64> {
    let cores = std::thread::available_parallelism()?.get();
    let begun = Instant::now();
    let threads: Vec<_> = (0..cores)
        .map(|_| {
            std::thread::spawn(move || {
                let mut count = 0_u64;
                while begun.elapsed() < time {
                    let null = Stdio::null;
                    Command::new("/bin/true").stdin(null()).stdout(null()).stderr(null()).status()?;
                    count += 1;
                }
                anyhow::Ok(count)
            })
        })
        .collect();
    let mut count = 0;
    for thread in threads {
        count += thread.join().expect("the thread does not panic")?;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

fn job() -> JobSpec {
    let mut spec = JobSpec::command(["/bin/true"]);
    spec.resources.cpu = Some(Millicores(1));
    spec.resources.memory = Some(Bytes(1 << 20));
    spec
}

pub(crate) async fn run(time: Duration) -> anyhow::Result<Vec<Figure>> {
    let bare = bare_rate(time)?;
    let folder = environment::folder()?;
    let server = environment::server(folder.path()).await?;
    let client = server.client();
    client.pause_queue("default", None).await?;
    let settings = [("BELFRY_LOG", "warn"), ("BELFRY_WORKER__SLOTS", SLOTS)];
    let (dir, log) = (folder.path().join("worker"), folder.path().join("worker.log"));
    let _worker = Worker::start(&server, "bench", &dir, &log, &settings);

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive rate")]
    let batches = (bare * time.as_secs_f64() / 100.0).ceil().max(1.0) as usize;
    let load = Load::of(&server)?;
    for key in 0..batches {
        load.submit(batch(&job(), 100), key as u64).await?;
    }
    let begun = Instant::now();
    client.resume_queue("default").await?;
    until_all_ended(&client).await;
    let rate = (batches * 100) as f64 / begun.elapsed().as_secs_f64();
    Ok(vec![
        Figure::new("bare spawn and wait of /bin/true, all cores", bare, "/s", Goal::None),
        Figure::new("jobs of /bin/true through a worker", rate, "jobs/s", Goal::None),
        Figure::new("ratio of the two", rate / bare, "", Goal::AtLeast(0.6)),
    ])
}

/// Waits until no job is waiting or running, with a cheap request for one row of a list.
pub(crate) async fn until_all_ended(client: &Client) {
    let status = JobStatus::ALL.iter().copied().filter(|s| !s.is_final()).collect();
    let filter = JobFilter { status, ..JobFilter::default() };
    let one = Page { limit: Some(1), cursor: None };
    until("all jobs have ended", Duration::from_secs(600), async || {
        client.jobs_page(&filter, &one).await.ok().filter(|page| page.items.is_empty()).map(drop)
    })
    .await;
}
