//! What a server may do with the shards, from its view of the servers that share its store.
//!
//! Each server announces itself in the store and polls the others. It passes each result to [`Membership::see`], and
//! gets its [`Standing`]: whether it may acquire the shards, and whether it must hand them over.
//! [`Participant::ownership`] returns who leads, for clients and workers that look for the leader.
//!
//! Only the leases in the store decide who leads. These rules make a takeover fast; correctness does not depend on
//! them. A server with an empty or old view does no harm.
//!
//! # Handover
//! A leader that is drained or stops first announces it in the store. It continues to lead until every server has had
//! time to see that ([`SEEN_BY_ALL`]). The standbys then send acquire requests many times a second, so that the gap
//! is short.

use model::{Duration, ServerId, Timestamp};

use crate::event::Standing;

/// Interval at which servers that share a store poll each other.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The same for a store that elects the owner. Its leases are short, and a view must not be as old as they are.
const POLL_INTERVAL_ELECTED: Duration = Duration::from_millis(200);
/// Time after its last announcement for which a server counts as present.
const TTL: Duration = Duration::from_secs(3);
/// Poll interval during a takeover or handover.
const POLL_INTERVAL_MOVING: Duration = Duration::from_millis(50);
/// Poll interval for a store that only one server can use.
const POLL_INTERVAL_ALONE: Duration = Duration::from_secs(10);
const TTL_ALONE: Duration = Duration::from_secs(60);
/// Time after which every server has seen an entry in the store.
pub const SEEN_BY_ALL: Duration = Duration::from_millis(2 * POLL_INTERVAL.as_millis());
/// Maximum age of the rows of a standby that counts as ready to take over.
const READY_LAG_MAX: Duration = Duration::from_secs(10);
/// Maximum time for which a server that would have to load all rows leaves free shards to a standby that follows
/// them.
const YIELD_MAX: Duration = Duration::from_millis(1_500);

/// One server's view of the servers of its store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterView {
    /// The servers that are present.
    pub servers: Vec<ServerView>,
    /// The owner of the shards, if any. It need not be among `servers`.
    pub owner: Option<Owner>,
}

/// A server as seen by another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerView {
    /// Id of the server; a server gets a new id at each start.
    pub id: ServerId,
    /// The server is drained: it hands over the shards and acquires none.
    pub draining: bool,
    /// Age of the newest change of live rows that the server has followed; `None` if it does not follow them.
    pub lag: Option<Duration>,
}

/// The owner of the shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Id of the owner.
    pub id: ServerId,
    /// Remaining time of its lease when it was seen.
    pub lease_left: Duration,
}

/// The owner of the shards, according to one server's view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// This server.
    Mine,
    /// Another server.
    Other {
        /// Id of the leader.
        id: ServerId,
        /// The leader renewed its lease recently, and is not about to hand over.
        is_fresh: bool,
    },
    /// No known server.
    Free,
}

/// The state of the server itself at a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Own {
    /// The server is about to stop.
    pub stops: bool,
    /// The server follows the live rows, so that it could take over immediately.
    pub follows: bool,
}

/// Who can own the shards of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Only this server can use the store.
    Single,
    /// Several servers share the store, and any of them can acquire the shards.
    Shared,
    /// Several servers share the store, and it elects the one that can acquire the shards.
    Elected,
}

/// Identity and settings of a server as a member of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Participant {
    /// Id of the server.
    pub id: ServerId,
    /// Who can own the shards of its store.
    pub sharing: Sharing,
    /// Length of the leadership lease.
    pub lease: Duration,
}

impl Participant {
    /// Returns how long this server counts as present after its last announcement. A poll that takes longer is
    /// abandoned.
    pub const fn ttl(&self) -> Duration {
        match self.sharing {
            Sharing::Single => TTL_ALONE,
            Sharing::Shared | Sharing::Elected => TTL,
        }
    }

    /// Returns who leads, according to a view of this age.
    pub fn ownership(&self, seen: &ClusterView, age: Duration) -> Ownership {
        let Some(owner) = seen.owner else { return Ownership::Free };
        if owner.id == self.id {
            return Ownership::Mine;
        }
        let left = owner.lease_left.saturating_sub(age);
        match seen.server(owner.id) {
            Some(server) if left > Duration::ZERO => Ownership::Other {
                id: owner.id,
                // A leader renews its lease after a third of its length.
                is_fresh: left.as_millis() > self.lease.as_millis() / 2 && !server.draining,
            },
            _ => Ownership::Free,
        }
    }

    /// Whether another server could take over.
    pub fn has_successor(&self, seen: &ClusterView) -> bool {
        seen.servers.iter().any(|server| self.may_take_over(server))
    }

    /// In a store that only one server can use, any other entry belongs to a process that was killed before this one
    /// started.
    fn may_take_over(&self, server: &ServerView) -> bool {
        self.sharing != Sharing::Single && server.id != self.id && !server.draining
    }
}

impl ClusterView {
    /// Returns one of the servers that are present.
    fn server(&self, id: ServerId) -> Option<&ServerView> {
        self.servers.iter().find(|server| server.id == id)
    }
}

/// Membership state of one server: its latest view and the times derived from it.
#[derive(Debug, Clone)]
pub struct Membership {
    participant: Participant,
    seen: ClusterView,
    seen_at: Option<Timestamp>,
    draining_since: Option<Timestamp>,
    free_since: Option<Timestamp>,
    standing: Standing,
}

impl Membership {
    /// Creates the state of a server without a view.
    pub fn new(participant: Participant) -> Self {
        Self {
            participant,
            seen: ClusterView::default(),
            seen_at: None,
            draining_since: None,
            free_since: None,
            standing: Standing::default(),
        }
    }

    /// Records the view at steady time `now`, and returns the rights of this server from then on.
    pub fn see(&mut self, now: Timestamp, seen: ClusterView, own: Own) -> Standing {
        let participant = self.participant;
        let draining = own.stops || seen.server(participant.id).is_some_and(|server| server.draining);
        self.draining_since = draining.then(|| self.draining_since.unwrap_or(now));
        let seen_by_all = self.draining_since.is_some_and(|since| now.since(since) >= SEEN_BY_ALL);
        let has_successor = participant.has_successor(&seen);
        let owner = seen.owner.and_then(|owner| seen.server(owner.id));
        self.free_since = owner.is_none().then(|| self.free_since.unwrap_or(now));
        let yields_still = self.free_since.is_none_or(|since| now.since(since) < YIELD_MAX);
        let is_ready = |server: &ServerView| {
            server.lag.is_some_and(|lag| lag < READY_LAG_MAX) && participant.may_take_over(server)
        };
        self.standing = Standing {
            // Without a successor, a drained leader is better than none.
            may_acquire: !draining || !has_successor,
            takeover_is_near: owner.is_some_and(|owner| owner.draining && owner.id != participant.id),
            // No other server could acquire them.
            yields: participant.sharing == Sharing::Shared
                && yields_still
                && !own.follows
                && seen.servers.iter().any(is_ready),
            hands_over: has_successor && seen_by_all,
        };
        (self.seen, self.seen_at) = (seen, Some(now));
        self.standing
    }

    /// Returns the delay until the next poll; it is short during a takeover or handover.
    pub fn poll_delay(&self, now: Timestamp) -> Duration {
        let interval = match self.participant.sharing {
            Sharing::Single => POLL_INTERVAL_ALONE,
            Sharing::Shared => POLL_INTERVAL,
            Sharing::Elected => POLL_INTERVAL_ELECTED,
        };
        let Some(seen_at) = self.seen_at else { return interval };
        let is_moving = match self.participant.ownership(&self.seen, now.since(seen_at)) {
            Ownership::Mine => self.standing.hands_over,
            Ownership::Other { is_fresh, .. } => self.standing.takeover_is_near || !is_fresh,
            Ownership::Free => true,
        };
        if is_moving { interval.min(POLL_INTERVAL_MOVING) } else { interval }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: ServerId = ServerId::from_bits(1);
    const OTHER: ServerId = ServerId::from_bits(2);
    const LEASE: Duration = Duration::from_secs(10);
    const LEFT: Duration = Duration::from_secs(9);
    const START: Timestamp = Timestamp::from_micros(0);
    const OWN: Own = Own { stops: false, follows: false };
    const PARTICIPANT: Participant = Participant { id: ME, sharing: Sharing::Shared, lease: LEASE };

    fn server(id: ServerId, draining: bool) -> ServerView {
        ServerView { id, draining, lag: None }
    }

    fn seen(servers: &[ServerView], owner: ServerId, lease_left: Duration) -> ClusterView {
        ClusterView { servers: servers.to_vec(), owner: Some(Owner { id: owner, lease_left }) }
    }

    /// D8.
    #[test]
    fn a_drained_leader_hands_over_once_all_servers_have_seen_it() {
        let mut membership = Membership::new(PARTICIPANT);
        let drained = seen(&[server(ME, true), server(OTHER, false)], ME, LEFT);
        let standing = membership.see(START, drained.clone(), OWN);
        assert_eq!(
            standing,
            Standing { may_acquire: false, takeover_is_near: false, yields: false, hands_over: false }
        );
        assert!(membership.see(START + SEEN_BY_ALL, drained, OWN).hands_over);
        let resumed = seen(&[server(ME, false), server(OTHER, false)], ME, LEFT);
        assert_eq!(membership.see(START + Duration::from_secs(2), resumed, OWN), Standing::default());
    }

    /// D8.
    #[test]
    fn a_drained_leader_continues_while_no_other_server_can_take_over() {
        let mut membership = Membership::new(PARTICIPANT);
        let all_drained = seen(&[server(ME, true), server(OTHER, true)], ME, LEFT);
        for passed in [Duration::ZERO, Duration::from_secs(9)] {
            let standing = membership.see(START + passed, all_drained.clone(), OWN);
            assert!(standing.may_acquire && !standing.hands_over);
        }
    }

    /// D8. The row of the killed server stays in the store for a minute.
    #[test]
    fn a_server_that_was_killed_earlier_is_no_successor() {
        let mut membership = Membership::new(Participant { sharing: Sharing::Single, ..PARTICIPANT });
        let drained = seen(&[server(ME, true), server(OTHER, false)], ME, LEFT);
        for passed in [Duration::ZERO, Duration::from_secs(9)] {
            let standing = membership.see(START + passed, drained.clone(), OWN);
            assert!(standing.may_acquire && !standing.hands_over);
        }
    }

    /// D8.
    #[test]
    fn a_stopping_leader_hands_over_like_a_drained_one() {
        let mut membership = Membership::new(PARTICIPANT);
        let two = seen(&[server(ME, false), server(OTHER, false)], ME, LEFT);
        let stops = Own { stops: true, ..OWN };
        assert!(!membership.see(START, two.clone(), stops).hands_over);
        assert!(membership.see(START + SEEN_BY_ALL, two, stops).hands_over);
    }

    /// D6.
    #[test]
    fn a_standby_expects_a_takeover_when_the_leader_is_drained() {
        let mut membership = Membership::new(PARTICIPANT);
        let standing =
            membership.see(START, seen(&[server(ME, false), server(OTHER, true)], OTHER, LEFT), OWN);
        assert_eq!(
            standing,
            Standing { may_acquire: true, takeover_is_near: true, yields: false, hands_over: false }
        );
    }

    /// G5. It waits [`YIELD_MAX`] for the other standby to take the shards.
    #[test]
    fn a_standby_that_is_not_ready_yields_to_a_ready_one() {
        let ready = ServerView { lag: Some(Duration::from_millis(300)), ..server(OTHER, false) };
        let yields = |membership: &mut Membership, other: ServerView, after: Duration, own: Own| {
            let seen = ClusterView { servers: vec![server(ME, false), other], owner: None };
            membership.see(START + after, seen, own).yields
        };
        let mut membership = Membership::new(PARTICIPANT);
        assert!(yields(&mut membership, ready, Duration::ZERO, OWN));
        assert!(!yields(&mut membership, server(OTHER, false), Duration::ZERO, OWN), "no standby is ready");
        let stale = ServerView { lag: Some(READY_LAG_MAX), ..ready };
        assert!(!yields(&mut membership, stale, Duration::ZERO, OWN), "the standby's rows are too old");
        assert!(!yields(&mut membership, ServerView { draining: true, ..ready }, Duration::ZERO, OWN));
        assert!(!yields(&mut membership, ready, YIELD_MAX, OWN), "the other standby does not take over");
        let follows = Own { follows: true, ..OWN };
        assert!(!yields(&mut Membership::new(PARTICIPANT), ready, Duration::ZERO, follows), "both are ready");
        let elected = Participant { sharing: Sharing::Elected, ..PARTICIPANT };
        assert!(!yields(&mut Membership::new(elected), ready, Duration::ZERO, OWN), "no other can acquire");
    }

    /// D6.
    #[test]
    fn a_leader_that_does_not_renew_its_lease_is_stale_and_then_absent() {
        let leader = |left: Duration, age: Duration| {
            PARTICIPANT.ownership(&seen(&[server(ME, false), server(OTHER, false)], OTHER, left), age)
        };
        assert_eq!(leader(LEFT, Duration::ZERO), Ownership::Other { id: OTHER, is_fresh: true });
        assert_eq!(leader(LEFT, Duration::from_secs(5)), Ownership::Other { id: OTHER, is_fresh: false });
        assert_eq!(leader(LEFT, LEFT), Ownership::Free);
        let mine = seen(&[server(ME, false)], ME, LEFT);
        assert_eq!(PARTICIPANT.ownership(&mine, Duration::ZERO), Ownership::Mine);
        assert_eq!(PARTICIPANT.ownership(&ClusterView::default(), Duration::ZERO), Ownership::Free);
    }

    /// D8. A worker that is sent to a leader that hands over would soon be redirected again.
    #[test]
    fn a_leader_that_is_drained_is_not_fresh() {
        let found = PARTICIPANT.ownership(&seen(&[server(OTHER, true)], OTHER, LEFT), Duration::ZERO);
        assert_eq!(found, Ownership::Other { id: OTHER, is_fresh: false });
    }

    #[test]
    fn a_server_polls_often_during_a_takeover() {
        let pause = |seen: ClusterView| {
            let mut membership = Membership::new(PARTICIPANT);
            membership.see(START, seen, OWN);
            membership.poll_delay(START)
        };
        let all = |draining| [server(ME, false), server(OTHER, draining)];
        assert_eq!(pause(seen(&all(false), OTHER, LEFT)), POLL_INTERVAL);
        assert_eq!(pause(seen(&all(false), ME, LEFT)), POLL_INTERVAL);
        assert_eq!(pause(seen(&all(true), OTHER, LEFT)), POLL_INTERVAL_MOVING, "the leader hands over");
        assert_eq!(
            pause(seen(&all(false), OTHER, Duration::from_secs(3))),
            POLL_INTERVAL_MOVING,
            "the leader does not renew"
        );
        assert_eq!(pause(ClusterView { servers: all(false).into(), owner: None }), POLL_INTERVAL_MOVING);
        let alone = Membership::new(Participant { sharing: Sharing::Single, ..PARTICIPANT });
        assert_eq!(alone.poll_delay(START), POLL_INTERVAL_ALONE);
    }
}
