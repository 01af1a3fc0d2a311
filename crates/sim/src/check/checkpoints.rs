//! Checks of checkpoints: only the current execution may save one, and the next execution gets the last accepted one.

use model::{ExecutionId, JobId};

use super::facts::{Facts, JobFacts};
use super::{Findings, Invariant};

/// Checks the checkpoints of one job.
pub(super) fn check(facts: &Facts<'_>, id: JobId, job: &JobFacts<'_>, findings: &mut Findings) {
    let mut newest = 0;
    for &(index, version, data) in &job.saved {
        if version != newest + 1 {
            let message = format!("checkpoint {version} follows checkpoint {newest}");
            findings.add(Invariant::I4, id, message, [index]);
        }
        newest = version;
        match facts.saves.get(&data) {
            None => findings.add(Invariant::I3, id, "no execution saved its checkpoint", [index]),
            Some(&(by, asked)) if !is_current(facts, id, by, index) => {
                let message =
                    format!("checkpoint {version} was saved by {by}, which was not the current execution");
                findings.add(Invariant::I10, id, message, [asked, index]);
            }
            Some(_) => {}
        }
    }
    for execution in &job.executions {
        passed_checkpoints(facts, *execution, id, job, findings);
    }
}

/// I10: the execution was assigned before this event, and had not ended.
fn is_current(facts: &Facts<'_>, job: JobId, execution: ExecutionId, index: usize) -> bool {
    let Some(known) = facts.executions.get(&execution) else { return false };
    let own = known.rows.first().is_some_and(|(begun, row)| *begun < index && row.job == job);
    own && !known.rows.iter().any(|(over, row)| row.status.is_final() && *over < index)
}

/// I1: a task gets the last checkpoint that was accepted before its start.
fn passed_checkpoints(
    facts: &Facts<'_>,
    execution: ExecutionId,
    id: JobId,
    job: &JobFacts<'_>,
    findings: &mut Findings,
) {
    let Some(known) = facts.executions.get(&execution) else { return };
    // The checkpoint may have been lost.
    let Some(start) = known.starts().next().filter(|start| !facts.may_be_lost(*start, *start)) else {
        return;
    };
    let last = job.saved.iter().rfind(|(index, ..)| *index < start);
    let found = known.found.filter(|(index, _)| *index < start);
    if found.map(|(_, data)| data) != last.map(|(.., data)| *data) {
        let message =
            format!("{execution} got checkpoint {:?} instead of {:?}", found.map(|f| f.1), last.map(|l| l.2));
        let excerpt = found.map(|found| found.0).into_iter().chain(last.map(|last| last.0)).chain([start]);
        findings.add(Invariant::I1, id, message, excerpt);
    }
}
