//! Runtimes of the machine, as in `Hello`.
//!
//! The supervisor says which runtimes it can start; the program `shim probe` says which of them the machine has. The agent
//! runs it again and again, because a container engine can be installed or stopped at any time. If the result changes, the
//! session is opened again, with another `Hello`. The probe also removes containers of dead shims.

use std::collections::HashMap;
use std::convert::Infallible;
use std::process::Stdio;
use std::time::Duration;

use model::spec::Run;
use proto::v1::Capabilities;
use shim::Runtime;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::session_error::SessionError;
use crate::config::AgentConfig;

/// Pause between two probes.
const INTERVAL: Duration = Duration::from_secs(30);
/// Maximum time of a probe: a hung engine is one that the machine does not have.
const PROBE_MAX: Duration = Duration::from_secs(20);
/// Maximum time that the first session waits for the first probe.
const FIRST_MAX: Duration = Duration::from_secs(5);

/// Runtimes of the machine; `None` before the first probe.
pub(super) type Found = watch::Sender<Option<Vec<Runtime>>>;

/// Keeps the runtimes of the machine up to date, without end.
pub(super) async fn watch(shared: &Shared) {
    loop {
        let found = shared.machine.runtimes(&shared.config).await;
        shared.runtimes.send_if_modified(|known| {
            let is_new = known.as_ref() != Some(&found);
            *known = Some(found);
            is_new
        });
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

/// Returns the capabilities of a worker: those of its supervisor, without runtimes that the machine does not have.
pub(super) fn capabilities(supervisor: Option<&Capabilities>, found: &[Runtime]) -> Option<Capabilities> {
    let mut capabilities = supervisor?.clone();
    let version_of =
        |name: &str| found.iter().find(|runtime| runtime.name == name).map(|found| found.version.clone());
    capabilities.runtimes.retain(|name| name == Run::PROCESS || version_of(name).is_some());
    let versions = capabilities.runtimes.iter().filter_map(|name| Some((name.clone(), version_of(name)?)));
    let versions: HashMap<_, _> = versions.filter(|(_, version)| !version.is_empty()).collect();
    capabilities.runtime_versions = versions;
    Some(capabilities)
}

/// Runs the probe; a failed one finds nothing.
pub(super) async fn probe(config: &AgentConfig) -> Vec<Runtime> {
    let mut command = Command::new(&config.program);
    command.args([shim::COMMAND, shim::PROBE]).args(&config.container_engine);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = match timeout(PROBE_MAX, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => {
            tracing::warn!(program = %config.program.display(), %error, "cannot look for the runtimes of the machine");
            return Vec::new();
        }
        Err(_) => {
            tracing::warn!("looking for the runtimes of the machine took longer than {PROBE_MAX:?}");
            return Vec::new();
        }
    };
    let reason = String::from_utf8_lossy(&output.stderr);
    if config.container_engine.is_some() && !reason.trim().is_empty() {
        tracing::warn!(reason = %reason.trim(), "a runtime is not available");
    } else {
        tracing::debug!(reason = %reason.trim(), "probed the runtimes of the machine");
    }
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime(name: &str, version: &str) -> Runtime {
        Runtime { name: name.into(), version: version.into() }
    }

    #[test]
    fn a_worker_has_the_runtimes_that_both_its_supervisor_and_its_machine_have() {
        let of = |runtimes: &[&str]| Capabilities {
            runtimes: runtimes.iter().map(|name| (*name).to_owned()).collect(),
            ..Capabilities::default()
        };
        let found = [runtime("http", ""), runtime("container", "docker 29.1"), runtime("wasm", "48")];
        let all = capabilities(Some(&of(&["process", "container", "http"])), &found).unwrap();
        assert_eq!(all.runtimes, ["process", "container", "http"]);
        assert_eq!(all.runtime_versions, HashMap::from([("container".into(), "docker 29.1".into())]));
        let old_supervisor = capabilities(Some(&of(&["process"])), &found).unwrap();
        assert_eq!(old_supervisor.runtimes, ["process"]);
        let bare_machine = capabilities(Some(&of(&["process", "container"])), &[]).unwrap();
        assert_eq!(bare_machine.runtimes, ["process"]);
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
