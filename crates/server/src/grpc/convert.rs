//! Conversion of worker messages into inputs of the engine, and of the node's messages into gRPC.
//!
//! All input of workers is validated here against the same limits as other input. Texts for display are truncated; all
//! other values beyond a limit are refused.
//!
//! The error of every function is [`Malformed`]: its caller closes the stream with that text, and counts it.

use std::collections::BTreeMap;

use engine::input::{ExecutionEnd, Held};
use engine::output::Assignment;
use engine::{HealthReport, Input, Join, Report, Session, TaskRequest};
use model::api::UsageSample;
use model::record::{FileVersion, Files, MeasuredUsage, Outcome, Usage};
use model::run::StepOrigin;
use model::spec::{HealthStatus, SandboxLevel};
use model::worker::{Capabilities, Capacity, Health};
use model::{Bytes, Duration, ExecutionId, Fence, Millicores, Timestamp, WorkerId, limits};
use proto::v1;

use crate::hash::short_hash;
use crate::node::{Ack, Grant, Stop, ToWorker, Welcome};
use crate::usage::Measured;

/// Most executions in a worker's journal.
const HELD_MAX: usize = 1_000_000;
/// Most runtimes of a worker.
const RUNTIMES_MAX: usize = 32;
/// Longest name or version of a worker, in bytes.
const NAME_LEN_MAX: usize = 253;
/// Longest text for display, in bytes.
const TEXT_LEN_MAX: usize = 4_096;

/// A message that violates the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed {message}: {problem}")]
pub(crate) struct Malformed {
    message: &'static str,
    problem: String,
}

impl Malformed {
    pub(crate) fn new(message: &'static str, problem: impl Into<String>) -> Self {
        Self { message, problem: problem.into() }
    }
}

pub(crate) fn worker_id(text: &str, message: &'static str) -> Result<WorkerId, Malformed> {
    text.parse().map_err(|error: model::id::ParseIdError| Malformed::new(message, error.to_string()))
}

pub(crate) fn execution_id(text: &str, message: &'static str) -> Result<ExecutionId, Malformed> {
    text.parse().map_err(|error: model::id::ParseIdError| Malformed::new(message, error.to_string()))
}

/// Converts the first message of a session.
pub(crate) fn join(hello: v1::Hello, session: Session) -> Result<Join, Malformed> {
    const WHAT: &str = "hello";
    let worker = worker_id(&hello.worker_id, WHAT)?;
    bounded(WHAT, "name", hello.name.len(), NAME_LEN_MAX)?;
    bounded(WHAT, "version", hello.version.len(), NAME_LEN_MAX)?;
    bounded(WHAT, "labels", hello.labels.len(), limits::LABELS_MAX)?;
    bounded(WHAT, "executions", hello.executions.len(), HELD_MAX)?;
    for (key, value) in &hello.labels {
        let key_max = limits::LABEL_PREFIX_LEN_MAX + 1 + limits::LABEL_LEN_MAX;
        bounded(WHAT, "the key of a label", key.chars().count(), key_max)?;
        bounded(WHAT, "the value of a label", value.chars().count(), limits::LABEL_LEN_MAX)?;
    }
    let capabilities = hello.capabilities.unwrap_or_default();
    bounded(WHAT, "runtimes", capabilities.runtimes.len(), RUNTIMES_MAX)?;
    bounded(WHAT, "runtime_versions", capabilities.runtime_versions.len(), RUNTIMES_MAX)?;
    bounded(WHAT, "volumes", capabilities.volumes.len(), limits::WORKER_VOLUMES_MAX)?;
    Ok(Join {
        worker,
        session,
        name: truncated(if hello.name.is_empty() { hello.worker_id } else { hello.name }),
        version: truncated(hello.version),
        address: address(hello.address),
        labels: hello.labels.into_iter().collect(),
        capacity: capacity(hello.capacity.unwrap_or_default())?,
        capabilities: Capabilities {
            runtimes: capabilities.runtimes.into_iter().map(truncated).collect(),
            runtime_versions: capabilities
                .runtime_versions
                .into_iter()
                .map(|(name, version)| (truncated(name), truncated(version)))
                .collect(),
            memory_limit: capabilities.memory_limit,
            cpu_limit: capabilities.cpu_limit,
            pids_limit: capabilities.pids_limit,
            separate_user: capabilities.separate_user,
            health_checks: capabilities.health_checks,
            volumes: capabilities.volumes.into_iter().map(truncated).collect(),
            // A newer worker may know further levels, which no job of this server asks for.
            sandbox_levels: sandbox_levels(&capabilities.sandbox_levels),
        },
        held: hello.executions.iter().map(held).collect::<Result<_, _>>()?,
    })
}

fn sandbox_levels(names: &[String]) -> Vec<SandboxLevel> {
    let mut levels: Vec<SandboxLevel> = names.iter().filter_map(|name| name.parse().ok()).collect();
    levels.sort_unstable();
    levels.dedup();
    levels
}

/// Returns the address of a worker: a host name or an IP address. Anything else counts as unknown, because the worker works
/// without it.
fn address(address: String) -> Option<String> {
    let is_host = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b':' | b'_');
    let is_address = !address.is_empty() && address.len() <= NAME_LEN_MAX && address.bytes().all(is_host);
    is_address.then_some(address)
}

fn capacity(capacity: v1::Capacity) -> Result<Capacity, Malformed> {
    bounded("hello", "custom resources", capacity.custom.len(), limits::CUSTOM_RESOURCES_MAX)?;
    for name in capacity.custom.keys() {
        bounded("hello", "the name of a resource", name.len(), limits::NAME_LEN_MAX)?;
    }
    Ok(Capacity {
        cpu: Millicores(capacity.cpu_millis),
        memory: Bytes(capacity.memory_bytes),
        custom: capacity.custom.into_iter().collect::<BTreeMap<_, _>>(),
        slots: capacity.slots.min(limits::CONCURRENCY_MAX),
    })
}

fn held(held: &v1::JournaledExecution) -> Result<Held, Malformed> {
    let execution = execution_id(&held.execution_id, "hello")?;
    // For display only: older workers do not send it.
    let job = held.job_id.parse().ok();
    Ok(Held { execution, fence: Fence(held.fence), running: held.running, job })
}

/// Returns the checkpoint in the report of an end; it is saved before the end.
pub(crate) fn last_checkpoint(report: &v1::Report) -> Result<Option<Input>, Malformed> {
    let Some(v1::report::Body::Finished(finished)) = &report.body else { return Ok(None) };
    let Some(data) = &finished.checkpoint else { return Ok(None) };
    let execution = execution_id(&report.execution_id, "report")?;
    let request = checkpoint("report", data, String::new(), None)?;
    Ok(Some(Input::Task { ticket: None, execution, fence: Fence(report.fence), request: Box::new(request) }))
}

/// Converts a checkpoint.
pub(crate) fn checkpoint(
    message: &'static str,
    data: &[u8],
    content_type: String,
    expected_version: Option<u64>,
) -> Result<TaskRequest, Malformed> {
    bounded(message, "the checkpoint", data.len(), limits::CHECKPOINT_BYTES_MAX)?;
    bounded(message, "its content type", content_type.len(), limits::CONTENT_TYPE_LEN_MAX)?;
    let content_type = match content_type.as_str() {
        "" => model::checkpoint::BYTES.to_owned(),
        told if told.bytes().all(|b| (0x20..0x7f).contains(&b)) => content_type,
        told => {
            let what = format!("its content type is {told:?}: expected printable ASCII");
            return Err(Malformed::new(message, what));
        }
    };
    let hash = short_hash(&[content_type.as_bytes(), data]);
    Ok(TaskRequest::SaveCheckpoint {
        content_type: content_type.into(),
        data: data.into(),
        hash,
        expected_version,
    })
}

/// Converts the elements that a task adds to a step.
pub(crate) fn elements(
    message: &'static str,
    request: v1::AddElementsRequest,
) -> Result<TaskRequest, Malformed> {
    let v1::AddElementsRequest { step, batch, elements, .. } = request;
    let wrong = |what: String| Malformed::new(message, what);
    if batch.is_empty() || batch.chars().any(char::is_control) {
        return Err(wrong(format!("the name of the batch is {batch:?}: expected printable text")));
    }
    bounded(message, "the name of the batch", batch.len(), limits::BATCH_NAME_BYTES_MAX)?;
    bounded(message, "the name of the step", step.len(), limits::NAME_LEN_MAX)?;
    if !(1..=limits::ADDED_MAX).contains(&elements.len()) {
        let (found, most) = (elements.len(), limits::ADDED_MAX);
        return Err(wrong(format!("expected 1 to {most} elements but got {found}")));
    }
    let mut values = Vec::with_capacity(elements.len());
    for (i, element) in elements.iter().enumerate() {
        let len = element.len();
        if len > limits::ITEM_BYTES_MAX {
            let most = limits::ITEM_BYTES_MAX;
            return Err(wrong(format!("element {i} has {len} bytes: expected at most {most}")));
        }
        let value = serde_json::from_slice(element);
        values.push(value.map_err(|error| wrong(format!("element {i} is not JSON: {error}")))?);
    }
    let step = (!step.is_empty()).then(|| step.into());
    Ok(TaskRequest::AddElements { step, batch: batch.into(), elements: values })
}

/// Converts a report.
pub(crate) fn report(worker: WorkerId, session: Session, report: v1::Report) -> Result<Input, Malformed> {
    const WHAT: &str = "report";
    use v1::report::Body;
    let execution = execution_id(&report.execution_id, WHAT)?;
    let body = report.body.ok_or_else(|| Malformed::new(WHAT, "it has no body"))?;
    let report_ = match body {
        Body::Started(_) => Report::Started,
        Body::Refused(refused) if refused.reason == REFUSED_AS_KNOWN => known_execution(&refused.detail),
        Body::Refused(refused) => {
            Report::Refused { reason: reason_of(&refused.reason, &refused.detail).into() }
        }
        Body::StartFailed(failed) => Report::StartFailed {
            outcome: Outcome {
                error: Some(code_or(failed.code, "start_failed")),
                message: text(failed.detail),
                ..Outcome::default()
            },
        },
        Body::Finished(finished) => self::finished(finished)?,
    };
    Ok(Input::Report { worker, session, execution, fence: Fence(report.fence), report: report_ })
}

/// Reason of a worker for refusing an execution that is in its journal, and whose end was acknowledged.
const REFUSED_AS_KNOWN: &str = "known";

/// Only a store that has lost the end of the execution assigns it again. The execution may have run; its outcome is
/// unknown.
fn known_execution(detail: &str) -> Report {
    let outcome = Outcome {
        error: Some("outcome_unknown".into()),
        message: text(detail.to_owned()),
        ..Outcome::default()
    };
    Report::Finished { how: ExecutionEnd::Interrupted, outcome, usage: Usage::default() }
}

fn finished(finished: v1::Finished) -> Result<Report, Malformed> {
    use v1::finished::How as Told;
    let told = Told::try_from(finished.how).unwrap_or(Told::Unspecified);
    let clean = finished.exit_code == Some(0) && finished.signal.is_none() && finished.error.is_empty();
    let (how, error) = match told {
        Told::Exited if clean => (ExecutionEnd::Succeeded, None),
        Told::Exited if finished.signal.is_some() => (ExecutionEnd::Failed, Some("signal")),
        Told::Exited => (ExecutionEnd::Failed, Some("exit_code")),
        Told::Stopped => (ExecutionEnd::Stopped, Some("stopped")),
        Told::TimedOut => (ExecutionEnd::TimedOut, Some("timeout")),
        Told::OutOfMemory => (ExecutionEnd::Failed, Some("out_of_memory")),
        Told::Interrupted => (ExecutionEnd::Interrupted, Some("interrupted")),
        Told::Unspecified => {
            return Err(Malformed::new("report", format!("unknown kind of end `{}`", finished.how)));
        }
    };
    let outcome = Outcome {
        exit_code: finished.exit_code,
        signal: finished.signal,
        error: error.map(|usual| code_or(finished.error, usual)),
        message: text(finished.detail),
        output: output(&finished.output)?,
        files: finished.files.map(files).transpose()?.map(Box::new),
    };
    let usage = Usage {
        run_time: Duration::from_millis(finished.run_ms),
        cpu_time: Duration::from_millis(finished.cpu_ms),
        peak_memory_bytes: finished.peak_memory_bytes,
        log_bytes: finished.log_bytes,
        measured: finished.measured.map(|measured| Box::new(measured_usage(&measured))),
    };
    Ok(Report::Finished { how, outcome, usage })
}

fn measured_usage(told: &v1::MeasuredUsage) -> MeasuredUsage {
    MeasuredUsage {
        measurements: told.measurements,
        cpu_p95: Millicores(told.cpu_p95_millis),
        cpu_max: Millicores(told.cpu_max_millis),
        memory_mean: Bytes(told.memory_mean_bytes),
        memory_p95: Bytes(told.memory_p95_bytes),
        read_bytes: told.read_bytes,
        written_bytes: told.written_bytes,
    }
}

/// Converts the artifact versions that an execution read and stored.
fn files(told: v1::Files) -> Result<Files, Malformed> {
    let versions = |told: Vec<v1::FileVersion>| {
        bounded("report", "the list of files", told.len(), limits::FILES_MAX)?;
        let version = |told: v1::FileVersion| {
            let v1::FileVersion { artifact, sha256, path } = told;
            let is_hash =
                sha256.len() == 64 && sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
            if !is_hash || artifact.len() > limits::NAME_LEN_MAX || path.len() > limits::PATH_LEN_MAX {
                return Err(Malformed::new("report", "expected artifact versions in the list of files"));
            }
            Ok(FileVersion { artifact, sha256, path })
        };
        told.into_iter().map(version).collect::<Result<_, _>>()
    };
    Ok(Files { inputs: versions(told.inputs)?, outputs: versions(told.outputs)? })
}

/// Returns the output value, which must be a JSON object.
fn output(bytes: &[u8]) -> Result<Option<std::sync::Arc<str>>, Malformed> {
    if bytes.is_empty() {
        return Ok(None);
    }
    bounded("report", "the output value", bytes.len(), limits::OUTPUT_BYTES_MAX)?;
    let object: &serde_json::value::RawValue = serde_json::from_slice(bytes)
        .map_err(|error| Malformed::new("report", format!("the output value is not JSON: {error}")))?;
    if !object.get().starts_with('{') {
        return Err(Malformed::new("report", "the output value is not a JSON object"));
    }
    Ok(Some(object.get().into()))
}

/// Converts the health of executions.
pub(crate) fn health(
    worker: WorkerId,
    session: Session,
    batch: v1::HealthBatch,
) -> Result<Option<Input>, Malformed> {
    let reports: Vec<HealthReport> = batch
        .executions
        .into_iter()
        .map(health_of)
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .flatten()
        .collect();
    Ok((!reports.is_empty()).then_some(Input::Health { worker, session, reports }))
}

/// Converts the health of one execution; `None` for a status that this release does not know.
fn health_of(told: v1::ExecutionHealth) -> Result<Option<HealthReport>, Malformed> {
    const WHAT: &str = "health";
    use v1::execution_health::Status;
    let execution = execution_id(&told.execution_id, WHAT)?;
    bounded(WHAT, "the list of ports", told.ports.len(), limits::PORTS_MAX)?;
    let status = match told.status() {
        Status::Starting => HealthStatus::Starting,
        Status::Healthy => HealthStatus::Healthy,
        Status::Unhealthy => HealthStatus::Unhealthy,
        Status::Unspecified => return Ok(None),
    };
    let mut ports = BTreeMap::new();
    for (name, port) in told.ports {
        bounded(WHAT, "the name of a port", name.len(), limits::PORT_NAME_LEN_MAX)?;
        let number =
            u16::try_from(port).map_err(|_| Malformed::new(WHAT, format!("`{port}` is not a port")))?;
        ports.insert(name, number);
    }
    let detail = text(told.detail);
    Ok(Some(HealthReport { execution, fence: Fence(told.fence), status, detail, ports }))
}

/// Converts a heartbeat.
pub(crate) fn heartbeat(heartbeat: v1::Heartbeat) -> Result<Input, Malformed> {
    let health = heartbeat.health.unwrap_or_default();
    Ok(Input::Heartbeat {
        worker: worker_id(&heartbeat.worker_id, "heartbeat")?,
        session: Session(heartbeat.session),
        seq: heartbeat.seq,
        health: Health {
            cpu_used: Millicores(health.cpu_used_millis),
            memory_available: Bytes(health.memory_available_bytes),
            disk_available: Bytes(health.disk_available_bytes),
            running: health.running,
            problem: (!health.problem.is_empty()).then(|| truncated(health.problem)),
        },
    })
}

/// Converts the measurements of running executions, which arrived at `at`. Malformed ones are dropped: they are not worth the
/// lease of the worker.
pub(crate) fn usage(batch: v1::UsageBatch, at: Timestamp) -> Vec<Measured> {
    let one = |told: v1::ExecutionUsage| {
        let sample = UsageSample {
            at,
            cpu: Millicores(told.cpu_millis),
            memory: Bytes(told.memory_bytes),
            read_bytes_per_second: told.read_bytes_per_second,
            written_bytes_per_second: told.written_bytes_per_second,
            processes: told.processes,
        };
        let (execution, job) = (told.execution_id.parse().ok()?, told.job_id.parse().ok()?);
        Some(Measured { execution, job, sample })
    };
    batch.executions.into_iter().filter_map(one).collect()
}

/// Converts a message to a worker. `urls` returns the URLs of the servers, for a welcome.
pub(crate) fn message(message: ToWorker, urls: impl FnOnce() -> Vec<String>) -> v1::ServerMessage {
    use v1::server_message::Body;
    let body = match message {
        ToWorker::Welcome(told) => Body::Welcome(welcome(&told, urls())),
        ToWorker::Assignments(batch) => {
            Body::Assignments(v1::AssignmentBatch { assignments: batch.iter().map(assignment).collect() })
        }
        ToWorker::Stops(batch) => Body::Stops(v1::StopBatch { stops: batch.iter().map(stop).collect() }),
        ToWorker::Acks(batch) => Body::Acks(v1::ReportAckBatch { acks: batch.iter().map(ack).collect() }),
    };
    v1::ServerMessage { body: Some(body) }
}

fn welcome(welcome: &Welcome, servers: Vec<String>) -> v1::Welcome {
    v1::Welcome {
        session: welcome.session.0,
        heartbeat_interval_ms: welcome.heartbeat_interval.as_millis(),
        lease_ms: welcome.lease.as_millis(),
        stops: welcome.stops.iter().map(stop).collect(),
        servers,
        accepts_health: true,
    }
}

/// Converts the answer to a heartbeat.
pub(crate) fn grant(grant: &Grant) -> v1::LeaseGrant {
    v1::LeaseGrant { seq: grant.seq, lease_ms: grant.lease.as_millis() }
}

fn assignment(assignment: &Assignment) -> v1::Assignment {
    v1::Assignment {
        execution_id: assignment.execution.to_string(),
        job_id: assignment.job.to_string(),
        fence: assignment.fence.0,
        number: assignment.number,
        spec: bytes::Bytes::copy_from_slice(assignment.body.as_bytes()),
        origin: assignment.origin.as_deref().map(|origin| v1::Origin {
            schedule: origin.name.to_string(),
            scheduled_for_unix_us: origin.scheduled_for.as_micros(),
            interval_start_unix_us: origin.interval_start.map(Timestamp::as_micros),
            interval_end_unix_us: origin.interval_end.as_micros(),
            cause: origin.cause.to_string(),
        }),
        step: assignment.step.as_deref().map(|step| Box::new(step_origin(step))),
        checkpoint_version: assignment.checkpoint.unwrap_or(0),
        replica: assignment.replica.as_deref().map(|replica| v1::ReplicaOrigin {
            service: replica.name.to_string(),
            revision: replica.revision,
            replica: replica.replica,
        }),
    }
}

fn step_origin(step: &StepOrigin) -> v1::StepOrigin {
    let element = step.element.as_ref().map(|element| v1::StepElement {
        index: element.index,
        total: element.total,
        value: element.value.to_string(),
    });
    v1::StepOrigin {
        run_id: step.run.to_string(),
        workflow: step.workflow.to_string(),
        step: step.name.to_string(),
        element,
    }
}

fn stop(stop: &Stop) -> v1::Stop {
    v1::Stop {
        execution_id: stop.execution.to_string(),
        fence: stop.fence.0,
        grace_ms: stop.grace.as_millis(),
        discard: stop.discard,
        reason: stop.reason.to_string(),
    }
}

fn ack(ack: &Ack) -> v1::ReportAck {
    v1::ReportAck { execution_id: ack.execution.to_string(), fence: ack.fence.0, r#final: ack.last }
}

fn bounded(message: &'static str, what: &str, found: usize, max: usize) -> Result<(), Malformed> {
    if found <= max {
        return Ok(());
    }
    Err(Malformed::new(message, format!("{what} has size {found}: expected at most {max}")))
}

fn reason_of(word: &str, detail: &str) -> String {
    match (word, detail) {
        (word, "") => truncated(word.to_owned()),
        ("", detail) => truncated(detail.to_owned()),
        (word, detail) => truncated(format!("{word}: {detail}")),
    }
}

/// Returns the worker's error code if it is valid, otherwise the default one.
fn code_or(told: String, usual: &str) -> Box<str> {
    let fits = !told.is_empty()
        && told.len() <= limits::NAME_LEN_MAX
        && told.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if fits { told.into() } else { usual.into() }
}

fn text(text: String) -> Option<Box<str>> {
    (!text.is_empty()).then(|| truncated(text).into())
}

fn truncated(mut text: String) -> String {
    if text.len() > TEXT_LEN_MAX {
        text.truncate(text.floor_char_boundary(TEXT_LEN_MAX));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXECUTION: &str = "exe_01k9zq3m6c0000000000000000";

    fn finished_with(change: impl FnOnce(&mut v1::Finished)) -> Result<Report, Malformed> {
        let mut finished =
            v1::Finished { how: v1::finished::How::Exited.into(), exit_code: Some(0), ..Default::default() };
        change(&mut finished);
        read(v1::report::Body::Finished(finished))
    }

    fn read(body: v1::report::Body) -> Result<Report, Malformed> {
        let report = v1::Report { execution_id: EXECUTION.into(), fence: 3, body: Some(body) };
        match super::report(WorkerId::from_bits(1), Session(2), report)? {
            Input::Report { report, .. } => Ok(report),
            other => panic!("{other:?}"),
        }
    }

    fn how_and_error(change: impl FnOnce(&mut v1::Finished)) -> (ExecutionEnd, Option<String>) {
        match finished_with(change).unwrap() {
            Report::Finished { how, outcome, .. } => (how, outcome.error.map(String::from)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_kind_of_end_has_its_error_code() {
        use v1::finished::How as Told;
        assert_eq!(how_and_error(|_| {}), (ExecutionEnd::Succeeded, None));
        assert_eq!(
            how_and_error(|f| f.exit_code = Some(3)),
            (ExecutionEnd::Failed, Some("exit_code".into()))
        );
        assert_eq!(
            how_and_error(|f| {
                f.exit_code = None;
                f.signal = Some(9);
            }),
            (ExecutionEnd::Failed, Some("signal".into()))
        );
        for (told, how, error) in [
            (Told::Stopped, ExecutionEnd::Stopped, "stopped"),
            (Told::TimedOut, ExecutionEnd::TimedOut, "timeout"),
            (Told::OutOfMemory, ExecutionEnd::Failed, "out_of_memory"),
            (Told::Interrupted, ExecutionEnd::Interrupted, "interrupted"),
        ] {
            assert_eq!(how_and_error(|f| f.how = told.into()), (how, Some(error.into())));
        }
    }

    /// I7. A store that lost the end of an execution assigns it again. Its worker cannot prove that it never started.
    #[test]
    fn a_refusal_of_a_known_execution_has_an_unknown_outcome() {
        let refused = |reason: &str| {
            read(v1::report::Body::Refused(v1::Refused { reason: reason.into(), detail: "why".into() }))
        };
        assert_eq!(refused("no_room").unwrap(), Report::Refused { reason: "no_room: why".into() });
        match refused("known").unwrap() {
            Report::Finished { how: ExecutionEnd::Interrupted, outcome, .. } => {
                assert_eq!(outcome.error.as_deref(), Some("outcome_unknown"));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_clean_exit_with_an_error_of_the_worker_is_a_failure() {
        let found = how_and_error(|f| f.error = "output_missing".into());
        assert_eq!(found, (ExecutionEnd::Failed, Some("output_missing".into())));
    }

    #[test]
    fn an_invalid_end_is_malformed() {
        insta::assert_snapshot!(finished_with(|f| f.how = 99).unwrap_err(), @"malformed report: unknown kind of end `99`");
        insta::assert_snapshot!(finished_with(|f| f.output = b"[1]".as_slice().into()).unwrap_err(), @"malformed report: the output value is not a JSON object");
        let large = format!("{{\"a\":\"{}\"}}", "x".repeat(limits::OUTPUT_BYTES_MAX));
        insta::assert_snapshot!(finished_with(|f| f.output = large.into()).unwrap_err(), @"malformed report: the output value has size 65544: expected at most 65536");
    }

    #[test]
    fn a_hello_is_validated() {
        let hello = || v1::Hello { worker_id: WorkerId::from_bits(5).to_string(), ..Default::default() };
        assert_eq!(join(hello(), Session(1)).unwrap().name, WorkerId::from_bits(5).to_string());
        let bad_id = v1::Hello { worker_id: "wkr_x".into(), ..hello() };
        assert!(join(bad_id, Session(1)).unwrap_err().to_string().starts_with("malformed hello: `wkr_x`"));
        let many = (0..=limits::LABELS_MAX).map(|i| (i.to_string(), String::new())).collect();
        assert!(join(v1::Hello { labels: many, ..hello() }, Session(1)).is_err());
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "é".repeat(TEXT_LEN_MAX);
        assert_eq!(truncated(long).len(), TEXT_LEN_MAX);
    }
}
