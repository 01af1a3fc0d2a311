//! Property: scheduled times and ledger records correspond one to one, whatever the order of events.
//!
//! `Wish` is a random schedule: its policies, jitter, deadline, and whether it starts jobs or runs of a
//! workflow. `Step` is a random event: time, outages, pauses, triggers, backfills, ends, cancels and retries.
//! `World` applies the steps to one schedule and one worker. After each step, `check` compares the ledger
//! with the scheduled times up to the cursor, and the unfinished runs with the overlap limit. At the end,
//! `settle` removes all obstacles; then the backlog must become empty.
//!
//! # Cost
//! 200 cases of up to 60 steps, each with up to 4,000 seconds of virtual time at its end.

use std::collections::BTreeMap;

use engine::WorkflowRequest;
use model::firing::{FiringCause, FiringOutcome, ScheduleStatus};
use model::schedule::{Action, Jitter, MissedPolicy, OverlapPolicy, Spread};
use model::timing::{Every, Rule};
use model::workflow::Call;
use model::{Duration, ScheduleId, Timestamp, WorkerId, WorkflowSpec};
use proptest::prelude::*;

use crate::scenario::{Scenario, finished};
use crate::workflow::job;

/// Concurrency of backfills.
const BACKFILL_AT_ONCE: u32 = 2;

#[derive(Debug, Clone)]
struct Wish {
    period: u64,
    overlap: OverlapPolicy,
    limit: u32,
    missed: MissedPolicy,
    rate: Option<u32>,
    jitter: Option<Jitter>,
    deadline: Option<u64>,
    reserve: bool,
    /// What the schedule starts.
    starts: Starts,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Starts {
    Job,
    /// A run of two steps, optionally with at most one run at a time.
    Run {
        one_at_a_time: bool,
    },
}

#[derive(Debug, Clone)]
enum Step {
    Pass(u64),
    Outage(u64),
    Pause,
    Resume,
    Trigger,
    Backfill(u8),
    End(usize, bool),
    Cancel(usize),
    Retry(usize),
    /// Deletes the workflow, or applies it again.
    Workflow,
}

fn wish() -> impl Strategy<Value = Wish> {
    let overlap = prop::sample::select(vec![
        OverlapPolicy::Skip,
        OverlapPolicy::BufferOne,
        OverlapPolicy::BufferAll,
        OverlapPolicy::CancelOther,
        OverlapPolicy::TerminateOther,
        OverlapPolicy::AllowAll,
    ]);
    let missed = prop::sample::select(vec![
        MissedPolicy::Skip,
        MissedPolicy::FireOnce,
        MissedPolicy::FireLast,
        MissedPolicy::FireAll,
    ]);
    let jitter = prop::option::of((1u64..90, any::<bool>()).prop_map(|(max, stable)| Jitter {
        max: Duration::from_secs(max),
        spread: if stable { Spread::Stable } else { Spread::Random },
    }));
    let rate = prop::option::of(1u32..30);
    let deadline = prop::option::of(1u64..40);
    let starts = prop_oneof![
        Just(Starts::Job),
        any::<bool>().prop_map(|one_at_a_time| Starts::Run { one_at_a_time }),
    ];
    (3u64..40, overlap, 1u32..4, missed, rate, jitter, deadline, any::<bool>(), starts).prop_map(
        |(period, overlap, limit, missed, rate, jitter, deadline, reserve, starts)| Wish {
            period,
            overlap,
            limit,
            missed,
            rate,
            jitter,
            deadline,
            reserve: reserve && starts == Starts::Job,
            starts,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1u64..60).prop_map(Step::Pass),
        2 => (5u64..400).prop_map(Step::Outage),
        1 => Just(Step::Pause),
        1 => Just(Step::Resume),
        2 => Just(Step::Trigger),
        1 => (1u8..6).prop_map(Step::Backfill),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(i, good)| Step::End(i, good)),
        1 => any::<usize>().prop_map(Step::Cancel),
        1 => any::<usize>().prop_map(Step::Retry),
        1 => Just(Step::Workflow),
    ]
}

struct World {
    t: Scenario,
    worker: WorkerId,
    schedule: ScheduleId,
    wish: Wish,
    born: Timestamp,
}

impl World {
    fn new(wish: Wish) -> Self {
        let mut t = Scenario::new();
        let worker = t.worker().cpu(2_000).join();
        let born = t.now;
        let rule = Rule::Every(Every { period: Duration::from_secs(wish.period), phase: Duration::ZERO });
        let schedule = t
            .schedule("s")
            .rule(rule)
            .overlap(wish.overlap)
            .limit(wish.limit)
            .missed(wish.missed)
            .spec(|s| {
                s.missed.last = 3;
                s.missed.catch_up_per_minute = wish.rate;
                s.jitter = wish.jitter;
                s.start_deadline = wish.deadline.map(Duration::from_secs);
                s.reserve_ahead = wish.reserve.then(|| Duration::from_secs(5));
                s.job_mut().unwrap().resources.cpu = Some(model::Millicores(1_000));
                if wish.starts != Starts::Job {
                    let call = Call { name: "two".into(), parameters: Default::default() };
                    s.action = Action::Workflow(call);
                }
            })
            .apply();
        let mut world = Self { t, worker, schedule, wish, born };
        world.toggle_workflow();
        world
    }

    /// Applies the workflow, or deletes it if none of its runs is waiting.
    fn toggle_workflow(&mut self) {
        let Starts::Run { one_at_a_time } = self.wish.starts else { return };
        if let Some(&workflow) = self.t.rows.workflows.keys().next() {
            let _ = self.t.ask_for(WorkflowRequest::Delete { workflow, expected_version: None });
        } else {
            let mut spec = WorkflowSpec::new("two", vec![job("a", &[]), job("b", &["a"])]);
            spec.max_parallel_runs = one_at_a_time.then_some(1);
            self.t.apply(&spec);
        }
    }

    /// Returns the number of unfinished jobs and runs of the schedule.
    fn open(&self) -> usize {
        let runs = self.t.scheduled(self.schedule);
        let runs = runs.into_iter().filter(|&run| !self.t.status_of_run(run).is_final());
        self.t.open_runs(self.schedule).len() + runs.count()
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Pass(seconds) => self.t.pass(seconds),
            Step::Outage(seconds) => {
                self.t.outage(Duration::from_secs(seconds));
                self.t.rejoin(self.worker);
            }
            Step::Pause => self.t.pause(self.schedule),
            Step::Resume => self.t.resume(self.schedule),
            Step::Trigger => {
                self.t.trigger(self.schedule);
            }
            Step::Backfill(count) => {
                let days: Vec<String> =
                    (1..=count).map(|day| format!("2026-11-{day:02}T00:00:00Z")).collect();
                let days: Vec<&str> = days.iter().map(String::as_str).collect();
                // A second backfill of the same days has no times left.
                let _ = self.t.try_backfill(self.schedule, &days, BACKFILL_AT_ONCE);
            }
            Step::End(index, good) => self.end(index, good),
            Step::Cancel(index) => {
                let open = self.t.open_runs(self.schedule);
                if !open.is_empty() {
                    let _ = self.t.cancel(open[index % open.len()]);
                }
                let runs = self.t.scheduled(self.schedule);
                if !runs.is_empty() {
                    let run = runs[index % runs.len()];
                    let _ =
                        self.t.ask_for(WorkflowRequest::Cancel { run, reason: None, skip_finally: false });
                }
            }
            Step::Retry(index) => self.retry(index),
            Step::Workflow => self.toggle_workflow(),
        }
        self.obey();
        self.check();
    }

    fn end(&mut self, index: usize, good: bool) {
        let assigned: Vec<_> = self.t.players[&self.worker].assigned.iter().map(|a| a.job).collect();
        for job in assigned {
            self.t.start(job);
        }
        let jobs = self.t.rows.jobs.iter();
        let running = jobs.filter(|(_, (_, state))| state.status == model::JobStatus::Running);
        let running: Vec<_> = running.map(|(&job, _)| job).collect();
        if running.is_empty() {
            return;
        }
        let job = running[index % running.len()];
        if good { self.t.succeed(job) } else { self.t.fail(job, 1) }
    }

    fn retry(&mut self, index: usize) {
        self.retry_run(index);
        let ended: Vec<_> = self.t.runs(self.schedule);
        let ended: Vec<_> = ended.into_iter().filter(|&job| self.t.status(job).is_final()).collect();
        if ended.is_empty() {
            return;
        }
        let (head, _) = &self.t.rows.jobs[&ended[index % ended.len()]];
        let mut head = head.clone();
        let mut origin = (**head.origin.as_ref().unwrap()).clone();
        origin.cause = FiringCause::Retry;
        origin.backfill = None;
        head.origin = Some(origin.into());
        let new = engine::NewJob { head: head.into(), key: None, actor: "alice".into(), ended: Vec::new() };
        let _ = self.t.ask(|ticket| engine::Input::Submit { ticket, jobs: vec![new] });
    }

    fn retry_run(&mut self, index: usize) {
        let ended = self.t.scheduled(self.schedule);
        let ended: Vec<_> = ended.into_iter().filter(|&run| self.t.status_of_run(run).is_final()).collect();
        let Some(&workflow) = self.t.rows.workflows.keys().next().filter(|_| !ended.is_empty()) else {
            return;
        };
        let run = ended[index % ended.len()];
        let mut origin = self.t.origin(run).clone();
        (origin.cause, origin.backfill) = (FiringCause::Retry, None);
        let new = self.t.new_run(workflow, &[], &serde_json::json!({}));
        let new = engine::NewRun { retry_of: Some(run), origin: Some(origin.into()), ..new };
        let _ = self.t.ask_for(WorkflowRequest::Start(Box::new(new)));
    }

    /// Stops what the engine told the worker to stop.
    fn obey(&mut self) {
        loop {
            let player = self.t.players.get_mut(&self.worker).unwrap();
            let Some((execution, fence)) = player.stopped.pop_first() else { return };
            if player.held.get(&execution).is_some_and(|(_, running)| *running) {
                self.t.report(
                    self.worker,
                    execution,
                    fence,
                    finished(engine::input::ExecutionEnd::Stopped, None),
                );
            } else {
                let player = self.t.players.get_mut(&self.worker).unwrap();
                player.assigned.retain(|a| a.execution != execution);
                player.held.entry(execution).or_insert((fence, false));
                let reason = "stopped before it started".into();
                self.t.report(self.worker, execution, fence, engine::Report::Refused { reason });
            }
        }
    }

    /// I14, I16, I17: every scheduled time up to the cursor has exactly one record or is owed, none is early,
    /// and the number of unfinished runs is within the limit.
    fn check(&self) {
        let state = self.t.schedule_state(self.schedule);
        let period = i64::try_from(self.wish.period).unwrap() * 1_000_000;
        let mut seen: BTreeMap<i64, u32> = BTreeMap::new();
        for record in self.t.records(self.schedule) {
            if !matches!(record.cause, FiringCause::Timer | FiringCause::CatchUp) {
                continue;
            }
            assert!(record.decided_at >= record.last, "early: {record:?}");
            let (first, last) = (record.first.as_micros(), record.last.as_micros());
            let instants: Vec<i64> = (0..record.count.cast_signed()).map(|n| first + n * period).collect();
            assert_eq!(instants.last(), Some(&last), "{record:?} has gaps");
            for instant in instants {
                *seen.entry(instant).or_default() += 1;
            }
        }
        let begin = (self.born.as_micros() / period + 1) * period;
        let expected = (0..).map(|n| begin + n * period).take_while(|&at| at <= state.cursor.as_micros());
        let is_owed =
            |at: i64| state.owed.iter().any(|gap| gap.after.as_micros() < at && at <= gap.until.as_micros());
        let expected: Vec<i64> = expected.filter(|&at| !is_owed(at)).collect();
        assert!(seen.values().all(|&count| count == 1), "a scheduled time has two records: {seen:?}");
        assert_eq!(seen.keys().copied().collect::<Vec<_>>(), expected, "{}", self.t.ledger(self.schedule));
        if self.wish.overlap != OverlapPolicy::AllowAll {
            let open = self.open();
            // Or the concurrency of a backfill, if that is higher.
            assert!(open <= self.wish.limit.max(BACKFILL_AT_ONCE) as usize, "{open} runs are open");
        }
        let buffered = self.t.records(self.schedule);
        let buffered = buffered.iter().filter(|r| r.outcome == FiringOutcome::Buffered).count();
        assert_eq!(buffered, state.buffer.len(), "buffered firings and their records");
        self.check_runs();
        if self.wish.starts != Starts::Job {
            self.t.check_rebuilt();
        }
    }

    /// I14: the runs of the schedule are those in its ledger, and manual retries.
    fn check_runs(&self) {
        let mut named: Vec<_> = self.t.rows.ledger.values().filter_map(|r| r.work?.run()).collect();
        named.sort_unstable();
        let tried_first = |run: &model::RunId| self.t.origin(*run).cause != FiringCause::Retry;
        let made: Vec<_> = self.t.scheduled(self.schedule).into_iter().filter(tried_first).collect();
        assert_eq!(named, made, "runs in the ledger, and runs");
    }

    /// Once nothing is blocked, every due firing is decided and every run ends.
    fn settle(&mut self) {
        self.t.resume(self.schedule);
        if self.t.rows.workflows.is_empty() {
            self.toggle_workflow();
        }
        for second in 0..4_000 {
            // Owed firings run between the current ones.
            let owes = self.wish.rate.is_none() && !self.t.schedule_state(self.schedule).owed.is_empty();
            if second >= 400 && !owes && !(self.must_end_backfills() && self.has_running_backfill()) {
                break;
            }
            self.end(0, true);
            self.obey();
            self.t.pass(1);
        }
        let state = self.t.schedule_state(self.schedule);
        assert_eq!(state.status, ScheduleStatus::Active);
        let backlog = self.t.now.since(state.cursor).as_millis() / 1_000;
        assert!(backlog <= self.wish.period + 90, "{backlog} s behind");
        if self.wish.rate.is_none() {
            assert!(state.owed.is_empty(), "{:?} is still owed", state.owed);
        }
        if self.must_end_backfills() {
            assert!(!self.has_running_backfill(), "a backfill never ends");
        }
    }

    /// Returns whether current firings always leave room for the runs of backfills.
    fn must_end_backfills(&self) -> bool {
        self.wish.overlap == OverlapPolicy::Skip && self.wish.limit > 1
    }

    fn has_running_backfill(&self) -> bool {
        let mut backfills = self.t.rows.backfills.values();
        backfills.any(|(_, state)| state.status == model::firing::BackfillStatus::Running)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// B2, B3, B4, I14, I16, I17, I18, I28.
    #[test]
    fn every_scheduled_time_has_one_record(
        wish in wish(), steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut world = World::new(wish);
        for step in &steps {
            world.apply(step);
        }
        world.settle();
        world.check();
    }
}
