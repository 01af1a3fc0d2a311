//! The state stays small, whatever happens.

use super::*;
use crate::timer::Timer;

fn purges(t: &Scene) -> usize {
    t.alerts.timers.iter().filter(|(_, timer)| *timer == Timer::Purge).count()
}

/// Returns rules without channels.
fn quiet_rules(count: usize) -> Vec<Value> {
    (0..count).map(|n| json!({"name": format!("r{n}"), "when": {"job_failed": {}}, "notify": []})).collect()
}

#[test]
fn alerts_that_end_in_a_long_silence_are_bounded() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    hold(&mut t, Duration::from_hours(24 * 366));
    for id in 0..10_500 {
        t.ends(2 * id, "a", JobStatus::Failed);
        t.ends(2 * id + 1, "a", JobStatus::Succeeded);
    }
    t.pass(HOUR);
    assert!(t.alerts.alerts.len() <= limits::RESOLVED_MAX, "{} alerts", t.alerts.alerts.len());
}

#[test]
fn a_purge_has_one_timer() {
    let mut t = Scene::new(&quiet_rules(21));
    for id in 0..999 {
        let job = t.job(id, &format!("job-{id}"));
        t.to(job, JobStatus::Failed);
    }
    t.settle();
    for id in 0..20 {
        t.now = t.now + Duration::from_secs(1);
        t.ends(10_000 + 2 * id, "job-1", JobStatus::Succeeded);
        t.ends(10_001 + 2 * id, "job-1", JobStatus::Failed);
    }
    let count = purges(&t);
    // And each of them would begin a chain that never ends.
    t.pass(HOUR);
    assert_eq!((count, purges(&t)), (1, 1));
}

#[test]
fn timers_of_a_rate_of_one_failure_are_bounded() {
    let mut t = Scene::new(&[json!({"when": {"failure_rate": {"failures": 1, "within": "31d"}}})]);
    for id in 0..2_000 {
        t.ends(id, "a", JobStatus::Failed);
        t.now = t.now + Duration::from_millis(10);
    }
    assert!(t.alerts.timers.len() < 20, "{} timers", t.alerts.timers.len());
}

#[test]
fn timers_of_dropped_counts_are_bounded() {
    let mut t = Scene::new(&[json!({"when": {"failure_rate": {"failures": 100, "within": "31d"}}})]);
    for id in 0..4_000_u32 {
        let job = t.job(id.into(), &format!("job-{}", id % 1_001));
        t.to(job, JobStatus::Failed);
        t.now = t.now + Duration::from_millis(10);
    }
    t.settle();
    assert!(t.alerts.timers.len() < 1_100, "{} timers", t.alerts.timers.len());
}

#[test]
fn timers_of_resolved_alerts_are_bounded() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    for id in 0..1_000 {
        t.ends(2 * id, "a", JobStatus::Failed);
        t.ends(2 * id + 1, "a", JobStatus::Succeeded);
        t.now = t.now + Duration::from_secs(1);
    }
    assert!(t.alerts.timers.len() < 20, "{} timers", t.alerts.timers.len());
}

/// Each alert beyond the limit asks for a purge, although nothing can be deleted.
#[test]
fn many_open_alerts_do_not_purge_at_each_event() {
    let mut t = Scene::new(&quiet_rules(41));
    for id in 0..990 {
        let job = t.job(id, &format!("job-{id}"));
        t.to(job, JobStatus::Failed);
        t.now = t.now + Duration::from_millis(1);
    }
    assert_eq!(purges(&t), 1);
}
