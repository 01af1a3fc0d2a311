//! Server memory per waiting job, and the time of a cold start with all of them.

use std::time::Instant;

use anyhow::Context as _;

use crate::environment;
use crate::load::{Load, batch, usual_job};
use crate::report::{Figure, Goal};

/// Number of jobs of one request.
const BATCH: usize = 1_000;

pub(crate) async fn run(jobs: usize) -> anyhow::Result<Vec<Figure>> {
    let folder = environment::folder()?;
    let mut server = environment::server(folder.path()).await?;
    let empty = server.pid().memory().context("the server is running")?;
    let load = Load::of(&server)?;
    let body = batch(&usual_job(), BATCH);
    let requests = jobs.div_ceil(BATCH);
    for key in 0..requests {
        load.submit(body.clone(), key as u64).await?;
    }
    let jobs = requests * BATCH;
    let submitted = server.pid().memory().context("the server is running")?;

    server.shut_down().await;
    let begun = Instant::now();
    server.restart().await;
    let start = begun.elapsed().as_secs_f64();
    let loaded = server.pid().memory().context("the server is running")?;
    let each = |bytes: u64| bytes.saturating_sub(empty) as f64 / jobs as f64;
    Ok(vec![
        Figure::new(
            format!("a waiting job, of {jobs}, as submitted"),
            each(submitted),
            "bytes",
            Goal::AtMost(1_024.0),
        ),
        Figure::new("the same after a restart", each(loaded), "bytes", Goal::AtMost(1_024.0)),
        Figure::new("cold start with them", start, "s", Goal::AtMost(10.0)),
    ])
}
