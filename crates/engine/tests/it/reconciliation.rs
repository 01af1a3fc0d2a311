//! A store that lost its last commits: jobs that must not run twice wait until every worker has reported.

use model::spec::Delivery;
use model::why::Reason;
use model::worker::Admission;
use model::{JobId, JobStatus, WorkerId};

use crate::scenario::Scenario;

/// A running job of each delivery level, which the store has as waiting.
fn three_forgotten() -> (Scenario, WorkerId, [JobId; 3]) {
    let mut t = Scenario::new();
    let levels = [Delivery::AtLeastOnce, Delivery::AtMostOnce, Delivery::ExactlyOnce];
    let worker = t.worker().join();
    t.admit(worker, Admission::Cordoned);
    let jobs = levels.map(|level| t.job().delivery(level).submit());
    let before = t.rows.clone();
    t.admit(worker, Admission::Open);
    for job in jobs {
        t.start(job);
    }
    t.lose_tail(before);
    (t, worker, jobs)
}

/// G5, rule 12, I8.
#[test]
fn only_at_least_once_jobs_start_before_all_workers_report() {
    let (mut t, _, [least, most, exactly]) = three_forgotten();
    t.worker().join();
    assert_eq!(t.status(least), JobStatus::Running);
    for job in [most, exactly] {
        assert_eq!(t.status(job), JobStatus::Waiting);
        assert!(matches!(t.why(job)[..], [Reason::Reconciling { .. }]), "{:?}", t.why(job));
    }
    t.pass(6);
    assert!(t.engine.is_reconciling());
    assert_eq!(t.status(exactly), JobStatus::Waiting);
    t.pass(1);
    assert!(!t.engine.is_reconciling());
    assert_eq!([t.status(most), t.status(exactly)], [JobStatus::Running; 2]);
}

/// I8.
#[test]
fn orphaned_execution_is_stopped_and_reported() {
    let (mut t, worker, jobs) = three_forgotten();
    let held: Vec<_> = t.players[&worker].held.keys().copied().collect();
    assert_eq!(held.len(), jobs.len());
    t.rejoin(worker);
    assert!(t.players[&worker].stopped.keys().eq(&held));
    let strays = t.engine.take_orphaned_executions();
    assert!(
        strays
            .iter()
            .map(|stray| (stray.held.execution, stray.worker))
            .eq(held.iter().map(|&id| (id, worker)))
    );
    assert!(strays.iter().all(|stray| stray.held.running));
    assert_eq!(t.engine.take_orphaned_executions(), []);
}

/// Their outcomes are not stored either.
#[test]
fn ended_orphaned_execution_is_reported() {
    let (mut t, worker, _) = three_forgotten();
    let held: Vec<_> = t.players[&worker].held.keys().copied().collect();
    t.players.get_mut(&worker).unwrap().held.values_mut().for_each(|(_, running)| *running = false);
    t.rejoin(worker);
    assert!(t.players[&worker].stopped.is_empty());
    let strays = t.engine.take_orphaned_executions();
    assert!(strays.iter().map(|stray| stray.held.execution).eq(held));
    assert!(strays.iter().all(|stray| !stray.held.running));
}

/// Waiting jobs can still be cancelled, changed and created meanwhile, and a restart loses nothing.
#[test]
fn held_jobs_accept_requests_and_survive_restarts() {
    let (mut t, _, [_, most, exactly]) = three_forgotten();
    t.cancel(most).unwrap();
    assert_eq!(t.status(most), JobStatus::Cancelled);
    let new = t.job().delivery(Delivery::ExactlyOnce).submit();
    assert!(matches!(t.why(new)[..], [Reason::Reconciling { .. }]));
    let rows = t.rows.clone();
    t.lose_tail(rows);
    t.worker().join();
    assert_eq!(t.status(exactly), JobStatus::Waiting);
    t.pass(7);
    assert_eq!([t.status(new), t.status(exactly)], [JobStatus::Running; 2]);
}
