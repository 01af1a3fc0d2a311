//! Tables and detailed views of services, their replicas, revisions and endpoints.
//!
//! - [`Service`] and [`ServiceOfNamespace`]: `service list`, without and with a column for the namespace.
//! - [`ServiceDetails`]: `service get`: the service, and a table of its replicas.
//! - [`Replica`], [`RevisionRow`], [`Endpoint`]: `service replicas`, `service revisions` and `service endpoints`.
//! - [`progress`]: the state of a rollout in one sentence, for commands that wait.

use model::api::{AppliedService, Endpoint, Replica, Service, ServiceRevision};
use model::service::{Rollout, RolloutStatus, ScalingCause};
use model::spec::{CheckedPort, HealthCheck, HealthStatus, JobSpec, Port};
use model::{JobStatus, ServiceSpec};
use serde::Serialize;

use super::OutputOptions;
use super::objects::{at, describe_command, exact_or_none, job_status, labels};
use super::schedules::AppliedObject;
use super::table::{self, Cell, Column, Detail, Row, Tone, column, wide};
use super::text::{bytes, count, escape, short};
use super::time::{exact, relative_or_exact};

/// Maximum number of characters of the detail of a replica in a table.
const DETAIL_CHARS_MAX: usize = 200;

/// Formats the available and the desired number of replicas: `2/3`.
fn availability(service: &Service) -> Cell {
    let (available, desired) = (service.counts.available, service.replicas);
    let tone = match available {
        _ if desired == 0 => Tone::Dim,
        0 => Tone::Bad,
        some if some < desired => Tone::Waiting,
        _ => Tone::Good,
    };
    Cell::new(format!("{available}/{desired}"), tone)
}

fn rollout_status(rollout: &Rollout) -> Cell {
    match rollout.status {
        RolloutStatus::Progressing | RolloutStatus::AwaitingPromotion if rollout.paused => {
            Cell::new("paused", Tone::Waiting)
        }
        RolloutStatus::Progressing => Cell::new("progressing", Tone::Busy),
        RolloutStatus::AwaitingPromotion => Cell::new("awaiting_promotion", Tone::Waiting),
        RolloutStatus::Completed => Cell::new("completed", Tone::Good),
        RolloutStatus::Failed => Cell::new("failed", Tone::Bad),
    }
}

fn status(service: &Service) -> Cell {
    if service.deleting { Cell::new("deleting", Tone::Waiting) } else { rollout_status(&service.rollout) }
}

impl Row for Service {
    const COLUMNS: &'static [Column] = &[
        column("NAME", 20),
        column("AVAILABLE", 9),
        column("ROLLOUT", 18),
        column("REVISION", 8).optional(2),
        column("CREATED", 10).optional(1),
        column("OWNER", 12).cut(8).optional(3),
        wide("ID", 30),
        wide("NAMESPACE", 12),
        wide("RUNNING", 7),
        wide("UPDATED", 7),
        wide("STOPPING", 8),
        wide("LABELS", 12),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        vec![
            self.name.as_str().into(),
            availability(self),
            status(self),
            self.rollout.revision.to_string().into(),
            relative_or_exact(look, self.created_at).into(),
            self.owner.as_deref().into(),
            self.id.to_string().into(),
            self.namespace.as_str().into(),
            self.counts.running.to_string().into(),
            self.counts.updated.to_string().into(),
            self.counts.stopping.to_string().into(),
            labels(&self.labels),
        ]
    }

    fn name(&self) -> String {
        escape(&self.name)
    }
}

/// Service in a list of several namespaces: the table has a column for the namespace.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct ServiceOfNamespace(pub(crate) Service);

impl Row for ServiceOfNamespace {
    const COLUMNS: &'static [Column] = &[
        column("NAMESPACE", 12),
        column("NAME", 20),
        column("AVAILABLE", 9),
        column("ROLLOUT", 18),
        column("REVISION", 8).optional(2),
        column("CREATED", 10).optional(1),
        column("OWNER", 12).cut(8).optional(3),
        wide("ID", 30),
        wide("RUNNING", 7),
        wide("UPDATED", 7),
        wide("STOPPING", 8),
        wide("LABELS", 12),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        /// Index of the column in the other table.
        const NAMESPACE: usize = 7;
        let mut cells = self.0.cells(look);
        cells[..=NAMESPACE].rotate_right(1);
        cells
    }

    fn name(&self) -> String {
        format!("{}/{}", escape(&self.0.namespace), escape(&self.0.name))
    }
}

/// Service with its replicas. As JSON and YAML it is the service.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct ServiceDetails {
    pub(crate) service: Service,
    #[serde(skip)]
    pub(crate) replicas: Vec<Replica>,
}

impl Row for ServiceDetails {
    const COLUMNS: &'static [Column] = Service::COLUMNS;

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        self.service.cells(look)
    }

    fn name(&self) -> String {
        Row::name(&self.service)
    }
}

/// Formats the limits and the last change of automatic scaling: `1 to 5 replicas; from 3 to 5 at TIME (queue: 120)`.
fn scaling(look: &OutputOptions, service: &Service) -> Option<String> {
    let scaling = service.spec.as_ref()?.scaling.as_ref()?;
    let last = service.last_scaling.as_ref().map(|change| {
        let value = change.value.map(|value| metric_value(change.cause, value)).unwrap_or_default();
        let (from, to, at) = (change.from, change.to, exact(look, change.at));
        format!("; from {from} to {to} at {at} ({}{value})", change.cause)
    });
    Some(format!("{} to {} replicas{}", scaling.min, scaling.max, last.unwrap_or_default()))
}

/// Formats the value of a metric: `: 1.19 cores`, `: 1.5 GiB`, `: 120`.
fn metric_value(cause: ScalingCause, value: f64) -> String {
    let rounded = (value * 100.0).round() / 100.0;
    match cause {
        ScalingCause::Cpu => format!(": {rounded} cores"),
        // Casts of floats saturate.
        ScalingCause::Memory => format!(": {}", bytes(value as u64)),
        _ => format!(": {rounded}"),
    }
}

impl Detail for ServiceDetails {
    fn detail(&self, look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        let service = &self.service;
        let (counts, rollout) = (&service.counts, &service.rollout);
        let mut replicas = format!(
            "{} desired, {} running, {} available",
            service.replicas, counts.running, counts.available
        );
        if counts.stopping > 0 {
            replicas.push_str(&format!(", {} stopping", counts.stopping));
        }
        let stable = service.stable_revision.filter(|stable| *stable != rollout.revision);
        let stable = stable.map(|stable| format!(" (last completed rollout: revision {stable})"));
        let mut lines = vec![
            ("Service", service.name.as_str().into()),
            ("ID", service.id.to_string().into()),
            ("Namespace", service.namespace.as_str().into()),
            ("Owner", service.owner.as_deref().into()),
            ("Labels", labels(&service.labels)),
            ("Description", service.description.as_deref().into()),
            ("Replicas", replicas.into()),
            ("Min available", service.min_available.to_string().into()),
            ("Revision", format!("{}{}", rollout.revision, stable.unwrap_or_default()).into()),
            ("Rollout", status(service)),
        ];
        lines.extend(scaling(look, service).map(|scaling| ("Scaling", scaling.into())));
        lines.extend(service.scaling_problem.as_deref().map(|problem| ("Scaling problem", problem.into())));
        lines.extend(rollout.reason.as_deref().map(|reason| ("Rollout reason", reason.into())));
        lines.push(("Rollout started", exact(look, rollout.started_at).into()));
        lines.push(("Rollout ended", exact_or_none(look, rollout.ended_at)));
        lines.extend(service.spec.iter().flat_map(|spec| of_spec(spec)));
        lines.push(("Created", exact(look, service.created_at).into()));
        lines.push(("Updated", exact(look, service.updated_at).into()));
        lines.push(("Version", service.version.to_string().into()));
        lines
    }

    fn appendix(&self, look: &OutputOptions) -> String {
        if self.replicas.is_empty() {
            return String::new();
        }
        format!("\n{}", table::rows(look, &self.replicas))
    }
}

fn of_spec(spec: &ServiceSpec) -> Vec<(&'static str, Cell)> {
    let job = &spec.job;
    let mut lines = vec![
        ("Update policy", update_policy(spec).into()),
        ("Min healthy", spec.min_healthy.to_string().into()),
        ("Priority class", spec.priority_class.as_str().into()),
        ("Command", describe_command(&job.run).into()),
    ];
    if !job.ports.is_empty() {
        let ports = job.ports.iter().map(port).collect::<Vec<_>>().join(", ");
        lines.push(("Ports", ports.into()));
    }
    let checks = job.health.iter().flat_map(|checks| checks.iter());
    lines.extend(checks.map(|(name, check)| {
        let title = match name {
            "startup" => "Startup check",
            "readiness" => "Readiness check",
            _ => "Liveness check",
        };
        (title, health_check(check).into())
    }));
    lines
}

fn port(port: &Port) -> String {
    port.port.map_or_else(|| port.name.clone(), |number| format!("{}={number}", port.name))
}

fn update_policy(spec: &ServiceSpec) -> String {
    let policy = &spec.update;
    let mut text = format!("max unavailable {}", spec.max_unavailable());
    if spec.per_worker {
        text.insert_str(0, "one replica per worker, ");
    } else {
        text.insert_str(0, &format!("max surge {}, ", policy.max_surge));
    }
    if policy.canaries > 0 {
        let promotion = if policy.auto_promote { "automatic" } else { "manual" };
        text.push_str(&format!(", {} ({promotion} promotion)", canaries(policy.canaries)));
    }
    let rollback = if policy.auto_rollback { "automatic rollback" } else { "no automatic rollback" };
    format!("{text}, progress deadline {}, {rollback}", policy.progress_deadline)
}

fn canaries(number: u32) -> String {
    if number == 1 { "1 canary".to_owned() } else { format!("{number} canaries") }
}

fn health_check(check: &HealthCheck) -> String {
    let port = |port: &CheckedPort| match port {
        CheckedPort::Number(number) => number.to_string(),
        CheckedPort::Name(name) => name.clone(),
    };
    let what = if let Some(http) = &check.http {
        format!("HTTP {}{}", port(&http.port), http.path)
    } else if let Some(tcp) = &check.tcp {
        format!("TCP {}", port(&tcp.port))
    } else if let Some(grpc) = &check.grpc {
        format!("gRPC {}", port(&grpc.port))
    } else {
        format!("command {}", short(&check.command.join(" "), DETAIL_CHARS_MAX))
    };
    format!(
        "{what}, every {}, failed after {}",
        check.interval,
        count(u64::from(check.failure_threshold), "failure")
    )
}

/// Formats the status of a replica: its health while it runs, otherwise the status of its job.
fn replica_status(replica: &Replica) -> Cell {
    let health = replica.health.as_ref().map(|health| health.status);
    match (replica.stopping, replica.status, health) {
        (true, ..) => Cell::new("stopping", Tone::Waiting),
        (_, JobStatus::Running, Some(HealthStatus::Starting)) => Cell::new("starting", Tone::Busy),
        (_, JobStatus::Running, Some(HealthStatus::Healthy)) => Cell::new("healthy", Tone::Good),
        (_, JobStatus::Running, Some(HealthStatus::Unhealthy)) => Cell::new("unhealthy", Tone::Bad),
        (_, status, _) => job_status(status),
    }
}

impl Row for Replica {
    const COLUMNS: &'static [Column] = &[
        column("REPLICA", 7),
        column("STATUS", 9),
        column("REVISION", 8),
        column("RESTARTS", 8),
        column("JOB", 30),
        column("PORTS", 14).optional(2),
        column("STARTED", 10).optional(3),
        column("DETAIL", 30).cut(12).optional(1),
        wide("WORKER", 30),
        wide("EXECUTION", 30),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        let ports = self.health.iter().flat_map(|health| &health.ports);
        let ports = ports.map(|(name, port)| format!("{name}={port}")).collect::<Vec<_>>().join(",");
        let problem = self.health.as_ref().filter(|health| health.status != HealthStatus::Healthy);
        let detail = problem.and_then(|health| health.detail.as_deref()).or(self.last_exit.as_deref());
        vec![
            self.replica.to_string().into(),
            replica_status(self),
            self.revision.to_string().into(),
            Cell::new(self.restarts.to_string(), if self.restarts > 0 { Tone::Waiting } else { Tone::Plain }),
            self.job.to_string().into(),
            Some(ports).filter(|ports| !ports.is_empty()).into(),
            at(look, self.started_at),
            detail.map(|detail| short(detail, DETAIL_CHARS_MAX)).into(),
            self.worker.map(|id| id.to_string()).into(),
            self.execution.map(|id| id.to_string()).into(),
        ]
    }

    fn name(&self) -> String {
        self.job.to_string()
    }
}

/// Formats an address with a port; an IPv6 address is in brackets.
fn host_and_port(endpoint: &Endpoint) -> String {
    match endpoint.address.as_deref() {
        Some(address) if address.contains(':') => format!("[{address}]:{}", endpoint.port),
        address => format!("{}:{}", escape(address.unwrap_or_default()), endpoint.port),
    }
}

impl Row for Endpoint {
    const COLUMNS: &'static [Column] = &[
        column("PORT", 15),
        column("ADDRESS", 24),
        column("REPLICA", 7),
        column("REVISION", 8).optional(1),
        wide("WORKER", 30),
        wide("JOB", 30),
    ];

    fn cells(&self, _look: &OutputOptions) -> Vec<Cell> {
        vec![
            self.port_name.as_str().into(),
            host_and_port(self).into(),
            self.replica.to_string().into(),
            self.revision.to_string().into(),
            self.worker.to_string().into(),
            self.job.to_string().into(),
        ]
    }

    fn name(&self) -> String {
        host_and_port(self)
    }
}

/// Revision in a list. As JSON and YAML it is the revision.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct RevisionRow {
    pub(crate) revision: ServiceRevision,
    /// Rollout of the current revision of the service.
    #[serde(skip)]
    pub(crate) rollout: Rollout,
    /// Last revision that was rolled out completely.
    #[serde(skip)]
    pub(crate) stable: Option<u64>,
}

impl Row for RevisionRow {
    const COLUMNS: &'static [Column] = &[
        column("REVISION", 8),
        column("CAUSE", 16),
        column("ROLLOUT", 18),
        column("CREATED", 10),
        column("ACTOR", 16).cut(8).optional(2),
        column("COMMAND", 30).cut(12).optional(1),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        let revision = &self.revision;
        let number = revision.number;
        let rollout = if number == self.rollout.revision {
            rollout_status(&self.rollout)
        } else if self.stable == Some(number) {
            Cell::new("last completed", Tone::Good)
        } else {
            Cell::none()
        };
        let cause = match revision.rollback_to {
            Some(to) => format!("{} to {to}", revision.cause),
            None => revision.cause.to_string(),
        };
        let job: &JobSpec = &revision.spec.job;
        vec![
            number.to_string().into(),
            cause.into(),
            rollout,
            relative_or_exact(look, revision.created_at).into(),
            revision.actor.as_deref().unwrap_or("(automatic)").into(),
            describe_command(&job.run).into(),
        ]
    }

    fn name(&self) -> String {
        self.revision.number.to_string()
    }
}

impl From<AppliedService> for AppliedObject {
    fn from(applied: AppliedService) -> Self {
        let AppliedService { name, namespace, change, .. } = applied;
        Self { kind: "service", name, namespace: Some(namespace), change, warnings: Vec::new() }
    }
}

/// Formats the state of a rollout: `rollout of web to revision 2 is progressing: 1 of 3 replicas updated, 1 available`.
pub(crate) fn progress(service: &Service) -> String {
    let (rollout, counts) = (&service.rollout, &service.counts);
    let state = match rollout.status {
        RolloutStatus::Completed => "has completed",
        RolloutStatus::Failed => "has failed",
        _ if rollout.paused => "is paused",
        RolloutStatus::AwaitingPromotion => "waits for a promotion",
        RolloutStatus::Progressing => "is progressing",
    };
    let mut text = format!(
        "rollout of {} to revision {} {state}: {} of {} updated, {} available",
        escape(&service.name),
        rollout.revision,
        counts.updated,
        count(u64::from(service.replicas), "replica"),
        counts.updated_available,
    );
    let others = counts.live.saturating_sub(counts.updated) + counts.stopping;
    if others > 0 && rollout.status != RolloutStatus::Failed {
        text.push_str(&format!(", {} to stop", count(u64::from(others), "replica")));
    }
    if let Some(reason) = rollout.reason.as_deref() {
        text.push_str(&format!(" ({})", escape(reason)));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::{Format, list, one};

    fn look(format: Format) -> OutputOptions {
        OutputOptions { format, color: false, now: "2026-11-21T08:10:00Z".parse().unwrap(), width: None }
    }

    fn spec() -> serde_json::Value {
        json!({
            "name": "web", "namespace": "pay", "replicas": 3,
            "job": {
                "run": {"process": {"command": ["./web", "--port", "$BELFRY_PORT_HTTP"]}},
                "ports": [{"name": "http"}, {"name": "admin", "port": 9090}],
                "health": {
                    "readiness": {"http": {"port": "http", "path": "/healthz"}, "interval": "5s"},
                    "liveness": {"command": ["./check", "--all"]},
                },
            },
            "update": {"canaries": 1},
        })
    }

    fn service(changes: serde_json::Value) -> Service {
        let mut service = json!({
            "id": "svc_01k9zq3m6c0000000000000000", "name": "web", "namespace": "pay", "owner": "ann",
            "labels": {"team": "pay"}, "description": "the shop", "version": 5,
            "created_at": "2026-11-20T08:00:00Z", "updated_at": "2026-11-21T08:00:00Z",
            "replicas": 3, "min_available": 3,
            "counts": {"live": 4, "running": 4, "available": 3, "updated": 1, "updated_available": 0, "stopping": 1},
            "rollout": {"revision": 2, "status": "progressing", "paused": false, "promoted": true,
                "started_at": "2026-11-21T08:09:00Z", "progressed_at": "2026-11-21T08:09:30Z"},
            "stable_revision": 1,
        });
        for (key, value) in changes.as_object().unwrap() {
            service[key] = value.clone();
        }
        serde_json::from_value(service).unwrap()
    }

    fn replica(number: u32, changes: serde_json::Value) -> Replica {
        let mut replica = json!({
            "replica": number, "job": "job_01k9zq3m6c0000000000000000", "revision": 1, "status": "running",
            "stopping": false, "restarts": 0, "execution": "exe_01k9zq3m6c0000000000000000",
            "worker": "wkr_01k9zq3m6c0000000000000000", "started_at": "2026-11-21T08:00:00Z",
            "health": {"status": "healthy", "since": "2026-11-21T08:00:05Z", "ports": {"admin": 9090, "http": 20001}},
        });
        for (key, value) in changes.as_object().unwrap() {
            replica[key] = value.clone();
        }
        serde_json::from_value(replica).unwrap()
    }

    fn replicas() -> Vec<Replica> {
        let since = "2026-11-21T08:05:00Z";
        vec![
            replica(0, json!({})),
            replica(
                1,
                json!({"health": {"status": "unhealthy", "since": since, "detail": "HTTP status \u{1b}503"}}),
            ),
            replica(
                2,
                json!({"status": "retrying", "restarts": 2, "health": null, "execution": null, "worker": null,
                "started_at": null, "last_exit": "exited with code 1"}),
            ),
            replica(3, json!({"revision": 2, "stopping": true})),
        ]
    }

    #[test]
    fn services_as_tables() {
        let failed = json!({"revision": 3, "status": "failed", "promoted": true, "started_at": "2026-11-21T08:00:00Z",
            "progressed_at": "2026-11-21T08:00:00Z", "ended_at": "2026-11-21T08:05:00Z", "reason": "no progress"});
        let all = [
            service(json!({})),
            service(
                json!({"name": "api", "owner": null, "rollout": failed, "counts": {"live": 0, "running": 0,
                "available": 0, "updated": 0, "updated_available": 0, "stopping": 0}}),
            ),
            service(json!({"name": "old", "deleting": true, "replicas": 0})),
        ];
        insta::assert_snapshot!("services_table", list(&look(Format::Table), &all).unwrap());
        insta::assert_snapshot!("services_wide", list(&look(Format::Wide), &all[..1]).unwrap());
        let all = all.map(ServiceOfNamespace);
        insta::assert_snapshot!("services_of_namespaces", list(&look(Format::Table), &all).unwrap());
        insta::assert_snapshot!("services_of_namespaces_wide", list(&look(Format::Wide), &all[..1]).unwrap());
    }

    #[test]
    fn a_service_is_shown_with_its_replicas() {
        let details = ServiceDetails { service: service(json!({"spec": spec()})), replicas: replicas() };
        insta::assert_snapshot!("service_detail", one(&look(Format::Table), &details).unwrap());
        let json = one(&look(Format::Json), &details).unwrap();
        assert_eq!(serde_json::from_str::<Service>(&json).unwrap(), details.service);
    }

    #[test]
    fn replicas_revisions_and_endpoints_as_tables() {
        insta::assert_snapshot!("replicas_wide", list(&look(Format::Wide), &replicas()).unwrap());
        let rollout = service(json!({})).rollout;
        let revision = |number: u64, more: serde_json::Value| {
            let mut revision = json!({"number": number, "created_at": "2026-11-21T08:09:00Z", "cause": "applied", "spec": spec()});
            for (key, value) in more.as_object().unwrap() {
                revision[key] = value.clone();
            }
            let revision = serde_json::from_value(revision).unwrap();
            RevisionRow { revision, rollout: rollout.clone(), stable: Some(1) }
        };
        let all = [
            revision(2, json!({"cause": "rolled_back", "rollback_to": 1})),
            revision(1, json!({"actor": "ann"})),
        ];
        insta::assert_snapshot!("revisions_table", list(&look(Format::Table), &all).unwrap());
        let endpoint = |address: Option<&str>| -> Endpoint {
            serde_json::from_value(json!({
                "port_name": "http", "address": address, "port": 20001, "replica": 0, "revision": 1,
                "job": "job_01k9zq3m6c0000000000000000", "worker": "wkr_01k9zq3m6c0000000000000000",
            }))
            .unwrap()
        };
        let all = [Some("10.0.0.7"), Some("fd00::7"), None].map(endpoint);
        insta::assert_snapshot!(list(&look(Format::Table), &all).unwrap(), @r"
        PORT  ADDRESS          REPLICA  REVISION
        http  10.0.0.7:20001   0        1
        http  [fd00::7]:20001  0        1
        http  :20001           0        1
        ");
        assert_eq!(list(&look(Format::Name), &all[..2]).unwrap(), "10.0.0.7:20001\n[fd00::7]:20001\n");
    }

    #[test]
    fn values_of_metrics_have_the_unit_of_their_cause() {
        assert_eq!(metric_value(ScalingCause::Cpu, 1.188_000_000_000_000_2), ": 1.19 cores");
        assert_eq!(metric_value(ScalingCause::Memory, 1.5 * 1024.0 * 1024.0 * 1024.0), ": 1.5 GiB");
        assert_eq!(metric_value(ScalingCause::Queue, 120.0), ": 120");
    }

    #[test]
    fn a_rollout_is_one_sentence() {
        insta::assert_snapshot!(progress(&service(json!({}))), @"rollout of web to revision 2 is progressing: 1 of 3 replicas updated, 0 available, 4 replicas to stop");
        let counts = json!({"live": 1, "running": 1, "available": 1, "updated": 1, "updated_available": 1, "stopping": 0});
        let done = json!({"revision": 4, "status": "completed", "started_at": "2026-11-21T08:09:00Z",
            "progressed_at": "2026-11-21T08:09:30Z"});
        let done = service(json!({"rollout": done, "replicas": 1, "counts": counts}));
        insta::assert_snapshot!(progress(&done), @"rollout of web to revision 4 has completed: 1 of 1 replica updated, 1 available");
    }
}
