//! Stops, timeouts, and remaining processes.
//!
//! After a task has ended, no process of it may be left, and its end is reported only then. So the tests
//! start processes that try to escape: daemons with their own session, processes without the environment of
//! the task, and siblings of the task.
//!
//! Two ways to find processes are tested: with control groups, and without them by the environment and the
//! start time of a process. Tests of control groups are skipped where the worker cannot create them.

#![expect(unsafe_code, reason = "creating a sibling process has no safe interface")]
#![expect(clippy::print_stdout, reason = "a program of this test prints its result")]

use std::fs;
use std::process::ExitCode;

use model::Duration;
use model::spec::StopSignal;
use proto::v1::Stop;
use proto::v1::finished::How;
use proto::v1::report::Body;
use rustix::process::Signal;

use crate::rig::{
    TestWorker, assignment, daemon, numbers, process_state, program_with, script, sh, signal, stop, unmarked,
};

pub(crate) async fn a_stop_before_the_assignment_refuses_the_execution_permanently() {
    let rig = TestWorker::new().await;
    let ran = rig.shared("ran");
    let order = sh(&format!("echo 1 >> {}", ran.display()));
    rig.server.state().acknowledge = false;
    rig.server.stop(stop(&order, 0)).await;
    let refused = |body: &Body| matches!(body, Body::Refused(refused) if refused.reason == "stopped");
    rig.server.wait_for("a refusal", |s| s.of(&order.execution_id).any(refused).then_some(())).await;
    rig.server.state().reports.clear();
    rig.server.assign(vec![order.clone()]).await;
    rig.server.wait_for("the refusal again", |s| s.of(&order.execution_id).any(refused).then_some(())).await;
    assert!(rig.server.state().started(&order.execution_id).is_none());
    assert_eq!(numbers(&ran), [0; 0]);
}

pub(crate) async fn a_stopped_task_can_clean_up_within_its_grace_period() {
    let rig = TestWorker::new().await;
    let file = rig.shared("file");
    let path = file.display();
    let order =
        sh(&format!("trap 'echo 2 >> {path}; exit 0' TERM; echo 1 >> {path}; while :; do sleep 0.01; done"));
    rig.server.assign(vec![order.clone()]).await;
    rig.server.wait_for("the trap", |_| (numbers(&file) == [1]).then_some(())).await;
    rig.server.stop(stop(&order, 20_000)).await;
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!((finished.how(), finished.exit_code), (How::Stopped, Some(0)));
    assert_eq!(numbers(&file), [1, 2]);
}

pub(crate) async fn a_task_is_stopped_with_its_stop_signal() {
    let rig = TestWorker::new().await;
    let file = rig.shared("file");
    let path = file.display();
    let mut spec = script(&format!(
        "trap 'echo 3 >> {path}' TERM; trap 'echo 2 >> {path}; exit 0' INT; echo 1 >> {path}; while :; do sleep 0.01; done"
    ));
    spec.stop_signal = StopSignal::Int;
    let order = assignment(&spec);
    rig.server.assign(vec![order.clone()]).await;
    rig.server.wait_for("the trap", |_| (numbers(&file) == [1]).then_some(())).await;
    rig.server.stop(stop(&order, 20_000)).await;
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!((finished.how(), finished.exit_code), (How::Stopped, Some(0)));
    assert_eq!(numbers(&file), [1, 2]);
}

pub(crate) async fn a_task_that_ignores_its_timeout_is_killed_with_its_whole_tree() {
    let rig = TestWorker::new().await;
    let pids = rig.shared("pids");
    let mut spec = script(&format!(
        "trap '' TERM; {}; sleep 600 & echo $! >> {1}; echo $$ >> {1}; wait; sleep 600",
        daemon(&pids),
        pids.display()
    ));
    spec.timeout = Some(Duration::from_millis(500));
    spec.grace = Duration::from_millis(200);
    let order = assignment(&spec);
    rig.server.assign(vec![order.clone()]).await;
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!((finished.how(), finished.signal), (How::TimedOut, Some(9)), "{finished:?}");
    assert_eq!(finished.detail, "ran longer than its timeout of 500ms");
    assert!(finished.run_ms >= 700, "{finished:?}");
    let pids = numbers(&pids);
    assert_eq!(pids.len(), 3);
    // The end is reported only after all processes have exited.
    assert_eq!(pids.iter().filter_map(|pid| process_state(*pid)).count(), 0);
}

pub(crate) async fn remaining_processes_are_killed_before_the_end_is_reported() {
    let rig = TestWorker::new().await;
    let pids = rig.shared("pids");
    // The daemon of another task must not be killed.
    let neighbour = rig.shared("neighbour");
    let other = sh(&format!("{}; sleep 600", daemon(&neighbour)));
    rig.server.assign(vec![other.clone()]).await;
    rig.server.wait_for("the neighbour's daemon", |_| numbers(&neighbour).first().copied()).await;

    let (_, finished) =
        rig.run(&format!("{}; sleep 600 & echo $! >> {}", daemon(&pids), pids.display())).await;
    assert_eq!(finished.exit_code, Some(0));
    let pids = numbers(&pids);
    assert_eq!(pids.len(), 2);
    assert_eq!(pids.iter().filter_map(|pid| process_state(*pid)).count(), 0);
    assert!(process_state(numbers(&neighbour)[0]).is_some());
    assert!(rig.server.state().finished(&other.execution_id).is_none());
}

pub(crate) async fn a_discarded_execution_is_killed_and_not_reported() {
    let rig = TestWorker::new().await;
    let order = sh("echo something; sleep 600");
    rig.server.assign(vec![order.clone()]).await;
    let pid = rig.server.started(&order.execution_id).await;
    rig.server.stop(Stop { discard: true, ..stop(&order, 0) }).await;
    rig.server.wait_for("its exit", |_| process_state(pid).is_none().then_some(())).await;
    rig.server.wait_for("an empty folder", |_| (rig.files_of_tasks() == 0).then_some(())).await;
    rig.server.close_session();
    let hello = rig.server.wait_for("another hello", |state| state.hellos.get(1).cloned()).await;
    assert_eq!(hello.executions, []);
    assert!(rig.server.state().finished(&order.execution_id).is_none());
}

/// Returns whether this worker can create control groups.
fn has_groups(rig: &TestWorker) -> bool {
    let log = fs::read_to_string(rig.config.dir.join("supervisor.log")).unwrap();
    let has_groups = !log.contains("cannot create control groups");
    if !has_groups {
        eprintln!("skipped: cannot create control groups");
    }
    has_groups
}

pub(crate) async fn a_process_without_marks_is_killed_with_its_task() {
    let rig = TestWorker::new().await;
    let neighbour = rig.shared("neighbour");
    let other = sh(&format!("{}; sleep 600", unmarked(&neighbour)));
    rig.server.assign(vec![other.clone()]).await;
    rig.server.wait_for("the neighbour's process", |_| numbers(&neighbour).first().copied()).await;
    if !has_groups(&rig) {
        return;
    }
    for ending in ["exit 0", "sleep 600"] {
        let pids = rig.shared("pids");
        let order = sh(&format!("{}; {ending}", unmarked(&pids)));
        rig.server.assign(vec![order.clone()]).await;
        let pid = rig.server.wait_for("its process", |_| numbers(&pids).first().copied()).await;
        if ending != "exit 0" {
            rig.server.stop(stop(&order, 0)).await;
        }
        rig.server.finished(&order.execution_id).await;
        assert_eq!(process_state(pid), None, "{ending}");
    }
    assert!(process_state(numbers(&neighbour)[0]).is_some());
}

pub(crate) async fn a_process_without_marks_is_killed_with_its_supervisor() {
    let mut rig = TestWorker::new().await;
    let pids = rig.shared("pids");
    rig.server.assign(vec![sh(&format!("{}; sleep 600", unmarked(&pids)))]).await;
    let pid = rig.server.wait_for("its process", |_| numbers(&pids).first().copied()).await;
    if !has_groups(&rig) {
        return;
    }
    rig.kill_agent().await;
    signal(rig.supervisor(), Signal::KILL);
    rig.server.wait_for("its exit", |_| process_state(pid).is_none().then_some(())).await;
}

/// Creates a process that is a sibling instead of a child, prints its process id and exits.
pub(crate) fn make_sibling() -> ExitCode {
    // SAFETY: as `fork` in a program with one thread; the child calls nothing but `pause`.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_PARENT | libc::SIGCHLD, 0, 0, 0, 0) };
    if pid == 0 {
        loop {
            // SAFETY: `pause` has no preconditions.
            unsafe { libc::pause() };
        }
    }
    println!("{pid}");
    if pid > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The sibling is not a child of the task but of the supervisor's thread that started the task.
pub(crate) async fn a_sibling_created_by_a_task_is_killed_with_it() {
    for control_groups in [true, false] {
        let rig = TestWorker::with(|config, _| config.control_groups = control_groups).await;
        let pids = rig.shared("pids");
        let program = std::env::current_exe().unwrap();
        let script = format!("exec {} sibling > {}", program.display(), pids.display());
        let (_, finished) = rig.run(&script).await;
        assert_eq!(finished.exit_code, Some(0));
        assert_eq!(process_state(numbers(&pids)[0]), None, "with control groups: {control_groups}");
    }
}

/// The supervisor replaces the shell that has started it, as in the start script of a container.
pub(crate) async fn a_child_not_started_by_the_supervisor_is_not_killed() {
    let rig = TestWorker::with(|config, _| {
        let others = config.dir.with_file_name("others");
        let start = format!("if [ $1 = supervisor ]; then sleep 600 & echo $! >> {}; fi", others.display());
        config.program = program_with(config.dir.parent().unwrap(), &start);
    })
    .await;
    for script in ["true", "sleep 600 & true"] {
        assert_eq!(rig.run(script).await.1.exit_code, Some(0));
    }
    let other = numbers(&rig.dir.path().join("others"))[0];
    assert!(process_state(other).is_some(), "the process was killed");
    signal(other, Signal::KILL);
}

/// Without control groups, only the start time of the process is known.
pub(crate) async fn without_control_groups_an_unmarked_process_is_killed_with_the_last_task_of_its_start_time()
 {
    let rig = TestWorker::with(|config, _| config.control_groups = false).await;
    // Without another task: killed at once.
    let alone = rig.shared("alone");
    rig.run(&unmarked(&alone)).await;
    assert_eq!(process_state(numbers(&alone)[0]), None);
    // Beside another task: killed with that task at the latest.
    let beside = rig.shared("beside");
    let neighbour = sh("sleep 600");
    rig.server.assign(vec![neighbour.clone()]).await;
    rig.server.started(&neighbour.execution_id).await;
    rig.run(&unmarked(&beside)).await;
    let pid = numbers(&beside)[0];
    assert!(process_state(pid).is_some(), "it may belong to the other task");
    // A task that started later does not matter.
    let late = sh("sleep 600");
    rig.server.assign(vec![late.clone()]).await;
    rig.server.started(&late.execution_id).await;
    rig.server.stop(stop(&neighbour, 0)).await;
    rig.server.finished(&neighbour.execution_id).await;
    assert_eq!(process_state(pid), None);
    assert!(rig.server.state().finished(&late.execution_id).is_none());
}
