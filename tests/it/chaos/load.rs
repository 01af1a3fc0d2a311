//! The clients of a storm: they ask, ask again where the outcome is unknown, and write all of it down.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::{Client, Error, ScheduleRef};
use harness::{Recorder, Witness, glance};
use model::api::{StartBackfill, TriggerSchedule};
use model::queue::QueueSettings;
use model::schedule::{MissedPolicy, OverlapPolicy};
use model::spec::{Concurrency, Delivery};
use model::timing::{Cron, Every, Rule, Timing};
use model::{Bytes, JobId, JobSpec, Millicores, RunId, ScheduleId, ScheduleSpec, Timestamp};
use sim::dice::Dice;
use sim::history::{Answer, Ask, What};
use tokio::task::JoinSet;

/// As many clients submit at the same time.
const SUBMITTERS: u64 = 8;
/// A request that has no certain answer after this long will never have one.
const PATIENCE: Duration = Duration::from_secs(180);
/// A queue that lets few jobs through.
const NARROW: &str = "narrow";

/// What all clients share.
#[derive(Clone)]
pub(super) struct Load {
    /// One for each server; they take the first answer, whatever it is.
    pub(super) clients: Vec<Client>,
    /// Whose turn it is: the next one's, whenever one has no certain answer.
    pub(super) turn: Arc<AtomicUsize>,
    pub(super) recorder: Recorder,
    pub(super) witness: Witness,
    /// As many jobs are in flight.
    pub(super) in_flight: u64,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) names: Arc<AtomicU64>,
    /// Runs of workflows that were started, and when.
    pub(super) runs: Arc<Mutex<Vec<(RunId, Timestamp)>>>,
}

/// What an error says about its request.
pub(super) enum Known {
    /// It may have been carried out.
    Nothing,
    /// It was not carried out now, and may be later.
    NotNow,
    /// It will never be.
    Refused,
}

pub(super) fn known(error: &Error) -> Known {
    match error {
        Error::Unreachable { .. } => Known::NotNow,
        Error::Problem(problem) => match (problem.status, problem.code.as_str()) {
            (_, "outcome_unknown" | "http_error") => Known::Nothing,
            (429 | 503 | 507, _) => Known::NotNow,
            _ => Known::Refused,
        },
        _ => Known::Nothing,
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

    /// Asks until the answer is certain; an error is a refusal.
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
                Err(error) => match known(error) {
                    Known::Nothing => Answer::Unknown,
                    Known::NotNow | Known::Refused => Answer::Refused { code: code(error) },
                },
            };
            self.recorder.note(What::Answered { request, answer });
            match result {
                Ok(done) => return Ok(done),
                Err(error) if matches!(known(&error), Known::Refused) => return Err(error),
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{ask:?} has no certain answer: {error}"),
            }
            self.next_server();
            for _ in 0..10 {
                glance().await;
            }
        }
    }

    /// Sets up what the jobs of the storm stand in.
    pub(super) async fn prepare(&self) {
        let settings = QueueSettings { concurrency: Some(6), ..QueueSettings::default() };
        let ask = Ask::Queue { name: NARROW.into() };
        self.ask(ask, || self.client().set_queue(NARROW, &settings, None), |_| Answer::Done)
            .await
            .expect("a queue can be set up");
    }

    /// Clients that submit until they are told to stop.
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
                glance().await;
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
        made.expect("a good spec is accepted").id
    }

    /// Submits a job ten times a second, however many are in flight, until it is `enough`: that says when the next one
    /// is accepted. The other clients wait for jobs to end, of which they hear later.
    pub(super) async fn probe(self, mut dice: Dice, enough: Arc<AtomicBool>) {
        let mut asked = JoinSet::new();
        while !enough.load(Ordering::Relaxed) {
            let (load, spec) = (self.clone(), self.spec(&mut dice));
            asked.spawn(async move { load.submit(spec).await });
            for _ in 0..10 {
                glance().await;
            }
        }
        asked.join_all().await;
    }

    /// What was accepted can be read at once: only a certain answer is written down.
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
            0 => self.witness.job_that("sleep 0.1; if [ $BELFRY_ATTEMPT -eq 1 ]; then tell fail; exit 1; fi"),
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
            spec.timeout = Some("20s".parse().unwrap());
        }
        spec
    }

    /// Schedules of every overlap policy and every missed policy.
    pub(super) async fn apply_schedules(&self) -> Vec<ScheduleId> {
        let mut ids = Vec::new();
        for spec in self.schedules() {
            let apply = || self.client().put_schedule(&spec, None);
            let answer = |schedule: &model::api::Schedule| Answer::Applied { schedule: schedule.id };
            let made = self.ask(Ask::Apply { name: spec.name.clone() }, apply, answer).await;
            ids.push(made.expect("a good schedule is accepted").id);
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
            // Of those that skip, buffer or end one another, each runs longer than its period.
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

    /// Somebody who pauses, resumes, triggers and makes up, until told to stop.
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
            // One thing for about every ten jobs that end; schedules alone keep that going.
            let enough = self.recorder.ended() + 10;
            while !self.is_over() && self.recorder.ended() < enough {
                glance().await;
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

/// Small enough for hundreds on a machine, and tried again soon.
pub(super) fn small(mut spec: JobSpec) -> JobSpec {
    spec.resources.cpu = Some(Millicores(10));
    spec.resources.memory = Some(Bytes(1 << 20));
    spec.retry.max_retries = 50;
    spec.retry.max_start_retries = 50;
    spec.retry.backoff.initial = "50ms".parse().unwrap();
    spec.retry.backoff.max = "1s".parse().unwrap();
    spec
}
