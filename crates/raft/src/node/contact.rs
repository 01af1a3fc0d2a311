//! When a node may vote, and until when a leader has its lease.
//!
//! A leader has a lease of [`Timing::leader_lease`] from the start of a round that a majority has answered. Each voter of
//! the majority grants no vote for [`Timing::lease`] after it has received the request. So no other leader is elected while
//! the lease lasts. This module is the only place that permits a vote, and the only one that counts contact.
//!
//! A check before the vote is not enough: openraft handles requests one after another from a queue, so an `Append` may be
//! answered while a vote that was permitted before still waits. Therefore contact and votes exclude each other. While a
//! vote is under way, no contact counts; and a request that arrived, or a round that began, before the end of the last
//! vote never counts.
//!
//! A leader that transfers its leadership gives up its lease, and gives the target a [`Permit`]: voters then vote for the
//! target within their lease. When the leader continues instead, it *withdraws* the permit with each request that renews
//! its lease, so a majority that gives it a lease no longer honours the permit.
//!
//! # Cost
//! One uncontended mutex for each request and read.
//!
//! [`Timing::lease`]: crate::timing::Timing::lease
//! [`Timing::leader_lease`]: crate::timing::Timing::leader_lease

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::types::{Permit, Vote};

/// A leader that this node has heard.
#[derive(Debug, Clone, Copy)]
struct Heard {
    leader: Vote,
    /// When its last request arrived.
    at: Instant,
    /// Number of its last transfer that was withdrawn.
    withdrawn: u32,
}

#[derive(Debug)]
struct State {
    started: Instant,
    heard: Option<Heard>,
    leads_until: Option<Instant>,
    /// The permit that this node has given, while it transfers its leadership.
    suspended: Option<Permit>,
    /// End of the last transfer. Rounds that began before do not count.
    resumed: Option<Instant>,
    votes_under_way: u32,
    vote_ended: Option<Instant>,
}

type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// See the [module page](self).
pub(crate) struct Contact {
    state: Mutex<State>,
    lease: Duration,
    leader_lease: Duration,
    clock: Clock,
}

impl fmt::Debug for Contact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contact").field("state", &self.state).finish_non_exhaustive()
    }
}

/// A vote under way. It ends when this is dropped, which must be after openraft has handled the vote.
#[derive(Debug)]
pub(crate) struct Voting(Arc<Contact>);

impl Drop for Voting {
    fn drop(&mut self) {
        let now = (self.0.clock)();
        let mut state = self.0.state();
        state.votes_under_way -= 1;
        state.vote_ended = Some(now);
    }
}

impl Contact {
    pub(crate) fn new(lease: Duration, leader_lease: Duration) -> Arc<Self> {
        Self::with_clock(lease, leader_lease, Arc::new(Instant::now))
    }

    fn with_clock(lease: Duration, leader_lease: Duration, clock: Clock) -> Arc<Self> {
        let state = State {
            started: clock(),
            heard: None,
            leads_until: None,
            suspended: None,
            resumed: None,
            votes_under_way: 0,
            vote_ended: None,
        };
        Arc::new(Self { state: Mutex::new(state), lease, leader_lease, clock })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that openraft has accepted a request of a leader, which arrived at `received`. Returns whether the request may
    /// be answered as a success, so that the leader counts this voter.
    pub(crate) fn heard(&self, leader: &Vote, received: Instant, withdrawn: u32) -> bool {
        let mut state = self.state();
        if state.votes_under_way > 0 || state.vote_ended.is_some_and(|ended| received <= ended) {
            return false;
        }
        match &mut state.heard {
            // A delayed request of an earlier leader would bring back its permits.
            Some(heard) if heard.leader > *leader => return false,
            Some(heard) if heard.leader == *leader => {
                heard.at = heard.at.max(received);
                heard.withdrawn = heard.withdrawn.max(withdrawn);
            }
            _ => state.heard = Some(Heard { leader: *leader, at: received, withdrawn }),
        }
        true
    }

    /// Notes that a majority has answered a round that this node, as the leader, began at `sent`. Returns whether it has
    /// the lease.
    pub(crate) fn led(&self, sent: Instant) -> bool {
        let mut state = self.state();
        let is_before = |time: Option<Instant>| time.is_some_and(|time| sent <= time);
        if state.suspended.is_some()
            || state.votes_under_way > 0
            || is_before(state.vote_ended)
            || is_before(state.resumed)
        {
            return false;
        }
        let until = sent + self.leader_lease;
        state.leads_until = state.leads_until.max(Some(until));
        until > (self.clock)()
    }

    /// Begins a vote, for this node or for another. Returns `None` if no vote is allowed now.
    pub(crate) fn begin_vote(self: &Arc<Self>, permit: Option<&Permit>) -> Option<Voting> {
        let now = (self.clock)();
        let mut state = self.state();
        let leads = state.leads_until.is_some_and(|until| until > now);
        if leads || (!self.is_silent(&state, now) && !permits(&state, permit)) {
            return None;
        }
        state.votes_under_way += 1;
        state.leads_until = None;
        Some(Voting(Arc::clone(self)))
    }

    /// Returns whether this node would vote for another now.
    pub(crate) fn may_vote(&self) -> bool {
        let now = (self.clock)();
        let state = self.state();
        state.leads_until.is_none_or(|until| until <= now) && self.is_silent(&state, now)
    }

    fn is_silent(&self, state: &State, now: Instant) -> bool {
        now.saturating_duration_since(last_contact(state)) >= self.lease
    }

    /// Returns the time since a leader was heard, or since the start of the process.
    pub(crate) fn silent_for(&self) -> Duration {
        let now = (self.clock)();
        now.saturating_duration_since(last_contact(&self.state()))
    }

    /// Returns the time since the last vote ended, if there was one; zero during a vote.
    pub(crate) fn since_vote(&self) -> Option<Duration> {
        let now = (self.clock)();
        let state = self.state();
        if state.votes_under_way > 0 {
            return Some(Duration::ZERO);
        }
        state.vote_ended.map(|ended| now.saturating_duration_since(ended))
    }

    /// Returns whether this node has the lease of a leader.
    pub(crate) fn leads(&self) -> bool {
        let now = (self.clock)();
        self.state().leads_until.is_some_and(|until| until > now)
    }

    /// Returns until when this node has the lease of a leader.
    pub(crate) fn leads_until(&self) -> Option<Instant> {
        self.state().leads_until
    }

    /// Gives up the lease, and takes no new one until [`Contact::resume`]. This node honours the permit until then.
    pub(crate) fn suspend(&self, permit: Permit) {
        let mut state = self.state();
        state.suspended = Some(permit);
        state.leads_until = None;
    }

    /// Takes leases again, from rounds that begin after this call.
    pub(crate) fn resume(&self) {
        let now = (self.clock)();
        let mut state = self.state();
        state.suspended = None;
        state.resumed = Some(now);
    }

    /// Returns whether this node honours a permit.
    pub(crate) fn honours(&self, permit: &Permit) -> bool {
        permits(&self.state(), Some(permit))
    }
}

fn last_contact(state: &State) -> Instant {
    state.heard.map_or(state.started, |heard| heard.at.max(state.started))
}

/// Returns whether a permit is of the newest leader that this node knows, and not withdrawn. The leader that has given the
/// permit does not hear itself.
fn permits(state: &State, permit: Option<&Permit>) -> bool {
    let Some(permit) = permit else { return false };
    match state.heard {
        Some(heard) if heard.leader == permit.leader => permit.number > heard.withdrawn,
        Some(heard) if heard.leader > permit.leader => false,
        _ => state.suspended == Some(*permit),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::types::NodeId;

    const LEASE: Duration = Duration::from_millis(100);
    const LEADER_LEASE: Duration = Duration::from_millis(95);

    /// A clock that the test moves.
    #[derive(Clone)]
    struct Time(Arc<Mutex<Instant>>);

    impl Time {
        fn new() -> Self {
            Self(Arc::new(Mutex::new(Instant::now())))
        }

        fn now(&self) -> Instant {
            *self.0.lock().unwrap()
        }

        fn advance(&self, millis: u64) {
            *self.0.lock().unwrap() += Duration::from_millis(millis);
        }

        fn contact(&self) -> Arc<Contact> {
            let time = self.clone();
            Contact::with_clock(LEASE, LEADER_LEASE, Arc::new(move || time.now()))
        }
    }

    fn leader(term: u64) -> Vote {
        Vote::new_committed(term, NodeId(1))
    }

    #[test]
    fn no_vote_is_granted_within_the_lease_of_the_leader() {
        let time = Time::new();
        let contact = time.contact();
        assert!(contact.begin_vote(None).is_none(), "a restarted voter waits a lease");
        time.advance(100);
        assert!(contact.heard(&leader(1), time.now(), 0));
        time.advance(99);
        assert!(contact.begin_vote(None).is_none());
        time.advance(1);
        assert!(contact.begin_vote(None).is_some());
    }

    #[test]
    fn a_leader_with_a_lease_grants_no_vote() {
        let time = Time::new();
        let contact = time.contact();
        time.advance(1000);
        assert!(contact.led(time.now()));
        time.advance(94);
        assert!(contact.begin_vote(None).is_none());
        time.advance(1);
        assert!(contact.begin_vote(None).is_some());
    }

    #[test]
    fn contact_during_or_before_a_vote_does_not_count() {
        let time = Time::new();
        let contact = time.contact();
        let before = time.now();
        time.advance(100);
        let voting = contact.begin_vote(None).unwrap();
        time.advance(1);
        assert!(!contact.heard(&leader(1), time.now(), 0));
        assert!(!contact.led(time.now()));
        drop(voting);
        for time in [before, time.now()] {
            assert!(!contact.heard(&leader(1), time, 0));
            assert!(!contact.led(time));
        }
        time.advance(1);
        assert!(contact.heard(&leader(1), time.now(), 0));
    }

    #[test]
    fn a_permit_of_another_leader_or_a_withdrawn_one_is_not_honoured() {
        let time = Time::new();
        let contact = time.contact();
        time.advance(1);
        assert!(contact.heard(&leader(2), time.now(), 1));
        let permit = |term, number| Permit { leader: leader(term), number };
        assert!(contact.begin_vote(Some(&permit(2, 1))).is_none(), "withdrawn");
        assert!(contact.begin_vote(Some(&permit(1, 2))).is_none(), "of another leader");
        // A delayed request of the earlier leader does not bring its permits back.
        assert!(!contact.heard(&leader(1), time.now(), 0));
        assert!(contact.begin_vote(Some(&permit(1, 2))).is_none());
        assert!(contact.begin_vote(Some(&permit(2, 2))).is_some());
    }

    #[test]
    fn a_transfer_ends_the_lease_of_rounds_that_began_before() {
        let time = Time::new();
        let contact = time.contact();
        time.advance(1);
        let sent = time.now();
        time.advance(1);
        contact.suspend(Permit { leader: leader(1), number: 1 });
        assert!(!contact.led(sent) && !contact.leads());
        contact.resume();
        assert!(!contact.led(sent) && !contact.leads());
        time.advance(1);
        assert!(contact.led(time.now()) && contact.leads());
    }

    /// What happens to the three nodes next.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        Advance(u64),
        /// The leader of the newest or an earlier term begins a round.
        Round(usize),
        /// A request of a round arrives, is handled by the core, or its answer is judged.
        Request(usize),
        /// A node begins an election, with the newest permit or without.
        Elect(usize, bool),
        /// A vote request arrives, or is handled by the core.
        Vote(usize),
        /// A leader begins a transfer, or gives it up.
        Transfer(usize),
    }

    /// Draws a step from two bytes. Newer requests and votes are chosen more often, so that some are answered in time and
    /// some much later.
    fn step(kind: u8, value: u8) -> Step {
        let value = usize::from(value);
        match kind % 32 {
            0..=5 => Step::Advance(value as u64 % 25),
            6..=9 => Step::Round(value % 3),
            10..=22 => Step::Request(if value < 200 { value % 3 } else { value }),
            23 => Step::Elect(value % 3, value < 128),
            24..=30 => Step::Vote(if value < 200 { value % 3 } else { value }),
            _ => Step::Transfer(value % 3),
        }
    }

    /// A request of a leader to one voter, at the stages of its way.
    struct Request {
        to: usize,
        round: usize,
        received: Option<Instant>,
        accepted: Option<bool>,
    }

    struct Round {
        leader: usize,
        vote: Vote,
        sent: Instant,
        withdrawn: u32,
        answered: BTreeSet<usize>,
        ended: bool,
    }

    /// A vote of one node for a candidate. The candidate's own vote is one of them.
    struct Ballot {
        voter: usize,
        candidate: usize,
        term: u64,
        permit: Option<Permit>,
        voting: Option<Voting>,
        arrived: bool,
    }

    #[derive(Default)]
    struct Node {
        /// The vote that the core has stored.
        vote: Vote,
        leads: Option<u64>,
        transfers: u32,
        transferring: bool,
        withdrawn: u32,
    }

    /// Three nodes whose cores handle requests in any order.
    struct World {
        time: Time,
        contacts: [Arc<Contact>; 3],
        nodes: [Node; 3],
        rounds: Vec<Round>,
        requests: Vec<Request>,
        ballots: Vec<Ballot>,
        permit: Option<Permit>,
        /// Votes that each candidate has: term, candidate, voters.
        granted: Vec<(u64, usize, BTreeSet<usize>)>,
        leases: usize,
        elections: usize,
    }

    impl World {
        fn new() -> Self {
            let time = Time::new();
            Self {
                contacts: [(); 3].map(|()| time.contact()),
                time,
                nodes: Default::default(),
                rounds: Vec::new(),
                requests: Vec::new(),
                ballots: Vec::new(),
                permit: None,
                granted: Vec::new(),
                leases: 0,
                elections: 0,
            }
        }

        fn id(node: usize) -> NodeId {
            NodeId(node as u64 + 1)
        }

        fn step(&mut self, step: Step) {
            match step {
                Step::Advance(millis) => self.time.advance(millis),
                Step::Round(node) => self.begin_round(node),
                Step::Request(index) if !self.requests.is_empty() => {
                    let newest = self.requests.len() - 1;
                    self.request(newest - index % self.requests.len());
                }
                Step::Elect(node, with_permit) => self.elect(node, with_permit),
                Step::Vote(index) if !self.ballots.is_empty() => {
                    let newest = self.ballots.len() - 1;
                    self.vote(newest - index % self.ballots.len());
                }
                Step::Transfer(node) => self.transfer(node),
                Step::Request(_) | Step::Vote(_) => {}
            }
            self.check();
        }

        fn begin_round(&mut self, leader: usize) {
            let node = &self.nodes[leader];
            let Some(term) = node.leads.filter(|_| !node.transferring) else { return };
            let vote = Vote::new_committed(term, Self::id(leader));
            let (sent, withdrawn) = (self.time.now(), node.withdrawn);
            let answered = BTreeSet::from([leader]);
            self.rounds.push(Round { leader, vote, sent, withdrawn, answered, ended: false });
            let round = self.rounds.len() - 1;
            let others = (0..3).filter(|to| *to != leader);
            self.requests.extend(others.map(|to| Request { to, round, received: None, accepted: None }));
        }

        fn request(&mut self, index: usize) {
            let request = &mut self.requests[index];
            let round = &mut self.rounds[request.round];
            match (request.received, request.accepted) {
                (None, _) => request.received = Some(self.time.now()),
                (Some(_), None) => {
                    let node = &mut self.nodes[request.to];
                    let accepts = round.vote >= node.vote;
                    if accepts {
                        node.vote = round.vote;
                        node.leads = None;
                    }
                    request.accepted = Some(accepts);
                }
                (Some(received), Some(accepted)) => {
                    let counts =
                        accepted && self.contacts[request.to].heard(&round.vote, received, round.withdrawn);
                    if counts {
                        round.answered.insert(request.to);
                    }
                    let has_majority = round.answered.len() >= 2 && !round.ended;
                    if has_majority {
                        round.ended = true;
                        self.leases += usize::from(self.contacts[round.leader].led(round.sent));
                    }
                    self.requests.swap_remove(index);
                }
            }
        }

        fn elect(&mut self, candidate: usize, with_permit: bool) {
            let permit = self.permit.filter(|_| with_permit);
            let Some(voting) = self.contacts[candidate].begin_vote(permit.as_ref()) else { return };
            let ballot =
                Ballot { voter: candidate, candidate, term: 0, permit, voting: Some(voting), arrived: true };
            self.ballots.push(ballot);
        }

        fn vote(&mut self, index: usize) {
            let ballot = &mut self.ballots[index];
            let voter = ballot.voter;
            if !ballot.arrived {
                let voting = self.contacts[voter].begin_vote(ballot.permit.as_ref());
                match voting {
                    Some(voting) => (ballot.voting, ballot.arrived) = (Some(voting), true),
                    None => drop(self.ballots.swap_remove(index)),
                }
                return;
            }
            // The core handles the vote; only then it ends.
            let ballot = self.ballots.swap_remove(index);
            let node = &mut self.nodes[voter];
            if voter == ballot.candidate {
                if node.leads.is_some() {
                    return;
                }
                let term = node.vote.leader_id.term + 1;
                node.vote = Vote::new(term, Self::id(voter));
                self.granted.push((term, voter, BTreeSet::from([voter])));
                let permit = ballot.permit;
                let others = (0..3).filter(|other| *other != voter);
                self.ballots.extend(others.map(|other| Ballot {
                    voter: other,
                    candidate: voter,
                    term,
                    permit,
                    voting: None,
                    arrived: false,
                }));
            } else {
                let wanted = Vote::new(ballot.term, Self::id(ballot.candidate));
                if wanted >= node.vote {
                    node.vote = wanted;
                    node.leads = None;
                    self.count(ballot.term, ballot.candidate, voter);
                }
            }
        }

        fn count(&mut self, term: u64, candidate: usize, voter: usize) {
            let election = self.granted.iter_mut().find(|(t, c, _)| (*t, *c) == (term, candidate)).unwrap();
            election.2.insert(voter);
            let node = &mut self.nodes[candidate];
            if election.2.len() >= 2 && node.vote == Vote::new(term, Self::id(candidate)) {
                node.vote = Vote::new_committed(term, Self::id(candidate));
                *node = Node { vote: node.vote, leads: Some(term), ..Node::default() };
                self.elections += 1;
                // The safety property: no other node has a lease when a leader is elected.
                for other in (0..3).filter(|other| *other != candidate) {
                    assert!(!self.contacts[other].leads(), "{other} has the lease, {candidate} was elected");
                }
            }
        }

        fn transfer(&mut self, leader: usize) {
            let node = &mut self.nodes[leader];
            let Some(term) = node.leads else { return };
            if node.transferring {
                (node.transferring, node.withdrawn) = (false, node.transfers);
                self.contacts[leader].resume();
            } else {
                node.transfers += 1;
                node.transferring = true;
                let vote = Vote::new_committed(term, Self::id(leader));
                let permit = Permit { leader: vote, number: node.transfers };
                self.contacts[leader].suspend(permit);
                self.permit = Some(permit);
            }
        }

        fn check(&self) {
            let leading = (0..3).filter(|node| self.contacts[*node].leads()).count();
            assert!(leading <= 1, "{leading} nodes have the lease");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

        #[test]
        fn lease_and_vote_never_overlap(bytes in prop::collection::vec(any::<u8>(), 2..1200)) {
            let mut world = World::new();
            for pair in bytes.chunks_exact(2) {
                world.step(step(pair[0], pair[1]));
            }
        }
    }

    /// The property above is worth something only if its steps lead to leases, elections and transfers.
    #[test]
    fn random_steps_elect_leaders_with_leases() {
        let mut state = 1_u64;
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let (mut leases, mut elections) = (0, 0);
        for _ in 0..100 {
            let mut world = World::new();
            for _ in 0..600 {
                world.step(step(byte(), byte()));
            }
            leases += world.leases;
            elections += world.elections;
        }
        assert!(leases > 100 && elections > 200, "{leases} leases, {elections} elections");
    }
}
