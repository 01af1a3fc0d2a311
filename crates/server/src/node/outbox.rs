//! Messages to workers, batched by session.
//!
//! The shell pushes the engine's effects here after their commit. A session receives them as [`ToWorker`]s, which the
//! worker's stream in `grpc` encodes: this module is independent of the wire format, and a spec is not copied on the engine's
//! thread.
//!
//! The shell must never wait for a worker. A session whose worker does not read is closed: the worker opens a new
//! session when it works again. It then gets again what it has not acknowledged.
//!
//! # Limits
//! At most [`MESSAGES_MAX`] messages wait for a worker, each with [`ENTRIES_MAX`] entries and [`MESSAGE_BYTES_MAX`] of
//! specs.

use std::collections::HashMap;

use engine::output::Assignment;
use engine::{Effect, Session};
use model::{Duration, ExecutionId, Fence, StopReason, WorkerId};
use tokio::sync::mpsc;

use crate::metrics::Metrics;

/// Most messages that wait for a worker to read them.
pub(crate) const MESSAGES_MAX: usize = 256;
/// Most bytes of specs in one message; gRPC accepts 4 MiB.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Bytes that an assignment counts in addition to its spec.
const ASSIGNMENT_BYTES: usize = 128;
/// Most entries of one message.
const ENTRIES_MAX: usize = 4_096;
/// Most stops in a welcome; each has some 70 bytes.
const WELCOME_STOPS_MAX: usize = 32_768;

/// One message of a session to its worker.
#[derive(Debug)]
pub(crate) enum ToWorker {
    /// The session is open.
    Welcome(Welcome),
    /// Executions to start.
    Assignments(Vec<Assignment>),
    /// Executions to stop.
    Stops(Vec<Stop>),
    /// Reports that are committed.
    Acks(Vec<Ack>),
}

/// First message of a session.
#[derive(Debug)]
pub(crate) struct Welcome {
    pub(crate) session: Session,
    pub(crate) heartbeat_interval: Duration,
    pub(crate) lease: Duration,
    /// Executions that the worker holds and must stop before its lease is renewed.
    pub(crate) stops: Vec<Stop>,
}

/// An execution to stop.
#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) execution: ExecutionId,
    pub(crate) fence: Fence,
    pub(crate) grace: Duration,
    pub(crate) discard: bool,
    pub(crate) reason: StopReason,
}

/// An execution whose report is committed.
#[derive(Debug)]
pub(crate) struct Ack {
    pub(crate) execution: ExecutionId,
    pub(crate) fence: Fence,
    /// Whether this is the last report, and the worker may delete the execution.
    pub(crate) last: bool,
}

/// Answer to a heartbeat.
#[derive(Debug)]
pub(crate) struct Grant {
    /// Sequence number of the heartbeat.
    pub(crate) seq: u64,
    /// Duration of the worker lease; zero if the session is over.
    pub(crate) lease: Duration,
}

/// Open sessions, and the messages that wait to be sent to them.
pub(super) struct Outboxes {
    sessions: HashMap<Session, Outbox>,
    /// The newest session of each worker; an older one is closed when a newer opens.
    workers: HashMap<WorkerId, Session>,
    /// Channels for grants: each belongs to the stream of a session's heartbeats.
    grants: HashMap<Session, mpsc::Sender<Grant>>,
    touched: Vec<Session>,
    metrics: Metrics,
}

struct Outbox {
    worker: WorkerId,
    to_worker: mpsc::Sender<ToWorker>,
    /// Messages in order; only the last one may still grow.
    messages: Vec<ToWorker>,
    last_bytes: usize,
    /// Acknowledgements are separate: they need no order with other messages.
    acks: Vec<Ack>,
}

impl Outboxes {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self {
            sessions: HashMap::new(),
            workers: HashMap::new(),
            grants: HashMap::new(),
            touched: Vec::new(),
            metrics,
        }
    }

    /// Opens a session; ends an older session of the same worker.
    pub(super) fn open(&mut self, worker: WorkerId, session: Session, to_worker: mpsc::Sender<ToWorker>) {
        if let Some(older) = self.workers.insert(worker, session) {
            self.sessions.remove(&older);
            self.grants.remove(&older);
        }
        let outbox = Outbox { worker, to_worker, messages: Vec::new(), last_bytes: 0, acks: Vec::new() };
        self.sessions.insert(session, outbox);
    }

    pub(super) fn close(&mut self, session: Session) {
        self.grants.remove(&session);
        let Some(outbox) = self.sessions.remove(&session) else { return };
        if self.workers.get(&outbox.worker) == Some(&session) {
            self.workers.remove(&outbox.worker);
        }
    }

    /// Sets the stream that gets the grants of a session's heartbeats.
    pub(super) fn set_heartbeat_stream(&mut self, session: Session, grants: mpsc::Sender<Grant>) {
        self.grants.insert(session, grants);
    }

    /// Adds an effect for a worker to its messages; ignores replies to clients.
    pub(super) fn push(&mut self, effect: Effect) {
        match effect {
            Effect::Grant { session, seq, lease, .. } => self.grant(session, Grant { seq, lease }),
            Effect::Welcome { session, heartbeat_interval, lease, .. } => {
                let welcome = Welcome { session, heartbeat_interval, lease, stops: Vec::new() };
                self.with(session, |outbox| outbox.begin(ToWorker::Welcome(welcome), 0));
            }
            Effect::Assign { session, assignment, .. } => {
                self.with(session, |outbox| outbox.assign(assignment));
            }
            Effect::Stop { session, execution, fence, grace, discard, reason, .. } => {
                self.with(session, |outbox| outbox.stop(Stop { execution, fence, grace, discard, reason }));
            }
            Effect::Ack { session, execution, fence, last, .. } => {
                self.with(session, |outbox| outbox.acks.push(Ack { execution, fence, last }));
            }
            Effect::Reply { .. } => {}
        }
    }

    fn with(&mut self, session: Session, add: impl FnOnce(&mut Outbox)) {
        // The session is closed: the worker gets this in its next session.
        let Some(outbox) = self.sessions.get_mut(&session) else { return };
        if outbox.is_empty() {
            self.touched.push(session);
        }
        add(outbox);
    }

    fn grant(&mut self, session: Session, grant: Grant) {
        let Some(grants) = self.grants.get(&session) else { return };
        let ends = grant.lease == Duration::ZERO;
        // A full stream has grants to read; the next heartbeat gets the next grant.
        let sent = grants.try_send(grant);
        if ends || matches!(sent, Err(mpsc::error::TrySendError::Closed(_))) {
            self.grants.remove(&session);
        }
    }

    /// Closes all sessions.
    pub(super) fn close_all(&mut self) {
        self.grants.clear();
        self.workers.clear();
        self.touched.clear();
        self.sessions.clear();
    }

    /// Sends the gathered messages. Returns the sessions that were closed because their workers do not read.
    pub(super) fn send(&mut self) -> Vec<(WorkerId, Session)> {
        let mut stuck = Vec::new();
        for session in std::mem::take(&mut self.touched) {
            let Some(outbox) = self.sessions.get_mut(&session) else { continue };
            match outbox.send() {
                Ok(()) => {}
                Err(reason) => {
                    let worker = outbox.worker;
                    self.metrics.worker_stream_closed(reason);
                    self.close(session);
                    stuck.push((worker, session));
                }
            }
        }
        stuck
    }
}

impl Outbox {
    fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.acks.is_empty()
    }

    fn begin(&mut self, message: ToWorker, bytes: usize) {
        self.messages.push(message);
        self.last_bytes = bytes;
    }

    fn assign(&mut self, assignment: Assignment) {
        let bytes = assignment.body.len() + ASSIGNMENT_BYTES;
        match self.messages.last_mut() {
            Some(ToWorker::Assignments(batch))
                if batch.len() < ENTRIES_MAX && self.last_bytes + bytes <= MESSAGE_BYTES_MAX =>
            {
                batch.push(assignment);
                self.last_bytes += bytes;
            }
            _ => self.begin(ToWorker::Assignments(vec![assignment]), bytes),
        }
    }

    fn stop(&mut self, stop: Stop) {
        match self.messages.last_mut() {
            // A worker must stop executions that it holds wrongly before its lease is renewed.
            Some(ToWorker::Welcome(welcome)) if stop.discard && welcome.stops.len() < WELCOME_STOPS_MAX => {
                welcome.stops.push(stop);
            }
            Some(ToWorker::Stops(batch)) if batch.len() < ENTRIES_MAX => batch.push(stop),
            _ => self.begin(ToWorker::Stops(vec![stop]), 0),
        }
    }

    /// Sends all messages to the stream. An error is the reason for closing it, as a label of a metric.
    fn send(&mut self) -> Result<(), &'static str> {
        let mut acks = std::mem::take(&mut self.acks);
        while !acks.is_empty() {
            let rest = acks.split_off(acks.len().min(ENTRIES_MAX));
            self.messages.push(ToWorker::Acks(std::mem::replace(&mut acks, rest)));
        }
        for message in self.messages.drain(..) {
            self.to_worker.try_send(message).map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => "worker_does_not_read",
                mpsc::error::TrySendError::Closed(_) => "worker_gone",
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use model::JobId;

    use super::*;

    const SESSION: Session = Session(7);

    fn assign(bytes: usize) -> Effect {
        Effect::Assign {
            worker: WorkerId::from_bits(1),
            session: SESSION,
            assignment: Assignment {
                execution: ExecutionId::from_bits(2),
                job: JobId::from_bits(3),
                fence: Fence(4),
                number: 1,
                body: "x".repeat(bytes).into(),
                origin: None,
                step: None,
                replica: None,
                checkpoint: None,
            },
        }
    }

    fn welcome() -> Effect {
        Effect::Welcome {
            worker: WorkerId::from_bits(1),
            session: SESSION,
            heartbeat_interval: Duration::from_secs(2),
            lease: Duration::from_secs(6),
        }
    }

    fn discard() -> Effect {
        let Effect::Stop { worker, session, execution, fence, grace, .. } = stop() else { unreachable!() };
        let reason = StopReason::Superseded;
        Effect::Stop { worker, session, execution, fence, grace, discard: true, reason }
    }

    fn stop() -> Effect {
        Effect::Stop {
            worker: WorkerId::from_bits(1),
            session: SESSION,
            execution: ExecutionId::from_bits(2),
            fence: Fence(4),
            grace: Duration::ZERO,
            discard: false,
            reason: StopReason::Cancelled,
        }
    }

    fn ack() -> Effect {
        Effect::Ack {
            worker: WorkerId::from_bits(1),
            session: SESSION,
            execution: ExecutionId::from_bits(2),
            fence: Fence(4),
            last: true,
        }
    }

    fn sent(effects: Vec<Effect>) -> Vec<String> {
        let mut outboxes = Outboxes::new(Metrics::new());
        let (tx, mut rx) = mpsc::channel(MESSAGES_MAX);
        outboxes.open(WorkerId::from_bits(1), SESSION, tx);
        effects.into_iter().for_each(|effect| outboxes.push(effect));
        assert_eq!(outboxes.send(), []);
        std::iter::from_fn(|| rx.try_recv().ok())
            .map(|message| match message {
                ToWorker::Welcome(welcome) => format!("welcome with {} stops", welcome.stops.len()),
                ToWorker::Assignments(batch) => format!("assign {}", batch.len()),
                ToWorker::Stops(batch) => format!("stop {}", batch.len()),
                ToWorker::Acks(batch) => format!("ack {}", batch.len()),
            })
            .collect()
    }

    #[test]
    fn effects_of_a_kind_share_a_message_and_keep_their_order() {
        let effects = vec![assign(1), assign(1), ack(), stop(), ack(), stop(), assign(1)];
        assert_eq!(sent(effects), ["assign 2", "stop 2", "assign 1", "ack 2"]);
    }

    #[test]
    fn discarded_executions_are_stopped_within_the_welcome() {
        let effects = vec![welcome(), discard(), discard(), assign(1), stop()];
        assert_eq!(sent(effects), ["welcome with 2 stops", "assign 1", "stop 1"]);
    }

    #[test]
    fn a_newer_session_of_a_worker_closes_the_older() {
        let mut outboxes = Outboxes::new(Metrics::new());
        let (older, mut of_older) = mpsc::channel(1);
        let (newer, mut of_newer) = mpsc::channel(1);
        outboxes.open(WorkerId::from_bits(1), Session(1), older);
        outboxes.open(WorkerId::from_bits(1), Session(2), newer);
        outboxes.close(Session(1));
        assert_eq!(of_older.try_recv().unwrap_err(), mpsc::error::TryRecvError::Disconnected);
        assert_eq!(of_newer.try_recv().unwrap_err(), mpsc::error::TryRecvError::Empty);
    }

    #[test]
    fn no_message_exceeds_the_size_limit() {
        let half = MESSAGE_BYTES_MAX / 2;
        assert_eq!(sent(vec![assign(half), assign(half), assign(10)]), ["assign 1", "assign 2"]);
    }

    #[test]
    fn a_session_whose_worker_does_not_read_is_closed() {
        let mut outboxes = Outboxes::new(Metrics::new());
        let (tx, mut rx) = mpsc::channel(1);
        outboxes.open(WorkerId::from_bits(1), SESSION, tx);
        outboxes.push(stop());
        assert_eq!(outboxes.send(), []);
        outboxes.push(stop());
        assert_eq!(outboxes.send(), [(WorkerId::from_bits(1), SESSION)]);
        assert!(rx.try_recv().is_ok());
        assert_eq!(rx.try_recv().unwrap_err(), mpsc::error::TryRecvError::Disconnected);
    }
}
