//! The session lane: assignments to a worker, reports from it.
//!
//! The driver holds the sending half of the worker's messages, so that it can end the session by
//! dropping it: when the engine is loaded anew, when the worker opens another session, or when it
//! does not read. The worker then opens another and hears again what it holds no proof of.

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
use super::{FIRST_MESSAGE_TIMEOUT, Replies, malformed};
use crate::members::{Leader, Members};
use crate::node::{MESSAGES_MAX, ToWorker};
use crate::services::Services;

/// Where the server is that decides, in a refusal of one that does not.
const LEADER: &str = "belfry-leader";

/// How often a server that waits to learn who leads asks itself whether it still reaches the store.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Begins a session. The worker's messages are read from now on.
pub(super) fn open(services: Services, inbound: Streaming<WorkerMessage>) -> Replies<ServerMessage> {
    let (outbox, messages) = mpsc::channel(MESSAGES_MAX);
    let (verdict_tx, verdict) = oneshot::channel();
    let gone = CancellationToken::new();
    let members = services.members.clone();
    let to_worker = Outbound { messages, members, verdict: Some(verdict), _gone: gone.clone().drop_guard() };
    tokio::spawn(async move {
        let mut joined = None;
        tokio::select! {
            verdict = read(&services, inbound, outbox, &mut joined) => {
                // The worker may be gone by now. It hears of the end also while the engine is busy.
                let _gone = verdict_tx.send(verdict);
            }
            () = gone.cancelled() => {}
        }
        if let Some((worker, session)) = joined {
            let _stopping = services.node.report(vec![Input::Disconnect { worker, session }]).await;
        }
    });
    to_worker.boxed()
}

/// What goes to the worker, encoded as it is read; ends with the reason why.
struct Outbound {
    messages: mpsc::Receiver<ToWorker>,
    /// A welcome names all servers.
    members: Members,
    verdict: Option<oneshot::Receiver<Status>>,
    /// Tells the reading half when the stream is dropped.
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
    Status::unavailable("the session ended: open another")
}

/// Reads what the worker sends until its session ends, and says why it did. `joined` is set once the engine knows of
/// the session.
async fn read(
    services: &Services,
    mut inbound: Streaming<WorkerMessage>,
    outbox: mpsc::Sender<ToWorker>,
    joined: &mut Option<(WorkerId, Session)>,
) -> Status {
    let hello = match tokio::time::timeout(FIRST_MESSAGE_TIMEOUT, inbound.message()).await {
        Ok(Ok(Some(WorkerMessage { body: Some(Body::Hello(hello)) }))) => hello,
        Ok(Ok(_)) => {
            return malformed(services, None, &Malformed::new("session", "it did not begin with `hello`"));
        }
        Ok(Err(status)) => return status,
        Err(_elapsed) => return Status::deadline_exceeded("no `hello` came"),
    };
    let node = &services.node;
    let session = node.new_session();
    let join = match convert::join(hello, session) {
        Ok(join) => join,
        Err(error) => return malformed(services, None, &error),
    };
    let worker = join.worker;
    if let Some(elsewhere) = wait_for_leader(services).await {
        return elsewhere;
    }
    if node.join(join, outbox).await.is_err() {
        return ended();
    }
    *joined = Some((worker, session));
    tracing::info!(worker_id = %worker, session = session.0, "worker session opened");
    let verdict = tokio::select! {
        verdict = reports(services, worker, session, inbound) => verdict,
        () = node.suspended() => cut_off(),
    };
    tracing::info!(worker_id = %worker, session = session.0, reason = verdict.message(), "worker session ended");
    verdict
}

/// This server cannot lead and cannot know who does: the worker tries another one.
fn cut_off() -> Status {
    Status::unavailable("this server does not reach the store: try another one")
}

/// Waits while it is open who decides: better to wait here than to be refused, as this server may be the
/// one. Returns where else to go if another one is.
async fn wait_for_leader(services: &Services) -> Option<Status> {
    let mut seen = services.members.watch();
    loop {
        if !services.node.ready().is_to_come() {
            return None;
        }
        if services.node.is_suspended() || services.members.is_isolated() {
            return Some(cut_off());
        }
        if let Leader::Other { server, is_fresh: true } = services.members.leader() {
            let mut status = Status::unavailable(format!("`{}` is the server that decides", server.name));
            if let Some(url) = server.url.and_then(|url| url.parse().ok()) {
                status.metadata_mut().insert(LEADER, url);
            }
            return Some(status);
        }
        tokio::select! {
            _ = services.node.wait_ready(|readiness| !readiness.is_to_come()) => {}
            _ = seen.changed() => {}
            // A server that loses the store sees nothing change.
            () = tokio::time::sleep(LOOK_AGAIN) => {}
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
        let batch = match inbound.message().await {
            Ok(Some(WorkerMessage { body: Some(Body::Reports(batch)) })) => batch,
            Ok(Some(_)) => {
                let error = Malformed::new("session message", "expected `reports`");
                return malformed(services, Some(worker), &error);
            }
            Ok(None) => return Status::ok("the worker closed it"),
            Err(status) => return refused(services, worker, status),
        };
        match inputs(worker, session, batch.reports) {
            Ok(inputs) => {
                if services.node.report(inputs).await.is_err() {
                    return ended();
                }
            }
            Err(error) => return malformed(services, Some(worker), &error),
        }
    }
}

/// What the reports of a batch say, in order; what an execution saved comes before its end.
fn inputs(worker: WorkerId, session: Session, reports: Vec<Report>) -> Result<Vec<Input>, Malformed> {
    let mut inputs = Vec::with_capacity(reports.len());
    for report in reports {
        inputs.extend(convert::last_checkpoint(&report)?);
        inputs.push(convert::report(worker, session, report)?);
    }
    Ok(inputs)
}

/// A stream that broke: because the connection did, or because its bytes are no messages.
fn refused(services: &Services, worker: WorkerId, status: Status) -> Status {
    use tonic::Code;
    match status.code() {
        Code::OutOfRange | Code::InvalidArgument | Code::Internal | Code::ResourceExhausted => {
            malformed(services, Some(worker), &Malformed::new("session message", status.message()))
        }
        _ => status,
    }
}
