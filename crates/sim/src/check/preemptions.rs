//! Checks of preemptions (I23): a job is preempted only for a waiting job of a higher priority class, and never by a job
//! that was preempted itself.
//!
//! [`Preemptions`] looks at the commit in which a preemption begins. The specs of both jobs are known then, because both
//! are live.

use std::collections::BTreeSet;

use model::spec::{Delivery, PriorityClass};
use model::{Cause, ExecutionId, JobId};

use super::facts::{Facts, JobFacts};
use super::{Findings, Invariant};
use crate::history::{Commit, ExecutionRow, Row};

/// Executions that are preempted, from commit to commit.
#[derive(Debug, Default)]
pub(super) struct Preemptions {
    known: BTreeSet<ExecutionId>,
}

impl Preemptions {
    pub(super) fn take(&mut self, facts: &Facts<'_>, index: usize, commit: &Commit, findings: &mut Findings) {
        for row in &commit.rows {
            let Row::Execution(row) = row else { continue };
            if row.status.is_final() {
                self.known.remove(&row.execution);
            } else if let Some(by) = row.preempted_by.filter(|_| self.known.insert(row.execution)) {
                check(facts, index, row, by, findings);
            }
        }
    }
}

fn check(facts: &Facts<'_>, index: usize, row: &ExecutionRow, by: JobId, findings: &mut Findings) {
    let (Some(victim), Some(winner)) = (facts.jobs.get(&row.job), facts.jobs.get(&by)) else {
        let message = format!("preempted by {by}, which is not in the store");
        return findings.add(Invariant::I23, row.job, message, [index]);
    };
    if let (Some(of), Some(higher)) = (class_at(victim, index), class_at(winner, index))
        && of >= higher
    {
        let message = format!("a job of the class {of} is preempted by {by} of the class {higher}");
        findings.add(Invariant::I23, row.job, message, [index]);
    }
    if victim.spec.is_some_and(|spec| spec.delivery == Delivery::AtMostOnce) {
        findings.add(Invariant::I23, row.job, "preempted, although it may start only once", [index]);
    }
    if last_cause(winner, index) == Some(Cause::Preempted) {
        let message = format!("preempted by {by}, which is preempted itself");
        findings.add(Invariant::I23, row.job, message, [index]);
    }
}

/// Returns the priority class of a job at an event. An update can change it.
fn class_at(job: &JobFacts<'_>, index: usize) -> Option<PriorityClass> {
    let until = job.rows.iter().take_while(|(at, _)| *at <= index);
    until.filter_map(|(_, row)| row.spec.as_ref()).last().map(|spec| spec.priority_class)
}

/// Returns the cause of the last transition of a job up to an event.
fn last_cause(job: &JobFacts<'_>, index: usize) -> Option<Cause> {
    job.steps().take_while(|(at, _)| *at <= index).last().map(|(_, step)| step.cause)
}
