//! The list of servers in the store, and how each server polls it.
//!
//! The rules are the product's [`leader::membership`]. A server announces itself and reads the list with one call,
//! which may be slow, fail or hang like any other store call. Draining and stopping also go through the list: a
//! leader hands over because it reads that it is drained, and the others expect it for the same reason.

use std::collections::BTreeMap;

use leader::Event;
use leader::membership::{
    ClusterView, Membership, Own, Ownership, Participant, SEEN_BY_ALL, ServerView, Sharing,
};
use model::{Duration, ServerId, Timestamp};

use super::plan::FaultKind;
use super::server::ServerMessage;
use super::{World, WorldEvent};

/// Entry of a server.
#[derive(Debug, Clone, Copy)]
struct Row {
    draining: bool,
    lag: Option<Duration>,
    until: Timestamp,
}

/// The list in the store.
#[derive(Debug, Default)]
pub(super) struct Members {
    rows: BTreeMap<ServerId, Row>,
    /// Servers that are drained by a fault, by the index of the fault.
    drained: BTreeMap<usize, ServerId>,
}

impl Members {
    /// Writes the entry of a server. A late announcement does not shorten it.
    fn announce(&mut self, id: ServerId, lag: Option<Duration>, until: Timestamp) {
        let row = self.rows.entry(id).or_insert(Row { draining: false, lag, until });
        (row.lag, row.until) = (lag, until.max(row.until));
    }

    fn set_draining(&mut self, id: ServerId, draining: bool) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.draining = draining;
        }
    }

    fn there(&self, now: Timestamp) -> Vec<ServerView> {
        let there = self.rows.iter().filter(|(_, row)| row.until > now);
        there.map(|(&id, row)| ServerView { id, draining: row.draining, lag: row.lag }).collect()
    }
}

/// Membership state of a server while its process runs.
#[derive(Debug)]
pub(super) struct Member {
    participant: Participant,
    membership: Membership,
    /// Its latest view, and when it was read.
    seen: Option<(ClusterView, Timestamp)>,
    /// Number of the newest poll; answers to older polls are ignored.
    look: u64,
    /// Time up to which its standby knows all changes of live rows.
    pub(super) followed_until: Option<Timestamp>,
    stops: bool,
}

/// Returns the id of a server; it differs after each start.
pub(super) fn id_of(server: usize, life: u32) -> ServerId {
    ServerId::from_bits(u128::from(life) << 64 | server as u128)
}

impl World {
    /// Starts the polls of a server that has started.
    pub(super) fn join_members(&mut self, server: usize) {
        let participant = Participant {
            id: id_of(server, self.servers[server].life),
            sharing: if self.servers.len() > 1 { Sharing::Shared } else { Sharing::Single },
            lease: self.plan.setup.shard_lease,
        };
        self.servers[server].member = Some(Member {
            participant,
            membership: Membership::new(participant),
            seen: None,
            look: 0,
            followed_until: None,
            stops: false,
        });
        self.tell_self(server, Duration::ZERO, ServerMessage::Look);
    }

    /// Announces a server, and reads the list.
    pub(super) fn look(&mut self, server: usize) {
        let number = self.number();
        let now = self.now;
        let life = self.servers[server].life;
        let Some(member) = &mut self.servers[server].member else { return };
        member.look = number;
        let (id, ttl) = (member.participant.id, member.participant.ttl());
        let lag = member.followed_until.map(|until| now.since(until));
        let slow = self.slowest_call();
        let after = self.member_dice.millis(1, slow.as_millis().max(1));
        if !self.net.from_store.contains_key(&server) {
            self.put(now + after, WorldEvent::Look { server, life, number, id, lag });
        }
        // A call that takes longer is abandoned.
        self.tell_self(server, ttl, ServerMessage::NotSeen { number });
    }

    /// Returns the maximum duration of a store call at this time.
    pub(super) fn slowest_call(&self) -> Duration {
        let slow = self.store_faults.iter().filter_map(|(_, fault)| match fault {
            FaultKind::SlowStore { most } => Some(*most),
            _ => None,
        });
        slow.max().unwrap_or(Duration::from_millis(3))
    }

    /// Executes a poll in the store.
    pub(super) fn execute_poll(
        &mut self,
        server: usize,
        life: u32,
        number: u64,
        id: ServerId,
        lag: Option<Duration>,
    ) {
        let ttl = self.servers[server].member.as_ref().map_or(Duration::ZERO, |m| m.participant.ttl());
        self.members.announce(id, lag, self.now + ttl);
        let seen =
            ClusterView { servers: self.members.there(self.now), owner: self.store.owner_seen(self.now) };
        let fails = self.store_faults.iter().find_map(|(_, fault)| match fault {
            FaultKind::CommitsFail { share } | FaultKind::CommitsUnknown { share } => Some(*share),
            _ => None,
        });
        let is_lost = fails.is_some_and(|share| self.member_dice.chance(share));
        if !is_lost && !self.net.from_store.contains_key(&server) {
            let message = ServerMessage::Seen { number, seen: Box::new(seen) };
            self.put_in(Duration::from_millis(1), WorldEvent::Server { server, life: Some(life), message });
        }
    }

    /// Handles the view of a server.
    pub(super) fn handle_view(&mut self, server: usize, number: u64, seen: ClusterView) {
        let now = self.now;
        let Some(member) = self.servers[server].member.as_mut().filter(|member| member.look == number) else {
            return;
        };
        let own = Own { stops: member.stops, follows: member.followed_until.is_some() };
        member.seen = Some((seen.clone(), now));
        let standing = member.membership.see(now, seen, own);
        self.look_again(server);
        self.drive(server, Event::Standing(standing));
    }

    /// Handles a poll that timed out.
    pub(super) fn handle_poll_timeout(&mut self, server: usize, number: u64) {
        if self.servers[server].member.as_ref().is_some_and(|member| member.look == number) {
            self.look_again(server);
        }
    }

    fn look_again(&mut self, server: usize) {
        let now = self.now;
        let Some(member) = &mut self.servers[server].member else { return };
        member.look = 0;
        let pause = member.membership.poll_delay(now);
        self.tell_self(server, pause, ServerMessage::Look);
    }

    /// Drains the leader until the end of the fault.
    pub(super) fn drain_leader(&mut self, fault: usize) {
        if let Some(owner) = self.store.owner_seen(self.now) {
            self.members.drained.insert(fault, owner.id);
            self.members.set_draining(owner.id, true);
        }
    }

    /// Ends the drain of a server by a fault.
    pub(super) fn resume_drained(&mut self, fault: usize) {
        if let Some(id) = self.members.drained.remove(&fault) {
            self.members.set_draining(id, false);
        }
    }

    /// Stops a server gracefully. If it leads and another server can take over, it announces the handover first.
    pub(super) fn stop_server(&mut self, server: usize) {
        let now = self.now;
        let is_cut = self.net.from_store.contains_key(&server);
        let Some(member) = &mut self.servers[server].member else { return };
        member.stops = true;
        let participant = member.participant;
        let leads_with_successor = member.seen.as_ref().is_some_and(|(seen, at)| {
            let age = now.since(*at);
            participant.has_successor(seen)
                && participant.ownership(seen, age) == Ownership::Mine
                && age <= participant.ttl()
        });
        let wait = match leads_with_successor {
            true if is_cut => participant.ttl(),
            true => {
                self.members.set_draining(participant.id, true);
                SEEN_BY_ALL
            }
            false => Duration::ZERO,
        };
        self.tell_self(server, wait, ServerMessage::Stop);
    }

    /// Removes the server whose process ends: all accepted inputs are decided, and its shards are released.
    pub(super) fn leave_members(&mut self, server: usize) {
        if let Some(member) = &self.servers[server].member
            && !self.net.from_store.contains_key(&server)
        {
            self.members.rows.remove(&member.participant.id);
        }
    }
}
