//! From the moment before a submission is sent to the first instruction of the task's own program, at
//! 50 submissions a second, over a durable store.
//!
//! The task is this very program (`stamp`): it appends its job's name and the time to a file. The
//! loader's work before `main` is in the figure, as it is for everybody's tasks.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use harness::{Worker, until};
use model::{Bytes, JobSpec, Millicores};

use crate::load::Load;
use crate::place;
use crate::report::{Figure, Goal, percentile};

const PER_SECOND: u64 = 50;

pub(crate) fn now_micros() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros())
}

/// The task: one short append, so that lines never mix.
pub(crate) fn stamp(file: Option<&Path>) -> anyhow::Result<()> {
    let now = now_micros();
    let name = std::env::var("BELFRY_JOB_NAME").context("not started by Belfry")?;
    let mut file = File::options().append(true).open(file.context("expected a file")?)?;
    file.write_all(format!("{name} {now}\n").as_bytes())?;
    Ok(())
}

pub(crate) async fn run(time: Duration) -> anyhow::Result<Vec<Figure>> {
    let folder = place::folder()?;
    let server = place::server(folder.path()).await?;
    let stamps = folder.path().join("stamps");
    File::create(&stamps)?;
    fs::set_permissions(&stamps, Permissions::from_mode(0o666))?;
    let _worker = Worker::start(
        &server,
        "bench",
        &folder.path().join("worker"),
        &folder.path().join("worker.log"),
        &[("BELFRY_LOG", "warn")],
    );
    until_connected(&server.client()).await;

    // A copy that the tasks' user can reach wherever the repository lies.
    let program = folder.path().join("stamp");
    fs::copy(std::env::current_exe()?, &program)?;
    let mut spec = JobSpec::command([&program.to_string_lossy(), "stamp", &stamps.to_string_lossy()]);
    spec.resources.cpu = Some(Millicores(10));
    spec.resources.memory = Some(Bytes(1 << 20));

    let load = Load::of(&server)?;
    let mut sent = BTreeMap::new();
    let mut submissions = Vec::new();
    let mut beat = tokio::time::interval(Duration::from_secs(1) / u32::try_from(PER_SECOND)?);
    for number in 0..time.as_secs() * PER_SECOND {
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
    let started = until("every task has started", Duration::from_secs(60), async || {
        let text = fs::read_to_string(&stamps).ok()?;
        (text.lines().count() == sent.len()).then_some(text)
    })
    .await;
    let mut delays = Vec::new();
    for line in started.lines() {
        let (name, at) = line.split_once(' ').context("a stamp is a name and a time")?;
        let sent = *sent.get(name).with_context(|| format!("nobody submitted `{name}`"))?;
        delays.push((at.parse::<u128>()?.saturating_sub(sent)) as f64 / 1_000.0);
    }
    delays.sort_by(f64::total_cmp);
    Ok(vec![
        Figure::new(
            "latency",
            "submission to start of the process, p50",
            percentile(&delays, 0.50),
            "ms",
            Goal::AtMost(5.0),
        ),
        Figure::new("latency", "the same, p99", percentile(&delays, 0.99), "ms", Goal::AtMost(25.0)),
        Figure::new("latency", "the same, slowest", percentile(&delays, 1.0), "ms", Goal::None),
    ])
}

/// Waits until the one worker is there.
async fn until_connected(client: &client::Client) {
    until("the worker is connected", Duration::from_secs(30), async || {
        let workers = client.workers_page(&client::Page::default()).await.ok()?.items;
        (!workers.is_empty()).then_some(())
    })
    .await;
}
