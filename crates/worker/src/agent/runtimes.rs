//! Runtimes of the machine, as in `Hello`.
//!
//! The supervisor says which runtimes it can start. Those that need nothing but their shim are always there; the program `shim
//! probe` says which of the others the machine has. The agent runs it again and again, because a container engine can be
//! installed or stopped at any time. If the result changes, the session is opened again, with another `Hello`. Then the program
//! `shim sweep` removes what ended shims have left in the engine.

#[cfg(test)]
use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use model::spec::Run;
use proto::v1::Capabilities;
use shim::Runtime;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::session_error::SessionError;
use crate::link::SupervisorGreeting;

/// Pause between two probes, and before a probe that confirms a loss.
const INTERVAL: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_secs(5);
/// Maximum time of a probe: a hung engine is one that the machine does not have.
const PROBE_MAX: Duration = Duration::from_secs(20);
/// Maximum time that the first session waits for the first probe.
const FIRST_MAX: Duration = Duration::from_secs(5);

/// Runtimes of the machine; `None` before the first probe.
pub(super) type Found = watch::Sender<Option<Vec<Runtime>>>;

/// Keeps the runtimes of the machine up to date, without end.
pub(super) async fn watch(shared: &Shared) {
    let (program, engine) = (shared.config.program.as_path(), shared.container_engine.as_deref());
    loop {
        let mut found = shared.machine.runtimes(program, engine).await;
        let is_missing = |known: &Runtime| !found.contains(known);
        if shared.runtimes.borrow().as_ref().is_some_and(|known| known.iter().any(is_missing)) {
            // A busy engine is no lost one: a change of the runtimes interrupts the session.
            sleep(AGAIN).await;
            found = shared.machine.runtimes(program, engine).await;
        }
        shared.runtimes.send_if_modified(|known| {
            let is_new = known.as_ref() != Some(&found);
            *known = Some(found);
            is_new
        });
        if shared.runtimes.borrow().as_ref().is_some_and(|found| !found.is_empty()) {
            shared.machine.sweep(program, engine).await;
        }
        sleep(INTERVAL).await;
    }
}

/// Waits for the first probe, for a limited time.
pub(super) async fn known(found: &Found) -> Vec<Runtime> {
    let mut changes = found.subscribe();
    let first = timeout(FIRST_MAX, changes.wait_for(Option::is_some)).await;
    first.ok().and_then(Result::ok).and_then(|known| known.clone()).unwrap_or_default()
}

/// Waits until the runtimes differ from those that the server knows.
pub(super) async fn changed(found: &Found, sent: &[Runtime]) -> Result<Infallible, SessionError> {
    let is_other = |now: &Option<Vec<Runtime>>| now.as_deref().is_some_and(|now| now != sent);
    // The sender lives as long as the agent.
    found.subscribe().wait_for(is_other).await.ok();
    Err(SessionError::RuntimesChanged)
}

/// Returns the capabilities of a worker: those of its supervisor, with the runtimes that its shims and the machine have.
pub(super) fn capabilities(greeting: &SupervisorGreeting, found: &[Runtime]) -> Option<Capabilities> {
    let mut capabilities = greeting.capabilities.clone()?;
    for name in &greeting.shims {
        let probed = found.iter().find(|runtime| runtime.name == *name);
        if name == Run::HTTP || probed.is_some() {
            capabilities.runtimes.push(name.clone());
        }
        let version = probed.map(|found| found.version.clone()).filter(|version| !version.is_empty());
        capabilities.runtime_versions.extend(version.map(|version| (name.clone(), version)));
    }
    Some(capabilities)
}

/// Runs the probe; a failed one finds nothing.
pub(super) async fn probe(program: &Path, engine: Option<&str>) -> Vec<Runtime> {
    let Some(output) = run(program, shim::PROBE, engine).await else { return Vec::new() };
    let reason = String::from_utf8_lossy(&output.stderr);
    if engine.is_some() && !reason.trim().is_empty() {
        tracing::warn!(reason = %reason.trim(), "a runtime is not available");
    } else {
        tracing::debug!(reason = %reason.trim(), "probed the runtimes of the machine");
    }
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// Removes what ended shims have left in the container engine.
pub(super) async fn sweep(program: &Path, engine: Option<&str>) {
    run(program, shim::SWEEP, engine).await;
}

async fn run(program: &Path, what: &str, engine: Option<&str>) -> Option<Output> {
    let mut command = Command::new(program);
    command.args([shim::COMMAND, what]).args(engine).stdin(Stdio::null()).kill_on_drop(true);
    match timeout(PROBE_MAX, command.output()).await {
        Ok(Ok(output)) => Some(output),
        Ok(Err(error)) => {
            tracing::warn!(program = %program.display(), %error, "cannot run `shim {what}`");
            None
        }
        Err(_) => {
            tracing::warn!(
                "`shim {what}` was killed after {PROBE_MAX:?}: check whether the container engine responds"
            );
            None
        }
    }
}

#[cfg(test)]
mod tests {
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
        let found = [runtime("container", "docker 29.1"), runtime("wasm", "48")];
        let all = capabilities(&of(&["container", "http"]), &found).unwrap();
        assert_eq!(all.runtimes, ["process", "container", "http"]);
        assert_eq!(all.runtime_versions, HashMap::from([("container".into(), "docker 29.1".into())]));
        let old_supervisor = capabilities(&of(&[]), &found).unwrap();
        assert_eq!(old_supervisor.runtimes, ["process"]);
        let bare_machine = capabilities(&of(&["container", "http"]), &[]).unwrap();
        assert_eq!(bare_machine.runtimes, ["process", "http"]);
    }

    #[tokio::test]
    async fn the_session_ends_when_the_runtimes_change() {
        let found = Found::new(None);
        let sent = vec![runtime("http", "")];
        found.send_replace(Some(sent.clone()));
        assert_eq!(known(&found).await, sent);
        let waiting = changed(&found, &sent);
        tokio::pin!(waiting);
        assert!(futures_are_pending(&mut waiting).await);
        found.send_replace(Some(Vec::new()));
        assert!(matches!(waiting.await, Err(SessionError::RuntimesChanged)));
    }

    async fn futures_are_pending<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())
        })
        .await
    }
}
