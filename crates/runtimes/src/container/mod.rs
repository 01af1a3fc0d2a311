//! The runtime `container`.
//!
//! ```text
//! engine ─> image ─> create with a gate ─> attach ─> start ─> check that it is visible ─> open the gate ─> wait ─> remove
//! ```
//!
//! - [`engine`]: the engine on this machine, and whether it can be used. [`image`]: images and their registries.
//! - [`definition`]: what the engine is asked to create. [`owner`]: who owns the directory of the execution.
//! - [`gate`]: lets the program of the job run. [`groups`]: control groups, by which its processes are found.
//! - [`leftovers`]: removes containers of dead shims.
//!
//! # Invariants
//! - The program of the job runs only after the shim has opened the gate, so a frozen or dead shim starts nothing, however late
//!   the engine is. An execution ends with [`End::start_failed`] only if the gate was never opened, or the program could not be
//!   executed.
//! - The gate is opened only if the supervisor can find the processes of the container: they are on this machine, in a control
//!   group with the id of the execution in its path. A container in a virtual machine is refused.
//!
//! # Limits
//! The limits of the job are limits of the container. They do not apply to the shim.

mod definition;
mod engine;
mod gate;
mod groups;
mod image;
mod leftovers;
mod owner;

use std::io;
use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::container::{AttachContainerResults, LogOutput};
use bollard::errors::Error;
use bollard::models::ContainerState;
use bollard::query_parameters::{
    AttachContainerOptions, CreateContainerOptions, InspectContainerOptions, KillContainerOptions,
    RemoveContainerOptions, StartContainerOptions, WaitContainerOptions,
};
use futures::StreamExt as _;
use model::spec::{ContainerRun, Enforcement};
use shim::{Runtime, ShimOrder, ShimReport};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::task::JoinHandle;

use self::gate::Gate;
use crate::End;
use crate::stop::Stop;

/// Time in which the first process of a container must be visible.
const VISIBLE_MAX: Duration = Duration::from_secs(5);
/// Time without a response of the engine after which an execution ends, if the first process of its container has exited.
const ENGINE_LOST: Duration = Duration::from_secs(60);
/// Pause between two attempts to reach the engine.
const PAUSE: Duration = Duration::from_millis(500);
/// Time in which the last output must arrive after the container has exited.
const OUTPUT_MAX: Duration = Duration::from_secs(10);
/// Exit code of a program that a signal killed, as in a shell: this and the number of the signal.
const SIGNALLED: i32 = 128;

/// Returns the runtime. The error says why this machine has no usable engine.
pub(crate) async fn probe(address: Option<&str>) -> Result<Runtime, String> {
    let engine = engine::connect(address, engine::PROBE_TIMEOUT).await?;
    engine::cgroup_driver(&engine).await?;
    let version = engine::describe(&engine).await?;
    Ok(Runtime { name: model::spec::Run::CONTAINER.into(), version })
}

/// Removes what dead shims have left.
pub(crate) async fn sweep(address: Option<&str>) {
    if let Ok(engine) = engine::connect(address, engine::PROBE_TIMEOUT).await {
        leftovers::remove(&engine).await;
    }
    groups::remove_left_behind();
}

pub(crate) async fn run(order: &ShimOrder, run: &ContainerRun, stop: &mut Stop) -> End {
    let connected = tokio::select! {
        connected = engine::connect(order.engine.as_deref(), engine::TIMEOUT) => connected,
        signal = stop.next() => return End::Code(exit_code(SIGNALLED + signal)),
    };
    let engine = match connected {
        Ok(engine) => engine,
        Err(reason) => return End::start_failed("engine_unavailable", reason),
    };
    let container = Container { engine, name: format!("belfry-{}", order.execution) };
    // Nothing of the job has run while the gate is closed, so a stop needs no grace period.
    let started = tokio::select! {
        started = container.start(order, run) => started,
        signal = stop.next() => Err(End::Code(exit_code(SIGNALLED + signal))),
    };
    let end = match started {
        Ok(started) => container.run(started, &run.image, stop).await,
        Err(end) => end,
    };
    container.remove().await;
    groups::remove(order.execution);
    end
}

/// A container of the execution, which may not exist yet.
struct Container {
    engine: Docker,
    name: String,
}

/// A container that is running, with a closed gate.
struct Started {
    gate: Gate,
    /// Forwards the output to the log.
    output: JoinHandle<io::Result<()>>,
    /// First process, with the time at which it started.
    process: (i64, Option<String>),
}

impl Container {
    async fn start(&self, order: &ShimOrder, run: &ContainerRun) -> Result<Started, End> {
        let (engine, name) = (&self.engine, self.name.as_str());
        let refused = |action: &str, error: &Error| not_created(action, &run.image, error);
        let unavailable = |reason| End::start_failed("engine_unavailable", reason);
        let (driver, image) =
            tokio::join!(engine::cgroup_driver(engine), image::ensure(engine, &run.image, run.pull));
        let parent = groups::parent(Some(driver.map_err(unavailable)?), order.execution).unwrap_or_default();
        let image = image?;
        let program = definition::program(run, &image);
        if program.is_empty() {
            let detail = format!("the image `{}` has no program: set `command`", run.image);
            return Err(End::start_failed("command_not_found", detail));
        }
        let folder = std::env::current_dir().and_then(|folder| {
            definition::write_script(run)?;
            Ok((Gate::create(&folder)?, folder))
        });
        let (gate, folder) = folder.map_err(|error| no_files(&error))?;
        let body = definition::definition(order, run, (program, parent), std::env::vars());
        let options =
            CreateContainerOptions { name: Some(name.to_owned()), ..CreateContainerOptions::default() };
        let created = engine.create_container(Some(options), body).await;
        let created = created.map_err(|error| refused("create the container", &error))?;
        for warning in &created.warnings {
            eprintln!("belfry: {}", engine::one_line(warning));
        }
        if let Some(ignored) = ignored_limit(order, &created.warnings) {
            let detail = format!("the container engine cannot enforce a limit: {ignored}");
            return Err(End::start_failed("limit_unenforceable", detail));
        }
        let user = run.user.as_deref().unwrap_or(&image.user);
        let Some(uid) = owner::number_of(engine, name, user).await else {
            let detail = format!("the image `{}` has no user `{user}`", run.image);
            return Err(End::start_failed("container_refused", detail));
        };
        owner::give(&folder, uid).map_err(|error| no_files(&error))?;
        let options = AttachContainerOptions {
            stream: true,
            stdout: true,
            stderr: true,
            ..AttachContainerOptions::default()
        };
        let attached = engine.attach_container(name, Some(options)).await;
        let AttachContainerResults { output, .. } =
            attached.map_err(|error| refused("read the output of the container", &error))?;
        let output = tokio::spawn(forward(output, tokio::io::stdout(), tokio::io::stderr()));
        let started = engine.start_container(name, None::<StartContainerOptions>).await;
        started.map_err(|error| refused("start the container", &error))?;
        let pid = self.visible_pid(order).await?;
        Ok(Started { gate, output, process: (pid, process_identity(pid)) })
    }

    /// Returns the first process of the container when the supervisor can find it.
    async fn visible_pid(&self, order: &ShimOrder) -> Result<i64, End> {
        let began = Instant::now();
        loop {
            let state = self.state().await.map_err(|error| {
                let detail = format!("cannot inspect the container: {}", engine::reason(&error));
                End::start_failed("engine_unavailable", detail)
            })?;
            let Some(pid) = state.pid.filter(|pid| *pid > 0 && state.running == Some(true)) else {
                let detail = format!(
                    "the container has exited before its program was executed: {}",
                    described(&state)
                );
                return Err(End::start_failed("container_refused", detail));
            };
            if groups::contains(order.execution, pid) {
                return Ok(pid);
            }
            if began.elapsed() > VISIBLE_MAX {
                let detail = "the worker cannot see the processes of the container: the engine must run on the same machine, without a virtual machine, and the worker must not be in a container";
                return Err(End::start_failed("container_not_visible", detail));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Opens the gate, waits for the end of the container, and passes stop signals to it.
    async fn run(&self, started: Started, image: &str, stop: &mut Stop) -> End {
        let Started { mut gate, output, process } = started;
        if let Err(error) = gate.open() {
            return no_files(&error);
        }
        let mut not_executed = None;
        let mut is_executed = false;
        let exited = self.exited(&process);
        tokio::pin!(exited);
        let state = loop {
            tokio::select! {
                state = &mut exited => break state,
                signal = stop.next() => self.signal(signal).await,
                error = gate.result(), if !is_executed => {
                    is_executed = true;
                    not_executed = error;
                }
            }
        };
        if !is_executed {
            // The container may end before its last message is read.
            not_executed = tokio::time::timeout(PAUSE, gate.result()).await.ok().flatten();
        }
        tokio::time::timeout(OUTPUT_MAX, output).await.ok();
        match (not_executed, state) {
            (Some(errno), _) => not_executable(image, errno),
            (None, Ok(state)) => end_of(&state),
            (None, Err(end)) => end,
        }
    }

    async fn exited(&self, (pid, identity): &(i64, Option<String>)) -> Result<ContainerState, End> {
        let mut unanswered: Option<Instant> = None;
        loop {
            let mut exits = Box::pin(self.engine.wait_container(&self.name, None::<WaitContainerOptions>));
            // A failed wait says nothing about the container; its state does.
            let _exit = exits.next().await;
            match self.state().await {
                Ok(state) if state.running != Some(true) => return Ok(state),
                Ok(_) => unanswered = None,
                Err(Error::DockerResponseServerError { status_code: 404, .. }) => {
                    return Err(End::failed("container_removed", "the container was removed while it ran"));
                }
                Err(error) => {
                    let since = *unanswered.get_or_insert_with(Instant::now);
                    let is_alive = identity.is_some() && process_identity(*pid) == *identity;
                    if !is_alive && since.elapsed() > ENGINE_LOST {
                        let detail = format!(
                            "the container engine does not answer, and the container has exited: {}",
                            engine::reason(&error)
                        );
                        return Err(End::failed("engine_failed", detail));
                    }
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn state(&self) -> Result<ContainerState, Error> {
        let found = self.engine.inspect_container(&self.name, None::<InspectContainerOptions>).await?;
        Ok(found.state.unwrap_or_default())
    }

    async fn signal(&self, signal: i32) {
        let options = KillContainerOptions { signal: signal.to_string() };
        if let Err(error) = self.engine.kill_container(&self.name, Some(options)).await {
            eprintln!("belfry: cannot send the signal {signal} to the container: {}", engine::reason(&error));
        }
    }

    /// Removes the container with its anonymous volumes, if it exists.
    async fn remove(&self) {
        let options = RemoveContainerOptions { force: true, v: true, ..RemoveContainerOptions::default() };
        match self.engine.remove_container(&self.name, Some(options)).await {
            // 409: the engine is removing it already.
            Ok(()) | Err(Error::DockerResponseServerError { status_code: 404 | 409, .. }) => {}
            Err(error) => {
                eprintln!("belfry: cannot remove the container `{}`: {}", self.name, engine::reason(&error))
            }
        }
    }
}

/// Writes the output of a container to the log until it ends.
async fn forward(
    mut output: impl futures::Stream<Item = Result<LogOutput, Error>> + Unpin,
    mut stdout: impl AsyncWrite + Unpin,
    mut stderr: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    while let Some(part) = output.next().await {
        match part {
            Ok(LogOutput::StdErr { message }) => {
                stderr.write_all(&message).await?;
                stderr.flush().await?;
            }
            Ok(LogOutput::StdOut { message } | LogOutput::Console { message }) => {
                stdout.write_all(&message).await?;
                stdout.flush().await?;
            }
            Ok(LogOutput::StdIn { .. }) => {}
            Err(error) => {
                eprintln!("belfry: cannot read the output of the container: {}", engine::reason(&error))
            }
        }
    }
    Ok(())
}

/// Returns the warning of the engine that it ignores a limit, if the job requires its limits.
fn ignored_limit(order: &ShimOrder, warnings: &[String]) -> Option<String> {
    let is_ignored = |warning: &&String| warning.to_ascii_lowercase().contains("discarded");
    let required = order.limits.enforcement == Enforcement::Required;
    required.then(|| warnings.iter().find(is_ignored).map(|warning| engine::one_line(warning)))?
}

fn no_files(error: &io::Error) -> End {
    End::start_failed("no_resources", format!("cannot prepare the directory of the execution: {error}"))
}

fn not_executable(image: &str, errno: i32) -> End {
    let error = io::Error::from_raw_os_error(errno);
    let code = match error.kind() {
        io::ErrorKind::NotFound => "command_not_found",
        io::ErrorKind::PermissionDenied => "permission_denied",
        _ => "not_executable",
    };
    End::start_failed(code, format!("the program cannot be executed in a container of `{image}`: {error}"))
}

/// Returns the process id and the start time of a process; `None` if it has exited.
fn process_identity(pid: i64) -> Option<String> {
    leftovers::identity(u32::try_from(pid).ok()?)
}

fn described(state: &ContainerState) -> String {
    let error = state.error.as_deref().unwrap_or_default();
    format!("exit code {} {}", state.exit_code.unwrap_or_default(), engine::one_line(error))
        .trim_end()
        .to_owned()
}

fn end_of(state: &ContainerState) -> End {
    let code = state.exit_code.and_then(|code| i32::try_from(code).ok()).unwrap_or(i32::from(crate::FAILED));
    match state.error.as_deref() {
        _ if state.oom_killed == Some(true) && code != 0 => End::Reported(ShimReport::OutOfMemory),
        Some(error) if !error.is_empty() && code != 0 => {
            End::failed("engine_failed", format!("the container engine failed: {}", engine::one_line(error)))
        }
        _ => End::Code(exit_code(code)),
    }
}

fn exit_code(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(crate::FAILED)
}

/// Explains why a container does not run, and what the user can check.
fn not_created(action: &str, image: &str, error: &Error) -> End {
    let reason = engine::reason(error);
    let code = match error {
        Error::DockerResponseServerError { status_code: 404, .. } if reason.contains("No such image") => {
            "image_missing"
        }
        Error::DockerResponseServerError { .. }
            if reason.contains("executable file not found")
                || reason.contains("no such file or directory") =>
        {
            "command_not_found"
        }
        Error::DockerResponseServerError { .. } if reason.contains("permission denied") => {
            "permission_denied"
        }
        Error::DockerResponseServerError { .. } if reason.contains("port is already allocated") => {
            "port_in_use"
        }
        Error::DockerResponseServerError { .. } => "container_refused",
        _ => "engine_unavailable",
    };
    End::start_failed(code, format!("cannot {action} of `{image}`: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(exit_code: i64, oom_killed: bool, error: &str) -> End {
        end_of(&ContainerState {
            exit_code: Some(exit_code),
            oom_killed: Some(oom_killed),
            error: Some(error.into()),
            ..ContainerState::default()
        })
    }

    #[test]
    fn a_container_ends_as_its_program_or_says_why() {
        assert_eq!(ended(3, false, ""), End::Code(3));
        assert_eq!(ended(137, false, ""), End::Code(137));
        assert_eq!(ended(137, true, ""), End::Reported(ShimReport::OutOfMemory));
        assert_eq!(ended(0, true, ""), End::Code(0), "a child was killed, and the program coped with it");
        assert_eq!(
            ended(128, false, "a\nb"),
            End::failed("engine_failed", "the container engine failed: a b")
        );
    }

    #[test]
    fn a_refusal_of_the_engine_has_a_code() {
        let code = |status_code, message: &str| {
            let error = Error::DockerResponseServerError { status_code, message: message.into() };
            match not_created("start the container", "x", &error) {
                End::Reported(ShimReport::StartFailed { code, .. }) => code,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(code(404, "No such image: x"), "image_missing");
        assert_eq!(code(400, r#"exec: "foo": executable file not found in $PATH"#), "command_not_found");
        assert_eq!(code(500, "Bind for 0.0.0.0:80 failed: port is already allocated"), "port_in_use");
        assert_eq!(code(400, "invalid"), "container_refused");
    }

    #[tokio::test]
    async fn output_is_forwarded_as_it_was_written() {
        let part = |error: bool, text: &'static [u8]| {
            let message = text.into();
            Ok(if error { LogOutput::StdErr { message } } else { LogOutput::StdOut { message } })
        };
        let parts = futures::stream::iter([part(false, b"a\xff"), part(true, b"e\n"), part(false, b"b\n")]);
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        forward(parts, &mut stdout, &mut stderr).await.unwrap();
        assert_eq!((stdout.as_slice(), stderr.as_slice()), (&b"a\xffb\n"[..], &b"e\n"[..]));
    }
}
