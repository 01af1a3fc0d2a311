//! Checks of jobs and requests: every accepted job exists, once, with a complete history.
//!
//! - [`requests`]: what was acknowledged is committed, and not lost (I1, I6); a key has one job (I2).
//! - [`check`]: each job was requested (I3), its history is one chain of legal transitions (I4, I5), and its
//!   executions have growing numbers and fences (I10).
//! - `upstream`: a job starts after its upstream jobs have ended as required, and is cancelled otherwise (I16).
//! - [`Order`]: engine time and epochs from one commit to the next (I4, I10, I16, I27).
//!
//! An answer that says that the outcome is unknown proves nothing. If the store may have lost the commits
//! between a request and its answer, a missing row is no violation. A job is matched with its request by the
//! label [`TAG`], or by its name.

use std::collections::{BTreeMap, BTreeSet};

use model::{Cause, Duration, JobId, JobSpec, JobStatus, Timestamp, lifecycle};

use super::facts::{Facts, JobFacts, RequestFacts};
use super::memory::{Memory, Tag};
use super::{Findings, Invariant, checkpoints};
use crate::history::{Answer, Ask, Commit};

/// Checks the answers to clients.
pub(super) fn requests(facts: &Facts<'_>, memory: &mut Memory, findings: &mut Findings) {
    let lost = lost_jobs(facts);
    accepted(facts, memory, &lost, findings);
    keys(facts, &lost, memory, findings);
}

/// Checks the lifecycles of jobs and executions.
pub(super) fn check(facts: &Facts<'_>, memory: &mut Memory, findings: &mut Findings) {
    invented(facts, memory, findings);
    for (&id, job) in &facts.jobs {
        chain(id, job, findings);
        steps(id, job, findings);
        versions(facts, id, job, findings);
        checkpoints::check(facts, id, job, findings);
        upstream(facts, id, job, findings);
    }
    executions(facts, findings);
    visible(facts, findings);
}

/// I1, and I6 for answers: what an answer acknowledges was committed before, and is not lost.
fn accepted(facts: &Facts<'_>, memory: &Memory, lost: &BTreeSet<JobId>, findings: &mut Findings) {
    for request in facts.requests.values() {
        for (index, answer) in &request.answers {
            let asked = request.asked_for(*index);
            match answer {
                Answer::Submitted { job } => {
                    let row = facts.jobs.get(job).and_then(|job| job.rows.first()).map(|(at, _)| *at);
                    // The events of this job were dropped by an earlier slice.
                    let row = row.or_else(|| memory.jobs.contains(job).then_some(0));
                    told(facts, findings, job, row, (asked, *index));
                }
                Answer::Applied { schedule } => {
                    let row = facts.schedules.get(schedule).and_then(|known| known.rows.first());
                    told(facts, findings, schedule, row.map(|(at, ..)| *at), (asked, *index));
                }
                Answer::Started { run } => {
                    let row = facts.workflow_runs.get(run).and_then(|known| known.rows.first());
                    told(facts, findings, run, row.map(|(at, _)| *at), (asked, *index));
                }
                Answer::Added { first, count } => {
                    let Some((_, Ask::Add(added))) = request.asks.first() else { continue };
                    let run = facts.workflow_runs.get(&added.run);
                    let rows = run.into_iter().flat_map(|run| &run.added);
                    let row = rows.into_iter().find(|(_, row)| *row == (added, *first, *count));
                    told(facts, findings, added.run, row.map(|(at, _)| *at), (asked, *index));
                }
                Answer::Saved { version } => {
                    let Some((_, Ask::Save { execution, data })) = request.asks.first() else { continue };
                    let row = facts.executions.get(execution).and_then(|known| known.rows.first());
                    let Some(job) = row.map(|(_, row)| row.job) else { continue };
                    let saved = facts.jobs.get(&job).into_iter().flat_map(|job| &job.saved);
                    let row = saved.into_iter().find(|(_, known, of)| (known, of) == (version, data));
                    told(facts, findings, job, row.map(|(at, ..)| *at), (asked, *index));
                }
                Answer::ServiceApplied { service } => {
                    let row = facts.services.get(service).copied();
                    told(facts, findings, service, row, (asked, *index));
                }
                Answer::Done => cancelled(facts, findings, request, (asked, *index)),
                Answer::Refused { .. } | Answer::Unknown => {}
            }
        }
    }
    for (index, (job, found)) in &facts.reads {
        if !found && !lost.contains(job) {
            findings.add(Invariant::I1, job, "accepted, but a read did not find it", [*index]);
        }
    }
}

/// Returns jobs that were accepted in lost commits and lost with them.
fn lost_jobs(facts: &Facts<'_>) -> BTreeSet<JobId> {
    if facts.losses() == 0 {
        return BTreeSet::new();
    }
    let answers = facts.requests.values().flat_map(|request| {
        request.answers.iter().map(|(index, answer)| (request.asked_for(*index), *index, *answer))
    });
    let lost = answers.filter_map(|(asked, index, answer)| match answer {
        Answer::Submitted { job } if facts.may_be_lost(asked, index) => Some(*job),
        _ => None,
    });
    lost.filter(|job| !facts.jobs.contains_key(job)).collect()
}

fn told(
    facts: &Facts<'_>,
    findings: &mut Findings,
    subject: impl std::fmt::Display,
    row: Option<usize>,
    (asked, answer): (usize, usize),
) {
    match row {
        None if facts.may_be_lost(asked, answer) => {}
        None => findings.add(Invariant::I1, subject, "accepted, but not in the store", [answer]),
        // After a loss the job may have been created again.
        Some(row) if row > answer && facts.exact() && !facts.may_be_lost(asked, answer) => {
            findings.add(Invariant::I6, subject, "acknowledged before its commit", [answer, row]);
        }
        Some(_) => {}
    }
}

fn cancelled(
    facts: &Facts<'_>,
    findings: &mut Findings,
    request: &RequestFacts<'_>,
    (asked, answer): (usize, usize),
) {
    let Some((_, Ask::Cancel { job })) = request.asks.first() else { return };
    let Some(known) = facts.jobs.get(job) else { return };
    let row = known.rows.iter().find(|(_, row)| row.cancel_requested);
    match row {
        None if facts.may_be_lost(asked, answer) => {}
        None => findings.add(
            Invariant::I1,
            job,
            "the cancellation was acknowledged, but is not in the store",
            [answer],
        ),
        Some((row, _)) if *row > answer && facts.exact() && !facts.may_be_lost(asked, answer) => {
            findings.add(
                Invariant::I6,
                job,
                "the cancellation was acknowledged before its commit",
                [answer, *row],
            );
        }
        Some(_) => {}
    }
}

/// I16: a job waits until its upstream jobs have ended as required, and is cancelled only if one ended otherwise.
fn upstream(facts: &Facts<'_>, id: JobId, job: &JobFacts<'_>, findings: &mut Findings) {
    let Some(spec) = job.spec.filter(|spec| !spec.after.is_empty() && facts.losses() == 0) else { return };
    let end_of = |upstream: &JobFacts<'_>| {
        let end = upstream.rows.iter().find(|(_, row)| row.status.is_final());
        end.map(|(index, row)| (*index, row.status))
    };
    let released = job.steps().find(|(_, step)| matches!(step.to, JobStatus::Waiting | JobStatus::Running));
    let cancelled = job.steps().find(|(_, step)| step.cause == Cause::DependencyNeverSatisfied);
    let mut is_satisfied = true;
    for of in &spec.after {
        // An earlier slice may have dropped the upstream job.
        let Some(upstream) = facts.jobs.get(&of.job) else {
            is_satisfied = false;
            continue;
        };
        let end = end_of(upstream);
        if let Some((index, _)) = released
            && !end.is_some_and(|(at, status)| at <= index && of.condition.is_satisfied_by(status))
        {
            let message = format!("released, but {} had not ended as required: {}", of.job, of.condition);
            findings.add(Invariant::I16, id, message, [index].into_iter().chain(end.map(|(at, _)| at)));
        }
        let by = cancelled.map_or(usize::MAX, |(index, _)| index);
        is_satisfied &= end.is_none_or(|(at, status)| at > by || of.condition.is_satisfied_by(status));
    }
    if let Some((index, _)) = cancelled.filter(|_| is_satisfied) {
        findings.add(
            Invariant::I16,
            id,
            "cancelled, but no upstream job ended otherwise than required",
            [index],
        );
    }
}

/// I2: one idempotency key creates one job.
fn keys(facts: &Facts<'_>, lost: &BTreeSet<JobId>, memory: &mut Memory, findings: &mut Findings) {
    for request in facts.requests.values() {
        let Some((_, Ask::Submit { key: Some(key), .. })) = request.asks.first() else { continue };
        for (index, answer) in &request.answers {
            let Answer::Submitted { job } = answer else { continue };
            if lost.contains(job) {
                continue;
            }
            match memory.keys.get(key.as_str()) {
                None => {
                    memory.keys.insert(key.as_str().into(), (*job, *index));
                }
                Some((known, _)) if known == job => {}
                Some(&(known, at)) => {
                    let message = format!("the key created {known} and {job}");
                    findings.add(Invariant::I2, format!("key {key}"), message, [at, *index]);
                }
            }
        }
    }
}

/// Records which jobs were requested, and when first.
pub(super) fn note_asks(facts: &Facts<'_>, memory: &mut Memory) {
    for request in facts.requests.values() {
        let Some((index, Ask::Submit { tag, key })) = request.asks.first() else { continue };
        let asked_at = facts.at(*index);
        match memory.tags.get_mut(tag.as_str()) {
            Some(known) => known.asked_at = known.asked_at.min(asked_at),
            None => {
                let tag_of = Tag { asked_at, has_key: key.is_some(), made: None };
                memory.tags.insert(tag.as_str().into(), tag_of);
            }
        }
    }
}

/// Label that identifies the request of a job when many jobs have the same name.
pub(crate) const TAG: &str = "request";

fn tag_of(spec: &JobSpec) -> &str {
    spec.labels.get(TAG).unwrap_or(&spec.name)
}

/// I2 and I3: each job was requested, and no request created two jobs.
fn invented(facts: &Facts<'_>, memory: &mut Memory, findings: &mut Findings) {
    for (&id, job) in &facts.jobs {
        let Some((index, row)) = job.rows.first() else { continue };
        if let Some(origin) = job.origin {
            let known = facts.schedules.get(&origin.schedule).and_then(|schedule| schedule.rows.first());
            if known.is_none_or(|(made, ..)| made > index) {
                findings.add(Invariant::I3, id, "its schedule does not exist", [*index]);
            }
            continue;
        }
        if let Some(step) = job.step {
            let known = facts.workflow_runs.get(&step.run).and_then(|run| run.rows.first());
            // A feed contains jobs only.
            if facts.exact() && known.is_none_or(|(made, _)| made > index) {
                findings.add(Invariant::I3, id, "its run does not exist", [*index]);
            }
            continue;
        }
        if let Some(replica) = job.replica {
            if facts.exact() && facts.services.get(&replica.service).is_none_or(|made| made > index) {
                findings.add(Invariant::I3, id, "its service does not exist", [*index]);
            }
            continue;
        }
        let Some(tag) = row.spec.as_deref().map(tag_of) else { continue };
        let Some(asked) = memory.tags.get_mut(tag).filter(|asked| asked.asked_at <= facts.at(*index)) else {
            findings.add(Invariant::I3, id, "no client requested it", [*index]);
            continue;
        };
        if let Some((other, first)) = asked.made.replace((id, *index)) {
            let invariant = if asked.has_key { Invariant::I2 } else { Invariant::I3 };
            let message = format!("its request had already created {other}");
            findings.add(invariant, id, message, [first, *index]);
        }
    }
}

/// I4: the history is one chain from creation to the current status.
fn chain(id: JobId, job: &JobFacts<'_>, findings: &mut Findings) {
    let mut last: Option<(usize, &model::record::HistoryEntry)> = None;
    for (index, row) in &job.rows {
        let first = last.is_none() && job.rows.first().is_some_and(|(at, _)| at == index);
        if row.new != first {
            let message = if row.new { "a later row is new" } else { "the first row is not new" };
            findings.add(Invariant::I4, id, message, job.indices().take(1).chain([*index]));
        }
        for step in &row.steps {
            let from = last.map(|(_, last)| last.to);
            if step.from != from {
                let message = format!("a transition to {from:?} is followed by one from {:?}", step.from);
                findings.add(Invariant::I4, id, message, last.map(|(at, _)| at).into_iter().chain([*index]));
            }
            if let Some((before, last)) = last.filter(|(_, last)| last.at > step.at) {
                let message = format!("time runs backwards from {} to {}", last.at, step.at);
                findings.add(Invariant::I4, id, message, [before, *index]);
            }
            last = Some((*index, step));
        }
        if last.is_none_or(|(_, last)| last.to != row.status) {
            let message = format!("the status is {}, but the history ends in another status", row.status);
            findings.add(Invariant::I4, id, message, [*index]);
        }
    }
}

/// I5: only legal transitions, and none after the end.
fn steps(id: JobId, job: &JobFacts<'_>, findings: &mut Findings) {
    for (index, step) in job.steps() {
        if !lifecycle::is_legal(step.from, step.to, step.cause) {
            let message = format!("illegal transition from {:?} to {}: {}", step.from, step.to, step.cause);
            findings.add(Invariant::I5, id, message, [index]);
        }
    }
    let ended = job.rows.iter().position(|(_, row)| row.status.is_final());
    if let Some(next) = ended.and_then(|ended| job.rows.get(ended + 1)) {
        findings.add(Invariant::I5, id, "changed after its end", job.indices().take(1).chain([next.0]));
    }
}

/// I1 and I5: versions grow, and a requested cancellation is not lost.
fn versions(facts: &Facts<'_>, id: JobId, job: &JobFacts<'_>, findings: &mut Findings) {
    for pair in job.rows.windows(2) {
        let [(before, old), (after, new)] = pair else { continue };
        if facts.exact() && new.version <= old.version {
            findings.add(Invariant::I5, id, "the version does not grow", [*before, *after]);
        }
        if old.cancel_requested && !new.cancel_requested {
            findings.add(Invariant::I1, id, "the requested cancellation was lost", [*before, *after]);
        }
    }
}

/// I4, I5 and I10 for executions.
fn executions(facts: &Facts<'_>, findings: &mut Findings) {
    for (id, execution) in &facts.executions {
        let rows = &execution.rows;
        let Some((first, row)) = rows.first() else { continue };
        if !row.new || rows.iter().skip(1).any(|(_, row)| row.new) {
            findings.add(Invariant::I4, id, "not exactly one row is new", rows.iter().map(|(at, _)| *at));
        }
        if !facts.jobs.contains_key(&row.job) {
            findings.add(Invariant::I4, id, format!("job {} is not in the store", row.job), [*first]);
        }
        for pair in rows.windows(2) {
            let [(before, old), (after, new)] = pair else { continue };
            if old.status.is_final() {
                findings.add(Invariant::I5, id, "changed after its end", [*before, *after]);
            }
            if (old.fence, old.worker, old.number) != (new.fence, new.worker, new.number) {
                findings.add(Invariant::I10, id, "fence, worker or number changed", [*before, *after]);
            }
        }
    }
    for (id, job) in &facts.jobs {
        let mut newest: Option<(usize, u64, u32)> = None;
        for execution in job.executions.iter().filter_map(|id| facts.executions.get(id)) {
            let Some((index, row)) = execution.rows.first() else { continue };
            let (number, fence) = newest.map_or((0, 0), |(_, fence, number)| (number, fence));
            let excerpt = newest.map(|(at, ..)| at).into_iter().chain([*index]);
            if row.number != number + 1 {
                let message = format!("execution {} follows execution {number}", row.number);
                findings.add(Invariant::I5, id, message, excerpt);
            } else if row.fence.0 <= fence {
                let message = format!("fence {} follows fence {fence}", row.fence);
                findings.add(Invariant::I10, id, message, excerpt);
            }
            newest = Some((*index, row.fence.0, row.number));
        }
        if job.last().is_some_and(|row| row.executions as usize != job.executions.len()) {
            let message = format!("the store contains {} executions", job.executions.len());
            findings.add(Invariant::I4, id, message, job.rows.last().map(|(at, _)| *at));
        }
    }
}

/// Checks between consecutive commits.
#[derive(Debug, Default)]
pub(super) struct Order {
    owners: BTreeMap<u64, (u32, usize)>,
    newest: Option<(u64, usize)>,
    last: Option<(Timestamp, usize)>,
    /// The newest epoch, and how far engine time was ahead of the clock at its start.
    began: Option<(u64, Duration)>,
    /// Whether a leap was reported.
    leapt: bool,
}

impl Order {
    pub(super) fn take(&mut self, facts: &Facts<'_>, index: usize, commit: &Commit, findings: &mut Findings) {
        self.times(index, commit, findings);
        self.leaps(index, commit, findings);
        if facts.exact() {
            self.epochs(index, commit, findings);
        }
    }

    /// I4: engine time never runs backwards.
    fn times(&mut self, index: usize, commit: &Commit, findings: &mut Findings) {
        if let Some((before, at)) = self.last.filter(|(before, _)| *before > commit.now) {
            let message = format!("engine time runs backwards from {before} to {}", commit.now);
            findings.add(Invariant::I4, format!("epoch {}", commit.epoch.0), message, [at, index]);
        }
        self.last = Some((commit.now, index));
    }

    /// I16: an owner whose clock was right at its start accepts no leap beyond the limit.
    fn leaps(&mut self, index: usize, commit: &Commit, findings: &mut Findings) {
        let ahead = commit.now.since(commit.decided_at);
        let began = match self.began {
            Some((epoch, ahead)) if epoch == commit.epoch.0 => ahead,
            _ => self.began.insert((commit.epoch.0, ahead)).1,
        };
        // The engine accepts the same leap again over an hour.
        let most = engine::LEAP_MAX + engine::LEAP_MAX;
        if began == Duration::ZERO && ahead > most && !self.leapt {
            self.leapt = true;
            let message = format!("engine time is {ahead} ahead of the clock");
            findings.add(Invariant::I16, format!("epoch {}", commit.epoch.0), message, [index]);
        }
    }

    /// I10 and I27: no commit has an old epoch, and each epoch has one owner.
    fn epochs(&mut self, index: usize, commit: &Commit, findings: &mut Findings) {
        let epoch = commit.epoch.0;
        if let Some((before, at)) = self.newest.filter(|(before, _)| *before > epoch) {
            let message = format!("a commit of epoch {epoch} follows one of epoch {before}");
            findings.add(Invariant::I10, format!("epoch {epoch}"), message, [at, index]);
        }
        self.newest = self.newest.max(Some((epoch, index)));
        let (server, at) = *self.owners.entry(epoch).or_insert((commit.server, index));
        if server != commit.server {
            let message = format!("servers {server} and {} commit in one epoch", commit.server);
            findings.add(Invariant::I27, format!("epoch {epoch}"), message, [at, index]);
        }
    }
}

/// I6 for workers: an assignment arrives, and a task starts, after the commit.
fn visible(facts: &Facts<'_>, findings: &mut Findings) {
    for (id, execution) in &facts.executions {
        let Some(seen) = execution.heard.first().copied().into_iter().chain(execution.starts()).min() else {
            continue;
        };
        match facts.committed(*id) {
            Some(row) if row < seen || !facts.exact() => {}
            None if facts.may_be_of_a_lost_commit(seen) => {}
            None if facts.may_have_waited_since_a_loss(seen) => {}
            row => {
                let message = match row {
                    Some(_) => "visible to a worker before its commit",
                    None => "visible to a worker, but never committed",
                };
                findings.add(Invariant::I6, id, message, row.into_iter().chain([seen]));
            }
        }
    }
}
