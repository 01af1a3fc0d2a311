//! Tasks whose programs are still being loaded, as on a network file system that does not respond.
//!
//! [`Hanging`] is such a program: the test holds a file lease on it, so that opening it blocks. Without file
//! leases these tests print a notice and pass. The kernel breaks a lease after 45 seconds, which bounds the
//! tests.
//!
//! Until its program is loaded, a process has the environment of its supervisor, so the usual marks do not
//! identify it. The tests cover stops, timeouts, shutdowns and leases that expire in this state, and launches
//! that wait for a thread because all threads hang.

#![expect(unsafe_code, reason = "file leases have no safe interface")]

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use model::Duration;
use model::spec::{Delivery, JobSpec};
use proto::v1::finished::How;
use proto::v1::report::Body;
use proto::v1::{Assignment, Finished};
use rustix::process::Signal;

use crate::rig::{TestWorker, assignment, is_frozen, numbers, process_state, script, sh, signal, stop};

/// Approximate maximum number of concurrent launches, including those that wait for a thread.
const LAUNCHES_MAX: usize = 64;
const SHORT_LEASE: u64 = 400;

/// `fcntl` command that selects the signal for opened leased files; `libc` does not define it.
const F_SETSIG: i32 = 10;

/// A program that cannot be loaded until this is dropped: opening it blocks until the file lease is returned, or
/// until the kernel breaks the lease after 45 seconds.
pub(crate) struct Hanging(File);

impl Hanging {
    /// Creates a program that sleeps; `None` if file leases are not available.
    fn new(path: &Path) -> Option<Self> {
        fs::copy("/bin/sleep", path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        let hanging = Self(File::open(path).unwrap());
        // SIGURG is ignored; the default signal would end the process when another process opens the file.
        // SAFETY: no memory is passed.
        let is_leased = unsafe {
            libc::fcntl(hanging.0.as_raw_fd(), F_SETSIG, libc::SIGURG) == 0
                && libc::fcntl(hanging.0.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) == 0
        };
        if !is_leased {
            eprintln!("skipped: file leases are not available");
        }
        is_leased.then_some(hanging)
    }

    /// Returns whether a process is waiting to open the program.
    fn is_awaited(&self) -> bool {
        // SAFETY: no memory is passed.
        unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_GETLEASE) != libc::F_WRLCK }
    }
}

/// Starts an execution whose program is not loaded.
pub(crate) async fn hanging(
    rig: &TestWorker,
    change: impl FnOnce(&mut JobSpec),
) -> Option<(Hanging, Assignment)> {
    let (program, mut orders) = several_hanging(rig, 1, change).await?;
    Some((program, orders.remove(0)))
}

/// Starts several executions of one program that is not loaded.
async fn several_hanging(
    rig: &TestWorker,
    count: usize,
    change: impl FnOnce(&mut JobSpec),
) -> Option<(Hanging, Vec<Assignment>)> {
    let path = rig.dir.path().join("program");
    let program = Hanging::new(&path)?;
    let mut spec = JobSpec::command([path.to_str().unwrap(), "600"]);
    change(&mut spec);
    let orders: Vec<_> = (0..count).map(|_| assignment(&spec)).collect();
    rig.server.session().await;
    let before = children(rig).len();
    rig.server.assign(orders.clone()).await;
    let are_born = || children(rig).len() == before + count;
    rig.server.wait_for("the starts", |_| (program.is_awaited() && are_born()).then_some(())).await;
    Some((program, orders))
}

/// Occupies all launching threads with executions of a program that is not loaded; they run without a lease.
async fn all_threads_hanging(rig: &TestWorker) -> Option<(Hanging, Vec<Assignment>)> {
    let threads = std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8));
    several_hanging(rig, threads, |spec| spec.delivery = Delivery::AtMostOnce).await
}

pub(crate) async fn a_task_whose_program_is_not_loaded_can_be_stopped() {
    let rig = TestWorker::new().await;
    for grace_ms in [0, 200] {
        let Some((program, order)) = hanging(&rig, |_| {}).await else { return };
        rig.server.stop(stop(&order, grace_ms)).await;
        let finished = rig.server.finished(&order.execution_id).await;
        assert_eq!((finished.how(), finished.signal), (How::Stopped, Some(9)), "{finished:?}");
        drop(program);
    }
    // The thread then launches the next task.
    assert_eq!(rig.run("exit 0").await.1.exit_code, Some(0));
}

pub(crate) async fn a_task_whose_program_is_not_loaded_times_out() {
    let rig = TestWorker::new().await;
    let timeout = Some(Duration::from_millis(500));
    let Some((_program, order)) = hanging(&rig, |spec| spec.timeout = timeout).await else { return };
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!(finished.how(), How::TimedOut, "{finished:?}");
    // The kernel breaks the file lease after 45 seconds.
    assert!(finished.run_ms < 40_000, "the program was loaded first: {finished:?}");
}

pub(crate) async fn a_task_whose_program_is_not_loaded_ends_with_its_supervisor() {
    let rig = TestWorker::new().await;
    let Some((_program, order)) = hanging(&rig, |_| {}).await else { return };
    signal(rig.supervisor(), Signal::TERM);
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!(finished.how(), How::Interrupted);
    // Otherwise the next supervisor would report that this one went down.
    assert_eq!(finished.detail, "the worker's supervisor was stopped");
}

async fn frozen_before_it_is_loaded(
    rig: &TestWorker,
    change: impl FnOnce(&mut JobSpec),
) -> Option<(Hanging, Assignment)> {
    let found = hanging(rig, change).await?;
    let log = fs::read_to_string(rig.config.dir.join("supervisor.log")).unwrap();
    if log.contains("cannot create control groups") {
        eprintln!("skipped: cannot create control groups");
        return None;
    }
    rig.server.state().lease_ms = None;
    rig.server.wait_for("the freeze", |_| children(rig).into_iter().any(is_frozen).then_some(())).await;
    Some(found)
}

/// Returns the processes that threads of the supervisor other than its first have started.
fn children(rig: &TestWorker) -> Vec<i32> {
    let supervisor = rig.supervisor();
    let threads = fs::read_dir(format!("/proc/{supervisor}/task")).unwrap().flatten();
    let others = threads.filter(|thread| thread.file_name().to_str() != Some(&supervisor.to_string()));
    let children = others.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: String = children.collect();
    let pids = children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
    pids.filter(|pid| process_state(*pid).is_some()).collect()
}

pub(crate) async fn a_task_that_was_frozen_before_its_program_was_loaded_can_be_stopped() {
    let rig = TestWorker::with(|_, state| state.lease_ms = Some(400)).await;
    let Some((_program, order)) = frozen_before_it_is_loaded(&rig, |_| {}).await else { return };
    rig.server.stop(stop(&order, 3_600_000)).await;
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!(finished.how(), How::Stopped, "{finished:?}");
}

pub(crate) async fn time_frozen_during_the_launch_does_not_count_towards_the_timeout() {
    let rig = TestWorker::with(|_, state| state.lease_ms = Some(400)).await;
    let timeout = Some(Duration::from_secs(2));
    let found = frozen_before_it_is_loaded(&rig, |spec| spec.timeout = timeout).await;
    let Some((program, order)) = found else { return };
    // 60 heartbeats take about three seconds: longer than the timeout.
    let beats = rig.server.state().beats.len();
    rig.server.wait_for("sixty heartbeats", |state| (state.beats.len() > beats + 60).then_some(())).await;
    drop(program);
    rig.server.state().lease_ms = Some(60_000);
    let Finished { run_ms, .. } = rig.server.finished(&order.execution_id).await;
    assert!(run_ms > 4_500, "{run_ms} ms, including about three seconds frozen");
}

/// Starts a task that is frozen when the lease expires; returns its process id.
async fn sleeping(rig: &TestWorker) -> i32 {
    let order = assignment(&JobSpec::command(["sleep", "600"]));
    rig.server.assign(vec![order.clone()]).await;
    rig.server.started(&order.execution_id).await
}

async fn frozen(rig: &TestWorker, pid: i32) {
    rig.server.wait_for("the freeze", |_| is_frozen(pid).then_some(())).await;
}

/// Waits for ten heartbeats, during which a violation would become visible.
async fn ten_beats(rig: &TestWorker) {
    let beats = rig.server.state().beats.len();
    rig.server.wait_for("ten heartbeats", |state| (state.beats.len() > beats + 10).then_some(())).await;
}

/// D4. A burst of launches is running when the supervisor is stopped. It continues after its lease has expired, and
/// its agent has been killed. Other workers may then run the executions in the queue of its threads.
pub(crate) async fn queued_launches_do_not_start_after_the_lease_expired_during_a_pause() {
    const WAITING: usize = 40;
    let mut rig = TestWorker::with(|_, state| state.lease_ms = Some(SHORT_LEASE)).await;
    let sleeping = sleeping(&rig).await;
    let Some((program, _)) = all_threads_hanging(&rig).await else { return };
    let starts = rig.shared("starts");
    let orders: Vec<_> = (0..WAITING).map(|_| sh(&format!("echo 1 >> {}", starts.display()))).collect();
    rig.server.assign(orders.clone()).await;
    // Only their scripts exist so far.
    rig.server.wait_for("a full queue", |_| (rig.files_of_tasks() == WAITING).then_some(())).await;
    rig.server.state().lease_ms = None;
    signal(rig.supervisor(), Signal::STOP);
    rig.kill_agent().await;
    frozen(&rig, sleeping).await;
    assert_eq!(numbers(&starts), [0; 0], "the queue was not full");
    // From now on the threads can launch.
    drop(program);
    signal(rig.supervisor(), Signal::CONT);
    rig.start_agent();
    rig.server.wait_for("another hello", |state| state.hellos.get(1).cloned()).await;
    ten_beats(&rig).await;
    assert_eq!(numbers(&starts), [0; 0], "tasks were started without a lease");
    rig.server.state().lease_ms = Some(60_000);
    for order in &orders {
        assert_eq!(rig.server.finished(&order.execution_id).await.exit_code, Some(0));
    }
    assert_eq!(numbers(&starts), [1; WAITING], "each was started once");
}

/// D4. Only the fuse can freeze the task, and only after it was loaded: until then the process has the environment of
/// its supervisor.
pub(crate) async fn a_program_loaded_after_the_lease_expired_is_frozen_while_the_supervisor_is_stopped() {
    let rig = TestWorker::with(|config, state| {
        config.control_groups = false;
        state.lease_ms = Some(SHORT_LEASE);
    })
    .await;
    let sleeping = sleeping(&rig).await;
    let Some((program, order)) = hanging(&rig, |_| {}).await else { return };
    let pid = children(&rig).into_iter().find(|pid| *pid != sleeping).unwrap();
    signal(rig.supervisor(), Signal::STOP);
    frozen(&rig, sleeping).await;
    drop(program);
    let path = rig.dir.path().join("program");
    let is_loaded = || fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == path);
    rig.server.wait_for("the program", |_| is_loaded().then_some(())).await;
    frozen(&rig, pid).await;
    rig.server.state().lease_ms = Some(60_000);
    signal(rig.supervisor(), Signal::CONT);
    assert_eq!(rig.server.started(&order.execution_id).await, pid);
    rig.server.wait_for("the thaw", |_| (!is_frozen(pid)).then_some(())).await;
}

/// D5. The supervisor processes the next lease before the start of the program.
pub(crate) async fn a_program_frozen_before_it_was_loaded_continues_under_the_next_lease() {
    let rig = TestWorker::with(|_, state| state.lease_ms = Some(SHORT_LEASE)).await;
    let Some((program, order)) = hanging(&rig, |_| {}).await else { return };
    let log = fs::read_to_string(rig.config.dir.join("supervisor.log")).unwrap();
    if log.contains("cannot create control groups") {
        return eprintln!("skipped: cannot create control groups");
    }
    let pid = children(&rig)[0];
    signal(rig.supervisor(), Signal::STOP);
    frozen(&rig, pid).await;
    rig.server.state().lease_ms = Some(60_000);
    signal(rig.supervisor(), Signal::CONT);
    rig.server.wait_for("the thaw", |_| (!is_frozen(pid)).then_some(())).await;
    drop(program);
    assert_eq!(rig.server.started(&order.execution_id).await, pid);
    ten_beats(&rig).await;
    assert!(!is_frozen(pid), "the task is frozen under a valid lease");
}

/// B5. The server is notified, so that it places no executions there.
pub(crate) async fn a_worker_reports_that_all_threads_wait_for_programs() {
    let rig = TestWorker::with(|config, _| config.supervisor_timeout = Duration::from_secs(4)).await;
    let Some((program, orders)) = all_threads_hanging(&rig).await else { return };
    let trouble = |state: &crate::server::State| Some(state.beats.last()?.health.clone()?.problem);
    let says = |text: &str| text.contains("cannot start tasks");
    rig.server.wait_for("the health problem", |state| trouble(state).filter(|text| says(text))).await;
    drop(program);
    for order in &orders {
        rig.server.started(&order.execution_id).await;
    }
    rig.server.wait_for("no health problem", |state| trouble(state).filter(|text| !says(text))).await;
}

/// D2. These executions never ran, so an `at_most_once` job loses nothing.
pub(crate) async fn executions_not_started_before_the_shutdown_are_refused() {
    let rig = TestWorker::new().await;
    let Some((_program, hanging)) = all_threads_hanging(&rig).await else { return };
    let starts = rig.shared("starts");
    let mut spec = script(&format!("echo 1 >> {}", starts.display()));
    spec.delivery = Delivery::AtMostOnce;
    // Some wait for a thread, and others for a place in the queue.
    let orders: Vec<_> = (0..LAUNCHES_MAX + 16).map(|_| assignment(&spec)).collect();
    rig.server.assign(orders.clone()).await;
    let queued = LAUNCHES_MAX - hanging.len();
    rig.server.wait_for("a full queue", |_| (rig.files_of_tasks() >= queued).then_some(())).await;
    signal(rig.supervisor(), Signal::TERM);
    for order in &orders {
        let refused = |body: &Body| matches!(body, Body::Refused(refused) if refused.reason == "stopped");
        rig.server.wait_for("a refusal", |s| s.of(&order.execution_id).any(refused).then_some(())).await;
    }
    assert_eq!(numbers(&starts), [0; 0]);
}
