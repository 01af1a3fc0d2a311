//! Clients: their requests, and how they repeat them.
//!
//! A request that is safe to repeat is repeated until its outcome is known. Any other request is abandoned
//! when its outcome is unknown. The history contains exactly what each client knows.
//!
//! [`Op`] is a request to the engine. `schedule_load` spreads all requests of a world over its rough phase;
//! the second half of the file draws their contents. After the faults, `open_all` resumes and opens
//! everything that clients had closed, so that the world can end.
//!
//! The clients have a random generator of their own, so a change here leaves the faults of a seed as they
//! are.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::input::ServiceRequest;
use engine::input::{Key, NewBackfill};
use engine::output::Assignment;
use engine::{Expected, Input, NewJob, NewSchedule, ScheduleRequest, TaskRequest, Ticket, WorkflowRequest};
use model::api::Code;
use model::firing::ScheduleHead;
use model::namespace::{NamespaceSettings, Quota};
use model::queue::QueueSettings;
use model::record::JobHead;
use model::schedule::{Action, Jitter, MissedPolicy, OverlapPolicy, Spread};
use model::spec::{
    Concurrency, Delivery, FinishAction, FinishBy, PriorityClass, RequiredService, UpstreamCondition,
    UpstreamJob,
};
use model::timing::{Cron, Every, Filter, Rule, Timing};
use model::worker::Admission;
use model::workflow::Call;
use model::{
    Bytes, Duration, ExecutionId, Fence, JobId, JobSpec, Millicores, ScheduleId, ScheduleSpec, Timestamp,
    WorkerId,
};

use super::health::Checks;
use super::plan::concern;
use super::server::ServerMessage;
use super::services::{Behavior, ServiceShape, service_name};
use super::store::Store;
use super::task::RunOptions;
use super::{World, WorldEvent};
use crate::check::jobs::TAG;
use crate::dice::Dice;
use crate::history::{Answer, Ask, What};

/// Timeout of a client request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long schedules continue after the faults.
const SCHEDULES_CONTINUE_FOR: Duration = Duration::from_secs(60);

/// Maximum number of schedules that one request applies.
const APPLIED_AT_ONCE: u32 = 1_000;

/// Delay after the faults until everything that clients closed is opened again: after the last pending request.
const OPENED_AFTER: Duration = Duration::from_secs(30);

/// A minute in microseconds.
const MINUTE: i64 = 60_000_000;

/// An operation that a client requests from the engine.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Submit(NewJob),
    Cancel(JobId),
    Update(JobId, Arc<JobHead>),
    Queue(String, QueueSettings),
    Namespace(String, NamespaceSettings),
    Admit(WorkerId, Admission),
    Schedule(ScheduleRequest),
    Workflow(WorkflowRequest),
    Service(ServiceRequest),
    Task(ExecutionId, Fence, TaskRequest),
}

impl Op {
    pub(super) fn input(&self, ticket: Ticket) -> Input {
        match self.clone() {
            Self::Submit(job) => Input::Submit { ticket, jobs: vec![job] },
            Self::Cancel(job) => Input::Cancel { ticket, job, actor: "sim".into(), reason: None },
            Self::Update(job, head) => {
                Input::Update { ticket, job, head, expected_version: None, actor: "sim".into() }
            }
            Self::Queue(name, settings) => Input::SetQueue { ticket, name, settings, expected_version: None },
            Self::Namespace(name, settings) => {
                Input::SetNamespace { ticket, name, settings, expected_version: None }
            }
            Self::Admit(worker, admission) => Input::SetAdmission { ticket, worker, admission },
            Self::Schedule(request) => {
                Input::Schedule { ticket, request: Box::new(request), actor: "sim".into() }
            }
            Self::Workflow(request) => {
                Input::Workflow { ticket, request: Box::new(request), actor: "sim".into() }
            }
            Self::Service(request) => {
                Input::Service { ticket, request: Box::new(request), actor: "sim".into() }
            }
            Self::Task(execution, fence, request) => {
                Input::Task { ticket: Some(ticket), execution, fence, request: Box::new(request) }
            }
        }
    }
}

/// Adds to a submission which upstream jobs have ended, as the API reads it before the engine gets the request.
fn with_ends(op: &Arc<Op>, store: &Store) -> Arc<Op> {
    match &**op {
        Op::Submit(job) if !job.head.spec.after.is_empty() => {
            let upstream = job.head.spec.after.iter();
            let ended = upstream.filter_map(|of| Some((of.job, store.end_of(of.job)?))).collect();
            Arc::new(Op::Submit(NewJob { ended, ..job.clone() }))
        }
        _ => Arc::clone(op),
    }
}

/// A message to a client.
#[derive(Debug, Clone)]
pub(super) enum ClientMessage {
    /// Submits a job.
    Submit,
    Other,
    Apply(u32),
    /// Applies the schedules that fire together, from this index on.
    ApplyTogether(u32),
    ApplyWorkflow(u32),
    StartRun,
    RetryRun,
    AskRun,
    AddElements,
    ApplyService(usize),
    AskService,
    SettleServices,
    DeleteServices,
    Save,
    PauseSchedules,
    OpenAll,
    Answer {
        request: u64,
        attempt: u32,
        answer: Answer,
    },
    TimedOut {
        request: u64,
        attempt: u32,
    },
    Again {
        request: u64,
    },
}

/// Maximum number of upstream jobs of a submission.
const UPSTREAM_JOBS: usize = 3;

#[derive(Debug)]
struct Request {
    op: Arc<Op>,
    ask: Ask,
    submission: Option<Submission>,
    repeatable: bool,
    attempt: u32,
}

/// The parameters of one submission, which are kept for each job in a few bytes.
#[derive(Debug, Clone, Copy)]
struct Submission {
    number: u64,
    template: usize,
    key: Option<u64>,
    run_at: Option<Timestamp>,
    start_deadline: Option<Duration>,
    finish_by: Option<FinishBy>,
    after: [Option<UpstreamJob>; UPSTREAM_JOBS],
    /// Index of a service that the job requires, and the number of replicas.
    requires: Option<(usize, u32)>,
}

impl Submission {
    fn tag(&self) -> String {
        format!("r{}", self.number)
    }

    fn head(&self, templates: &[(JobSpec, Arc<str>)]) -> JobHead {
        let (mut spec, body) = templates[self.template].clone();
        spec.labels.insert(TAG.to_owned(), self.tag());
        (spec.run_at, spec.start_deadline) = (self.run_at, self.start_deadline);
        spec.finish_by = self.finish_by;
        spec.after = self.after.into_iter().flatten().collect();
        let required =
            |(index, min_available)| RequiredService { service: service_name(index), min_available };
        spec.requires = self.requires.map(required).into_iter().collect();
        JobHead { spec: Arc::new(spec), body, retry_of: None, origin: None, step: None, replica: None }
    }
}

/// All clients of a world.
#[derive(Debug)]
pub(super) struct Clients {
    dice: Dice,
    /// Draws everything about workflows.
    pub(super) run_dice: Dice,
    pub(super) save_dice: Dice,
    /// Draws everything about services.
    pub(super) service_dice: Dice,
    pub(super) services: Vec<ServiceShape>,
    upstream_dice: Dice,
    quota_dice: Dice,
    deadline_dice: Dice,
    open: BTreeMap<u64, Request>,
    submitted: u64,
    /// Accepted jobs and their submissions.
    jobs: Vec<(JobId, Submission)>,
    schedules: Vec<ScheduleId>,
    /// Submissions with a key, which may be repeated.
    keyed: Vec<Submission>,
    /// Properties of job specs that a worker needs, by the text of the spec.
    run_options: BTreeMap<Arc<str>, RunOptions>,
    pub(super) templates: Vec<(JobSpec, Arc<str>)>,
    closed: bool,
}

impl Clients {
    pub(super) fn new(seed: u64, with_keys: bool) -> Self {
        let mut dice = Dice::new(seed, concern::CLIENTS);
        let mut deadline_dice = Dice::new(seed, concern::DEADLINES);
        let mut class_dice = Dice::new(seed, concern::CLASSES);
        let mut template = || {
            let mut spec = template(&mut dice, &mut deadline_dice, with_keys);
            spec.priority_class = *class_dice.pick(CLASSES);
            let body = serde_json::to_string(&spec).expect("a spec serializes to JSON").into();
            (spec, body)
        };
        let templates = (0..8).map(|_| template()).collect();
        Self {
            dice,
            run_dice: Dice::new(seed, concern::RUNS),
            save_dice: Dice::new(seed, concern::SAVES),
            service_dice: Dice::new(seed, concern::SERVICES),
            services: Vec::new(),
            upstream_dice: Dice::new(seed, concern::UPSTREAM),
            quota_dice: Dice::new(seed, concern::QUOTAS),
            deadline_dice,
            open: BTreeMap::new(),
            submitted: 0,
            jobs: Vec::new(),
            schedules: Vec::new(),
            keyed: Vec::new(),
            run_options: BTreeMap::new(),
            templates,
            closed: false,
        }
    }

    /// Whether no request is pending, and no more will be made.
    pub(super) fn are_done(&self) -> bool {
        self.open.is_empty() && self.closed
    }

    /// Returns the properties of a job's spec that a worker needs.
    pub(super) fn run_options_of(&mut self, assignment: &Assignment) -> RunOptions {
        let body = &assignment.body;
        *self.run_options.entry(Arc::clone(body)).or_insert_with(|| {
            let spec: JobSpec = serde_json::from_str(body).expect("a body is a serialized spec");
            let replica = Behavior::of(&spec).map(|behavior| (behavior, Checks::of(&spec)));
            RunOptions { delivery: spec.delivery, timeout: spec.timeout, grace: spec.grace, replica }
        })
    }
}

/// Priority classes of jobs, by their frequency.
const CLASSES: &[PriorityClass] = &[
    PriorityClass::High,
    PriorityClass::Normal,
    PriorityClass::Normal,
    PriorityClass::Preemptible,
    PriorityClass::Preemptible,
];

fn template(dice: &mut Dice, deadline_dice: &mut Dice, with_keys: bool) -> JobSpec {
    let mut spec = JobSpec::command(["true"]);
    spec.delivery = *dice.pick(&[Delivery::AtLeastOnce, Delivery::AtMostOnce, Delivery::ExactlyOnce]);
    spec.retry.max_retries = u32::try_from(dice.below(4)).unwrap_or(0);
    spec.retry.max_start_retries = u32::try_from(dice.below(4)).unwrap_or(0);
    spec.retry.max_lost = *deadline_dice.pick(&[0, 1, 2, 5, 5, 5]);
    spec.retry.backoff.initial = dice.millis(100, 3_000);
    spec.resources.cpu = Some(Millicores(100 * (1 + u32::try_from(dice.below(10)).unwrap_or(0))));
    spec.priority = *dice.pick(&[10, 50, 50, 90]);
    spec.namespace = (*dice.pick(&["default", "tenant"])).to_owned();
    spec.queue = (*dice.pick(&["default", "narrow", "slow"])).to_owned();
    spec.grace = *dice.pick(&[Duration::ZERO, Duration::from_secs(2), Duration::from_secs(10)]);
    if dice.chance(0.4) {
        spec.timeout = Some(dice.millis(500, 20_000));
    }
    if with_keys && dice.chance(0.25) {
        let limit = 1 + u32::try_from(dice.below(2)).unwrap_or(0);
        spec.concurrency = Some(Concurrency { key: "k".into(), limit });
    }
    spec
}

impl World {
    pub(super) fn schedule_load(&mut self) {
        let rough = self.plan.rough.as_millis();
        let at = |world: &mut Self| world.begin + world.clients.dice.millis(0, rough);
        let submits: Vec<_> = (0..self.plan.jobs).map(|_| at(self)).collect();
        self.agenda.put_recurring(submits, WorldEvent::Client(ClientMessage::Submit));
        for _ in 0..self.plan.other_asks {
            let at = at(self);
            self.put(at, WorldEvent::Client(ClientMessage::Other));
        }
        for index in 0..self.plan.schedules {
            let early = self.clients.dice.millis(0, rough / 3);
            self.put(self.begin + early, WorldEvent::Client(ClientMessage::Apply(index)));
        }
        for first in (0..self.plan.due_together).step_by(APPLIED_AT_ONCE as usize) {
            self.put(self.begin, WorldEvent::Client(ClientMessage::ApplyTogether(first)));
        }
        self.schedule_runs();
        self.schedule_services();
        for _ in 0..self.plan.saves {
            let at = self.begin + self.clients.save_dice.millis(0, rough);
            self.put(at, WorldEvent::Client(ClientMessage::Save));
        }
    }

    pub(super) fn handle_client_message(&mut self, message: ClientMessage) {
        match message {
            ClientMessage::Submit => self.submit(),
            ClientMessage::Other => self.ask_other(),
            ClientMessage::Apply(index) => self.apply_schedule(index),
            ClientMessage::ApplyTogether(first) => self.apply_together(first),
            ClientMessage::ApplyWorkflow(index) => self.apply_workflow(index),
            ClientMessage::StartRun => self.start_run(),
            ClientMessage::RetryRun => self.retry_run(),
            ClientMessage::AskRun => self.ask_of_run(),
            ClientMessage::AddElements => self.add_elements(),
            ClientMessage::ApplyService(index) => self.apply_service(index),
            ClientMessage::AskService => self.ask_of_service(),
            ClientMessage::SettleServices => self.settle_services(),
            ClientMessage::DeleteServices => self.delete_services(),
            ClientMessage::Save => self.save_checkpoint(),
            ClientMessage::PauseSchedules => self.pause_all(),
            ClientMessage::OpenAll => self.open_all(),
            ClientMessage::Answer { request, attempt, answer } => self.answered(request, attempt, answer),
            ClientMessage::TimedOut { request, attempt } => {
                self.answered(request, attempt, Answer::Unknown);
            }
            ClientMessage::Again { request } => self.attempt(request),
        }
    }

    /// Ends the load after the faults: clients request everything that lets the world end.
    pub(super) fn close_clients(&mut self) {
        self.put_in(OPENED_AFTER, WorldEvent::Client(ClientMessage::OpenAll));
        self.put_in(SCHEDULES_CONTINUE_FOR, WorldEvent::Client(ClientMessage::PauseSchedules));
    }

    // Sending requests.

    pub(super) fn begin_request(&mut self, ask: Ask, op: Arc<Op>, repeatable: bool) {
        self.begin(Request { op, ask, submission: None, repeatable, attempt: 0 });
    }

    fn begin_submission(&mut self, submission: Submission) {
        let head = Arc::new(submission.head(&self.clients.templates));
        let body = u128::from(submission.number);
        let key = submission.key.map(|key| Key { key: key.into(), body });
        let op = Arc::new(Op::Submit(NewJob { head, key, actor: "sim".into(), ended: Vec::new() }));
        let ask = Ask::Submit { tag: submission.tag(), key: submission.key.map(|key| format!("{key:x}")) };
        let (submission, repeatable) = (Some(submission), key.is_some());
        self.begin(Request { op, ask, submission, repeatable, attempt: 0 });
    }

    fn begin(&mut self, asked: Request) {
        let request = self.number();
        self.clients.open.insert(request, asked);
        self.attempt(request);
    }

    fn attempt(&mut self, request: u64) {
        let Some(asked) = self.clients.open.get_mut(&request) else { return };
        asked.attempt += 1;
        let (attempt, op, ask) = (asked.attempt, with_ends(&asked.op, &self.store), asked.ask.clone());
        self.record(What::Asked { request, ask });
        let server = self.clients.dice.below(self.servers.len());
        let delay = self.clients.dice.millis(1, 5);
        let message = ServerMessage::Ask { request, attempt, op };
        self.put_in(delay, WorldEvent::Server { server, life: None, message });
        self.put_in(REQUEST_TIMEOUT, WorldEvent::Client(ClientMessage::TimedOut { request, attempt }));
    }

    pub(super) fn answer(&mut self, request: u64, attempt: u32, answer: Answer) {
        let delay = self.clients.dice.millis(1, 5);
        self.put_in(delay, WorldEvent::Client(ClientMessage::Answer { request, attempt, answer }));
    }

    pub(super) fn answer_loading(&mut self, request: u64, attempt: u32) {
        self.answer(request, attempt, Answer::Refused { code: LOADING.into() });
    }

    pub(super) fn answer_unknown(&mut self, request: u64, attempt: u32) {
        self.answer(request, attempt, Answer::Unknown);
    }

    fn answered(&mut self, request: u64, attempt: u32, answer: Answer) {
        let Some(asked) = self.clients.open.get(&request).filter(|asked| asked.attempt == attempt) else {
            return;
        };
        let again = match &answer {
            Answer::Refused { code } if code == Code::JobNotFound.as_str() => self.knows_upstream(asked),
            Answer::Refused { code } => code == LOADING,
            Answer::Unknown => asked.repeatable,
            _ => false,
        };
        self.record(What::Answered { request, answer: answer.clone() });
        if again {
            let delay = self.clients.dice.millis(100, 2_000);
            return self.put_in(delay, WorldEvent::Client(ClientMessage::Again { request }));
        }
        let asked = self.clients.open.remove(&request);
        match answer {
            Answer::Submitted { job } => {
                self.stats.jobs += 1;
                let found = self.store.has_job(job);
                self.record(What::Read { job, found });
                if let Some(submission) = asked.and_then(|asked| asked.submission) {
                    self.clients.jobs.push((job, submission));
                    self.clients.keyed.extend(submission.key.map(|_| submission));
                }
            }
            Answer::Applied { schedule } if !self.clients.schedules.contains(&schedule) => {
                self.clients.schedules.push(schedule);
            }
            _ => {}
        }
    }

    /// Whether all upstream jobs of a submission exist: then one ended after its status was read.
    fn knows_upstream(&self, asked: &Request) -> bool {
        let upstream = asked.submission.map(|submission| submission.after).unwrap_or_default();
        upstream.iter().flatten().next().is_some()
            && upstream.iter().flatten().all(|of| self.store.has_job(of.job))
    }

    /// Whether a request of this execution to save a checkpoint is still pending.
    pub(super) fn is_saving(&self, execution: ExecutionId) -> bool {
        let of_this = |ask: &Ask| matches!(ask, Ask::Save { execution: other, .. } if *other == execution);
        self.clients.open.values().any(|asked| of_this(&asked.ask))
    }

    // Kinds of requests.

    pub(super) fn submit(&mut self) {
        if self.clients.dice.chance(0.05) && !self.clients.keyed.is_empty() {
            let again = *self.clients.dice.pick(&self.clients.keyed);
            return self.begin_submission(again);
        }
        self.clients.submitted += 1;
        let key = self.clients.dice.chance(0.6).then(|| self.some_key());
        let submission = self.some_submission(self.clients.submitted, key);
        self.begin_submission(submission);
    }

    /// Draws a key: nearly always a new one, sometimes a used one.
    fn some_key(&mut self) -> u64 {
        if self.clients.dice.chance(0.03) {
            self.clients.dice.between(1, 5)
        } else {
            self.clients.dice.number()
        }
    }

    fn some_submission(&mut self, number: u64, key: Option<u64>) -> Submission {
        let dice = &mut self.clients.dice;
        let template = dice.below(self.clients.templates.len());
        let run_at = dice.chance(0.2).then(|| self.now + dice.millis(100, 30_000));
        let start_deadline = dice.chance(0.1).then(|| dice.millis(1_000, 60_000));
        let after = self.some_upstream();
        let (requires, finish_by) = match self.some_required_service() {
            Some((required, finish_by)) => (Some(required), Some(finish_by)),
            None => (None, self.some_finish_by()),
        };
        Submission { number, template, key, run_at, start_deadline, finish_by, after, requires }
    }

    /// Draws a required service for some jobs. They have a completion deadline, because the service may not exist, or may
    /// never become available.
    fn some_required_service(&mut self) -> Option<((usize, u32), FinishBy)> {
        let Clients { service_dice: dice, services, .. } = &mut self.clients;
        if services.is_empty() || !dice.chance(0.15) {
            return None;
        }
        let after = Some(dice.millis(20_000, 200_000));
        let finish_by = FinishBy { at: None, after, action: FinishAction::Fail };
        let min_available = *dice.pick(&[0, 1, 1, 2]);
        Some(((dice.below(services.len()), min_available), finish_by))
    }

    /// Draws a completion deadline for some jobs.
    fn some_finish_by(&mut self) -> Option<FinishBy> {
        let dice = &mut self.clients.deadline_dice;
        if !dice.chance(0.1) {
            return None;
        }
        let action = *dice.pick(FinishAction::ALL);
        let until = dice.millis(500, 60_000);
        let is_relative = dice.chance(0.7);
        Some(FinishBy {
            at: (!is_relative).then(|| self.now + until),
            after: is_relative.then_some(until),
            action,
        })
    }

    /// Draws upstream jobs for some jobs, mostly of the newest.
    fn some_upstream(&mut self) -> [Option<UpstreamJob>; UPSTREAM_JOBS] {
        let Clients { upstream_dice: dice, jobs, .. } = &mut self.clients;
        let mut after = [None; UPSTREAM_JOBS];
        if jobs.is_empty() || !dice.chance(0.2) {
            return after;
        }
        let count = dice.between(1, UPSTREAM_JOBS as u64) as usize;
        for slot in 0..count {
            let newest = if dice.chance(0.8) { jobs.len().min(10) } else { jobs.len() };
            let (job, _) = jobs[jobs.len() - 1 - dice.below(newest)];
            let condition = *dice.pick(UpstreamCondition::ALL);
            if after.iter().flatten().all(|of: &UpstreamJob| of.job != job) {
                after[slot] = Some(UpstreamJob { job, condition });
            }
        }
        after
    }

    fn ask_other(&mut self) {
        let some = self.clients.dice.below(self.clients.jobs.len());
        let (job, known) = self.clients.jobs.get(some).copied().unzip();
        let which = self.clients.dice.below(self.clients.schedules.len());
        let schedule = self.clients.schedules.get(which).copied();
        match (self.clients.dice.below(12), job, schedule) {
            (0..=2, Some(job), _) => self.begin_request(Ask::Cancel { job }, Arc::new(Op::Cancel(job)), true),
            (3, Some(job), _) => {
                let mut head = self.some_submission(0, None).head(&self.clients.templates);
                if let Some(known) = known {
                    let spec = Arc::make_mut(&mut head.spec);
                    spec.labels.insert(TAG.to_owned(), known.tag());
                    spec.namespace.clone_from(&self.clients.templates[known.template].0.namespace);
                    spec.after = known.after.into_iter().flatten().collect();
                }
                let head = Arc::new(head);
                self.begin_request(Ask::Update { job }, Arc::new(Op::Update(job, head)), true);
            }
            (4..=5, ..) => self.set_some_queue(),
            (6, ..) => {
                let (_, workers) = self.store.known();
                if !workers.is_empty() {
                    let worker = *self.clients.dice.pick(&workers);
                    let all = [Admission::Open, Admission::Cordoned, Admission::Draining];
                    let admission = *self.clients.dice.pick(&all);
                    self.admit(worker, admission);
                }
            }
            (7, _, Some(schedule)) => {
                let request = ScheduleRequest::Pause { schedule, note: None, expected_version: None };
                self.begin_request(Ask::Pause { schedule }, Arc::new(Op::Schedule(request)), true);
            }
            (8, _, Some(schedule)) => {
                let request = ScheduleRequest::Resume { schedule, expected_version: None };
                self.begin_request(Ask::Resume { schedule }, Arc::new(Op::Schedule(request)), true);
            }
            (9, _, Some(schedule)) => self.trigger(schedule),
            (10, _, Some(schedule)) if self.clients.dice.chance(0.3) => {
                let request = ScheduleRequest::Delete { schedule, expected_version: None };
                self.begin_request(Ask::Delete { schedule }, Arc::new(Op::Schedule(request)), true);
            }
            (10, _, Some(schedule)) => self.backfill(schedule),
            (11, _, Some(_)) => self.apply_schedule(u32::try_from(which).unwrap_or(0)),
            _ => self.submit(),
        }
    }

    fn set_some_queue(&mut self) {
        let dice = &mut self.clients.dice;
        let (name, settings) = if dice.chance(0.5) {
            let concurrency = Some(1 + u32::try_from(dice.below(4)).unwrap_or(0));
            ("narrow", QueueSettings { concurrency, paused: dice.chance(0.2), ..QueueSettings::default() })
        } else {
            let burst = Some(1 + u32::try_from(dice.below(5)).unwrap_or(0));
            let rate_per_second = Some(dice.fraction(0.2, 5.0));
            ("slow", QueueSettings { rate_per_second, burst, ..QueueSettings::default() })
        };
        let op = Op::Queue(name.to_owned(), settings);
        self.begin_request(Ask::Queue { name: name.to_owned() }, Arc::new(op), true);
        self.set_some_quota();
    }

    fn set_some_quota(&mut self) {
        let dice = &mut self.clients.quota_dice;
        let number = |dice: &mut Dice, most| 1 + u32::try_from(dice.below(most)).unwrap_or(0);
        let quota = match dice.below(4) {
            0 => Quota { cpu: Some(Millicores(500 * number(dice, 6))), ..Quota::default() },
            1 => Quota { running: Some(number(dice, 6)), ..Quota::default() },
            2 => Quota { memory: Some(Bytes(u64::from(number(dice, 8)) << 26)), ..Quota::default() },
            _ => Quota::default(),
        };
        let name = (*dice.pick(&["default", "tenant"])).to_owned();
        let settings = NamespaceSettings { quota, ..NamespaceSettings::default() };
        self.begin_request(
            Ask::Namespace { name: name.clone() },
            Arc::new(Op::Namespace(name, settings)),
            true,
        );
    }

    pub(super) fn admit(&mut self, worker: WorkerId, admission: Admission) {
        let ask = Ask::Queue { name: format!("{worker} {admission:?}") };
        self.begin_request(ask, Arc::new(Op::Admit(worker, admission)), true);
    }

    fn trigger(&mut self, schedule: ScheduleId) {
        let number = self.clients.dice.number();
        let key = self.clients.dice.chance(0.5).then_some(Key { key: number.into(), body: number.into() });
        let request = ScheduleRequest::Trigger { schedule, overlap: None, reason: None, key };
        self.begin_request(Ask::Trigger { schedule }, Arc::new(Op::Schedule(request)), key.is_some());
    }

    fn backfill(&mut self, schedule: ScheduleId) {
        let count = 1 + u32::try_from(self.clients.dice.below(5)).unwrap_or(0);
        let begin = self.begin - Duration::from_hours(100);
        let instants: Vec<_> =
            (0..u64::from(count)).map(|n| (begin + Duration::from_hours(n), None)).collect();
        let request = ScheduleRequest::Backfill(Box::new(NewBackfill {
            schedule,
            from: begin,
            until: instants.last().map_or(begin, |(at, _)| *at),
            scheduled_times: instants.into(),
            concurrency: 1 + u32::try_from(self.clients.dice.below(4)).unwrap_or(0),
            overlap: OverlapPolicy::BufferAll,
            priority: 50,
            note: None,
        }));
        self.begin_request(Ask::Backfill { schedule, count }, Arc::new(Op::Schedule(request)), false);
    }

    /// Creates a schedule, or changes its spec.
    fn apply_schedule(&mut self, index: u32) {
        let name = format!("s{index}");
        let dice = &mut self.clients.dice;
        let (mut job, _) = dice.pick(&self.clients.templates).clone();
        // In half of the cases only the job changes, and the rules stay the same.
        let mut rules = Dice::new(self.plan.seed, 1_000 + u64::from(index));
        if dice.chance(0.5) {
            rules = dice.clone();
        }
        let mut spec = some_schedule(&mut rules, &name, &mut job);
        let mut filters = Dice::new(self.plan.seed, 1_000 * concern::FILTERS + u64::from(index));
        if self.plan.with_filters && filters.chance(0.3) {
            let held = *filters.pick(&["*/2 * * * *", "1-59/3 * * * *"]);
            spec.timing.exclude.push(Filter::Cron(Cron::new(held)));
        }
        if self.plan.workflows > 0 && self.clients.run_dice.chance(0.4) {
            let which = self.clients.run_dice.below(self.plan.workflows as usize);
            let call = Call { name: format!("w{which}"), parameters: Default::default() };
            spec.action = Action::Workflow(call);
        }
        self.apply_all(name, vec![spec]);
    }

    /// Applies schedules that all fire once, at the same time.
    fn apply_together(&mut self, first: u32) {
        let instant = first_minute_after(self.begin);
        let numbers = first..self.plan.due_together.min(first + APPLIED_AT_ONCE);
        let specs = numbers.map(|number| due_once(format!("d{number}"), instant)).collect();
        self.apply_all(format!("d{first}"), specs);
    }

    fn apply_all(&mut self, name: String, specs: Vec<ScheduleSpec>) {
        let new = |spec| {
            let body = serde_json::to_string(&spec).expect("a spec serializes to JSON").into();
            NewSchedule {
                head: Arc::new(ScheduleHead { spec: Arc::new(spec), body }),
                expected: Expected::Any,
            }
        };
        let op = Op::Schedule(ScheduleRequest::Apply { schedules: specs.into_iter().map(new).collect() });
        self.begin_request(Ask::Apply { name }, Arc::new(op), true);
    }

    fn pause_all(&mut self) {
        let (schedules, _) = self.store.known();
        for schedule in schedules {
            let request = ScheduleRequest::Pause { schedule, note: None, expected_version: None };
            self.begin_request(Ask::Pause { schedule }, Arc::new(Op::Schedule(request)), true);
        }
        self.clients.closed = true;
    }

    /// Opens everything. Pending requests that close something are abandoned first.
    fn open_all(&mut self) {
        let holds = |op: &Op| {
            matches!(
                op,
                Op::Queue(..)
                    | Op::Namespace(..)
                    | Op::Admit(..)
                    | Op::Workflow(WorkflowRequest::Pause { .. })
                    | Op::Service(_)
            )
        };
        self.clients.open.retain(|_, asked| !holds(&asked.op));
        self.resume_runs();
        self.repair_services();
        let (_, workers) = self.store.known();
        for worker in workers {
            self.admit(worker, Admission::Open);
        }
        let settings = QueueSettings { concurrency: Some(4), ..QueueSettings::default() };
        let op = Op::Queue("narrow".into(), settings);
        self.begin_request(Ask::Queue { name: "narrow".into() }, Arc::new(op), true);
        let op = Op::Queue("slow".into(), QueueSettings::default());
        self.begin_request(Ask::Queue { name: "slow".into() }, Arc::new(op), true);
        for name in ["default", "tenant"] {
            let op = Op::Namespace(name.into(), NamespaceSettings::default());
            self.begin_request(Ask::Namespace { name: name.into() }, Arc::new(op), true);
        }
    }
}

/// Error code of a server that does not lead.
const LOADING: &str = "loading";

fn first_minute_after(time: Timestamp) -> Timestamp {
    Timestamp::from_micros((time.as_micros() / MINUTE + 1) * MINUTE)
}

fn due_once(name: String, instant: Timestamp) -> ScheduleSpec {
    let rules = vec![Rule::Cron(Cron::new("* * * * *"))];
    let timing = Timing { rules, start: Some(instant), end: Some(instant), ..Timing::default() };
    ScheduleSpec::new(name, timing, JobSpec::command(["true"]))
}

fn some_schedule(dice: &mut Dice, name: &str, job: &mut JobSpec) -> ScheduleSpec {
    let rule = match dice.below(3) {
        0 => Rule::Cron(Cron::new(*dice.pick(&["* * * * *", "*/2 * * * *", "1-59/3 * * * *"]))),
        _ => Rule::Every(Every { period: Duration::from_secs(dice.between(2, 40)), phase: Duration::ZERO }),
    };
    let timing = Timing { rules: vec![rule], ..Timing::default() };
    // Runs of schedules pass through a queue with short waiting times.
    "default".clone_into(&mut job.queue);
    job.concurrency = None;
    let mut spec = ScheduleSpec::new(name, timing, job.clone());
    spec.overlap.policy = *dice.pick(&[
        OverlapPolicy::Skip,
        OverlapPolicy::BufferOne,
        OverlapPolicy::BufferAll,
        OverlapPolicy::CancelOther,
        OverlapPolicy::TerminateOther,
        OverlapPolicy::AllowAll,
    ]);
    spec.overlap.limit = 1 + u32::try_from(dice.below(3)).unwrap_or(0);
    spec.overlap.buffer = 5;
    spec.missed.policy = *dice.pick(&[
        MissedPolicy::Skip,
        MissedPolicy::FireOnce,
        MissedPolicy::FireLast,
        MissedPolicy::FireAll,
    ]);
    spec.missed.last = 2;
    spec.missed.limit = if dice.chance(0.5) { 1_000 } else { 3 };
    if dice.chance(0.3) {
        spec.missed.catch_up_per_minute = Some(u32::try_from(dice.between(1, 30)).unwrap_or(1));
    }
    if dice.chance(0.3) {
        let spread = *dice.pick(&[Spread::Stable, Spread::Random]);
        spec.jitter = Some(Jitter { max: dice.millis(500, 8_000), spread });
    }
    if dice.chance(0.3) {
        spec.start_deadline = Some(Duration::from_secs(dice.between(1, 60)));
    }
    spec
}
