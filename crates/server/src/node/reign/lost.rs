//! Says by name what the store has forgotten, as far as workers know of it.

use std::sync::Arc;

use engine::Stray;
use store::Store;

use crate::metrics::Metrics;

/// Names those of which the store has no row: one that ended while its worker was away is there.
pub(super) async fn tell(store: Arc<dyn Store>, metrics: Metrics, strays: Vec<Stray>) {
    for Stray { held, worker } in strays {
        if let Ok(Some(_)) = store.execution(held.execution).await {
            continue;
        }
        metrics.forgotten();
        let job = held.job.map(tracing::field::display);
        let what = if held.running {
            "a worker runs what the store has forgotten; it is stopped"
        } else {
            "a worker has ended what the store has forgotten; its outcome is not kept"
        };
        tracing::warn!(execution_id = %held.execution, job_id = job, worker_id = %worker, "{what}");
    }
}
