//! Requests of clients: idempotency, updates, refusals.

use engine::{Input, Reply};
use model::{Duration, JobStatus, Refusal};

use crate::scenario::Scenario;

/// A10, I2, rule 14. The same key gives the same job, also after it ended and after a restart.
#[test]
fn the_same_key_gives_the_same_job() {
    let mut t = Scenario::new();
    t.worker().join();
    let first = t.job().key(7, 1).try_submit().unwrap();
    let again = t.job().key(7, 1).try_submit().unwrap();
    assert_eq!((first.job, first.new, again.new), (again.job, true, false));
    t.succeed(first.job);
    t.restart();
    assert_eq!(t.job().key(7, 1).try_submit().unwrap(), again);
    assert_eq!(t.rows.jobs.len(), 1);
}

#[test]
fn key_of_a_different_request_is_refused() {
    let mut t = Scenario::new();
    let job = t.job().key(7, 1).submit();
    assert_eq!(t.job().key(7, 2).try_submit(), Err(Refusal::IdempotencyKeyReused { index: 0, job }));
}

#[test]
fn key_expires_after_its_retention() {
    let mut t = Scenario::new();
    let first = t.job().key(7, 1).submit();
    t.now = t.now + Duration::from_hours(24 * 6);
    t.flush();
    assert_eq!(t.job().key(7, 1).submit(), first);
    t.now = t.now + Duration::from_hours(25);
    t.flush();
    assert!(t.rows.keys.is_empty());
    assert_ne!(t.job().key(7, 1).submit(), first);
}

/// A4. A job that has not started can be changed; its times and its queue change with it.
#[test]
fn a_job_that_has_not_started_can_be_changed() {
    let mut t = Scenario::new();
    let job = t.job().submit();
    let later = t.job().in_seconds(60).priority(90).head();
    let update = |ticket, expected_version, head| Input::Update {
        ticket,
        job,
        head,
        expected_version,
        actor: "bob".into(),
    };
    let reply = t.ask(|ticket| update(ticket, Some(1), later.clone()));
    assert_eq!(reply, Ok(Reply::Updated { version: 2 }));
    assert_eq!(t.status(job), JobStatus::Ready);
    assert_eq!(t.rows.jobs[&job].0.spec.priority, 90);
    let stale = t.ask(|ticket| update(ticket, Some(1), later.clone()));
    assert_eq!(stale, Err(Refusal::VersionMismatch { expected: 1, found: 2 }));
    t.restart();
    t.worker().join();
    t.pass(60);
    insta::assert_snapshot!(t.history(job), @"waiting (submitted) → ready (updated) → waiting (due) → running (placed)");
    let late = t.ask(|ticket| update(ticket, None, later));
    assert_eq!(late, Err(Refusal::JobStarted { job }));
}

#[test]
fn a_deadline_moves_with_an_update() {
    let mut t = Scenario::new();
    let job = t.job().deadline(10).submit();
    let head = t.job().deadline(100).head();
    t.ask(|ticket| Input::Update { ticket, job, head, expected_version: None, actor: "bob".into() }).unwrap();
    t.pass(50);
    assert_eq!(t.status(job), JobStatus::Waiting);
    t.pass(50);
    assert_eq!(t.status(job), JobStatus::Expired);
}

#[test]
fn ended_job_cannot_be_cancelled_or_explained() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().submit();
    t.succeed(job);
    assert_eq!(t.cancel(job), Err(Refusal::JobNotLive { job }));
    assert_eq!(t.ask(|ticket| Input::Why { ticket, job }), Err(Refusal::JobNotLive { job }));
}

/// A job for next month is not created again next week.
#[test]
fn key_outlives_the_run_at_of_its_job() {
    let mut t = Scenario::new();
    let first = t.job().key(7, 1).in_seconds(86_400 * 30).submit();
    t.now = t.now + Duration::from_hours(24 * 20);
    t.flush();
    assert_eq!(t.job().key(7, 1).submit(), first);
}

/// Two changes in one batch have two versions, so a client with the first version cannot overwrite the
/// second.
#[test]
fn update_detects_a_concurrent_update() {
    let mut t = Scenario::new();
    let job = t.job().submit();
    let update = |ticket, expected_version, head| Input::Update {
        ticket: engine::Ticket(ticket),
        job,
        head,
        expected_version,
        actor: "x".into(),
    };
    let heads = [10, 20, 30].map(|priority| t.job().priority(priority).head());
    let [first, second, third] = heads;
    t.engine.handle(t.now, update(9_001, Some(1), first));
    t.engine.handle(t.now, update(9_002, None, second));
    t.flush();
    let Some(Ok(Reply::Updated { version })) = t.replies.remove(&engine::Ticket(9_001)) else { panic!() };
    t.say(update(9_003, Some(version), third));
    assert!(matches!(t.replies[&engine::Ticket(9_003)], Err(Refusal::VersionMismatch { .. })));
}
