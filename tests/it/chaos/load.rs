//! The clients of a fault injection test: they send requests, repeat them while the outcome is unknown, and
//! record everything.
//!
//! - [`Load::submitters`]: clients that submit jobs as fast as earlier ones end, and cancel and read some of
//!   them.
//! - [`Load::probe`]: a steady rate of submissions, which shows when requests are accepted again.
//! - [`Load::operate`]: an operator who pauses, resumes, triggers and backfills schedules.
//!
//! A client changes to the next server after an uncertain answer. [`outcome_of`] decides what an error
//! proves; a request without a certain answer counts as unknown, never as refused.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::{Client, Error, ScheduleRef};
use harness::{Recorder, Witness, poll_pause};
use model::api::{StartBackfill, TriggerSchedule};
use model::queue::QueueSettings;
use model::schedule::{MissedPolicy, OverlapPolicy};
use model::spec::{Concurrency, Delivery, FinishAction, FinishBy, RequiredService};
use model::timing::{Cron, Every, Rule, Timing};
use model::{Bytes, JobId, JobSpec, Millicores, RunId, ScheduleId, ScheduleSpec, Timestamp};
use sim::dice::Dice;
use sim::history::{Answer, Ask, What};
use tokio::task::JoinSet;

/// Number of clients that submit concurrently.
const SUBMITTERS: u64 = 8;
/// Maximum time until a request has a certain answer.
const PATIENCE: Duration = Duration::from_secs(180);
/// A queue with a low concurrency limit.
const NARROW: &str = "narrow";

/// State shared by all clients.
#[derive(Clone)]
pub(super) struct Load {
    /// One client per server, without retries.
    pub(super) clients: Vec<Client>,
    /// Index of the client in use; it advances after each uncertain answer.
    pub(super) turn: Arc<AtomicUsize>,
    pub(super) recorder: Recorder,
    pub(super) witness: Witness,
    /// Maximum number of jobs that have not ended.
    pub(super) in_flight: u64,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) names: Arc<AtomicU64>,
    /// Workflow runs that were started.
    pub(super) runs: Arc<Mutex<Vec<StartedRun>>>,
}

/// A workflow run that was started.
#[derive(Debug, Clone)]
pub(super) struct StartedRun {
    pub(super) id: RunId,
    /// Time from the request to the answer.
    pub(super) during: Range<Timestamp>,
}

/// What an error says about the outcome of its request.
pub(super) enum ErrorOutcome {
    /// The request may have been executed.
    Nothing,
    /// The request was not executed now, but may succeed later.
    NotNow,
    /// The request was refused.
    Refused,
}

pub(super) fn outcome_of(error: &Error) -> ErrorOutcome {
    match error {
        Error::Unreachable { .. } => ErrorOutcome::NotNow,
        Error::Problem(problem) => match (problem.status, problem.code.as_str()) {
            (_, "outcome_unknown" | "http_error") => ErrorOutcome::Nothing,
            (429 | 503 | 507, _) => ErrorOutcome::NotNow,
            _ => ErrorOutcome::Refused,
        },
        _ => ErrorOutcome::Nothing,
    }
}

fn code(error: &Error) -> String {
    error.code().unwrap_or("unreachable").to_owned()
}

impl Load {
    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn client(&self) -> &Client {
        &self.clients[self.turn.load(Ordering::Relaxed) % self.clients.len()]
    }

    pub(super) fn next_server(&self) {
        self.turn.fetch_add(1, Ordering::Relaxed);
    }

    /// Repeats a request until its answer is certain. An error is a refusal.
    async fn ask<T, F: Future<Output = Result<T, Error>>>(
        &self,
        ask: Ask,
        call: impl Fn() -> F,
        answer: impl Fn(&T) -> Answer,
    ) -> Result<T, Error> {
        let (request, begun) = (self.recorder.request(), Instant::now());
        loop {
            self.recorder.note(What::Asked { request, ask: ask.clone() });
            let result = call().await;
            let answer = match &result {
                Ok(done) => answer(done),
                Err(error) => match outcome_of(error) {
                    ErrorOutcome::Nothing => Answer::Unknown,
                    ErrorOutcome::NotNow | ErrorOutcome::Refused => Answer::Refused { code: code(error) },
                },
            };
            self.recorder.note(What::Answered { request, answer });
            match result {
                Ok(done) => return Ok(done),
                Err(error) if matches!(outcome_of(&error), ErrorOutcome::Refused) => return Err(error),
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{ask:?} has no certain answer: {error}"),
            }
            self.next_server();
            for _ in 0..10 {
                poll_pause().await;
            }
        }
    }

    /// Creates the queue that some jobs use.
    pub(super) async fn prepare(&self) {
        let settings = QueueSettings { concurrency: Some(6), ..QueueSettings::default() };
        let ask = Ask::Queue { name: NARROW.into() };
        self.ask(ask, || self.client().set_queue(NARROW, &settings, None), |_| Answer::Done)
            .await
            .expect("creating a queue succeeds");
    }

    /// Starts the clients that submit jobs until they are stopped.
    pub(super) fn submitters(&self, seed: u64) -> Vec<tokio::task::JoinHandle<()>> {
        let clients = (0..SUBMITTERS).map(|n| {
            let (load, dice) = (self.clone(), Dice::new(seed, 100 + n));
            tokio::spawn(load.submit_until_stopped(dice))
        });
        clients.collect()
    }

    async fn submit_until_stopped(self, mut dice: Dice) {
        while !self.is_over() {
            if self.recorder.live() >= self.in_flight {
                poll_pause().await;
                continue;
            }
            let job = self.submit(self.spec(&mut dice)).await;
            if dice.chance(0.1) {
                self.read(job).await;
            }
            if dice.chance(0.04) {
                let cancel = || self.client().cancel_job(job, Some("chaos"));
                self.ask(Ask::Cancel { job }, cancel, |_| Answer::Done).await.ok();
            }
        }
    }

    async fn submit(&self, spec: JobSpec) -> JobId {
        let ask = Ask::Submit { tag: spec.name.clone(), key: spec.idempotency_key.clone() };
        let submit = || self.client().submit(&spec);
        let made = self.ask(ask, submit, |made| Answer::Submitted { job: made.id }).await;
        made.expect("a valid spec is accepted").id
    }

    /// Submits ten jobs a second, whatever the number of live jobs, until `enough` is set. This shows when the next
    /// job is accepted: the other clients wait for ends of jobs, which arrive later.
    pub(super) async fn probe(self, mut dice: Dice, enough: Arc<AtomicBool>) {
        let mut asked = JoinSet::new();
        while !enough.load(Ordering::Relaxed) {
            let (load, spec) = (self.clone(), self.spec(&mut dice));
            asked.spawn(async move { load.submit(spec).await });
            for _ in 0..10 {
                poll_pause().await;
            }
        }
        asked.join_all().await;
    }

    /// Reads an accepted job, which must exist; only a certain answer is recorded.
    pub(super) async fn read(&self, job: JobId) {
        let found = match self.client().job(job).await {
            Ok(_) => true,
            Err(error) if error.status() == Some(404) => false,
            Err(_) => return,
        };
        self.recorder.note(What::Read { job, found });
    }

    fn spec(&self, dice: &mut Dice) -> JobSpec {
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        let mut spec = small(match dice.below(10) {
            0 => self.witness.job_that("pause 0.1; if [ $BELFRY_ATTEMPT -eq 1 ]; then tell fail; exit 1; fi"),
            tenths => self.witness.job(3 + tenths as u32),
        });
        spec.name = format!("r{number}");
        spec.idempotency_key = Some(format!("chaos-{number}"));
        spec.delivery = *dice.pick(&[Delivery::AtLeastOnce, Delivery::AtMostOnce, Delivery::ExactlyOnce]);
        if dice.chance(0.1) {
            spec.queue = NARROW.into();
        } else if dice.chance(0.1) {
            spec.concurrency = Some(Concurrency { key: format!("key-{}", dice.below(3)), limit: 2 });
        } else if dice.chance(0.05) {
            spec.run_at = Some(self.recorder.now() + dice.millis(500, 3_000));
        } else if dice.chance(0.05) {
            let service = super::services::some_name(dice).into();
            spec.requires = vec![RequiredService { service, min_available: 1 }];
            // The services are deleted at the end.
            let after = Some("30s".parse().unwrap());
            spec.finish_by = Some(FinishBy { at: None, after, action: FinishAction::Fail });
        } else if dice.chance(0.05) {
            spec.timeout = Some("20s".parse().unwrap());
        }
        spec
    }

    /// Applies schedules with every overlap policy and every missed run policy.
    pub(super) async fn apply_schedules(&self) -> Vec<ScheduleId> {
        let mut ids = Vec::new();
        for spec in self.schedules() {
            let apply = || self.client().put_schedule(&spec, None);
            let answer = |schedule: &model::api::Schedule| Answer::Applied { schedule: schedule.id };
            let made = self.ask(Ask::Apply { name: spec.name.clone() }, apply, answer).await;
            ids.push(made.expect("a valid schedule is accepted").id);
        }
        ids
    }

    fn schedules(&self) -> Vec<ScheduleSpec> {
        use OverlapPolicy::{AllowAll, BufferAll, BufferOne, CancelOther, Skip, TerminateOther};
        let missed =
            [MissedPolicy::Skip, MissedPolicy::FireOnce, MissedPolicy::FireLast, MissedPolicy::FireAll];
        let overlaps = [Skip, BufferOne, BufferAll, CancelOther, TerminateOther, AllowAll];
        let mut specs = Vec::new();
        for (n, (policy, missed)) in overlaps.into_iter().zip(missed.into_iter().cycle()).enumerate() {
            // With policies that skip, buffer or replace runs, each run takes longer than the period.
            let tenths = if n % 2 == 0 { 3 } else { 18 };
            let period = if policy == BufferAll { "2s" } else { "1500ms" };
            let every = Every { period: period.parse().unwrap(), phase: model::Duration::ZERO };
            let mut spec = self.schedule(&format!("{policy:?}"), Rule::Every(every), tenths);
            spec.overlap.policy = policy;
            spec.missed.policy = missed;
            spec.start_deadline = (policy == Skip).then(|| "20s".parse().unwrap());
            specs.push(spec);
        }
        for policy in missed {
            let mut spec =
                self.schedule(&format!("minute-{policy:?}"), Rule::Cron(Cron::new("* * * * *")), 2);
            spec.missed.policy = policy;
            spec.missed.last = 2;
            specs.push(spec);
        }
        specs
    }

    fn schedule(&self, name: &str, rule: Rule, tenths: u32) -> ScheduleSpec {
        let timing = Timing { rules: vec![rule], ..Timing::default() };
        let mut job = small(self.witness.job(tenths));
        job.name = format!("scheduled-{name}");
        ScheduleSpec::new(name, timing, job)
    }

    /// An operator who pauses, resumes, triggers and backfills schedules until stopped.
    pub(super) async fn operate(self, schedules: Vec<ScheduleId>, mut dice: Dice) {
        while !self.is_over() {
            let id = *dice.pick(&schedules);
            match dice.below(5) {
                0 => self.pause(id).await,
                1 => self.backfill(id).await,
                2 => self.trigger(id).await,
                _ => {
                    let of = ScheduleRef::from(id);
                    let resume = || self.client().resume_schedule(&of);
                    self.ask(Ask::Resume { schedule: id }, resume, |_| Answer::Done).await.ok();
                }
            }
            // One operation for about ten ended jobs; schedules alone keep that number growing.
            let enough = self.recorder.ended() + 10;
            while !self.is_over() && self.recorder.ended() < enough {
                poll_pause().await;
            }
        }
    }

    pub(super) async fn pause(&self, schedule: ScheduleId) {
        let of = ScheduleRef::from(schedule);
        let pause = || self.client().pause_schedule(&of, Some("chaos"));
        self.ask(Ask::Pause { schedule }, pause, |_| Answer::Done).await.ok();
    }

    async fn trigger(&self, schedule: ScheduleId) {
        let (of, how) = (ScheduleRef::from(schedule), TriggerSchedule::default());
        let trigger = || self.client().trigger_schedule(&of, &how);
        self.ask(Ask::Trigger { schedule }, trigger, |_| Answer::Done).await.ok();
    }

    async fn backfill(&self, schedule: ScheduleId) {
        let until = self.recorder.now() - model::Duration::from_secs(60);
        let range = StartBackfill::new(until - model::Duration::from_secs(6), until);
        let of = ScheduleRef::from(schedule);
        let start = || self.client().start_backfill(&of, &range);
        self.ask(Ask::Backfill { schedule, count: 0 }, start, |_| Answer::Done).await.ok();
    }
}

/// Makes a spec small enough for hundreds of jobs on a machine, with a short backoff.
pub(super) fn small(mut spec: JobSpec) -> JobSpec {
    spec.resources.cpu = Some(Millicores(10));
    spec.resources.memory = Some(Bytes(1 << 20));
    spec.retry.max_retries = 50;
    spec.retry.max_start_retries = 50;
    // Faults take worker after worker away; none of that is the job's doing.
    spec.retry.max_lost = 1_000;
    spec.retry.backoff.initial = "50ms".parse().unwrap();
    spec.retry.backoff.max = "1s".parse().unwrap();
    spec
}
