//! Applies the whole log of a node that has stopped, without its cluster: to save what a lost majority has acknowledged.

use std::path::Path;
use std::sync::Arc;

use openraft::RaftLogReader;
use openraft::storage::RaftStateMachine;
use tokio_util::sync::CancellationToken;

use super::open_log;
use crate::error::OpenError;
use crate::log::{Log, Options as LogOptions};
use crate::machine::copies::{COPY_RATE, Copies};
use crate::machine::{Applier, Belfry, Machine, MachineError, StateMachine};
use crate::types::LogId;

/// Applies all entries of a log to its machine, and makes the machine durable. Returns the last position.
///
/// The node does not know which of the last entries were acknowledged, so it applies all. The folder must not belong to a
/// node that may still vote.
///
/// # Errors
/// If the log is damaged or does not belong to the machine, or the machine fails.
pub(crate) async fn replay<M: Machine>(
    folder: &Path,
    options: LogOptions,
    machine: Arc<M>,
) -> Result<Option<LogId>, OpenError> {
    let (log, snapshots) = open_log(folder, options, &*machine, Log::open).await?;
    let (applier, applying) = Applier::new(Arc::clone(&machine));
    let applying = tokio::spawn(applying);
    // No copy is made.
    let copies = Copies::new(Arc::new(snapshots), COPY_RATE, CancellationToken::new());
    let applied = apply_all(&log, StateMachine::new(applier.clone(), Arc::new(copies))).await;
    let stopped = applier.progress().stopped();
    drop(applier);
    // The task ends with its last handle. A panic of it was printed.
    let _ = applying.await;
    if let Err(error) = applied {
        let cause = stopped.borrow().clone();
        let problem = cause.map_or_else(|| error.to_string(), |cause| cause.to_string());
        return Err(MachineError::caused(problem, error).into());
    }
    Ok(machine.sync().await?.applied)
}

async fn apply_all<M: Machine>(
    log: &Log,
    mut machine: StateMachine<M>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (applied, _) = machine.applied_state().await?;
    let mut reader = log.reader();
    let mut next = applied.map_or(0, |applied| applied.index + 1);
    let Some(last) = reader.last() else { return Ok(()) };
    while next <= last.index {
        let entries =
            RaftLogReader::<Belfry<M>>::limited_get_log_entries(&mut reader, next, last.index + 1).await?;
        // The log begins later: everything before is in the machine.
        let Some(newest) = entries.last() else { break };
        next = newest.log_id.index + 1;
        machine.apply(entries).await?;
    }
    machine.applied_state().await?;
    Ok(())
}
