//! The connection for logs.
//!
//! The supervisor decides which bytes are sent and how many may be unacknowledged; this module only transfers them.
//! When the connection breaks, it is reopened with a new generation. The supervisor then restarts from the
//! acknowledged offsets, and parts of an older generation are dropped.

use std::time::Duration;

use model::error_chain::Chain;
use proto::v1::{LogAck, LogChunk};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::Shared;
use super::connect::{Backoff, Server};
use super::session_error::SessionError;
use crate::link::{LogAcks, LogPart, LogsFrom, Request};

const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Capacity of the queue of chunks to the server.
const TO_SERVER: usize = 8;

/// Keeps a log connection open to the server of the session, without end.
pub(super) async fn run(shared: Shared, mut parts: mpsc::UnboundedReceiver<LogPart>) {
    let mut session = shared.session.subscribe();
    let mut backoff = Backoff::default();
    let mut generation = 0;
    loop {
        let server = tokio::select! {
            server = session.wait_for(Option::is_some) => match server.as_deref() {
                Ok(Some(server)) => server.clone(),
                _ => return,
            },
            // Without a session the part is dropped; the supervisor sends it again.
            Some(_) = parts.recv() => continue,
        };
        generation += 1;
        let lane = LogConnection { shared: &shared, generation };
        let ended = tokio::select! {
            ended = lane.serve(&server, &mut parts) => ended,
            // The next session may be with another server.
            _ = session.wait_for(Option::is_none) => continue,
        };
        let Err(error) = ended;
        tracing::warn!(server = %server.url, error = %Chain(&error), "log upload interrupted; retrying");
        backoff.wait().await;
    }
}

struct LogConnection<'a> {
    shared: &'a Shared,
    generation: u64,
}

impl LogConnection<'_> {
    async fn serve(
        &self,
        server: &Server,
        parts: &mut mpsc::UnboundedReceiver<LogPart>,
    ) -> Result<std::convert::Infallible, SessionError> {
        let mut client = server.connect().await?;
        self.shared.send_request(Request::LogsFrom(LogsFrom { generation: self.generation })).await;
        let (to_server, outbox) = mpsc::channel(TO_SERVER);
        let carry = self.carry(parts, to_server);
        // Some servers answer the call only after the first chunk.
        let receive = async {
            let acks = client.logs(ReceiverStream::new(outbox)).await?.into_inner();
            self.acknowledge(acks).await
        };
        tokio::select! {
            ended = carry => ended,
            ended = receive => ended,
        }
    }

    async fn carry(
        &self,
        parts: &mut mpsc::UnboundedReceiver<LogPart>,
        to_server: mpsc::Sender<LogChunk>,
    ) -> Result<std::convert::Infallible, SessionError> {
        loop {
            let part = parts.recv().await.ok_or(SessionError::NoSupervisor)?;
            let Some(chunk) = part.chunk.filter(|_| part.generation == self.generation) else { continue };
            let sent = timeout(ANSWER_MAX, to_server.send(chunk))
                .await
                .map_err(|_| SessionError::Timeout(ANSWER_MAX))?;
            sent.map_err(|_| SessionError::Closed)?;
        }
    }

    async fn acknowledge(
        &self,
        mut acks: Streaming<LogAck>,
    ) -> Result<std::convert::Infallible, SessionError> {
        loop {
            let ack = acks.message().await?.ok_or(SessionError::Closed)?;
            self.shared.send_request(Request::LogAcks(LogAcks { acks: vec![ack] })).await;
        }
    }
}
