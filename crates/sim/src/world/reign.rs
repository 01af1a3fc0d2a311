//! A server while it owns the shards: it drives the engine as the crate's page of the engine asks.
//!
//! One commit is on its way, or some, one behind the other; the engine takes inputs for the next meanwhile. Effects
//! are released when their batch and all before it have landed; a batch that did not land ends the reign.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use engine::{Difference, Effect, Engine, Input, Join, Refusal, Reply, Report, Session, Stray, Ticket};
use model::record::Lease;
use model::{Duration, ExecutionId, Fence, Timestamp, WorkerId};

use super::agent::AgentMessage;
use super::calls::{Loaded, Verdict, Wish};
use super::client::Op;
use super::plan::Mutation;
use super::server::{Phase, ServerMessage};
use super::{Happening, World};
use crate::history::{Answer, What};

/// The longest that a driver sleeps.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// How often a server whose leadership is suspended looks at its lease.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Who is at the other end of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    worker: usize,
    id: WorkerId,
    connection: u64,
}

/// A commit on its way.
#[derive(Debug)]
struct Flight {
    call: u64,
    effects: Vec<Effect>,
    /// What became of it, while it waits for those before it.
    came: Option<Verdict>,
}

/// A request that waits for its batch.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    request: u64,
    attempt: u32,
    batch: u64,
}

/// An ownership, from the load to its end.
#[derive(Debug)]
pub(super) struct Reign {
    pub(super) engine: Engine,
    leases: Arc<[Lease]>,
    /// In their order.
    flights: VecDeque<Flight>,
    batch: u64,
    /// Inputs that it has so far.
    pub(super) taken: u32,
    pub(super) turn_wanted: bool,
    wake_at: Timestamp,
    sessions: BTreeMap<Session, Link>,
    connections: BTreeMap<u64, Session>,
    tickets: BTreeMap<Ticket, Waiting>,
    rebuild_wanted: bool,
    /// Since when its lease has not been valid.
    suspended_since: Option<Timestamp>,
    /// Whether the store is still to hear that its lost commits were dealt with; and the call by which it is told.
    reconciles: bool,
    reconciled: Option<u64>,
}

impl Reign {
    pub(super) fn new(engine: Engine, leases: Arc<[Lease]>) -> Self {
        Self {
            reconciles: engine.is_reconciling(),
            reconciled: None,
            engine,
            leases,
            flights: VecDeque::new(),
            batch: 0,
            taken: 0,
            turn_wanted: false,
            wake_at: Timestamp::MAX,
            sessions: BTreeMap::new(),
            connections: BTreeMap::new(),
            tickets: BTreeMap::new(),
            rebuild_wanted: false,
            suspended_since: None,
        }
    }
}

impl World {
    fn reign(&mut self, server: usize) -> Option<&mut Reign> {
        match &mut self.servers[server].phase {
            Phase::Reigning(reign) => Some(reign),
            _ => None,
        }
    }

    /// Whether a batch may leave: what there is when nothing is on its way, and more only for many inputs.
    fn may_flush(&self, server: usize) -> bool {
        let Phase::Reigning(reign) = &self.servers[server].phase else { return false };
        let (flights, plan) = (reign.flights.len(), &self.plan);
        flights == 0 || (flights < plan.commits_ahead && reign.taken >= plan.ahead_inputs)
    }

    /// Answers beats, and sends off the next batch if it may leave.
    pub(super) fn turn(&mut self, server: usize) {
        let leads = self.is_leading(server);
        let Some(reign) = self.reign(server) else { return };
        reign.turn_wanted = false;
        if !leads {
            return self.suspend_leadership(server);
        }
        reign.suspended_since = None;
        let grants = reign.engine.take_grants();
        self.release(server, grants);
        if self.may_flush(server) {
            self.flush(server);
        }
        self.reconcile(server);
        self.sleep(server);
    }

    /// Leadership is suspended, as in the product: sessions are closed, nothing is released, and the engine is kept for
    /// as long as a renewal may still go through.
    fn suspend_leadership(&mut self, server: usize) {
        let (now, longest) = (self.now, Duration::from_millis(self.plan.setup.shard_lease.as_millis() * 4));
        let Some(reign) = self.reign(server) else { return };
        let since = *reign.suspended_since.get_or_insert(now);
        if now.since(since) >= longest {
            self.end_reign(server, &Verdict::Unknown);
            return self.try_later(server);
        }
        let at = now + LOOK_AGAIN;
        if reign.wake_at <= now || at < reign.wake_at {
            reign.wake_at = at;
            let life = Some(self.servers[server].life);
            self.put(at, Happening::Server { server, life, message: ServerMessage::Wake });
        }
        let open = self.reign(server).map(|reign| reign.sessions.values().copied().collect::<Vec<_>>());
        for Link { worker, connection, .. } in open.unwrap_or_default() {
            self.hang_up(server, worker, connection);
            self.close_session(server, connection);
        }
    }

    /// After commits were lost: names what workers hold of them, and tells the store once that every worker was
    /// heard.
    fn reconcile(&mut self, server: usize) {
        let Some(reign) = self.reign(server) else { return };
        for Stray { held, worker } in reign.engine.take_strays() {
            self.record(What::Stray { worker, execution: held.execution });
        }
        let Some(reign) = self.reign(server) else { return };
        if !reign.reconciles || reign.reconciled.is_some() || reign.engine.is_reconciling() {
            return;
        }
        let leases = Arc::clone(&reign.leases);
        let call = self.call_store(server, Wish::TailReconciled(leases));
        if let Some(reign) = self.reign(server) {
            reign.reconciled = Some(call);
        }
    }

    fn flush(&mut self, server: usize) {
        let now = self.clocks(server);
        let early = self.plan.has(Mutation::EffectsBeforeTheCommit);
        let early_replies = self.plan.has(Mutation::RepliesBeforeTheCommit);
        let every = self.plan.look_every;
        let Some(reign) = self.reign(server) else { return };
        let mut output = reign.engine.flush(now);
        reign.batch += 1;
        reign.taken = 0;
        let look = reign.batch.is_multiple_of(every);
        let problem = look.then(|| reign.engine.check_invariants().err()).flatten();
        if let Some(problem) = problem {
            self.inconsistent(server, problem);
        }
        if self.plan.has(Mutation::RandomOrderOfEffects) {
            // The very thing that must not be done: an order that is another in each process and run.
            let order = std::collections::hash_map::RandomState::new();
            use std::hash::BuildHasher;
            output.effects.sort_by_cached_key(|effect| order.hash_one(format!("{effect:?}")));
        }
        if output.batch.is_empty() {
            return self.release_behind_all(server, output.effects);
        }
        let mut effects = output.effects;
        if early || early_replies {
            let is_early = |effect: &Effect| early || matches!(effect, Effect::Reply { .. });
            let (now, later) = effects.into_iter().partition(is_early);
            effects = later;
            self.release(server, now);
        }
        let Some(reign) = self.reign(server) else { return };
        let (leases, behind) = (Arc::clone(&reign.leases), reign.flights.back().map(|before| before.call));
        let wish = Wish::Commit { leases, batch: Box::new(output.batch), decided_at: self.now, behind };
        let call = self.call_store(server, wish);
        if let Some(reign) = self.reign(server) {
            reign.flights.push_back(Flight { call, effects, came: None });
        }
    }

    /// What changed no row may still tell of what is about to become durable.
    fn release_behind_all(&mut self, server: usize, effects: Vec<Effect>) {
        let careless = self.plan.has(Mutation::RepliesWithoutACommitAtOnce);
        match self.reign(server).and_then(|reign| reign.flights.back_mut()) {
            Some(newest) if !careless => newest.effects.extend(effects),
            _ => self.release(server, effects),
        }
    }

    /// Sees to it that the engine is called again in time.
    fn sleep(&mut self, server: usize) {
        let (now, clocks, free) = (self.now, self.clocks(server), self.may_flush(server));
        let Some(reign) = self.reign(server) else { return };
        let wall = reign.engine.believed(clocks);
        if reign.turn_wanted {
            return;
        }
        if free && !reign.engine.is_idle() {
            reign.turn_wanted = true;
            return self.tell_self(server, Duration::from_millis(1), ServerMessage::Turn);
        }
        let wakeup = reign.engine.wakeup().filter(|_| free);
        let wait = wakeup.map_or(SLEEP_MAX, |at| {
            let exact = at.since(wall);
            if at > wall { exact + Duration::from_millis(1) } else { exact }
        });
        let at = now + wait.min(SLEEP_MAX);
        if reign.wake_at <= now || at < reign.wake_at {
            reign.wake_at = at;
            let life = Some(self.servers[server].life);
            self.put(at, Happening::Server { server, life, message: ServerMessage::Wake });
        }
    }

    pub(super) fn wake(&mut self, server: usize) {
        let now = self.now;
        // An earlier one took its place.
        if self.reign(server).is_none_or(|reign| reign.wake_at > now) {
            return;
        }
        if self.is_leading(server) {
            self.input(server, Input::Tick);
        } else {
            self.turn(server);
        }
    }

    /// A commit came back.
    pub(super) fn landed(&mut self, server: usize, number: u64, verdict: &Verdict) {
        let Some(reign) = self.reign(server) else { return };
        if reign.reconciled.take_if(|call| *call == number).is_some() {
            reign.reconciles = !matches!(verdict, Verdict::TailReconciled);
            return;
        }
        let Some(flight) = reign.flights.iter_mut().find(|flight| flight.call == number) else { return };
        flight.came = Some(verdict.clone());
        while let Some((came, effects)) = self.oldest_that_came(server) {
            if !matches!(came, Verdict::Committed) {
                self.end_reign(server, &came);
                return self.try_later(server);
            }
            self.count_late_effects(server, effects.len());
            self.release(server, effects);
        }
        self.turn(server);
        if self.reign(server).is_some_and(|reign| std::mem::take(&mut reign.rebuild_wanted)) {
            self.rebuild(server);
        }
    }

    fn count_late_effects(&mut self, server: usize, effects: usize) {
        let Some(reign) = self.reign(server) else { return };
        let leases = Arc::clone(&reign.leases);
        if !self.store.holds(&leases) {
            self.stats.late_effects += effects as u64;
        }
    }

    /// The oldest commit, if it came back; after one that failed none is left, for none behind it is done.
    fn oldest_that_came(&mut self, server: usize) -> Option<(Verdict, Vec<Effect>)> {
        let careless = self.plan.has(Mutation::EffectsOfAllThatAreOnTheirWay);
        let flights = &mut self.reign(server)?.flights;
        let came = flights.front_mut()?.came.take()?;
        let mut effects = flights.pop_front()?.effects;
        if !matches!(came, Verdict::Committed) {
            flights.clear();
        } else if careless {
            effects.extend(flights.iter_mut().flat_map(|later| std::mem::take(&mut later.effects)));
        }
        Some((came, effects))
    }

    /// Lets go of the engine and of everybody who waited for it.
    pub(super) fn end_reign(&mut self, server: usize, verdict: &Verdict) {
        let Phase::Reigning(reign) = std::mem::take(&mut self.servers[server].phase) else { return };
        let unknown = matches!(verdict, Verdict::Unknown) || !reign.flights.is_empty();
        self.servers[server].tainted |= unknown || matches!(verdict, Verdict::Fenced);
        for waiting in reign.tickets.values() {
            // What came after the batch that did not land was never sent.
            let sent = waiting.batch < reign.batch;
            if sent && unknown && !self.takes_unknown_for_refused() {
                self.answer_unknown(waiting.request, waiting.attempt);
            } else {
                self.answer_loading(waiting.request, waiting.attempt);
            }
        }
        for link in reign.sessions.values() {
            self.hang_up(server, link.worker, link.connection);
        }
    }

    /// The process died: nobody is told anything but by the reset of connections.
    pub(super) fn abandon(&mut self, server: usize, reign: Reign) {
        for waiting in reign.tickets.values() {
            self.answer_unknown(waiting.request, waiting.attempt);
        }
        for link in reign.sessions.values() {
            self.hang_up(server, link.worker, link.connection);
        }
    }

    /// Gives the shards away: everything is committed, and the next owner, which is another server if there is one,
    /// need not wait.
    pub(super) fn hand_over(&mut self) {
        let Some(server) = self.store.owner(self.now) else { return };
        let Phase::Reigning(reign) = &self.servers[server].phase else { return };
        if !reign.flights.is_empty() || self.servers[server].paused {
            return;
        }
        let leases = Arc::clone(&reign.leases);
        self.end_reign(server, &Verdict::Fenced);
        let call = self.call_store(server, Wish::Release(leases));
        let this = &mut self.servers[server];
        this.lease = None;
        this.phase = Phase::Releasing { call, gives_way: true };
    }

    /// Tells the world. Stops that belong to a welcome travel within it.
    fn release(&mut self, server: usize, effects: Vec<Effect>) {
        let mut welcome: Option<(Session, AgentMessage)> = None;
        for effect in effects {
            match effect {
                Effect::Reply { ticket, reply } => self.reply(server, ticket, reply),
                Effect::Welcome { session, heartbeat_interval, .. } => {
                    self.send_welcome(server, welcome.take());
                    let message = AgentMessage::Welcome { session, heartbeat_interval, stops: Vec::new() };
                    welcome = Some((session, message));
                }
                Effect::Stop { session, execution, fence, grace, discard, .. } => {
                    let stop = Stop { execution, fence, grace, discard };
                    match &mut welcome {
                        Some((to, AgentMessage::Welcome { stops, .. })) if *to == session && discard => {
                            stops.push(stop);
                        }
                        _ => self.send(server, session, AgentMessage::Stop(stop)),
                    }
                }
                Effect::Grant { session, seq, lease, .. } => {
                    self.send(server, session, AgentMessage::Grant { seq, lease });
                }
                Effect::Assign { session, assignment, .. } => {
                    self.send_welcome(server, welcome.take());
                    self.send(server, session, AgentMessage::Assign(Arc::new(assignment)));
                }
                Effect::Ack { session, execution, fence, last, .. } => {
                    self.send(server, session, AgentMessage::Ack { execution, fence, last });
                }
            }
        }
        self.send_welcome(server, welcome);
    }

    fn send_welcome(&mut self, server: usize, welcome: Option<(Session, AgentMessage)>) {
        if let Some((session, message)) = welcome {
            self.send(server, session, message);
        }
    }

    fn send(&mut self, server: usize, session: Session, message: AgentMessage) {
        if let Some(link) = self.reign(server).and_then(|reign| reign.sessions.get(&session)).copied() {
            self.send_down(server, link.worker, link.connection, message);
        }
    }

    pub(super) fn hang_up(&mut self, server: usize, worker: usize, connection: u64) {
        self.send_down(server, worker, connection, AgentMessage::Closed);
    }

    fn reply(&mut self, server: usize, ticket: Ticket, reply: Result<Reply, Refusal>) {
        let Some(waiting) = self.reign(server).and_then(|reign| reign.tickets.remove(&ticket)) else {
            return;
        };
        let answer = match reply {
            Ok(Reply::Submitted(jobs)) => {
                jobs.first().map_or(Answer::Done, |job| Answer::Submitted { job: job.job })
            }
            Ok(Reply::Applied(applied)) => {
                applied.first().map_or(Answer::Done, |one| Answer::Applied { schedule: one.schedule })
            }
            Ok(Reply::RunStarted { run, .. }) => Answer::Started { run },
            Ok(Reply::CheckpointSaved { version }) => Answer::Saved { version },
            Ok(Reply::ElementsAdded(added)) => Answer::Added { first: added.first, count: added.count },
            Ok(_) => Answer::Done,
            Err(refusal) => Answer::Refused { code: code(&refusal).to_owned() },
        };
        self.answer(waiting.request, waiting.attempt, answer);
    }

    // What comes in.

    pub(super) fn session_of(&mut self, server: usize, connection: u64) -> Option<(Session, WorkerId)> {
        let reign = self.reign(server)?;
        let session = *reign.connections.get(&connection)?;
        Some((session, reign.sessions.get(&session)?.id))
    }

    pub(super) fn open_session(&mut self, server: usize, worker: usize, connection: u64, mut join: Join) {
        let session = Session(self.number());
        join.session = session;
        let link = Link { worker, id: join.worker, connection };
        let Some(reign) = self.reign(server) else { return };
        if reign.connections.contains_key(&connection) {
            return;
        }
        reign.sessions.insert(session, link);
        reign.connections.insert(connection, session);
        self.input(server, Input::Join(Box::new(join)));
    }

    pub(super) fn close_session(&mut self, server: usize, connection: u64) {
        let Some((session, worker)) = self.session_of(server, connection) else { return };
        if let Some(reign) = self.reign(server) {
            reign.sessions.remove(&session);
            reign.connections.remove(&connection);
        }
        self.input(server, Input::Disconnect { worker, session });
    }

    pub(super) fn report(
        &mut self,
        server: usize,
        connection: u64,
        execution: ExecutionId,
        fence: Fence,
        report: Report,
    ) {
        let Some((session, worker)) = self.session_of(server, connection) else { return };
        let told = self.perhaps_mistaken(server, execution);
        let (worker, session, execution, fence) = told.unwrap_or((worker, session, execution, fence));
        self.input(server, Input::Report { worker, session, execution, fence, report });
    }

    /// A driver that takes any report for one about the live execution of its job.
    fn perhaps_mistaken(
        &mut self,
        server: usize,
        execution: ExecutionId,
    ) -> Option<(WorkerId, Session, ExecutionId, Fence)> {
        if !self.plan.has(Mutation::StaleReportAsCurrent) {
            return None;
        }
        let (worker, newest, fence) = self.store.newest_like(execution)?;
        let mut sessions = self.reign(server)?.sessions.iter();
        let (session, _) = sessions.find(|(_, link)| link.id == worker)?;
        Some((worker, *session, newest, fence))
    }

    pub(super) fn ask(&mut self, server: usize, request: u64, attempt: u32, op: &Op) {
        let ticket = Ticket(self.number());
        if let Some(reign) = self.reign(server) {
            let batch = reign.batch;
            reign.tickets.insert(ticket, Waiting { request, attempt, batch });
        }
        let input = match op {
            Op::Task(execution, _, request) if self.plan.has(Mutation::StaleSaveAsCurrent) => {
                let current =
                    self.store.newest_like(*execution).map(|(_, execution, fence)| (execution, fence));
                current.map(|(execution, fence)| Op::Task(execution, fence, request.clone()).input(ticket))
            }
            _ => None,
        };
        self.input(server, input.unwrap_or_else(|| op.input(ticket)));
    }

    // What the harness looks at.

    /// Compares the running engine with one that is built from the rows, once the store is free.
    pub(super) fn rebuild_beside(&mut self) {
        let Some(server) = self.store.owner(self.now) else { return };
        let Some(reign) = self.reign(server) else { return };
        reign.rebuild_wanted = true;
    }

    /// Called between a commit that landed and anything else.
    fn rebuild(&mut self, server: usize) {
        let Some(reign) = self.reign(server) else { return };
        if !reign.flights.is_empty() || !reign.engine.is_idle() {
            reign.rebuild_wanted = true;
            return;
        }
        let (leases, reconciling) = (Arc::clone(&reign.leases), reign.engine.is_reconciling());
        if !self.store.holds(&leases) {
            // It hears of its last commit after another server went on from there.
            return;
        }
        let dice = self.server_dice.clone();
        let loaded = Loaded { tail_lost: reconciling, ..self.loaded_rows() };
        let engine = self.build(server, &leases, &loaded);
        // Looking changes nothing.
        self.server_dice = dice;
        let Some(reign) = self.reign(server) else { return };
        let differs = reign.engine.difference(&engine);
        let difference = match differs {
            Some(difference) => Some(differing(&difference)),
            None => engine.check_invariants().err(),
        };
        self.record(What::Rebuilt { server: u32::try_from(server).unwrap_or(u32::MAX), difference });
    }

    pub(super) fn inconsistent(&mut self, server: usize, what: String) {
        self.record(What::Inconsistent { server: u32::try_from(server).unwrap_or(u32::MAX), what });
    }
}

/// What two engines say from where they differ, with what stands before.
pub(super) fn differing(Difference { subject, here: running, there: rebuilt }: &Difference) -> String {
    let same = running.chars().zip(rebuilt.chars()).take_while(|(a, b)| a == b).count();
    let from = |line: &str| line.chars().skip(same.saturating_sub(40)).take(160).collect::<String>();
    format!("{subject}: running … {} …; rebuilt … {} …", from(running), from(rebuilt))
}

/// A stop on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stop {
    pub(super) execution: ExecutionId,
    pub(super) fence: Fence,
    pub(super) grace: Duration,
    pub(super) discard: bool,
}

/// A word for a refusal, as histories have it.
fn code(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::NotLive { .. } => "not_live",
        Refusal::Started { .. } => "started",
        Refusal::VersionMismatch { .. } => "version_mismatch",
        Refusal::KeyReused { .. } | Refusal::KeyRepeated { .. } => "key_reused",
        Refusal::RunsNotOver { .. } => "runs_not_over",
        _ => "refused",
    }
}
