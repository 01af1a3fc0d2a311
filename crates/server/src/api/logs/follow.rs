//! Following a log while it is written.
//!
//! A follower is woken by changes of the log and by events of its job. It subscribes to events before it
//! reads anything, so that no change between reading and waiting is missed.
//!
//! [`execution`] and [`job`] open a stream; [`Follower`] produces its events, one `step` at a time: read the
//! log, or else look for the end of the execution, or else wait. The stream ends when the log is complete, or
//! [`REST_TIMEOUT`] after the end of an execution whose worker did not confirm that.
//!
//! # Cost
//! A waiting follower reads one row every [`RECHECK_INTERVAL`], in case an event was missed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use axum::response::sse::Event;
use model::api::LogEntry;
use model::record::ExecutionRecord;
use model::{ExecutionId, JobId};
use serde::Serialize;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::decode::{Decoder, StreamFilter};
use super::{CHUNK, has_no_more_output};
use crate::api::limits::Caller;
use crate::api::problem::ApiError;
use crate::api::{Api, convert, rows, sse};
use crate::auth::Actor;
use crate::node::{EventBatch, Node};
use crate::objects::LogWatch;

/// Longest wait for the rest of the log after the execution has ended.
const REST_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest pause between two reads of the rows, in case an event was missed.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

/// What a stream of log entries ends with.
#[derive(Serialize, ToSchema)]
struct LogEnd {
    /// How the execution ended; the job, if it ended without one.
    status: String,
    /// The process's exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
}

/// Follows an execution from `offset`, after these entries.
pub(super) fn execution(
    api: &Api,
    actor: &Actor,
    caller: &Caller,
    execution: ExecutionId,
    offset: u64,
    wanted: StreamFilter,
    before: Vec<LogEntry>,
) -> Result<Response, ApiError> {
    let mut follower = Follower::new(api, actor, wanted);
    follower.offset = offset;
    follower.ready.extend(before.iter().map(log));
    follower.begin(execution);
    sse::stream(api, actor, caller, follower)
}

/// Follows the first execution of a job, as soon as there is one.
pub(super) fn job(
    api: &Api,
    actor: &Actor,
    caller: &Caller,
    job: JobId,
    wanted: StreamFilter,
) -> Result<Response, ApiError> {
    let mut follower = Follower::new(api, actor, wanted);
    follower.target = Target::Job(job);
    sse::stream(api, actor, caller, follower)
}

fn log(entry: &LogEntry) -> Event {
    sse::event(Some("log"), entry.next_offset, entry)
}

enum Target {
    /// Waits for the first execution of this job.
    Job(JobId),
    /// Reads this execution.
    Execution(ExecutionId, LogWatch),
    /// The stream has ended.
    Nothing,
}

struct Follower {
    api: Api,
    actor: Actor,
    node: Node,
    events: broadcast::Receiver<Arc<EventBatch>>,
    target: Target,
    /// Job of the execution, after its row was read.
    job: Option<JobId>,
    offset: u64,
    decoder: Decoder,
    ready: VecDeque<Event>,
    /// Whether the row may have changed since it was last read.
    needs_read: bool,
    /// When the end of the execution was first seen, and its row at that time.
    ended: Option<(Instant, ExecutionRecord)>,
}

impl Follower {
    fn new(api: &Api, actor: &Actor, wanted: StreamFilter) -> Self {
        Self {
            api: api.clone(),
            actor: actor.clone(),
            node: api.node.clone(),
            events: api.node.events(),
            target: Target::Nothing,
            job: None,
            offset: 0,
            decoder: Decoder::new(wanted),
            ready: VecDeque::new(),
            needs_read: true,
            ended: None,
        }
    }

    fn begin(&mut self, execution: ExecutionId) {
        self.target = Target::Execution(execution, self.api.objects.logs.changed(execution));
        self.needs_read = true;
    }

    fn end(&mut self, end: &LogEnd) {
        for entry in self.decoder.flush(self.offset) {
            self.ready.push_back(log(&entry));
        }
        self.ready.push_back(sse::event(Some("end"), self.offset, end));
        self.target = Target::Nothing;
    }

    /// Runs one step, after which an event is ready or a wait has ended.
    async fn step(&mut self) -> Result<(), ApiError> {
        match self.target {
            Target::Job(job) => self.await_execution(job).await,
            Target::Execution(execution, _) => self.read_on(execution).await,
            Target::Nothing => Ok(()),
        }
    }

    async fn await_execution(&mut self, job: JobId) -> Result<(), ApiError> {
        if self.needs_read {
            let row = rows::job(&self.api, &self.actor, job).await?;
            (self.needs_read, self.job) = (false, Some(job));
            if let Some(execution) = row.state.execution {
                self.begin(execution);
                return Ok(());
            }
            if row.state.status.is_final() {
                self.end(&LogEnd { status: row.state.status.to_string(), exit_code: None });
                return Ok(());
            }
        }
        self.wait().await;
        Ok(())
    }

    async fn read_on(&mut self, execution: ExecutionId) -> Result<(), ApiError> {
        let part = self.api.objects.logs.read(execution, self.offset, CHUNK).await?;
        if !part.frames.is_empty() {
            let entries = self.decoder.entries(&part.frames, part.from);
            self.ready.extend(entries.map(|entry| log(&entry)));
            self.offset = part.next;
            return Ok(());
        }
        self.look_for_end(execution).await?;
        if let Some((since, record)) = &self.ended {
            let patient = since.elapsed() < REST_TIMEOUT;
            if part.complete || has_no_more_output(record, self.offset) || !patient {
                let exit_code = record.outcome.as_ref().and_then(|outcome| outcome.exit_code);
                let end = LogEnd { status: record.status.to_string(), exit_code };
                self.end(&end);
                return Ok(());
            }
        }
        self.wait().await;
        Ok(())
    }

    async fn look_for_end(&mut self, execution: ExecutionId) -> Result<(), ApiError> {
        if self.ended.is_some() || !self.needs_read {
            return Ok(());
        }
        let row = rows::execution(&self.api, &self.actor, execution).await?;
        (self.needs_read, self.job) = (false, Some(row.record.job));
        if row.record.status.is_final() {
            self.ended = Some((Instant::now(), row.record));
        }
        Ok(())
    }

    /// Waits until the log or the job has changed, or until the rows must be read again.
    async fn wait(&mut self) {
        let since = self.ended.as_ref().map(|(since, _)| *since + REST_TIMEOUT);
        let until = since.unwrap_or_else(|| Instant::now() + RECHECK_INTERVAL);
        let grown = async {
            match &mut self.target {
                Target::Execution(_, watch) => watch.changed().await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            () = grown => {}
            // Until its row is read, any event may concern the job.
            () = job_changed(&mut self.events, self.job) => self.needs_read = true,
            () = tokio::time::sleep_until(until) => self.needs_read = true,
        }
    }
}

/// Waits for an event of the job, or for a gap in the events.
async fn job_changed(events: &mut broadcast::Receiver<Arc<EventBatch>>, job: Option<JobId>) {
    loop {
        match events.recv().await {
            Ok(batch) => {
                if job.is_none() || batch.events.iter().any(|event| convert::event_job(event) == job) {
                    return;
                }
            }
            Err(RecvError::Lagged(_)) => return,
            // The stream is about to end; the next read finds the rest.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

impl sse::Source for Follower {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if matches!(self.target, Target::Nothing) {
                return None;
            }
            if let Err(error) = self.step().await {
                // The client reconnects with its offset and misses nothing.
                tracing::warn!(code = error.code().as_str(), ready = ?self.node.ready(), "followed log interrupted");
                return None;
            }
        }
    }

    fn resume_position(&self) -> u64 {
        self.offset
    }
}
