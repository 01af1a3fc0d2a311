//! Many schedules: their cost while none fires, and their delay when many fire.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use client::{Client, JobFilter, Page};
use harness::{Pid, until};
use model::api::ApplySchedules;
use model::timing::{Cron, Rule, Timing};
use model::{Bytes, JobSpec, Millicores, ScheduleSpec, Timestamp};
use server::testing::{FakeOptions, FakeWorker};

use crate::environment;
use crate::load::Load;
use crate::report::{Figure, Goal, percentile};

/// Number of schedules of one request.
const BATCH: usize = 5_000;
/// Number of schedules that fire at the same time, or within a minute.
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

/// Measures a million idle schedules: memory, start, and CPU share.
pub(crate) async fn idle(count: usize) -> anyhow::Result<Vec<Figure>> {
    const WATCHED: Duration = Duration::from_secs(20);
    let folder = environment::folder()?;
    let mut server = environment::server(folder.path()).await?;
    let empty = server.pid().memory().context("the server is running")?;
    // Forty thousand different times of the year, all about half a year away.
    let far = |number: usize| {
        let (minute, hour, day) = (number % 60, number / 60 % 24, number / 1_440 % 28 + 1);
        format!("{minute} {hour} {day} {} *", far_month())
    };
    let (load, half) = (Load::of(&server)?, count / 2);
    let memory = async || server.pid().memory().context("the server is running");
    let mut applied = apply(&load, 0..half, far).await?;
    // Memory is measured on the second half, because the first half also fills caches of a fixed size.
    let filled = memory().await?;
    applied += apply(&load, half..count, far).await?;
    let applied_memory = memory().await?.saturating_sub(filled) as f64 / (count - half) as f64;

    server.shut_down().await;
    let begun = Instant::now();
    server.restart().await;
    let start = begun.elapsed().as_secs_f64();
    let loaded_memory =
        server.pid().memory().context("the server is running")?.saturating_sub(empty) as f64 / count as f64;
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

/// Returns a month that is about half a year away.
fn far_month() -> u64 {
    let days = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs() / 86_400;
    (days / 30 + 6) % 12 + 1
}

/// Returns the share of a core that a process uses.
pub(crate) async fn busy_while(pid: Pid, watched: Duration) -> anyhow::Result<f64> {
    let before = pid.cpu_time().context("the server is running")?;
    tokio::time::sleep(watched).await;
    let after = pid.cpu_time().context("the server is running")?;
    Ok((after - before).as_secs_f64() / watched.as_secs_f64())
}

/// Measures 50,000 schedules that fire in the same second: the time until all firings are durable.
pub(crate) async fn burst() -> anyhow::Result<Vec<Figure>> {
    let folder = environment::folder()?;
    let server = environment::server(folder.path()).await?;
    let due = soon(40);
    let (load, cron) = (Load::of(&server)?, cron_at(due));
    apply(&load, 0..DUE, |_| cron.clone()).await?;
    anyhow::ensure!(now() < due, "applying the schedules took longer than the time until they fire");
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

/// Measures 50,000 schedules that fire within a minute, with a fake worker: the delay of each start.
pub(crate) async fn minute() -> anyhow::Result<Vec<Figure>> {
    let folder = environment::folder()?;
    let server = environment::server(folder.path()).await?;
    let token = std::fs::read_to_string(server.data().join("worker-token"))?;
    let worker = FakeWorker::start(FakeOptions::new(server.url(), token.trim()));
    worker.sessions(1).await;
    let first = soon(40);
    let crons: Vec<String> = (0..60).map(|second| cron_at(first + Duration::from_secs(second))).collect();
    apply(&Load::of(&server)?, 0..DUE, |number| crons[number % crons.len()].clone()).await?;
    anyhow::ensure!(now() < first, "applying the schedules took longer than the time until they fire");
    let enough = Duration::from_secs(240);
    until("every job has started", enough, async || (worker.starts() >= DUE as u64).then_some(())).await;
    crate::spawn::until_all_ended(&server.client()).await;
    let late = lateness(&firings(&server.client(), &JobFilter::default()).await?);
    anyhow::ensure!(late.len() == DUE, "found only {} of {DUE} jobs", late.len());
    let figure = |what: &str, share, goal| {
        let what = format!("{DUE} due within a minute: from its time to its start, {what}");
        Figure::new(what, percentile(&late, share), "ms", goal)
    };
    Ok(vec![figure("p50", 0.50, Goal::None), figure("p99", 0.99, Goal::AtMost(250.0))])
}

/// Returns the scheduled time and the start time of each job that a schedule created.
pub(crate) async fn firings(
    client: &Client,
    filter: &JobFilter,
) -> anyhow::Result<Vec<(Timestamp, Timestamp)>> {
    let (mut firings, mut cursor) = (Vec::new(), None);
    loop {
        let page = client.jobs_page(filter, &Page { limit: Some(1_000), cursor }).await?;
        for job in &page.items {
            let origin = job.origin.as_ref().context("every job was created by a schedule")?;
            let started = job.started_at.context("every job has started")?;
            firings.push((origin.scheduled_for, started));
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(firings);
        }
    }
}

/// Returns the sorted delays of the starts, in milliseconds.
pub(crate) fn lateness(firings: &[(Timestamp, Timestamp)]) -> Vec<f64> {
    let late = |(due, started): &(Timestamp, Timestamp)| (started.as_micros() - due.as_micros()) as f64;
    let mut late: Vec<_> = firings.iter().map(|firing| late(firing) / 1_000.0).collect();
    late.sort_by(f64::total_cmp);
    late
}

/// Returns the time since the Unix epoch.
fn now() -> Duration {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// Returns a full second about `seconds` from now.
fn soon(seconds: u64) -> Duration {
    Duration::from_secs(now().as_secs() + seconds)
}

/// Returns the cron expression of this second of the day, in UTC.
fn cron_at(at: Duration) -> String {
    let seconds = at.as_secs() % 86_400;
    format!("{} {} {} * * *", seconds % 60, seconds / 60 % 60, seconds / 3_600)
}
