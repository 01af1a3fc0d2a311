//! Every check can fail: each test has a constructed history that violates an invariant, and the closest one that
//! does not.
//!
//! This file covers jobs, and what a history can show. [`schedules`], [`workflows`], [`services`] and [`checkpoints`]
//! cover these objects, [`tails`] lost commits.

mod checkpoints;
mod schedules;
mod services;
mod tails;
mod workflows;

use std::sync::Arc;

use model::id::Epoch;
use model::queue::QueueSettings;
use model::record::HistoryEntry;
use model::spec::{Concurrency, Delivery};
use model::worker::{Capacity, WorkerStatus};
use model::{
    Bytes, Cause, Duration, ExecutionId, ExecutionStatus, Fence, JobId, JobSpec, JobStatus, Millicores,
    ScheduleId, Timestamp, WorkerId,
};

use super::{Invariant, check};
use crate::history::{
    Answer, Ask, Commit, Event, ExecutionRow, History, JobRow, Row, StoreView, TaskStep, What,
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

/// Builds a history: one event per second, unless a test moves the time.
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
            replica: None,
            status: JobStatus::Waiting,
            version: 0,
            due_at: second(0),
            executions: 0,
            run_failures: 0,
            start_failures: 0,
            losses: 0,
            overdue: false,
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

    /// Returns the job's next row, with one more transition.
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
            preempted_by: None,
            started_at: None,
            health: None,
        }))
    }

    /// Assigns the next execution.
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

    /// Ends the live execution.
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
        self.row.losses += 1;
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
        assert!(report.breaks(invariant), "{invariant} is not reported as violated: {report:#?}");
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
fn a_normal_history_has_no_violation() {
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
fn a_missing_accepted_job_is_reported() {
    Story::new().asked().answered().breaks(Invariant::I1);
    Story::new().submitted().answered().event(What::Read { job: JOB, found: false }).breaks(Invariant::I1);
}

/// I2.
#[test]
fn two_jobs_with_one_key_are_reported() {
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
fn an_unrequested_job_is_reported() {
    let mut story = Story::new();
    let row = story.step(JobStatus::Waiting, Cause::Submitted);
    story.commit(vec![row]).breaks(Invariant::I3);
}

/// I4.
#[test]
fn a_gap_in_a_history_is_reported() {
    let mut story = Story::new();
    story.submitted();
    story.row.status = JobStatus::Ready;
    story.placed().breaks(Invariant::I4);
}

/// I5.
#[test]
fn an_illegal_transition_and_a_change_after_the_end_are_reported() {
    let mut story = Story::new();
    story.submitted();
    let row = story.step(JobStatus::Succeeded, Cause::Succeeded);
    story.commit(vec![row]).breaks(Invariant::I5);
    let mut story = Story::new();
    story.submitted().placed().starts(1).succeeds();
    story.row.losses += 1;
    let row = story.step(JobStatus::Waiting, Cause::WorkerLost);
    story.commit(vec![row]).breaks(Invariant::I5);
}

/// I6.
#[test]
fn visibility_before_commit_is_reported() {
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
fn a_second_start_of_an_at_most_once_job_is_reported() {
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
    // The same if only one of two assignments is seen to start.
    once().submitted().placed().lost().placed().starts(2).breaks(Invariant::I7);
}

/// I8.
#[test]
fn overlapping_executions_of_a_job_are_reported() {
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
fn a_success_without_a_succeeded_task_is_reported() {
    let mut story = Story::new();
    story.submitted().placed().starts(1).task(1, TaskStep::Ended { exit: 1 });
    story.over(ExecutionStatus::Succeeded, JobStatus::Succeeded, Cause::Succeeded).breaks(Invariant::I9);
    let mut story = Story::new();
    story.submitted().placed().starts(1).task(1, TaskStep::Ended { exit: 0 });
    story.over(ExecutionStatus::Failed, JobStatus::Succeeded, Cause::Succeeded).breaks(Invariant::I9);
}

/// I10.
#[test]
fn a_fence_that_starts_twice_and_an_older_epoch_are_reported() {
    Story::new().submitted().placed().starts(1).starts(1).breaks(Invariant::I10);
    let mut story = Story::new();
    story.epoch = 2;
    story.submitted();
    story.epoch = 1;
    story.placed().breaks(Invariant::I10);
}

/// I11, I26 and I30.
#[test]
fn early_failures_and_stuck_work_are_reported() {
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
fn a_retry_lost_to_a_lost_worker_and_a_short_backoff_are_reported() {
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
fn a_start_after_cancellation_and_an_exceeded_timeout_are_reported() {
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

/// I13. During faults the task may continue; after them it must receive its cancellation.
#[test]
fn a_task_that_never_gets_its_cancellation_is_reported() {
    let runs_on_for = |seconds: i64| {
        let mut story = Story::new();
        story.submitted().placed().starts(1);
        story.row.cancel_requested = true;
        let version = story.row.version + 1;
        let row = JobRow { version, steps: Vec::new(), spec: None, ..story.row.clone() };
        story.commit(vec![Row::Job(Box::new(row))]);
        story.now += 300;
        story.event(What::Calm);
        story.now += seconds;
        story.task(1, TaskStep::Killed);
        story
    };
    runs_on_for(20).holds();
    runs_on_for(300).breaks(Invariant::I13);
}

/// I12. A backoff that ends in the commit that starts it is in no row.
#[test]
fn a_skipped_backoff_is_reported() {
    let mut story = Story::with(|spec| {
        spec.retry.max_retries = 1;
        spec.retry.backoff.initial = Duration::from_secs(60);
    });
    story.submitted().placed().starts(1).task(1, TaskStep::Ended { exit: 1 });
    story.row.run_failures = 1;
    story.step(JobStatus::Retrying, Cause::RunFailed);
    let mut steps = std::mem::take(&mut story.row.steps);
    story.step(JobStatus::Waiting, Cause::BackoffEnded);
    steps.append(&mut story.row.steps);
    story.row.steps = steps;
    let row = Row::Job(Box::new(story.row.clone()));
    let rows = vec![row, story.execution_row(1, ExecutionStatus::Failed, false)];
    story.commit(rows).breaks(Invariant::I12);
}

/// I20, I21 and I22.
#[test]
fn exceeded_limits_of_queues_keys_rates_and_machines_are_reported() {
    let mut story = Story::with(|spec| spec.concurrency = Some(Concurrency { key: "k".into(), limit: 0 }));
    story.submitted().placed().breaks(Invariant::I20);
    let queue = |settings| Row::Queue { name: "default".into(), settings };
    let none = QueueSettings { concurrency: Some(0), ..QueueSettings::default() };
    Story::new().commit(vec![queue(none)]).submitted().placed().breaks(Invariant::I20);
    let slow = QueueSettings { rate_per_second: Some(0.01), burst: Some(1), ..QueueSettings::default() };
    let mut story = Story::new();
    story.commit(vec![queue(slow)]).submitted().placed().lost().placed().breaks(Invariant::I21);
    let capacity = Capacity { cpu: Millicores(50), memory: Bytes(1 << 40), slots: 9, ..Capacity::default() };
    let machine =
        Row::Worker { worker: WORKER, status: WorkerStatus::Ready, admission: Default::default(), capacity };
    Story::new().commit(vec![machine]).submitted().placed().breaks(Invariant::I22);
}

/// I23.
#[test]
fn a_preemption_by_a_job_of_the_same_class_is_reported() {
    let mut story = Story::new();
    story.submitted().placed();
    let Row::Execution(mut row) = story.execution_row(1, ExecutionStatus::Running, false) else { panic!() };
    row.preempted_by = Some(JOB);
    story.commit(vec![Row::Execution(row)]).breaks(Invariant::I23);
}

/// I23.
#[test]
fn a_preemption_that_counts_as_a_loss_is_reported() {
    let mut story = Story::new();
    story.submitted().placed();
    story.row.losses += 1;
    story.over(ExecutionStatus::Cancelled, JobStatus::Waiting, Cause::Preempted).breaks(Invariant::I23);
}

/// I20 and I22.
#[test]
fn ended_executions_free_a_limit_and_repeated_rows_count_once() {
    let story_with_room_for_one = || {
        let mut story =
            Story::with(|spec| spec.concurrency = Some(Concurrency { key: "k".into(), limit: 1 }));
        let settings = QueueSettings { concurrency: Some(1), ..QueueSettings::default() };
        let queue = Row::Queue { name: "default".into(), settings };
        let (cpu, memory) = (Millicores(1_000_000), Bytes(1 << 40));
        let capacity = Capacity { cpu, memory, slots: 1, ..Capacity::default() };
        let machine = Row::Worker {
            worker: WORKER,
            status: WorkerStatus::Ready,
            admission: Default::default(),
            capacity,
        };
        story.commit(vec![queue, machine]).submitted().placed();
        story
    };
    let broken = |story: &Story| {
        let report = check(&story.history);
        [Invariant::I20, Invariant::I22].map(|limit| report.breaks(limit))
    };
    let mut story = story_with_room_for_one();
    let again = story.execution_row(1, ExecutionStatus::Assigned, true);
    story.commit(vec![again]).lost().placed().lost().placed();
    assert_eq!(broken(&story), [false; 2]);
    let mut story = story_with_room_for_one();
    story.placed();
    assert_eq!(broken(&story), [true; 2]);
}

/// I27 and I28.
#[test]
fn two_owners_a_long_gap_and_a_different_engine_state_are_reported() {
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

#[test]
fn a_history_is_read_as_it_was_written() {
    let mut story = schedules::scheduled(schedules::schedule_spec());
    story.submitted().placed().starts(1).succeeds().ends();
    let mut written = Vec::new();
    story.history.write(&mut written).unwrap();
    let read = History::read(written.as_slice()).unwrap();
    assert_eq!(read, story.history);
    assert_eq!(read.fingerprint(), story.history.fingerprint());
    let error = History::read("{}\n".as_bytes()).unwrap_err();
    assert!(error.to_string().starts_with("line 1: not a setup"), "{error}");
}

/// A feed does not contain commit times, and the report says so.
#[test]
fn invariants_that_a_feed_cannot_show_are_listed_as_not_judged() {
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

/// I6. A missing commit is found even though commit times are unknown.
#[test]
fn an_uncommitted_task_is_reported_with_a_feed_too() {
    let mut story = Story::new();
    story.history.setup.store = StoreView::Feed;
    story.submitted().placed().starts(1).succeeds().holds();
    story.starts(2).breaks(Invariant::I6);
}

/// I12. Without the row that contains the end of the backoff, only its minimum is known.
#[test]
fn a_backoff_that_is_too_short_is_reported_with_a_feed_too() {
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
        let row = story.step(JobStatus::Waiting, Cause::BackoffEnded);
        story.commit(vec![row]);
        story
    };
    wait(1).holds();
    wait(60).breaks(Invariant::I12);
}
