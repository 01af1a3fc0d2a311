//! A worker under test: its folder, its agent and its server.
//!
//! [`TestWorker`] runs the agent in the test process, with a supervisor and a fuse in processes of their own.
//! `sh` and `assignment` make assignments with new ids; [`TestWorker::run`] runs a script to its end.
//!
//! The functions below it observe processes (`process_state`, `is_frozen`) or build scripts for processes
//! that try to escape from their task (`daemon`, `unmarked`).
//!
//! A dropped worker ends its supervisor, and with it all tasks.

use std::fs;
use std::future::pending;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use model::spec::{JobSpec, ProcessRun, Run};
use model::{Duration, ExecutionId, JobId};
use proto::v1::report::Body;
use proto::v1::{Assignment, Stop};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinHandle;
use worker::AgentConfig;

use crate::server::{FakeServer, State};

pub(crate) struct TestWorker {
    pub(crate) server: FakeServer,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) config: AgentConfig,
    agent: Option<JoinHandle<()>>,
}

impl TestWorker {
    pub(crate) async fn new() -> Self {
        Self::with(|_, _| {}).await
    }

    /// Starts a worker with a changed configuration or a changed server state.
    pub(crate) async fn with(change: impl FnOnce(&mut AgentConfig, &mut State)) -> Self {
        let server = FakeServer::start().await;
        let dir = tempfile::tempdir().unwrap();
        // The task user must be able to access the folder.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut config =
            AgentConfig::new(dir.path().join("worker"), format!("http://{}", server.address), "secret");
        config.capacity.slots = 10_000;
        config.idle_exit = Duration::from_secs(20);
        change(&mut config, &mut server.state());
        let mut rig = Self { server, dir, config, agent: None };
        rig.start_agent();
        rig
    }

    pub(crate) fn start_agent(&mut self) {
        let config = self.config.clone();
        let run = async { worker::run_agent(config, pending()).await.unwrap() };
        self.agent = Some(tokio::spawn(run));
    }

    /// Stops the agent as abruptly as SIGKILL.
    pub(crate) async fn kill_agent(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.abort();
            agent.await.ok();
        }
    }

    /// Creates a file that tasks may read and write.
    pub(crate) fn shared(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        path
    }

    /// Number of files in all folders of executions, without their sockets.
    pub(crate) fn files_of_tasks(&self) -> usize {
        let entries = |dir: &Path| {
            fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect::<Vec<_>>()
        };
        entries(&self.config.dir.join("exec"))
            .iter()
            .map(|folder| entries(folder).len() - usize::from(folder.join(".belfry.sock").exists()))
            .sum()
    }

    pub(crate) fn supervisor(&self) -> i32 {
        fs::read_to_string(self.config.dir.join("lock")).unwrap().trim().parse().unwrap()
    }

    /// The fuse: the only child of the supervisor that runs the test program.
    pub(crate) fn fuse(&self) -> Option<i32> {
        let own = fs::read_link("/proc/self/exe").unwrap();
        let pid = self.supervisor();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        children
            .split_ascii_whitespace()
            .find(|child| fs::read_link(format!("/proc/{child}/exe")).is_ok_and(|exe| exe == own))
            .map(|child| child.parse().unwrap())
    }

    /// Assigns an ended execution repeatedly until it is refused; a supervisor that is shutting down accepts no
    /// assignments.
    pub(crate) async fn is_refused(&self, order: &Assignment) {
        self.server.state().reports.clear();
        let refused = |body: &Body| matches!(body, Body::Refused(refused) if refused.reason == "known");
        let is_refused = |state: &mut State| state.of(&order.execution_id).any(refused).then_some(());
        let again = async {
            loop {
                self.server.assign(vec![order.clone()]).await;
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            }
        };
        tokio::select! {
            () = self.server.wait_for("a refusal", is_refused) => {}
            () = again => {}
        }
    }

    /// Runs a script to its end.
    pub(crate) async fn run(&self, script: &str) -> (String, proto::v1::Finished) {
        let assignment = sh(script);
        let id = assignment.execution_id.clone();
        self.server.assign(vec![assignment]).await;
        let finished = self.server.finished(&id).await;
        (id, finished)
    }
}

impl Drop for TestWorker {
    fn drop(&mut self) {
        if let Some(agent) = &self.agent {
            agent.abort();
        }
        if self.config.dir.join("lock").exists() {
            end(self.supervisor());
        }
        if std::thread::panicking() {
            let log = fs::read_to_string(self.config.dir.join("supervisor.log")).unwrap_or_default();
            eprintln!("supervisor: {log}");
        }
    }
}

/// Terminates a supervisor so that nothing is left behind; kills it after 10 seconds.
fn end(supervisor: i32) {
    signal(supervisor, Signal::CONT);
    signal(supervisor, Signal::TERM);
    let deadline = Instant::now() + std::time::Duration::from_secs(10);
    while process_state(supervisor).is_some() {
        if Instant::now() > deadline {
            return signal(supervisor, Signal::KILL);
        }
        std::thread::yield_now();
    }
}

pub(crate) fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        kill_process(pid, signal).ok();
    }
}

/// State letter of a process; `None` if it is dead or does not exist.
pub(crate) fn process_state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 2..].chars().next().filter(|state| !matches!(state, 'Z' | 'X'))
}

/// Returns whether the main process of a task is stopped. A shell that was stopped together with a forked child
/// before the child called `exec` waits in the kernel, and is not shown as stopped.
pub(crate) fn is_frozen(pid: i32) -> bool {
    let waits_for_stopped = || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let mut children = children.split_ascii_whitespace().filter_map(|child| child.parse().ok());
        children.any(|child| process_state(child) == Some('T'))
    };
    match process_state(pid) {
        Some('T') => true,
        Some('D') => waits_for_stopped(),
        _ => false,
    }
}

/// Creates a program that runs the shell commands `before` and then the test program.
pub(crate) fn program_with(dir: &Path, before: &str) -> PathBuf {
    let program = dir.join("program");
    let own = std::env::current_exe().unwrap();
    fs::write(&program, format!("#!/bin/sh\n{before}\nexec {} \"$@\"\n", own.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// Reads the numbers in a file, one per line.
pub(crate) fn numbers(path: &Path) -> Vec<i32> {
    fs::read_to_string(path).unwrap().lines().filter_map(|line| line.trim().parse().ok()).collect()
}

pub(crate) fn script(script: &str) -> JobSpec {
    JobSpec::new(Run::Process(ProcessRun { script: Some(script.to_owned()), ..ProcessRun::default() }))
}

pub(crate) fn sh(text: &str) -> Assignment {
    assignment(&script(text))
}

pub(crate) fn stop(order: &Assignment, grace_ms: u64) -> Stop {
    let reason = "cancelled".into();
    Stop { execution_id: order.execution_id.clone(), fence: order.fence, grace_ms, discard: false, reason }
}

/// Creates an assignment with new ids.
pub(crate) fn assignment(spec: &JobSpec) -> Assignment {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // The process id separates concurrent tests, because remaining processes are found by execution id.
    let bits = (u128::from(std::process::id()) << 80) | (u128::from(number) << 16);
    Assignment {
        execution_id: ExecutionId::from_bits(bits).to_string(),
        job_id: JobId::from_bits(bits).to_string(),
        fence: 1_000 + number,
        number: 1,
        spec: serde_json::to_vec(spec).unwrap().into(),
        origin: None,
        step: None,
        checkpoint_version: 0,
        replica: None,
    }
}

/// Script for a daemon that forks twice and has its own session. It writes its process id to `file`.
pub(crate) fn daemon(file: &Path) -> String {
    format!(
        "setsid sh -c 'sh -c \"echo \\$\\$ >> {0}; exec sleep 600\" & exit 0'; while ! [ -s {0} ]; do sleep 0.01; done",
        file.display()
    )
}

/// Script for a process with its own session and an empty environment, whose parent exits at once. It writes its
/// process id to `file`.
pub(crate) fn unmarked(file: &Path) -> String {
    format!(
        "sh -c 'setsid env -i sh -c \"echo \\$\\$ >> {0}; exec sleep 600\" </dev/null >/dev/null 2>&1 & exit 0'; while ! [ -s {0} ]; do sleep 0.01; done",
        file.display()
    )
}
