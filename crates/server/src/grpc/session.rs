//! The session stream: assignments to a worker, reports from it.
//!
//! The driver owns the sender of the worker's messages, and ends the session by dropping it: when the engine is
//! reloaded, when the worker opens another session, or when the worker does not read. The worker then opens a new
//! session, which repeats everything that it has not acknowledged.
//!
//! A server that does not lead refuses a session, and names the leader in the metadata [`LEADER`].

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use engine::{Input, Session};
use futures::{Stream, StreamExt as _};
use model::WorkerId;
use proto::v1::{Report, ServerMessage, WorkerMessage, worker_message::Body};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Status, Streaming};

use super::convert::{self, Malformed};
use super::sessions::Sessions;
use super::{FIRST_MESSAGE_TIMEOUT, Replies, audited, malformed, revoked};
use crate::auth::{Identity, RightsWatch};
use crate::members::{Leader, Members};
use crate::node::{MESSAGES_MAX, ToWorker};
use crate::services::Services;

/// Metadata key of the leader's URL, in the refusal of a server that does not lead.
const LEADER: &str = "belfry-leader";

/// Interval at which a server that waits for a leader checks its connection to the store.
const RECHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Opens a session and reads the worker's messages.
pub(super) fn open(
    services: Services,
    sessions: Sessions,
    mut rights: RightsWatch,
    inbound: Streaming<WorkerMessage>,
) -> Replies<ServerMessage> {
    let (outbox, messages) = mpsc::channel(MESSAGES_MAX);
    let (verdict_tx, verdict) = oneshot::channel();
    let gone = CancellationToken::new();
    let members = services.members.clone();
    let to_worker = Outbound { messages, members, verdict: Some(verdict), _gone: gone.clone().drop_guard() };
    let identity = rights.identity().clone();
    tokio::spawn(async move {
        let mut joined = None;
        tokio::select! {
            verdict = read(&services, &sessions, &identity, inbound, outbox, &mut joined) => {
                // The worker may have disconnected. It gets the end of the session even while the engine is busy.
                let _gone = verdict_tx.send(verdict);
            }
            () = rights.changed() => {
                let _gone = verdict_tx.send(revoked());
            }
            () = gone.cancelled() => {}
        }
        if let Some((worker, session)) = joined {
            sessions.close(worker, session);
            let _stopping = services.node.report(vec![Input::Disconnect { worker, session }]).await;
        }
    });
    to_worker.boxed()
}

/// Messages to the worker, encoded when they are read; ends with a status.
struct Outbound {
    messages: mpsc::Receiver<ToWorker>,
    /// Source of the servers' URLs for a welcome.
    members: Members,
    verdict: Option<oneshot::Receiver<Status>>,
    /// Cancels the reading task when the stream is dropped.
    _gone: DropGuard,
}

impl Stream for Outbound {
    type Item = Result<ServerMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let Some(verdict) = this.verdict.as_mut() else { return Poll::Ready(None) };
        if let Poll::Ready(status) = Pin::new(verdict).poll(cx) {
            this.verdict = None;
            return Poll::Ready(Some(Err(status.unwrap_or_else(|_| ended()))));
        }
        match this.messages.poll_recv(cx) {
            Poll::Ready(Some(message)) => {
                Poll::Ready(Some(Ok(convert::message(message, || this.members.urls()))))
            }
            Poll::Ready(None) => {
                this.verdict = None;
                Poll::Ready(Some(Err(ended())))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

fn ended() -> Status {
    Status::unavailable("the session has ended: open a new one")
}

/// Reads the worker's messages until its session ends; returns the reason. Sets `joined` when the engine has opened
/// the session.
async fn read(
    services: &Services,
    sessions: &Sessions,
    identity: &Identity,
    mut inbound: Streaming<WorkerMessage>,
    outbox: mpsc::Sender<ToWorker>,
    joined: &mut Option<(WorkerId, Session)>,
) -> Status {
    let hello = match tokio::time::timeout(FIRST_MESSAGE_TIMEOUT, inbound.message()).await {
        Ok(Ok(Some(WorkerMessage { body: Some(Body::Hello(hello)) }))) => hello,
        Ok(Ok(_)) => {
            return malformed(services, None, &Malformed::new("session", "expected `hello` first"));
        }
        Ok(Err(status)) => return status,
        Err(_elapsed) => {
            return Status::deadline_exceeded(format!("no `hello` within {FIRST_MESSAGE_TIMEOUT:?}"));
        }
    };
    let node = &services.node;
    let session = node.new_session();
    let join = match convert::join(hello, session) {
        Ok(join) => join,
        Err(error) => return malformed(services, None, &error),
    };
    let (worker, name) = (join.worker, join.name.clone());
    if let Some(elsewhere) = wait_for_leader(services).await {
        return elsewhere;
    }
    let is_known = node.view().workers.iter().any(|known| known.id == worker);
    if node.join(join, outbox).await.is_err() {
        return ended();
    }
    sessions.open(worker, session, &identity.token_id);
    *joined = Some((worker, session));
    if !is_known {
        audited::registered(services, identity, worker, &name);
    }
    tracing::info!(worker = name, worker_id = %worker, session = session.0, "worker session opened");
    let verdict = tokio::select! {
        verdict = reports(services, worker, session, inbound) => verdict,
        () = node.leadership_suspended() => store_unreachable(),
    };
    let reason = verdict.message();
    tracing::info!(worker = name, worker_id = %worker, session = session.0, reason, "worker session ended");
    verdict
}

/// This server cannot lead and does not know the leader: the worker must try another server.
fn store_unreachable() -> Status {
    Status::unavailable("this server cannot reach the store: try another server")
}

/// Waits while no leader is known, because this server may become the leader. Returns a status if the worker must
/// connect to another server.
async fn wait_for_leader(services: &Services) -> Option<Status> {
    let mut seen = services.members.watch();
    loop {
        if !services.node.ready().may_become_ready() {
            return None;
        }
        if services.node.is_suspended() || services.members.is_isolated() {
            return Some(store_unreachable());
        }
        if let Leader::Other { server, renewed_recently: true } = services.members.leader() {
            let mut status = Status::unavailable(format!("the leader is `{}`", server.name));
            if let Some(url) = server.url.and_then(|url| url.parse().ok()) {
                status.metadata_mut().insert(LEADER, url);
            }
            return Some(status);
        }
        tokio::select! {
            _ = services.node.wait_ready(|readiness| !readiness.may_become_ready()) => {}
            _ = seen.changed() => {}
            // A server that loses the store gets no further change of membership.
            () = tokio::time::sleep(RECHECK_INTERVAL) => {}
        }
    }
}

async fn reports(
    services: &Services,
    worker: WorkerId,
    session: Session,
    mut inbound: Streaming<WorkerMessage>,
) -> Status {
    loop {
        let inputs = match inbound.message().await {
            Ok(Some(WorkerMessage { body: Some(Body::Reports(batch)) })) => {
                inputs(worker, session, batch.reports)
            }
            Ok(Some(WorkerMessage { body: Some(Body::Health(batch)) })) => {
                convert::health(worker, session, batch).map(|input| input.into_iter().collect())
            }
            // A message of a newer worker.
            Ok(Some(WorkerMessage { body: None })) => continue,
            Ok(Some(WorkerMessage { body: Some(Body::Hello(_)) })) => {
                let error = Malformed::new("session message", "expected `reports` or `health`");
                return malformed(services, Some(worker), &error);
            }
            Ok(None) => return Status::ok("the worker closed the stream"),
            Err(status) => return stream_error(services, worker, status),
        };
        match inputs {
            Ok(inputs) => {
                if services.node.report(inputs).await.is_err() {
                    return ended();
                }
            }
            Err(error) => return malformed(services, Some(worker), &error),
        }
    }
}

/// Converts a batch of reports, in order; the checkpoint of an execution comes before its end.
fn inputs(worker: WorkerId, session: Session, reports: Vec<Report>) -> Result<Vec<Input>, Malformed> {
    let mut inputs = Vec::with_capacity(reports.len());
    for report in reports {
        inputs.extend(convert::last_checkpoint(&report)?);
        inputs.push(convert::report(worker, session, report)?);
    }
    Ok(inputs)
}

/// Handles a broken stream: the connection failed, or its bytes are not messages.
fn stream_error(services: &Services, worker: WorkerId, status: Status) -> Status {
    use tonic::Code;
    match status.code() {
        Code::OutOfRange | Code::InvalidArgument | Code::Internal | Code::ResourceExhausted => {
            malformed(services, Some(worker), &Malformed::new("session message", status.message()))
        }
        _ => status,
    }
}
