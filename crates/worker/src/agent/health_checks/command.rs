//! Health checks by a command.
//!
//! The command has the user, the working directory and the environment of the task. Its process group is killed when
//! the check is dropped. Because its environment has the id of the execution, the supervisor finds its processes like
//! those of the task: it freezes them without a lease, and kills them with the task.
//!
//! # Limitations
//! - The command is not in the control group of the task, so its memory and CPU time do not count towards the limits.
//! - It has no supplementary groups of the task user.

#![expect(unsafe_code, reason = "what a child does before exec has no safe interface")]

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::link::Owner;
use crate::process::spawn::signal_name;

/// Maximum number of bytes of standard error that are kept.
const STDERR_BYTES_MAX: usize = 4 << 10;
/// Maximum time to read standard error after the command has exited; another process may still have it open.
const STDERR_MAX: Duration = Duration::from_millis(100);

/// What a command gets from the task.
#[derive(Debug, Clone, Default)]
pub(super) struct CommandContext {
    pub(super) working_directory: PathBuf,
    /// Environment of the task as `NAME=VALUE`.
    pub(super) environment: Vec<String>,
    /// User and group of the task; `None` keeps those of the agent.
    pub(super) owner: Option<Owner>,
}

/// A running command; its process group is killed when this is dropped before the command has exited.
struct Running {
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        // `None` once the process was reaped: its id may belong to another process then.
        let pid = self.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            // Fails only if the group has ended.
            kill_process_group(pid, Signal::KILL).ok();
        }
    }
}

/// Runs a command.
///
/// # Errors
/// The reason why it did not succeed, with the last line of its standard error.
pub(super) async fn run(argv: &[String], context: &CommandContext) -> Result<(), String> {
    let Some((program, arguments)) = argv.split_first() else { return Err("the command is empty".into()) };
    let child = command(program, arguments, context).spawn();
    let child = child.map_err(|error| format!("cannot execute `{program}`: {error}"))?;
    let mut running = Running { child };
    let mut stderr = running.child.stderr.take();
    let mut text = Vec::new();
    let status = tokio::select! {
        status = running.child.wait() => status,
        never = read_for_ever(stderr.as_mut(), &mut text) => match never {},
    };
    let status = status.map_err(|error| format!("cannot wait for `{program}`: {error}"))?;
    if status.success() {
        return Ok(());
    }
    // Cut off at the time limit if another process has it open.
    timeout(STDERR_MAX, read_to_end(stderr.as_mut(), &mut text)).await.ok();
    let end = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal} ({})", signal_name(signal)),
        (None, None) => "ended without an exit code or a signal".into(),
    };
    let text = String::from_utf8_lossy(&text);
    match text.lines().rev().map(str::trim).find(|line| !line.is_empty()) {
        Some(line) => Err(format!("{end}: {line}")),
        None => Err(end),
    }
}

fn command(program: &str, arguments: &[String], context: &CommandContext) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(context.environment.iter().filter_map(|variable| variable.split_once('=')))
        .current_dir(&context.working_directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(owner) = context.owner {
        // Also drops the supplementary groups of root.
        command.uid(owner.uid).gid(owner.gid);
    }
    // SAFETY: the closure makes only system calls, allocates nothing and takes no lock.
    unsafe { command.pre_exec(restrict) };
    command
}

/// Sets the same restrictions as for a task. Runs in the child, after the change of user.
fn restrict() -> io::Result<()> {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let on: libc::c_ulong = 1;
    let zero: libc::c_ulong = 0;
    let kill = libc::c_ulong::from(libc::SIGKILL.unsigned_abs());
    // SAFETY: the calls change only this process, and `none` is valid for the first one.
    let failed = unsafe {
        libc::umask(0o077);
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none) < 0
            || libc::prctl(libc::PR_SET_NO_NEW_PRIVS, on, zero, zero, zero) < 0
            // The command does not outlive the agent.
            || libc::prctl(libc::PR_SET_PDEATHSIG, kill) < 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads so that the command can write; keeps the end of the text.
async fn read_to_end(stderr: Option<&mut (impl AsyncRead + Unpin)>, text: &mut Vec<u8>) {
    let Some(stderr) = stderr else { return };
    let mut buffer = [0; 1024];
    while let Ok(len @ 1..) = stderr.read(&mut buffer).await {
        text.extend_from_slice(&buffer[..len]);
        let excess = text.len().saturating_sub(STDERR_BYTES_MAX);
        text.drain(..excess);
    }
}

async fn read_for_ever(
    stderr: Option<&mut (impl AsyncRead + Unpin)>,
    text: &mut Vec<u8>,
) -> std::convert::Infallible {
    read_to_end(stderr, text).await;
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(dir: &tempfile::TempDir) -> CommandContext {
        CommandContext {
            working_directory: dir.path().to_owned(),
            environment: vec!["PATH=/usr/bin:/bin".into(), "WANTED=a=b".into()],
            owner: None,
        }
    }

    async fn sh(script: &str, context: &CommandContext) -> Result<(), String> {
        run(&["sh".into(), "-c".into(), script.into()], context).await
    }

    #[tokio::test]
    async fn a_command_has_the_environment_and_the_working_directory_of_the_task() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(
            sh("[ \"$WANTED\" = a=b ] && [ -z \"$HOME\" ] && touch here", &context(&dir)).await,
            Ok(())
        );
        assert!(dir.path().join("here").exists());
    }

    #[tokio::test]
    async fn a_failed_command_returns_the_last_line_of_its_standard_error() {
        let dir = tempfile::tempdir().unwrap();
        let context = context(&dir);
        assert_eq!(sh("exit 3", &context).await, Err("exited with code 3".into()));
        assert_eq!(
            sh("echo one >&2; echo two >&2; exit 1", &context).await,
            Err("exited with code 1: two".into())
        );
        let flood = "i=0; while [ $i -lt 9000 ]; do echo 0123456789abcdef >&2; i=$((i+1)); done; echo last >&2; exit 1";
        assert_eq!(sh(flood, &context).await, Err("exited with code 1: last".into()));
        assert_eq!(sh("kill -9 $$", &context).await, Err("killed by signal 9 (SIGKILL)".into()));
        let error = run(&["no-such-command".into()], &context).await.unwrap_err();
        assert!(error.starts_with("cannot execute `no-such-command`: "), "{error}");
    }

    #[tokio::test]
    async fn the_whole_process_group_is_killed_when_the_check_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let context = context(&dir);
        let check = sh("sleep 600 & echo $! > pid.new; mv pid.new pid; wait", &context);
        let started = async {
            loop {
                if let Ok(pid) = std::fs::read_to_string(dir.path().join("pid")) {
                    return pid.trim().to_owned();
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let pid = tokio::select! {
            pid = started => pid,
            result = check => panic!("the command has ended: {result:?}"),
        };
        let is_alive = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['S', 'R', 'D']))
        };
        let killed = async {
            while is_alive() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(10), killed).await.expect("the process of the group is killed");
    }
}
