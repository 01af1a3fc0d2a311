//! What a server may do with the shards, from what it sees of the servers that share its store.
//!
//! Each server announces itself in the store and looks at the others, again and again. A server passes what it saw to
//! [`Membership::see`], and gets its [`Standing`]: whether it may ask for the shards, and whether it is to hand them over.
//! [`ownership`] says who leads, for clients and workers that look for the leader.
//!
//! Who leads is settled by the leases in the store alone. These rules make a change quick, never right: a server that
//! saw nothing, or something old, does no harm.
//!
//! # Handing over
//! A leader that is drained or stops says so in the store first, and continues until every server has had the time to
//! see it ([`SEEN_BY_ALL`]). The others then ask for the shards many times a second, so that the gap is short.

use model::{Duration, ServerId, Timestamp};

use crate::event::Standing;

/// How often servers that share a store look at each other, and for how long one counts as there.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
const TTL: Duration = Duration::from_secs(3);
/// The interval while the shards go from one server to another.
const LOOK_INTERVAL_MOVING: Duration = Duration::from_millis(50);
/// The same for a store that only one server can use.
const LOOK_INTERVAL_ALONE: Duration = Duration::from_secs(10);
const TTL_ALONE: Duration = Duration::from_secs(60);
/// After this time every server has seen what was written into the store.
pub const SEEN_BY_ALL: Duration = Duration::from_millis(2 * LOOK_INTERVAL.as_millis());
/// A standby whose rows are older than this is not ready to take over, whatever it says.
const READY_LAG_MAX: Duration = Duration::from_secs(10);
/// For how long a server that would have to load all rows leaves free shards to a standby that would not.
const YIELD_MAX: Duration = Duration::from_millis(1_500);

/// The servers of a store as one of them saw them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sighting {
    /// The servers that are there.
    pub servers: Vec<Sighted>,
    /// The owner of the shards, if they have one. It need not be among `servers`.
    pub owner: Option<Owner>,
}

/// A server as another one saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighted {
    /// Its id; a server has another one after each start.
    pub id: ServerId,
    /// It is to hand over the shards and to take none.
    pub draining: bool,
    /// The age of the newest change that it knows of the live rows; `None` if it does not follow them.
    pub lag: Option<Duration>,
}

/// The owner of the shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Which server.
    pub id: ServerId,
    /// How long its lease lasted still when it was seen.
    pub lease_left: Duration,
}

/// Who leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// This server.
    Mine,
    /// Another server.
    Other {
        /// Which.
        id: ServerId,
        /// It renewed its lease a short while ago, and is not about to hand over.
        is_fresh: bool,
    },
    /// No server that is known.
    Free,
}

/// What a server knows of itself when it looks at the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Own {
    /// It is going to stop.
    pub stops: bool,
    /// It follows the live rows, so that it could take over at once.
    pub follows: bool,
}

/// How a server takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Participant {
    /// The server.
    pub id: ServerId,
    /// Other servers can use its store.
    pub is_shared: bool,
    /// For how long the owner of the shards holds them without a renewal.
    pub lease: Duration,
}

impl Participant {
    /// For how long this server counts as there after it announced itself. A call of the store that takes longer is
    /// given up.
    pub const fn ttl(&self) -> Duration {
        if self.is_shared { TTL } else { TTL_ALONE }
    }

    /// Says who leads, from what was seen this long ago.
    pub fn ownership(&self, seen: &Sighting, age: Duration) -> Ownership {
        let Some(owner) = seen.owner else { return Ownership::Free };
        if owner.id == self.id {
            return Ownership::Mine;
        }
        let left = owner.lease_left.saturating_sub(age);
        match seen.server(owner.id) {
            Some(server) if left > Duration::ZERO => Ownership::Other {
                id: owner.id,
                // A leader renews its lease when a third of it is over.
                is_fresh: left.as_millis() > self.lease.as_millis() / 2 && !server.draining,
            },
            _ => Ownership::Free,
        }
    }

    /// Whether another server could take the shards.
    pub fn has_successor(&self, seen: &Sighting) -> bool {
        seen.servers.iter().any(|server| self.may_take_over(server))
    }

    /// In a store that only one server can use, another one is a process that was killed before this one started.
    fn may_take_over(&self, server: &Sighted) -> bool {
        self.is_shared && server.id != self.id && !server.draining
    }
}

impl Sighting {
    /// One of the servers that are there.
    fn server(&self, id: ServerId) -> Option<&Sighted> {
        self.servers.iter().find(|server| server.id == id)
    }
}

/// The membership of one server: what it saw, and since when.
#[derive(Debug, Clone)]
pub struct Membership {
    participant: Participant,
    seen: Sighting,
    seen_at: Option<Timestamp>,
    draining_since: Option<Timestamp>,
    free_since: Option<Timestamp>,
    standing: Standing,
}

impl Membership {
    /// A server that has seen nothing yet.
    pub fn new(participant: Participant) -> Self {
        Self {
            participant,
            seen: Sighting::default(),
            seen_at: None,
            draining_since: None,
            free_since: None,
            standing: Standing::default(),
        }
    }

    /// Takes what the server saw at `now`, on the steady clock, and returns what it may do from now on.
    pub fn see(&mut self, now: Timestamp, seen: Sighting, own: Own) -> Standing {
        let participant = self.participant;
        let draining = own.stops || seen.server(participant.id).is_some_and(|server| server.draining);
        self.draining_since = draining.then(|| self.draining_since.unwrap_or(now));
        let seen_by_all = self.draining_since.is_some_and(|since| now.since(since) >= SEEN_BY_ALL);
        let has_successor = participant.has_successor(&seen);
        let owner = seen.owner.and_then(|owner| seen.server(owner.id));
        self.free_since = owner.is_none().then(|| self.free_since.unwrap_or(now));
        let yields_still = self.free_since.is_none_or(|since| now.since(since) < YIELD_MAX);
        let is_ready = |server: &Sighted| {
            server.lag.is_some_and(|lag| lag < READY_LAG_MAX) && participant.may_take_over(server)
        };
        self.standing = Standing {
            // A drained leader is better than none.
            may_acquire: !draining || !has_successor,
            takeover_is_near: owner.is_some_and(|owner| owner.draining && owner.id != participant.id),
            yields: yields_still && !own.follows && seen.servers.iter().any(is_ready),
            hands_over: has_successor && seen_by_all,
        };
        (self.seen, self.seen_at) = (seen, Some(now));
        self.standing
    }

    /// Returns the pause before the server looks at the others again: short while the shards go from one server to
    /// another.
    pub fn look_again_in(&self, now: Timestamp) -> Duration {
        let interval = if self.participant.is_shared { LOOK_INTERVAL } else { LOOK_INTERVAL_ALONE };
        let Some(seen_at) = self.seen_at else { return interval };
        let is_moving = match self.participant.ownership(&self.seen, now.since(seen_at)) {
            Ownership::Mine => self.standing.hands_over,
            Ownership::Other { is_fresh, .. } => self.standing.takeover_is_near || !is_fresh,
            Ownership::Free => true,
        };
        if is_moving { interval.min(LOOK_INTERVAL_MOVING) } else { interval }
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
    const PARTICIPANT: Participant = Participant { id: ME, is_shared: true, lease: LEASE };

    fn server(id: ServerId, draining: bool) -> Sighted {
        Sighted { id, draining, lag: None }
    }

    fn seen(servers: &[Sighted], owner: ServerId, lease_left: Duration) -> Sighting {
        Sighting { servers: servers.to_vec(), owner: Some(Owner { id: owner, lease_left }) }
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

    /// D8. Its row stays in the store for a minute.
    #[test]
    fn a_server_that_was_killed_before_this_one_started_is_no_successor() {
        let mut membership = Membership::new(Participant { is_shared: false, ..PARTICIPANT });
        let drained = seen(&[server(ME, true), server(OTHER, false)], ME, LEFT);
        for passed in [Duration::ZERO, Duration::from_secs(9)] {
            let standing = membership.see(START + passed, drained.clone(), OWN);
            assert!(standing.may_acquire && !standing.hands_over);
        }
    }

    /// D8.
    #[test]
    fn a_leader_that_stops_hands_over_as_a_drained_one() {
        let mut membership = Membership::new(PARTICIPANT);
        let two = seen(&[server(ME, false), server(OTHER, false)], ME, LEFT);
        let stops = Own { stops: true, ..OWN };
        assert!(!membership.see(START, two.clone(), stops).hands_over);
        assert!(membership.see(START + SEEN_BY_ALL, two, stops).hands_over);
    }

    /// D6.
    #[test]
    fn a_standby_hurries_when_the_leader_is_drained() {
        let mut membership = Membership::new(PARTICIPANT);
        let standing =
            membership.see(START, seen(&[server(ME, false), server(OTHER, true)], OTHER, LEFT), OWN);
        assert_eq!(
            standing,
            Standing { may_acquire: true, takeover_is_near: true, yields: false, hands_over: false }
        );
    }

    /// G5. For as long as it takes to see that the other standby does not take the shards.
    #[test]
    fn a_standby_that_is_not_ready_lets_one_go_first_that_is() {
        let ready = Sighted { lag: Some(Duration::from_millis(300)), ..server(OTHER, false) };
        let yields = |membership: &mut Membership, other: Sighted, after: Duration, own: Own| {
            let seen = Sighting { servers: vec![server(ME, false), other], owner: None };
            membership.see(START + after, seen, own).yields
        };
        let mut membership = Membership::new(PARTICIPANT);
        assert!(yields(&mut membership, ready, Duration::ZERO, OWN));
        assert!(!yields(&mut membership, server(OTHER, false), Duration::ZERO, OWN), "no standby is ready");
        let stale = Sighted { lag: Some(READY_LAG_MAX), ..ready };
        assert!(!yields(&mut membership, stale, Duration::ZERO, OWN), "its rows are too old");
        assert!(!yields(&mut membership, Sighted { draining: true, ..ready }, Duration::ZERO, OWN));
        assert!(!yields(&mut membership, ready, YIELD_MAX, OWN), "it does not take them");
        let follows = Own { follows: true, ..OWN };
        assert!(!yields(&mut Membership::new(PARTICIPANT), ready, Duration::ZERO, follows), "both are ready");
    }

    /// D6.
    #[test]
    fn a_leader_that_does_not_renew_its_lease_is_doubted_and_then_gone() {
        let leader = |left: Duration, age: Duration| {
            PARTICIPANT.ownership(&seen(&[server(ME, false), server(OTHER, false)], OTHER, left), age)
        };
        assert_eq!(leader(LEFT, Duration::ZERO), Ownership::Other { id: OTHER, is_fresh: true });
        assert_eq!(leader(LEFT, Duration::from_secs(5)), Ownership::Other { id: OTHER, is_fresh: false });
        assert_eq!(leader(LEFT, LEFT), Ownership::Free);
        let mine = seen(&[server(ME, false)], ME, LEFT);
        assert_eq!(PARTICIPANT.ownership(&mine, Duration::ZERO), Ownership::Mine);
        assert_eq!(PARTICIPANT.ownership(&Sighting::default(), Duration::ZERO), Ownership::Free);
    }

    /// D8. A worker that is sent to a server that hands over would be sent on once more.
    #[test]
    fn a_leader_that_is_drained_is_not_fresh() {
        let found = PARTICIPANT.ownership(&seen(&[server(OTHER, true)], OTHER, LEFT), Duration::ZERO);
        assert_eq!(found, Ownership::Other { id: OTHER, is_fresh: false });
    }

    #[test]
    fn a_server_looks_often_while_the_shards_move() {
        let pause = |seen: Sighting| {
            let mut membership = Membership::new(PARTICIPANT);
            membership.see(START, seen, OWN);
            membership.look_again_in(START)
        };
        let all = |draining| [server(ME, false), server(OTHER, draining)];
        assert_eq!(pause(seen(&all(false), OTHER, LEFT)), LOOK_INTERVAL);
        assert_eq!(pause(seen(&all(false), ME, LEFT)), LOOK_INTERVAL);
        assert_eq!(pause(seen(&all(true), OTHER, LEFT)), LOOK_INTERVAL_MOVING, "it hands over");
        assert_eq!(
            pause(seen(&all(false), OTHER, Duration::from_secs(3))),
            LOOK_INTERVAL_MOVING,
            "it does not renew"
        );
        assert_eq!(pause(Sighting { servers: all(false).into(), owner: None }), LOOK_INTERVAL_MOVING);
        let alone = Membership::new(Participant { is_shared: false, ..PARTICIPANT });
        assert_eq!(alone.look_again_in(START), LOOK_INTERVAL_ALONE);
    }
}
