//! Whether a job costs the same however many there were before it, and however many workers there are.

use crate::history;
use crate::noop::Path;
use crate::place;
use crate::report::{Figure, Goal, number};

/// Ended jobs in the history.
const HISTORIES: [usize; 3] = [1_000, 100_000, 10_000_000];
/// Workers that do nothing, each with streams of its own.
const WORKERS: [usize; 4] = [1, 10, 100, 1_000];
/// Jobs of one measurement.
const JOBS: u64 = 60_000;

/// With at most `most` jobs in the history.
pub(crate) async fn run(most: usize) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let mut first = None;
    for jobs in HISTORIES.map(|jobs| jobs.min(most)) {
        let folder = place::folder()?;
        history::fill(&folder.path().join("data"), jobs).await?;
        let passed = Path::over(folder, 1).await?.pass(JOBS).await?;
        let cost = passed.micros_a_job(|_| true);
        let jobs = number(jobs as f64);
        figures.push(Figure::new(format!("{jobs} ended jobs before"), passed.rate(), "jobs/s", Goal::None));
        figures.push(Figure::new(format!("{jobs} ended jobs before, time of a job"), cost, "µs", Goal::None));
        let ratio = cost / *first.get_or_insert(cost);
        figures.push(Figure::new(format!("{jobs} ended jobs before, ratio"), ratio, "", Goal::AtMost(1.15)));
    }
    for workers in WORKERS {
        let passed = Path::new(workers).await?.pass(JOBS).await?;
        let workers = number(workers as f64);
        figures.push(Figure::new(format!("{workers} workers"), passed.rate(), "jobs/s", Goal::None));
        let cost = passed.micros_a_job(|_| true);
        figures.push(Figure::new(format!("{workers} workers, time of a job"), cost, "µs", Goal::None));
    }
    Ok(figures)
}
