//! The runtime `container`.
//!
//! ```text
//! find the engine ─> pull the image ─> create ─> attach ─> start ─> check that it is visible ─> wait ─> remove
//! ```
//!
//! - [`engine`]: the engine on this machine, and whether it can be used. [`image`]: images and their registries.
//! - [`definition`]: what the engine is asked to create. [`leftovers`]: removes containers of dead shims.
//!
//! # Freezes and kills
//! A container is no descendant of its shim, so the supervisor finds its processes by the variable `BELFRY_EXECUTION_ID` in
//! their environment, or as descendants of such a process. The shim checks that the first process is visible in this way,
//! and otherwise kills the container. So a container in a virtual machine, or of an engine on another machine, is refused.
//!
//! # Limits
//! The limits of the job are limits of the container. They do not apply to the shim.

mod definition;
mod engine;
mod image;
mod leftovers;

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

use crate::End;
use crate::stop::Stop;

/// Variable by which the supervisor finds the processes of an execution.
const EXECUTION_VARIABLE: &str = "BELFRY_EXECUTION_ID";
/// Time in which the first process of a container must have its environment.
const VISIBLE_MAX: Duration = Duration::from_secs(5);
/// Time without an answer of the engine after which a container whose first process is gone counts as lost.
const ENGINE_LOST: Duration = Duration::from_secs(60);
/// Pause between two attempts to reach the engine.
const PAUSE: Duration = Duration::from_millis(500);
/// Time in which the last output must arrive after the container has exited.
const OUTPUT_MAX: Duration = Duration::from_secs(10);
/// Exit code of a program that a signal killed, as in a shell: this and the number of the signal.
const SIGNALLED: i32 = 128;

/// Returns the runtime, and removes what dead shims have left. The error says why this machine has no usable engine.
pub(crate) async fn probe(address: Option<&str>) -> Result<Runtime, String> {
    let engine = engine::connect(address).await?;
    let version = engine::describe(&engine).await?;
    leftovers::remove(&engine).await;
    Ok(Runtime { name: model::spec::Run::CONTAINER.into(), version })
}

pub(crate) async fn run(order: &ShimOrder, run: &ContainerRun, stop: &mut Stop) -> End {
    let engine = match engine::connect(order.engine.as_deref()).await {
        Ok(engine) => engine,
        Err(reason) => return End::start_failed("engine_unavailable", reason),
    };
    let container = Container { engine, name: format!("belfry-{}", order.execution) };
    let started = tokio::select! {
        started = container.start(order, run) => started,
        signal = stop.next() => Err(End::Code(exit_code(SIGNALLED + signal))),
    };
    let end = match started {
        Ok(started) => container.wait(started, stop).await,
        Err(end) => end,
    };
    container.remove().await;
    end
}

/// A container of the execution, which may not exist yet.
struct Container {
    engine: Docker,
    name: String,
}

/// A container that runs.
struct Started {
    /// Forwards the output to the log.
    output: JoinHandle<io::Result<()>>,
    /// First process; `None` if it has exited already.
    pid: Option<i64>,
}

impl Container {
    async fn start(&self, order: &ShimOrder, run: &ContainerRun) -> Result<Started, End> {
        let (engine, name) = (&self.engine, self.name.as_str());
        image::ensure(engine, &run.image, run.pull).await?;
        definition::prepare_folder(run).map_err(|error| {
            End::start_failed(
                "no_resources",
                format!("cannot prepare the directory of the execution: {error}"),
            )
        })?;
        let body = definition::definition(order, run, std::env::vars());
        let options =
            CreateContainerOptions { name: Some(name.to_owned()), ..CreateContainerOptions::default() };
        let created = engine.create_container(Some(options), body).await;
        let created = created.map_err(|error| not_created("create the container", &run.image, &error))?;
        for warning in &created.warnings {
            eprintln!("belfry: {}", engine::one_line(warning));
        }
        if let Some(ignored) = ignored_limit(order, &created.warnings) {
            return Err(End::start_failed(
                "limit_unenforceable",
                format!("the container engine cannot enforce a limit: {ignored}"),
            ));
        }
        let options = AttachContainerOptions {
            stream: true,
            stdout: true,
            stderr: true,
            ..AttachContainerOptions::default()
        };
        let attached = engine.attach_container(name, Some(options)).await;
        let AttachContainerResults { output, .. } =
            attached.map_err(|error| not_created("read the output of the container", &run.image, &error))?;
        let output = tokio::spawn(forward(output, tokio::io::stdout(), tokio::io::stderr()));
        let started = engine.start_container(name, None::<StartContainerOptions>).await;
        started.map_err(|error| not_created("start the container", &run.image, &error))?;
        let pid = self.visible_pid(order).await?;
        if let Err(error) = shim::write_report(io::stdin(), &ShimReport::Running) {
            eprintln!("belfry: cannot report that the container runs: {error}");
        }
        Ok(Started { output, pid })
    }

    /// Returns the first process of the container when the supervisor can find it; `None` if it has exited.
    async fn visible_pid(&self, order: &ShimOrder) -> Result<Option<i64>, End> {
        let mark = format!("{EXECUTION_VARIABLE}={}", order.execution);
        let began = Instant::now();
        loop {
            let state = self.state().await.map_err(|error| {
                End::failed(
                    "engine_failed",
                    format!("cannot inspect the container: {}", engine::reason(&error)),
                )
            })?;
            let Some(pid) = state.pid.filter(|pid| *pid > 0 && state.running == Some(true)) else {
                return Ok(None);
            };
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            if environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
                return Ok(Some(pid));
            }
            // Until it executes its program, the process has the environment of the engine.
            if began.elapsed() > VISIBLE_MAX {
                let detail = "the worker cannot see the processes of the container: the engine must run on the same machine, without a virtual machine, and the worker must not be in a container";
                return Err(End::failed("container_not_visible", detail));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits for the end of the container, and passes stop signals to it.
    async fn wait(&self, started: Started, stop: &mut Stop) -> End {
        let exited = self.exited(started.pid);
        tokio::pin!(exited);
        let state = loop {
            tokio::select! {
                state = &mut exited => break state,
                signal = stop.next() => self.signal(signal).await,
            }
        };
        tokio::time::timeout(OUTPUT_MAX, started.output).await.ok();
        match state {
            Ok(state) => end_of(&state),
            Err(end) => end,
        }
    }

    async fn exited(&self, pid: Option<i64>) -> Result<ContainerState, End> {
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
                    let is_alive =
                        pid.is_some_and(|pid| std::fs::exists(format!("/proc/{pid}")).unwrap_or(true));
                    if !is_alive && since.elapsed() > ENGINE_LOST {
                        let detail = format!(
                            "the container engine does not answer, and the container has exited: {}",
                            engine::reason(&error)
                        );
                        return Err(End::failed("engine_failed", detail));
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
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
