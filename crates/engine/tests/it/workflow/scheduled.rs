//! Runs of schedules: the same rules as for jobs of schedules.
//!
//! `ScheduleBuilder::starts` makes a schedule start runs of a workflow; `load` is the workflow of most tests,
//! with the day as a parameter. `Scenario::scheduled` returns the runs of a schedule, without the runs that
//! they called.
//!
//! The tests repeat the rules of `schedules` where a run differs from a job: versions at the time of the
//! firing, a workflow that cannot start, overlap with several jobs in one run, the end of a run, its retries,
//! and firings that wait for the workers of a run after a takeover.

use engine::input::ExecutionEnd;
use engine::{Reply, ScheduleRequest, WorkflowRequest};
use model::firing::{BackfillStatus, FiringCause, FiringOutcome, LedgerRecord, Origin, ScheduleStatus, Work};
use model::schedule::{Action as Starts, OverlapPolicy};
use model::timing::{Every, Rule};
use model::workflow::{Action, Approval, Call, ElementSource, Parameter, ParameterType};
use model::{Duration, Refusal, RunId, RunStatus, ScheduleId, StepStatus, Timestamp, WorkflowSpec};
use serde_json::{Value, json};

use super::{act, each, env, job};
use crate::scenario::{Scenario, finished};
use crate::schedule_scenario::{ScheduleBuilder, minutes};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// One step, with the day as a parameter.
fn load() -> WorkflowSpec {
    let mut step = job("load", &[]);
    "${{ params.day }} ${{ run.scheduled_for }}".clone_into(env(&mut step, "DAY"));
    let mut spec = WorkflowSpec::new("load", vec![step]);
    let default = Some(json!("none"));
    spec.parameters.insert("day".into(), Parameter::new(ParameterType::String, default));
    spec
}

impl ScheduleBuilder<'_> {
    fn starts(self, workflow: &str, parameters: Value) -> Self {
        let parameters = serde_json::from_value(parameters).unwrap();
        let call = Call { name: workflow.into(), parameters };
        self.spec(|s| s.action = Starts::Workflow(call))
    }
}

impl Scenario {
    /// Returns all runs of a schedule, in order of creation.
    pub(crate) fn scheduled(&self, schedule: ScheduleId) -> Vec<RunId> {
        let own = self.rows.runs.iter().filter(|(_, (head, _))| {
            head.caller.is_none() && head.origin.as_ref().is_some_and(|origin| origin.schedule == schedule)
        });
        own.map(|(&id, _)| id).collect()
    }

    pub(crate) fn origin(&self, run: RunId) -> &Origin {
        self.rows.runs[&run].0.origin.as_deref().unwrap()
    }

    /// Lets time pass up to a time, in a world with workers.
    fn live_until(&mut self, end: Timestamp) {
        while self.now < end {
            self.pass(1);
        }
    }

    /// Another engine takes over, and the workers reconnect.
    fn back(&mut self) {
        self.restart();
        self.rejoin_all();
    }

    fn details(&self, schedule: ScheduleId) -> Vec<String> {
        let detail = |record: &&LedgerRecord| record.detail.as_deref().unwrap_or_default().to_owned();
        self.records(schedule).iter().map(detail).collect()
    }
}

/// C1, B2, I14. A firing creates a run with its data interval, in one commit with its record and the cursor.
#[test]
fn a_schedule_starts_runs_of_a_workflow() {
    let mut t = Scenario::with_room();
    t.apply(&load());
    let given = json!({"day": "${{ firing.interval_start }}"});
    let schedule =
        t.schedule("s").cron("*/5 * * * *").overlap(OverlapPolicy::AllowAll).starts("load", given).apply();
    t.live_until(at("2026-11-21T08:12:00Z"));
    insta::assert_snapshot!(t.ledger(schedule), @"
    08:05:00 fired (timer)
    08:10:00 fired (timer)
    ");
    let runs = t.scheduled(schedule);
    let named: Vec<_> = t.records(schedule).iter().map(|record| record.work).collect();
    assert_eq!(named, [Some(Work::Run(runs[0])), Some(Work::Run(runs[1]))]);
    assert_eq!(t.schedule_state(schedule).last, Some((at("2026-11-21T08:10:00Z"), runs[1].into())));
    let origin = t.origin(runs[1]);
    assert_eq!(origin.scheduled_for, at("2026-11-21T08:10:00Z"));
    assert_eq!((origin.cause, origin.interval_start), (FiringCause::Timer, Some(at("2026-11-21T08:05:00Z"))));
    assert_eq!(&*t.rows.runs[&runs[1]].0.actor, "schedule s");
    // The start of the first interval is unknown: the parameter keeps its default.
    let days: Vec<_> = runs.iter().map(|&run| t.env_of(t.job_of(run, "load"), "DAY")).collect();
    insta::assert_snapshot!(days.join("\n"), @"
    none 2026-11-21T08:05:00Z
    2026-11-21T08:05:00Z 2026-11-21T08:10:00Z
    ");
    t.check_rebuilt();
    for run in runs {
        t.succeed_step(run, "load");
        assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
    }
    let track = t.schedule_state(schedule).statistics.as_deref().unwrap();
    assert_eq!((track.succeeded, track.streak), (2, 2));
}

/// C1. A run uses the versions of its workflow, and of the workflows that it calls, at the time of its
/// firing.
#[test]
fn a_run_is_pinned_to_the_workflow_version_at_its_firing() {
    let mut t = Scenario::with_room();
    let inner = WorkflowSpec::new("inner", vec![job("one", &[])]);
    t.apply(&inner);
    let call = Action::Workflow(Call { name: "inner".into(), parameters: Default::default() });
    t.apply(&WorkflowSpec::new("outer", vec![act("call", &[], call)]));
    let schedule = t
        .schedule("s")
        .cron("*/5 * * * *")
        .overlap(OverlapPolicy::AllowAll)
        .starts("outer", json!({}))
        .apply();
    t.live_until(at("2026-11-21T08:06:00Z"));
    t.apply(&WorkflowSpec::new("inner", vec![job("two", &[])]));
    t.back();
    t.live_until(at("2026-11-21T08:11:00Z"));
    let runs = t.scheduled(schedule);
    let inner_of = |run: RunId| {
        let called = t.row(run, "call").unwrap().called.unwrap();
        t.rows.runs[&called].0.definition.workflow.steps[0].name.clone()
    };
    assert_eq!(runs.iter().map(|&run| inner_of(run)).collect::<Vec<_>>(), ["one", "two"]);
    // A called run is not a run of the schedule.
    assert_eq!(runs.len(), 2);
}

/// C1. One record per range of scheduled times says so, and the schedule continues.
#[test]
fn unstartable_workflow_is_recorded_and_the_schedule_continues() {
    let mut t = Scenario::with_room();
    let given = json!({"day": "${{ firing.scheduled_for }}"});
    let schedule = t.schedule("s").cron("*/5 * * * *").starts("load", given).apply();
    t.live_until(at("2026-11-21T08:11:00Z"));
    let mut strict = load();
    strict.parameters.insert("day".into(), Parameter::new(ParameterType::Integer, None));
    let workflow = t.apply(&strict);
    t.live_until(at("2026-11-21T08:16:00Z"));
    t.apply(&load());
    t.live_until(at("2026-11-21T08:21:00Z"));
    t.request(ScheduleRequest::Pause { schedule, note: None, expected_version: None }).unwrap();
    t.ask_for(WorkflowRequest::Delete { workflow, expected_version: None }).unwrap();
    assert_eq!(t.trigger(schedule).0, FiringOutcome::SkippedOverlap);
    assert_eq!(t.trigger_with(schedule, Some(OverlapPolicy::BufferAll)).0, FiringOutcome::Buffered);
    // The running run continues to its end; the firing buffered behind it finds no workflow.
    t.succeed_step(t.scheduled(schedule)[0], "load");
    insta::assert_snapshot!(t.ledger(schedule), @"
    08:05:00..08:10:00 x2 not_started (timer)
    08:15:00 not_started (timer)
    08:20:00 fired (timer)
    08:21:00 skipped_overlap (manual)
    08:21:00 not_started (manual)
    ");
    insta::assert_snapshot!(t.details(schedule).join("\n"), @r"
    workflow `load` does not exist
    the workflow cannot be started: parameters.day is a string: expected integer

    alice: test; 1 run has not ended
    alice: test; workflow `load` does not exist
    ");
    assert_eq!((t.schedule_state(schedule).fired, t.schedule_state(schedule).buffer.len()), (1, 0));
    t.check_rebuilt();
}

/// B4, I17. Runs count towards the overlap limit like jobs, and are cancelled or killed by the overlap
/// policy.
#[test]
fn overlap_policies_hold_for_runs() {
    let ledger_of = |policy| {
        let mut t = Scenario::with_room();
        let mut spec = load();
        spec.finally.push(job("clean", &[]));
        t.apply(&spec);
        let schedule = t.schedule("s").cron("*/5 * * * *").overlap(policy).starts("load", json!({})).apply();
        t.live_until(at("2026-11-21T08:06:00Z"));
        let first = t.scheduled(schedule)[0];
        t.start(t.job_of(first, "load"));
        t.live_until(at("2026-11-21T08:11:00Z"));
        if t.state(t.job_of(first, "load")).cancel_requested_at.is_some() {
            t.end_with(t.job_of(first, "load"), finished(ExecutionEnd::Stopped, None));
        } else {
            t.succeed_step(first, "load");
        }
        if t.step(first, "clean") == StepStatus::Running {
            t.succeed_step(first, "clean");
        }
        t.check_rebuilt();
        let clean = t.step(first, "clean");
        format!("{}; clean {clean}; {}", t.status_of_run(first), t.ledger(schedule).replace('\n', ", "))
    };
    insta::assert_snapshot!(ledger_of(OverlapPolicy::Skip), @"succeeded; clean succeeded; 08:05:00 fired (timer), 08:10:00 skipped_overlap (timer)");
    insta::assert_snapshot!(ledger_of(OverlapPolicy::BufferOne), @"succeeded; clean succeeded; 08:05:00 fired (timer), 08:10:00 fired_late (timer)");
    insta::assert_snapshot!(ledger_of(OverlapPolicy::CancelOther), @"cancelled; clean succeeded; 08:05:00 fired (timer), 08:10:00 fired_late (timer)");
    insta::assert_snapshot!(ledger_of(OverlapPolicy::TerminateOther), @"cancelled; clean skipped; 08:05:00 fired (timer), 08:10:00 fired_late (timer)");
}

/// B1. A fixed delay counts from the end of the run, not of its first job.
#[test]
fn a_fixed_delay_counts_from_the_end_of_the_run() {
    let mut t = Scenario::with_room();
    t.apply(&WorkflowSpec::new("two", vec![job("a", &[]), job("b", &["a"])]));
    let schedule = t.schedule("s").rule(Rule::After(minutes(5))).starts("two", json!({})).apply();
    t.live_until(at("2026-11-21T08:06:00Z"));
    let run = t.scheduled(schedule)[0];
    t.succeed_step(run, "a");
    t.live_until(at("2026-11-21T08:20:00Z"));
    t.succeed_step(run, "b");
    t.live_until(at("2026-11-21T08:24:00Z"));
    t.back();
    assert_eq!(t.scheduled(schedule).len(), 1);
    t.live_until(at("2026-11-21T08:26:00Z"));
    assert_eq!(t.scheduled(schedule).len(), 2);
}

/// B2. A run that waits for its turn past the start deadline counts as missed.
#[test]
fn a_run_whose_turn_does_not_come_in_time_is_recorded_as_missed() {
    let mut t = Scenario::with_room();
    let spec = WorkflowSpec { max_parallel_runs: Some(1), ..load() };
    let first = t.run(&spec);
    let schedule = t
        .schedule("s")
        .cron("*/5 * * * *")
        .starts("load", json!({}))
        .spec(|s| {
            s.start_deadline = Some(Duration::from_secs(30));
            s.pause_after_failures = Some(1);
        })
        .apply();
    t.live_until(at("2026-11-21T08:05:10Z"));
    let run = t.scheduled(schedule)[0];
    assert_eq!(t.status_of_run(run), RunStatus::Waiting);
    t.back();
    t.live_until(at("2026-11-21T08:05:40Z"));
    insta::assert_snapshot!(t.run_history(run), @"waiting (queued: schedule s) → failed (expired)");
    insta::assert_snapshot!(t.ledger(schedule), @"08:05:00 skipped_deadline (timer)");
    assert_eq!(t.details(schedule), ["the run could not start before its start deadline"]);
    // It counts as a failure of the schedule.
    assert_eq!(t.schedule_state(schedule).status, ScheduleStatus::Paused);
    t.succeed_step(first, "load");
    t.check_rebuilt();
}

/// B5. Runs in the requested order, with the requested concurrency and priority.
#[test]
fn a_backfill_starts_runs_in_order_with_its_priority() {
    let mut t = Scenario::with_room();
    t.apply(&load());
    let given = json!({"day": "${{ firing.scheduled_for }}"});
    let schedule = t.schedule("s").starts("load", given).limit(5).apply();
    let days = ["2026-11-03T00:00:00Z", "2026-11-02T00:00:00Z", "2026-11-01T00:00:00Z"];
    let backfill = t.backfill(schedule, &days, 2);
    assert_eq!(t.scheduled(schedule).len(), 2);
    t.back();
    t.succeed_step(t.scheduled(schedule)[0], "load");
    t.fail_step(t.scheduled(schedule)[1], "load");
    t.succeed_step(t.scheduled(schedule)[2], "load");
    let found: Vec<_> =
        t.scheduled(schedule).iter().map(|&run| t.origin(run).scheduled_for.to_string()).collect();
    assert_eq!(found, days);
    let first = t.scheduled(schedule)[0];
    assert_eq!(t.spec_of(t.job_of(first, "load")).priority, 10);
    assert_eq!(t.env_of(t.job_of(first, "load"), "DAY"), "2026-11-03T00:00:00Z 2026-11-03T00:00:00Z");
    let state = &t.rows.backfills[&backfill].1;
    assert_eq!((state.status, state.succeeded, state.failed), (BackfillStatus::Completed, 2, 1));
}

/// B5. A backfill whose workflow was deleted ends, and records the runs that did not start.
#[test]
fn a_backfill_of_a_missing_workflow_ends_without_runs() {
    let mut t = Scenario::with_room();
    let schedule = t.schedule("s").starts("load", json!({})).apply();
    let backfill = t.backfill(schedule, &["2026-11-03T00:00:00Z", "2026-11-04T00:00:00Z"], 1);
    let state = &t.rows.backfills[&backfill].1;
    assert_eq!((state.status, state.started, state.failed), (BackfillStatus::Completed, 2, 2));
    let outcomes: Vec<_> = t.records(schedule).iter().map(|record| record.outcome).collect();
    assert_eq!(outcomes, [FiringOutcome::NotStarted; 2]);
}

/// A6. The same key finds the same run, also after a restart.
#[test]
fn a_trigger_repeated_with_its_key_returns_the_run() {
    let mut t = Scenario::with_room();
    t.apply(&load());
    let schedule = t.schedule("s").starts("load", json!({})).apply();
    let trigger = |t: &mut Scenario, body| {
        let key = Some(engine::input::Key { key: 7, body });
        t.request(ScheduleRequest::Trigger { schedule, overlap: None, reason: None, key })
    };
    let Ok(Reply::Triggered { work: Some(first), .. }) = trigger(&mut t, 1) else { panic!("it is fired") };
    t.back();
    let Ok(Reply::Triggered { work: Some(again), .. }) = trigger(&mut t, 1) else { panic!("it is known") };
    assert_eq!((first, Some(first)), (again, t.scheduled(schedule).first().map(|&run| run.into())));
    assert!(matches!(trigger(&mut t, 2), Err(Refusal::RunIdempotencyKeyReused { .. })));
}

/// C4. A retried run belongs to the same firing, and counts towards the schedule's limit.
#[test]
fn retried_run_counts_as_a_run_of_its_schedule() {
    let mut t = Scenario::with_room();
    let workflow = t.apply(&load());
    let schedule = t.schedule("s").starts("load", json!({})).apply();
    t.trigger(schedule);
    let first = t.scheduled(schedule)[0];
    t.fail_step(first, "load");
    let again = |t: &Scenario| {
        let origin = Origin { cause: FiringCause::Retry, ..t.origin(first).clone() };
        let new = t.new_run(workflow, &[], &json!({}));
        engine::NewRun { retry_of: Some(first), origin: Some(origin.into()), ..new }
    };
    let run = t.start_with(again(&t));
    let refused = t.ask_for(WorkflowRequest::Start(Box::new(again(&t))));
    assert!(matches!(refused, Err(Refusal::ScheduleRunLimit { runs: 1, .. })), "{refused:?}");
    assert_eq!(t.trigger(schedule).0, FiringOutcome::SkippedOverlap);
    t.check_rebuilt();
    t.succeed_step(run, "load");
    assert_eq!(t.trigger(schedule).0, FiringOutcome::Fired);
}

/// B6, E3. A run ends with its last task: of a step, of an element or of a called run, even if it is reported
/// later.
#[test]
fn outage_does_not_extend_workflow_runs() {
    let called = Action::Workflow(Call { name: "inner".into(), parameters: Default::default() });
    for last in [job("last", &[]), each("last", &[], ElementSource::Shards(1)), act("last", &[], called)] {
        let mut t = Scenario::with_room();
        t.apply(&WorkflowSpec::new("inner", vec![job("x", &[])]));
        t.apply(&WorkflowSpec::new("w", vec![last]));
        let schedule = t.schedule("s").cron("*/10 * * * *").starts("w", json!({})).apply();
        t.live_until(at("2026-11-21T08:10:00Z"));
        let run = t.scheduled(schedule)[0];
        let task = *t.rows.jobs.keys().next_back().unwrap();
        t.start(task);
        t.pass(1);
        t.outage(Duration::from_secs(45));
        t.rejoin_all();
        let mut report = finished(ExecutionEnd::Succeeded, Some(0));
        if let engine::Report::Finished { usage, .. } = &mut report {
            usage.run_time = Duration::from_secs(4);
        }
        t.end_with(task, report);
        t.pass(1);
        assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
        assert_eq!(t.schedule_state(schedule).statistics.as_deref().unwrap().durations, [4_000]);
        let step = t.row(run, "last").unwrap();
        let state = &t.rows.runs[&run].1;
        assert_eq!(state.finished_at.unwrap().since(state.started_at.unwrap()), Duration::from_secs(4));
        assert_eq!(step.finished_at, state.finished_at);
        t.check_rebuilt();
    }
}

/// I14, I28. Wherever a crash happens, each scheduled time has exactly one run.
#[test]
fn restart_at_any_moment_loses_and_repeats_no_run() {
    let mut t = Scenario::with_room();
    let approve =
        Action::Approval(Approval { approvers: Vec::new(), message: None, on_timeout: Default::default() });
    t.apply(&WorkflowSpec::new("w", vec![act("ask", &[], approve)]));
    let every = Rule::Every(Every { period: Duration::from_secs(10), phase: Duration::ZERO });
    let schedule =
        t.schedule("s").rule(every).overlap(OverlapPolicy::BufferAll).limit(2).starts("w", json!({})).apply();
    for second in 0..60 {
        t.pass(1);
        if second % 3 == 0 {
            t.back();
        }
        let open = t.scheduled(schedule).into_iter().find(|&run| !t.status_of_run(run).is_final());
        if let Some(run) = open.filter(|_| second % 13 == 0) {
            let decide = WorkflowRequest::Decide { run, step: "ask".into(), approve: true, note: None };
            t.ask_for(decide).unwrap();
        }
        t.check_rebuilt();
    }
    let records = t.records(schedule);
    let fired: Vec<_> = records.iter().filter_map(|record| record.work).collect();
    let runs: Vec<_> = t.scheduled(schedule).into_iter().map(Work::Run).collect();
    assert_eq!(fired, runs);
    let waiting = records.iter().filter(|record| record.outcome == FiringOutcome::Buffered).count();
    assert_eq!((records.len(), waiting), (6, t.schedule_state(schedule).buffer.len()));
}

/// B2, C2. A run that waits for its retry is unfinished: the overlap policy applies, and the schedule counts
/// only the final outcome.
#[test]
fn schedule_waits_for_the_last_attempt_of_its_run() {
    let mut t = Scenario::with_room();
    let mut spec = load();
    spec.retry.max_retries = 1;
    spec.retry.backoff.initial = Duration::from_secs(240);
    spec.retry.backoff.jitter = 0.0;
    t.apply(&spec);
    let schedule =
        t.schedule("s").cron("*/5 * * * *").overlap(OverlapPolicy::Skip).starts("load", json!({})).apply();
    t.live_until(at("2026-11-21T08:07:00Z"));
    let run = t.scheduled(schedule)[0];
    t.fail_step(run, "load");
    t.check_rebuilt();
    t.live_until(at("2026-11-21T08:10:30Z"));
    assert_eq!(t.status_of_run(run), RunStatus::Retrying);
    assert_eq!(t.schedule_state(schedule).statistics.as_deref().map(|track| track.failed), None);
    t.live_until(at("2026-11-21T08:11:30Z"));
    t.fail_step(run, "load");
    let track = t.schedule_state(schedule).statistics.as_deref().unwrap();
    assert_eq!((track.failed, track.streak), (1, -1));
    t.live_until(at("2026-11-21T08:15:30Z"));
    insta::assert_snapshot!(t.ledger(schedule), @"
    08:05:00 fired (timer)
    08:10:00 skipped_overlap (timer)
    08:15:00 fired (timer)
    ");
}

/// B3, B4. A run whose tasks no worker has reported since the takeover may have ended. So a firing that would
/// be skipped waits for those workers: the task of a step, of an element and of a called run.
#[test]
fn a_firing_waits_for_the_workers_of_a_run_after_a_takeover() {
    let called = Action::Workflow(Call { name: "inner".into(), parameters: Default::default() });
    for step in [job("only", &[]), each("only", &[], ElementSource::Shards(1)), act("only", &[], called)] {
        for is_over in [true, false] {
            let mut t = Scenario::with_room();
            t.apply(&WorkflowSpec::new("inner", vec![job("x", &[])]));
            t.apply(&WorkflowSpec::new("w", vec![step.clone()]));
            let every = Rule::Every(Every { period: Duration::from_secs(10), phase: Duration::ZERO });
            let schedule =
                t.schedule("s").rule(every).overlap(OverlapPolicy::Skip).starts("w", json!({})).apply();
            t.pass(11);
            let task = *t.rows.jobs.keys().next_back().unwrap();
            t.start(task);
            t.outage(Duration::from_secs(8));
            t.pass(3);
            assert_eq!(t.ledger(schedule), "08:00:10 fired (timer)", "08:00:20 is not decided");
            for held in t.players.values_mut().flat_map(|player| player.held.values_mut()) {
                held.1 = !is_over;
            }
            t.rejoin_all();
            if is_over {
                t.succeed(task);
            }
            t.pass(1);
            let outcome = if is_over { "fired_late" } else { "skipped_overlap" };
            assert_eq!(t.ledger(schedule).lines().last().unwrap(), format!("08:00:20 {outcome} (timer)"));
        }
    }
}
