//! Checks of executions: how often, at the same time as which others, how long, and with which result.
//!
//! - [`starts`], [`overlaps`]: from the records of the tasks themselves (I7, I8, I10).
//! - [`check`]: results (I9), retries and backoffs (I11, I12), cancellations and timeouts (I13), and reports
//!   that never arrived (I30).
//!
//! A [`Stretch`] is a period in which a task really ran; frozen and suspended time is not part of it. Some
//! overlap is accepted after a machine has resumed, until its fuse acts. Upper bounds on running times apply
//! once no fault prevents a stop, plus the tolerance of the setup.

use std::collections::BTreeSet;

use model::spec::{Backoff, Delivery, JobSpec};
use model::{Cause, Duration, ExecutionId, ExecutionStatus, JobId, JobStatus, Timestamp, WorkerId};

use super::facts::{ExecutionFacts, Facts, JobFacts};
use super::{Findings, Invariant};
use crate::history::TaskStep;

pub(super) fn check(facts: &Facts<'_>, findings: &mut Findings) {
    for (&id, job) in &facts.jobs {
        results(facts, id, job, findings);
        retries(facts, id, job, findings);
        lost_executions(facts, id, job, findings);
        backoffs(facts, id, job, findings);
        cancels(facts, id, job, findings);
        completion(facts, id, job, findings);
        timeouts(facts, job, findings);
        least_once(facts, id, job, findings);
    }
    for (&id, execution) in &facts.executions {
        lengths(facts, id, execution, findings);
        reports(facts, id, execution, findings);
        losses(facts, id, execution, findings);
    }
    if let (Some((index, kept)), true) = (facts.end, facts.calm.is_some()) {
        for execution in kept {
            findings.add(Invariant::I30, execution, "its worker still waits for an acknowledgement", [index]);
        }
    }
}

/// I7, and I10 for tasks: a fence starts once, and a job that may run once starts once.
///
/// If the store lost a start, it may start the job again: once for each loss.
pub(super) fn starts(facts: &Facts<'_>, findings: &mut Findings) {
    for (id, execution) in &facts.executions {
        if execution.starts().nth(1).is_some() {
            let starts: Vec<_> = execution.starts().collect();
            findings.add(Invariant::I10, id, format!("started {} times", starts.len()), starts);
        }
    }
    let strays = facts.strays();
    for (id, job) in &facts.jobs {
        if job.spec.is_none_or(|spec| spec.delivery != Delivery::AtMostOnce) {
            continue;
        }
        let executions = || job.executions.iter().filter_map(|id| facts.executions.get(id));
        let starts: Vec<_> = executions().flat_map(ExecutionFacts::starts).collect();
        if starts.len() > 1 {
            findings.add(Invariant::I7, id, format!("started {} times", starts.len()), starts);
            continue;
        }
        let stray = strays.get(id).into_iter().flatten().filter_map(|id| facts.executions.get(id));
        let strays: Vec<_> = stray.flat_map(ExecutionFacts::starts).collect();
        if strays.len() > facts.losses() {
            let message = format!("{} started executions are in no commit", strays.len());
            findings.add(Invariant::I7, id, message, strays);
            continue;
        }
        let perhaps: Vec<_> = executions()
            .filter_map(ExecutionFacts::last)
            .filter(|row| row.status != ExecutionStatus::Refused && !job.could_not_start(row.number))
            .collect();
        if perhaps.len() > 1 {
            let message = format!("{} executions may have started", perhaps.len());
            let rows = perhaps.iter().filter_map(|row| facts.committed(row.execution));
            findings.add(Invariant::I7, id, message, rows);
        }
    }
}

/// A period in which a task ran.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    from: (usize, Timestamp),
    until: (usize, Timestamp),
    execution: ExecutionId,
    /// Whether its machine had just resumed.
    after_wake: bool,
}

fn stretches(facts: &Facts<'_>, id: ExecutionId, execution: &ExecutionFacts<'_>) -> Vec<Stretch> {
    let mut found = Vec::new();
    let mut since: Option<(usize, Timestamp)> = None;
    let mut worker: Option<WorkerId> = None;
    let woke = |worker: Option<WorkerId>, at| {
        worker.and_then(|id| facts.woke.get(&id)).is_some_and(|times| times.contains(&at))
    };
    // A task that runs at the end of the history runs for at least another moment.
    let last = facts.history.events.len().saturating_sub(1);
    let end = (last, facts.ends_at() + Duration::from_millis(1));
    for &(index, at, step) in &execution.steps {
        match step {
            TaskStep::Started { worker: on, .. } => {
                worker = Some(*on);
                since = since.or(Some((index, at)));
            }
            TaskStep::Resumed => since = since.or(Some((index, at))),
            TaskStep::Halted | TaskStep::Ended { .. } | TaskStep::Killed => {
                if let Some(from) = since.take() {
                    let after_wake = woke(worker, from.1);
                    found.push(Stretch { from, until: (index, at), execution: id, after_wake });
                }
            }
        }
    }
    found.extend(since.map(|from| Stretch {
        from,
        until: end,
        execution: id,
        after_wake: woke(worker, from.1),
    }));
    found
}

/// I8: executions of a job do not overlap.
///
/// Executions that the store lost count as well, except for `at_least_once` jobs: these are started again
/// immediately, while the lost execution is still being stopped.
pub(super) fn overlaps(facts: &Facts<'_>, findings: &mut Findings) {
    let slack = facts.history.setup.wake_slack;
    let mut strays = facts.strays();
    strays.retain(|id, _| {
        let spec = facts.jobs.get(id).and_then(|job| job.spec);
        spec.is_some_and(|spec| spec.delivery != Delivery::AtLeastOnce)
    });
    for (id, job) in &facts.jobs {
        let all = || job.executions.iter().chain(strays.get(id).into_iter().flatten());
        if all().nth(1).is_none() {
            continue;
        }
        let executions = all().filter_map(|id| Some((*id, facts.executions.get(id)?)));
        let mut all: Vec<_> = executions.flat_map(|(id, known)| stretches(facts, id, known)).collect();
        all.sort_by_key(|stretch| stretch.from);
        let mut running: Option<Stretch> = None;
        for stretch in all {
            if let Some(other) =
                running.filter(|other| other.execution != stretch.execution && other.until.1 > stretch.from.1)
            {
                let both = other.until.1.min(stretch.until.1).since(stretch.from.1);
                let excused = (stretch.after_wake || other.after_wake) && both <= slack;
                if !excused {
                    let message = format!(
                        "{} and {} ran at the same time for {both}",
                        other.execution, stretch.execution
                    );
                    let excerpt = [other.from.0, stretch.from.0, other.until.0, stretch.until.0];
                    findings.add(Invariant::I8, id, message, excerpt);
                    break;
                }
            }
            if running.is_none_or(|other| other.until.1 < stretch.until.1) {
                running = Some(stretch);
            }
        }
    }
}

/// I9: a succeeded job has exactly one accepted result, and it is the result of its task.
fn results(facts: &Facts<'_>, id: JobId, job: &JobFacts<'_>, findings: &mut Findings) {
    let Some(last) = job.last() else { return };
    let succeeded: Vec<_> = job
        .executions
        .iter()
        .filter_map(|id| facts.executions.get(id))
        .filter(|known| known.last().is_some_and(|row| row.status == ExecutionStatus::Succeeded))
        .collect();
    let expected = usize::from(last.status == JobStatus::Succeeded);
    // A replica that exits is started again, also after a success; see `services`.
    if succeeded.len() != expected && job.replica.is_none() {
        let message = format!("the status is {}, but {} executions succeeded", last.status, succeeded.len());
        findings.add(Invariant::I9, id, message, job.rows.last().map(|(at, _)| *at));
    }
    for known in succeeded {
        let ended_well = known.steps.iter().any(|(.., step)| **step == TaskStep::Ended { exit: 0 });
        if !ended_well {
            let message = "accepted as succeeded, but the task did not succeed";
            let excerpt = known.rows.iter().map(|(at, _)| *at).chain(known.steps.iter().map(|(at, ..)| *at));
            findings.add(Invariant::I9, id, message, excerpt);
        }
    }
}

/// I9: the result of a task is not lost while its supervisor lives.
fn losses(facts: &Facts<'_>, id: ExecutionId, execution: &ExecutionFacts<'_>, findings: &mut Findings) {
    let Some(row) = execution.last().filter(|row| row.status == ExecutionStatus::Lost) else { return };
    let job = facts.jobs.get(&row.job);
    let step = job.and_then(|job| {
        job.steps().find(|(_, step)| step.execution == Some(row.number) && step.cause == Cause::Interrupted)
    });
    let ended = execution.steps.iter().find(|(.., step)| **step == TaskStep::Ended { exit: 0 });
    let (Some((told, _)), Some((ended, ..))) = (step, ended) else { return };
    let start = execution.starts().next().unwrap_or(*ended);
    if facts.exact() && facts.losses() == 0 && !facts.crashed_after(row.worker, start) {
        let message = "recorded as interrupted, but the task succeeded";
        findings.add(Invariant::I9, id, message, [start, *ended, told]);
    }
}

/// I12: which executions count as failures, and how many are allowed.
fn retries(facts: &Facts<'_>, id: JobId, job: &JobFacts<'_>, findings: &mut Findings) {
    let (Some(last), Some(spec)) = (job.last(), job.spec) else { return };
    let Some(steps) = counted_causes(facts, job) else { return };
    let count = |causes: &[Cause]| steps.iter().filter(|cause| causes.contains(cause)).count();
    let run_failures = [Cause::RunFailed, Cause::TimedOut, Cause::ReplicaExited];
    let at = job.rows.last().map(|(at, _)| *at);
    for (kind, counted, recorded, most) in [
        ("run", last.run_failures, count(&run_failures), spec.retry.max_retries),
        ("start", last.start_failures, count(&[Cause::StartFailed]), spec.retry.max_start_retries),
    ] {
        if counted > most + 1 {
            let message = format!("{counted} {kind} failures exceed {most} retries");
            findings.add(Invariant::I12, id, message, at);
        } else if counted as usize != recorded {
            let message = format!("{counted} {kind} failures counted, but {recorded} in the history");
            findings.add(Invariant::I12, id, message, at);
        }
    }
}

/// Run time after which earlier failures of a replica do not count.
const STABLE_RUN: Duration = Duration::from_secs(600);
/// Difference between the recorded and the real run time up to which it is unknown whether a run was stable.
const STABLE_RUN_SLACK: Duration = Duration::from_secs(10);

/// Returns the causes of the transitions that count for the retries: for a replica, those from the end of its last
/// stable run on. Returns `None` if it is unknown whether a run was stable.
fn counted_causes(facts: &Facts<'_>, job: &JobFacts<'_>) -> Option<Vec<Cause>> {
    let mut causes = Vec::new();
    for (index, step) in job.steps() {
        if job.replica.is_some() && step.from == Some(JobStatus::Running) {
            let number = step.execution.and_then(|number| usize::try_from(number).ok());
            let id = number.and_then(|number| job.executions.get(number.checked_sub(1)?));
            let rows = id.and_then(|id| facts.executions.get(id)).map(|execution| &execution.rows);
            let known = rows.into_iter().flatten().take_while(|(at, _)| *at <= index).last();
            let started_at = known.and_then(|(_, row)| row.started_at);
            let ran = started_at.zip(facts.engine_time(index)).map(|(started_at, now)| now.since(started_at));
            match ran {
                Some(ran) if ran >= STABLE_RUN + STABLE_RUN_SLACK => causes.clear(),
                Some(ran) if ran + STABLE_RUN_SLACK >= STABLE_RUN => return None,
                _ => {}
            }
        }
        causes.push(step.cause);
    }
    Some(causes)
}

/// I12: how often an execution may be lost with its worker.
fn lost_executions(facts: &Facts<'_>, id: JobId, job: &JobFacts<'_>, findings: &mut Findings) {
    let (Some(last), Some(spec)) = (job.last(), job.spec) else { return };
    let at = job.rows.last().map(|(at, _)| *at);
    let most = spec.retry.max_lost;
    if last.losses > most + 1 {
        findings.add(Invariant::I12, id, format!("{} losses exceed {most}", last.losses), at);
    }
    let count = |cause: Cause| job.steps().filter(|(_, step)| step.cause == cause).count();
    if last.losses as usize > count(Cause::WorkerLost) + count(Cause::Interrupted) {
        let message = format!("{} losses counted, which are not in the history", last.losses);
        let invariant = if count(Cause::Preempted) > 0 { Invariant::I23 } else { Invariant::I12 };
        findings.add(invariant, id, message, at);
    }
    let Some(steps) = counted_causes(facts, job) else { return };
    let count = |cause: Cause| steps.iter().filter(|other| **other == cause).count();
    let recorded = count(Cause::WorkerLost).saturating_sub(count(Cause::WorkerReturned));
    if recorded > last.losses as usize {
        let message = format!("{} losses counted, but {recorded} in the history", last.losses);
        findings.add(Invariant::I12, id, message, at);
    }
}

/// I12: the delay before a retry.
fn backoffs(facts: &Facts<'_>, id: JobId, job: &JobFacts<'_>, findings: &mut Findings) {
    let Some(spec) = job.spec else { return };
    let mut due: Option<(usize, Timestamp)> = None;
    for (index, row) in &job.rows {
        for (place, step) in row.steps.iter().enumerate() {
            if step.cause == Cause::BackoffEnded
                && let Some((from, due)) = due.filter(|(_, due)| step.at < *due)
            {
                let message = format!("continued at {}, before the end of its backoff at {due}", step.at);
                findings.add(Invariant::I12, id, message, [from, *index]);
            }
            if step.to != JobStatus::Retrying {
                continue;
            }
            let failures = match step.cause {
                Cause::RunFailed | Cause::TimedOut | Cause::ReplicaExited => Some(row.run_failures),
                Cause::StartFailed => Some(row.start_failures),
                _ => None,
            };
            let bounds = failures.map(|failures| (failures, backoff_bounds(&spec.retry.backoff, failures)));
            // The row contains the end of the backoff only while the job waits.
            let waits = place + 1 == row.steps.len();
            if !facts.exact() || !waits {
                // Otherwise the shortest possible delay is the lower bound.
                due = bounds.map(|(_, (low, _))| (*index, step.at + low));
                continue;
            }
            due = Some((*index, row.due_at));
            let Some((failures, (low, high))) = bounds else { continue };
            let wait = row.due_at.since(step.at);
            if wait < low || wait > high {
                let message =
                    format!("delay of {wait} after failure {failures}, not between {low} and {high}");
                findings.add(Invariant::I12, id, message, [*index]);
            }
        }
    }
}

fn backoff_bounds(policy: &Backoff, failures: u32) -> (Duration, Duration) {
    let exponent = f64::from(failures.saturating_sub(1).min(1_000));
    let most = policy.max.as_millis() as f64;
    let plain = (policy.initial.as_millis() as f64 * policy.factor.powf(exponent)).min(most);
    let low = (plain * (1.0 - policy.jitter) - 1.0).max(0.0);
    let high = plain * (1.0 + policy.jitter) + 1.0;
    (Duration::from_millis(low as u64), Duration::from_millis(high.ceil() as u64))
}

/// Maximum time until a stop that a worker may not have received is repeated.
const REMINDED_AFTER: Duration = Duration::from_secs(30);

/// I13: after a cancellation no execution is assigned. An execution that had not started does not run. A running
/// execution is stopped once no fault prevents it.
fn cancels(facts: &Facts<'_>, id: JobId, job: &JobFacts<'_>, findings: &mut Findings) {
    let Some((asked, _)) = job.rows.iter().find(|(_, row)| row.cancel_requested) else { return };
    let after = job.executions.iter().filter_map(|id| facts.committed(*id)).find(|at| at > asked);
    if let Some(after) = after {
        findings.add(Invariant::I13, id, "assigned after its cancellation", [*asked, after]);
    }
    let (Some((_, calm)), Some(spec)) = (facts.calm, job.spec) else { return };
    let setup = &facts.history.setup;
    let asked_at = facts.at(*asked);
    let most = spec.grace + REMINDED_AFTER + setup.lease + setup.shard_lease + setup.tolerance;
    for (id, ran) in run_times_after(facts, job, asked_at.max(calm)) {
        if ran > most {
            let message = format!("ran for {ran} after its cancellation at {asked_at}");
            findings.add(Invariant::I13, id, message, [*asked]);
        }
    }
}

/// Returns how long each execution of a job really ran after `from`.
fn run_times_after(facts: &Facts<'_>, job: &JobFacts<'_>, from: Timestamp) -> Vec<(ExecutionId, Duration)> {
    let known = job.executions.iter().filter_map(|id| Some((*id, facts.executions.get(id)?)));
    let run_time = |(id, execution)| {
        let stretches = stretches(facts, id, execution);
        let ran = stretches.iter().map(|stretch| stretch.until.1.since(from.max(stretch.from.1)).as_millis());
        (id, Duration::from_millis(ran.sum()))
    };
    known.map(run_time).collect()
}

/// I13: a job ends by its completion deadline, if the deadline ends it. A running execution is stopped once no fault
/// prevents it.
fn completion(facts: &Facts<'_>, id: JobId, job: &JobFacts<'_>, findings: &mut Findings) {
    let Some(deadline) = job.ended_by_deadline(id) else { return };
    let (Some(last), Some(spec)) = (job.last(), job.spec) else { return };
    let end = job.steps().find(|(_, step)| step.to.is_final());
    match end {
        Some((index, step)) if step.at > deadline && !last.overdue => {
            let message = format!("ended at {}, but its completion deadline was {deadline}", step.at);
            findings.add(Invariant::I13, id, message, [index]);
        }
        // Ids contain only milliseconds.
        Some((index, step))
            if step.cause == Cause::FinishDeadlinePassed && step.at + Duration::from_millis(2) < deadline =>
        {
            let message = format!("ended at {}, before its completion deadline {deadline}", step.at);
            findings.add(Invariant::I13, id, message, [index]);
        }
        _ => {}
    }
    let Some((_, calm)) = facts.calm else { return };
    let setup = &facts.history.setup;
    let most = spec.grace + REMINDED_AFTER + setup.lease + setup.shard_lease + setup.tolerance;
    for (execution, ran) in run_times_after(facts, job, deadline.max(calm)) {
        if ran > most {
            let message = format!("ran for {ran} after its completion deadline {deadline}");
            findings.add(Invariant::I13, execution, message, job.rows.last().map(|(at, _)| *at));
        }
    }
}

/// I13: no task runs longer than its timeout allows.
fn lengths(facts: &Facts<'_>, id: ExecutionId, execution: &ExecutionFacts<'_>, findings: &mut Findings) {
    let spec = execution.last().and_then(|row| facts.jobs.get(&row.job)).and_then(|job| job.spec);
    let Some((spec, timeout)) = spec.and_then(|spec| Some((spec, spec.timeout?))) else { return };
    let ran: u64 =
        stretches(facts, id, execution).iter().map(|s| s.until.1.since(s.from.1).as_millis()).sum();
    let setup = &facts.history.setup;
    // A paused supervisor does not see a timeout; then the end of its lease is the limit.
    let slack = setup.lease + setup.tolerance;
    let most = timeout + spec.grace + slack;
    if ran > most.as_millis() && !is_exempt(spec) {
        let message = format!("ran for {}, with a timeout of {timeout}", Duration::from_millis(ran));
        findings.add(Invariant::I13, id, message, execution.steps.iter().map(|(at, ..)| *at));
    }
}

/// I13: no task times out early. Time in which it is frozen or suspended does not count.
fn timeouts(facts: &Facts<'_>, job: &JobFacts<'_>, findings: &mut Findings) {
    let Some(timeout) = job.spec.and_then(|spec| spec.timeout) else { return };
    // Clocks differ, and a real task reports its start only once it runs.
    let exact = Duration::from_millis(100 + timeout.as_millis() / 50);
    let slack = if facts.exact() { exact } else { facts.history.setup.tolerance };
    for (index, step) in job.steps().filter(|(_, step)| step.cause == Cause::TimedOut) {
        let number = step.execution.and_then(|number| usize::try_from(number).ok());
        let id = number.and_then(|number| job.executions.get(number.checked_sub(1)?));
        let Some((id, execution)) = id.and_then(|id| Some((*id, facts.executions.get(id)?))) else {
            continue;
        };
        let stretches = stretches(facts, id, execution);
        let ran = stretches.iter().map(|stretch| stretch.until.1.since(stretch.from.1).as_millis()).sum();
        let ran = Duration::from_millis(ran);
        if ran + slack < timeout {
            let message = format!("timed out after {ran}, with a timeout of {timeout}");
            let excerpt = execution.steps.iter().map(|(at, ..)| *at).chain([index]);
            findings.add(Invariant::I13, id, message, excerpt);
        }
    }
}

/// Whether a job is never frozen, so that it may run without a valid lease.
fn is_exempt(spec: &JobSpec) -> bool {
    spec.delivery == Delivery::AtMostOnce
}

/// I11: a job runs until it succeeds or its retries are exhausted.
fn least_once(facts: &Facts<'_>, id: JobId, job: &JobFacts<'_>, findings: &mut Findings) {
    let (Some(last), Some(spec)) = (job.last(), job.spec) else { return };
    let codes = &spec.retry;
    let picky = !codes.retry_exit_codes.is_empty() || !codes.final_exit_codes.is_empty();
    let judged = spec.delivery == Delivery::AtLeastOnce && facts.are_settled;
    let ended_by_deadline = last.overdue && job.ended_by_deadline(id).is_some();
    if !judged || picky || last.cancel_requested || ended_by_deadline {
        return;
    }
    let tried = last.run_failures > codes.max_retries
        || last.start_failures > codes.max_start_retries
        || last.losses > codes.max_lost;
    if last.status == JobStatus::Failed && !tried {
        let message = format!("failed after {} failures, with retries left", last.run_failures);
        findings.add(Invariant::I11, id, message, job.rows.last().map(|(at, _)| *at));
    }
}

/// I30: the result of a task is in the store at the end, accepted or stale.
fn reports(facts: &Facts<'_>, id: ExecutionId, execution: &ExecutionFacts<'_>, findings: &mut Findings) {
    if !facts.are_settled {
        return;
    }
    let ended = execution.steps.iter().find(|(.., step)| matches!(step, TaskStep::Ended { .. }));
    let Some((index, ..)) = ended else { return };
    let is_stray = execution.rows.is_empty();
    if is_stray && execution.starts().all(|start| facts.may_be_of_a_lost_commit(start)) {
        return;
    }
    if execution.last().is_none_or(|row| !row.status.is_final()) {
        let rows: BTreeSet<usize> = execution.rows.iter().map(|(at, _)| *at).chain([*index]).collect();
        findings.add(Invariant::I30, id, "its task ended, but the store has no result", rows);
    }
}
