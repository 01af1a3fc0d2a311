//! Simulated environment of the engine: a virtual clock, and workers whose tasks have random run times.
//!
//! [`forecast`] creates the engine with `crate::setup`, then repeats three steps until the end of the range. It
//! advances the clock to the next event, passes the input to the engine, and processes the effects and the batch.
//! Events are ends of tasks, timers of the engine, and checks of overloaded groups.
//!
//! # Cost
//! O(log n) in the running tasks for each start and end.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use engine::input::{ExecutionEnd, HealthReport};
use engine::output::Assignment;
use engine::{Effect, Engine, Input, Reply, Report, Session, Ticket, WorkflowRequest};
use model::record::{JobHead, Outcome, Usage};
use model::spec::HealthStatus;
use model::{Duration, ExecutionId, Fence, Timestamp, WorkerId};

use crate::answer::Answer;
use crate::luck::RandomSource;
use crate::past::RunHistory;
use crate::plan::{Plan, PlanError, QualifiedName};
use crate::setup::{Setup, setup};
use crate::waits::Question;
use crate::watch::{PendingInput, PendingInputKind, Totals};

/// Number of progress reports over a range.
const PROGRESS_REPORTS: i64 = 200;

/// Progress of a forecast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Current virtual time.
    pub now: Timestamp,
    /// Completed fraction of the range, from 0 to 1.
    pub part: f64,
    /// Number of firings that created a job or started a run.
    pub firings: u64,
}

/// Simulates a plan over its range. `told` is called regularly with the progress.
///
/// # Errors
/// [`PlanError`] for an invalid plan.
pub fn forecast(plan: &Plan, told: &mut dyn FnMut(Progress)) -> Result<Answer, PlanError> {
    let Setup { engine, schedules, workers } = setup(plan)?;
    let world = World {
        plan,
        engine,
        now: plan.from,
        watch: Totals::new(plan, schedules, workers),
        tasks: BTreeMap::new(),
        ends: BinaryHeap::new(),
        questions: BTreeMap::new(),
        tickets: 0,
    };
    Ok(world.run(told))
}

/// A running task.
struct Task {
    worker: WorkerId,
    session: Session,
    fence: Fence,
    started_at: Timestamp,
    how: ExecutionEnd,
}

struct World<'a> {
    plan: &'a Plan,
    engine: Engine,
    now: Timestamp,
    watch: Totals<'a>,
    tasks: BTreeMap<ExecutionId, Task>,
    /// End times of tasks, including tasks that were stopped before.
    ends: BinaryHeap<Reverse<(Timestamp, ExecutionId)>>,
    /// Open questions to the engine, with their group.
    questions: BTreeMap<Ticket, usize>,
    tickets: u64,
}

impl World<'_> {
    fn run(mut self, told: &mut dyn FnMut(Progress)) -> Answer {
        let (from, until) = (self.plan.from, self.plan.until);
        let step = ((until.as_micros() - from.as_micros()) / PROGRESS_REPORTS).max(1);
        let mut tell_at = from;
        let cut = loop {
            self.end_tasks();
            self.settle();
            self.ask();
            self.watch.record_waiting_jobs(self.now);
            if self.now >= tell_at {
                told(self.progress());
                tell_at = Timestamp::from_micros(self.now.as_micros() + step);
            }
            let next = self.next().filter(|&next| next < until);
            let cut = self.watch.firings() >= self.plan.options.runs_max;
            let Some(next) = next.filter(|_| !cut) else { break cut };
            self.watch.advance_to(self.now, next);
            self.now = next;
        };
        let end = if cut { self.now } else { until };
        self.watch.advance_to(self.now, end);
        self.watch.finish(end, cut)
    }

    #[expect(clippy::cast_precision_loss, reason = "a part that is shown to people")]
    fn progress(&self) -> Progress {
        let micros = |at: Timestamp| (at.as_micros() - self.plan.from.as_micros()) as f64;
        let part = micros(self.now) / micros(self.plan.until);
        Progress { now: self.now, part, firings: self.watch.firings() }
    }

    /// Returns the time of the next event; always later than now.
    fn next(&self) -> Option<Timestamp> {
        let ends = self.ends.peek().map(|Reverse((at, _))| *at);
        let next =
            [self.engine.next_due(), ends, self.watch.waits.next_check()].into_iter().flatten().min()?;
        Some(next.max(self.now + Duration::from_millis(1)))
    }

    fn end_tasks(&mut self) {
        while let Some(&Reverse((at, execution))) = self.ends.peek() {
            if at > self.now {
                break;
            }
            self.ends.pop();
            if let Some(task) = self.tasks.remove(&execution) {
                self.report_end(execution, &task, task.how);
            }
        }
    }

    fn report_end(&mut self, execution: ExecutionId, task: &Task, how: ExecutionEnd) {
        let (exit_code, error) = match how {
            ExecutionEnd::Succeeded => (Some(0), None),
            ExecutionEnd::Failed => (Some(1), Some("exit_code".into())),
            ExecutionEnd::TimedOut => (None, Some("timeout".into())),
            ExecutionEnd::Stopped | ExecutionEnd::Interrupted => (None, None),
        };
        let outcome = Outcome { exit_code, error, ..Outcome::default() };
        let usage = Usage { run_time: self.now.since(task.started_at), ..Usage::default() };
        let report = Report::Finished { how, outcome, usage };
        self.report(execution, task.worker, task.session, task.fence, report);
    }

    fn report(
        &mut self,
        execution: ExecutionId,
        worker: WorkerId,
        session: Session,
        fence: Fence,
        report: Report,
    ) {
        self.engine.handle(self.now, Input::Report { worker, session, execution, fence, report });
    }

    /// Runs the engine until no decision is left at the current time.
    fn settle(&mut self) {
        loop {
            let output = self.engine.flush(self.now);
            let asked = self.watch.take(output.batch);
            for effect in output.effects {
                self.release(effect);
            }
            for asked in asked {
                self.answer(asked);
            }
            if self.engine.is_idle() {
                break;
            }
        }
    }

    fn release(&mut self, effect: Effect) {
        match effect {
            Effect::Assign { worker, session, assignment } => self.begin(worker, session, &assignment),
            Effect::Stop { execution, .. } => {
                if let Some(task) = self.tasks.remove(&execution) {
                    self.report_end(execution, &task, ExecutionEnd::Stopped);
                }
            }
            Effect::Reply { ticket, reply } => {
                if let (Some(group), Ok(Reply::Why(why))) = (self.questions.remove(&ticket), reply) {
                    self.watch.waits.record_reasons(group, &why.reasons);
                }
            }
            Effect::Welcome { .. } | Effect::Grant { .. } | Effect::Ack { .. } => {}
        }
    }

    /// Starts an assigned execution on its worker.
    fn begin(&mut self, worker: WorkerId, session: Session, assignment: &Assignment) {
        let Assignment { execution, fence, number, .. } = *assignment;
        if self.tasks.contains_key(&execution) {
            return;
        }
        let Some(head) = self.watch.job(assignment.job).map(Arc::clone) else { return };
        if head.replica.is_some() {
            return self.begin_replica(worker, session, assignment, &head);
        }
        let (run_time, how) = self.outcome_of_attempt(&head, number);
        let started_at = self.now;
        self.tasks.insert(execution, Task { worker, session, fence, started_at, how });
        self.ends.push(Reverse((started_at + run_time, execution)));
        self.report(execution, worker, session, fence, Report::Started);
    }

    /// Starts a replica, which is healthy and runs until it is stopped.
    fn begin_replica(&mut self, worker: WorkerId, session: Session, assignment: &Assignment, head: &JobHead) {
        let Assignment { execution, fence, .. } = *assignment;
        let task = Task { worker, session, fence, started_at: self.now, how: ExecutionEnd::Stopped };
        self.tasks.insert(execution, task);
        self.report(execution, worker, session, fence, Report::Started);
        if !head.spec.ports.is_empty() || head.spec.health.is_some() {
            let status = HealthStatus::Healthy;
            let report = HealthReport { execution, fence, status, detail: None, ports: BTreeMap::new() };
            self.engine.handle(self.now, Input::Health { worker, session, reports: vec![report] });
        }
    }

    /// Returns the run time and the result of an attempt.
    fn outcome_of_attempt(&mut self, head: &JobHead, number: u32) -> (Duration, ExecutionEnd) {
        let history = &self.plan.history;
        let known = match (&head.step, &head.origin) {
            (None, Some(origin)) => self.watch.schedule(origin).and_then(|schedule| {
                let spec = &schedule.spec;
                history.schedules.get(&QualifiedName::new(spec.namespace.as_str(), spec.name.as_str()))
            }),
            _ => history.jobs.get(&QualifiedName::new(head.spec.namespace.as_str(), head.spec.name.as_str())),
        };
        if known.is_none() {
            self.watch.assumes(head);
        }
        let past: &RunHistory = known.unwrap_or(&history.otherwise);
        let luck = self.luck(head).number(u64::from(number));
        let millis = past.run_times.at(luck.number(0).fraction()) * self.plan.options.slower;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a finite length of time"
        )]
        let run_time = Duration::from_millis((millis.round() as u64).max(1));
        match head.spec.timeout.filter(|&timeout| timeout <= run_time) {
            Some(timeout) => (timeout, ExecutionEnd::TimedOut),
            None if luck.number(1).fraction()
                < past.attempt_failure_probability(head.spec.retry.max_retries) =>
            {
                (run_time, ExecutionEnd::Failed)
            }
            None => (run_time, ExecutionEnd::Succeeded),
        }
    }

    /// Returns the random source of a job, which does not depend on when and where the job runs.
    fn luck(&self, head: &JobHead) -> RandomSource {
        let mut luck = RandomSource::new(self.plan.options.seed).text(&head.spec.namespace);
        if let Some(origin) = self.watch.origin(head) {
            luck = luck.text(&origin.name).number(origin.scheduled_for.as_micros().unsigned_abs());
        }
        if let Some(step) = &head.step {
            luck = luck.text(&step.workflow).text(&step.name);
            luck = luck.number(step.element.as_ref().map_or(u64::MAX, |item| u64::from(item.index)));
        }
        luck
    }

    /// Sends the approval or the event that a step waits for.
    fn answer(&mut self, asked: PendingInput) {
        let PendingInput { run, step, what } = asked;
        let (request, actor) = match what {
            PendingInputKind::Approval { by } => {
                (WorkflowRequest::Decide { run, step: (*step).into(), approve: true, note: None }, by)
            }
            PendingInputKind::Event { name } => (
                WorkflowRequest::Event { run, event: name.into(), payload: "null".into() },
                "forecast".into(),
            ),
        };
        let ticket = self.ticket();
        self.engine.handle(self.now, Input::Workflow { ticket, request: Box::new(request), actor });
    }

    /// Asks the engine for the waiting reasons of the oldest job of each overloaded group.
    fn ask(&mut self) {
        let mut asked = false;
        while let Some(Question { group, job }) = self.watch.waits.next_question(self.now) {
            let ticket = self.ticket();
            self.questions.insert(ticket, group);
            self.engine.handle(self.now, Input::Why { ticket, job });
            asked = true;
        }
        if asked {
            self.settle();
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }
}
