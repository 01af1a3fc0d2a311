//! Creates stores with a long history, with the engine and the store only.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use model::Timestamp;

use crate::core::{Core, head};
use crate::load::usual_job;

/// Engine time between two batches of 1,000 jobs: ten million jobs fill a day.
const PACE: model::Duration = model::Duration::from_secs(8);
/// Number of different names, owners, labels and queues of the jobs.
const KINDS: usize = 50;

/// Returns the time of the wall clock.
pub(crate) fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(now.as_micros()).unwrap_or(i64::MAX))
}

/// Creates a server's data folder whose store has this number of ended jobs; the newest one has just ended.
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
