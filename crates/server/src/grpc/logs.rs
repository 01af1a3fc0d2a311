//! The log stream: log output of executions, stored as it arrives and acknowledged by offset.
//!
//! Chunks of one execution are stored in order. Those of several executions are stored concurrently, because the end of
//! a log is synced to disk. The row of the execution determines which worker may write its log; it was committed before
//! the worker got the execution.

use std::collections::HashMap;

use futures::StreamExt as _;
use model::error_chain::Chain;
use model::{ExecutionId, Fence, WorkerId};
use proto::v1::{LogAck, LogChunk};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::convert;
use super::{Replies, malformed, revoked};
use crate::auth::RightsWatch;
use crate::objects::{LogLimit, LogWrite, ObjectError};
use crate::services::Services;

/// Most acknowledgements that wait for a worker to read them; no further chunks are read meanwhile.
const ACKS_MAX: usize = 256;
/// Most chunks processed together.
const CHUNKS: usize = 64;
/// Most executions whose owner a stream caches.
const OWNERS_MAX: usize = 4_096;

/// Opens a stream of logs.
pub(super) fn open(
    services: Services,
    mut rights: RightsWatch,
    inbound: Streaming<LogChunk>,
) -> Replies<LogAck> {
    let (acks, replies) = mpsc::channel(ACKS_MAX);
    tokio::spawn(async move {
        let mut lane = LogStream { services, acks: acks.clone(), owners: HashMap::new() };
        let node = lane.services.node.clone();
        let status = tokio::select! {
            status = lane.read(inbound) => status,
            () = acks.closed() => return,
            () = rights.changed() => Some(revoked()),
            () = node.leadership_ended() => Some(Status::unavailable("this server is no longer the leader")),
        };
        if let Some(status) = status {
            // The worker may have disconnected.
            let _gone = acks.send(Err(status)).await;
        }
    });
    ReceiverStream::new(replies).boxed()
}

struct LogStream {
    services: Services,
    acks: mpsc::Sender<Result<LogAck, Status>>,
    /// Worker and fence that may write each log; `None` if there is no such execution.
    owners: HashMap<ExecutionId, Option<(WorkerId, Fence)>>,
}

/// A chunk with parsed ids.
struct Chunk {
    worker: WorkerId,
    execution: ExecutionId,
    message: LogChunk,
}

impl LogStream {
    /// Reads until the stream ends; returns a status unless the worker ended it.
    async fn read(&mut self, inbound: Streaming<LogChunk>) -> Option<Status> {
        let mut chunks = inbound.ready_chunks(CHUNKS);
        while let Some(messages) = chunks.next().await {
            let (messages, broken) = split(messages);
            if let Err(status) = self.store_all(messages).await {
                return Some(status);
            }
            if broken.is_some() {
                return broken;
            }
        }
        None
    }

    async fn store_all(&mut self, messages: Vec<LogChunk>) -> Result<(), Status> {
        let mut by_execution: Vec<(ExecutionId, Vec<Chunk>)> = Vec::new();
        for message in messages {
            let chunk = parse(message).map_err(|error| malformed(&self.services, None, &error))?;
            self.load_owner(chunk.execution).await?;
            match by_execution.iter_mut().find(|(execution, _)| *execution == chunk.execution) {
                Some((_, chunks)) => chunks.push(chunk),
                None => by_execution.push((chunk.execution, vec![chunk])),
            }
        }
        let lane = &*self;
        let kept = by_execution.into_iter().map(|(_, chunks)| lane.store_in_order(chunks));
        futures::future::try_join_all(kept).await?;
        Ok(())
    }

    async fn store_in_order(&self, chunks: Vec<Chunk>) -> Result<(), Status> {
        for chunk in chunks {
            let ack = self.store_chunk(chunk).await?;
            self.acks.send(Ok(ack)).await.map_err(|_| Status::cancelled("the worker has disconnected"))?;
        }
        Ok(())
    }

    async fn store_chunk(&self, chunk: Chunk) -> Result<LogAck, Status> {
        let Chunk { worker, execution, message } = chunk;
        let ack = |offset, gone, replicated_offset| LogAck {
            execution_id: message.execution_id.clone(),
            offset,
            gone,
            replicated_offset,
        };
        let owner = self.owners.get(&execution).copied().flatten();
        if owner != Some((worker, Fence(message.fence))) {
            return Ok(ack(0, true, 0));
        }
        let logs = &self.services.objects.logs;
        let new = LogWrite {
            offset: message.offset,
            frames: message.frames.clone(),
            end: message.end,
            limit: limit(&message),
        };
        match logs.append(execution, new).await {
            Ok(appended) => {
                self.services.metrics.log_bytes(appended.new_bytes);
                if message.end && appended.kept < appended.offset {
                    self.acknowledge_when_uploaded(execution, ack(appended.offset, false, appended.offset));
                }
                Ok(ack(appended.offset, false, appended.kept))
            }
            // It will not become smaller; the stored part stays readable.
            Err(ObjectError::TooLarge { .. }) => Ok(ack(message.offset, true, 0)),
            Err(error @ ObjectError::Malformed { .. }) => {
                let error = convert::Malformed::new("log chunk", error.to_string());
                Err(malformed(&self.services, Some(worker), &error))
            }
            Err(error) => {
                tracing::warn!(execution_id = %execution, error = %Chain(&error), "cannot store a log");
                Err(Status::unavailable(format!(
                    "cannot store the log of execution `{execution}`: retry later"
                )))
            }
        }
    }

    /// Acknowledges a log again when it is in the bucket: the worker keeps its copy until then.
    fn acknowledge_when_uploaded(&self, execution: ExecutionId, ack: LogAck) {
        let (logs, acks) = (self.services.objects.logs.clone(), self.acks.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = logs.uploaded(execution) => {}
                () = acks.closed() => return,
            }
            // The worker may have disconnected.
            let _gone = acks.send(Ok(ack)).await;
        });
    }

    async fn load_owner(&mut self, execution: ExecutionId) -> Result<(), Status> {
        if self.owners.contains_key(&execution) {
            return Ok(());
        }
        let row = self.services.node.store().execution(execution).await;
        let row = row.map_err(|error| {
            tracing::warn!(
                execution_id = %execution, error = %Chain(&error),
                "cannot read the execution of a log"
            );
            Status::unavailable(format!(
                "cannot read execution `{execution}`: the store is unavailable; retry later"
            ))
        })?;
        if self.owners.len() >= OWNERS_MAX {
            self.owners.clear();
        }
        self.owners.insert(execution, row.map(|row| (row.record.worker, row.record.fence)));
        Ok(())
    }
}

/// Returns the messages before a failure of the stream, and the failure.
fn split(messages: Vec<Result<LogChunk, Status>>) -> (Vec<LogChunk>, Option<Status>) {
    let mut whole = Vec::with_capacity(messages.len());
    for message in messages {
        match message {
            Ok(message) => whole.push(message),
            Err(status) => return (whole, Some(status)),
        }
    }
    (whole, None)
}

fn limit(message: &LogChunk) -> LogLimit {
    match (message.max_bytes, message.rotated) {
        (0, _) => LogLimit::default(),
        (max_bytes, true) => LogLimit::Rotated { max_bytes, first_offset: message.first_offset },
        (max_bytes, false) => LogLimit::Fixed { max_bytes },
    }
}

fn parse(message: LogChunk) -> Result<Chunk, convert::Malformed> {
    let worker = convert::worker_id(&message.worker_id, "log chunk")?;
    let execution = convert::execution_id(&message.execution_id, "log chunk")?;
    Ok(Chunk { worker, execution, message })
}
