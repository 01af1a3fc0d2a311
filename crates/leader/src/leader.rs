//! The phases of a server, and the state that outlives them.
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
//! - Effects that need no commit are released only while the leadership lease is valid.
//! - Effects are released in the order of their batches, each after its commit.
//! - Every request is answered once. When leadership ends, the answer says whether the request may have taken effect.
//! - Acquired leases are renewed until they are released, or another server owns the shards.

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

/// Minimum pause between two renewals, also after a renewal that failed immediately.
const RENEWAL_PAUSE: Duration = Duration::from_millis(100);
/// [`RENEWAL_PAUSE`] after a failed renewal of a lease that cannot expire.
const RENEWAL_PAUSE_EXCLUSIVE: Duration = Duration::from_secs(1);
/// Maximum time between two turns.
pub(crate) const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Settings of a [`Leader`].
#[derive(Debug, Clone)]
pub struct Config {
    /// Settings of the engine. `seed` must differ from process to process.
    pub engine: engine::Config,
    /// Number of shards of the store.
    pub shards: u16,
    /// Length of the leadership lease: ownership of the shards ends this long after the last renewal.
    pub lease: Duration,
    /// Maximum number of concurrent commits that the store accepts; at least 1.
    pub commits_ahead: usize,
    /// Whether no other process can open the store while this process is alive.
    pub is_exclusive: bool,
    /// Whether the store reserves space to finish running work when its volume is full.
    pub has_reserve: bool,
    /// Maximum number of inputs in a batch.
    pub batch_inputs: usize,
    /// Minimum number of inputs for which a batch is sent while another commit is pending.
    pub ahead_inputs: usize,
    /// Whether a standby follows the live rows; requires a store with a changelog.
    pub follows: bool,
    /// Maximum number of live keys (jobs, runs, …) whose rows a standby reads again with one call.
    pub reread_keys: usize,
}

impl Config {
    /// Default of [`Config::batch_inputs`]. The lanes hold back further inputs.
    pub const BATCH_INPUTS: usize = 16_384;
    /// Default of [`Config::ahead_inputs`]. Measured: with 2,048 the job rate grew by a fifth. With 0 the cost of
    /// writing a job grew by a fifth, because pages were written more often.
    pub const AHEAD_INPUTS: usize = 2_048;
    /// Default of [`Config::reread_keys`].
    pub const REREAD_KEYS: usize = 1_024;
}

/// Decides whether this server leads, and drives the engine while it does. See the [crate] page.
#[derive(Debug)]
pub struct Leader<R> {
    pub(crate) common: Common<R>,
    pub(crate) phase: Phase,
    pub(crate) standby: Standby,
}

/// The phase of a server.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Sends an acquire request at `ask_at`, if [`Common::may_ask`] allows it.
    Standby { ask_at: Timestamp },
    /// Waits for the answer to an acquire request.
    Acquiring { call: CallId, sent_at: Timestamp },
    /// Waits for the answer to a release request.
    Releasing { call: CallId, next: AfterRelease },
    /// Owns the shards and builds the engine.
    Loading(Box<Loading>),
    /// Leads.
    Leading(Box<Leading>),
    /// The leader has ended; an error is the reason why the store cannot be trusted.
    Ended(Result<(), String>),
}

/// State that outlives the phases.
#[derive(Debug)]
pub(crate) struct Common<R> {
    pub(crate) config: Config,
    pub(crate) standing: Standing,
    /// Whether the process is shutting down.
    pub(crate) stops: bool,
    pub(crate) leases: Option<Arc<[Lease]>>,
    /// Until when no other server can own the shards of `leases`.
    pub(crate) lease: LeadershipLease,
    /// Whether a commit may still be pending under `leases`: then only new epochs can fence it.
    pub(crate) tainted: bool,
    /// Whether the store had no free space at the last commit or probe.
    pub(crate) full: bool,
    /// Until when the former owner may still renew worker leases.
    pub(crate) former_owner_until: Timestamp,
    /// Wall time that the last engine confirmed at its end, with the steady time of that moment. A clock leap that it
    /// refused is refused by the next engine too.
    pub(crate) confirmed: Option<Now>,
    pub(crate) requests: Requests<R>,
    pub(crate) suspects: Suspects,
    pub(crate) backoff: Backoff,
    /// Whether this standby has logged and shown that it stands by.
    pub(crate) standby_shown: bool,
    renewal: Option<Renewal>,
    /// Whether the newest renewal failed: only the first failure is logged.
    renewals_fail: bool,
    /// Earliest time of the next renewal.
    renew_after: Timestamp,
    pub(crate) shown: Readiness,
    actions: Vec<Action<R>>,
    next_call: u64,
    rng: ChaCha8Rng,
}

/// A renewal of the leadership lease that is not answered yet.
#[derive(Debug, Clone, Copy)]
struct Renewal {
    call: CallId,
    /// Steady time before the renewal was sent.
    sent_at: Timestamp,
}

impl<R> Leader<R> {
    /// Creates a standby that sends an acquire request at its first [`turn`](Self::turn).
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
            standby_shown: false,
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

    /// Handles one event. Its consequences are decided at the next [`turn`](Self::turn), which is then due.
    ///
    /// `now` must be read after the event arrived: a worker lease must not start earlier than on the worker's own
    /// clock.
    pub fn handle(&mut self, now: Now, event: Event<R>) {
        match event {
            Event::Request { ticket, input, reply } => self.request(now, ticket, input, reply),
            Event::Worker(input) => self.worker_input(now, input),
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

    /// Takes all decisions that are due. `drained` states whether the lanes are empty, so that a server that stops
    /// has decided all accepted inputs.
    pub fn turn(&mut self, now: Now, drained: bool) {
        match &mut self.phase {
            Phase::Standby { ask_at } if self.common.stops || *ask_at <= now.steady => self.ask(now),
            Phase::Loading(_) => self.common.renew_when_due(now.steady),
            Phase::Leading(leading) => {
                self.common.renew_when_due(now.steady);
                let end = leading.turn(&mut self.common, now, drained);
                self.continue_or_end(now, end);
            }
            _ => {}
        }
        let role = self.role();
        self.standby.turn(&mut self.common, now, role);
    }

    /// Takes the pending actions, in the order in which the shell must carry them out.
    pub fn take_actions(&mut self) -> Vec<Action<R>> {
        std::mem::take(&mut self.common.actions)
    }

    /// Returns the steady time at which the next [`turn`](Self::turn) is due if no event arrives before.
    pub fn wake_at(&self, now: Now) -> Timestamp {
        let phase = self.phase_wakes_at(now);
        if self.role() == Role::Idle { phase } else { phase.min(self.standby.wake_at(now.steady)) }
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

    /// Returns how many more inputs the current batch accepts; the lanes hold back the rest. `usize::MAX`
    /// while inputs are refused.
    pub fn room(&self) -> usize {
        match &self.phase {
            Phase::Leading(leading) if !leading.is_suspended() => leading.room(&self.common),
            _ => usize::MAX,
        }
    }

    /// Whether this server leads with a valid lease, so that it may release effects that need no commit.
    pub fn leads(&self, now: Timestamp) -> bool {
        matches!(self.phase, Phase::Leading(_)) && self.common.lease.is_valid(now)
    }

    /// Returns the role of the standby in this phase: it follows while another server may own the shards.
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
            Phase::Loading(loading) if loading.waits_for_standby() => Role::TakingOver,
            _ => Role::Idle,
        }
    }

    /// Returns the steady time from which the rows of [`Call::Preload`] may be passed in. The pause leaves capacity
    /// of the store to other servers.
    pub fn rows_from(&self) -> Timestamp {
        self.standby.rows_from()
    }

    /// Returns the engine of the standby after the takeover and before its start as the engine of this leader. Its
    /// state must equal the rows in the store.
    pub fn followed_engine(&self) -> Option<&Engine> {
        match &self.phase {
            Phase::Loading(loading) => loading.followed_engine(),
            _ => None,
        }
    }

    /// Returns the leadership lease of this server.
    pub fn lease(&self) -> &LeadershipLease {
        &self.common.lease
    }

    /// Returns the leases of the shards that this server owns, as far as it knows.
    pub fn leases(&self) -> Option<&Arc<[Lease]>> {
        self.common.leases.as_ref()
    }

    /// Returns the readiness that was last shown.
    pub fn readiness(&self) -> &Readiness {
        &self.common.shown
    }

    /// Returns the engine; `None` unless this server leads.
    pub fn engine(&self) -> Option<&Engine> {
        match &self.phase {
            Phase::Leading(leading) => Some(&leading.engine),
            _ => None,
        }
    }

    /// Number of in-flight commits; 0 unless this server leads.
    pub fn commits_in_flight(&self) -> usize {
        match &self.phase {
            Phase::Leading(leading) => leading.commits.len(),
            _ => 0,
        }
    }

    /// Returns the engine's view; `None` unless this server leads.
    pub fn view(&self) -> Option<View> {
        self.engine().map(Engine::view)
    }

    /// Returns the result once the leader has ended; an error is the reason why the store cannot be trusted.
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
                self.continue_or_end(now, end);
            }
            _ => self.common.reply(reply, Err(Unanswered::Loading)),
        }
    }

    fn worker_input(&mut self, now: Now, input: Input) {
        match &mut self.phase {
            Phase::Leading(leading) if !leading.is_suspended() => {
                let end = leading.worker_input(&mut self.common, now, input);
                self.continue_or_end(now, end);
            }
            // The worker opens another session, here or with the leader.
            _ => match input {
                Input::Join(join) => self.common.act(Action::CloseSession(join.session)),
                Input::Heartbeat { session, .. } => self.common.act(Action::CloseSession(session)),
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
            Phase::Loading(loading) if loading.call == Some(call) => self.continue_loading(now, answer),
            Phase::Leading(leading) => {
                let end = leading.answered(&mut self.common, now, call, answer);
                self.continue_or_end(now, end);
            }
            _ => {}
        }
    }

    fn renewed(&mut self, now: Now, answer: Result<(), Failure>) {
        let Err(lost) = self.common.renewed(now.steady, answer) else {
            if let Phase::Leading(leading) = &mut self.phase {
                let end = leading.check_lease(&mut self.common, now);
                self.continue_or_end(now, end);
            }
            return;
        };
        match &mut self.phase {
            Phase::Leading(leading) => {
                let end = leading.shards_lost(&mut self.common, lost);
                self.continue_or_end(now, Err(end));
            }
            Phase::Loading(loading) => {
                if let Some(call) = loading.call {
                    self.common.act(Action::Abandon(call));
                }
                self.acquire_failed(now, lost);
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

    /// Ends the leader because the store cannot be trusted: the process must exit.
    pub(crate) fn fail(&mut self, reason: String) {
        self.common.notice(Notice::Fatal { reason: reason.clone() });
        self.common.show(Readiness::Failed { reason: reason.clone() });
        self.phase = Phase::Ended(Err(reason));
    }
}

impl<R> Common<R> {
    /// Reserves capacity for this number of actions.
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

    /// Answers all pending requests; see [`Requests::give_up`].
    pub(crate) fn give_up_requests(&mut self, sent: u64, lost: &Unanswered) {
        for (to, told) in self.requests.give_up(sent, lost) {
            self.reply(to, Err(told));
        }
    }

    pub(crate) fn show(&mut self, readiness: Readiness) {
        // A server that is shutting down keeps its readiness.
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

    /// Returns the settings of the next engine, with a new seed: two engines under the same epoch and within the same
    /// millisecond must not create the same ids.
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

    /// Sends a renewal when one is due and none is pending.
    fn renew_when_due(&mut self, now: Timestamp) {
        let Some(leases) = self.leases.clone().filter(|_| now >= self.renewal_due()) else { return };
        let timeout = self.lease.renewal_timeout();
        let call = self.call(Call::Renew(leases), Some(timeout));
        self.renewal = Some(Renewal { call, sent_at: now });
    }

    /// Handles the answer to a renewal. Returns the failure if it means that the shards are lost.
    fn renewed(&mut self, now: Timestamp, answer: Result<(), Failure>) -> Result<(), Failure> {
        let Some(renewal) = self.renewal.take() else { return Ok(()) };
        self.renew_after = now + RENEWAL_PAUSE;
        match answer {
            Ok(()) => {
                if std::mem::take(&mut self.renewals_fail) {
                    self.notice(Notice::RenewalRecovered);
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

    /// Stops renewing the leadership lease, and abandons a pending renewal.
    pub(crate) fn stop_renewing(&mut self) {
        if let Some(renewal) = self.renewal.take() {
            self.act(Action::Abandon(renewal.call));
        }
        self.renewals_fail = false;
    }

    /// Whether this server may acquire the shards now.
    pub(crate) fn may_ask(&self) -> bool {
        self.stops || self.leases.is_some() || (self.standing.may_acquire && !self.standing.yields)
    }
}
