//! Sums up the decisions of the engine to the answer of a forecast.
//!
//! `crate::world` passes each batch of the engine to [`Totals`]. A batch is processed as a store and its watchers do:
//! rows first, then events, in order. Waiting jobs and overloads are in `crate::waits`, the allocation of workers is in
//! `crate::usage`.
//!
//! # Invariants
//! - Each firing counts in exactly one outcome of its schedule: the last version of its ledger entry.
//! - A run of a firing counts once, also if it calls other runs.
//!
//! # Cost
//! O(log n) for each row and event. Jobs, runs and ledger entries are removed as soon as they cannot change any more.
//! So memory grows only with the live objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::firing::{FiringCause, FiringOutcome, LedgerRecord, Origin, Work};
use model::record::{Batch, Change, Event, EventKind, JobHead, ScheduleEvent};
use model::run::{RunHead, RunStatus, StepCause};
use model::workflow::{Action, Wait};
use model::{Duration, JobId, JobStatus, RunId, ScheduleId, StepStatus, Timestamp, WorkerId};

use crate::answer::{Answer, Bucket, Group, Note, ScheduleForecast, Summary, WorkerUse, WorstRun};
use crate::plan::{Plan, Schedule};
use crate::usage::{Amount, Grid, Series};
use crate::waits::Waits;

/// Maximum number of names that a note lists.
const NAMES_SHOWN: usize = 3;

/// Current state of the simulated jobs and runs, and the totals so far.
pub(crate) struct Totals<'a> {
    plan: &'a Plan,
    grid: Grid,
    schedules: BTreeMap<ScheduleId, usize>,
    workers: BTreeMap<WorkerId, usize>,
    jobs: BTreeMap<JobId, LiveJob>,
    runs: BTreeMap<RunId, LiveRun>,
    /// Ledger entries that may change again.
    lines: BTreeMap<LedgerKey, LedgerEntry>,
    pub(crate) waits: Waits,
    summary: Summary,
    buckets: Vec<Bucket>,
    by_schedule: Vec<ScheduleForecast>,
    by_worker: Vec<(Series, u64)>,
    all_workers: Series,
    unusable: Vec<String>,
    approvals: u64,
    events: u64,
    starved: (u64, Vec<String>),
    assumed: BTreeSet<String>,
}

/// Unique key of a ledger entry.
type LedgerKey = (ScheduleId, u64, Timestamp, FiringCause);

/// Last version of a ledger entry.
struct LedgerEntry {
    outcome: FiringOutcome,
    count: u64,
    decided_at: Timestamp,
}

/// A job that has not ended.
struct LiveJob {
    head: Arc<JobHead>,
    group: usize,
    waits_since: Option<Timestamp>,
    runs_on: Option<(usize, Timestamp)>,
    /// Due time of the firing, for a job of a schedule.
    due: Option<Timestamp>,
    has_started: bool,
}

/// A run that has not ended.
struct LiveRun {
    head: Arc<RunHead>,
    /// Run at the top of the chain of callers; the run itself if it has no caller.
    root: RunId,
    due: Option<Timestamp>,
    has_started: bool,
}

/// An approval or an event that a step waits for.
#[derive(Debug)]
pub(crate) struct PendingInput {
    pub(crate) run: RunId,
    pub(crate) step: Arc<str>,
    pub(crate) what: PendingInputKind,
}

/// Kind of the wait of a step.
#[derive(Debug)]
pub(crate) enum PendingInputKind {
    Approval { by: Arc<str> },
    Event { name: String },
}

impl<'a> Totals<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        schedules: BTreeMap<ScheduleId, usize>,
        workers: BTreeMap<WorkerId, usize>,
    ) -> Self {
        let grid = Grid::new(plan.from, plan.until);
        let mut all = Amount::default();
        let series = plan.workers.iter().map(|worker| {
            let capacity = Amount::of(&worker.capacity);
            all.add(capacity);
            (Series::new(grid, capacity), 0)
        });
        let by_worker = series.collect();
        let buckets = (0..grid.len()).map(|place| Bucket { from: grid.begin(place), ..Bucket::default() });
        let by_schedule = plan.schedules.iter().map(|schedule| ScheduleForecast {
            namespace: schedule.spec.namespace.clone(),
            name: schedule.spec.name.clone(),
            firings: 0,
            skipped: BTreeMap::new(),
            succeeded: 0,
            failed: 0,
            expired: 0,
            overdue: 0,
            late: 0,
            latest: Duration::ZERO,
            busy: Duration::ZERO,
            assumed: false,
            paused_at: None,
        });
        let ask_every = grid.width.max(plan.options.patience);
        Self {
            plan,
            grid,
            schedules,
            workers,
            jobs: BTreeMap::new(),
            runs: BTreeMap::new(),
            lines: BTreeMap::new(),
            waits: Waits::new(plan.options.patience, ask_every),
            summary: Summary::default(),
            buckets: buckets.collect(),
            by_schedule: by_schedule.collect(),
            by_worker,
            all_workers: Series::new(grid, all),
            unusable: Vec::new(),
            approvals: 0,
            events: 0,
            starved: (0, Vec::new()),
            assumed: BTreeSet::new(),
        }
    }

    /// Returns the number of firings that created a job or a run.
    pub(crate) fn firings(&self) -> u64 {
        self.summary.firings
    }

    /// Returns the head of a job that has not ended.
    pub(crate) fn job(&self, job: JobId) -> Option<&Arc<JobHead>> {
        self.jobs.get(&job).map(|live| &live.head)
    }

    /// Returns the firing of a job, also through runs.
    pub(crate) fn origin<'b>(&'b self, head: &'b JobHead) -> Option<&'b Origin> {
        match &head.step {
            None => head.origin.as_deref(),
            Some(step) => {
                let root = self.runs.get(&step.run)?.root;
                self.runs.get(&root)?.head.origin.as_deref()
            }
        }
    }

    /// Returns the schedule of a firing.
    pub(crate) fn schedule(&self, origin: &Origin) -> Option<&'a Schedule> {
        self.plan.schedules.get(*self.schedules.get(&origin.schedule)?)
    }

    /// Records that a job has no run history.
    pub(crate) fn assumes(&mut self, head: &JobHead) {
        let place = head.origin.as_ref().filter(|_| head.step.is_none());
        let place = place.and_then(|origin| self.schedules.get(&origin.schedule));
        let name = match place.and_then(|&place| self.by_schedule.get_mut(place)) {
            Some(line) if line.assumed => return,
            Some(line) => {
                line.assumed = true;
                format!("schedule {}/{}", line.namespace, line.name)
            }
            None => format!("job {}/{}", head.spec.namespace, head.spec.name),
        };
        self.assumed.insert(name);
    }

    /// Processes a batch; returns the approvals and events that steps wait for.
    pub(crate) fn take(&mut self, batch: Batch) -> Vec<PendingInput> {
        let now = batch.now;
        let mut ended = Vec::new();
        for change in batch.changes {
            match change {
                Change::Job { id, head: Some(head), .. } => self.new_job(id, head),
                Change::Ledger(line) => self.line(&line),
                Change::Run { id, head, state } => {
                    if let Some(head) = head {
                        self.new_run(id, head);
                    }
                    if state.status.is_final() {
                        ended.push((id, state.status, state.started_at));
                    }
                }
                _ => {}
            }
        }
        let mut asked = Vec::new();
        for event in batch.events {
            self.event(now, event, &mut asked);
        }
        // A called run ends before its caller, possibly in the same batch.
        for (run, status, started_at) in ended {
            self.run_ended(now, run, status, started_at);
        }
        asked
    }

    fn new_job(&mut self, id: JobId, head: Arc<JobHead>) {
        let group = Group { queue: head.spec.queue.clone(), constraints: head.spec.constraints.clone() };
        let group = self.waits.group(group);
        let live = LiveJob { head, group, waits_since: None, runs_on: None, due: None, has_started: false };
        self.jobs.entry(id).or_insert(live);
    }

    fn new_run(&mut self, id: RunId, head: Arc<RunHead>) {
        let root = head.caller.as_ref().and_then(|caller| self.runs.get(&caller.run));
        let root = root.map_or(id, |caller| caller.root);
        self.runs.entry(id).or_insert(LiveRun { head, root, due: None, has_started: false });
    }

    fn line(&mut self, record: &LedgerRecord) {
        let key = (record.schedule, record.generation, record.first, record.cause);
        let before = self.lines.remove(&key);
        if let Some(before) = &before {
            self.count_line(record.schedule, before.outcome, before.count, false);
        }
        self.count_line(record.schedule, record.outcome, record.count, true);
        // The due time is the first decision, even if the firing waited for earlier runs.
        let due = before.map_or(record.decided_at, |before| before.decided_at);
        let Some(work) = record.work else {
            let line = LedgerEntry { outcome: record.outcome, count: record.count, decided_at: due };
            self.lines.insert(key, line);
            return;
        };
        match work {
            Work::Job(job) => self.jobs.get_mut(&job).map(|live| live.due = Some(due)),
            Work::Run(run) => self.runs.get_mut(&run).map(|live| live.due = Some(due)),
        };
        let place = self.grid.place(record.decided_at);
        self.buckets[place].firings += 1;
    }

    fn count_line(&mut self, schedule: ScheduleId, outcome: FiringOutcome, count: u64, more: bool) {
        let Some(line) = self.schedules.get(&schedule).and_then(|&place| self.by_schedule.get_mut(place))
        else {
            return;
        };
        let change = |sum: &mut u64| *sum = if more { *sum + count } else { sum.saturating_sub(count) };
        let change_in = |sums: &mut BTreeMap<FiringOutcome, u64>| {
            change(sums.entry(outcome).or_default());
            sums.retain(|_, count| *count > 0);
        };
        if outcome.fired() {
            change(&mut line.firings);
            change(&mut self.summary.firings);
        } else {
            change_in(&mut line.skipped);
            match outcome {
                FiringOutcome::SkippedCalendar | FiringOutcome::SkippedWindow => {
                    change(&mut self.summary.held);
                }
                _ => change_in(&mut self.summary.skipped),
            }
        }
    }

    fn event(&mut self, now: Timestamp, event: Event, asked: &mut Vec<PendingInput>) {
        match event.kind {
            EventKind::Job { job, to, worker, .. } => self.job_moved(event.at, job, to, worker),
            EventKind::Overdue { schedule: Some(schedule), .. } => {
                if let Some(&place) = self.schedules.get(&schedule) {
                    self.by_schedule[place].overdue += 1;
                    self.summary.overdue += 1;
                }
            }
            EventKind::Schedule { schedule, what: ScheduleEvent::Paused, name } => {
                let Some(&place) = self.schedules.get(&schedule) else { return };
                if now <= self.plan.from {
                    self.unusable.push(name.to_string());
                }
                self.by_schedule[place].paused_at.get_or_insert(event.at);
            }
            EventKind::Step { run, step, to: StepStatus::Waiting, .. } => {
                asked.extend(self.asked_for(run, step));
            }
            EventKind::Step {
                step,
                to: StepStatus::Failed,
                cause: StepCause::BadReference | StepCause::ConditionFailed,
                ..
            } => {
                self.starved.0 += 1;
                if self.starved.1.len() < NAMES_SHOWN && !self.starved.1.iter().any(|name| **name == *step) {
                    self.starved.1.push(step.to_string());
                }
            }
            _ => {}
        }
    }

    fn asked_for(&mut self, run: RunId, step: Arc<str>) -> Option<PendingInput> {
        let spec = &self.runs.get(&run)?.head.definition.workflow;
        let mut steps = spec.steps.iter().chain(&spec.on_failure).chain(&spec.finally);
        let what = match &steps.find(|known| known.name == *step)?.action {
            Action::Approval(approval) => {
                self.approvals += 1;
                let by = approval.approvers.first().map_or("forecast", String::as_str);
                PendingInputKind::Approval { by: by.into() }
            }
            Action::Wait(Wait::Event(event)) => {
                self.events += 1;
                PendingInputKind::Event { name: event.name.clone() }
            }
            _ => return None,
        };
        Some(PendingInput { run, step, what })
    }

    fn job_moved(&mut self, now: Timestamp, id: JobId, to: JobStatus, worker: Option<WorkerId>) {
        let Some(live) = self.jobs.get_mut(&id) else { return };
        if let Some(since) = live.waits_since.take() {
            let head = &live.head;
            self.waits.leave(now, live.group, (since, id), || name_of(head));
        }
        if let Some((worker, since)) = live.runs_on.take() {
            let amount = amount_of(&live.head);
            if let Some((series, _)) = self.by_worker.get_mut(worker) {
                series.release(now, amount);
            }
            self.all_workers.release(now, amount);
            let place = live.head.origin.as_ref().and_then(|origin| self.schedules.get(&origin.schedule));
            if let Some(line) = place.and_then(|&place| self.by_schedule.get_mut(place)) {
                line.busy = line.busy + now.since(since);
            }
        }
        match to {
            JobStatus::Waiting => {
                live.waits_since = Some(now);
                let group = live.group;
                self.waits.enter(now, group, id);
            }
            JobStatus::Running => self.job_started(now, id, worker),
            ended if ended.is_final() => self.job_ended(now, id, ended),
            _ => {}
        }
    }

    fn job_started(&mut self, now: Timestamp, id: JobId, worker: Option<WorkerId>) {
        let Some(live) = self.jobs.get_mut(&id) else { return };
        let amount = amount_of(&live.head);
        if let Some(&worker) = worker.and_then(|worker| self.workers.get(&worker)) {
            live.runs_on = Some((worker, now));
            if let Some((series, executions)) = self.by_worker.get_mut(worker) {
                series.take(now, amount);
                *executions += 1;
            }
            self.all_workers.take(now, amount);
        }
        if live.head.replica.is_some() {
            return;
        }
        self.summary.executions += 1;
        let place = self.grid.place(now);
        self.buckets[place].started += 1;
        let first = !std::mem::replace(&mut live.has_started, true);
        let (head, due) = (Arc::clone(&live.head), live.due);
        match &head.step {
            None if first => self.begun(now, head.origin.as_deref(), due),
            None => {}
            Some(step) => {
                let root = self.runs.get(&step.run).map(|run| run.root);
                let Some(run) = root.and_then(|root| self.runs.get_mut(&root)) else { return };
                if !std::mem::replace(&mut run.has_started, true) {
                    let (head, due) = (Arc::clone(&run.head), run.due);
                    self.begun(now, head.origin.as_deref(), due);
                }
            }
        }
    }

    /// Records the first start of a firing's run.
    fn begun(&mut self, now: Timestamp, origin: Option<&Origin>, due: Option<Timestamp>) {
        let Some((origin, due)) = origin.zip(due) else { return };
        self.summary.started += 1;
        self.count_delay(now, origin, due);
    }

    fn count_delay(&mut self, now: Timestamp, origin: &Origin, due: Timestamp) {
        let Some(&place) = self.schedules.get(&origin.schedule) else { return };
        let by = now.since(due);
        let line = &mut self.by_schedule[place];
        line.latest = line.latest.max(by);
        let expected = self.plan.schedules[place].spec.expect.start_within;
        if by <= self.plan.options.late_after.unwrap_or(expected) {
            return;
        }
        line.late += 1;
        self.summary.late += 1;
        let bucket = self.grid.place(due);
        self.buckets[bucket].late += 1;
        if self.summary.latest.as_ref().is_none_or(|latest| by > latest.by) {
            let (namespace, name) = (line.namespace.clone(), line.name.clone());
            self.summary.latest = Some(WorstRun { namespace, name, due, by });
        }
    }

    fn job_ended(&mut self, now: Timestamp, id: JobId, status: JobStatus) {
        let Some(live) = self.jobs.remove(&id) else { return };
        let Some(origin) = live.head.origin.as_ref().filter(|_| live.head.step.is_none()) else { return };
        if let Some(due) = live.due.filter(|_| !live.has_started && status == JobStatus::Expired) {
            self.count_delay(now, origin, due);
        }
        self.count_end(origin.schedule, status);
    }

    fn run_ended(&mut self, now: Timestamp, id: RunId, status: RunStatus, started_at: Option<Timestamp>) {
        let Some(run) = self.runs.remove(&id) else { return };
        let Some(origin) = run.head.origin.as_ref().filter(|_| run.head.caller.is_none()) else { return };
        let status = match status {
            RunStatus::Succeeded => JobStatus::Succeeded,
            RunStatus::Cancelled => JobStatus::Cancelled,
            _ if started_at.is_none() => JobStatus::Expired,
            _ => JobStatus::Failed,
        };
        if let Some(due) = run.due.filter(|_| !run.has_started && status == JobStatus::Expired) {
            self.count_delay(now, origin, due);
        }
        self.count_end(origin.schedule, status);
    }

    fn count_end(&mut self, schedule: ScheduleId, status: JobStatus) {
        let Some(&place) = self.schedules.get(&schedule) else { return };
        let line = &mut self.by_schedule[place];
        let (of_schedule, of_all) = match status {
            JobStatus::Succeeded => (&mut line.succeeded, &mut self.summary.succeeded),
            JobStatus::Expired => (&mut line.expired, &mut self.summary.expired),
            JobStatus::Cancelled => (&mut line.failed, &mut self.summary.cancelled),
            _ => (&mut line.failed, &mut self.summary.failed),
        };
        *of_schedule += 1;
        *of_all += 1;
    }

    /// Records the number of waiting jobs after all decisions at the current time.
    pub(crate) fn record_waiting_jobs(&mut self, now: Timestamp) {
        let waiting = self.waits.count();
        let most = &mut self.buckets[self.grid.place(now)].waiting_most;
        *most = (*most).max(waiting);
        self.summary.waiting_most = self.summary.waiting_most.max(waiting);
    }

    /// Advances time to `until`, with the same number of waiting jobs.
    pub(crate) fn advance_to(&mut self, now: Timestamp, until: Timestamp) {
        let waiting = self.waits.count();
        // The bucket of `until` itself has not settled yet.
        let until = Timestamp::from_micros(until.as_micros() - 1);
        for bucket in &mut self.buckets[self.grid.place(now)..=self.grid.place(until)] {
            bucket.waiting_most = bucket.waiting_most.max(waiting);
        }
    }

    /// Returns the answer at the end of the range.
    pub(crate) fn finish(mut self, until: Timestamp, cut: bool) -> Answer {
        self.count_waiting_runs(until);
        self.summary.waiting_at_end = self.waits.count();
        let runs = |live: &&LiveJob| live.runs_on.is_some() && live.head.replica.is_none();
        self.summary.running_at_end = self.jobs.values().filter(runs).count() as u64;
        for (series, _) in &mut self.by_worker {
            series.advance(until);
        }
        self.all_workers.advance(until);
        self.summary.schedules =
            self.plan.schedules.iter().filter(|s| s.status == model::firing::ScheduleStatus::Active).count()
                as u64;
        self.summary.used = self.all_workers.average();
        let notes = self.notes(until, cut);
        let jobs = &self.jobs;
        let who = |job| jobs.get(&job).map_or_else(Default::default, |live| name_of(&live.head));
        let overloads = self.waits.finish(until, who);
        self.summary.overloaded = length(&overloads.iter().map(|w| (w.from, w.until)).collect::<Vec<_>>());
        let workers = self.plan.workers.iter().zip(&self.by_worker);
        let workers = workers.map(|(worker, (series, executions))| WorkerUse {
            name: worker.name.clone(),
            capacity: worker.capacity.clone(),
            executions: *executions,
            average: series.average(),
            most: series.most(),
            used: series.parts(),
        });
        Answer {
            from: self.plan.from,
            until,
            seed: self.plan.options.seed,
            patience: self.plan.options.patience,
            summary: self.summary,
            overloads,
            bucket: self.grid.width,
            over_time: self.buckets,
            used: self.all_workers.parts(),
            workers: workers.collect(),
            schedules: self.by_schedule,
            notes,
        }
    }

    /// Counts the runs that should have started before the end of the range, but did not.
    fn count_waiting_runs(&mut self, until: Timestamp) {
        let jobs = self.jobs.values().filter(|live| !live.has_started && live.head.step.is_none());
        let jobs = jobs.filter_map(|live| Some((live.head.origin.clone()?, live.due?)));
        let runs = self.runs.values().filter(|run| !run.has_started && run.head.caller.is_none());
        let runs = runs.filter_map(|run| Some((run.head.origin.clone()?, run.due?)));
        for (origin, due) in jobs.chain(runs).collect::<Vec<_>>() {
            self.count_delay(until, &origin, due);
        }
    }

    fn notes(&mut self, until: Timestamp, cut: bool) -> Vec<Note> {
        let mut notes = Vec::new();
        if cut {
            notes.push(Note::Cut { at: until, runs_max: self.plan.options.runs_max });
        }
        if !self.unusable.is_empty() {
            notes.push(Note::Unusable { schedules: std::mem::take(&mut self.unusable) });
        }
        if !self.assumed.is_empty() {
            let run_time = self.plan.history.otherwise.run_times.at(0.5);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it came from whole ones"
            )]
            let run_time = Duration::from_millis(run_time as u64);
            let such_as = self.assumed.iter().take(NAMES_SHOWN).cloned().collect();
            notes.push(Note::Assumed { names: self.assumed.len() as u64, such_as, run_time });
        }
        if self.approvals + self.events > 0 {
            notes.push(Note::Answered { approvals: self.approvals, events: self.events });
        }
        let (steps, such_as) = std::mem::take(&mut self.starved);
        if steps > 0 {
            notes.push(Note::StepsWithoutInput { steps, such_as });
        }
        notes
    }
}

fn name_of(head: &JobHead) -> (String, String) {
    let name = match (&head.step, &head.origin) {
        (Some(step), _) => format!("{}.{}", step.workflow, step.name),
        (None, Some(origin)) => origin.name.to_string(),
        (None, None) => head.spec.name.clone(),
    };
    (head.spec.namespace.clone(), name)
}

fn amount_of(head: &JobHead) -> Amount {
    let resources = &head.spec.resources;
    Amount { cpu: u64::from(resources.cpu_request().0), memory: resources.memory_request().0, slots: 1 }
}

/// Returns the length of the union of ranges.
fn length(ranges: &[(Timestamp, Timestamp)]) -> Duration {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let (mut sum, mut end) = (Duration::ZERO, Timestamp::from_micros(i64::MIN));
    for (from, until) in sorted {
        sum = sum + until.since(from.max(end));
        end = end.max(until);
    }
    sum
}
