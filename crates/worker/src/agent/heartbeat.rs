//! Heartbeats and leases, on a connection of their own.
//!
//! A lease counts from the *sending* of the heartbeat that it answers, on `CLOCK_BOOTTIME`. The server counts from
//! the receipt of that heartbeat, so the lease expires on the server later than here, however long the answer took.
//!
//! If a server stops answering, the worker leaves it before the lease expires. So another server can renew the lease
//! before the tasks are frozen. The old server may have lost the leadership, or hang behind a working connection.

use mutation::{Mutation, is_on};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use model::error_chain::Chain;
use proto::v1::{Health, Heartbeat, LeaseGrant, Welcome};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::Shared;
use super::connect::{Backoff, Server};
use super::machine::BoxedProbe;
use super::session_error::SessionError;
use crate::clock::BootMillis;
use crate::link::{LeaseUntil, Request};

const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Number of unanswered heartbeats after which the connection is reopened.
const UNANSWERED_MAX: u32 = 16;

/// Sends heartbeats until the session ends.
pub(super) async fn run(
    shared: &Shared,
    server: &Server,
    welcome: &Welcome,
) -> Result<std::convert::Infallible, SessionError> {
    let mut backoff = Backoff::default();
    let every = Duration::from_millis(welcome.heartbeat_interval_ms.clamp(10, 60_000));
    // At least three heartbeats fit into a lease, whatever the server configures.
    let lease = Duration::from_millis(welcome.lease_ms).max(every * 3);
    let mut beats = Heartbeats {
        shared,
        patience: HeartbeatTimeout::new(shared.machine.boot_millis(), lease),
        session: welcome.session,
        probe: shared.machine.probe(&shared.layout.dir),
        seq: 0,
        unanswered: VecDeque::new(),
    };
    loop {
        let before = beats.seq;
        let error = match beats.run_connection(server, every).await {
            Err(error @ (SessionError::Unknown | SessionError::NoLease)) => return Err(error),
            Err(error) => error,
            Ok(never) => match never {},
        };
        tracing::warn!(server = %server.url, error = %Chain(&error), "heartbeats interrupted; retrying");
        if beats.seq > before + 1 {
            backoff = Backoff::default();
        }
        tokio::select! {
            () = backoff.wait() => {}
            () = beats.patience.ends(shared) => return Err(SessionError::NoLease),
        }
    }
}

/// Time that a server may leave heartbeats unanswered before the worker tries another server.
#[derive(Debug)]
struct HeartbeatTimeout {
    lease: Duration,
    /// Sending time of the newest answered heartbeat, or the time at which the session was opened.
    answered: BootMillis,
}

impl HeartbeatTimeout {
    fn new(opened: BootMillis, lease: Duration) -> Self {
        Self { lease, answered: opened }
    }

    fn answered(&mut self, sent: BootMillis) {
        self.answered = self.answered.max(sent);
    }

    /// Waits until heartbeats have been unanswered for too long.
    async fn ends(&self, shared: &Shared) {
        // The timer does not count while the machine is suspended, but the lease does.
        while let Some(left @ 1..) = self.ends_at().checked_sub(shared.machine.boot_millis()) {
            tokio::time::sleep(Duration::from_millis(left)).await;
        }
    }

    /// Time at which two thirds of the lease have passed without an answer.
    fn ends_at(&self) -> BootMillis {
        self.answered + u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX) * 2 / 3
    }
}

struct Heartbeats<'a> {
    shared: &'a Shared,
    patience: HeartbeatTimeout,
    session: u64,
    probe: BoxedProbe,
    seq: u64,
    /// Sequence number and sending time of each unanswered heartbeat, oldest first.
    unanswered: VecDeque<(u64, BootMillis)>,
}

impl Heartbeats<'_> {
    /// Sends heartbeats on one connection until it fails.
    async fn run_connection(
        &mut self,
        server: &Server,
        every: Duration,
    ) -> Result<std::convert::Infallible, SessionError> {
        self.unanswered.clear();
        let (to_server, outbox) = mpsc::channel(1);
        let mut client = tokio::select! {
            client = server.connect() => client?,
            () = self.patience.ends(self.shared) => return Err(SessionError::NoLease),
        };
        // The first heartbeat is sent with the call; some servers answer the call only after it.
        to_server.try_send(self.next()).map_err(|_| SessionError::Closed)?;
        let call = timeout(ANSWER_MAX, client.heartbeat(ReceiverStream::new(outbox)));
        let mut grants = tokio::select! {
            grants = call => grants.map_err(|_| SessionError::Timeout(ANSWER_MAX))??.into_inner(),
            () = self.patience.ends(self.shared) => return Err(SessionError::NoLease),
        };
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            tokio::select! {
                grant = next_grant(&mut grants) => self.take(grant?).await?,
                () = self.patience.ends(self.shared) => return Err(SessionError::NoLease),
                _ = ticks.tick() => {
                    if self.unanswered.len() >= UNANSWERED_MAX as usize {
                        return Err(SessionError::Timeout(every * UNANSWERED_MAX));
                    }
                    // If the queue is full, the connection is stalled; a later heartbeat is then worth more than two
                    // queued ones.
                    if let Ok(permit) = to_server.try_reserve() {
                        permit.send(self.next());
                    } else if to_server.is_closed() {
                        return Err(SessionError::Closed);
                    }
                }
            }
        }
    }

    fn next(&mut self) -> Heartbeat {
        self.seq += 1;
        self.unanswered.push_back((self.seq, self.shared.machine.boot_millis()));
        Heartbeat {
            worker_id: self.shared.worker_id.to_string(),
            session: self.session,
            seq: self.seq,
            health: Some(self.health()),
            usage: self.shared.take_usage(),
        }
    }

    /// Health of the machine, and the reason why its supervisor cannot start tasks.
    fn health(&mut self) -> Health {
        let mut health = (self.probe)(self.shared.running.load(Ordering::Relaxed));
        if health.problem.is_empty() {
            health.problem = self.shared.asks.trouble();
        }
        health
    }

    async fn take(&mut self, grant: LeaseGrant) -> Result<(), SessionError> {
        if grant.lease_ms == 0 {
            return Err(SessionError::Unknown);
        }
        if let Some(sent) = answered(&mut self.unanswered, grant.seq) {
            self.patience.answered(sent);
            let late = is_on(Mutation::AgentCountsLeasesFromAnswers);
            let from = if late { self.shared.machine.boot_millis() } else { sent };
            let boot_millis = from + grant.lease_ms;
            self.shared.lease.renew(self.shared.machine.boot_millis(), boot_millis);
            self.shared.send_request(Request::Lease(LeaseUntil { boot_millis })).await;
        }
        Ok(())
    }
}

/// Returns when the heartbeat with this `seq` was sent; removes it and all older ones.
fn answered(unanswered: &mut VecDeque<(u64, BootMillis)>, seq: u64) -> Option<BootMillis> {
    let at = unanswered.iter().position(|(number, _)| *number == seq)?;
    unanswered.drain(..=at).next_back().map(|(_, sent)| sent)
}

async fn next_grant(grants: &mut Streaming<LeaseGrant>) -> Result<LeaseGrant, SessionError> {
    grants.message().await?.ok_or(SessionError::Closed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_left_after_two_thirds_of_the_lease_without_an_answer() {
        let mut patience = HeartbeatTimeout::new(1_000, Duration::from_secs(6));
        assert_eq!(patience.ends_at(), 5_000);
        patience.answered(3_000);
        patience.answered(2_000);
        assert_eq!(patience.ends_at(), 7_000);
    }

    #[test]
    fn a_lease_counts_from_the_sending_of_the_answered_heartbeat() {
        let mut unanswered = VecDeque::from([(1, 100), (2, 200), (3, 300)]);
        assert_eq!(answered(&mut unanswered, 2), Some(200));
        assert_eq!(answered(&mut unanswered, 1), None, "an older answer says nothing new");
        assert_eq!(answered(&mut unanswered, 9), None);
        assert_eq!(unanswered, [(3, 300)]);
    }
}
