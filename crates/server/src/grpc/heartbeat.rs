//! The heartbeat stream: heartbeats from a worker, lease grants to it.
//!
//! It has its own connection, and the engine's thread takes its inputs before all others.

use engine::Input;
use futures::StreamExt as _;
use proto::v1::{Heartbeat, LeaseGrant};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::convert;
use super::{Replies, malformed, revoked};
use crate::auth::RightsWatch;
use crate::clock::{Clock as _, SystemClock};
use crate::node::{Grant, HeartbeatRequest};
use crate::services::Services;

/// Most grants that wait for a worker to read them.
const GRANTS_MAX: usize = 16;

/// Opens a stream of heartbeats.
pub(super) fn open(
    services: Services,
    mut rights: RightsWatch,
    inbound: Streaming<Heartbeat>,
) -> Replies<LeaseGrant> {
    let (grants, granted) = mpsc::channel(GRANTS_MAX);
    let (verdict_tx, verdict) = mpsc::channel(1);
    tokio::spawn(async move {
        let closed = grants.clone();
        let status = tokio::select! {
            status = read(&services, inbound, grants) => status,
            () = closed.closed() => return,
            () = rights.changed() => revoked(),
            () = services.node.leadership_ended() => Status::unavailable("this server is no longer the leader"),
        };
        // The worker may have disconnected.
        let _gone = verdict_tx.send(Err(status)).await;
    });
    // The driver keeps a sender of grants, so the final status must end the stream.
    let grants = ReceiverStream::new(granted).map(|grant| Ok(convert::grant(&grant)));
    let both = futures::stream::select(grants, ReceiverStream::new(verdict));
    let mut over = false;
    both.take_while(move |item| {
        let go_on = !over;
        over = item.is_err();
        std::future::ready(go_on)
    })
    .boxed()
}

async fn read(services: &Services, mut inbound: Streaming<Heartbeat>, grants: mpsc::Sender<Grant>) -> Status {
    loop {
        let mut message = match inbound.message().await {
            Ok(Some(message)) => message,
            Ok(None) => return Status::ok("the worker closed the stream"),
            Err(status) => return status,
        };
        let usage = message.usage.take();
        let input = match convert::heartbeat(message) {
            Ok(input) => input,
            Err(error) => return malformed(services, None, &error),
        };
        let Input::Heartbeat { session, worker, .. } = &input else { continue };
        let worker = *worker;
        let request = HeartbeatRequest { session: *session, input, grants: grants.clone() };
        if services.node.heartbeat(request).await.is_err() {
            return Status::unavailable("this server is no longer the leader");
        }
        // Only of registered workers, so the table has bounds.
        if let Some(usage) = usage
            && services.node.view().workers.iter().any(|known| known.id == worker)
        {
            services.usage.record(worker, convert::usage(usage, SystemClock.now()));
        }
    }
}
