//! Rounds by which a leader confirms its leadership.
//!
//! A round is a read index of openraft: the leader sends a request to every voter and waits for a majority. It is the
//! heartbeat, it gives the leader its lease, and it answers reads of leaders without a lease. It runs every
//! [`Timing::pulse`](crate::timing::Timing::pulse), and at once when a caller asks. Callers that come during a round share
//! the next one, because a round must begin after the call.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::Shared;
use crate::machine::Machine;

/// Callers that wait for a round before another one waits.
const WAITING_MAX: usize = 1024;

/// A round that a majority has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Round {
    /// Everything that was acknowledged before the round is applied when this entry is.
    pub(crate) index: u64,
    /// Whether the round gave the leader its lease.
    pub(crate) has_lease: bool,
}

/// Asks for rounds.
#[derive(Debug)]
pub(crate) struct Pulse(mpsc::Sender<oneshot::Sender<Option<Round>>>);

/// Callers that ask for a round.
pub(crate) type Callers = mpsc::Receiver<oneshot::Sender<Option<Round>>>;

impl Pulse {
    pub(crate) fn new() -> (Self, Callers) {
        let (sender, callers) = mpsc::channel(WAITING_MAX);
        (Self(sender), callers)
    }

    /// Returns a round that begins after this call; `None` if this node does not lead or no majority answers.
    pub(crate) async fn round(&self) -> Option<Round> {
        let (caller, round) = oneshot::channel();
        self.0.send(caller).await.ok()?;
        round.await.ok()?
    }
}

/// Runs rounds until the node stops.
pub(crate) async fn run<M: Machine>(shared: Arc<Shared<M>>, mut callers: Callers) {
    let mut servers = shared.servers.clone();
    let mut waiting = Vec::new();
    let mut next = Instant::now();
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = tokio::time::sleep_until(next) => {}
            Some(caller) = callers.recv() => waiting.push(caller),
            // A new leader needs its lease at once.
            changed = servers.changed() => if changed.is_err() { return },
        }
        while let Ok(caller) = callers.try_recv() {
            waiting.push(caller);
        }
        next = Instant::now() + shared.timing.pulse;
        let leads = shared.is_leader() && !shared.transferring.load(Ordering::SeqCst);
        let round = if leads { round(&shared).await } else { None };
        for caller in waiting.drain(..) {
            let _ = caller.send(round);
        }
    }
}

async fn round<M: Machine>(shared: &Shared<M>) -> Option<Round> {
    let sent = Instant::now();
    let confirmed = tokio::time::timeout(shared.timing.round_timeout(), shared.raft.get_read_log_id()).await;
    let (read, _) = confirmed.ok()?.ok()?;
    let has_lease = shared.contact.led(sent);
    Some(Round { index: read.map_or(0, |id| id.index), has_lease })
}
