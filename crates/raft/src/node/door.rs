//! Serves the requests of other nodes.
//!
//! The door is the only caller of openraft for them, so that every vote goes through [`Contact`](crate::node) and every
//! answer to a leader too. The tasks that serve requests do not end with the connection: a vote that has begun is
//! counted until openraft has handled it.

use std::sync::Arc;
use std::time::Duration;

use openraft::raft::{AppendEntriesResponse, VoteResponse};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use super::Shared;
use crate::error::ProposeError;
use crate::log::Space;
use crate::machine::Machine;
use crate::net::BoxStream;
use crate::net::frame::{self, Frame};
use crate::net::link::read_hello;
use crate::net::message::{
    ANNOUNCE, APPEND, AnnounceRow, AppendAnswer, ERROR, HELLO, Hello, MEMBERS, PRE_VOTE, PROPOSE, PROTOCOL,
    PermitRow, PreVote, ProposeAnswer, READ_INDEX, Refusal, Refused, SNAPSHOT_CHUNK, SNAPSHOT_DONE,
    SNAPSHOT_OFFER, TRANSFER, VOTE, VoteAnswer, VoteMessage, VoteRow, decode, decode_append, encode,
};
use crate::types::Permit;
use crate::types::{LogId, NodeId, Peer, Vote};

/// Maximum requests of a connection that are served at a time.
const REQUESTS_MAX: usize = 64;
/// Maximum wait for space in the queue of the machine.
const SPACE_PATIENCE: Duration = Duration::from_millis(400);
/// Delay before a request that arrived during a vote is repeated.
const REPEAT_DELAY: Duration = Duration::from_millis(1);
/// Maximum wait for the first message.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);

type Answer = Result<Vec<u8>, Refused>;

/// Returns the answer to a node that has forwarded an operation.
fn refused(error: &ProposeError) -> Refused {
    let refusal = match error {
        ProposeError::NotLeader { leader } => Refusal::NotLeader(*leader),
        ProposeError::Unavailable { .. } | ProposeError::TooLarge { .. } => Refusal::Unavailable,
        ProposeError::Unknown { .. } | ProposeError::Stopped => Refusal::Stopped,
    };
    Refused::new(refusal, error.to_string())
}

/// Serves a connection of a node until it ends. `node` is whom the transport has authenticated.
pub(crate) async fn serve<M: Machine>(shared: Arc<Shared<M>>, mut stream: BoxStream, node: NodeId) {
    let greeting = greet(&shared, &mut stream, node);
    match tokio::time::timeout(HELLO_PATIENCE, greeting).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(%node, %error, "refusing a connection");
            let body = encode(&Refused::invalid(&error));
            let _ = frame::write(&mut stream, &Frame { kind: ERROR, request: 0, body }).await;
            return;
        }
        Err(_) => return,
    }
    let (mut reader, writer) = tokio::io::split(stream);
    let (answers, waiting) = mpsc::channel(REQUESTS_MAX);
    let requests = Arc::new(Semaphore::new(REQUESTS_MAX));
    let read = async {
        while let Ok(Some(frame)) = frame::read(&mut reader).await {
            let received = Instant::now();
            let Ok(permit) = Arc::clone(&requests).acquire_owned().await else { return };
            let (shared, answers) = (Arc::clone(&shared), answers.clone());
            let tasks = shared.tasks.clone();
            tasks.spawn(async move {
                let (kind, request) = (frame.kind, frame.request);
                let answer = match answer(&shared, frame, node, received).await {
                    Ok(body) => Frame { kind, request, body },
                    Err(refused) => Frame { kind: ERROR, request, body: encode(&refused) },
                };
                // Fails if the connection has ended; the other node repeats the request.
                let _ = answers.send(answer).await;
                drop(permit);
            });
        }
    };
    tokio::select! {
        () = read => {}
        _ = frame::write_all(writer, waiting) => {}
    }
}

async fn greet<M: Machine>(shared: &Shared<M>, stream: &mut BoxStream, node: NodeId) -> std::io::Result<()> {
    let hello = read_hello(stream, shared.cluster).await?;
    if hello.node != node {
        let problem = format!("node `{node}` calls itself `{}`", hello.node);
        return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, problem));
    }
    let last = shared.log.last().map(Into::into);
    let own = Hello { protocol: PROTOCOL, cluster: shared.cluster, node: shared.id, last };
    frame::write(stream, &Frame { kind: HELLO, request: 0, body: encode(&own) }).await
}

fn decoded<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    decode(body).map_err(|error| Refused::invalid(&error))
}

fn stopped(error: impl ToString) -> Refused {
    Refused::new(Refusal::Stopped, error.to_string())
}

async fn answer<M: Machine>(
    shared: &Arc<Shared<M>>,
    frame: Frame,
    node: NodeId,
    received: Instant,
) -> Answer {
    let body = &frame.body;
    match frame.kind {
        APPEND => append(shared, body, received).await,
        VOTE => vote(shared, decoded(body)?).await,
        PRE_VOTE => Ok(encode(&pre_vote(shared, decoded(body)?))),
        TRANSFER => {
            let permit = Permit::from(decoded::<PermitRow>(body)?);
            shared.elect_with(permit).map_err(|()| stopped("the elections have ended"))?;
            Ok(encode(&()))
        }
        READ_INDEX => {
            let index = shared.leader_index().await;
            index.map(|index| encode(&index)).ok_or_else(|| not_leader(shared))
        }
        PROPOSE => propose(shared, frame.body).await,
        ANNOUNCE => {
            let row: AnnounceRow = decoded(body)?;
            if !shared.is_leader() {
                return Err(not_leader(shared));
            }
            shared.roster.put(AnnounceRow { node, ..row });
            Ok(encode(&shared.roster.rows()))
        }
        SNAPSHOT_OFFER => shared.snapshots.offer(node, decoded(body)?).await.map(|here| encode(&here)),
        SNAPSHOT_CHUNK => shared.snapshots.chunk(node, decoded(body)?).await.map(|()| encode(&())),
        SNAPSHOT_DONE => {
            let vote = Vote::from(decoded::<VoteRow>(body)?);
            let done = shared.snapshots.done(node, vote, &shared.machine, &shared.raft).await;
            done.map(|vote| encode(&VoteRow::from(vote)))
        }
        MEMBERS => {
            let peer: Peer = decoded(body)?;
            shared.readdress(node, &peer).await;
            Ok(encode(&shared.known_members().into_iter().collect::<Vec<_>>()))
        }
        kind => Err(Refused::new(Refusal::Invalid, format!("a request of the unknown kind {kind}"))),
    }
}

fn not_leader<M: Machine>(shared: &Shared<M>) -> Refused {
    Refused::new(Refusal::NotLeader(shared.leader()), "this node is not the leader")
}

async fn append<M: Machine>(shared: &Shared<M>, body: &[u8], received: Instant) -> Answer {
    let (request, withdrawn) = decode_append::<M>(body).map_err(|error| Refused::invalid(&error))?;
    if !request.entries.is_empty() {
        if shared.space.get() == Space::Exhausted {
            return Err(Refused::new(Refusal::Unavailable, "the volume of the log is full"));
        }
        let space = tokio::time::timeout(SPACE_PATIENCE, shared.progress.wait_for_space());
        if !shared.progress.has_space() && space.await.is_err() {
            return Err(Refused::new(Refusal::Unavailable, "too many entries wait to be applied"));
        }
    }
    let leader = request.vote;
    let response = shared.raft.append_entries(request).await.map_err(stopped)?;
    let is_accepted = !matches!(response, AppendEntriesResponse::HigherVote(_));
    if is_accepted && !shared.contact.heard(&leader, received, withdrawn) {
        // The leader repeats the request at once.
        tokio::time::sleep(REPEAT_DELAY).await;
        return Err(Refused::new(Refusal::Voting, "a vote was under way"));
    }
    Ok(encode(&AppendAnswer::from(response)))
}

async fn vote<M: Machine>(shared: &Shared<M>, message: VoteMessage) -> Answer {
    let permit = message.permit.map(Permit::from);
    let Some(voting) = shared.contact.begin_vote(permit.as_ref()) else {
        let own = shared.raft.metrics().borrow().vote;
        let refusal = VoteResponse::new(own, shared.log.last(), false);
        return Ok(encode(&VoteAnswer::from(refusal)));
    };
    let response = shared.raft.vote(message.request()).await.map_err(stopped);
    drop(voting);
    response.map(|response| encode(&VoteAnswer::from(response)))
}

/// Returns whether this node would vote for a node with such a log, without any change.
fn pre_vote<M: Machine>(shared: &Shared<M>, message: PreVote) -> bool {
    shared.contact.may_vote() && message.last.map(LogId::from) >= shared.log.last()
}

async fn propose<M: Machine>(shared: &Shared<M>, group: Vec<u8>) -> Answer {
    let (answers, index) = shared.proposer.propose_encoded(group).await.map_err(|error| refused(&error))?;
    let encoded = |answer| {
        let mut bytes = Vec::new();
        M::encode_answer(answer, &mut bytes);
        bytes
    };
    Ok(encode(&ProposeAnswer { index, answers: answers.iter().map(encoded).collect() }))
}
