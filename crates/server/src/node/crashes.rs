//! Crash points for tests: before and after the commit of each step of a job.
//!
//! A batch holds steps of many jobs; it reaches the points of all of them. See [`crashpoint`]. Release builds have no
//! crash points.

use crashpoint::Point;
use model::ExecutionStatus;
use model::record::{Batch, Change};

/// Phase of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) enum CommitPhase {
    BeforeCommit,
    AfterCommit,
    AfterEffects,
}

/// Reaches the crash points of this phase for every change of the batch.
pub(super) fn reach(moment: CommitPhase, batch: &Batch) {
    if crashpoint::is_enabled() {
        batch
            .changes
            .iter()
            .filter_map(points_of)
            .for_each(|points| crashpoint::reach(points[moment as usize]));
    }
}

/// Returns the crash points of a change, in the order of [`CommitPhase`].
fn points_of(change: &Change) -> Option<[Point; 3]> {
    use Point::{
        AcceptAfterCommit, AcceptAfterEffects, AcceptBeforeCommit, DispatchAfterCommit, DispatchAfterEffects,
        DispatchBeforeCommit, FinishAfterCommit, FinishAfterEffects, FinishBeforeCommit, FireAfterCommit,
        FireAfterEffects, FireBeforeCommit, StartAfterCommit, StartAfterEffects, StartBeforeCommit,
        StepAfterCommit, StepAfterEffects, StepBeforeCommit,
    };
    Some(match change {
        Change::Job { new: true, head: Some(head), .. } if head.origin.is_none() => {
            [AcceptBeforeCommit, AcceptAfterCommit, AcceptAfterEffects]
        }
        Change::Ledger(_) => [FireBeforeCommit, FireAfterCommit, FireAfterEffects],
        Change::Execution { new: true, .. } => {
            [DispatchBeforeCommit, DispatchAfterCommit, DispatchAfterEffects]
        }
        Change::Execution { record, .. } if record.status == ExecutionStatus::Running => {
            [StartBeforeCommit, StartAfterCommit, StartAfterEffects]
        }
        Change::Execution { record, .. } if record.status.is_final() => {
            [FinishBeforeCommit, FinishAfterCommit, FinishAfterEffects]
        }
        Change::Step(record) if record.state.status.is_final() => {
            [StepBeforeCommit, StepAfterCommit, StepAfterEffects]
        }
        _ => return None,
    })
}
