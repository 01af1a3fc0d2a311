//! Reports executions that a worker holds and that the store has lost.

use std::sync::Arc;

use engine::OrphanedExecution;
use model::error_chain::Chain;
use store::Store;

use crate::metrics::Metrics;

/// Logs and counts each execution that has no row. An execution that ended while its worker was disconnected has a row.
/// The caller does not wait for this.
pub(super) async fn log_lost_executions(
    store: Arc<dyn Store>,
    metrics: Metrics,
    strays: Vec<OrphanedExecution>,
) {
    for OrphanedExecution { held, worker } in strays {
        let job = held.job.map(tracing::field::display);
        let what = match store.execution(held.execution).await {
            Ok(Some(_)) => continue,
            Ok(None) if held.running => "stopping an execution that the store has lost",
            Ok(None) => "discarding the outcome of an execution that the store has lost",
            Err(error) => {
                tracing::warn!(
                    execution_id = %held.execution, job_id = job, worker_id = %worker, error = %Chain(&error),
                    "cannot check whether the store has lost an execution"
                );
                continue;
            }
        };
        metrics.count_lost_execution();
        tracing::warn!(execution_id = %held.execution, job_id = job, worker_id = %worker, "{what}");
    }
}
