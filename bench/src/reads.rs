//! Dashboard requests over a long history, 500 per second, while jobs pass through the whole path.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::time::MissedTickBehavior;

use crate::environment;
use crate::history;
use crate::load::Load;
use crate::noop::{Path, STORE_THREAD};
use crate::report::{Figure, Goal, number, percentile};

const READS_A_SECOND: u32 = 500;
/// Number of jobs of one measurement.
const JOBS: u64 = 100_000;

/// Requests of the dashboard's pages: lists, with filters, further pages, and single jobs.
const ASKED: &[&str] = &[
    "jobs?limit=50",
    "jobs?status=failed&limit=50",
    "jobs?status=waiting,running&limit=50",
    "jobs?owner=owner-3&limit=50",
    "jobs?name=report-17&limit=50",
    "jobs?label=region%3Dr2&limit=50",
    "executions?limit=50",
    "jobs?limit=1&count=true&status=failed",
    "schedules?limit=50",
    "runs?limit=50",
    "workers",
    "queues",
];

pub(crate) async fn run(jobs: usize) -> anyhow::Result<Vec<Figure>> {
    let folder = environment::folder()?;
    history::fill(&folder.path().join("data"), jobs).await?;
    let mut path = Path::over(&folder, 1).await?;
    let mut asked: Vec<String> = ASKED.iter().map(|&path| path.to_owned()).collect();
    let newest = path.load.get("jobs?limit=20").await?;
    for job in newest["items"].as_array().into_iter().flatten().filter_map(|job| job["id"].as_str()) {
        asked.push(format!("jobs/{job}"));
    }
    // Each request is sent once before, so that a refused one fails the benchmark instead of counting as fast.
    for question in &asked {
        path.load.get(question).await?;
    }
    let alone = path.pass(JOBS).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn(read(path.load.clone(), asked, Arc::clone(&stop)));
    let beside = path.pass(JOBS).await?;
    stop.store(true, Ordering::Relaxed);
    let mut delays = reader.await??;
    delays.sort_by(f64::total_cmp);
    let server = |passed: &crate::noop::Passed| passed.micros_a_job(|name| name.starts_with(STORE_THREAD));
    let history = format!("with {} ended jobs", number(jobs as f64));
    Ok(vec![
        Figure::new(format!("reads {history}, p50"), percentile(&delays, 0.50), "ms", Goal::None),
        Figure::new("the same, p99", percentile(&delays, 0.99), "ms", Goal::AtMost(20.0)),
        Figure::new(
            "reads a second meanwhile",
            delays.len() as f64 / beside.ended.as_secs_f64(),
            "/s",
            Goal::None,
        ),
        Figure::new("jobs without reads", alone.rate(), "jobs/s", Goal::None),
        Figure::new("jobs beside the reads", beside.rate(), "jobs/s", Goal::None),
        Figure::new(
            "what writing a job costs beside them, ratio",
            server(&beside) / server(&alone),
            "",
            Goal::AtMost(1.10),
        ),
    ])
}

/// Sends requests at a fixed rate without waiting for answers, until stopped. Returns the delays in milliseconds from
/// the time at which each request was due.
async fn read(load: Load, asked: Vec<String>, stop: Arc<AtomicBool>) -> anyhow::Result<Vec<f64>> {
    let mut beat = tokio::time::interval(Duration::from_secs(1) / READS_A_SECOND);
    beat.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut reading = Vec::new();
    for question in asked.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let due: Instant = beat.tick().await.into();
        let (load, question) = (load.clone(), question.clone());
        reading.push(tokio::spawn(async move {
            load.get(&question).await?;
            anyhow::Ok(due.elapsed().as_secs_f64() * 1_000.0)
        }));
    }
    let mut delays = Vec::with_capacity(reading.len());
    for answer in reading {
        delays.push(answer.await??);
    }
    Ok(delays)
}
