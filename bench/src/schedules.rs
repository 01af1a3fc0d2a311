//! Schedules in great number: what they cost while nothing is due, and how late they are when much is.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use client::{Client, JobFilter, Page};
use harness::{Pid, until};
use model::api::ApplySchedules;
use model::timing::{Cron, Rule, Timing};
use model::{Bytes, JobSpec, Millicores, ScheduleSpec, Timestamp};
use server::testing::{FakeOptions, FakeWorker};

use crate::load::Load;
use crate::place;
use crate::report::{Figure, Goal, percentile};

/// Schedules of one request.
const BATCH: usize = 5_000;
/// How many are due at once, and how many within a minute.
const DUE: usize = 50_000;

fn schedule(number: usize, expression: String) -> ScheduleSpec {
    let mut job = JobSpec::command(["/usr/local/bin/report", "--region", "north"]);
    job.resources.cpu = Some(Millicores(1));
    job.resources.memory = Some(Bytes(1 << 20));
    job.name = "report".into();
    let timing = Timing { rules: vec![Rule::Cron(Cron::new(expression))], ..Timing::default() };
    ScheduleSpec::new(format!("report-{number:07}"), timing, job)
}

async fn apply(
    load: &Load,
    numbers: Range<usize>,
    expression: impl Fn(usize) -> String,
) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    for begin in numbers.clone().step_by(BATCH) {
        let part = begin..(begin + BATCH).min(numbers.end);
        let schedules = part.map(|number| schedule(number, expression(number))).collect();
        load.post("schedules/apply", serde_json::to_string(&ApplySchedules { schedules })?).await?;
    }
    Ok(begun.elapsed())
}

/// A million schedules of which none is due: memory, start, and what they cost a second.
pub(crate) async fn idle(count: usize) -> anyhow::Result<Vec<Figure>> {
    const WATCHED: Duration = Duration::from_secs(20);
    let folder = place::folder()?;
    let mut server = place::server(folder.path()).await?;
    let empty = server.pid().memory().context("the server runs")?;
    // Forty thousand times of the year, all of them half a year away.
    let far = |number: usize| {
        let (minute, hour, day) = (number % 60, number / 60 % 24, number / 1_440 % 28 + 1);
        format!("{minute} {hour} {day} {} *", far_month())
    };
    let (load, half) = (Load::of(&server)?, count / 2);
    let memory = async || server.pid().memory().context("the server runs");
    let mut applied = apply(&load, 0..half, far).await?;
    // The second half tells what schedules take; with the first one, caches of a fixed size fill.
    let filled = memory().await?;
    applied += apply(&load, half..count, far).await?;
    let applied_memory = memory().await?.saturating_sub(filled) as f64 / (count - half) as f64;

    server.shut_down().await;
    let begun = Instant::now();
    server.start_again().await;
    let start = begun.elapsed().as_secs_f64();
    let loaded_memory =
        server.pid().memory().context("the server runs")?.saturating_sub(empty) as f64 / count as f64;
    let busy = busy_while(server.pid(), WATCHED).await?;
    let figure = |what: String, value, unit, goal| Figure::new(what, value, unit, goal);
    Ok(vec![
        figure(format!("{count} schedules applied"), applied.as_secs_f64(), "s", Goal::AtMost(60.0)),
        figure("memory of a schedule, as applied".into(), applied_memory, "bytes", Goal::AtMost(600.0)),
        figure("the same after a restart".into(), loaded_memory, "bytes", Goal::AtMost(600.0)),
        figure("cold start with them".into(), start, "s", Goal::AtMost(15.0)),
        figure("a core, while nothing is due".into(), busy * 100.0, "%", Goal::AtMost(1.0)),
    ])
}

/// A month that is far from now.
fn far_month() -> u64 {
    let days = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs() / 86_400;
    (days / 30 + 6) % 12 + 1
}

/// The part of a core that a process takes.
async fn busy_while(pid: Pid, watched: Duration) -> anyhow::Result<f64> {
    let before = pid.cpu_time().context("the server runs")?;
    tokio::time::sleep(watched).await;
    let after = pid.cpu_time().context("the server runs")?;
    Ok((after - before).as_secs_f64() / watched.as_secs_f64())
}

/// Fifty thousand due in the same second: how long until all are decided and durable.
pub(crate) async fn burst() -> anyhow::Result<Vec<Figure>> {
    let folder = place::folder()?;
    let server = place::server(folder.path()).await?;
    let due = soon(40);
    let (load, cron) = (Load::of(&server)?, cron_at(due));
    apply(&load, 0..DUE, |_| cron.clone()).await?;
    anyhow::ensure!(now() < due, "applying took longer than the time until they are due");
    tokio::time::sleep(due - now()).await;
    until("every schedule has fired", Duration::from_secs(120), async || {
        (load.count_jobs().await.ok()? >= DUE).then_some(())
    })
    .await;
    let took = (now() - due).as_secs_f64();
    Ok(vec![Figure::new(
        format!("{DUE} due in one second: all of them jobs, durable"),
        took,
        "s",
        Goal::AtMost(2.0),
    )])
}

/// Fifty thousand due within a minute, with a worker that does nothing: how late each starts.
pub(crate) async fn minute() -> anyhow::Result<Vec<Figure>> {
    let folder = place::folder()?;
    let server = place::server(folder.path()).await?;
    let token = std::fs::read_to_string(server.data().join("worker-token"))?;
    let worker = FakeWorker::start(FakeOptions::new(server.url(), token.trim()));
    worker.sessions(1).await;
    let first = soon(40);
    let crons: Vec<String> = (0..60).map(|second| cron_at(first + Duration::from_secs(second))).collect();
    apply(&Load::of(&server)?, 0..DUE, |number| crons[number % crons.len()].clone()).await?;
    anyhow::ensure!(now() < first, "applying took longer than the time until they are due");
    let enough = Duration::from_secs(240);
    until("every job has started", enough, async || (worker.starts() >= DUE as u64).then_some(())).await;
    crate::spawn::until_all_ended(&server.client()).await;
    let late = lateness(&firings(&server.client(), &JobFilter::default()).await?);
    anyhow::ensure!(late.len() == DUE, "{} jobs of {DUE} are there", late.len());
    let figure = |what: &str, share, goal| {
        let what = format!("{DUE} due within a minute: from its time to its start, {what}");
        Figure::new(what, percentile(&late, share), "ms", goal)
    };
    Ok(vec![figure("p50", 0.50, Goal::None), figure("p99", 0.99, Goal::AtMost(250.0))])
}

/// The instants of the jobs that schedules made, and when each started.
pub(crate) async fn firings(
    client: &Client,
    filter: &JobFilter,
) -> anyhow::Result<Vec<(Timestamp, Timestamp)>> {
    let (mut firings, mut cursor) = (Vec::new(), None);
    loop {
        let page = client.jobs_page(filter, &Page { limit: Some(1_000), cursor }).await?;
        for job in &page.items {
            let origin = job.origin.as_ref().context("every job here is of a schedule")?;
            let started = job.started_at.context("every job here has started")?;
            firings.push((origin.scheduled_for, started));
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(firings);
        }
    }
}

/// How long after its instant each started, in milliseconds; the latest is last.
pub(crate) fn lateness(firings: &[(Timestamp, Timestamp)]) -> Vec<f64> {
    let late = |(due, started): &(Timestamp, Timestamp)| (started.as_micros() - due.as_micros()) as f64;
    let mut late: Vec<_> = firings.iter().map(|firing| late(firing) / 1_000.0).collect();
    late.sort_by(f64::total_cmp);
    late
}

/// Since the Unix epoch.
fn now() -> Duration {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// A full second, about so many from now.
fn soon(seconds: u64) -> Duration {
    Duration::from_secs(now().as_secs() + seconds)
}

/// The expression of this very second of the day, in UTC.
fn cron_at(at: Duration) -> String {
    let seconds = at.as_secs() % 86_400;
    format!("{} {} {} * * *", seconds % 60, seconds / 60 % 60, seconds / 3_600)
}
