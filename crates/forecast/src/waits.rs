//! Waiting jobs and overloads.
//!
//! Jobs of one queue with the same constraints form a group. A group is overloaded while a job of the group has waited
//! longer than `patience`. During an overload, the engine is asked repeatedly for the waiting reasons of the oldest job.
//!
//! # Cost
//! Each start and end of a wait costs O(log n) in the waiting jobs. Each overloaded group asks the engine once per
//! `ask_every`.

use std::collections::{BTreeMap, BTreeSet};

use model::why::{FailedFilter, OpenEnum, Reason, WorkerMismatch};
use model::{Duration, JobId, Timestamp};

use crate::answer::{Cause, Group, WaitingReason, Window, WorstRun};

/// Waiting jobs by group.
#[derive(Debug)]
pub(crate) struct Waits {
    patience: Duration,
    /// Interval between two questions about a group.
    ask_every: Duration,
    names: BTreeMap<Group, usize>,
    groups: Vec<JobGroup>,
    /// Next checks, by time and group.
    checks: BTreeSet<(Timestamp, usize)>,
    waiting: u64,
    windows: Vec<Window>,
}

/// Waiting jobs of one group.
#[derive(Debug)]
struct JobGroup {
    group: Group,
    waiting: BTreeSet<(Timestamp, JobId)>,
    look_at: Option<Timestamp>,
    asked_at: Option<Timestamp>,
    /// Index of the open window, while the group is overloaded.
    open: Option<usize>,
    /// Index of the last window of the group.
    last: Option<usize>,
}

/// A job whose waiting reasons are requested from the engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    pub(crate) group: usize,
    pub(crate) job: JobId,
}

impl Waits {
    pub(crate) fn new(patience: Duration, ask_every: Duration) -> Self {
        Self {
            patience,
            ask_every,
            names: BTreeMap::new(),
            groups: Vec::new(),
            checks: BTreeSet::new(),
            waiting: 0,
            windows: Vec::new(),
        }
    }

    /// Returns the number of a group, and registers a new group.
    pub(crate) fn group(&mut self, group: Group) -> usize {
        if let Some(&known) = self.names.get(&group) {
            return known;
        }
        let place = self.groups.len();
        self.names.insert(group.clone(), place);
        self.groups.push(JobGroup {
            group,
            waiting: BTreeSet::new(),
            look_at: None,
            asked_at: None,
            open: None,
            last: None,
        });
        place
    }

    pub(crate) fn count(&self) -> u64 {
        self.waiting
    }

    pub(crate) fn enter(&mut self, now: Timestamp, group: usize, job: JobId) {
        let Some(line) = self.groups.get_mut(group) else { return };
        line.waiting.insert((now, job));
        self.waiting += 1;
        if let Some(window) = line.open.and_then(|open| self.windows.get_mut(open)) {
            window.waiting_most = window.waiting_most.max(line.waiting.len() as u64);
        }
        self.schedule_check(group);
    }

    /// Ends the wait of a job. `who` returns its namespace and name; it is called only if the job waited too long.
    pub(crate) fn leave(
        &mut self,
        now: Timestamp,
        group: usize,
        (since, job): (Timestamp, JobId),
        who: impl FnOnce() -> (String, String),
    ) {
        let patience = self.patience;
        let Some(line) = self.groups.get_mut(group).filter(|l| l.waiting.contains(&(since, job))) else {
            return;
        };
        if now.since(since) > patience {
            let place = line.begin(&mut self.windows, since, now);
            note_wait(&mut self.windows[place], since, now, who);
        }
        line.waiting.remove(&(since, job));
        self.waiting -= 1;
        line.close_if_ended(&mut self.windows, now, patience);
        self.schedule_check(group);
    }

    /// Returns the time of the next check.
    pub(crate) fn next_check(&self) -> Option<Timestamp> {
        self.checks.first().map(|&(at, _)| at)
    }

    /// Returns the oldest job of an overloaded group that is due for a question.
    pub(crate) fn next_question(&mut self, now: Timestamp) -> Option<Question> {
        let &(_, group) = self.checks.first().filter(|&&(at, _)| at <= now)?;
        self.checks.pop_first();
        let line = self.groups.get_mut(group)?;
        line.look_at = None;
        line.asked_at = Some(now);
        let question = line.waiting.first().map(|&(since, job)| (since, Question { group, job }));
        if let Some((since, _)) = question {
            line.begin(&mut self.windows, since, now);
        }
        self.schedule_check(group);
        question.map(|(_, question)| question)
    }

    /// Records the engine's response to a question.
    pub(crate) fn record_reasons(&mut self, group: usize, reasons: &[OpenEnum<Reason>]) {
        let window = self.groups.get(group).and_then(|line| line.open);
        let Some(window) = window.and_then(|open| self.windows.get_mut(open)) else { return };
        for (cause, reason) in reasons.iter().filter_map(OpenEnum::known).flat_map(causes) {
            match window.why.iter_mut().find(|holds| holds.cause == cause) {
                Some(known) => known.times += 1,
                None => window.why.push(WaitingReason { cause, times: 1, reason: reason.clone() }),
            }
        }
    }

    /// Returns all windows at the end of the range; `who` returns namespace and name of a job that is still waiting.
    pub(crate) fn finish(
        mut self,
        until: Timestamp,
        mut who: impl FnMut(JobId) -> (String, String),
    ) -> Vec<Window> {
        for line in &mut self.groups {
            for &(since, job) in &line.waiting.clone() {
                if until.since(since) > self.patience {
                    let place = line.begin(&mut self.windows, since, until);
                    self.windows[place].goes_on = true;
                    note_wait(&mut self.windows[place], since, until, || who(job));
                }
            }
        }
        for window in &mut self.windows {
            window.why.sort_by_key(|holds| std::cmp::Reverse(holds.times));
        }
        self.windows.sort_by(|a, b| (a.from, &a.group).cmp(&(b.from, &b.group)));
        self.windows
    }

    fn schedule_check(&mut self, group: usize) {
        let Some(line) = self.groups.get_mut(group) else { return };
        let wanted = line.waiting.first().map(|&(since, _)| {
            // A wait of exactly `patience` is not too long.
            let overdue = since + self.patience + Duration::from_millis(1);
            line.asked_at.map_or(overdue, |asked| overdue.max(asked + self.ask_every))
        });
        if line.look_at != wanted {
            line.look_at.map(|before| self.checks.remove(&(before, group)));
            wanted.map(|at| self.checks.insert((at, group)));
            line.look_at = wanted;
        }
    }
}

impl JobGroup {
    /// Opens the window of an overload, which starts with the wait of its first job. A window that overlaps the last one
    /// extends the last one.
    fn begin(&mut self, windows: &mut Vec<Window>, since: Timestamp, now: Timestamp) -> usize {
        if let Some(open) = self.open {
            // The job with the longest wait is not always the first one to start.
            windows[open].from = windows[open].from.min(since);
            return open;
        }
        let place = match self.last.filter(|&last| windows[last].until >= since) {
            Some(last) => last,
            None => {
                windows.push(Window {
                    from: since,
                    until: now,
                    goes_on: false,
                    group: self.group.clone(),
                    jobs: 0,
                    waiting_most: 0,
                    longest: WorstRun {
                        namespace: String::new(),
                        name: String::new(),
                        due: since,
                        by: Duration::ZERO,
                    },
                    why: Vec::new(),
                });
                windows.len() - 1
            }
        };
        windows[place].waiting_most = windows[place].waiting_most.max(self.waiting.len() as u64);
        (self.open, self.last) = (Some(place), Some(place));
        place
    }

    fn close_if_ended(&mut self, windows: &mut [Window], now: Timestamp, patience: Duration) {
        let Some(open) = self.open else { return };
        windows[open].until = now;
        if self.waiting.first().is_none_or(|&(since, _)| now.since(since) <= patience) {
            self.open = None;
        }
    }
}

fn note_wait(window: &mut Window, since: Timestamp, now: Timestamp, who: impl FnOnce() -> (String, String)) {
    window.jobs += 1;
    window.until = window.until.max(now);
    let by = now.since(since);
    if by > window.longest.by {
        let (namespace, name) = who();
        window.longest = WorstRun { namespace, name, due: since, by };
    }
}

/// Returns the categories of a reason, with the reason.
fn causes(reason: &Reason) -> Vec<(Cause, &Reason)> {
    let causes = match reason {
        Reason::QueuePaused { .. } => vec![Cause::QueuePaused],
        Reason::QueueConcurrency { .. } => vec![Cause::QueueConcurrency],
        Reason::QueueRate { .. } => vec![Cause::QueueRate],
        Reason::ConcurrencyKey { .. } => vec![Cause::ConcurrencyKey],
        Reason::NamespaceQuota { .. } => vec![Cause::NamespaceQuota],
        Reason::RequiredServices { services } => {
            services.iter().map(|one| Cause::Service(one.service.clone())).collect()
        }
        Reason::NoWorkers => vec![Cause::NoWorker],
        Reason::NoEligibleWorker { workers, .. } => scarce(workers).into_iter().collect(),
        // A job that starts at this moment waited for other jobs.
        Reason::QueuedBehind { .. } | Reason::Placeable { .. } => vec![Cause::Other],
        _ => Vec::new(),
    };
    causes.into_iter().map(|cause| (cause, reason)).collect()
}

/// Returns the scarce resources of the workers that could run the job if they were idle.
fn scarce(workers: &[WorkerMismatch]) -> BTreeSet<Cause> {
    let passing = |filter: &OpenEnum<FailedFilter>| match filter.known()? {
        FailedFilter::Cpu { needed, capacity, .. } => (needed <= capacity).then_some(Cause::Cpu),
        FailedFilter::Memory { needed, capacity, .. } => (needed <= capacity).then_some(Cause::Memory),
        FailedFilter::Custom { resource, needed, capacity, .. } => {
            (needed <= capacity).then(|| Cause::Resource(resource.clone()))
        }
        FailedFilter::Slots { slots } => (*slots > 0).then_some(Cause::Slots),
        FailedFilter::Reserved { .. } | FailedFilter::ReservedForJob { .. } => Some(Cause::Reserved),
        FailedFilter::Declined => Some(Cause::Other),
        _ => None,
    };
    let candidates = workers
        .iter()
        .filter_map(|worker| worker.failed_filters.iter().map(passing).collect::<Option<BTreeSet<Cause>>>());
    let lacking: BTreeSet<Cause> = candidates.flatten().collect();
    if lacking.is_empty() { BTreeSet::from([Cause::NoWorker]) } else { lacking }
}
