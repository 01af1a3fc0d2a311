//! Durable submissions per second over HTTP, without a worker.

use std::time::Duration;

use crate::environment;
use crate::load::{Load, batch, usual_job};
use crate::report::{Figure, Goal};

/// Measures batches of 100 over four connections.
pub(crate) async fn batches(time: Duration) -> anyhow::Result<Vec<Figure>> {
    let folder = environment::folder()?;
    let server = environment::server(folder.path()).await?;
    let requests = Load::of(&server)?.rate(&batch(&usual_job(), 100), 4, time).await?;
    Ok(vec![Figure::new(
        "submissions in batches of 100",
        requests * 100.0,
        "jobs/s",
        Goal::AtLeast(10_000.0),
    )])
}

/// Measures single submissions over 64 connections.
pub(crate) async fn singles(time: Duration) -> anyhow::Result<Vec<Figure>> {
    let folder = environment::folder()?;
    let server = environment::server(folder.path()).await?;
    let body = serde_json::to_string(&usual_job())?;
    let rate = Load::of(&server)?.rate(&body, 64, time).await?;
    Ok(vec![Figure::new("submissions one by one, 64 connections", rate, "jobs/s", Goal::AtLeast(3_000.0))])
}
