//! Reused process ids.
//!
//! The test runs in its own process id namespace, in which it selects the next id; this requires root.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::launch::hanging;
use crate::rig::{TestWorker, numbers, sh};

/// File with the last assigned process id.
const LAST: &str = "/proc/sys/kernel/ns_last_pid";
/// Maximum number of attempts; a thread of the test may take the id that is meant for a task.
const TRIES: usize = 100;

/// Returns a command in its own namespace, in which it is the first process.
fn alone(program: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", program]);
    command
}

/// D2. A program that is not loaded keeps a launch running while an orphan of a task exits. The id of the orphan is
/// assigned to another task much later.
pub(crate) async fn a_task_with_a_reused_process_id_is_not_reported_as_ended() {
    let chooses = format!("echo 300 > {LAST} && [ \"$(sh -c 'echo $$')\" -gt 300 ]");
    let can_choose = alone("sh").args(["-c", &chooses]).output();
    if !can_choose.as_ref().is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: process ids cannot be chosen here (root, CONFIG_CHECKPOINT_RESTORE)");
    }
    let program = std::env::current_exe().unwrap();
    let played = alone(program.to_str().unwrap()).arg("numbers").status();
    assert!(played.unwrap().success(), "see the output of the test in the namespace");
}

/// The part of the test inside the namespace.
pub(crate) async fn play() {
    let rig = TestWorker::new().await;
    let Some(_hanging) = hanging(&rig, |_| {}).await else { return };
    for number in 0..TRIES {
        let orphan = orphan(&rig, number).await;
        let go = rig.shared(&format!("go-{number}"));
        let task = sh(&format!("while ! [ -s {} ]; do sleep 0.01; done; exit 7", go.display()));
        fs::write(LAST, (orphan - 1).to_string()).unwrap();
        rig.server.assign(vec![task.clone()]).await;
        let id = &task.execution_id;
        let begun = rig.server.wait_for("its start", |state| {
            let (started, finished) = (state.started(id), state.finished(id));
            (started.is_some() || finished.is_some()).then_some((started, finished))
        });
        let (started, finished) = begun.await;
        let beats = rig.server.state().beats.len();
        rig.server.wait_for("ten heartbeats", |state| (state.beats.len() > beats + 10).then_some(())).await;
        let finished = finished.or_else(|| rig.server.state().finished(id));
        assert!(finished.is_none(), "the task is still running: {finished:?}");
        fs::write(&go, "1").unwrap();
        assert_eq!(rig.server.finished(id).await.exit_code, Some(7));
        if started.is_some_and(|started| started.pid == orphan.unsigned_abs()) {
            return;
        }
    }
    panic!("no task got the selected process id");
}

/// Returns the id of an orphan of a task that has exited and was reaped.
async fn orphan(rig: &TestWorker, number: usize) -> i32 {
    let (pids, go) = (rig.shared(&format!("orphan-{number}")), rig.shared(&format!("gone-{number}")));
    let leaves = format!("sh -c 'sh -c \"echo \\$\\$ >> {}\" & exit 0'", pids.display());
    let task = sh(&format!("{leaves}; while ! [ -s {} ]; do sleep 0.01; done", go.display()));
    rig.server.assign(vec![task.clone()]).await;
    let pid = rig.server.wait_for("the orphan", |_| numbers(&pids).first().copied()).await;
    let is_gone = || !Path::new(&format!("/proc/{pid}")).exists();
    rig.server.wait_for("its exit", |_| is_gone().then_some(())).await;
    fs::write(&go, "1").unwrap();
    assert_eq!(rig.server.finished(&task.execution_id).await.exit_code, Some(0));
    pid
}
