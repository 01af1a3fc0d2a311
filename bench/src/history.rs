//! A store with a long history, made by the engine and the store alone.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use model::Timestamp;

use crate::core::{Core, head};
use crate::load::usual_job;

/// The time between two batches of a thousand jobs: ten million of them fill a day.
const PACE: model::Duration = model::Duration::from_secs(8);
/// Names, owners, labels and queues of its jobs repeat after so many.
const KINDS: usize = 50;

/// The wall clock.
pub(crate) fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(now.as_micros()).unwrap_or(i64::MAX))
}

/// Makes a server's data folder whose store has that many ended jobs, the newest of them of just now.
pub(crate) async fn fill(data: &Path, jobs: usize) -> anyhow::Result<Duration> {
    std::fs::create_dir_all(data)?;
    let begun = std::time::Instant::now();
    let batches = i64::try_from(jobs / 1_000 + 10)?;
    let past = batches * i64::try_from(PACE.as_millis())? * 1_000;
    let start = Timestamp::from_micros(now().as_micros() - past);
    let mut core = Core::over(&data.join("belfry.db"), start).await?;
    for batch in 0..jobs / 1_000 {
        let mut spec = usual_job();
        let kind = batch % KINDS;
        spec.name = format!("report-{kind}");
        spec.owner = Some(format!("owner-{}", kind % 10));
        spec.labels.insert("region".into(), format!("r{}", kind % 5));
        core.pass(&head(spec), 1_000, PACE).await?;
    }
    core.close().await?;
    Ok(begun.elapsed())
}
