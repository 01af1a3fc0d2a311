//! Overloads: jobs that wait because of workers, limits or policies.

use forecast::Cause;
use model::firing::FiringOutcome;
use model::queue::QueueSettings;
use model::schedule::OverlapPolicy;
use model::spec::{Constraint, Operator};
use model::{Duration, Timestamp};

use crate::scenario::{Build as _, FROM, hours, minutes, schedule, secs, time};

fn after(duration: Duration) -> Timestamp {
    time(FROM) + duration
}

/// Three runs of ten minutes at 02:00, and one CPU: the second waits ten minutes, the third twenty.
#[test]
fn insufficient_workers_cause_an_overload_with_its_reason() {
    let plan = hours(6).worker("w1", 1);
    let plan =
        ["a", "b", "c"].iter().fold(plan, |plan, name| plan.with(schedule(name, "0 2 * * *"), minutes(10)));
    let answer = plan.answer();
    let [window] = answer.overloads.as_slice() else { panic!("{:?}", answer.overloads) };
    assert_eq!((window.from, window.until), (after(minutes(120)), after(minutes(140))));
    assert_eq!((window.jobs, window.waiting_most, window.goes_on), (2, 2, false));
    assert_eq!(window.longest.by, minutes(20));
    assert_eq!(window.group.to_string(), "default");
    assert_eq!(window.why[0].cause, Cause::Cpu);
    let summary = &answer.summary;
    assert_eq!((summary.firings, summary.started, summary.succeeded, summary.late), (3, 3, 3, 2));
    assert_eq!(summary.latest.as_ref().unwrap().by, minutes(20));
    assert_eq!((summary.overloaded, summary.waiting_at_end), (minutes(20), 0));
    // Half an hour of six hours.
    assert_eq!((answer.workers[0].average.cpu, answer.workers[0].most.cpu), (0.0833, 1.0));
    assert_eq!(answer.workers[0].executions, 3);
}

#[test]
fn with_enough_workers_nothing_is_late() {
    let plan = hours(6).worker("w1", 1).worker("w2", 1).worker("w3", 1);
    let plan =
        ["a", "b", "c"].iter().fold(plan, |plan, name| plan.with(schedule(name, "0 2 * * *"), minutes(10)));
    let answer = plan.answer();
    assert_eq!((answer.summary.late, answer.overloads.len(), answer.summary.waiting_at_end), (0, 0, 0));
}

/// A wait of exactly `patience` is no overload.
#[test]
fn a_short_wait_is_no_overload() {
    let plan = hours(1).worker("w1", 1).with(schedule("a", "0 0 * * *"), secs(60));
    let plan = plan.with(schedule("b", "0 0 * * *"), secs(60));
    assert_eq!(plan.answer().overloads.len(), 0);
    let mut hurried = plan;
    hurried.options.patience = secs(59);
    assert_eq!(hurried.answer().overloads.len(), 1);
}

#[test]
fn a_queue_limit_causes_an_overload() {
    let mut plan = hours(2).worker("w1", 8);
    for name in ["a", "b", "c"] {
        let mut spec = schedule(name, "0 1 * * *");
        spec.job_mut().unwrap().queue = "reports".into();
        plan = plan.with(spec, minutes(5));
    }
    plan.queues.insert("reports".into(), QueueSettings { concurrency: Some(1), ..QueueSettings::default() });
    let answer = plan.answer();
    let window = &answer.overloads[0];
    assert_eq!((window.group.queue.as_str(), &window.why[0].cause), ("reports", &Cause::QueueConcurrency));
    assert_eq!((window.jobs, window.longest.by), (2, minutes(10)));
}

#[test]
fn jobs_of_a_paused_queue_wait_until_the_end() {
    let mut plan = hours(2).worker("w1", 8).with(schedule("a", "0 1 * * *"), minutes(5));
    plan.queues.insert("default".into(), QueueSettings { paused: true, ..QueueSettings::default() });
    let answer = plan.answer();
    let window = &answer.overloads[0];
    assert_eq!((window.goes_on, window.until, window.jobs), (true, plan.until, 1));
    assert_eq!(window.why[0].cause, Cause::QueuePaused);
    let summary = &answer.summary;
    assert_eq!((summary.waiting_at_end, summary.started, summary.late), (1, 0, 1));
}

#[test]
fn jobs_without_an_eligible_worker_have_their_own_reason() {
    let mut spec = schedule("a", "0 1 * * *");
    let zone = Constraint { label: "zone".into(), operator: Operator::In, values: vec!["eu".into()] };
    spec.job_mut().unwrap().constraints = vec![zone];
    let answer = hours(2).worker("w1", 8).with(spec, minutes(5)).answer();
    let window = &answer.overloads[0];
    assert_eq!(
        (window.group.to_string().as_str(), &window.why[0].cause),
        ("default zone=eu", &Cause::NoWorker)
    );
}

/// The waiting reason names the insufficient resource: CPU, slots or memory.
#[test]
fn the_reason_names_the_insufficient_resource() {
    let cause = |change: fn(&mut forecast::Plan)| {
        let mut plan = hours(1).worker("w1", 2);
        for name in ["a", "b", "c"] {
            plan = plan.with(schedule(name, "0 0 * * *"), minutes(5));
        }
        change(&mut plan);
        plan.answer().overloads[0].why.iter().map(|holds| holds.cause.clone()).collect::<Vec<_>>()
    };
    assert_eq!(cause(|_| {}), [Cause::Cpu]);
    assert_eq!(cause(|plan| plan.workers[0].capacity.slots = 1), [Cause::Slots]);
    assert_eq!(
        cause(|plan| {
            plan.workers[0].capacity.cpu = model::Millicores(8_000);
            for schedule in &mut plan.schedules {
                schedule.spec.job_mut().unwrap().resources.memory = Some(model::Bytes(1 << 30));
            }
        }),
        [Cause::Memory]
    );
}

/// The engine applies the overlap policies: a run of 15 minutes every 10 minutes is skipped, buffered or concurrent.
#[test]
fn overlap_policies_decide_what_is_skipped_and_what_waits() {
    let with = |policy| {
        let mut spec = schedule("a", "*/10 * * * *");
        spec.overlap.policy = policy;
        hours(1).worker("w1", 8).with(spec, minutes(15)).answer().summary
    };
    let skip = with(OverlapPolicy::Skip);
    assert_eq!((skip.firings, skip.skipped.get(&FiringOutcome::SkippedOverlap)), (3, Some(&3)));
    let all = with(OverlapPolicy::AllowAll);
    assert_eq!((all.firings, all.skipped_in_all(), all.late), (6, 0, 0));
    let buffered = with(OverlapPolicy::BufferAll);
    assert_eq!((buffered.firings, buffered.skipped.get(&FiringOutcome::Buffered)), (4, Some(&2)));
    // At 0:15 for 0:10, at 0:30 for 0:20, at 0:45 for 0:30.
    assert_eq!(buffered.late, 3);
    assert_eq!(buffered.latest.unwrap().by, minutes(15));
    let cancel = with(OverlapPolicy::CancelOther);
    assert_eq!((cancel.firings, cancel.cancelled, cancel.running_at_end), (6, 5, 1));
}

/// A run that cannot start by its deadline expires.
#[test]
fn a_run_that_misses_its_starting_deadline_expires() {
    let mut second = schedule("b", "1 0 * * *");
    second.start_deadline = Some(minutes(5));
    let plan = hours(1).worker("w1", 1).with(schedule("a", "0 0 * * *"), minutes(30));
    let answer = plan.with(second, minutes(1)).answer();
    assert_eq!((answer.summary.expired, answer.schedules[1].expired), (1, 1));
    assert_eq!(answer.overloads[0].longest.by, minutes(5));
}
