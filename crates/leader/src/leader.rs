//! The phases of a server, and what outlasts them.
//!
//! ```text
//!            ┌────────────────────── failure: after a pause ──────────────────────┐
//!            v                                                                    │
//!         Standby ──> Acquiring ──> Loading ──> Leading ── handover ──> Releasing ┤
//!            ^            │                        │                              │
//!            └── owned ───┘                        └─ shutdown ──> Releasing ─> Ended
//! ```
//!
//! # Invariants
//! - What no commit carries is released only while the leadership lease is valid.
//! - Effects are released in the order of their batches, each after its commit.
//! - Every request is answered once. When leadership ends, the answer says whether the request may have happened.
//! - Leases that were acquired are renewed until they are released, or another server owns the shards.

use std::sync::Arc;

use engine::{Engine, Input, Now, View};
use model::record::Lease;
use model::{Duration, Timestamp};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::acquire::AfterRelease;
use crate::backoff::Backoff;
use crate::event::{
    Action, Answer, Call, CallId, Event, Failure, FailureKind, Notice, Readiness, Standing, Unanswered,
};
use crate::lead::Leading;
use crate::lease::LeadershipLease;
use crate::load::Loading;
use crate::requests::Requests;
use crate::standby::{Role, Standby};
use crate::suspects::Suspects;

/// The least pause between two renewals, also if the first of them failed at once.
const RENEWAL_PAUSE: Duration = Duration::from_millis(100);
/// The same for a lease that cannot run out.
const RENEWAL_PAUSE_EXCLUSIVE: Duration = Duration::from_secs(1);
/// The longest time between two turns.
pub(crate) const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The settings of a leader.
#[derive(Debug, Clone)]
pub struct Config {
    /// The engine's settings. `seed` must differ from process to process.
    pub engine: engine::Config,
    /// How many shards the store has.
    pub shards: u16,
    /// How long the ownership of the shards lasts without a renewal.
    pub lease: Duration,
    /// How many commits the store takes at a time; at least one.
    pub commits_ahead: usize,
    /// Whether no other process can open the store while this one lives.
    pub is_exclusive: bool,
    /// Whether the store keeps space to finish running work when its volume is full.
    pub has_reserve: bool,
    /// Inputs that one batch takes.
    pub batch_inputs: usize,
    /// Inputs that are worth a commit while another one is in flight.
    pub ahead_inputs: usize,
    /// Whether a standby follows the live rows; only a store with a changelog can be followed.
    pub follows: bool,
    /// Jobs, runs and the like whose rows a standby reads again with one call.
    pub reread_keys: usize,
}

impl Config {
    /// Inputs that one batch takes; the lanes hold back the rest.
    pub const BATCH_INPUTS: usize = 16_384;
    /// Inputs that are worth a commit while another one is in flight. Measured: with 2,048 the rate of jobs grew by a
    /// fifth; with none, the cost of writing a job grew by a fifth, because pages were written more often.
    pub const AHEAD_INPUTS: usize = 2_048;
    /// Jobs, runs and the like whose rows a standby reads again with one call.
    pub const REREAD_KEYS: usize = 1_024;
}

/// Decides whether this server leads, and drives the engine while it does. See the [crate] page.
#[derive(Debug)]
pub struct Leader<R> {
    pub(crate) common: Common<R>,
    pub(crate) phase: Phase,
    pub(crate) standby: Standby,
}

/// What a server is doing.
#[derive(Debug)]
pub(crate) enum Phase {
    /// It asks for the shards at this moment, if it may.
    Standby { ask_at: Timestamp },
    /// It has asked for them.
    Acquiring { call: CallId, sent_at: Timestamp },
    /// It gives them back.
    Releasing { call: CallId, next: AfterRelease },
    /// It owns them and has no engine yet.
    Loading(Box<Loading>),
    /// It leads.
    Leading(Box<Leading>),
    /// It is over, with the reason if the store cannot be trusted.
    Ended(Result<(), String>),
}

/// What outlasts phases.
#[derive(Debug)]
pub(crate) struct Common<R> {
    pub(crate) config: Config,
    pub(crate) standing: Standing,
    /// The process is to end.
    pub(crate) stops: bool,
    pub(crate) leases: Option<Arc<[Lease]>>,
    /// Until when no other server can own the shards of `leases`.
    pub(crate) lease: LeadershipLease,
    /// Whether a commit may still be in flight under `leases`: only new epochs keep it out then.
    pub(crate) tainted: bool,
    /// Whether the store had no space when it was last asked.
    pub(crate) full: bool,
    /// Until when the owner before may still renew leases of workers.
    pub(crate) former_owner_until: Timestamp,
    /// The wall time that the newest engine confirmed at its end, with the steady time of that: a leap that it refused
    /// is refused by the next engine too.
    pub(crate) confirmed: Option<Now>,
    pub(crate) requests: Requests<R>,
    pub(crate) suspects: Suspects,
    pub(crate) backoff: Backoff,
    /// Whether this standby has said what it waits for.
    pub(crate) said_standby: bool,
    renewal: Option<Renewal>,
    /// Whether the newest renewal failed: only the first failure is logged.
    renewals_fail: bool,
    /// The earliest moment of the next renewal.
    renew_after: Timestamp,
    pub(crate) shown: Readiness,
    actions: Vec<Action<R>>,
    next_call: u64,
    rng: ChaCha8Rng,
}

/// A renewal of the leadership lease that has no answer yet.
#[derive(Debug, Clone, Copy)]
struct Renewal {
    call: CallId,
    /// On the steady clock, before it was sent.
    sent_at: Timestamp,
}

impl<R> Leader<R> {
    /// A standby that asks for the shards at its first [`turn`](Self::turn).
    pub fn new(config: Config) -> Self {
        let start = Timestamp::from_micros(i64::MIN);
        let common = Common {
            standing: Standing::default(),
            stops: false,
            leases: None,
            lease: LeadershipLease::new(start, config.lease),
            tainted: false,
            full: false,
            former_owner_until: start,
            confirmed: None,
            requests: Requests::default(),
            suspects: Suspects::default(),
            backoff: Backoff::default(),
            said_standby: false,
            renewal: None,
            renewals_fail: false,
            renew_after: start,
            shown: Readiness::Loading { reason: "starting".into() },
            actions: Vec::new(),
            next_call: 0,
            rng: ChaCha8Rng::seed_from_u64(config.engine.seed),
            config,
        };
        Self { common, phase: Phase::Standby { ask_at: start }, standby: Standby::new() }
    }

    /// Takes an event. What it leads to is decided at the next [`turn`](Self::turn), which is due then.
    ///
    /// `now` is read after the event came: a lease that is granted to a worker must not count from an earlier moment
    /// than the worker's own clock does.
    pub fn handle(&mut self, now: Now, event: Event<R>) {
        match event {
            Event::Request { ticket, input, reply } => self.request(now, ticket, input, reply),
            Event::Worker(input) => self.of_worker(now, input),
            Event::Answered(call, answer) if self.common.is_renewal(call) => {
                self.renewed(now, answer.map(|_| ()));
            }
            Event::Answered(call, answer) if self.standby.waits_for(call) => {
                self.standby_answered(now, call, answer);
            }
            Event::Answered(call, answer) => self.answered(now, call, answer),
            Event::Rows(call, rows) if self.standby.waits_for(call) => {
                self.standby.rows(&mut self.common, now, call, rows);
            }
            Event::Rows(call, rows) => self.restore(now, call, rows),
            Event::Standing(standing) => self.common.standing = standing,
            Event::Stop => self.stop(now),
        }
    }

    /// Decides what is due. `drained` says whether nothing waits in the lanes, so that a server that stops
    /// has decided all that it had accepted.
    pub fn turn(&mut self, now: Now, drained: bool) {
        match &mut self.phase {
            Phase::Standby { ask_at } if self.common.stops || *ask_at <= now.steady => self.ask(now),
            Phase::Loading(_) => self.common.renew_when_due(now.steady),
            Phase::Leading(leading) => {
                self.common.renew_when_due(now.steady);
                let end = leading.turn(&mut self.common, now, drained);
                self.leads_on(now, end);
            }
            _ => {}
        }
        let role = self.role();
        self.standby.turn(&mut self.common, now, role);
    }

    /// Takes the actions that are to be carried out, in their order.
    pub fn take_actions(&mut self) -> Vec<Action<R>> {
        std::mem::take(&mut self.common.actions)
    }

    /// When the next [`turn`](Self::turn) is due if nothing happens before, on the steady clock.
    pub fn wake_at(&self, now: Now) -> Timestamp {
        let phase = self.phase_wakes_at(now);
        if self.role() == Role::Rests { phase } else { phase.min(self.standby.wake_at(now.steady)) }
    }

    fn phase_wakes_at(&self, now: Now) -> Timestamp {
        match &self.phase {
            Phase::Standby { .. } if self.common.stops => now.steady,
            Phase::Standby { ask_at } if self.common.may_ask() => *ask_at,
            Phase::Loading(_) => self.common.renewal_due(),
            Phase::Leading(leading) => leading.wake_at(&self.common, now),
            _ => now.steady + SLEEP_MAX,
        }
    }

    /// How many more inputs the next batch takes; the lanes hold back the rest. Inputs that are refused need no room.
    pub fn room(&self) -> usize {
        match &self.phase {
            Phase::Leading(leading) if !leading.is_suspended() => leading.room(&self.common),
            _ => usize::MAX,
        }
    }

    /// Whether it leads, and its own lease is valid: it may release what no commit carries.
    pub fn leads(&self, now: Timestamp) -> bool {
        matches!(self.phase, Phase::Leading(_)) && self.common.lease.is_valid(now)
    }

    /// What the standby does in this phase. It follows while another server may own the shards.
    fn role(&self) -> Role {
        let follows = self.common.config.follows && self.common.leases.is_none() && !self.common.stops;
        match &self.phase {
            Phase::Standby { .. }
            | Phase::Acquiring { .. }
            | Phase::Releasing { next: AfterRelease::AskAgain, .. }
                if follows =>
            {
                Role::Follows
            }
            Phase::Loading(loading) if loading.waits_for_standby() => Role::TakesOver,
            _ => Role::Rests,
        }
    }

    /// From which moment on, on the steady clock, the rows of [`Call::Preload`] may be passed in: a standby leaves the
    /// store time for others.
    pub fn rows_from(&self) -> Timestamp {
        self.standby.rows_from()
    }

    /// The engine that has followed another leader until now, between the end of the standby and its start as the
    /// engine of this leader. Its state must be that of the rows in the store.
    pub fn followed_engine(&self) -> Option<&Engine> {
        match &self.phase {
            Phase::Loading(loading) => loading.followed_engine(),
            _ => None,
        }
    }

    /// Its own lease.
    pub fn lease(&self) -> &LeadershipLease {
        &self.common.lease
    }

    /// The shards that it owns, as far as it knows.
    pub fn leases(&self) -> Option<&Arc<[Lease]>> {
        self.common.leases.as_ref()
    }

    /// What is shown of it.
    pub fn readiness(&self) -> &Readiness {
        &self.common.shown
    }

    /// The engine while it leads.
    pub fn engine(&self) -> Option<&Engine> {
        match &self.phase {
            Phase::Leading(leading) => Some(&leading.engine),
            _ => None,
        }
    }

    /// How many commits are in flight.
    pub fn commits_in_flight(&self) -> usize {
        match &self.phase {
            Phase::Leading(leading) => leading.commits.len(),
            _ => 0,
        }
    }

    /// What the engine shows while it leads.
    pub fn view(&self) -> Option<View> {
        self.engine().map(Engine::view)
    }

    /// Whether it is over, and why if the store cannot be trusted.
    pub fn ended(&self) -> Option<&Result<(), String>> {
        match &self.phase {
            Phase::Ended(result) => Some(result),
            _ => None,
        }
    }

    fn request(&mut self, now: Now, ticket: engine::Ticket, input: Input, reply: R) {
        match &mut self.phase {
            Phase::Leading(leading) if !leading.is_suspended() => {
                let end = leading.request(&mut self.common, now, ticket, input, reply);
                self.leads_on(now, end);
            }
            _ => self.common.reply(reply, Err(Unanswered::Loading)),
        }
    }

    fn of_worker(&mut self, now: Now, input: Input) {
        match &mut self.phase {
            Phase::Leading(leading) if !leading.is_suspended() => {
                let end = leading.of_worker(&mut self.common, now, input);
                self.leads_on(now, end);
            }
            // The worker opens another session, here or with the leader.
            _ => match input {
                Input::Join(join) => self.common.act(Action::CloseSession(join.session)),
                Input::Beat { session, .. } => self.common.act(Action::CloseSession(session)),
                _ => {}
            },
        }
    }

    fn answered(&mut self, now: Now, call: CallId, answer: Result<Answer, Failure>) {
        match &mut self.phase {
            Phase::Acquiring { call: asked, sent_at } if *asked == call => {
                let sent_at = *sent_at;
                self.acquired(now, sent_at, answer);
            }
            Phase::Releasing { call: asked, next } if *asked == call => {
                let next = *next;
                self.released(now, next, answer.map(|_| ()));
            }
            Phase::Loading(loading) if loading.call == Some(call) => self.go_on_loading(now, answer),
            Phase::Leading(leading) => {
                let end = leading.answered(&mut self.common, now, call, answer);
                self.leads_on(now, end);
            }
            _ => {}
        }
    }

    fn renewed(&mut self, now: Now, answer: Result<(), Failure>) {
        let Err(lost) = self.common.renewed(now.steady, answer) else {
            if let Phase::Leading(leading) = &mut self.phase {
                let end = leading.look_at_lease(&mut self.common, now);
                self.leads_on(now, end);
            }
            return;
        };
        match &mut self.phase {
            Phase::Leading(leading) => {
                let end = leading.deposed(&mut self.common, lost);
                self.leads_on(now, Err(end));
            }
            Phase::Loading(loading) => {
                if let Some(call) = loading.call {
                    self.common.act(Action::Abandon(call));
                }
                self.not_taken(now, lost);
            }
            _ => {}
        }
    }

    fn stop(&mut self, now: Now) {
        self.common.stops = true;
        self.common.act(Action::CloseLanes);
        match &mut self.phase {
            Phase::Leading(leading) => leading.stop(&mut self.common, now),
            Phase::Acquiring { .. } => self.common.show(Readiness::Stopping),
            Phase::Releasing { next, .. } => {
                *next = AfterRelease::Stop;
                self.common.show(Readiness::Stopping);
            }
            Phase::Loading(loading) => {
                if let Some(call) = loading.call {
                    self.common.act(Action::Abandon(call));
                }
                self.release(AfterRelease::Stop);
            }
            _ => {}
        }
    }

    /// The store cannot be trusted: the process must end.
    pub(crate) fn fail(&mut self, reason: String) {
        self.common.notice(Notice::Fatal { reason: reason.clone() });
        self.common.show(Readiness::Failed { reason: reason.clone() });
        self.phase = Phase::Ended(Err(reason));
    }
}

impl<R> Common<R> {
    /// Makes room for this number of actions.
    pub(crate) fn reserve(&mut self, actions: usize) {
        self.actions.reserve(actions);
    }

    pub(crate) fn act(&mut self, action: Action<R>) {
        self.actions.push(action);
    }

    pub(crate) fn notice(&mut self, notice: Notice) {
        self.act(Action::Notice(notice));
    }

    pub(crate) fn reply(&mut self, to: R, reply: Result<engine::Reply, Unanswered>) {
        self.act(Action::Reply { to, reply });
    }

    /// Answers all requests that wait: see [`Requests::give_up`].
    pub(crate) fn give_up_requests(&mut self, sent: u64, lost: &Unanswered) {
        for (to, told) in self.requests.give_up(sent, lost) {
            self.reply(to, Err(told));
        }
    }

    pub(crate) fn show(&mut self, readiness: Readiness) {
        // A server that stops does not become anything else.
        let is_over = self.stops && matches!(readiness, Readiness::Loading { .. });
        if self.shown != readiness && !is_over {
            self.shown = readiness.clone();
            self.act(Action::Show(readiness));
        }
    }

    pub(crate) fn call(&mut self, call: Call, timeout: Option<Duration>) -> CallId {
        self.next_call += 1;
        let id = CallId(self.next_call);
        self.act(Action::Call { id, call, timeout });
        id
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.rng.random_range(0..bound)
    }

    /// The settings of the next engine. Each has a seed of its own: under the same epoch and within the same
    /// millisecond, two engines must not make the same ids.
    pub(crate) fn engine_config(&mut self) -> engine::Config {
        engine::Config { seed: self.rng.random(), ..self.config.engine.clone() }
    }

    // The leadership lease.

    fn is_renewal(&self, call: CallId) -> bool {
        self.renewal.is_some_and(|renewal| renewal.call == call)
    }

    pub(crate) fn renewal_due(&self) -> Timestamp {
        match self.renewal {
            Some(_) => Timestamp::MAX,
            None => self.lease.renew_at().max(self.renew_after),
        }
    }

    /// Sends a renewal when it is time and none is in flight.
    fn renew_when_due(&mut self, now: Timestamp) {
        let Some(leases) = self.leases.clone().filter(|_| now >= self.renewal_due()) else { return };
        let timeout = self.lease.renewal_timeout();
        let call = self.call(Call::Renew(leases), Some(timeout));
        self.renewal = Some(Renewal { call, sent_at: now });
    }

    /// A renewal was answered. Returns the failure if the shards are lost with it.
    fn renewed(&mut self, now: Timestamp, answer: Result<(), Failure>) -> Result<(), Failure> {
        let Some(renewal) = self.renewal.take() else { return Ok(()) };
        self.renew_after = now + RENEWAL_PAUSE;
        match answer {
            Ok(()) => {
                if std::mem::take(&mut self.renewals_fail) {
                    self.notice(Notice::RenewedAgain);
                }
                self.lease.prolong(renewal.sent_at);
                Ok(())
            }
            Err(failure) if matches!(failure.kind, FailureKind::Fenced | FailureKind::Fatal) => Err(failure),
            Err(failure) => {
                if !std::mem::replace(&mut self.renewals_fail, true) {
                    self.notice(Notice::RenewalFails(failure));
                }
                if self.lease.is_exclusive() {
                    self.renew_after = now + RENEWAL_PAUSE_EXCLUSIVE;
                }
                Ok(())
            }
        }
    }

    /// Leaves the leases alone from here on.
    pub(crate) fn stop_renewing(&mut self) {
        if let Some(renewal) = self.renewal.take() {
            self.act(Action::Abandon(renewal.call));
        }
        self.renewals_fail = false;
    }

    /// Whether it may ask for the shards now.
    pub(crate) fn may_ask(&self) -> bool {
        self.stops || self.leases.is_some() || (self.standing.may_acquire && !self.standing.yields)
    }
}
