//! Whether the cost of a job depends on the number of earlier jobs, or on the number of workers.
//!
//! A shared machine has varying speed, and a new store is still being written to disk. So the longest history is
//! created first, and then all histories are measured in turn, one after the other: only values of the same turn are
//! compared. The longest history grows by the measured jobs; the others are recreated for each turn.

use tempfile::TempDir;

use crate::environment;
use crate::history;
use crate::noop::{Path, STORE_THREAD};
use crate::report::{Figure, Goal, number};

/// Numbers of ended jobs in the histories.
const HISTORIES: [usize; 3] = [1_000, 100_000, 10_000_000];
/// Number of turns.
const TURNS: usize = 5;
/// Numbers of fake workers, each with its own stream.
const WORKERS: [usize; 4] = [1, 10, 100, 1_000];
/// Number of jobs of one measurement.
const JOBS: u64 = 60_000;

/// Measurements of all turns over one history.
#[derive(Default)]
struct Turns {
    rates: Vec<f64>,
    costs: Vec<f64>,
    stored: Vec<f64>,
}

/// Measures histories of up to `most` jobs.
pub(crate) async fn run(most: usize) -> anyhow::Result<Vec<Figure>> {
    let mut figures = histories(most).await?;
    for workers in WORKERS {
        let passed = Path::new(workers).await?.pass(JOBS).await?;
        let workers = number(workers as f64);
        figures.push(Figure::new(format!("{workers} workers"), passed.rate(), "jobs/s", Goal::None));
        let cost = passed.micros_a_job(|_| true);
        figures.push(Figure::new(format!("{workers} workers, time of a job"), cost, "µs", Goal::None));
    }
    Ok(figures)
}

async fn histories(most: usize) -> anyhow::Result<Vec<Figure>> {
    let lengths = HISTORIES.map(|jobs| jobs.min(most));
    let longest = made(lengths[2]).await?;
    rustix::fs::sync();
    let mut measured = lengths.map(|_| Turns::default());
    for _ in 0..TURNS {
        for (jobs, turns) in lengths.into_iter().zip(&mut measured) {
            let passed = if jobs == lengths[2] {
                Path::over(&longest, 1).await?.pass(JOBS).await?
            } else {
                Path::over(&made(jobs).await?, 1).await?.pass(JOBS).await?
            };
            turns.rates.push(passed.rate());
            turns.costs.push(passed.micros_a_job(|_| true));
            turns.stored.push(passed.micros_a_job(|name| name.starts_with(STORE_THREAD)));
        }
    }
    let shortest = measured[0].costs.clone();
    let mut figures = Vec::new();
    for (jobs, turns) in lengths.into_iter().zip(measured) {
        let ratios = turns.costs.iter().zip(&shortest).map(|(cost, shortest)| cost / shortest).collect();
        let before = format!("{} ended jobs before", number(jobs as f64));
        let figure =
            |what: &str, values, unit, goal| Figure::of_turns(format!("{before}{what}"), values, unit, goal);
        figures.push(figure("", turns.rates, "jobs/s", Goal::None));
        figures.push(figure(", time of a job", turns.costs, "µs", Goal::None));
        figures.push(figure(", of it: store", turns.stored, "µs", Goal::None));
        figures.push(figure(", ratio", ratios, "", Goal::AtMost(1.15)));
    }
    Ok(figures)
}

/// Creates a store with this number of ended jobs.
async fn made(jobs: usize) -> anyhow::Result<TempDir> {
    let folder = environment::folder()?;
    history::fill(&folder.path().join("data"), jobs).await?;
    Ok(folder)
}
