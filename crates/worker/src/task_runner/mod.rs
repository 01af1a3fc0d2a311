//! Runs the process of a task together with its sidecars and hooks.
//!
//! ```text
//! supervisor ─exec─> task runner ─> sidecars… ─> pre_start… ─> process ─> post_stop… ─> stops the sidecars, and exits
//! ```
//!
//! The runner is the main process of the task, so everything that the supervisor does to a task concerns it too: freezes,
//! timeouts, limits, and the kill at the end of the grace period. It is a single thread without a runtime, and is used only for
//! jobs with sidecars or hooks.
//!
//! A stop signal goes to the process group of the runner, and so to the process. The runner remembers it, and passes it to a
//! running hook of `pre_start`; then it starts no further command except those of `post_stop`. A process can still use its
//! sidecars while it stops.
//!
//! - [`children`]: starts commands and waits for them, with the stop signals. [`sidecars`]: the life of the sidecars.
//!
//! # Invariants
//! - The process is started only after all sidecars are ready and all commands of `pre_start` have succeeded, and only if no
//!   stop signal arrived before.
//! - Every command of `post_stop` is started once, unless the runner itself is killed.
//! - The runner exits as the process did, or as the command that failed before it.

#![expect(clippy::print_stderr, reason = "the standard error of the runner is the log of the task")]

mod children;
mod sidecars;

use std::ffi::OsString;
use std::process::{Command, ExitCode, Stdio};

use model::spec::{Hook, ProcessRun, Sidecar};
use serde::{Deserialize, Serialize};

use children::{Children, Exit};
use sidecars::Sidecars;

/// First argument of the task runner.
pub(crate) const COMMAND: &str = "task-runner";
/// Variable with the exit code of the process, for `post_stop`; for a signal it is 128 plus its number, as in a shell.
const EXIT_CODE_VARIABLE: &str = "BELFRY_EXIT_CODE";
/// Exit code for a wrong use of the program.
const USAGE: u8 = 2;
/// Exit code of a command that ran longer than its timeout, as in `timeout`.
const TIMED_OUT: u8 = 124;

/// What runs beside the process of a task.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Companions {
    sidecars: Vec<Sidecar>,
    pre_start: Vec<Hook>,
    post_stop: Vec<Hook>,
}

impl Companions {
    /// Returns those of a job; `None` if its process runs alone.
    pub(crate) fn of(process: &ProcessRun) -> Option<Self> {
        let ProcessRun { sidecars, pre_start, post_stop, .. } = process;
        let has_any = !sidecars.is_empty() || !pre_start.is_empty() || !post_stop.is_empty();
        has_any.then(|| Self {
            sidecars: sidecars.clone(),
            pre_start: pre_start.clone(),
            post_stop: post_stop.clone(),
        })
    }

    /// Returns the second argument of the task runner; the command of the process follows it.
    pub(crate) fn to_argument(&self) -> String {
        serde_json::to_string(self).expect("companions are plain data")
    }
}

/// Runs the process of a task with its sidecars and hooks. `arguments` are those, as the supervisor passes them, and the command
/// of the process.
pub fn run_task(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.map(|argument| argument.into_string().unwrap_or_default());
    let companions = arguments.next().and_then(|text| serde_json::from_str::<Companions>(&text).ok());
    let (Some(companions), Some(program)) = (companions, arguments.next()) else {
        eprintln!("belfry: `{COMMAND}` is an internal program of a worker, and expects a task");
        return ExitCode::from(USAGE);
    };
    let mut children = match Children::new() {
        Ok(children) => children,
        Err(error) => {
            eprintln!("belfry: cannot handle the stop signals of the task: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut process = Command::new(program);
    process.args(arguments);
    let mut sidecars = Sidecars::default();
    let exit = run(&mut children, &mut sidecars, &companions, &mut process);
    for (i, hook) in companions.post_stop.iter().enumerate() {
        run_hook(&mut children, &format!("post_stop[{i}]"), hook, Some(exit.shell_code()));
    }
    sidecars.stop(&mut children);
    children::exit_as(exit)
}

/// Runs everything up to the end of the process.
fn run(
    children: &mut Children,
    sidecars: &mut Sidecars,
    companions: &Companions,
    process: &mut Command,
) -> Exit {
    for sidecar in &companions.sidecars {
        let exit = sidecars.start(children, sidecar);
        if exit != Exit::SUCCESS {
            return exit;
        }
    }
    for (i, hook) in companions.pre_start.iter().enumerate() {
        if let Some(stopped) = children.stopped() {
            return stopped;
        }
        let exit = run_hook(children, &format!("pre_start[{i}]"), hook, None);
        if exit != Exit::SUCCESS {
            return exit;
        }
    }
    if let Some(stopped) = children.stopped() {
        return stopped;
    }
    match children.start_process(process) {
        Ok(pid) => children.wait(pid, |ended, exit| sidecars.say_ended(ended, exit)),
        Err(exit) => exit,
    }
}

/// Runs one command; says in the log if it fails.
fn run_hook(children: &mut Children, name: &str, hook: &Hook, exit_code: Option<i32>) -> Exit {
    let Some((program, arguments)) = hook.command.split_first() else { return Exit::SUCCESS };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    command.envs(exit_code.map(|code| (EXIT_CODE_VARIABLE, code.to_string())));
    let timeout = hook.timeout.map(model::Duration::to_std);
    let exit = match children.start_group(&mut command) {
        Ok(pid) => match children.wait_for_group(pid, timeout, exit_code.is_none()) {
            Some(exit) => exit,
            None => {
                eprintln!("belfry: {name} `{program}` was killed: it ran longer than its timeout");
                return Exit::Code(TIMED_OUT);
            }
        },
        Err(exit) => exit,
    };
    if exit != Exit::SUCCESS {
        eprintln!("belfry: {name} `{program}` {exit}");
    }
    exit
}
