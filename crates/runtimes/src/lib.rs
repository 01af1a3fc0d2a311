//! Shims: everything that runs an execution and is not just one process. The crate `shim` has their protocol with the
//! supervisor.
//!
//! - [`process`]: runs a process in a sandbox, or with sidecars and hooks.
//! - [`container`]: runs a container in Docker or Podman.
//! - [`http`]: sends a request and judges the response.
//! - [`stop`]: stop signals of the supervisor.
//!
//! [`run_shim`] is the whole program of a shim: one thread, one execution.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the output of a shim is the log of the execution"
)]

mod container;
mod http;
mod process;
mod stop;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use model::spec::Run;
use serde::{Deserialize, Serialize};
use shim::{Runtime, ShimOrder, ShimReport};

/// Exit code for a wrong use of the program.
const USAGE: u8 = 2;
/// Exit code of an execution that failed for another reason than the exit of a program.
const FAILED: u8 = 1;

/// How an execution ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum End {
    /// With an exit code.
    Code(u8),
    /// By a signal.
    Signal(i32),
    /// As a report says.
    Reported(ShimReport),
}

impl End {
    fn start_failed(code: &str, detail: impl Into<String>) -> Self {
        Self::Reported(ShimReport::StartFailed { code: code.into(), detail: detail.into() })
    }

    fn failed(code: &str, detail: impl Into<String>) -> Self {
        Self::Reported(ShimReport::Failed { code: code.into(), detail: detail.into() })
    }
}

/// Runs a shim; `arguments` follow `shim`. Returns its exit code.
pub fn run_shim(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<_> = arguments.map(|argument| argument.into_string().unwrap_or_default()).collect();
    match arguments.first().map(String::as_str) {
        // Without the threads of a runtime: they cannot create namespaces.
        Some(Run::PROCESS) => return process::run_shim(),
        Some(shim::PROBE_SANDBOX) => return probe_sandbox(),
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("belfry: cannot start a shim: {error}");
            return ExitCode::from(FAILED);
        }
    };
    let code = match arguments.first().map(String::as_str) {
        Some(shim::PROBE) => runtime.block_on(probe(arguments.get(1).map(String::as_str))),
        Some(shim::SWEEP) => {
            runtime.block_on(container::sweep(arguments.get(1).map(String::as_str)));
            ExitCode::SUCCESS
        }
        Some(Run::CONTAINER | Run::HTTP) => runtime.block_on(run()),
        _ => {
            eprintln!("belfry: `{}` is an internal program of a worker, and expects an order", shim::COMMAND);
            ExitCode::from(USAGE)
        }
    };
    // A thread may still wait for a name server.
    runtime.shutdown_background();
    code
}

/// Prints the runtimes of this machine that need more than the shim, as JSON.
async fn probe(engine: Option<&str>) -> ExitCode {
    let found: Vec<Runtime> = match container::probe(engine).await {
        Ok(runtime) => vec![runtime],
        Err(reason) => {
            eprintln!("{reason}");
            Vec::new()
        }
    };
    println!("{}", serde_json::to_string(&found).unwrap_or_default());
    ExitCode::SUCCESS
}

/// Prints the levels of sandboxes that the user of this process can create, as JSON.
fn probe_sandbox() -> ExitCode {
    let sandbox::Probed { levels, reasons } = sandbox::probe();
    let found = shim::Sandboxes { levels, reasons };
    println!("{}", serde_json::to_string(&found).unwrap_or_default());
    ExitCode::SUCCESS
}

/// Reads the order of the supervisor.
///
/// # Errors
/// Nothing of the job was run.
fn read_order() -> Result<ShimOrder, End> {
    shim::read_order(io::stdin()).map_err(|error| {
        let detail =
            format!("this version of the worker's program cannot read the order of its supervisor: {error}");
        End::start_failed("spec_not_understood", detail)
    })
}

/// Hides the order and the report from other tasks of the same user, which could read and replace them through `/proc`.
///
/// # Errors
/// Nothing of the job was run.
fn hide_order() -> Result<(), End> {
    let hidden = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    hidden.map_err(|error| {
        End::start_failed("no_resources", format!("cannot hide the order of the shim: {error}"))
    })
}

async fn run() -> ExitCode {
    let order = match hide_order().and_then(|()| read_order()) {
        Ok(order) => order,
        Err(failed) => return finish(failed),
    };
    let mut stop = match stop::Stop::new() {
        Ok(stop) => stop,
        Err(error) => {
            let detail = format!("cannot handle the stop signals of the task: {error}");
            return finish(End::start_failed("no_resources", detail));
        }
    };
    let end = match &order.run {
        Run::Container(container) => container::run(&order, container, &mut stop).await,
        Run::Http(http) => http::run(&order, http, &mut stop).await,
        other => End::start_failed(
            "runtime_unknown",
            format!("this shim does not support the runtime `{}`", other.runtime()),
        ),
    };
    finish(end)
}

fn finish(end: End) -> ExitCode {
    match end {
        End::Code(code) => ExitCode::from(code),
        End::Signal(number) => {
            process::exit_as(number);
            // A signal that ends no process: as a shell shows it.
            ExitCode::from(u8::try_from(128 + number).unwrap_or(FAILED))
        }
        End::Reported(report) => {
            if let Err(error) = shim::write_report(io::stdin(), &report) {
                eprintln!("belfry: cannot report the end of the execution: {error}");
            }
            ExitCode::from(FAILED)
        }
    }
}
