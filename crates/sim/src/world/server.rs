//! Servers: processes around the product's [`Leader`], which decides when they lead and drives their engine.
//!
//! Store calls are in `calls`, connections to workers in `sessions`. This file does what the product's shell
//! does. It passes events in, carries actions out in order, and takes a turn after each event and when one is
//! due.
//!
//! A server has a *life* that changes with each start, so that messages to an earlier process, and its
//! answers, are dropped. A paused server keeps its messages and handles them when it resumes, with the clock
//! of that time.
//!
//! Beyond the product, `look_at_batch` checks the engine's own invariants and its time after batches, and
//! `note` records an engine that panics or refuses a committed row.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use engine::{Effect, Input, Join, LEAP_MAX, Now, Report, Session, Ticket};
use leader::membership::ClusterView;
use leader::{Action, Answer, Call, CallId, Event, Failure, FailureKind, Leader, Notice, Unanswered};
use model::former_lease::FormerLease;
use model::record::{Batch, Lease};
use model::worker::Health;
use model::{Duration, ExecutionId, Fence, Timestamp};

use super::calls::{Loaded, Verdict};
use super::client::Op;
use super::members::Member;
use super::plan::Mutation;
use super::sessions::{HealthMessage, Link};
use super::{World, WorldEvent};
use crate::history::What;

/// Number of keys that a standby reads again with one call; small, so that several calls are needed.
const REREAD_KEYS: usize = 40;
/// Minimum delay between two turns without an event.
const TURN_AGAIN: Duration = Duration::from_millis(1);

/// An attempt of a client request: the numbers of the request and of the attempt.
pub(super) type Asked = (u64, u32);

/// A message to a server.
#[derive(Debug, Clone)]
pub(super) enum ServerMessage {
    // From the server itself.
    Turn,
    Wake,
    Look,
    Stop,
    // From the store.
    Store { id: CallId, verdict: Verdict },
    Seen { number: u64, seen: Box<ClusterView> },
    NotSeen { number: u64 },
    // From workers.
    Hello { worker: usize, connection: u64, join: Box<Join> },
    Heartbeat { worker: usize, connection: u64, session: Session, seq: u64 },
    Report { connection: u64, execution: ExecutionId, fence: Fence, report: Box<Report> },
    Health { message: Box<HealthMessage> },
    Close { connection: u64 },
    // From clients.
    Ask { request: u64, attempt: u32, op: Arc<Op> },
}

impl ServerMessage {
    /// Whether the message comes from a client or a worker.
    fn comes_by_a_lane(&self) -> bool {
        matches!(
            self,
            Self::Hello { .. }
                | Self::Heartbeat { .. }
                | Self::Report { .. }
                | Self::Health { .. }
                | Self::Ask { .. }
        )
    }
}

/// A commit that was sent to the store.
#[derive(Debug)]
struct SentCommit {
    id: CallId,
    batch: Arc<Batch>,
    /// When it was sent first: directly after the engine decided it.
    decided_at: Timestamp,
}

/// State of a server.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) up: bool,
    pub(super) paused: bool,
    pub(super) life: u32,
    /// Messages that arrived while the server was paused, with the life that they belong to.
    inbox: Vec<(Option<u32>, ServerMessage)>,
    /// Error of its wall clock in microseconds; positive if the clock is ahead.
    pub(super) clock_error: i64,
    /// Lease of the former owner, as this process observed it.
    former: FormerLease,
    /// `None` while the process is down.
    pub(super) leader: Option<Box<Leader<Asked>>>,
    /// `None` while the process is down.
    pub(super) member: Option<Member>,
    /// Whether the server accepts no more messages of clients and workers.
    lanes_closed: bool,
    /// Requests that are not answered yet.
    asked: BTreeSet<Asked>,
    pub(super) sessions: BTreeMap<Session, Link>,
    pub(super) connections: BTreeMap<u64, Session>,
    /// Unanswered commits, oldest first.
    commits: VecDeque<SentCommit>,
    /// Commits that the store refused for lack of space; they are sent again later.
    refused: Vec<SentCommit>,
    /// When the newest commit of this server arrives at the store.
    pub(super) commit_arrives: Timestamp,
    /// Number of batches that it committed.
    batches: u64,
    /// Engine time of its newest batch.
    batched_at: Option<Timestamp>,
    /// When its engine last read the clocks.
    read_at: Timestamp,
    turn_wanted: bool,
    wake_at: Timestamp,
    pub(super) rebuild_wanted: bool,
}

impl Server {
    /// Removes and returns a commit that was answered or abandoned; `None` if the call is no commit.
    fn take_commit(&mut self, id: CallId) -> Option<SentCommit> {
        let place = self.commits.iter().position(|commit| commit.id == id)?;
        self.commits.remove(place)
    }

    /// Forgets that a batch was refused. Returns when it was decided; `None` if it was not refused.
    fn take_refused(&mut self, batch: &Arc<Batch>) -> Option<Timestamp> {
        let place = self.refused.iter().position(|commit| Arc::ptr_eq(&commit.batch, batch))?;
        Some(self.refused.swap_remove(place).decided_at)
    }
}

impl World {
    pub(super) fn start_server(&mut self, server: usize) {
        let clock_error = self.servers[server].clock_error;
        let life = self.servers[server].life + 1;
        let leader = Box::new(Leader::new(self.settings_of_leader()));
        self.servers[server] =
            Server { up: true, life, clock_error, leader: Some(leader), ..Server::default() };
        let delay = self.server_dice.millis(1, 500);
        self.servers[server].turn_wanted = true;
        self.tell_self(server, delay, ServerMessage::Turn);
        self.join_members(server);
    }

    fn settings_of_leader(&mut self) -> leader::Config {
        let engine = engine::Config {
            seed: self.server_dice.number(),
            lease: self.plan.setup.lease,
            ..engine::Config::default()
        };
        leader::Config {
            engine,
            shards: self.plan.shards,
            lease: self.plan.setup.shard_lease,
            commits_ahead: self.plan.commits_ahead,
            is_exclusive: false,
            has_reserve: self.plan.has_reserve(),
            batch_inputs: leader::Config::BATCH_INPUTS,
            ahead_inputs: self.plan.ahead_inputs,
            // Both kinds of takeover occur: with and without a standby that follows.
            follows: self.servers.len() > 1 && self.standby_dice.chance(0.8),
            reread_keys: REREAD_KEYS,
        }
    }

    pub(super) fn tell_self(&mut self, server: usize, delay: Duration, message: ServerMessage) {
        let life = Some(self.servers[server].life);
        self.put_in(delay, WorldEvent::Server { server, life, message });
    }

    /// Returns both clocks of a server; the wall clock may be wrong.
    pub(super) fn clocks(&self, server: usize) -> Now {
        let wall = self.now.as_micros().saturating_add(self.servers[server].clock_error);
        Now { wall: Timestamp::from_micros(wall), steady: self.now }
    }

    pub(super) fn handle_server_message(&mut self, server: usize, life: Option<u32>, message: ServerMessage) {
        let this = &mut self.servers[server];
        if life.is_some_and(|life| life != this.life) {
            return;
        }
        if this.paused && this.up {
            return this.inbox.push((life, message));
        }
        if !this.up || this.lanes_closed && message.comes_by_a_lane() {
            return match message {
                ServerMessage::Hello { worker, connection, .. }
                | ServerMessage::Heartbeat { worker, connection, .. } => {
                    self.close_connection(server, worker, connection)
                }
                ServerMessage::Ask { request, attempt, .. } => self.answer_loading(request, attempt),
                _ => {}
            };
        }
        match message {
            ServerMessage::Turn => self.turn(server),
            ServerMessage::Wake => self.wake(server),
            ServerMessage::Look => self.look(server),
            ServerMessage::Stop => self.drive(server, Event::Stop),
            ServerMessage::Store { id, verdict } => self.store_answers(server, id, verdict),
            ServerMessage::Seen { number, seen } => self.handle_view(server, number, *seen),
            ServerMessage::NotSeen { number } => self.handle_poll_timeout(server, number),
            ServerMessage::Hello { worker, connection, join } => {
                self.open_session(server, worker, connection, *join);
            }
            ServerMessage::Heartbeat { worker, connection, session, seq } => {
                self.beat(server, worker, connection, session, seq);
            }
            ServerMessage::Report { connection, execution, fence, report } => {
                self.report(server, connection, execution, fence, *report);
            }
            ServerMessage::Health { message } => self.health(server, *message),
            ServerMessage::Close { connection } => self.close_session(server, connection),
            ServerMessage::Ask { request, attempt, op } => self.ask(server, request, attempt, &op),
        }
    }

    /// Resumes a paused server, which then handles all messages that arrived.
    pub(super) fn resume_server(&mut self, server: usize) {
        self.servers[server].paused = false;
        for (life, message) in std::mem::take(&mut self.servers[server].inbox) {
            self.put(self.now, WorldEvent::Server { server, life, message });
        }
    }

    /// Kills a server. Its connections are reset, so waiting clients do not learn the outcome.
    pub(super) fn crash_server(&mut self, server: usize) {
        let this = &mut self.servers[server];
        let inbox = std::mem::take(&mut this.inbox);
        (this.up, this.paused, this.leader, this.member) = (false, false, None, None);
        this.life += 1;
        for (request, attempt) in std::mem::take(&mut this.asked) {
            self.answer_unknown(request, attempt);
        }
        self.close_sessions(server);
        for (_, message) in inbox {
            if let ServerMessage::Ask { request, attempt, .. } = message {
                self.answer_unknown(request, attempt);
            }
        }
    }

    // Events.

    /// Passes an event to the leader, and carries out its immediate actions.
    pub(super) fn drive(&mut self, server: usize, event: Event<Asked>) {
        let now = self.clocks(server);
        let Some(leader) = &mut self.servers[server].leader else { return };
        leader.handle(now, event);
        self.carry_out_all(server);
        self.servers[server].read_at = self.now;
        self.want_turn(server, Duration::ZERO);
    }

    fn want_turn(&mut self, server: usize, delay: Duration) {
        let this = &mut self.servers[server];
        if this.up && !std::mem::replace(&mut this.turn_wanted, true) {
            self.tell_self(server, delay, ServerMessage::Turn);
        }
    }

    fn turn(&mut self, server: usize) {
        let now = self.clocks(server);
        let this = &mut self.servers[server];
        this.turn_wanted = false;
        let Some(leader) = &mut this.leader else { return };
        leader.turn(now, true);
        self.carry_out_all(server);
        self.servers[server].read_at = self.now;
        self.end_if_over(server);
        self.sleep(server);
    }

    /// Ends the process of a server that has stopped gracefully.
    fn end_if_over(&mut self, server: usize) {
        let leader = self.servers[server].leader.as_ref();
        if leader.and_then(|leader| leader.ended()).is_some_and(Result::is_ok) {
            self.leave_members(server);
            self.crash_server(server);
        }
    }

    /// Schedules the next turn in time.
    fn sleep(&mut self, server: usize) {
        let (now, clocks) = (self.now, self.clocks(server));
        let this = &mut self.servers[server];
        let Some(leader) = this.leader.as_ref().filter(|_| !this.turn_wanted) else { return };
        let at = leader.wake_at(clocks);
        if at <= now {
            return self.want_turn(server, TURN_AGAIN);
        }
        if this.wake_at <= now || at < this.wake_at {
            this.wake_at = at;
            let life = Some(this.life);
            self.put(at, WorldEvent::Server { server, life, message: ServerMessage::Wake });
        }
    }

    fn wake(&mut self, server: usize) {
        // An earlier wake-up has replaced this one.
        if self.servers[server].wake_at <= self.now {
            self.turn(server);
        }
    }

    /// Whether the server may release effects that need no commit.
    pub(super) fn leads(&self, server: usize) -> bool {
        self.servers[server].leader.as_ref().is_some_and(|leader| leader.leads(self.now))
    }

    pub(super) fn input(&mut self, server: usize, input: Input) {
        self.stats.inputs += 1;
        self.drive(server, Event::Worker(input));
    }

    fn beat(&mut self, server: usize, worker: usize, connection: u64, session: Session, seq: u64) {
        let Some((_, id)) = self.session_of(server, connection) else {
            return self.close_connection(server, worker, connection);
        };
        self.input(server, Input::Heartbeat { worker: id, session, seq, health: Health::default() });
    }

    fn ask(&mut self, server: usize, request: u64, attempt: u32, op: &Op) {
        let ticket = Ticket(self.number());
        let input = match op {
            Op::Task(execution, _, request) if self.plan.has(Mutation::StaleCheckpointAsCurrent) => {
                let current =
                    self.store.newest_like(*execution).map(|(_, execution, fence)| (execution, fence));
                current.map(|(execution, fence)| Op::Task(execution, fence, request.clone()).input(ticket))
            }
            _ => None,
        };
        let input = input.unwrap_or_else(|| op.input(ticket));
        let reply = (request, attempt);
        self.servers[server].asked.insert(reply);
        self.stats.inputs += u64::from(self.leads(server));
        self.drive(server, Event::Request { ticket, input, reply });
    }

    fn store_answers(&mut self, server: usize, id: CallId, verdict: Verdict) {
        let this = &mut self.servers[server];
        let commit = this.take_commit(id);
        let is_commit = commit.is_some();
        if matches!(verdict, Verdict::Full) {
            this.refused.extend(commit);
        }
        for event in self.heard(server, id, is_commit, verdict) {
            self.drive(server, event);
        }
        if is_commit && std::mem::take(&mut self.servers[server].rebuild_wanted) {
            self.rebuild(server);
        }
    }

    /// Translates an answer to events of the leader.
    fn heard(&mut self, server: usize, id: CallId, is_commit: bool, verdict: Verdict) -> Vec<Event<Asked>> {
        let failed = |kind| Err(Failure { kind, message: format!("{kind:?}") });
        let answer = match verdict {
            Verdict::Acquired { leases, former: expires_at } => {
                let former = &mut self.servers[server].former;
                former.observe(expires_at, self.now);
                if leases.is_some() {
                    former.end(self.plan.setup.shard_lease);
                }
                let former_owner = former.left(self.now);
                Ok(Answer::Acquired { leases: leases.unwrap_or_default(), former_owner })
            }
            Verdict::LostTails(shards) => Ok(Answer::LostTails(shards)),
            Verdict::Rows(rows) => return vec![Event::Rows(id, rows)],
            Verdict::ChangelogEnd(place) => Ok(Answer::ChangelogEnd(place)),
            Verdict::ChangelogSince(since) => Ok(Answer::ChangelogSince(since)),
            Verdict::LiveRows(reread) => Ok(Answer::LiveRows(reread)),
            Verdict::Jobs(counts) => Ok(Answer::Jobs(counts)),
            Verdict::Loaded(loaded) => {
                let Loaded { rows, now, .. } = *loaded;
                let count = rows.len() as u64;
                let loaded = leader::Loaded { now, rows: count, quarantined: 0 };
                let answer = Event::Answered(id, Ok(Answer::Loaded(loaded)));
                return vec![Event::Rows(id, rows), answer];
            }
            Verdict::Clock(time) => Ok(Answer::Clock(time)),
            Verdict::Committed { space_low } => {
                Ok(Answer::Committed(leader::Committed { space_low, ..leader::Committed::default() }))
            }
            Verdict::Done => Ok(Answer::Done),
            Verdict::Fenced => failed(FailureKind::Fenced),
            Verdict::Full => failed(FailureKind::Full),
            Verdict::Unavailable => failed(FailureKind::Unavailable),
            Verdict::Unknown if is_commit => failed(FailureKind::OutcomeUnknown),
            Verdict::Unknown => failed(FailureKind::Unavailable),
        };
        vec![Event::Answered(id, answer)]
    }

    // Actions.

    fn carry_out_all(&mut self, server: usize) {
        loop {
            let Some(leader) = &mut self.servers[server].leader else { return };
            let actions = leader.take_actions();
            if actions.is_empty() {
                return;
            }
            let mut effects = Vec::new();
            for action in actions {
                match action {
                    Action::ToWorker(effect) => effects.push(effect),
                    action => self.carry_out(server, action, &mut effects),
                }
            }
            self.send_effects(server, effects);
        }
    }

    fn carry_out(&mut self, server: usize, action: Action<Asked>, effects: &mut Vec<Effect>) {
        match action {
            Action::Call { id, call, timeout } => self.call(server, id, call, timeout),
            // A commit behind one for which there was no space.
            Action::Abandon(id) => {
                let this = &mut self.servers[server];
                let commit = this.take_commit(id);
                this.refused.extend(commit);
            }
            Action::Reply { to: (request, attempt), reply } => {
                self.servers[server].asked.remove(&(request, attempt));
                match reply {
                    Ok(reply) => self.reply(request, attempt, Ok(reply)),
                    Err(Unanswered::Refused(refusal)) => self.reply(request, attempt, Err(refusal)),
                    Err(Unanswered::OutcomeUnknown) => self.answer_unknown(request, attempt),
                    Err(_) => self.answer_loading(request, attempt),
                }
            }
            Action::ToWorker(effect) => effects.push(effect),
            Action::CloseSession(session) => {
                self.send_effects(server, std::mem::take(effects));
                self.drop_session(server, session);
            }
            Action::CloseSessions => {
                self.send_effects(server, std::mem::take(effects));
                self.close_sessions(server);
            }
            Action::Publish { .. } => self.count_late_effects(server),
            Action::ReportStrays(strays) => {
                for stray in strays {
                    self.record(What::Stray { worker: stray.worker, execution: stray.held.execution });
                }
            }
            Action::Notice(notice) => self.note(server, notice),
            Action::ShowFollowed(until) => {
                if let Some(member) = &mut self.servers[server].member {
                    member.followed_until = until;
                }
            }
            Action::CloseLanes => self.servers[server].lanes_closed = true,
            Action::Show(_) | Action::Retire(_) => {}
        }
    }

    fn call(&mut self, server: usize, id: CallId, call: Call, timeout: Option<Duration>) {
        let behind = self.servers[server].commits.back().map(|commit| commit.id);
        let mut decided_at = self.now;
        match &call {
            Call::Commit(_, batch) => {
                match self.servers[server].take_refused(batch) {
                    Some(before) => decided_at = before,
                    None => self.look_at_batch(server, batch),
                }
                let batch = Arc::clone(batch);
                self.servers[server].commits.push_back(SentCommit { id, batch, decided_at });
            }
            Call::Clock => self.compare_followed(server),
            _ => {}
        }
        self.call_store(server, id, call, timeout, behind, decided_at);
    }

    fn note(&mut self, server: usize, notice: Notice) {
        match notice {
            Notice::Leads { .. } => {
                self.servers[server].batched_at = None;
                self.servers[server].refused.clear();
            }
            Notice::RowQuarantined(poison) => {
                self.inconsistent(server, format!("the engine refused a committed row: {poison}"));
            }
            Notice::EngineFailed(suspect) => {
                self.inconsistent(server, format!("the engine panicked while it handled {suspect:?}"));
            }
            Notice::StandbyDiscarded(why) | Notice::NotFollowed { why, .. } => {
                self.check_not_followed(server, &why);
            }
            Notice::EngineFailedOnRows => self.inconsistent(server, "the engine panicked on rows".into()),
            Notice::Fatal { reason } => self.inconsistent(server, reason),
            _ => {}
        }
    }

    fn count_late_effects(&mut self, server: usize) {
        let leases = self.servers[server].leader.as_ref().and_then(|leader| leader.leases());
        if leases.is_none_or(|leases| !self.store.holds(leases)) {
            self.stats.late_effects += 1;
        }
    }

    /// Checks an engine after a batch.
    ///
    /// Engine time advances with the steady clock. It does not advance while the wall clock is behind engine time, or
    /// while engine time is at the accepted maximum.
    fn look_at_batch(&mut self, server: usize, batch: &Batch) {
        let (clocks, every) = (self.clocks(server), self.plan.look_every);
        let this = &mut self.servers[server];
        this.batches += 1;
        let before = this.batched_at.replace(batch.now).map(|before| before + self.now.since(this.read_at));
        let Some(engine) = this.leader.as_ref().and_then(|leader| leader.engine()) else { return };
        let look = this.batches.is_multiple_of(every);
        let inconsistent = look.then(|| engine.check_invariants().err()).flatten();
        let most =
            engine.confirmed_wall_time(clocks).map_or(Timestamp::MAX, |confirmed| confirmed + LEAP_MAX);
        let least = before.map(|before| clocks.wall.min(before).min(most));
        let stands = least.filter(|least| batch.now < *least).map(|least| {
            format!("engine time is {}, {} behind the minimum", batch.now, least.since(batch.now))
        });
        for problem in [inconsistent, stands].into_iter().flatten() {
            self.inconsistent(server, problem);
        }
    }

    pub(super) fn inconsistent(&mut self, server: usize, what: String) {
        self.record(What::Inconsistent { server: u32::try_from(server).unwrap_or(u32::MAX), what });
    }

    /// Returns the shards of a server that leads.
    pub(super) fn leases_of(&self, server: usize) -> Option<Arc<[Lease]>> {
        let leader = self.servers[server].leader.as_ref()?;
        leader.engine()?;
        leader.leases().cloned()
    }
}
