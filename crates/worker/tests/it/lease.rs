//! What the lease, the fuse and a new supervisor do.

use std::time::Duration;

use model::spec::Delivery;
use proto::v1::finished::How;
use proto::v1::{Assignment, Stop};
use rustix::process::Signal;

use crate::rig::{Rig, assignment, daemon, is_frozen, numbers, process_state, script, sh, signal};

const SHORT_LEASE: u64 = 400;

/// A worker whose first lease is short already: one that was long would outlast the test.
async fn short_leases() -> Rig {
    Rig::with(|_, state| state.lease_ms = Some(SHORT_LEASE)).await
}

/// A task that counts, into a file; and its process id.
async fn counting(rig: &Rig, name: &str) -> (Assignment, std::path::PathBuf, i32) {
    let file = rig.shared(name);
    let order = sh(&format!("while :; do echo 1 >> {}; sleep 0.01; done", file.display()));
    rig.server.assign(vec![order.clone()]).await;
    let pid = rig.server.started(&order.execution_id).await;
    (order, file, pid)
}

async fn frozen(rig: &Rig, pid: i32) {
    rig.server.until("freezing", |_| is_frozen(pid).then_some(())).await;
}

async fn thawed(rig: &Rig, pid: i32) {
    rig.server.until("thawing", |_| (!is_frozen(pid)).then_some(())).await;
}

/// Waits for the count to go on.
async fn counts(rig: &Rig, file: &std::path::Path) {
    let before = numbers(file).len();
    rig.server.until("counting", |_| (numbers(file).len() > before).then_some(())).await;
}

pub(crate) async fn nothing_starts_without_a_lease() {
    let rig = Rig::with(|_, state| state.lease_ms = None).await;
    let order = sh("true");
    rig.server.assign(vec![order.clone()]).await;
    // Ten beats are ten chances to start.
    let beats = rig.server.state().beats.len();
    rig.server.until("ten beats", |state| (state.beats.len() > beats + 10).then_some(())).await;
    assert_eq!(rig.server.state().reports, []);
    rig.server.state().lease_ms = Some(60_000);
    rig.server.finished(&order.execution_id).await;
}

pub(crate) async fn tasks_freeze_when_the_lease_runs_out_and_go_on_with_the_next() {
    let rig = short_leases().await;
    let (order, file, pid) = counting(&rig, "count").await;
    rig.server.state().lease_ms = None;
    frozen(&rig, pid).await;
    let count = numbers(&file).len();
    let beats = rig.server.state().beats.len();
    rig.server.until("five beats", |state| (state.beats.len() > beats + 5).then_some(())).await;
    assert_eq!(numbers(&file).len(), count, "what is frozen does nothing");
    rig.server.state().lease_ms = Some(60_000);
    thawed(&rig, pid).await;
    counts(&rig, &file).await;
    assert!(rig.server.state().finished(&order.execution_id).is_none());
}

pub(crate) async fn an_at_most_once_task_runs_on_without_a_lease() {
    let rig = short_leases().await;
    let (_, _, other) = counting(&rig, "other").await;
    let file = rig.shared("count");
    let mut spec = script(&format!("while :; do echo 1 >> {}; sleep 0.01; done", file.display()));
    spec.delivery = Delivery::AtMostOnce;
    let order = assignment(&spec);
    rig.server.assign(vec![order.clone()]).await;
    let pid = rig.server.started(&order.execution_id).await;
    rig.server.state().lease_ms = None;
    frozen(&rig, other).await;
    counts(&rig, &file).await;
    assert!(!is_frozen(pid));
}

pub(crate) async fn frozen_time_does_not_count_towards_the_timeout() {
    let rig = short_leases().await;
    let file = rig.shared("file");
    let mut spec = script(&format!("echo 1 >> {}; sleep 600", file.display()));
    spec.timeout = Some(model::Duration::from_millis(1_500));
    let order = assignment(&spec);
    rig.server.assign(vec![order.clone()]).await;
    let pid = rig.server.started(&order.execution_id).await;
    rig.server.state().lease_ms = None;
    frozen(&rig, pid).await;
    // Some 40 beats are two seconds: longer than the timeout.
    let beats = rig.server.state().beats.len();
    rig.server.until("forty beats", |state| (state.beats.len() > beats + 40).then_some(())).await;
    assert!(rig.server.state().finished(&order.execution_id).is_none());
    rig.server.state().lease_ms = Some(60_000);
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!(finished.how(), How::TimedOut);
    assert!(finished.run_ms > 3_000, "{finished:?}");
}

pub(crate) async fn what_the_server_no_longer_wants_is_gone_before_the_rest_thaws() {
    let rig = short_leases().await;
    let (unwanted, file, pid) = counting(&rig, "unwanted").await;
    let (_, _, other) = counting(&rig, "wanted").await;
    rig.server.state().lease_ms = None;
    frozen(&rig, pid).await;
    frozen(&rig, other).await;
    let count = numbers(&file).len();
    {
        let mut state = rig.server.state();
        let id = unwanted.execution_id.clone();
        state.stops = vec![Stop { execution_id: id, fence: unwanted.fence, grace_ms: 0, discard: true }];
        state.lease_ms = Some(60_000);
        // An open beat lane of the old session is answered with "unknown", so no lease comes that way.
        state.closed = true;
    }
    rig.server.hang_up();
    rig.server.state().closed = false;
    thawed(&rig, other).await;
    rig.server.until("its death", |_| process_state(pid).is_none().then_some(())).await;
    assert!(numbers(&file).len() <= count + 1, "it ran on");
}

pub(crate) async fn a_task_that_is_frozen_for_too_long_is_killed_as_interrupted() {
    let rig = Rig::with(|config, state| {
        config.orphan_limit = model::Duration::from_millis(500);
        state.lease_ms = Some(SHORT_LEASE);
    })
    .await;
    let (order, _, pid) = counting(&rig, "count").await;
    rig.server.state().lease_ms = None;
    rig.server.until("its death", |_| process_state(pid).is_none().then_some(())).await;
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!(finished.how(), How::Interrupted, "{finished:?}");
}

pub(crate) async fn the_fuse_freezes_tasks_whose_supervisor_is_stopped() {
    let rig = short_leases().await;
    let pids = rig.shared("pids");
    let order = sh(&format!("{}; while :; do sleep 0.01; done", daemon(&pids)));
    rig.server.assign(vec![order.clone()]).await;
    let main = rig.server.started(&order.execution_id).await;
    let daemon = rig.server.until("the daemon", |_| numbers(&pids).first().copied()).await;
    signal(rig.supervisor(), Signal::STOP);
    // Beats are answered still, but no lease gets through to the fuse.
    frozen(&rig, main).await;
    frozen(&rig, daemon).await;
    signal(rig.supervisor(), Signal::CONT);
    thawed(&rig, main).await;
    thawed(&rig, daemon).await;
    assert!(rig.server.state().finished(&order.execution_id).is_none());
}

pub(crate) async fn the_fuse_kills_everything_when_the_supervisor_is_killed() {
    let mut rig = Rig::new().await;
    let pids = rig.shared("pids");
    let order = sh(&format!("{}; sleep 600 & echo $! >> {}; sleep 600", daemon(&pids), pids.display()));
    rig.server.assign(vec![order.clone()]).await;
    let main = rig.server.started(&order.execution_id).await;
    rig.server.until("its children", |_| (numbers(&pids).len() == 2).then_some(())).await;
    // Without an agent nobody starts another supervisor, which would kill them too.
    rig.kill_agent().await;
    signal(rig.supervisor(), Signal::KILL);
    for pid in numbers(&pids).into_iter().chain([main]) {
        rig.server.until("death", |_| process_state(pid).is_none().then_some(())).await;
    }
}

pub(crate) async fn a_fuse_that_dies_is_replaced_and_the_new_one_guards_what_runs() {
    let mut rig = Rig::new().await;
    let (_, _, pid) = counting(&rig, "count").await;
    let fuse = rig.fuse().expect("there is a fuse");
    signal(fuse, Signal::KILL);
    rig.server.until("another fuse", |_| rig.fuse().filter(|other| *other != fuse)).await;
    assert!(process_state(pid).is_some());
    // What tells the new fuse's work from the death signal is a daemon; it is known by its environment.
    let pids = rig.shared("pids");
    let order = sh(&format!("{}; sleep 600", daemon(&pids)));
    rig.server.assign(vec![order]).await;
    let daemon = rig.server.until("the daemon", |_| numbers(&pids).first().copied()).await;
    rig.kill_agent().await;
    signal(rig.supervisor(), Signal::KILL);
    rig.server.until("death", |_| process_state(daemon).is_none().then_some(())).await;
}

pub(crate) async fn executions_of_a_killed_supervisor_are_reported_as_interrupted() {
    let rig = Rig::new().await;
    let (order, _, pid) = counting(&rig, "count").await;
    let worker = rig.server.state().hellos[0].worker_id.clone();
    let supervisor = rig.supervisor();
    signal(supervisor, Signal::KILL);
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!(finished.how(), How::Interrupted, "{finished:?}");
    assert!(process_state(pid).is_none());
    assert_ne!(rig.supervisor(), supervisor);
    assert_eq!(rig.server.state().hellos.last().unwrap().worker_id, worker);
    // And it works again.
    let (_, finished) = rig.run("exit 0").await;
    assert_eq!(finished.exit_code, Some(0));
    assert!(Duration::from_millis(finished.run_ms) < Duration::from_secs(10));
}
