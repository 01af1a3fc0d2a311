//! An index of a history: all events about each object, in order. Every check reads a history through it;
//! building it is linear in the number of events.
//!
//! [`Facts::of`] builds the index in one pass. Each object has a struct of its own ([`JobFacts`],
//! [`RunFacts`], [`ScheduleFacts`] …) that borrows the events, with their indexes in the history; a finding
//! names these indexes.
//!
//! The last methods of [`Facts`] answer what a check may demand: whether commits between two events may be
//! lost, whether the history has settled, and whether it contains the commits themselves or only the feed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foldhash::fast::FixedState;
use indexmap::IndexMap;
use model::firing::{FiringCause, FiringOutcome, LedgerRecord, Origin, Work, finish_deadline};
use model::id::Epoch;
use model::record::HistoryEntry;
use model::run::{RunCause, RunTrigger, StepOrigin};
use model::service::ReplicaOrigin;
use model::spec::FinishAction;
use model::{
    BackfillId, Cause, Duration, ExecutionId, ExecutionStatus, JobId, JobSpec, RunId, ScheduleId, ServiceId,
    StepStatus, Timestamp, WorkerId, WorkflowSpec,
};

use crate::history::{
    Added, Answer, Ask, Commit, ExecutionRow, History, JobRow, Row, RunRow, ScheduleRow, StepRow, StoreView,
    TaskStep, What,
};

/// Iterates in the order of first insertion.
type Map<K, V> = IndexMap<K, V, FixedState>;

/// An event's index in the history, and a value from the event.
pub(super) type At<T> = (usize, T);

#[derive(Debug, Default)]
pub(super) struct JobFacts<'a> {
    pub(super) rows: Vec<At<&'a JobRow>>,
    /// The newest spec.
    pub(super) spec: Option<&'a Arc<JobSpec>>,
    pub(super) origin: Option<&'a Origin>,
    pub(super) step: Option<&'a StepOrigin>,
    pub(super) replica: Option<&'a ReplicaOrigin>,
    /// Ordered by their numbers.
    pub(super) executions: Vec<ExecutionId>,
    /// Event index, version and content of each accepted checkpoint.
    pub(super) saved: Vec<(usize, u64, u64)>,
}

/// Maximum time until a leader notices that a full store has space again: it probes every second.
const HOLD_SLACK: Duration = Duration::from_secs(10);

impl<'a> JobFacts<'a> {
    pub(super) fn last(&self) -> Option<&'a JobRow> {
        self.rows.last().map(|(_, row)| *row)
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = At<&'a HistoryEntry>> {
        self.rows.iter().flat_map(|(index, row)| row.steps.iter().map(move |step| (*index, step)))
    }

    /// Returns the completion deadline of a job that the deadline ends, not only reports.
    pub(super) fn ended_by_deadline(&self, id: JobId) -> Option<Timestamp> {
        let spec = self.spec?;
        let finish_by = spec.finish_by.filter(|by| by.action != FinishAction::Report)?;
        // Ids contain only milliseconds.
        let deadline = finish_deadline(finish_by, self.origin, spec.run_at, id.created_at());
        Some(deadline + Duration::from_millis(1))
    }

    pub(super) fn indices(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().map(|(index, _)| *index)
    }

    /// Whether the history records that this execution could not be started.
    pub(super) fn could_not_start(&self, number: u32) -> bool {
        self.steps().any(|(_, step)| step.cause == Cause::StartFailed && step.execution == Some(number))
    }
}

#[derive(Debug, Default)]
pub(super) struct ExecutionFacts<'a> {
    pub(super) rows: Vec<At<&'a ExecutionRow>>,
    pub(super) heard: Vec<usize>,
    /// The checkpoint that its task received.
    pub(super) found: Option<At<u64>>,
    /// Events of its tasks, with event index and time.
    pub(super) steps: Vec<(usize, Timestamp, &'a TaskStep)>,
}

impl<'a> ExecutionFacts<'a> {
    pub(super) fn last(&self) -> Option<&'a ExecutionRow> {
        self.rows.last().map(|(_, row)| *row)
    }

    pub(super) fn starts(&self) -> impl Iterator<Item = usize> {
        let started = |step: &TaskStep| matches!(step, TaskStep::Started { .. });
        self.steps.iter().filter(move |(.., step)| started(step)).map(|(index, ..)| *index)
    }
}

/// Everything about one run of a workflow.
#[derive(Debug, Default)]
pub(super) struct RunFacts<'a> {
    pub(super) rows: Vec<At<&'a RunRow>>,
    /// Event indexes at which its retries began.
    pub(super) tries: BTreeSet<usize>,
    pub(super) spec: Option<&'a WorkflowSpec>,
    /// The firing that created it; `None` for a called run.
    pub(super) origin: Option<&'a Origin>,
    pub(super) is_called: bool,
    pub(super) trigger: Option<&'a RunTrigger>,
    /// By step number and element number.
    pub(super) steps: BTreeMap<(u32, Option<u32>), Vec<At<&'a StepRow>>>,
    /// Elements that tasks added to its steps: number of the first element, and count.
    pub(super) added: Vec<At<(&'a Added, u32, u32)>>,
    /// Jobs and called runs of its steps.
    pub(super) work: BTreeMap<(u32, Option<u32>), Vec<Work>>,
}

impl<'a> RunFacts<'a> {
    /// Returns the last row, if the run has ended.
    pub(super) fn end(&self) -> Option<At<&'a RunRow>> {
        self.rows.last().copied().filter(|(_, row)| row.status.is_final())
    }

    pub(super) fn last(&self, step: u32, item: Option<u32>) -> Option<&'a StepRow> {
        self.steps.get(&(step, item))?.last().map(|(_, row)| *row)
    }

    /// Returns the rows that decided a step: one for each attempt of the run that requested it.
    pub(super) fn decided(&self, step: u32) -> Vec<At<&'a StepRow>> {
        let mut decided = Vec::new();
        let mut open = true;
        for &(index, row) in self.steps.get(&(step, None)).into_iter().flatten() {
            open |= self.tries.contains(&index);
            if open && row.status != StepStatus::Pending {
                decided.push((index, row));
                open = false;
            }
        }
        decided
    }

    /// Number of retries of the run that had begun up to the event at `index`.
    pub(super) fn tries_before(&self, index: usize) -> usize {
        self.tries.range(..=index).count()
    }

    /// Returns the status of a step or element after the event at `index`.
    pub(super) fn status_at(&self, step: u32, item: Option<u32>, index: usize) -> StepStatus {
        let rows = self.steps.get(&(step, item));
        let before = rows.into_iter().flatten().take_while(|(at, _)| *at <= index);
        before.last().map_or(StepStatus::Pending, |(_, row)| row.status)
    }
}

/// Unique key of a ledger entry within its schedule.
pub(super) type LedgerKey = (u64, Timestamp, FiringCause, Option<BackfillId>);

#[derive(Debug, Default)]
pub(super) struct ScheduleFacts<'a> {
    pub(super) rows: Vec<(usize, &'a ScheduleRow, &'a Commit)>,
    pub(super) removed: bool,
    /// Every version of every ledger entry, in order.
    pub(super) written: Vec<At<&'a LedgerRecord>>,
    /// The last version of every ledger entry.
    pub(super) ledger: BTreeMap<LedgerKey, At<&'a LedgerRecord>>,
    /// Its runs, in the order of creation.
    pub(super) runs: Vec<Work>,
}

impl ScheduleFacts<'_> {
    /// Whether a version of this entry had the outcome `buffered`.
    pub(super) fn waited(&self, record: &LedgerRecord) -> bool {
        let same = |known: &LedgerRecord| ledger_key(known) == ledger_key(record);
        self.written.iter().any(|(_, known)| known.outcome == FiringOutcome::Buffered && same(known))
    }
}

pub(super) fn ledger_key(record: &LedgerRecord) -> LedgerKey {
    (record.generation, record.first, record.cause, record.backfill)
}

#[derive(Debug, Default)]
pub(super) struct RequestFacts<'a> {
    pub(super) asks: Vec<At<&'a Ask>>,
    pub(super) answers: Vec<At<&'a Answer>>,
}

impl RequestFacts<'_> {
    /// Returns the event index of the attempt that this answer belongs to.
    pub(super) fn asked_for(&self, answer: usize) -> usize {
        self.asks.iter().rfind(|(asked, _)| *asked < answer).map_or(answer, |(asked, _)| *asked)
    }
}

/// Index of a whole history.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) history: &'a History,
    pub(super) jobs: Map<JobId, JobFacts<'a>>,
    pub(super) executions: Map<ExecutionId, ExecutionFacts<'a>>,
    pub(super) workflow_runs: BTreeMap<RunId, RunFacts<'a>>,
    pub(super) schedules: BTreeMap<ScheduleId, ScheduleFacts<'a>>,
    /// Event index of the first row of each service.
    pub(super) services: BTreeMap<ServiceId, usize>,
    pub(super) requests: Map<u64, RequestFacts<'a>>,
    /// The execution that requested each checkpoint, and the event index of the request.
    pub(super) saves: Map<u64, (ExecutionId, usize)>,
    pub(super) commits: Vec<At<&'a Commit>>,
    pub(super) reads: Vec<At<(JobId, bool)>>,
    pub(super) owned: Vec<(usize, u32, Epoch, Timestamp)>,
    pub(super) woke: BTreeMap<WorkerId, Vec<Timestamp>>,
    /// Event indexes at which the supervisor of a worker crashed; empty for real clusters.
    crashed: BTreeMap<WorkerId, Vec<usize>>,
    /// When the faults ended.
    pub(super) calm: Option<At<Timestamp>>,
    /// When each service had to be as desired.
    pub(super) services_due: Option<usize>,
    /// The end of the history, and the executions that workers still hold.
    pub(super) end: Option<At<&'a [ExecutionId]>>,
    /// Whether no more events about ended objects can follow.
    pub(super) are_settled: bool,
    /// Whether commits were lost since an unknown time.
    pub(super) lost_tail: bool,
    /// Times during which the volume of the store was full; the last may be open.
    pub(super) full: Vec<(Timestamp, Option<Timestamp>)>,
    /// Time ranges of lost commits: from the first lost commit until the loss was recorded.
    lost: Vec<(Timestamp, Timestamp)>,
}

impl<'a> Facts<'a> {
    pub(super) fn of(history: &'a History) -> Self {
        let mut facts = Self {
            history,
            jobs: Map::default(),
            executions: Map::default(),
            workflow_runs: BTreeMap::new(),
            schedules: BTreeMap::new(),
            services: BTreeMap::new(),
            requests: Map::default(),
            saves: Map::default(),
            commits: Vec::new(),
            reads: Vec::new(),
            owned: Vec::new(),
            woke: BTreeMap::new(),
            crashed: BTreeMap::new(),
            calm: None,
            services_due: None,
            end: None,
            are_settled: false,
            lost_tail: false,
            full: Vec::new(),
            lost: Vec::new(),
        };
        // Most jobs have about 12 events.
        facts.jobs.reserve(history.events.len() / 12);
        facts.executions.reserve(history.events.len() / 12);
        for (index, event) in history.events.iter().enumerate() {
            facts.take(index, event.at, &event.what);
        }
        facts.are_settled = facts.calm.is_some() && facts.end.is_some();
        facts
    }

    /// Whether the task of an execution had ended before `index`, or never started.
    pub(super) fn is_over(&self, row: &ExecutionRow, index: usize) -> bool {
        let over = |step: &TaskStep| matches!(step, TaskStep::Ended { .. } | TaskStep::Killed);
        let known = self.executions.get(&row.execution);
        let steps = known.map_or(&[][..], |known| &known.steps);
        let job = self.jobs.get(&row.job);
        let was_refused =
            known.and_then(ExecutionFacts::last).is_some_and(|row| row.status == ExecutionStatus::Refused);
        steps.iter().any(|&(at, _, step)| at < index && over(step))
            || was_refused
            || job.is_some_and(|job| job.could_not_start(row.number))
    }

    /// Whether the leader may hold new work at a time: the store is full, or was until a moment ago.
    pub(super) fn may_hold_new_work(&self, at: Timestamp) -> bool {
        self.full.iter().any(|(from, to)| *from <= at && to.is_none_or(|to| at <= to + HOLD_SLACK))
    }

    /// Whether the supervisor of a worker crashed after the event at `index`.
    pub(super) fn crashed_after(&self, worker: WorkerId, index: usize) -> bool {
        self.crashed.get(&worker).and_then(|crashes| crashes.last()).is_some_and(|last| *last > index)
    }

    fn take(&mut self, index: usize, at: Timestamp, what: &'a What) {
        match what {
            What::Asked { request, ask } => {
                self.requests.entry(*request).or_default().asks.push((index, ask));
                if let Ask::Save { execution, data } = ask {
                    self.saves.entry(*data).or_insert((*execution, index));
                }
            }
            What::Answered { request, answer } => {
                self.requests.entry(*request).or_default().answers.push((index, answer));
            }
            What::Read { job, found } => self.reads.push((index, (*job, *found))),
            What::Commit(commit) => {
                self.commits.push((index, commit));
                commit.rows.iter().for_each(|row| self.take_row(index, commit, row));
            }
            What::Owned { server, epoch, until } => self.owned.push((index, *server, *epoch, *until)),
            What::StoreFull { full: true } => self.full.push((at, None)),
            What::StoreFull { full: false } => {
                if let Some((_, end)) = self.full.last_mut() {
                    *end = Some(at);
                }
            }
            What::TailLost { since: None, .. } => self.lost_tail = true,
            What::TailLost { since: Some(since), .. } => self.lost.push((*since, at)),
            What::Heard { execution, .. } => {
                self.executions.entry(*execution).or_default().heard.push(index);
            }
            What::Found { execution, data } => {
                self.executions.entry(*execution).or_default().found = Some((index, *data));
            }
            What::Task { execution, step } => {
                self.executions.entry(*execution).or_default().steps.push((index, at, step));
            }
            What::Woke { worker } => self.woke.entry(*worker).or_default().push(at),
            What::Crashed { worker } => self.crashed.entry(*worker).or_default().push(index),
            What::Calm => self.calm = Some((index, at)),
            What::End { unacknowledged } => self.end = Some((index, unacknowledged)),
            What::ServicesDue => self.services_due = Some(index),
            What::Stray { .. } | What::Fault { .. } | What::Rebuilt { .. } | What::Inconsistent { .. } => {}
        }
    }

    fn take_row(&mut self, index: usize, commit: &'a Commit, row: &'a Row) {
        match row {
            Row::Job(row) => {
                let job = self.jobs.entry(row.job).or_default();
                job.rows.push((index, row));
                job.spec = row.spec.as_ref().or(job.spec);
                if let (true, Some(origin)) = (row.new, row.origin.as_deref()) {
                    job.origin = Some(origin);
                    self.schedules.entry(origin.schedule).or_default().runs.push(row.job.into());
                }
                job.replica = row.replica.as_deref().or(job.replica);
                if let (true, Some(step)) = (row.new, row.step.as_deref()) {
                    job.step = Some(step);
                    let key = step.key();
                    let run = self.workflow_runs.entry(key.run).or_default();
                    run.work.entry((key.step, key.item)).or_default().push(row.job.into());
                }
            }
            Row::Execution(row) => {
                self.executions.entry(row.execution).or_default().rows.push((index, row));
                if row.new {
                    self.jobs.entry(row.job).or_default().executions.push(row.execution);
                }
            }
            Row::Schedule(row) => {
                self.schedules.entry(row.schedule).or_default().rows.push((index, row, commit));
            }
            Row::ScheduleRemoved(id) => self.schedules.entry(*id).or_default().removed = true,
            Row::Ledger(record) => {
                let schedule = self.schedules.entry(record.schedule).or_default();
                schedule.written.push((index, record));
                schedule.ledger.insert(ledger_key(record), (index, record));
            }
            Row::Run(row) => self.take_run(index, row),
            Row::Step(row) => {
                let run = self.workflow_runs.entry(row.run).or_default();
                run.steps.entry((row.step, row.item)).or_default().push((index, row));
            }
            Row::Checkpoint { job, version, data } => {
                self.jobs.entry(*job).or_default().saved.push((index, *version, *data));
            }
            Row::Elements { added, first, count } => {
                let run = self.workflow_runs.entry(added.run).or_default();
                run.added.push((index, (added, *first, *count)));
            }
            Row::Service(row) => drop(self.services.entry(row.service).or_insert(index)),
            Row::ServiceRemoved(_)
            | Row::Key { .. }
            | Row::Worker { .. }
            | Row::Queue { .. }
            | Row::Namespace { .. }
            | Row::Backfill { .. }
            | Row::Workflow(_) => {}
        }
    }

    fn take_run(&mut self, index: usize, row: &'a RunRow) {
        let run = self.workflow_runs.entry(row.run).or_default();
        run.rows.push((index, row));
        if row.steps.iter().any(|step| step.cause == RunCause::BackoffEnded) {
            run.tries.insert(index);
        }
        run.spec = row.spec.as_deref().or(run.spec);
        if !row.new {
            return;
        }
        run.trigger = row.trigger.as_deref();
        if let Some(caller) = row.caller {
            run.is_called = true;
            let calling = self.workflow_runs.entry(caller.run).or_default();
            calling.work.entry((caller.step, caller.element)).or_default().push(row.run.into());
        } else if let Some(origin) = row.origin.as_deref() {
            run.origin = Some(origin);
            self.schedules.entry(origin.schedule).or_default().runs.push(row.run.into());
        }
    }

    /// Whether commits between these two events may have been lost.
    pub(super) fn may_be_lost(&self, from: usize, until: usize) -> bool {
        let (from, until) = (self.at(from), self.at(until));
        self.lost.iter().any(|&(since, known)| from <= known && since <= until)
    }

    /// Whether the start of a task may belong to a lost commit. Its assignment may arrive late, and its worker learns
    /// within a lease that the execution is unknown.
    pub(super) fn may_be_of_a_lost_commit(&self, start: usize) -> bool {
        let (at, lease) = (self.at(start), self.history.setup.lease);
        self.lost.iter().any(|(since, until)| (*since..=*until + lease).contains(&at))
    }

    /// Whether a message reached a worker whose machine has just resumed, after commits were lost. The message may be
    /// older than the loss.
    pub(super) fn may_have_waited_since_a_loss(&self, heard: usize) -> bool {
        let event = &self.history.events[heard];
        let What::Heard { worker, .. } = &event.what else { return false };
        let resumed = self.woke.get(worker).is_some_and(|times| times.contains(&event.at));
        resumed && self.lost.iter().any(|(_, known)| *known <= event.at)
    }

    /// Whether a client asked to cancel a job before the event at `index`.
    pub(super) fn has_cancel_request(&self, job: JobId, index: usize) -> bool {
        let is_cancel = |ask: &Ask| matches!(ask, Ask::Cancel { job: other } if *other == job);
        let mut asks = self.requests.values().flat_map(|request| &request.asks);
        asks.any(|(asked, ask)| *asked < index && is_cancel(ask))
    }

    /// Whether a client asked to delete a service before this event.
    pub(super) fn has_delete_request(&self, service: ServiceId, index: usize) -> bool {
        let is_delete = |ask: &Ask| matches!(ask, Ask::Service { service: other, what } if *other == service && what == "delete");
        let mut asks = self.requests.values().flat_map(|request| &request.asks);
        asks.any(|(asked, ask)| *asked < index && is_delete(ask))
    }

    /// Number of times that the newest commits were lost.
    pub(super) fn losses(&self) -> usize {
        self.lost.len()
    }

    /// Returns the started executions of each job that no commit contains.
    pub(super) fn strays(&self) -> BTreeMap<JobId, Vec<ExecutionId>> {
        let mut strays: BTreeMap<JobId, Vec<ExecutionId>> = BTreeMap::new();
        for (id, execution) in self.executions.iter().filter(|(_, execution)| execution.rows.is_empty()) {
            let job = execution.steps.iter().find_map(|(.., step)| match step {
                TaskStep::Started { job, .. } => Some(*job),
                _ => None,
            });
            strays.entry(job.unwrap_or(JobId::from_bits(0))).or_default().push(*id);
        }
        strays
    }

    /// Returns the event index and engine time at which a job or run was created.
    pub(super) fn begin_of(&self, work: Work) -> Option<At<Timestamp>> {
        match work {
            Work::Job(job) => self.jobs.get(&job)?.steps().next().map(|(index, step)| (index, step.at)),
            Work::Run(run) => {
                let (index, row) = self.workflow_runs.get(&run)?.rows.first()?;
                Some((*index, row.steps.first()?.at))
            }
        }
    }

    /// Returns the event index at which a job or run ended.
    pub(super) fn end_of(&self, work: Work) -> Option<usize> {
        match work {
            Work::Job(job) => {
                let mut rows = self.jobs.get(&job)?.rows.iter();
                rows.find(|(_, row)| row.status.is_final()).map(|(index, _)| *index)
            }
            Work::Run(run) => self.workflow_runs.get(&run)?.end().map(|(index, _)| index),
        }
    }

    /// Returns the firing that created a job or run.
    pub(super) fn origin_of(&self, work: Work) -> Option<&'a Origin> {
        match work {
            Work::Job(job) => self.jobs.get(&job)?.origin,
            Work::Run(run) => self.workflow_runs.get(&run)?.origin,
        }
    }

    /// Returns the time of the last event.
    pub(super) fn ends_at(&self) -> Timestamp {
        self.history.events.last().map_or_else(Timestamp::default, |event| event.at)
    }

    /// Whether the history contains the commits themselves, not only the feed.
    pub(super) fn exact(&self) -> bool {
        self.history.setup.store == StoreView::Commits
    }

    /// Returns the engine time of a commit.
    pub(super) fn engine_time(&self, index: usize) -> Option<Timestamp> {
        match &self.history.events.get(index)?.what {
            What::Commit(commit) => Some(commit.now),
            _ => None,
        }
    }

    /// Returns the time of an event.
    pub(super) fn at(&self, index: usize) -> Timestamp {
        self.history.events.get(index).map_or_else(Timestamp::default, |event| event.at)
    }

    /// Returns the event index of an execution's first commit.
    pub(super) fn committed(&self, execution: ExecutionId) -> Option<usize> {
        self.executions.get(&execution)?.rows.first().map(|(index, _)| *index)
    }
}
