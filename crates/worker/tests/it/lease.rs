//! Leases, the fuse, and the restart of a supervisor.
//!
//! The test's server sets the lease in its answers to heartbeats, or sends none. A test observes the
//! processes themselves: whether they are stopped, and whether a task still appends to its file. Supervisors,
//! fuses and agents are stopped and killed by their pids.
//!
//! # Invariants
//! - Without a lease nothing starts, and no task runs, except `at_most_once` tasks; frozen time does not
//!   count as running time.
//! - Stops of the new session precede the first thaw.
//! - If the supervisor cannot act, the fuse does; a fuse that fails is replaced.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use model::spec::Delivery;
use proto::v1::finished::How;
use proto::v1::{Assignment, Stop};
use rustix::process::Signal;

use crate::rig::{
    TestWorker, assignment, daemon, is_frozen, numbers, process_state, program_with, script, sh, signal,
    unmarked,
};

const SHORT_LEASE: u64 = 400;

/// A worker whose first lease is already short, because a long one would outlast the test.
async fn short_leases() -> TestWorker {
    TestWorker::with(|_, state| state.lease_ms = Some(SHORT_LEASE)).await
}

/// Starts a task that appends to a file; returns the file and the process id.
async fn counting(rig: &TestWorker, name: &str) -> (Assignment, PathBuf, i32) {
    let file = rig.shared(name);
    let order = sh(&format!("while :; do echo 1 >> {}; sleep 0.01; done", file.display()));
    rig.server.assign(vec![order.clone()]).await;
    let pid = rig.server.started(&order.execution_id).await;
    (order, file, pid)
}

async fn frozen(rig: &TestWorker, pid: i32) {
    rig.server.wait_for("the freeze", |_| is_frozen(pid).then_some(())).await;
}

async fn thawed(rig: &TestWorker, pid: i32) {
    rig.server.wait_for("the thaw", |_| (!is_frozen(pid)).then_some(())).await;
}

/// Waits until the task appends to the file again.
async fn counts(rig: &TestWorker, file: &Path) {
    let before = numbers(file).len();
    rig.server.wait_for("progress", |_| (numbers(file).len() > before).then_some(())).await;
}

pub(crate) async fn nothing_starts_without_a_lease() {
    let rig = TestWorker::with(|_, state| state.lease_ms = None).await;
    let order = sh("true");
    rig.server.assign(vec![order.clone()]).await;
    // Ten heartbeats would be ten opportunities for a start.
    let beats = rig.server.state().beats.len();
    rig.server.wait_for("ten heartbeats", |state| (state.beats.len() > beats + 10).then_some(())).await;
    assert_eq!(rig.server.state().reports, []);
    rig.server.state().lease_ms = Some(60_000);
    rig.server.finished(&order.execution_id).await;
}

pub(crate) async fn tasks_are_frozen_when_the_lease_expires_and_continue_under_the_next() {
    let rig = short_leases().await;
    let (order, file, pid) = counting(&rig, "count").await;
    rig.server.state().lease_ms = None;
    frozen(&rig, pid).await;
    let count = numbers(&file).len();
    let beats = rig.server.state().beats.len();
    rig.server.wait_for("five heartbeats", |state| (state.beats.len() > beats + 5).then_some(())).await;
    assert_eq!(numbers(&file).len(), count, "a frozen task does nothing");
    rig.server.state().lease_ms = Some(60_000);
    thawed(&rig, pid).await;
    counts(&rig, &file).await;
    assert!(rig.server.state().finished(&order.execution_id).is_none());
}

pub(crate) async fn an_at_most_once_task_continues_without_a_lease() {
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
    // 40 heartbeats take about two seconds: longer than the timeout.
    let beats = rig.server.state().beats.len();
    rig.server.wait_for("forty heartbeats", |state| (state.beats.len() > beats + 40).then_some(())).await;
    assert!(rig.server.state().finished(&order.execution_id).is_none());
    rig.server.state().lease_ms = Some(60_000);
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!(finished.how(), How::TimedOut);
    assert!(finished.run_ms > 3_000, "{finished:?}");
}

pub(crate) async fn stopped_executions_are_killed_before_the_others_are_thawed() {
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
        state.stops =
            vec![Stop { fence: unwanted.fence, discard: true, execution_id: id, ..Stop::default() }];
        state.lease_ms = Some(60_000);
        // Heartbeats of the old session are answered with "unknown", so no lease is renewed that way.
        state.closed = true;
    }
    rig.server.close_session();
    rig.server.state().closed = false;
    thawed(&rig, other).await;
    rig.server.wait_for("its exit", |_| process_state(pid).is_none().then_some(())).await;
    assert!(numbers(&file).len() <= count + 1, "the task ran on");
}

pub(crate) async fn a_task_frozen_beyond_the_orphan_limit_is_killed_as_interrupted() {
    let rig = TestWorker::with(|config, state| {
        config.orphan_limit = model::Duration::from_millis(500);
        state.lease_ms = Some(SHORT_LEASE);
    })
    .await;
    let (order, _, pid) = counting(&rig, "count").await;
    rig.server.state().lease_ms = None;
    rig.server.wait_for("its exit", |_| process_state(pid).is_none().then_some(())).await;
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!(finished.how(), How::Interrupted, "{finished:?}");
}

pub(crate) async fn time_frozen_by_the_fuse_does_not_count_towards_the_timeout() {
    let rig = short_leases().await;
    let mut spec = script("sleep 600");
    spec.timeout = Some(model::Duration::from_millis(1_500));
    let order = assignment(&spec);
    rig.server.assign(vec![order.clone()]).await;
    let pid = rig.server.started(&order.execution_id).await;
    signal(rig.supervisor(), Signal::STOP);
    frozen(&rig, pid).await;
    // 60 heartbeats take about three seconds.
    let beats = rig.server.state().beats.len();
    rig.server.wait_for("sixty heartbeats", |state| (state.beats.len() > beats + 60).then_some(())).await;
    rig.server.state().lease_ms = Some(60_000);
    signal(rig.supervisor(), Signal::CONT);
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!(finished.how(), How::TimedOut);
    assert!(finished.run_ms > 3_900, "{finished:?}");
}

/// Launches are running when the supervisor is stopped, and some tasks are frozen before it processes their launch.
pub(crate) async fn tasks_frozen_by_the_fuse_during_the_launch_continue() {
    let rig = short_leases().await;
    let (_, _, pid) = counting(&rig, "count").await;
    let orders: Vec<_> = (0..300).map(|_| sh("exec sleep 0.3")).collect();
    let last = orders[299].execution_id.clone();
    rig.server.assign(orders.clone()).await;
    rig.server.started(&orders[20].execution_id).await;
    signal(rig.supervisor(), Signal::STOP);
    frozen(&rig, pid).await;
    assert!(rig.server.state().started(&last).is_none(), "all tasks had already started");
    rig.server.state().lease_ms = Some(60_000);
    signal(rig.supervisor(), Signal::CONT);
    for order in &orders {
        let finished = rig.server.finished(&order.execution_id).await;
        assert_eq!((finished.how(), finished.exit_code), (How::Exited, Some(0)), "{finished:?}");
    }
}

/// The process has left its session and cleared its environment, and its parent has exited.
pub(crate) async fn the_fuse_freezes_a_process_without_marks() {
    let rig = short_leases().await;
    let pids = rig.shared("pids");
    rig.server.assign(vec![sh(&format!("{}; sleep 600", unmarked(&pids)))]).await;
    let pid = rig.server.wait_for("its process", |_| numbers(&pids).first().copied()).await;
    let log = fs::read_to_string(rig.config.dir.join("supervisor.log")).unwrap();
    if log.contains("cannot create control groups") {
        eprintln!("skipped: cannot create control groups");
        return;
    }
    signal(rig.supervisor(), Signal::STOP);
    frozen(&rig, pid).await;
    signal(rig.supervisor(), Signal::CONT);
    thawed(&rig, pid).await;
}

pub(crate) async fn the_fuse_freezes_tasks_whose_supervisor_is_stopped() {
    let rig = short_leases().await;
    let pids = rig.shared("pids");
    let order = sh(&format!("{}; while :; do sleep 0.01; done", daemon(&pids)));
    rig.server.assign(vec![order.clone()]).await;
    let main = rig.server.started(&order.execution_id).await;
    let daemon = rig.server.wait_for("the daemon", |_| numbers(&pids).first().copied()).await;
    signal(rig.supervisor(), Signal::STOP);
    // Heartbeats are still answered, but no lease reaches the fuse.
    frozen(&rig, main).await;
    frozen(&rig, daemon).await;
    signal(rig.supervisor(), Signal::CONT);
    thawed(&rig, main).await;
    thawed(&rig, daemon).await;
    assert!(rig.server.state().finished(&order.execution_id).is_none());
}

pub(crate) async fn the_fuse_kills_everything_when_the_supervisor_is_killed() {
    let mut rig = TestWorker::new().await;
    let pids = rig.shared("pids");
    let order = sh(&format!("{}; sleep 600 & echo $! >> {}; sleep 600", daemon(&pids), pids.display()));
    rig.server.assign(vec![order.clone()]).await;
    let main = rig.server.started(&order.execution_id).await;
    rig.server.wait_for("its children", |_| (numbers(&pids).len() == 2).then_some(())).await;
    // Without an agent no other supervisor is started, which would kill the processes too.
    rig.kill_agent().await;
    signal(rig.supervisor(), Signal::KILL);
    for pid in numbers(&pids).into_iter().chain([main]) {
        rig.server.wait_for("its exit", |_| process_state(pid).is_none().then_some(())).await;
    }
}

pub(crate) async fn a_killed_fuse_is_replaced_and_the_new_one_guards_running_tasks() {
    let mut rig = TestWorker::new().await;
    let (_, _, pid) = counting(&rig, "count").await;
    let fuse = rig.fuse().expect("there is a fuse");
    signal(fuse, Signal::KILL);
    rig.server.wait_for("another fuse", |_| rig.fuse().filter(|other| *other != fuse)).await;
    assert!(process_state(pid).is_some());
    // Only the fuse kills a daemon, which gets no parent death signal; it is identified by its environment.
    let pids = rig.shared("pids");
    let order = sh(&format!("{}; sleep 600", daemon(&pids)));
    rig.server.assign(vec![order]).await;
    let daemon = rig.server.wait_for("the daemon", |_| numbers(&pids).first().copied()).await;
    rig.kill_agent().await;
    signal(rig.supervisor(), Signal::KILL);
    rig.server.wait_for("its exit", |_| process_state(daemon).is_none().then_some(())).await;
}

/// The copy has the identity of the original, and its journal lists the running tasks of the original.
pub(crate) async fn a_supervisor_of_a_copied_folder_does_not_kill_tasks_of_the_original() {
    let rig = TestWorker::new().await;
    let (order, file, pid) = counting(&rig, "count").await;
    let copy = rig.dir.path().join("copy");
    fs::create_dir(&copy).unwrap();
    fs::copy(rig.config.dir.join("journal"), copy.join("journal")).unwrap();
    let mut config = worker::SupervisorConfig::new(&copy);
    config.program.clone_from(&rig.config.program);
    let mut other = Command::new(&config.program).arg("supervisor").args(config.to_args()).spawn().unwrap();
    // The supervisor listens after it has killed the processes that it considers its own.
    let is_ready = || UnixStream::connect(copy.join("supervisor.sock")).is_ok();
    rig.server.wait_for("the other supervisor", |_| is_ready().then_some(())).await;
    assert!(process_state(pid).is_some(), "the other supervisor has killed the task");
    signal(other.id().cast_signed(), Signal::TERM);
    other.wait().unwrap();
    counts(&rig, &file).await;
    assert!(rig.server.state().finished(&order.execution_id).is_none());
}

/// Creates a program whose first fuse closes its socket, and from then on stops the process whose id is in `victim`.
/// The second fuse creates a file `replaced`.
fn program_with_a_broken_fuse(dir: &Path, victim: &Path) -> PathBuf {
    let text = format!(
        "if [ \"$1\" = fuse ] && mkdir {dir}/was-broken 2>/dev/null; then\n\
        while ! [ -s {victim} ]; do sleep 0.01; done\n\
        read pid < {victim}; exec 0<&-; while :; do kill -STOP $pid; done\n\
        fi\n\
        if [ \"$1\" = fuse ]; then : > {dir}/replaced; fi",
        dir = dir.display(),
        victim = victim.display(),
    );
    program_with(dir, &text)
}

pub(crate) async fn tasks_frozen_by_a_replaced_fuse_continue() {
    let rig = TestWorker::with(|config, _| {
        let dir = config.dir.parent().unwrap();
        config.program = program_with_a_broken_fuse(dir, &dir.join("victim"));
    })
    .await;
    let (_, file, pid) = counting(&rig, "count").await;
    // Many other tasks are thawed after it, so that there is time to stop it again.
    let crowd = rig.shared("crowd");
    let order = sh(&format!("for n in $(seq 500); do sleep 600 & done; echo 1 >> {}; wait", crowd.display()));
    rig.server.assign(vec![order]).await;
    rig.server.wait_for("the crowd", |_| (numbers(&crowd) == [1]).then_some(())).await;
    fs::write(rig.shared("victim"), format!("{pid}\n")).unwrap();
    let replaced = rig.dir.path().join("replaced");
    rig.server.wait_for("another fuse", |_| replaced.exists().then_some(())).await;
    counts(&rig, &file).await;
}

pub(crate) async fn executions_of_a_killed_supervisor_are_reported_as_interrupted() {
    let rig = TestWorker::new().await;
    let (order, _, pid) = counting(&rig, "count").await;
    let worker = rig.server.state().hellos[0].worker_id.clone();
    let supervisor = rig.supervisor();
    signal(supervisor, Signal::KILL);
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!(finished.how(), How::Interrupted, "{finished:?}");
    assert!(process_state(pid).is_none());
    assert_ne!(rig.supervisor(), supervisor);
    assert_eq!(rig.server.state().hellos.last().unwrap().worker_id, worker);
    // The new supervisor works.
    let (_, finished) = rig.run("exit 0").await;
    assert_eq!(finished.exit_code, Some(0));
    assert!(Duration::from_millis(finished.run_ms) < Duration::from_secs(10));
}

/// A fuse of another release may do so, because it does not support the table of guarded executions.
pub(crate) async fn a_fuse_that_exits_at_once_is_restarted_with_a_delay() {
    let begun = std::time::Instant::now();
    let rig = TestWorker::with(|config, state| {
        let dir = config.dir.parent().unwrap();
        let (fuses, good) = (dir.join("fuses"), dir.join("good"));
        let ends = format!("echo 1 >> {}; [ -e {} ] || exit 1", fuses.display(), good.display());
        config.program = program_with(dir, &format!("if [ $1 = fuse ]; then {ends}; fi"));
        state.lease_ms = Some(SHORT_LEASE);
    })
    .await;
    let fuses = rig.dir.path().join("fuses");
    let count = || if fuses.exists() { numbers(&fuses).len() } else { 0 };
    let started = rig.server.wait_for("four fuses", |_| Some(count()).filter(|count| *count >= 4)).await;
    // One per second; a slow machine starts fewer.
    let seconds = begun.elapsed().as_secs();
    assert!(started as u64 <= seconds + 2, "{started} fuses in {seconds} s");
    rig.shared("good");
    rig.server.wait_for("a fuse that works", |_| rig.fuse()).await;
    let (_, _, pid) = counting(&rig, "count").await;
    signal(rig.supervisor(), Signal::STOP);
    frozen(&rig, pid).await;
}

/// Tools that slow other processes down by signals do so. The signalling process has left the group of its task, so
/// it is stopped last.
pub(crate) async fn processes_continued_by_another_process_are_frozen_again() {
    const OTHERS: usize = 50;
    const ROUNDS: usize = 5;
    let rig = short_leases().await;
    let pids = rig.shared("pids");
    let order = sh(&format!(
        "for n in $(seq {OTHERS}); do sleep 600 & all=\"$all $!\"; echo $! >> {0}; done
         setsid sh -c \"while :; do kill -CONT $all; done\" & echo $! >> {0}; wait",
        pids.display()
    ));
    rig.server.assign(vec![order.clone()]).await;
    let pids =
        rig.server.wait_for("all processes", |_| Some(numbers(&pids)).filter(|all| all.len() > OTHERS)).await;
    let are_frozen = || pids.iter().all(|pid| is_frozen(*pid));
    for _ in 0..ROUNDS {
        // With a stopped supervisor, only the fuse freezes them.
        signal(rig.supervisor(), Signal::STOP);
        frozen(&rig, pids[OTHERS]).await;
        rig.server.wait_for("the freeze", |_| are_frozen().then_some(())).await;
        let beats = rig.server.state().beats.len();
        rig.server.wait_for("five heartbeats", |state| (state.beats.len() > beats + 5).then_some(())).await;
        assert!(are_frozen(), "some processes still run");
        signal(rig.supervisor(), Signal::CONT);
        thawed(&rig, pids[OTHERS]).await;
    }
}

/// A stopped fuse freezes nothing. Its supervisor detects this with the next lease, before the socket is full.
pub(crate) async fn a_stopped_fuse_is_replaced() {
    const BEATS_MAX: usize = 500;
    let rig = TestWorker::new().await;
    rig.server.wait_for("a heartbeat", |state| (!state.beats.is_empty()).then_some(())).await;
    let fuse = rig.server.wait_for("a fuse", |_| rig.fuse()).await;
    let before = rig.server.state().beats.len();
    signal(fuse, Signal::STOP);
    rig.server.wait_for("another fuse", |_| rig.fuse().filter(|other| *other != fuse)).await;
    let beats = rig.server.state().beats.len() - before;
    assert!(beats < BEATS_MAX, "it took {beats} heartbeats");
}
