//! Health checks of running executions.
//!
//! The supervisor sends the executions with ports or health checks ([`Watched`]). For each of them one async task runs
//! the checks until the main process has exited. The agent runs the checks, not the supervisor: they wait for the
//! network and for commands, and the supervisor must never wait.
//!
//! - [`state`]: when to run which check, and what the results mean; pure. [`probe`]: a single check, with [`grpc`] and
//!   [`command`]. [`table`]: the newest health of all executions, for the session.
//!
//! The health goes to the server when it changes, and to the supervisor, which keeps it for the next agent. If a
//! startup or liveness check fails too often, the supervisor is requested to end the execution.
//!
//! # The lease
//! The supervisor freezes executions while the worker has no lease. So no check is started then, and a result counts
//! only if the lease was valid from the start of the check to its end. Executions that run without a lease are also
//! checked without one.

mod command;
mod grpc;
mod probe;
mod state;
mod table;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use model::spec::{HealthChecks, HealthStatus};
use proto::v1::ExecutionHealth;
use proto::v1::execution_health::Status;
use tokio::task::{AbortHandle, JoinSet};

use super::Shared;
use crate::clock::BootMillis;
use crate::link::{Checked, CheckedHealth, Request, Unhealthy, Watched};
use crate::mask::Mask;
use command::CommandContext;
use probe::Probe;
use state::{CheckResult, Health, Kind, MustEnd, State};
pub(super) use table::HealthTable;

/// Health checks of all watched executions; aborted when the connection to the supervisor closes.
#[derive(Debug)]
pub(super) struct Watches {
    shared: Shared,
    tasks: JoinSet<()>,
    /// Fence and task of each watched execution.
    running: HashMap<String, (u64, AbortHandle)>,
}

impl Watches {
    pub(super) fn new(shared: Shared) -> Self {
        Self { shared, tasks: JoinSet::new(), running: HashMap::new() }
    }

    /// Starts the health checks of an execution, unless they are running already.
    pub(super) fn begin(&mut self, watched: Watched) {
        while self.tasks.try_join_next().is_some() {}
        let (id, fence) = (watched.execution_id.clone(), watched.fence);
        if self.running.get(&id).is_some_and(|(running, _)| *running == fence) {
            return;
        }
        self.end(&id);
        let watch = Watch::new(self.shared.clone(), watched);
        self.shared.health.insert(watch.message());
        let task = self.tasks.spawn(Box::pin(watch.run()));
        self.running.insert(id, (fence, task));
    }

    /// Ends the health checks of an execution whose main process has exited.
    pub(super) fn end(&mut self, execution_id: &str) {
        if let Some((_, task)) = self.running.remove(execution_id) {
            task.abort();
        }
        self.shared.health.remove(execution_id);
    }
}

/// Health checks of one execution.
struct Watch {
    shared: Shared,
    watched: Watched,
    state: State,
    probes: Vec<(Kind, Arc<Probe>)>,
    context: Arc<CommandContext>,
    /// Hides secrets in the results of checks.
    mask: Option<Arc<Mask>>,
}

impl Watch {
    fn new(shared: Shared, mut watched: Watched) -> Self {
        let checks = serde_json::from_slice::<HealthChecks>(&watched.checks).unwrap_or_else(|error| {
            let execution_id = &watched.execution_id;
            tracing::error!(execution_id, %error, "cannot parse the health checks of an execution; it is not checked");
            HealthChecks::default()
        });
        let state =
            State::new(&checks, watched.started_boot_millis, watched.health.take().and_then(health_from));
        let all = [
            (Kind::Startup, checks.startup),
            (Kind::Readiness, checks.readiness),
            (Kind::Liveness, checks.liveness),
        ];
        let probes = all
            .into_iter()
            .filter_map(|(kind, check)| Some((kind, Arc::new(Probe::new(check.as_ref()?, &watched.ports)))));
        let context = CommandContext {
            working_directory: PathBuf::from(&watched.working_directory),
            environment: std::mem::take(&mut watched.environment),
            owner: shared.owner,
        };
        let secrets = std::mem::take(&mut watched.secrets);
        let mask = Mask::new(secrets.iter().map(|secret| &*secret.value)).map(Arc::new);
        Self { probes: probes.collect(), context: Arc::new(context), shared, watched, state, mask }
    }

    /// Runs the checks without end; returns if there are none.
    async fn run(mut self) {
        let mut running = JoinSet::new();
        loop {
            let now = self.shared.machine.boot_millis();
            let may_start = !self.watched.needs_lease || self.shared.lease.period(now).is_some();
            if may_start {
                for kind in self.state.start_due(now) {
                    running.spawn(Box::pin(self.check(kind)));
                }
            }
            let next_at = self.state.next_at();
            if next_at.is_none() && running.is_empty() {
                return;
            }
            tokio::select! {
                Some(done) = running.join_next() => match done {
                    Ok((kind, result)) => self.finish(kind, result).await,
                    // A check that panicked is not repeated.
                    Err(error) => {
                        let execution_id = &self.watched.execution_id;
                        tracing::error!(execution_id, %error, "health check aborted");
                    }
                },
                () = wait_until(next_at, now), if may_start => {}
                () = self.shared.lease.wait(|| self.shared.machine.boot_millis()), if !may_start => {}
            }
        }
    }

    /// Returns a single check.
    fn check(&self, kind: Kind) -> impl Future<Output = (Kind, CheckResult)> + Send + 'static {
        let probe = self.probes.iter().find(|(of, _)| *of == kind).map(|(_, probe)| Arc::clone(probe));
        let (shared, context) = (self.shared.clone(), Arc::clone(&self.context));
        let needs_lease = self.watched.needs_lease;
        let mask = self.mask.clone();
        async move {
            let Some(probe) = probe else { return (kind, CheckResult::Ignored) };
            let period = || shared.lease.period(shared.machine.boot_millis());
            let before = period();
            let result = probe.run(&context).await;
            let was_frozen = needs_lease && (before.is_none() || period() != before);
            let result = match result {
                _ if was_frozen => CheckResult::Ignored,
                Ok(()) => CheckResult::Succeeded,
                Err(reason) => CheckResult::Failed(match &mask {
                    Some(mask) => mask.text(&reason),
                    None => reason,
                }),
            };
            (kind, result)
        }
    }

    async fn finish(&mut self, kind: Kind, result: CheckResult) {
        let now = self.shared.machine.boot_millis();
        let before = self.state.health();
        let must_end = self.state.finish(kind, now, result);
        let (execution_id, fence) = (self.watched.execution_id.clone(), self.watched.fence);
        let after = self.state.health();
        if after != before {
            let Health { status, detail } = after;
            tracing::debug!(execution_id, %status, detail, "health changed");
            // First the supervisor: the next agent must not report an older status than this one.
            let health = Some(CheckedHealth { status: status_to_proto(status).into(), detail });
            let checked = Checked { execution_id: execution_id.clone(), fence, health };
            self.shared.send_request(Request::Checked(checked)).await;
            self.shared.health.update(self.message());
        }
        if let Some(MustEnd { since: since_boot_millis, detail }) = must_end {
            tracing::debug!(execution_id, detail, "execution is unhealthy: ending it");
            let unhealthy = Unhealthy { execution_id, fence, detail, since_boot_millis };
            self.shared.send_request(Request::Unhealthy(unhealthy)).await;
        }
    }

    /// Returns the message for the server.
    fn message(&self) -> ExecutionHealth {
        let Health { status, detail } = self.state.health();
        ExecutionHealth {
            execution_id: self.watched.execution_id.clone(),
            fence: self.watched.fence,
            status: status_to_proto(status).into(),
            detail,
            ports: self.watched.ports.clone().into_iter().collect(),
        }
    }
}

/// Waits until `at`, or for ever if there is no such time.
async fn wait_until(at: Option<BootMillis>, now: BootMillis) {
    match at {
        Some(at) => tokio::time::sleep(Duration::from_millis(at.saturating_sub(now))).await,
        None => std::future::pending().await,
    }
}

fn status_to_proto(status: HealthStatus) -> Status {
    match status {
        HealthStatus::Starting => Status::Starting,
        HealthStatus::Healthy => Status::Healthy,
        HealthStatus::Unhealthy => Status::Unhealthy,
    }
}

/// Returns the health that an earlier agent has sent.
fn health_from(health: CheckedHealth) -> Option<Health> {
    let status = match health.status() {
        Status::Unspecified => return None,
        Status::Starting => HealthStatus::Starting,
        Status::Healthy => HealthStatus::Healthy,
        Status::Unhealthy => HealthStatus::Unhealthy,
    };
    Some(Health { status, detail: health.detail })
}
