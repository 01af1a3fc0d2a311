//! Order and limits: priority, fair shares, queues, rates, concurrency keys.
//!
//! `order` runs jobs one at a time and returns the order in which they were placed; the tests of priority,
//! age and weights compare that order. The other tests fill a limit and count the running jobs, also after a
//! restart and after a change of the queue's settings, because neither may refill a rate limit or exceed a
//! limit.
//!
//! Placement on workers is in `placement`.

use std::collections::BTreeMap;

use model::queue::QueueSettings;
use model::{JobId, JobStatus};

use crate::scenario::Scenario;

/// Runs every job one at a time and returns them in the order in which they were placed.
fn order(t: &mut Scenario, jobs: &[JobId]) -> Vec<usize> {
    let mut order = Vec::new();
    while let Some(next) = jobs.iter().position(|&job| t.status(job) == JobStatus::Running) {
        order.push(next);
        t.succeed(jobs[next]);
    }
    order
}

#[test]
fn order_is_by_priority_then_age() {
    let mut t = Scenario::new();
    let jobs: Vec<_> = [10, 50, 10, 90].into_iter().map(|p| t.job().priority(p).submit()).collect();
    t.worker().slots(1).join();
    assert_eq!(order(&mut t, &jobs), [3, 1, 0, 2]);
}

/// I24. A namespace with a flood of jobs does not starve another.
#[test]
fn namespaces_share_a_queue_by_weight() {
    let mut t = Scenario::new();
    let namespace_weights = BTreeMap::from([("paid".to_owned(), 3)]);
    t.queue("default", QueueSettings { namespace_weights, ..QueueSettings::default() });
    let mut jobs: Vec<_> = (0..40).map(|_| t.job().namespace("free").submit()).collect();
    jobs.extend((0..40).map(|_| t.job().namespace("paid").submit()));
    t.worker().slots(1).join();
    let first = &order(&mut t, &jobs)[..40];
    let paid = first.iter().filter(|&&job| job >= 40).count();
    assert!((29..=31).contains(&paid), "{paid} of the first 40");
}

#[test]
fn queues_share_workers_by_weight() {
    let mut t = Scenario::new();
    t.queue("big", QueueSettings { weight: 4, ..QueueSettings::default() });
    let mut jobs: Vec<_> = (0..40).map(|_| t.job().queue("small").submit()).collect();
    jobs.extend((0..40).map(|_| t.job().queue("big").submit()));
    t.worker().slots(1).join();
    let first = &order(&mut t, &jobs)[..40];
    let big = first.iter().filter(|&&job| job >= 40).count();
    assert!((31..=33).contains(&big), "{big} of the first 40");
}

/// E6, I20. Also across a restart, and when the limit is lowered while full.
#[test]
fn a_queue_runs_no_more_than_its_limit() {
    let mut t = Scenario::new();
    t.queue("default", QueueSettings { concurrency: Some(3), ..QueueSettings::default() });
    let worker = t.worker().join();
    let jobs: Vec<_> = (0..10).map(|_| t.job().submit()).collect();
    assert_eq!(t.running(), 3);
    t.restart();
    t.rejoin(worker);
    assert_eq!(t.running(), 3);
    t.queue("default", QueueSettings { concurrency: Some(1), ..QueueSettings::default() });
    assert_eq!(t.running(), 3, "lowering a limit stops no job");
    for &job in &jobs[..3] {
        t.succeed(job);
    }
    assert_eq!(t.running(), 1);
}

#[test]
fn a_paused_queue_starts_nothing_and_resumes() {
    let mut t = Scenario::new();
    t.worker().join();
    t.queue(
        "default",
        QueueSettings { paused: true, note: Some("migration".into()), ..QueueSettings::default() },
    );
    let job = t.job().submit();
    let other = t.job().queue("other").submit();
    assert_eq!((t.status(job), t.status(other)), (JobStatus::Waiting, JobStatus::Running));
    t.queue("default", QueueSettings::default());
    assert_eq!(t.status(job), JobStatus::Running);
}

/// E7, I21, S19. A change of owner does not refill the bucket.
#[test]
fn a_queue_starts_no_more_than_its_rate_also_across_a_restart() {
    let mut t = Scenario::new();
    let settings = QueueSettings { rate_per_second: Some(0.5), burst: Some(2), ..QueueSettings::default() };
    t.queue("default", settings);
    let worker = t.worker().join();
    for _ in 0..10 {
        t.job().submit();
    }
    assert_eq!(t.running(), 2);
    t.pass(4);
    assert_eq!(t.running(), 4);
    t.restart();
    t.rejoin(worker);
    assert_eq!(t.running(), 4);
    t.pass(2);
    assert_eq!(t.running(), 5);
}

/// I20. Jobs of one key and namespace; other jobs do not wait behind them.
#[test]
fn jobs_of_one_key_run_no_more_than_their_limit() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let jobs: Vec<_> = (0..5).map(|_| t.job().concurrency("db", 2).submit()).collect();
    let elsewhere = t.job().namespace("other").concurrency("db", 2).submit();
    let free = t.job().submit();
    assert_eq!(t.running(), 4);
    assert!([elsewhere, free].iter().all(|&job| t.status(job) == JobStatus::Running));
    t.restart();
    t.rejoin(worker);
    assert_eq!(t.running(), 4);
    t.succeed(jobs[0]);
    assert_eq!(t.status(jobs[2]), JobStatus::Running);
    assert_eq!(t.running(), 4);
}

/// A parked job becomes a candidate, whatever happens to the job before it.
#[test]
fn cancelled_candidate_frees_its_key_for_the_next_job() {
    let mut t = Scenario::new();
    let [first, second, third] = [0; 3].map(|_| t.job().concurrency("k", 1).submit());
    t.cancel(first).unwrap();
    t.cancel(second).unwrap();
    t.worker().join();
    assert_eq!(t.status(third), JobStatus::Running);
}

#[test]
fn parked_jobs_are_ordered_by_priority() {
    let mut t = Scenario::new();
    t.worker().join();
    let jobs: Vec<_> =
        [50, 10, 90].into_iter().map(|p| t.job().priority(p).concurrency("k", 1).submit()).collect();
    assert_eq!(order(&mut t, &jobs), [0, 2, 1]);
}

#[test]
fn waiting_retry_frees_its_key() {
    let mut t = Scenario::new();
    t.worker().join();
    let [failing, other] = [0; 2].map(|_| t.job().concurrency("k", 1).retries(1).submit());
    t.fail(failing, 1);
    assert_eq!(t.status(other), JobStatus::Running);
}

/// Changing a queue's note does not circumvent its rate limit.
#[test]
fn changing_queue_settings_does_not_refill_the_burst() {
    let mut t = Scenario::new();
    let settings =
        || QueueSettings { rate_per_second: Some(0.01), burst: Some(2), ..QueueSettings::default() };
    t.queue("default", settings());
    t.worker().join();
    for _ in 0..10 {
        t.job().submit();
    }
    for note in ["a", "b"] {
        t.queue("default", QueueSettings { note: Some(note.into()), ..settings() });
    }
    assert_eq!(t.running(), 2);
}

/// Running jobs count towards the limit of a key, waiting jobs do not.
#[test]
fn a_job_that_cannot_start_does_not_block_its_key() {
    let mut t = Scenario::new();
    t.worker().join();
    t.queue("paused", QueueSettings { paused: true, ..QueueSettings::default() });
    t.job().queue("paused").concurrency("k", 1).submit();
    t.job().only_on("gpu", "yes").concurrency("k", 1).submit();
    let job = t.job().concurrency("k", 1).submit();
    assert_eq!(t.status(job), JobStatus::Running);
}

#[test]
fn within_a_key_priority_comes_before_age() {
    let mut t = Scenario::new();
    let low = t.job().priority(1).concurrency("k", 1).submit();
    let high = t.job().priority(99).concurrency("k", 1).submit();
    t.worker().join();
    assert_eq!((t.status(high), t.status(low)), (JobStatus::Running, JobStatus::Waiting));
}

#[test]
fn each_job_of_a_key_observes_its_own_limit() {
    let mut t = Scenario::new();
    let strict = t.job().priority(10).concurrency("k", 1).submit();
    let first = t.job().priority(90).concurrency("k", 2).submit();
    let second = t.job().priority(50).concurrency("k", 2).submit();
    t.worker().join();
    let statuses = [first, second, strict].map(|job| t.status(job));
    assert_eq!(statuses, [JobStatus::Running, JobStatus::Running, JobStatus::Waiting]);
}

/// Queues without settings leave nothing behind.
#[test]
fn queue_without_settings_ends_with_its_last_job() {
    let mut t = Scenario::new();
    t.worker().join();
    let ran = t.job().queue("q1").submit();
    let cancelled = t.job().queue("q2").in_seconds(5).submit();
    t.succeed(ran);
    t.cancel(cancelled).unwrap();
    assert!(t.engine.view().queues.is_empty());
}

/// A flood of jobs that become ready at the same time is processed in batches, completely.
#[test]
fn simultaneous_jobs_are_processed_in_bounded_batches() {
    let mut t = Scenario::new();
    let at = t.now + model::Duration::from_secs(5);
    let head = t.job().spec(|s| s.run_at = Some(at)).head();
    let new = engine::NewJob { head, key: None, actor: "alice".into(), ended: Vec::new() };
    let jobs = vec![new; 25_000];
    t.ask(|ticket| engine::Input::Submit { ticket, jobs }).unwrap();
    t.now = at;
    let mut batches = Vec::new();
    loop {
        let changes = t.engine.flush(t.now).batch.changes.len();
        if changes == 0 {
            break;
        }
        batches.push(changes);
    }
    assert_eq!(batches, [10_000, 10_000, 5_000]);
}
