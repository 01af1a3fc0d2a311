//! Protocol between an agent and its supervisor, over a unix socket in the worker folder.
//!
//! A frame is a length (u32, little endian) and one protobuf message. Protobuf allows an upgraded agent to talk to a
//! running, older supervisor: unknown fields are skipped, field numbers are never reused, and both sides first
//! exchange their versions.
//!
//! # Sessions
//! For a new session the agent sends [`Sync`]. The supervisor answers with [`Holdings`], which repeat everything that
//! is not acknowledged; earlier messages belong to an older session and are dropped. The agent sends a [`LeaseUntil`]
//! only for heartbeats that it sent after it had forwarded all stops of the session's `Welcome`.
//!
//! # Health checks
//! The supervisor knows which executions run, and the agent runs their health checks. After the first [`Holdings`] of
//! a connection the supervisor sends one [`Watched`] for each running execution with ports or health checks, and later
//! one for each that starts. It sends [`Unwatched`] when the main process has exited. The agent does not derive the
//! end from reports: a report waits until all processes have exited and the end is durable, and a check must not fail
//! meanwhile. Both messages follow the report of the start, and may be repeated.
//!
//! The agent sends [`Checked`] when the status of an execution changes, so that the next agent continues with that
//! status, and [`Unhealthy`] when the supervisor must end the execution. An [`Unhealthy`] may be lost or come too
//! early; the agent then counts failures again.

use std::collections::BTreeMap;

use bytes::Bytes;
use proto::v1;

/// Version of this protocol; grows with the features that the other side may rely on. All versions are compatible.
pub(crate) const VERSION: u32 = 3;
/// Version from which a supervisor answers [`Ping`] and [`CheckpointSaved`].
pub(crate) const PING_VERSION: u32 = 2;
/// Version from which an agent runs health checks; a supervisor sends [`Watched`] and [`Unwatched`] only to such an
/// agent.
pub(crate) const WATCH_VERSION: u32 = 3;
/// Maximum size of a frame in bytes.
pub(crate) const FRAME_MAX: usize = 32 << 20;
/// Maximum cost of log parts that are sent and not acknowledged: their bytes, plus [`LOG_PART_COST`] for each part.
///
/// The supervisor stops sending logs at this limit, so the agent can always accept them and logs never block reports.
pub(crate) const LOG_WINDOW: u64 = 4 << 20;
/// Fixed cost of a log part in the window, in bytes.
pub(crate) const LOG_PART_COST: u64 = 1 << 10;
/// Maximum number of bytes of frames in one log part.
pub(crate) const LOG_PART_MAX: usize = 256 << 10;

/// A message from the agent.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ToSupervisor {
    #[prost(oneof = "Request", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14")]
    pub(crate) body: Option<Request>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Request {
    #[prost(message, tag = "1")]
    Greeting(AgentGreeting),
    #[prost(message, tag = "2")]
    Sync(Sync),
    #[prost(message, tag = "3")]
    Starts(Starts),
    #[prost(message, tag = "4")]
    Stops(v1::StopBatch),
    #[prost(message, tag = "5")]
    Acks(v1::ReportAckBatch),
    #[prost(message, tag = "6")]
    Lease(LeaseUntil),
    #[prost(message, tag = "7")]
    LogsFrom(LogsFrom),
    #[prost(message, tag = "8")]
    LogAcks(LogAcks),
    #[prost(message, tag = "9")]
    Stored(Stored),
    #[prost(message, tag = "10")]
    Saved(Saved),
    #[prost(message, tag = "11")]
    Ping(Ping),
    #[prost(message, tag = "12")]
    Put(CheckpointSaved),
    #[prost(message, tag = "13")]
    Unhealthy(Unhealthy),
    #[prost(message, tag = "14")]
    Checked(Checked),
}

/// The first message of an agent.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AgentGreeting {
    #[prost(uint32, tag = "1")]
    pub(crate) version: u32,
    /// Maximum number of concurrent executions; more are refused.
    #[prost(uint32, tag = "2")]
    pub(crate) slots: u32,
}

/// Requests [`Holdings`].
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Sync {
    #[prost(uint64, tag = "1")]
    pub(crate) generation: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Starts {
    #[prost(message, repeated, tag = "1")]
    pub(crate) starts: Vec<Start>,
}

/// One execution to start.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Start {
    #[prost(message, optional, tag = "1")]
    pub(crate) assignment: Option<v1::Assignment>,
    /// Whether the agent has filled a folder for the execution under `stage/`.
    #[prost(bool, tag = "2")]
    pub(crate) staged: bool,
    /// Why the agent could not fill that folder; the execution then fails to start.
    #[prost(message, optional, tag = "3")]
    pub(crate) failure: Option<v1::StartFailed>,
    /// Versions of the artifacts in that folder.
    #[prost(message, repeated, tag = "4")]
    pub(crate) inputs: Vec<v1::FileVersion>,
    /// Values of the secrets of the job.
    #[prost(message, repeated, tag = "5")]
    pub(crate) secrets: Vec<v1::SecretValue>,
}

/// End of the lease on `CLOCK_BOOTTIME`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseUntil {
    #[prost(uint64, tag = "1")]
    pub(crate) boot_millis: u64,
}

/// The log connection was reopened: send from the last acknowledged offsets.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LogsFrom {
    #[prost(uint64, tag = "1")]
    pub(crate) generation: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LogAcks {
    #[prost(message, repeated, tag = "1")]
    pub(crate) acks: Vec<v1::LogAck>,
}

/// The outputs of an execution are stored, or cannot be stored.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Stored {
    #[prost(string, tag = "1")]
    pub(crate) execution_id: String,
    /// Stable error code; empty on success.
    #[prost(string, tag = "2")]
    pub(crate) error: String,
    #[prost(string, tag = "3")]
    pub(crate) detail: String,
    /// Versions that were stored.
    #[prost(message, repeated, tag = "4")]
    pub(crate) outputs: Vec<v1::FileVersion>,
}

/// Checks that the supervisor responds; answered by [`Pong`].
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Ping {
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
}

/// A task saved a checkpoint through its socket, which supersedes older content of its file; answered by [`Pong`].
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CheckpointSaved {
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    #[prost(string, tag = "2")]
    pub(crate) execution_id: String,
    /// Time of the request, by the clock for modification times of files.
    #[prost(int64, tag = "3")]
    pub(crate) unix_seconds: i64,
    #[prost(int64, tag = "4")]
    pub(crate) nanos: i64,
}

/// A startup or liveness check has failed too often: the execution must end with the error `unhealthy`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Unhealthy {
    #[prost(string, tag = "1")]
    pub(crate) execution_id: String,
    #[prost(uint64, tag = "2")]
    pub(crate) fence: u64,
    /// One-line reason for users.
    #[prost(string, tag = "3")]
    pub(crate) detail: String,
    /// Start of the first of the consecutive failed checks, on `CLOCK_BOOTTIME`.
    #[prost(uint64, tag = "4")]
    pub(crate) since_boot_millis: u64,
}

/// Status of the health checks of an execution, for the next agent.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Checked {
    #[prost(string, tag = "1")]
    pub(crate) execution_id: String,
    #[prost(uint64, tag = "2")]
    pub(crate) fence: u64,
    #[prost(message, optional, tag = "3")]
    pub(crate) health: Option<CheckedHealth>,
}

/// Result of health checks.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CheckedHealth {
    #[prost(enumeration = "v1::execution_health::Status", tag = "1")]
    pub(crate) status: i32,
    /// Result of the last failed check; empty if the status is healthy.
    #[prost(string, tag = "2")]
    pub(crate) detail: String,
}

/// A message from the supervisor.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ToAgent {
    #[prost(oneof = "Answer", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10")]
    pub(crate) body: Option<Answer>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Answer {
    #[prost(message, tag = "1")]
    Greeting(SupervisorGreeting),
    #[prost(message, tag = "2")]
    Holdings(Holdings),
    #[prost(message, tag = "3")]
    Reports(Reports),
    #[prost(message, tag = "4")]
    LogPart(LogPart),
    #[prost(message, tag = "5")]
    Store(Store),
    #[prost(message, tag = "6")]
    Save(Save),
    #[prost(message, tag = "7")]
    Pong(Pong),
    #[prost(message, tag = "8")]
    Watched(Watched),
    #[prost(message, tag = "9")]
    Unwatched(Unwatched),
    /// Newest measurements of all running executions. An agent of an earlier release ignores it.
    #[prost(message, tag = "10")]
    Usage(v1::UsageBatch),
}

/// The request with this number was processed.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Pong {
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    /// Reason why the supervisor cannot start executions; empty if there is none. Only in answers to [`Ping`].
    #[prost(string, tag = "2")]
    pub(crate) trouble: String,
}

/// The first message of a supervisor.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SupervisorGreeting {
    #[prost(uint32, tag = "1")]
    pub(crate) version: u32,
    #[prost(string, tag = "2")]
    pub(crate) worker_id: String,
    #[prost(string, tag = "3")]
    pub(crate) boot_id: String,
    #[prost(message, optional, tag = "4")]
    pub(crate) capabilities: Option<v1::Capabilities>,
    /// Owner to set on the files in an execution's folder, if tasks have their own user.
    #[prost(message, optional, tag = "5")]
    pub(crate) owner: Option<Owner>,
    /// Runtimes whose shims the supervisor can start. The agent adds those that the machine has to the capabilities.
    #[prost(string, repeated, tag = "6")]
    pub(crate) shims: Vec<String>,
    /// Address of the container engine that the shims use; see `SupervisorConfig::container_engine`.
    #[prost(string, optional, tag = "7")]
    pub(crate) container_engine: Option<String>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Owner {
    #[prost(uint32, tag = "1")]
    pub(crate) uid: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) gid: u32,
}

/// All executions whose end is not acknowledged, and all unacknowledged reports.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Holdings {
    #[prost(uint64, tag = "1")]
    pub(crate) generation: u64,
    #[prost(message, repeated, tag = "2")]
    pub(crate) held: Vec<v1::JournaledExecution>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) reports: Vec<v1::Report>,
    #[prost(uint32, tag = "4")]
    pub(crate) running: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Reports {
    #[prost(message, repeated, tag = "1")]
    pub(crate) reports: Vec<v1::Report>,
    /// Number of running executions.
    #[prost(uint32, tag = "2")]
    pub(crate) running: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LogPart {
    #[prost(uint64, tag = "1")]
    pub(crate) generation: u64,
    #[prost(message, optional, tag = "2")]
    pub(crate) chunk: Option<v1::LogChunk>,
}

/// Requests the agent to store the outputs of a succeeded execution.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Store {
    #[prost(message, optional, tag = "1")]
    pub(crate) assignment: Option<v1::Assignment>,
}

/// Requests the agent to save the checkpoint file of a running task.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Save {
    #[prost(string, tag = "1")]
    pub(crate) execution_id: String,
    #[prost(uint64, tag = "2")]
    pub(crate) fence: u64,
    /// Sequence number of the request within the execution.
    #[prost(uint64, tag = "3")]
    pub(crate) number: u64,
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) data: Bytes,
    /// Modification time of the file; 0 from a supervisor of an older release.
    #[prost(int64, tag = "5")]
    pub(crate) unix_seconds: i64,
    #[prost(int64, tag = "6")]
    pub(crate) nanos: i64,
}

/// The checkpoint is saved, or cannot be saved.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Saved {
    #[prost(string, tag = "1")]
    pub(crate) execution_id: String,
    #[prost(uint64, tag = "2")]
    pub(crate) number: u64,
}

/// A running execution with ports or health checks.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Watched {
    #[prost(string, tag = "1")]
    pub(crate) execution_id: String,
    #[prost(uint64, tag = "2")]
    pub(crate) fence: u64,
    /// Health checks of the job as JSON (`model::spec::HealthChecks`).
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) checks: Bytes,
    /// Numbers of the ports, by name.
    #[prost(btree_map = "string, uint32", tag = "4")]
    pub(crate) ports: BTreeMap<String, u32>,
    /// Process id of the main process.
    #[prost(int32, tag = "5")]
    pub(crate) pid: i32,
    /// Start time on `CLOCK_BOOTTIME`.
    #[prost(uint64, tag = "6")]
    pub(crate) started_boot_millis: u64,
    /// Whether the execution is frozen while the worker has no lease.
    #[prost(bool, tag = "7")]
    pub(crate) needs_lease: bool,
    /// Working directory of the task.
    #[prost(string, tag = "8")]
    pub(crate) working_directory: String,
    /// Environment of the task as `NAME=VALUE`; empty if no check is a command.
    #[prost(string, repeated, tag = "9")]
    pub(crate) environment: Vec<String>,
    /// Health as an earlier agent sent it in [`Checked`]; absent before the first result.
    #[prost(message, optional, tag = "10")]
    pub(crate) health: Option<CheckedHealth>,
    /// Secrets whose values the results of checks must not contain.
    #[prost(message, repeated, tag = "11")]
    pub(crate) secrets: Vec<v1::SecretValue>,
}

/// The main process of a watched execution has exited.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Unwatched {
    #[prost(string, tag = "1")]
    pub(crate) execution_id: String,
}

/// Execution of a connection that is passed to the agent, sent over the agent's socket for calls together with the
/// connection.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Call {
    #[prost(string, tag = "1")]
    pub(crate) execution_id: String,
    #[prost(uint64, tag = "2")]
    pub(crate) fence: u64,
}

impl From<Request> for ToSupervisor {
    fn from(body: Request) -> Self {
        Self { body: Some(body) }
    }
}

impl From<Answer> for ToAgent {
    fn from(body: Answer) -> Self {
        Self { body: Some(body) }
    }
}

/// Why bytes from the peer are invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("a frame has {0} bytes: expected at most {FRAME_MAX}")]
    TooLarge(usize),
    #[error("a frame is not a message of this protocol")]
    Malformed(#[from] prost::DecodeError),
}

/// Appends `message` as one frame.
pub(crate) fn write_frame(out: &mut Vec<u8>, message: &impl prost::Message) {
    let len = message.encoded_len();
    out.reserve(4 + len);
    out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
    message.encode_raw(out);
}

/// Decodes the next complete frame of `buffer` at `*at`, and advances `*at`; `None` if it is incomplete.
pub(crate) fn read_frame<M: prost::Message + Default>(
    buffer: &[u8],
    at: &mut usize,
) -> Result<Option<M>, LinkError> {
    let Some(header) = buffer.get(*at..).and_then(|rest| rest.first_chunk::<4>()) else {
        return Ok(None);
    };
    let len = frame_len(*header)?;
    let Some(body) = buffer.get(*at + 4..*at + 4 + len) else {
        return Ok(None);
    };
    *at += 4 + len;
    Ok(Some(M::decode(body)?))
}

/// Returns the length of the message after a header.
pub(crate) fn frame_len(header: [u8; 4]) -> Result<usize, LinkError> {
    let len = u32::from_le_bytes(header) as usize;
    if len > FRAME_MAX { Err(LinkError::TooLarge(len)) } else { Ok(len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_whole_or_not_at_all() {
        let mut buffer = Vec::new();
        let message = ToSupervisor::from(Request::Lease(LeaseUntil { boot_millis: 9 }));
        write_frame(&mut buffer, &message);
        let whole = buffer.len();
        write_frame(&mut buffer, &message);
        for cut in whole..buffer.len() {
            let mut at = 0;
            assert_eq!(read_frame(&buffer[..cut], &mut at).unwrap(), Some(message.clone()));
            assert_eq!(read_frame::<ToSupervisor>(&buffer[..cut], &mut at).unwrap(), None);
            assert_eq!(at, whole);
        }
    }

    #[test]
    fn a_frame_that_is_too_large_is_refused_before_it_is_read() {
        let error = read_frame::<ToSupervisor>(&u32::MAX.to_le_bytes(), &mut 0).unwrap_err();
        assert!(matches!(error, LinkError::TooLarge(_)), "{error}");
    }
}
