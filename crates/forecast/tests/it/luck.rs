//! Random run times and failures, and their reproducibility.

use forecast::{Plan, RunHistory, RunTimes};
use model::schedule::OverlapPolicy;

use crate::scenario::{Build as _, hours, schedule, secs};

/// Returns a plan with runs of 10 to 100 seconds, of which 10% fail.
fn unsteady() -> Plan {
    let mut plan = hours(24).worker("w1", 2);
    for name in ["a", "b", "c"] {
        let mut spec = schedule(name, "* * * * *");
        spec.overlap.policy = OverlapPolicy::AllowAll;
        plan = plan.with(spec, secs(1));
    }
    let run_times = RunTimes::of_percentiles(&[(0, secs(10)), (90, secs(40)), (100, secs(100))]).unwrap();
    plan.history.schedules.values_mut().for_each(|past| {
        *past = RunHistory { run_times: run_times.clone(), failed: 0.1 };
    });
    plan
}

#[test]
fn the_answer_depends_only_on_plan_and_seed() {
    let plan = unsteady();
    let answer = plan.answer();
    assert_eq!(answer, plan.answer());
    let mut other = plan;
    other.options.seed = 1;
    let other = other.answer();
    assert_eq!(other.summary.firings, answer.summary.firings, "firings are not random");
    assert_ne!(other.schedules[0].busy, answer.schedules[0].busy);
}

/// A what-if change does not change the random run times.
#[test]
fn a_what_if_change_keeps_random_run_times() {
    let (few, many) = (unsteady(), unsteady().worker("w2", 8));
    let (few, many) = (few.answer(), many.answer());
    assert!(few.summary.waiting_most > many.summary.waiting_most);
    for (before, after) in few.schedules.iter().zip(&many.schedules) {
        // A few runs are cut off by the end of the range.
        assert!(after.succeeded.abs_diff(before.succeeded) <= 5, "{before:?}, {after:?}");
    }
}

/// The failure rate counts runs. With retries, attempts fail more often than runs.
#[test]
fn the_failure_rate_of_runs_matches_the_history() {
    let share = |retries| {
        let mut plan = unsteady().worker("w2", 8);
        for schedule in &mut plan.schedules {
            schedule.spec.job_mut().unwrap().retry.max_retries = retries;
        }
        let summary = plan.answer().summary;
        (summary.failed as f64 / (summary.failed + summary.succeeded) as f64, summary.executions)
    };
    let ((alone, tries), (retried, more_tries)) = (share(0), share(2));
    assert!((0.08..0.12).contains(&alone), "{alone}");
    assert!((0.08..0.12).contains(&retried), "{retried}");
    assert!(more_tries > tries + tries / 3, "{tries}, {more_tries}");
}

#[test]
fn a_timeout_limits_the_run_time() {
    let mut spec = schedule("a", "0 * * * *");
    spec.job_mut().unwrap().timeout = Some(secs(30));
    let answer = hours(2).worker("w1", 1).with(spec, secs(90)).answer();
    assert_eq!((answer.summary.failed, answer.schedules[0].busy), (2, secs(60)));
}
