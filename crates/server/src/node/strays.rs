//! Says by name what the store has forgotten, as far as workers know of it.

use std::sync::Arc;

use engine::Stray;
use store::Store;

use crate::metrics::Metrics;

/// Names those of which the store has no row: one that ended while its worker was away is there. Nothing waits for it.
pub(super) async fn tell(store: Arc<dyn Store>, metrics: Metrics, strays: Vec<Stray>) {
    for Stray { held, worker } in strays {
        let what = match store.execution(held.execution).await {
            Ok(Some(_)) => continue,
            Ok(None) if held.running => "a worker runs what the store has forgotten; it is stopped",
            Ok(None) => "a worker has ended what the store has forgotten; its outcome is not kept",
            Err(error) => {
                let execution_id = held.execution;
                tracing::warn!(%execution_id, worker_id = %worker, %error, "cannot find out whether the store has lost this execution");
                continue;
            }
        };
        metrics.forgotten();
        let job = held.job.map(tracing::field::display);
        tracing::warn!(execution_id = %held.execution, job_id = job, worker_id = %worker, "{what}");
    }
}
