//! Each invariant can fail: a hand-made history that breaks it, and the nearest one that does not.

use std::sync::Arc;

use model::firing::{FiringCause, FiringOutcome, LedgerRecord, Origin, ScheduleStatus, Work};
use model::id::Epoch;
use model::queue::QueueSettings;
use model::record::HistoryEntry;
use model::run::{Ended, RunCause, RunHistoryEntry, RunTrigger, StepCause, StepOrigin};
use model::schedule::{MissedPolicy, OverlapPolicy};
use model::spec::{Concurrency, Delivery};
use model::timing::{Every, Rule, Timing};
use model::worker::{Capacity, WorkerStatus};
use model::workflow::{ForEach, Over, StepSpec};
use model::{
    Bytes, Cause, Duration, ExecutionId, ExecutionStatus, Fence, JobId, JobSpec, JobStatus, Millicores,
    RunId, RunStatus, ScheduleId, ScheduleSpec, StepStatus, Timestamp, WorkerId, WorkflowSpec,
};

use super::{Invariant, check};
use crate::history::{
    Added, Answer, Ask, Commit, Event, ExecutionRow, History, JobRow, Row, RunRow, ScheduleRow, StepRow,
    StoreView, TaskStep, What,
};

const JOB: JobId = JobId::from_bits(1 << 64);
const WORKER: WorkerId = WorkerId::from_bits(2 << 64);
const SCHEDULE: ScheduleId = ScheduleId::from_bits(3 << 64);

fn execution(number: u32) -> ExecutionId {
    ExecutionId::from_bits(u128::from(number) << 64)
}

fn second(n: i64) -> Timestamp {
    Timestamp::from_millis(n * 1_000)
}

/// A history in the making: one event a second, unless told otherwise.
struct Story {
    history: History,
    now: i64,
    epoch: u64,
    server: u32,
    spec: JobSpec,
    row: JobRow,
}

impl Story {
    fn new() -> Self {
        let mut spec = JobSpec::command(["true"]);
        spec.name = "r1".into();
        let row = JobRow {
            job: JOB,
            new: true,
            spec: None,
            origin: None,
            step: None,
            status: JobStatus::Waiting,
            version: 0,
            due_at: second(0),
            executions: 0,
            run_failures: 0,
            start_failures: 0,
            fence: Fence(0),
            cancel_requested: false,
            steps: Vec::new(),
        };
        Self { history: History::default(), now: 0, epoch: 1, server: 0, spec, row }
    }

    fn with(change: impl FnOnce(&mut JobSpec)) -> Self {
        let mut story = Self::new();
        change(&mut story.spec);
        story
    }

    fn event(&mut self, what: What) -> &mut Self {
        self.now += 1;
        self.history.events.push(Event { at: second(self.now), what });
        self
    }

    fn commit(&mut self, rows: Vec<Row>) -> &mut Self {
        let now = second(self.now + 1);
        let (server, epoch) = (self.server, Epoch(self.epoch));
        self.event(What::Commit(Box::new(Commit { server, epoch, decided_at: now, now, rows })))
    }

    fn asked(&mut self) -> &mut Self {
        self.event(What::Asked { request: 1, ask: Ask::Submit { tag: "r1".into(), key: None } })
    }

    fn answered(&mut self) -> &mut Self {
        self.event(What::Answered { request: 1, answer: Answer::Submitted { job: JOB } })
    }

    /// The job's next row, with one more step.
    fn step(&mut self, to: JobStatus, cause: Cause) -> Row {
        let at = second(self.now + 1);
        let from = (!self.row.new || self.row.version > 0).then_some(self.row.status);
        self.row.new = self.row.version == 0;
        self.row.spec = self.row.new.then(|| Arc::new(self.spec.clone()));
        self.row.version += 1;
        self.row.status = to;
        let number = Some(self.row.executions).filter(|number| *number > 0);
        self.row.steps = vec![HistoryEntry { at, from, to, cause, execution: number, detail: None }];
        Row::Job(Box::new(self.row.clone()))
    }

    fn submitted(&mut self) -> &mut Self {
        let row = self.step(JobStatus::Waiting, Cause::Submitted);
        self.asked().commit(vec![row])
    }

    fn execution_row(&self, number: u32, status: ExecutionStatus, new: bool) -> Row {
        Row::Execution(Box::new(ExecutionRow {
            execution: execution(number),
            job: JOB,
            new,
            number,
            fence: Fence(u64::from(number)),
            worker: WORKER,
            status,
            assigned_at: second(self.now + 1),
            started: false,
            exit: None,
        }))
    }

    /// The next execution is assigned.
    fn placed(&mut self) -> &mut Self {
        self.row.executions += 1;
        let number = self.row.executions;
        self.row.fence = Fence(u64::from(number));
        let rows = vec![
            self.step(JobStatus::Running, Cause::Placed),
            self.execution_row(number, ExecutionStatus::Assigned, true),
        ];
        self.commit(rows)
    }

    /// The live execution is over.
    fn over(&mut self, status: ExecutionStatus, to: JobStatus, cause: Cause) -> &mut Self {
        let rows = vec![self.step(to, cause), self.execution_row(self.row.executions, status, false)];
        self.commit(rows)
    }

    fn task(&mut self, number: u32, step: TaskStep) -> &mut Self {
        self.event(What::Task { execution: execution(number), step })
    }

    fn starts(&mut self, number: u32) -> &mut Self {
        let fence = Fence(u64::from(number));
        self.task(number, TaskStep::Started { job: JOB, fence, worker: WORKER })
    }

    fn succeeds(&mut self) -> &mut Self {
        let number = self.row.executions;
        self.task(number, TaskStep::Ended { exit: 0 });
        self.over(ExecutionStatus::Succeeded, JobStatus::Succeeded, Cause::Succeeded)
    }

    fn lost(&mut self) -> &mut Self {
        self.over(ExecutionStatus::Lost, JobStatus::Waiting, Cause::WorkerLost)
    }

    fn ends(&mut self) -> &mut Self {
        let (server, epoch) = (self.server, Epoch(self.epoch));
        let until = second(self.now + 10);
        self.event(What::Calm);
        self.event(What::Owned { server, epoch, until });
        self.event(What::End { unacknowledged: Vec::new() })
    }

    #[track_caller]
    fn breaks(&self, invariant: Invariant) {
        let report = check(&self.history);
        assert!(report.breaks(invariant), "{invariant} is not seen to be broken: {report:#?}");
        let shown = report.violations.iter().find(|violation| violation.invariant == invariant);
        let excerpt = &shown.unwrap().excerpt;
        assert!(!excerpt.is_empty() && excerpt.iter().all(|index| *index < self.history.events.len()));
    }

    #[track_caller]
    fn holds(&self) {
        let report = check(&self.history);
        assert!(report.counts.is_empty(), "{report:#?}");
    }
}

#[test]
fn a_plain_life_breaks_nothing() {
    Story::new().submitted().answered().placed().starts(1).succeeds().ends().holds();
    Story::new()
        .submitted()
        .placed()
        .starts(1)
        .task(1, TaskStep::Killed)
        .lost()
        .placed()
        .starts(2)
        .succeeds()
        .holds();
}

/// I1.
#[test]
fn an_accepted_job_that_is_not_there_is_lost() {
    Story::new().asked().answered().breaks(Invariant::I1);
    Story::new().submitted().answered().event(What::Read { job: JOB, found: false }).breaks(Invariant::I1);
}

/// I2.
#[test]
fn two_jobs_under_one_key_are_one_too_many() {
    let mut story = Story::new();
    let other = JobId::from_bits(9 << 64);
    for (request, job) in [(1, JOB), (2, other)] {
        let ask = Ask::Submit { tag: format!("r{request}"), key: Some("k".into()) };
        story.event(What::Asked { request, ask });
        story.event(What::Answered { request, answer: Answer::Submitted { job } });
    }
    story.breaks(Invariant::I2);
}

/// I3.
#[test]
fn a_job_that_nobody_asked_for_is_invented() {
    let mut story = Story::new();
    let row = story.step(JobStatus::Waiting, Cause::Submitted);
    story.commit(vec![row]).breaks(Invariant::I3);
}

/// I4.
#[test]
fn a_hole_in_a_history_is_seen() {
    let mut story = Story::new();
    story.submitted();
    story.row.status = JobStatus::Ready;
    story.placed().breaks(Invariant::I4);
}

/// I5.
#[test]
fn a_step_that_is_not_in_the_table_and_a_change_after_the_end_are_seen() {
    let mut story = Story::new();
    story.submitted();
    let row = story.step(JobStatus::Succeeded, Cause::Succeeded);
    story.commit(vec![row]).breaks(Invariant::I5);
    let mut story = Story::new();
    story.submitted().placed().starts(1).succeeds();
    let row = story.step(JobStatus::Waiting, Cause::WorkerLost);
    story.commit(vec![row]).breaks(Invariant::I5);
}

/// I6.
#[test]
fn what_is_seen_before_its_commit_is_seen_too_early() {
    let mut story = Story::new();
    story.asked().answered();
    let row = story.step(JobStatus::Waiting, Cause::Submitted);
    story.commit(vec![row]).breaks(Invariant::I6);
    let mut story = Story::new();
    let heard = What::Heard { worker: WORKER, execution: execution(1), fence: Fence(1) };
    story.submitted().event(heard).placed().breaks(Invariant::I6);
}

/// I7.
#[test]
fn a_second_start_of_what_may_start_once_is_seen() {
    let once = || Story::with(|spec| spec.delivery = Delivery::AtMostOnce);
    once()
        .submitted()
        .placed()
        .starts(1)
        .task(1, TaskStep::Killed)
        .lost()
        .placed()
        .starts(2)
        .breaks(Invariant::I7);
    // Also where only one of two assignments was seen to start.
    once().submitted().placed().lost().placed().starts(2).breaks(Invariant::I7);
}

/// I8.
#[test]
fn two_executions_of_one_job_may_follow_each_other_and_not_overlap() {
    let mut story = Story::new();
    story.submitted().placed().starts(1).lost().placed().starts(2).breaks(Invariant::I8);
    let mut story = Story::new();
    story
        .submitted()
        .placed()
        .starts(1)
        .task(1, TaskStep::Halted)
        .lost()
        .placed()
        .starts(2)
        .succeeds()
        .holds();
    story.task(1, TaskStep::Resumed).task(1, TaskStep::Killed).holds();
    let mut story = Story::new();
    story.submitted().placed().starts(1).task(1, TaskStep::Halted).lost().placed().starts(2);
    story.task(1, TaskStep::Resumed).breaks(Invariant::I8);
}

/// I9.
#[test]
fn a_success_that_no_task_had_is_seen() {
    let mut story = Story::new();
    story.submitted().placed().starts(1).task(1, TaskStep::Ended { exit: 1 });
    story.over(ExecutionStatus::Succeeded, JobStatus::Succeeded, Cause::Succeeded).breaks(Invariant::I9);
    let mut story = Story::new();
    story.submitted().placed().starts(1).task(1, TaskStep::Ended { exit: 0 });
    story.over(ExecutionStatus::Failed, JobStatus::Succeeded, Cause::Succeeded).breaks(Invariant::I9);
}

/// I10.
#[test]
fn a_fence_that_starts_twice_and_an_older_epoch_are_seen() {
    Story::new().submitted().placed().starts(1).starts(1).breaks(Invariant::I10);
    let mut story = Story::new();
    story.epoch = 2;
    story.submitted();
    story.epoch = 1;
    story.placed().breaks(Invariant::I10);
}

/// I11, I26 and I30.
#[test]
fn what_is_given_up_or_left_lying_is_seen() {
    let mut story = Story::with(|spec| spec.retry.max_retries = 1);
    story.submitted().placed().starts(1).task(1, TaskStep::Ended { exit: 1 });
    story.row.run_failures = 1;
    story.over(ExecutionStatus::Failed, JobStatus::Failed, Cause::RunFailed).ends().breaks(Invariant::I11);
    Story::new().submitted().ends().breaks(Invariant::I26);
    let mut story = Story::new();
    story.submitted().placed().starts(1).task(1, TaskStep::Ended { exit: 0 }).ends().breaks(Invariant::I30);
}

/// I12.
#[test]
fn a_lost_worker_that_costs_a_retry_and_a_backoff_that_is_cut_short_are_seen() {
    let mut story = Story::new();
    story.submitted().placed();
    story.row.run_failures = 1;
    story.lost().breaks(Invariant::I12);
    let mut story = Story::with(|spec| spec.retry.max_retries = 1);
    story.submitted().placed().starts(1).task(1, TaskStep::Ended { exit: 1 });
    (story.row.run_failures, story.row.due_at) = (1, second(60));
    story.over(ExecutionStatus::Failed, JobStatus::Retrying, Cause::RunFailed).breaks(Invariant::I12);
}

/// I13.
#[test]
fn a_start_after_the_cancellation_and_a_run_beyond_the_timeout_are_seen() {
    let mut story = Story::new();
    story.submitted();
    story.row.cancel_requested = true;
    let row = story.row.clone();
    story.commit(vec![Row::Job(Box::new(row))]).placed().breaks(Invariant::I13);
    let mut story = Story::with(|spec| spec.timeout = Some(Duration::from_secs(1)));
    story.submitted().placed().starts(1);
    story.now += 60;
    story.task(1, TaskStep::Killed).breaks(Invariant::I13);
}

/// I20, I21 and I22.
#[test]
fn more_at_once_than_a_queue_a_key_a_rate_or_a_machine_lets_through_is_seen() {
    let mut story = Story::with(|spec| spec.concurrency = Some(Concurrency { key: "k".into(), limit: 0 }));
    story.submitted().placed().breaks(Invariant::I20);
    let queue = |settings| Row::Queue { name: "default".into(), settings };
    let none = QueueSettings { concurrency: Some(0), ..QueueSettings::default() };
    Story::new().commit(vec![queue(none)]).submitted().placed().breaks(Invariant::I20);
    let slow = QueueSettings { rate_per_second: Some(0.01), burst: Some(1), ..QueueSettings::default() };
    let mut story = Story::new();
    story.commit(vec![queue(slow)]).submitted().placed().lost().placed().breaks(Invariant::I21);
    let capacity = Capacity { cpu: Millicores(50), memory: Bytes(1 << 40), slots: 9, ..Capacity::default() };
    let machine = Row::Worker { worker: WORKER, status: WorkerStatus::Ready, capacity };
    Story::new().commit(vec![machine]).submitted().placed().breaks(Invariant::I22);
}

/// I27 and I28.
#[test]
fn two_owners_of_one_epoch_nobody_for_long_and_another_memory_are_seen() {
    let mut story = Story::new();
    story.submitted();
    story.server = 1;
    story.placed().breaks(Invariant::I27);
    let mut story = Story::new();
    story.event(What::Calm);
    story.now += 60;
    story.event(What::End { unacknowledged: Vec::new() }).breaks(Invariant::I27);
    let rebuilt = What::Rebuilt { server: 0, difference: Some("a job".into()) };
    Story::new().event(rebuilt).breaks(Invariant::I28);
}

// Schedules: every ten seconds from the beginning on.

fn schedule_spec() -> ScheduleSpec {
    let rule = Rule::Every(Every { period: Duration::from_secs(10), phase: Duration::ZERO });
    let timing = Timing { rules: vec![rule], ..Timing::default() };
    let mut spec = ScheduleSpec::new("s", timing, JobSpec::command(["true"]));
    spec.overlap.policy = OverlapPolicy::AllowAll;
    spec
}

fn schedule_row(new: bool, cursor: i64, spec: Option<ScheduleSpec>) -> Row {
    Row::Schedule(Box::new(ScheduleRow {
        schedule: SCHEDULE,
        new,
        spec: spec.map(Arc::new),
        generation: 1,
        status: ScheduleStatus::Active,
        cursor: second(cursor),
        owed: Vec::new(),
        created_at: second(0),
    }))
}

fn line(at: i64, outcome: FiringOutcome, cause: FiringCause, job: Option<JobId>, decided: i64) -> Row {
    Row::Ledger(Box::new(LedgerRecord {
        schedule: SCHEDULE,
        generation: 1,
        first: second(at),
        last: second(at),
        count: 1,
        exact: true,
        outcome,
        cause,
        backfill: None,
        work: job.map(Work::Job),
        decided_at: second(decided),
        detail: None,
        tzdb: "none".into(),
    }))
}

fn run_of(job: JobId, nominal: i64, cause: FiringCause) -> Row {
    let story = Story::new();
    let at = second(nominal);
    let origin = Origin {
        schedule: SCHEDULE,
        name: "s".into(),
        generation: 1,
        scheduled_for: at,
        interval_start: None,
        interval_end: at,
        cause,
        backfill: None,
        start_by: Some(at + Duration::from_secs(5)),
    };
    let step = HistoryEntry {
        at: at + Duration::from_secs(1),
        from: None,
        to: JobStatus::Waiting,
        cause: Cause::Fired,
        execution: None,
        detail: None,
    };
    Row::Job(Box::new(JobRow {
        job,
        spec: Some(Arc::new(story.spec)),
        origin: Some(Arc::new(origin)),
        version: 1,
        steps: vec![step],
        ..story.row
    }))
}

fn scheduled(spec: ScheduleSpec) -> Story {
    let mut story = Story::new();
    story.commit(vec![schedule_row(true, 0, Some(spec))]);
    story
}

const TIMER: FiringCause = FiringCause::Timer;
const CATCH_UP: FiringCause = FiringCause::CatchUp;

/// I14.
#[test]
fn an_instant_has_one_line_not_none_and_not_two() {
    let fired = |at| line(at, FiringOutcome::SkippedPause, TIMER, None, at);
    let mut story = scheduled(schedule_spec());
    story.commit(vec![schedule_row(false, 20, None), fired(10), fired(20)]).holds();
    let mut story = scheduled(schedule_spec());
    story.commit(vec![schedule_row(false, 20, None), fired(20)]).breaks(Invariant::I14);
    let twice = line(10, FiringOutcome::SkippedPolicy, CATCH_UP, None, 10);
    let mut story = scheduled(schedule_spec());
    story.commit(vec![schedule_row(false, 10, None), fired(10), twice]).breaks(Invariant::I14);
}

/// I14.
#[test]
fn a_firing_is_one_step() {
    let line = || line(10, FiringOutcome::Fired, TIMER, Some(JOB), 10);
    let mut story = scheduled(schedule_spec());
    story.commit(vec![run_of(JOB, 10, TIMER), schedule_row(false, 10, None), line()]).holds();
    let mut story = scheduled(schedule_spec());
    story.commit(vec![run_of(JOB, 10, TIMER), schedule_row(false, 0, None), line()]).breaks(Invariant::I14);
    let mut story = scheduled(schedule_spec());
    let rows = vec![run_of(JOB, 10, TIMER), schedule_row(false, 10, None)];
    story.commit(rows).commit(vec![line()]).breaks(Invariant::I14);
}

/// I15.
#[test]
fn an_instant_that_the_rules_do_not_name_is_seen() {
    let wrong = line(7, FiringOutcome::SkippedPause, TIMER, None, 7);
    scheduled(schedule_spec()).commit(vec![schedule_row(false, 7, None), wrong]).breaks(Invariant::I15);
}

/// I16.
#[test]
fn a_decision_before_its_time_and_a_start_after_the_deadline_are_seen() {
    let early = line(10, FiringOutcome::SkippedPause, TIMER, None, 9);
    scheduled(schedule_spec()).commit(vec![schedule_row(false, 10, None), early]).breaks(Invariant::I16);
    let fired = line(10, FiringOutcome::Fired, TIMER, Some(JOB), 10);
    let mut story = scheduled(schedule_spec());
    story.commit(vec![run_of(JOB, 10, TIMER), schedule_row(false, 10, None), fired]);
    story.now = 30;
    story.placed().breaks(Invariant::I16);
}

/// I17.
#[test]
fn more_runs_than_the_overlap_limit_are_seen() {
    let mut spec = schedule_spec();
    spec.overlap.policy = OverlapPolicy::Skip;
    let other = JobId::from_bits(9 << 64);
    let mut rows = vec![schedule_row(false, 20, None)];
    for (at, job) in [(10, JOB), (20, other)] {
        rows.push(run_of(job, at, TIMER));
        rows.push(line(at, FiringOutcome::Fired, TIMER, Some(job), at));
    }
    scheduled(spec).commit(rows).breaks(Invariant::I17);
}

/// I18.
#[test]
fn more_or_earlier_made_up_than_the_policy_says_is_seen() {
    let both = |first: i64, second_: i64, spec: ScheduleSpec| {
        let other = JobId::from_bits(9 << 64);
        let mut rows = vec![schedule_row(false, 20, None)];
        for (at, job) in [(first, JOB), (second_, other)] {
            rows.push(run_of(job, at, CATCH_UP));
            rows.push(line(at, FiringOutcome::FiredLate, CATCH_UP, Some(job), 40));
        }
        let mut story = scheduled(spec);
        story.commit(rows);
        story
    };
    both(10, 20, schedule_spec()).breaks(Invariant::I18);
    let mut all = schedule_spec();
    all.missed.policy = MissedPolicy::FireAll;
    both(10, 20, all.clone()).holds();
    both(20, 10, all).breaks(Invariant::I18);
}

#[test]
fn a_history_is_read_as_it_was_written() {
    let mut story = scheduled(schedule_spec());
    story.submitted().placed().starts(1).succeeds().ends();
    let mut written = Vec::new();
    story.history.write(&mut written).unwrap();
    let read = History::read(written.as_slice()).unwrap();
    assert_eq!(read, story.history);
    assert_eq!(read.fingerprint(), story.history.fingerprint());
    let error = History::read("{}\n".as_bytes()).unwrap_err();
    assert!(error.to_string().starts_with("line 1: not a setup"), "{error}");
}

/// A feed does not say when a commit became durable, and the checker says so.
#[test]
fn what_a_feed_cannot_show_is_not_judged_and_named() {
    let mut story = Story::new();
    let row = story.step(JobStatus::Waiting, Cause::Submitted);
    story.asked().answered().commit(vec![row]).breaks(Invariant::I6);
    story.history.setup.store = StoreView::Feed;
    story.holds();
    let not_judged = check(&story.history).not_judged;
    assert!(not_judged.iter().any(|not| not.invariant == Invariant::I6), "{not_judged:?}");
    story.history.setup.store = StoreView::Commits;
    assert_eq!(check(&story.history).not_judged, []);
}

/// I6. Whenever its commit was: there is none.
#[test]
fn a_task_that_was_never_committed_is_found_in_a_feed_too() {
    let mut story = Story::new();
    story.history.setup.store = StoreView::Feed;
    story.submitted().placed().starts(1).succeeds().holds();
    story.starts(2).breaks(Invariant::I6);
}

/// I12. Without the row that says when it is due, the least that it must wait is known.
#[test]
fn a_backoff_that_is_too_short_is_found_in_a_feed_too() {
    let wait = |seconds: u64| {
        let mut story = Story::with(|spec| {
            spec.retry.max_retries = 1;
            spec.retry.backoff.initial = Duration::from_secs(seconds);
            spec.retry.backoff.jitter = 0.0;
        });
        story.history.setup.store = StoreView::Feed;
        story.submitted().placed().starts(1).task(1, TaskStep::Ended { exit: 1 });
        story.row.run_failures = 1;
        story.over(ExecutionStatus::Failed, JobStatus::Retrying, Cause::RunFailed);
        let row = story.step(JobStatus::Waiting, Cause::BackoffOver);
        story.commit(vec![row]);
        story
    };
    wait(1).holds();
    wait(60).breaks(Invariant::I12);
}

const RUN: RunId = RunId::from_bits(5 << 64);

/// A run of `a`, then `b` that needs it.
fn run_row(new: bool, version: u64, to: RunStatus, cause: RunCause) -> Row {
    let step = |name: &str| StepSpec::job(name, JobSpec::command(["true"]));
    let spec = WorkflowSpec::new("w", vec![step("a"), step("b").needs(["a"])]);
    let from = (!new).then_some(RunStatus::Running);
    let entry = RunHistoryEntry { at: second(1), from, to, cause, detail: None };
    Row::Run(Box::new(RunRow {
        run: RUN,
        new,
        spec: new.then(|| Arc::new(spec)),
        origin: None,
        caller: None,
        trigger: None,
        started: Vec::new(),
        status: to,
        version,
        steps: vec![entry],
    }))
}

fn started() -> Row {
    run_row(true, 1, RunStatus::Running, RunCause::Started)
}

fn succeeded() -> Row {
    run_row(false, 2, RunStatus::Succeeded, RunCause::Succeeded)
}

fn step_row(step: u32, status: StepStatus, cause: StepCause) -> Row {
    Row::Step(Box::new(StepRow { run: RUN, step, item: None, status, cause }))
}

fn goes_on(step: u32) -> Row {
    step_row(step, StepStatus::Running, StepCause::NeedsOver)
}

fn ends(step: u32) -> Row {
    step_row(step, StepStatus::Succeeded, StepCause::JobSucceeded)
}

/// The only row of a step's job.
fn job_of(step: u32, number: u64, status: JobStatus) -> Row {
    let story = Story::new();
    let name = if step == 0 { "a" } else { "b" };
    let origin = StepOrigin { run: RUN, workflow: "w".into(), name: name.into(), step, item: None };
    let cause = if status.is_final() { Cause::CancelRequested } else { Cause::Stepped };
    let entry =
        |from, to, cause| HistoryEntry { at: second(1), from, to, cause, execution: None, detail: None };
    let mut steps = vec![entry(None, JobStatus::Waiting, Cause::Stepped)];
    if status.is_final() {
        steps.push(entry(Some(JobStatus::Waiting), status, cause));
    }
    Row::Job(Box::new(JobRow {
        job: JobId::from_bits(u128::from(number) << 64),
        spec: Some(Arc::new(story.spec)),
        step: Some(Arc::new(origin)),
        version: 1,
        status,
        steps,
        ..story.row
    }))
}

fn told(commits: Vec<Vec<Row>>) -> Story {
    let mut story = Story::new();
    for rows in commits {
        story.commit(rows);
    }
    story
}

const WAITS: JobStatus = JobStatus::Waiting;

/// I19.
#[test]
fn a_step_has_one_job_and_none_if_it_never_began() {
    told(vec![vec![started(), goes_on(0), job_of(0, 11, WAITS)]]).holds();
    let twice = vec![job_of(0, 12, WAITS)];
    told(vec![vec![started(), goes_on(0), job_of(0, 11, WAITS)], twice]).breaks(Invariant::I19);
    let skipped = || step_row(0, StepStatus::Skipped, StepCause::Condition);
    told(vec![vec![started(), skipped()]]).holds();
    told(vec![vec![started(), skipped(), job_of(0, 11, WAITS)]]).breaks(Invariant::I19);
}

/// I19.
#[test]
fn a_step_that_begins_against_its_rule_is_seen() {
    told(vec![vec![started(), ends(0), goes_on(1)]]).holds();
    told(vec![vec![started(), goes_on(0)], vec![ends(0)], vec![goes_on(1)]]).holds();
    told(vec![vec![started(), goes_on(0), goes_on(1)]]).breaks(Invariant::I19);
    let failed = || step_row(0, StepStatus::Failed, StepCause::JobFailed);
    told(vec![vec![started(), failed(), goes_on(1)]]).breaks(Invariant::I19);
    let left_out = || step_row(1, StepStatus::UpstreamFailed, StepCause::Rule);
    told(vec![vec![started(), failed(), left_out()]]).holds();
    told(vec![vec![started(), ends(0), left_out()]]).breaks(Invariant::I19);
}

/// The end of the run, with the runs that it started.
fn succeeded_and_started(runs: &[RunId]) -> Vec<Row> {
    let Row::Run(mut row) = succeeded() else { panic!("the row of a run") };
    row.started = runs.to_vec();
    vec![ends(0), ends(1), Row::Run(row)]
}

/// A run that the end of [`RUN`] started.
fn triggered(id: RunId) -> Row {
    let Row::Run(mut row) = started() else { panic!("the row of a run") };
    let ended = vec![Ended::new(RUN.into(), "w".into(), JobStatus::Succeeded, second(1))];
    row.run = id;
    row.trigger = Some(Arc::new(RunTrigger { number: 0, ended, chain: vec!["w".into()] }));
    Row::Run(row)
}

/// I19.
#[test]
fn an_end_starts_a_run_once_and_in_its_own_commit() {
    let [one, two] = [6, 7].map(|id| RunId::from_bits(id << 64));
    let with = |mut rows: Vec<Row>, more: Vec<Row>| {
        rows.extend(more);
        rows
    };
    let end = || succeeded_and_started(&[one]);
    told(vec![vec![started()], with(end(), vec![triggered(one)])]).holds();
    told(vec![vec![started()], end()]).breaks(Invariant::I19);
    told(vec![vec![started()], end(), vec![triggered(one)]]).breaks(Invariant::I19);
    told(vec![vec![started()], with(end(), vec![triggered(one), triggered(two)])]).breaks(Invariant::I19);
}

/// I19.
#[test]
fn a_run_is_what_all_of_its_steps_came_to() {
    told(vec![vec![started()], vec![ends(0), ends(1), succeeded()]]).holds();
    told(vec![vec![started()], vec![ends(0), succeeded()]]).breaks(Invariant::I19);
    let bad = step_row(1, StepStatus::Failed, StepCause::JobFailed);
    told(vec![vec![started()], vec![ends(0), bad, succeeded()]]).breaks(Invariant::I19);
    let failed = run_row(false, 2, RunStatus::Failed, RunCause::StepFailed);
    told(vec![vec![started()], vec![ends(0), ends(1), failed]]).breaks(Invariant::I19);
}

/// I19.
#[test]
fn a_step_that_does_not_hear_of_its_jobs_end_is_seen() {
    let cancelled = || step_row(0, StepStatus::Cancelled, StepCause::JobCancelled);
    let over = || job_of(0, 11, JobStatus::Cancelled);
    told(vec![vec![started(), cancelled(), over()]]).holds();
    told(vec![vec![started(), goes_on(0), over()], vec![cancelled()]]).breaks(Invariant::I19);
}

/// I5 and I26.
#[test]
fn a_step_after_its_end_and_a_run_that_never_ends_are_seen() {
    let first = || vec![started(), ends(0)];
    told(vec![first(), vec![goes_on(0)]]).breaks(Invariant::I5);
    let mut story = told(vec![first()]);
    story.event(What::Calm).event(What::End { unacknowledged: Vec::new() });
    story.breaks(Invariant::I26);
}

/// A run whose step `b` goes over what tasks of `a` add.
fn growing() -> Row {
    let Row::Run(mut row) = started() else { panic!("the row of a run") };
    let mut spec = (**row.spec.as_ref().unwrap()).clone();
    spec.steps[1].needs.clear();
    spec.steps[1].for_each = Some(ForEach::new(Over::AddedBy(vec!["a".into()])));
    row.spec = Some(Arc::new(spec));
    Row::Run(row)
}

fn batch(name: &str) -> Added {
    Added { run: RUN, step: 1, by: (0, None), batch: name.into() }
}

fn adds(name: &str, first: u32, count: u32) -> Row {
    Row::Elements { added: batch(name), first, count }
}

fn element(item: u32) -> Row {
    let Row::Step(mut row) = ends(1) else { panic!("the row of a step") };
    row.item = Some(item);
    Row::Step(row)
}

/// I19.
#[test]
fn what_tasks_add_is_one_list_without_gaps_and_each_batch_once() {
    let over = || vec![growing(), goes_on(0), goes_on(1)];
    told(vec![over(), vec![adds("x", 0, 2)], vec![adds("y", 2, 1)]]).holds();
    told(vec![over(), vec![adds("x", 0, 2)], vec![adds("y", 3, 1)]]).breaks(Invariant::I19);
    told(vec![over(), vec![adds("x", 0, 2)], vec![adds("x", 2, 2)]]).breaks(Invariant::I19);
}

/// I19.
#[test]
fn a_step_that_leaves_out_what_was_added_is_seen() {
    let end = || step_row(1, StepStatus::Succeeded, StepCause::ItemsOver);
    let added = || vec![growing(), goes_on(0), goes_on(1), adds("x", 0, 2)];
    told(vec![added(), vec![element(0)], vec![ends(0)], vec![element(1), end()]]).holds();
    told(vec![added(), vec![element(0)], vec![ends(0), end()]]).breaks(Invariant::I19);
}

/// I1.
#[test]
fn elements_that_were_told_to_be_added_are_there() {
    let told_of = |first: u32| {
        let mut story = told(vec![vec![growing(), goes_on(0), goes_on(1)]]);
        story.event(What::Asked { request: 9, ask: Ask::Add(batch("x")) });
        story.commit(vec![adds("x", 0, 2)]);
        story.event(What::Answered { request: 9, answer: Answer::Added { first, count: 2 } });
        story
    };
    told_of(0).holds();
    told_of(1).breaks(Invariant::I1);
}
