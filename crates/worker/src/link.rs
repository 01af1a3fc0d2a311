//! What an agent and its supervisor say to each other, over a unix socket in the worker's folder.
//!
//! A frame is a length (u32, little endian) and one protobuf message. Protobuf, because an upgraded
//! agent must be able to talk to a running, older supervisor: unknown fields are skipped, numbers
//! are never used again, and both sides greet with their version first.
//!
//! The order that matters: on a new session the agent sends [`Sync`]; the supervisor answers with
//! [`Holdings`], which repeats everything that is not acknowledged, so whatever came before it
//! belongs to an older session and is dropped. The agent sends a [`LeaseUntil`] only for beats that
//! were sent after it had passed on all stops of the session's `Welcome`.

use bytes::Bytes;
use proto::v1;

/// The version of this protocol; grows with what the other side may rely on. All versions understand each other.
pub(crate) const VERSION: u32 = 2;
/// From this version on a supervisor answers [`Ping`] and [`Put`].
pub(crate) const ANSWERS_ASKS: u32 = 2;
/// The largest frame that is accepted.
pub(crate) const FRAME_MAX: usize = 32 << 20;
/// Log bytes (with [`LOG_PART_COST`] for each part) that may be under way and unacknowledged.
///
/// The supervisor stops there, so the agent can always take what comes and logs never stand in
/// the way of reports.
pub(crate) const LOG_WINDOW: u64 = 4 << 20;
/// What one part of a log counts beside its bytes.
pub(crate) const LOG_PART_COST: u64 = 1 << 10;
/// The most bytes of frames in one part.
pub(crate) const LOG_PART_MAX: usize = 256 << 10;

/// A message from the agent.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ToSupervisor {
    #[prost(oneof = "Request", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12")]
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
    Put(Put),
}

/// The first message of an agent.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AgentGreeting {
    #[prost(uint32, tag = "1")]
    pub(crate) version: u32,
    /// The most executions at a time; more are refused.
    #[prost(uint32, tag = "2")]
    pub(crate) slots: u32,
}

/// Asks for [`Holdings`].
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
    /// The agent has filled a folder for it under `stage/`, to be used as its own.
    #[prost(bool, tag = "2")]
    pub(crate) staged: bool,
    /// The agent could not: the execution has failed to start.
    #[prost(message, optional, tag = "3")]
    pub(crate) failure: Option<v1::StartFailed>,
    /// The versions of artifacts that it has put into that folder.
    #[prost(message, repeated, tag = "4")]
    pub(crate) inputs: Vec<v1::FileVersion>,
}

/// The lease goes until this instant of `CLOCK_BOOTTIME`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseUntil {
    #[prost(uint64, tag = "1")]
    pub(crate) boot_millis: u64,
}

/// The log lane was opened anew: send from the last acknowledged offsets.
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

/// The outputs of an execution are stored, or never will be.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Stored {
    #[prost(string, tag = "1")]
    pub(crate) execution_id: String,
    /// A stable word, empty where all went well.
    #[prost(string, tag = "2")]
    pub(crate) error: String,
    #[prost(string, tag = "3")]
    pub(crate) detail: String,
    /// The versions that were stored.
    #[prost(message, repeated, tag = "4")]
    pub(crate) outputs: Vec<v1::FileVersion>,
}

/// Asks whether the supervisor works; answered by [`Pong`].
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Ping {
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
}

/// A task saved a checkpoint through its socket, so what its file had before is out of date; answered by [`Pong`].
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Put {
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    #[prost(string, tag = "2")]
    pub(crate) execution_id: String,
    /// When it asked, by the clock that files are dated with.
    #[prost(int64, tag = "3")]
    pub(crate) unix_seconds: i64,
    #[prost(int64, tag = "4")]
    pub(crate) nanos: i64,
}

/// A message from the supervisor.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ToAgent {
    #[prost(oneof = "Answer", tags = "1, 2, 3, 4, 5, 6, 7")]
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
}

/// What was asked with this number is done.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Pong {
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    /// Why the supervisor can start nothing, or empty; of a [`Ping`] only.
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
    /// Whose files an execution's folder must be, where tasks have a user of their own.
    #[prost(message, optional, tag = "5")]
    pub(crate) owner: Option<Owner>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Owner {
    #[prost(uint32, tag = "1")]
    pub(crate) uid: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) gid: u32,
}

/// Everything that is not forgotten, and every report that is not acknowledged.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Holdings {
    #[prost(uint64, tag = "1")]
    pub(crate) generation: u64,
    #[prost(message, repeated, tag = "2")]
    pub(crate) held: Vec<v1::Held>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) reports: Vec<v1::Report>,
    #[prost(uint32, tag = "4")]
    pub(crate) running: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Reports {
    #[prost(message, repeated, tag = "1")]
    pub(crate) reports: Vec<v1::Report>,
    /// How many executions run now.
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

/// Asks the agent to store the outputs of an execution that has run.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Store {
    #[prost(message, optional, tag = "1")]
    pub(crate) assignment: Option<v1::Assignment>,
}

/// Asks the agent to save what a running task wrote to its checkpoint file.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Save {
    #[prost(string, tag = "1")]
    pub(crate) execution_id: String,
    #[prost(uint64, tag = "2")]
    pub(crate) fence: u64,
    /// Counts what was asked of this execution.
    #[prost(uint64, tag = "3")]
    pub(crate) number: u64,
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) data: Bytes,
    /// When the file was written; 0 from a supervisor of an older release.
    #[prost(int64, tag = "5")]
    pub(crate) unix_seconds: i64,
    #[prost(int64, tag = "6")]
    pub(crate) nanos: i64,
}

/// It is saved, or never will be.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Saved {
    #[prost(string, tag = "1")]
    pub(crate) execution_id: String,
    #[prost(uint64, tag = "2")]
    pub(crate) number: u64,
}

/// Whose connection it is that is handed on; goes to the agent's socket for calls, beside the connection.
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

/// Takes the next whole frame from the front of `buffer`, starting at `*at`.
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

/// The length of the message behind a header.
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
