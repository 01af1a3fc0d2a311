//! Runtimes of the machine, as in `Hello`.
//!
//! The supervisor says which runtimes it can start. Those that need nothing but their shim are always there; the program `shim
//! probe` says which of the others the machine has, and `shim probe-sandbox`, as the user of the tasks, which sandboxes this
//! user can create. The agent runs them again and again, because a container engine can be installed or stopped at any time. If the result changes, the session is opened again, with another `Hello`. Then the program
//! `shim sweep` removes what ended shims have left in the engine.

#[cfg(test)]
use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use model::spec::Run;
use proto::v1::Capabilities;
use serde::de::DeserializeOwned;
use shim::Probed;
#[cfg(test)]
use shim::{Runtime, Sandboxes};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::session_error::SessionError;
use crate::link::{Owner, SupervisorGreeting};

/// Pause between two probes, and before a probe that confirms a loss.
const INTERVAL: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_secs(5);
/// Maximum time of a probe: a hung engine is one that the machine does not have.
const PROBE_MAX: Duration = Duration::from_secs(20);
/// Maximum time that the first session waits for the first probe.
const FIRST_MAX: Duration = Duration::from_secs(5);

/// What the machine has; `None` before the first probe.
pub(super) type Found = watch::Sender<Option<Probed>>;

/// Keeps the runtimes of the machine up to date, without end.
pub(super) async fn watch(shared: &Shared) {
    let (program, engine) = (shared.config.program.as_path(), shared.container_engine.as_deref());
    let probe = || shared.machine.runtimes(program, engine, shared.owner);
    loop {
        let mut found = probe().await;
        if shared.runtimes.borrow().as_ref().is_some_and(|known| is_less(&found, known)) {
            // A busy engine is no lost one: a change of the runtimes interrupts the session.
            sleep(AGAIN).await;
            found = probe().await;
        }
        shared.runtimes.send_if_modified(|known| {
            if known.as_ref().is_none_or(|known| known.sandboxes != found.sandboxes) {
                for reason in &found.sandboxes.reasons {
                    tracing::info!(%reason, "a sandbox is not available");
                }
            }
            let is_new = known.as_ref() != Some(&found);
            *known = Some(found);
            is_new
        });
        if shared.runtimes.borrow().as_ref().is_some_and(|found| !found.runtimes.is_empty()) {
            shared.machine.sweep(program, engine).await;
        }
        sleep(INTERVAL).await;
    }
}

/// Returns whether the machine has lost something that it had.
fn is_less(found: &Probed, known: &Probed) -> bool {
    known.runtimes.iter().any(|runtime| !found.runtimes.contains(runtime))
        || known.sandboxes.levels.iter().any(|level| !found.sandboxes.levels.contains(level))
}

/// Waits for the first probe, for a limited time.
pub(super) async fn known(found: &Found) -> Probed {
    let mut changes = found.subscribe();
    let first = timeout(FIRST_MAX, changes.wait_for(Option::is_some)).await;
    first.ok().and_then(Result::ok).and_then(|known| known.clone()).unwrap_or_default()
}

/// Waits until the runtimes differ from those that the server knows.
pub(super) async fn changed(found: &Found, sent: &Probed) -> Result<Infallible, SessionError> {
    let is_other = |now: &Option<Probed>| now.as_ref().is_some_and(|now| now != sent);
    // The sender lives as long as the agent.
    found.subscribe().wait_for(is_other).await.ok();
    Err(SessionError::RuntimesChanged)
}

/// Returns the capabilities of a worker: those of its supervisor, with the runtimes that its shims and the machine have.
pub(super) fn capabilities(greeting: &SupervisorGreeting, found: &Probed) -> Option<Capabilities> {
    let mut capabilities = greeting.capabilities.clone()?;
    for name in &greeting.shims {
        if name == Run::PROCESS {
            // The runtime is there without its shim, which is for sandboxes.
            capabilities.sandbox_levels = found.sandboxes.levels.iter().map(ToString::to_string).collect();
            continue;
        }
        let probed = found.runtimes.iter().find(|runtime| runtime.name == *name);
        if name == Run::HTTP || probed.is_some() {
            capabilities.runtimes.push(name.clone());
        }
        let version = probed.map(|found| found.version.clone()).filter(|version| !version.is_empty());
        capabilities.runtime_versions.extend(version.map(|version| (name.clone(), version)));
    }
    Some(capabilities)
}

/// Runs the probes; a failed one finds nothing.
pub(super) async fn probe(program: &Path, engine: Option<&str>, owner: Option<Owner>) -> Probed {
    let as_task = || {
        let mut command = shim(program, shim::PROBE_SANDBOX);
        if let Some(owner) = owner {
            // Also drops the supplementary groups of root.
            command.uid(owner.uid).gid(owner.gid);
        }
        command
    };
    let mut as_worker = shim(program, shim::PROBE);
    as_worker.args(engine);
    let (runtimes, sandboxes) = tokio::join!(found(as_worker, engine.is_some()), found(as_task(), false));
    Probed { runtimes, sandboxes }
}

/// Returns what a probe prints, and logs why it does not find more.
async fn found<T: DeserializeOwned + Default>(command: Command, is_wanted: bool) -> T {
    let Some(output) = run(command).await else { return T::default() };
    let reason = String::from_utf8_lossy(&output.stderr);
    if is_wanted && !reason.trim().is_empty() {
        tracing::warn!(reason = %reason.trim(), "a runtime is not available");
    } else {
        tracing::debug!(reason = %reason.trim(), "probed the runtimes of the machine");
    }
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// Removes what ended shims have left in the container engine.
pub(super) async fn sweep(program: &Path, engine: Option<&str>) {
    let mut command = shim(program, shim::SWEEP);
    command.args(engine);
    run(command).await;
}

fn shim(program: &Path, what: &str) -> Command {
    let mut command = Command::new(program);
    command.args([shim::COMMAND, what]).stdin(Stdio::null()).kill_on_drop(true);
    command
}

async fn run(mut command: Command) -> Option<Output> {
    match timeout(PROBE_MAX, command.output()).await {
        Ok(Ok(output)) => Some(output),
        Ok(Err(error)) => {
            tracing::warn!(?command, %error, "cannot run a probe of the runtimes");
            None
        }
        Err(_) => {
            tracing::warn!(
                ?command,
                "a probe of the runtimes was killed after {PROBE_MAX:?}: check whether the container engine responds"
            );
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use model::spec::SandboxLevel;

    use super::*;

    fn runtime(name: &str, version: &str) -> Runtime {
        Runtime { name: name.into(), version: version.into() }
    }

    #[test]
    fn a_worker_has_the_runtimes_that_both_its_supervisor_and_its_machine_have() {
        let of = |shims: &[&str]| SupervisorGreeting {
            capabilities: Some(Capabilities { runtimes: vec!["process".into()], ..Capabilities::default() }),
            shims: shims.iter().map(|name| (*name).to_owned()).collect(),
            ..SupervisorGreeting::default()
        };
        let found = Probed {
            runtimes: vec![runtime("container", "docker 29.1"), runtime("wasm", "48")],
            sandboxes: Sandboxes { levels: SandboxLevel::ALL[1..].to_vec(), reasons: Vec::new() },
        };
        let all = capabilities(&of(&["process", "container", "http"]), &found).unwrap();
        assert_eq!(all.runtimes, ["process", "container", "http"]);
        assert_eq!(all.runtime_versions, HashMap::from([("container".into(), "docker 29.1".into())]));
        assert_eq!(all.sandbox_levels, ["basic", "strict"]);
        let old_supervisor = capabilities(&of(&[]), &found).unwrap();
        assert_eq!(old_supervisor.runtimes, ["process"]);
        assert!(old_supervisor.sandbox_levels.is_empty());
        let bare_machine = capabilities(&of(&["process", "container", "http"]), &Probed::default()).unwrap();
        assert_eq!(bare_machine.runtimes, ["process", "http"]);
        assert!(bare_machine.sandbox_levels.is_empty());
    }

    #[tokio::test]
    async fn the_session_ends_when_the_runtimes_change() {
        let found = Found::new(None);
        let sent = Probed { runtimes: vec![runtime("http", "")], ..Probed::default() };
        found.send_replace(Some(sent.clone()));
        assert_eq!(known(&found).await, sent);
        let waiting = changed(&found, &sent);
        tokio::pin!(waiting);
        assert!(futures_are_pending(&mut waiting).await);
        found.send_replace(Some(Probed::default()));
        assert!(matches!(waiting.await, Err(SessionError::RuntimesChanged)));
    }

    async fn futures_are_pending<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())
        })
        .await
    }
}
