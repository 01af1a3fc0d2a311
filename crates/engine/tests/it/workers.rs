//! Sessions, leases, and requests of operators.
//!
//! - Sessions: what is sent again after a reconnection, and which messages of old sessions are ignored.
//! - Leases: when a silent worker is lost. The time that a server was stalled, loading or without the shards
//!   does not count, up to a limit.
//! - Operators: cordon, drain, unhealthy workers, and the removal of a lost worker.
//!
//! What becomes of the jobs of a lost worker is in `delivery` and `unknown_outcome`.

use engine::input::ExecutionEnd;
use engine::{Effect, Input};
use model::worker::{Admission, Health, WorkerStatus};
use model::{Duration, Fence, JobStatus, Refusal};

use crate::scenario::{Scenario, finished};

#[test]
fn a_worker_that_comes_back_in_time_keeps_its_work() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let job = t.job().submit();
    t.start(job);
    t.silence(worker);
    t.pass(4);
    t.rejoin(worker);
    t.pass(60);
    t.succeed(job);
    assert_eq!(t.state(job).executions, 1);
}

/// The assignment was lost with the connection: the journal does not have it, so it is sent again.
#[test]
fn lost_assignment_is_sent_again() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let job = t.job().submit();
    let first = t.execution(job).id;
    t.players.get_mut(&worker).unwrap().assigned.clear();
    t.silence(worker);
    t.rejoin(worker);
    assert_eq!(t.start(job), first, "the same execution under the same fence");
    t.succeed(job);
}

#[test]
fn lost_stop_is_sent_again() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let job = t.job().submit();
    let execution = t.start(job);
    t.silence(worker);
    t.cancel(job).unwrap();
    assert!(t.players[&worker].stopped.is_empty());
    t.rejoin(worker);
    assert!(t.players[&worker].stopped.contains_key(&execution));
}

/// §6.2.14. A new owner declares no worker lost before a full lease has passed.
#[test]
fn a_rebuilt_engine_gives_workers_a_full_lease_to_come_back() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let job = t.job().submit();
    t.start(job);
    t.pass(1);
    t.restart();
    t.pass(6);
    assert_eq!(t.status(job), JobStatus::Running);
    t.rejoin(worker);
    t.pass(10);
    assert_eq!(t.state(job).executions, 1);

    t.restart();
    t.players.get_mut(&worker).unwrap().silent = true;
    t.pass(7);
    insta::assert_snapshot!(t.history(job), @"waiting (submitted) → running (placed) → waiting (worker_lost)");
    assert_eq!(t.rows.workers[&worker].status, WorkerStatus::Lost);
}

/// A8. The previous owner may not know yet that it lost the shards, and renews leases until its own lease has
/// ended.
#[test]
fn worker_with_a_lease_of_the_former_owner_is_lost_later() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let job = t.job().submit();
    t.start(job);
    t.restart_beside(Duration::from_secs(3));
    t.players.get_mut(&worker).unwrap().silent = true;
    t.pass(9);
    assert_eq!(t.status(job), JobStatus::Running);
    t.pass(1);
    assert_eq!(t.status(job), JobStatus::Waiting);
}

/// Rule 10. The engine itself was delayed, so the silence of that time does not count.
#[test]
fn a_stall_of_the_server_costs_no_worker_its_lease() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let job = t.job().submit();
    t.start(job);
    t.now = t.now + Duration::from_secs(300);
    t.flush();
    assert_eq!(t.rows.workers[&worker].status, WorkerStatus::Ready);
    t.pass(5);
    assert_eq!(t.state(job).executions, 1);
}

#[test]
fn messages_of_an_older_session_change_nothing() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let old = t.players[&worker].session.unwrap();
    let job = t.job().submit();
    t.start(job);
    t.rejoin(worker);
    let (execution, fence) = (t.execution(job).id, t.execution(job).fence);
    let report = finished(ExecutionEnd::Succeeded, Some(0));
    t.say(Input::Report { worker, session: old, execution, fence, report });
    t.say(Input::Disconnect { worker, session: old });
    assert_eq!(t.status(job), JobStatus::Running);
    t.pass(30);
    assert_eq!(t.rows.workers[&worker].status, WorkerStatus::Ready);
}

/// I10. A faulty worker may report an execution of another worker, or a fence that was never issued.
#[test]
fn a_report_counts_only_from_the_worker_that_has_the_execution_and_under_its_fence() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let job = t.job().submit();
    let execution = t.start(job);
    let fence = t.execution(job).fence;
    let other = t.worker().join();
    let success = || finished(ExecutionEnd::Succeeded, Some(0));
    t.report(other, execution, fence, success());
    for wrong in [Fence(fence.0 - 1), Fence(fence.0 + 1), Fence(u64::MAX)] {
        t.report(worker, execution, wrong, success());
    }
    assert_eq!(t.status(job), JobStatus::Running);
    t.report(worker, execution, fence, success());
    assert_eq!(t.status(job), JobStatus::Succeeded);
}

/// Rule 10. A slow commit delays everything except the answers to heartbeats.
#[test]
fn heartbeat_is_answered_before_the_commit() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let session = t.players[&worker].session.unwrap();
    t.engine.handle(t.now, Input::Heartbeat { worker, session, seq: 9, health: Health::default() });
    let lease = Duration::from_secs(6);
    assert_eq!(t.engine.take_grants(), [Effect::Grant { worker, session, seq: 9, lease }]);
    let session = engine::Session(4_711);
    t.engine.handle(t.now, Input::Heartbeat { worker, session, seq: 10, health: Health::default() });
    let lease = Duration::ZERO;
    assert_eq!(t.engine.take_grants(), [Effect::Grant { worker, session, seq: 10, lease }]);
}

#[test]
fn a_cordoned_worker_ends_what_it_has_and_gets_nothing_new() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let before = t.job().submit();
    t.start(before);
    t.admit(worker, Admission::Cordoned);
    let after = t.job().submit();
    t.succeed(before);
    assert_eq!(t.status(after), JobStatus::Waiting);
    t.restart();
    t.rejoin(worker);
    assert_eq!(t.status(after), JobStatus::Waiting, "a cordon outlives a restart");
    t.admit(worker, Admission::Open);
    assert_eq!(t.status(after), JobStatus::Running);
}

#[test]
fn drained_executions_run_on_other_workers() {
    let mut t = Scenario::new();
    let drained = t.worker().join();
    let job = t.job().submit();
    let execution = t.start(job);
    t.worker().join();
    t.admit(drained, Admission::Draining);
    assert!(t.players[&drained].stopped.contains_key(&execution));
    t.end_with(job, finished(ExecutionEnd::Stopped, None));
    assert_eq!(t.status(job), JobStatus::Running);
    assert_ne!(t.state(job).worker, Some(drained));
}

#[test]
fn an_unhealthy_worker_gets_nothing_new_until_it_recovers() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let session = t.players[&worker].session.unwrap();
    let health = Health { problem: Some("disk almost full".into()), ..Health::default() };
    t.say(Input::Heartbeat { worker, session, seq: 1, health });
    let job = t.job().submit();
    assert_eq!(t.status(job), JobStatus::Waiting);
    t.say(Input::Heartbeat { worker, session, seq: 2, health: Health::default() });
    assert_eq!(t.status(job), JobStatus::Running);
}

#[test]
fn only_a_lost_worker_can_be_removed() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let refused = t.ask(|ticket| Input::RemoveWorker { ticket, worker });
    assert_eq!(refused, Err(Refusal::WorkerConnected { worker }));
    t.lose(worker);
    t.ask(|ticket| Input::RemoveWorker { ticket, worker }).unwrap();
    assert!(t.rows.workers.is_empty());
    let gone = t.ask(|ticket| Input::RemoveWorker { ticket, worker });
    assert_eq!(gone, Err(Refusal::WorkerNotFound { worker }));
}

/// The store took longer to load than a lease: no worker could report, so none is lost.
#[test]
fn a_slow_load_costs_no_worker_its_lease() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    t.restart();
    t.now = t.now + Duration::from_secs(8);
    t.flush();
    assert_ne!(t.rows.workers[&worker].status, WorkerStatus::Lost);
}

/// F10. The wall clock is set forward a little, again and again: leases use the steady clock.
#[test]
fn clock_set_forward_loses_no_worker_early() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let start = t.now;
    for second in 1..=5 {
        let steady = start + Duration::from_secs(second);
        t.flush_at(engine::Now { wall: start + Duration::from_secs(2 * second), steady });
    }
    assert_eq!(t.rows.workers[&worker].status, WorkerStatus::Ready);
}

/// A server that is always late does not keep lost workers alive.
#[test]
fn repeated_stalls_extend_leases_only_to_a_limit() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    t.silence(worker);
    for _ in 0..100 {
        t.now = t.now + Duration::from_millis(2_100);
        t.flush();
    }
    assert_eq!(t.rows.workers[&worker].status, WorkerStatus::Lost);
}

#[test]
fn a_drain_survives_a_restart_and_ends_when_it_is_revoked() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let job = t.job().submit();
    let execution = t.start(job);
    t.silence(worker);
    t.admit(worker, Admission::Draining);
    t.admit(worker, Admission::Open);
    t.rejoin(worker);
    assert!(t.players[&worker].stopped.is_empty());
    t.silence(worker);
    t.admit(worker, Admission::Draining);
    t.restart();
    t.rejoin(worker);
    assert!(t.players[&worker].stopped.contains_key(&execution));
}

/// Another server wrote the status into the row: the executions still have their lease.
#[test]
fn a_worker_with_work_gets_a_lease_although_its_row_is_lost() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let job = t.job().submit();
    t.start(job);
    let mut record = (*t.rows.workers[&worker]).clone();
    record.status = WorkerStatus::Lost;
    t.rows.workers.insert(worker, record.into());
    t.restart();
    assert_eq!(t.status(job), JobStatus::Running);
}

/// I8. Found by the simulator: a delayed hello message lacks the executions started after it was sent. It is
/// accepted only once its session sends a heartbeat.
#[test]
fn delayed_hello_does_not_end_executions_started_since() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let job = t.job().submit();
    let execution = t.start(job);
    let held = std::mem::take(&mut t.players.get_mut(&worker).unwrap().held);
    t.rejoin(worker);
    assert_eq!(t.status(job), JobStatus::Running, "that session sends no heartbeat");
    t.players.get_mut(&worker).unwrap().held = held;
    t.rejoin(worker);
    t.pass(1);
    assert_eq!(t.execution(job).id, execution);
    t.players.get_mut(&worker).unwrap().held.clear();
    t.rejoin(worker);
    t.pass(1);
    assert_ne!(t.execution(job).id, execution, "a living session whose journal lost it gives it back");
}

/// E5, H1. The row of a lost worker has the time of its last heartbeat, or, without any, the time of its
/// loss.
#[test]
fn restart_keeps_the_last_heartbeat_of_a_lost_worker() {
    let mut t = Scenario::new();
    let [first, second] = [t.worker().join(), t.worker().join()];
    let heard_at = |t: &Scenario, id| {
        let view = t.engine.view();
        view.workers.iter().find(|worker| worker.id == id).unwrap().last_heartbeat_at
    };
    let heard = heard_at(&t, first).unwrap();
    t.lose(first);
    let before = heard_at(&t, first).unwrap();
    assert!(before >= heard && before < t.now, "{before}");
    t.restart();
    assert_eq!(heard_at(&t, first), Some(before));
    t.silence(second);
    t.pass(60);
    let lost = t.rows.workers[&second].updated_at;
    assert_eq!(heard_at(&t, second), Some(lost));
    t.rejoin(first);
    assert_eq!(heard_at(&t, first), Some(t.now));
    assert_eq!(t.rows.workers[&first].last_heartbeat_at, None);
}
