//! Leadership: the engine decides, the store commits, and only then are effects released.
//!
//! ```text
//! inputs ──> engine.handle
//! at a turn: if no commit is in flight, or many inputs wait { engine.flush ──> commit, or release at once }
//! commit done ──> release its effects
//! ```
//!
//! # Suspension
//! The leadership lease may end before the store has confirmed a renewal: the store is slow, or this server is cut
//! off from it. From then on another server may lead. So this server is not ready, closes its sessions, renews no
//! worker lease (`renew_worker_leases`), and releases no effect without a commit. It keeps its engine and its in-flight commits: the next
//! successful renewal proves that no other server took the shards, and ends the suspension. A commit that succeeds
//! during a suspension is durable, so its clients are answered.
//!
//! # A full disk
//! A store with a reserve still commits, and reports that space is low. A store without a reserve refuses the commit.
//! The refused batch is held, and committed once there is space. Worker sessions and leases need no row, so running
//! tasks continue.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use engine::{
    Effect, Engine, Input, Now, Output, ScheduleRequest, ServiceRequest, Session, Ticket, WorkflowRequest,
};
use model::record::Lease;
use model::{Duration, Timestamp, WorkerId};
use mutation::{Mutation, is_on};

use crate::acquire::AfterRelease;
use crate::backoff::Cause;
use crate::commits::{Commits, InFlightCommit};
use crate::event::{
    Action, Answer, Call, CallId, Committed, Failure, FailureKind, Notice, Readiness, Retired, Unanswered,
};
use crate::leader::{Common, Leader, Phase, SLEEP_MAX};
use crate::suspects::Suspect;

/// Interval at which a full store is probed for free space.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Delay before a failed [`Call::Reconciled`] is repeated.
const RECONCILE_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Maximum time that a shutdown waits for its last commits.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum time that a handover waits for its last commits. Clients that still wait then get `OutcomeUnknown` or
/// `Loading`.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval at which a server that shuts down or hands over checks whether all inputs are decided.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum length of a suspension, in lease lengths. After it, waiting clients get `OutcomeUnknown`, and the server
/// acquires the shards again when the store is available.
const SUSPENSION_LEASES_MAX: u64 = 4;

/// State of a server that leads.
#[derive(Debug)]
pub(crate) struct Leading {
    pub(crate) engine: Box<Engine>,
    leases: Arc<[Lease]>,
    since: Timestamp,
    pub(crate) commits: Commits,
    /// Number of the batch that the engine fills now, from 1.
    batch: u64,
    /// Number of inputs in that batch so far.
    taken: usize,
    /// Engine time of the newest committed batch.
    committed: Timestamp,
    /// Whether any batch was committed since leadership began.
    has_committed: bool,
    /// Open sessions of workers.
    sessions: BTreeMap<Session, WorkerId>,
    /// Start of the suspension: since then the lease has not been certainly valid.
    suspended_since: Option<Timestamp>,
    ending: Option<Ending>,
    probe: Option<CallId>,
    probe_at: Timestamp,
    /// Whether refused commits wait for free space.
    waits_for_space: bool,
    reconciling: Reconciling,
    /// Whether the newest [`Call::Reconciled`] failed: only the first failure is logged.
    reconcile_fails: bool,
}

/// An orderly end of leadership, and the deadline for inputs that were accepted.
#[derive(Debug, Clone, Copy)]
struct Ending {
    by: Timestamp,
    hands_over: bool,
}

/// Whether the store has recorded that its lost commits were reconciled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reconciling {
    /// The store has recorded it, or had lost no commit.
    Done,
    /// The record is due at this time, if every worker has reported by then.
    Due(Timestamp),
    /// The record is being written.
    Recording(CallId),
}

/// Why leadership ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The server shuts down; everything is committed, or the deadline has passed.
    Stopped,
    /// Another server takes over; everything is committed, or the deadline has passed.
    HandedOver,
    /// The store cannot be trusted.
    Fatal(String),
    /// The engine must be rebuilt.
    Again {
        /// Whether a commit may still be pending, so that new epochs are needed.
        tainted: bool,
        /// Determines the delay before the next attempt.
        cause: Cause,
    },
}

impl<R> Leader<R> {
    /// Continues to lead, or ends leadership.
    pub(crate) fn continue_or_end(&mut self, now: Now, result: Result<(), End>) {
        if let Err(end) = result {
            self.end(now, end);
        }
    }

    fn end(&mut self, now: Now, mut end: End) {
        let common = &mut self.common;
        let asked = Phase::Standby { ask_at: now.steady };
        let Phase::Leading(leading) = std::mem::replace(&mut self.phase, asked) else { return };
        let Leading { engine, mut commits, since, probe, reconciling, .. } = *leading;
        // Before the replies: a client that repeats its request immediately is then refused, and the request is not
        // lost.
        if !matches!(end, End::Stopped | End::HandedOver) {
            common.show(Readiness::Loading { reason: "restarting the engine".into() });
        }
        // The outcome of a commit that is pending when leadership ends is unknown.
        match commits.newest().map(|newest| newest.number) {
            Some(newest) => {
                let lost = unknown_outcome();
                common.give_up_requests(newest, &lost);
                if let End::Again { tainted, .. } = &mut end {
                    *tainted = true;
                }
            }
            None => common.give_up_requests(0, &Unanswered::Loading),
        }
        common.act(Action::CloseSessions);
        let telling = match reconciling {
            Reconciling::Recording(call) => Some(call),
            _ => None,
        };
        let calls = commits.drain().filter_map(|commit| commit.call).chain(probe).chain(telling);
        calls.for_each(|call| common.act(Action::Abandon(call)));
        common.backoff.leadership_lasted(now.steady.since(since));
        let confirmed = engine.confirmed_wall_time(now).map(|wall| Now { wall, ..now });
        common.confirmed = confirmed.or(common.confirmed);
        common.act(Action::Retire(Retired::Engine(engine)));
        match end {
            End::Stopped => self.release(AfterRelease::Stop),
            End::HandedOver => self.release(AfterRelease::HandedOver),
            End::Fatal(reason) => self.fail(reason),
            End::Again { tainted, cause } => self.again(now, tainted, cause),
        }
    }
}

impl Leading {
    pub(crate) fn new<R>(
        common: &mut Common<R>,
        engine: Box<Engine>,
        leases: Arc<[Lease]>,
        now: Now,
    ) -> Self {
        let reconciling = match engine.is_reconciling() {
            true => Reconciling::Due(now.steady),
            false => Reconciling::Done,
        };
        let this = Self {
            engine,
            leases,
            since: now.steady,
            commits: Commits::default(),
            batch: 1,
            taken: 0,
            committed: now.wall,
            has_committed: false,
            sessions: BTreeMap::new(),
            suspended_since: None,
            ending: None,
            probe: None,
            probe_at: now.steady + PROBE_INTERVAL,
            waits_for_space: false,
            reconciling,
            reconcile_fails: false,
        };
        this.announce(common);
        this
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended_since.is_some()
    }

    fn announce<R>(&self, common: &mut Common<R>) {
        let readiness = match (self.ending, common.full) {
            (Some(Ending { hands_over: true, .. }), _) => {
                Readiness::Loading { reason: "handing over the shards to another server".into() }
            }
            (Some(_), _) => Readiness::Stopping,
            (None, true) => Readiness::Full,
            (None, false) => Readiness::Ready,
        };
        common.show(readiness);
    }

    // Inputs.

    pub(crate) fn room<R>(&self, common: &Common<R>) -> usize {
        common.config.batch_inputs.saturating_sub(self.taken)
    }

    pub(crate) fn request<R>(
        &mut self,
        common: &mut Common<R>,
        now: Now,
        ticket: Ticket,
        input: Input,
        reply: R,
    ) -> Result<(), End> {
        self.taken += weight(&input);
        let new_work = is_new_work(&input);
        // While refused commits wait for space, no other request can be committed either.
        if common.full && (new_work || self.waits_for_space) {
            common.reply(reply, Err(Unanswered::Full));
            return Ok(());
        }
        if common.suspects.is_blocked(&Suspect::of(&input)) {
            common.reply(reply, Err(Unanswered::Poisoned));
            return Ok(());
        }
        common.requests.wait(ticket, reply, self.batch, new_work);
        self.input(common, now, input)
    }

    pub(crate) fn worker_input<R>(
        &mut self,
        common: &mut Common<R>,
        now: Now,
        input: Input,
    ) -> Result<(), End> {
        match &input {
            Input::Heartbeat { .. } => {}
            Input::Join(join) => {
                self.taken += 1;
                self.sessions.insert(join.session, join.worker);
            }
            Input::Disconnect { session, .. } => {
                self.taken += 1;
                self.sessions.remove(session);
            }
            _ => self.taken += 1,
        }
        self.input(common, now, input)
    }

    /// Passes an input to the engine. An input that made the engine panic repeatedly is dropped.
    fn input<R>(&mut self, common: &mut Common<R>, now: Now, input: Input) -> Result<(), End> {
        let suspect = Suspect::of(&input);
        if common.suspects.is_blocked(&suspect) {
            common.notice(Notice::InputDropped(suspect));
            return Ok(());
        }
        self.guarded(common, suspect, |engine| engine.handle(now, input))
    }

    /// Calls the engine. A panic in it costs the leadership, not the process.
    fn guarded<R, T>(
        &mut self,
        common: &mut Common<R>,
        suspect: Suspect,
        call: impl FnOnce(&mut Engine) -> T,
    ) -> Result<T, End> {
        let engine = &mut *self.engine;
        catch_unwind(AssertUnwindSafe(|| call(engine))).map_err(|_| {
            common.notice(Notice::EngineFailed(suspect));
            common.suspects.count_panic(suspect);
            End::Again { tainted: false, cause: Cause::Failed }
        })
    }

    // Turns.

    pub(crate) fn turn<R>(&mut self, common: &mut Common<R>, now: Now, drained: bool) -> Result<(), End> {
        if common.standing.hands_over && self.ending.is_none() {
            self.hand_over(common, now);
        }
        self.check_lease(common, now)?;
        if let Some(since) = self.suspended_since {
            return self.stay_suspended(common, now.steady, since);
        }
        self.renew_worker_leases(common);
        if self.may_flush(common) {
            self.flush(common, now)?;
        } else {
            // The engine takes a long time without input for an outage of this server, and extends worker leases by
            // it. A slow commit is no outage.
            self.guarded(common, Suspect::Flush, |engine| engine.handle(now, Input::Tick))?;
        }
        self.reconcile(common, now.steady);
        if common.full && self.probe.is_none() && now.steady >= self.probe_at {
            self.probe = Some(common.call(Call::Probe, None));
        }
        let decided = drained && self.commits.is_empty() && self.engine.is_idle();
        match self.ending {
            // Commits that wait for space would delay the end until the volume has space again.
            Some(ending) if decided || self.waits_for_space || now.steady > ending.by => {
                Err(if ending.hands_over { End::HandedOver } else { End::Stopped })
            }
            _ => Ok(()),
        }
    }

    /// Sends the answers to heartbeats, which renew worker leases. They need no commit.
    ///
    /// Called only after [`Self::check_lease`] found the leadership lease valid: a new leader waits only for
    /// worker leases that were granted before it took over. The engine (`engine::jobs::lease`) decides which
    /// workers get a lease.
    fn renew_worker_leases<R>(&mut self, common: &mut Common<R>) {
        for grant in self.engine.take_grants() {
            common.act(Action::ToWorker(grant));
        }
    }

    /// Whether a batch may be sent: any batch while no commit is pending, and a large one while others are. No batch is sent
    /// behind a failed one, whose answer may come before those of earlier ones.
    fn may_flush<R>(&self, common: &Common<R>) -> bool {
        let config = &common.config;
        let ahead = self.commits.len() < config.commits_ahead && self.taken >= config.ahead_inputs;
        self.commits.is_empty() || (!self.waits_for_space && ahead && !self.commits.has_failed())
    }

    /// Flushes the engine, and commits the batch; or releases the effects immediately if no row changed.
    fn flush<R>(&mut self, common: &mut Common<R>, now: Now) -> Result<(), End> {
        let Output { batch, mut effects } =
            self.guarded(common, Suspect::Flush, |engine| engine.flush(now))?;
        let number = self.batch;
        self.batch += 1;
        self.taken = 0;
        if batch.is_empty() {
            let at_once = is_on(Mutation::LeaderRepliesBeforeEarlierCommits);
            match self.commits.newest_mut() {
                // The effects may depend on rows that the newest commit is about to make durable.
                Some(newest) if !at_once => newest.effects.extend(effects),
                _ => self.release(common, effects),
            }
            return Ok(());
        }
        if is_on(Mutation::LeaderReleasesBeforeCommits) {
            self.release(common, std::mem::take(&mut effects));
        } else if is_on(Mutation::LeaderRepliesBeforeCommits) {
            let is_reply = |effect: &Effect| matches!(effect, Effect::Reply { .. });
            let (replies, others) = effects.into_iter().partition(is_reply);
            effects = others;
            self.release(common, replies);
        }
        let batch = Arc::new(batch);
        let call = common.call(Call::Commit(Arc::clone(&self.leases), Arc::clone(&batch)), None);
        let (call, sent_at) = (Some(call), now.steady);
        self.commits.push(InFlightCommit { number, call, batch, effects, sent_at, answer: None });
        Ok(())
    }

    /// Releases effects: replies to clients and messages to workers.
    fn release<R>(&mut self, common: &mut Common<R>, effects: Vec<Effect>) {
        common.reserve(effects.len());
        for effect in effects {
            match effect {
                Effect::Reply { ticket, reply } => {
                    if let Some(to) = common.requests.answered(ticket) {
                        common.reply(to, reply.map_err(Unanswered::Refused));
                    }
                }
                to_worker => common.act(Action::ToWorker(to_worker)),
            }
        }
    }

    pub(crate) fn wake_at<R>(&self, common: &Common<R>, now: Now) -> Timestamp {
        let renewal = common.renewal_due().max(now.steady);
        if let Some(since) = self.suspended_since {
            return renewal.min(self.give_up_at(common, since));
        }
        let may_flush = self.may_flush(common);
        if may_flush && !self.engine.is_idle() {
            return now.steady;
        }
        let mut at = (now.steady + SLEEP_MAX).min(renewal).min(common.lease.valid_until());
        if may_flush && let Some(wakeup) = self.engine.wakeup() {
            let left =
                wakeup.as_micros().saturating_sub(self.engine.accepted_wall_time(now).as_micros()).max(0);
            at = at.min(Timestamp::from_micros(now.steady.as_micros().saturating_add(left)));
        }
        if common.full && self.probe.is_none() {
            at = at.min(self.probe_at);
        }
        if self.ending.is_some() && self.commits.is_empty() {
            at = at.min(now.steady + STOP_POLL_INTERVAL);
        }
        at
    }

    // The leader's own lease.

    /// Suspends leadership when the lease has ended, and resumes it when the lease is valid again.
    pub(crate) fn check_lease<R>(&mut self, common: &mut Common<R>, now: Now) -> Result<(), End> {
        match (common.lease.is_valid(now.steady), self.suspended_since) {
            (false, None) => return self.suspend(common, now),
            (true, Some(since)) => {
                self.suspended_since = None;
                common.notice(Notice::Resumed { after: now.steady.since(since) });
                self.announce(common);
            }
            _ => {}
        }
        Ok(())
    }

    fn suspend<R>(&mut self, common: &mut Common<R>, now: Now) -> Result<(), End> {
        self.suspended_since = Some(now.steady);
        common.notice(Notice::Suspended);
        // Calls beside the commits would occupy a database session while the store hangs.
        if let Some(probe) = self.probe.take() {
            common.act(Action::Abandon(probe));
        }
        if let Reconciling::Recording(call) = self.reconciling {
            common.act(Action::Abandon(call));
            self.reconciling = Reconciling::Due(now.steady);
        }
        if self.ending.is_none() {
            common.show(Readiness::Suspended);
        }
        common.act(Action::CloseSessions);
        let closed = std::mem::take(&mut self.sessions).into_iter();
        closed
            .map(|(session, worker)| Input::Disconnect { worker, session })
            .try_for_each(|input| self.input(common, now, input))
    }

    fn stay_suspended<R>(
        &mut self,
        common: &mut Common<R>,
        now: Timestamp,
        since: Timestamp,
    ) -> Result<(), End> {
        // A server that shuts down or hands over waits for its commits only.
        let waits_for_nothing = self.ending.is_some() && self.commits.is_empty();
        if !waits_for_nothing && now < self.give_up_at(common, since) {
            return Ok(());
        }
        common.notice(Notice::SuspensionTimedOut);
        Err(match self.ending {
            None => End::Again { tainted: true, cause: Cause::Away },
            Some(Ending { hands_over: true, .. }) => End::HandedOver,
            Some(_) => End::Stopped,
        })
    }

    fn give_up_at<R>(&self, common: &Common<R>, since: Timestamp) -> Timestamp {
        let longest = since + Duration::from_millis(common.config.lease.as_millis() * SUSPENSION_LEASES_MAX);
        self.ending.map_or(longest, |ending| longest.min(ending.by))
    }

    /// Ends leadership after a renewal reported that the shards are lost.
    pub(crate) fn shards_lost<R>(&self, common: &mut Common<R>, failure: Failure) -> End {
        if failure.kind == FailureKind::Fatal {
            return End::Fatal(failure.message);
        }
        let cause = self.cause_of(&failure);
        common.notice(Notice::ShardsLost(failure));
        End::Again { tainted: true, cause }
    }

    // Answers of the store.

    pub(crate) fn answered<R>(
        &mut self,
        common: &mut Common<R>,
        now: Now,
        call: CallId,
        answer: Result<Answer, Failure>,
    ) -> Result<(), End> {
        if self.probe == Some(call) {
            self.probed(common, now.steady, answer.is_ok());
        } else if self.reconciling == Reconciling::Recording(call) {
            self.reconciling = match answer {
                Ok(_) => Reconciling::Done,
                Err(failure) => {
                    if !std::mem::replace(&mut self.reconcile_fails, true) {
                        common.notice(Notice::ReconcileFails(failure));
                    }
                    Reconciling::Due(now.steady + RECONCILE_RETRY_DELAY)
                }
            };
        } else {
            let answer = answer.map(|answer| match answer {
                Answer::Committed(committed) => committed,
                _ => Committed::default(),
            });
            if self.commits.answered(call, answer) {
                return self.commits_answered(common, now);
            }
        }
        Ok(())
    }

    fn commits_answered<R>(&mut self, common: &mut Common<R>, now: Now) -> Result<(), End> {
        while let Some((commit, answer)) = self.commits.pop_answered() {
            match answer {
                Ok(committed) => self.committed(common, now, commit, committed)?,
                Err(_) if is_on(Mutation::LeaderContinuesAfterFailedCommits) => {
                    self.release(common, commit.effects);
                }
                Err(failure) if failure.kind == FailureKind::Full && !common.config.has_reserve => {
                    if !is_on(Mutation::LeaderForgetsRefusedBatches) {
                        self.commits.put_back(commit);
                    }
                    self.wait_for_space(common, now.steady);
                }
                Err(failure) => return Err(self.lost(common, &commit, failure)),
            }
        }
        Ok(())
    }

    fn committed<R>(
        &mut self,
        common: &mut Common<R>,
        now: Now,
        commit: InFlightCommit,
        committed: Committed,
    ) -> Result<(), End> {
        self.has_committed = true;
        if committed.prolonged {
            common.lease.prolong(commit.sent_at);
        }
        // The answer may have arrived after the end of the lease: then messages to workers are not released.
        let looked = self.check_lease(common, now);
        let before = std::mem::replace(&mut self.committed, commit.batch.now);
        self.release(common, commit.effects);
        if is_on(Mutation::LeaderReleasesAllInFlightCommits) {
            let later: Vec<_> =
                self.commits.iter_mut().flat_map(|later| std::mem::take(&mut later.effects)).collect();
            self.release(common, later);
        }
        let InFlightCommit { batch, sent_at, .. } = commit;
        common.act(Action::Publish { batch, committed, sent_at, before });
        if committed.space_low {
            self.space_is_low(common, now.steady);
        }
        looked
    }

    /// Handles a failed commit. The batches behind it fail too: the engine's state is not durable, and the engine is
    /// dropped.
    fn lost<R>(&mut self, common: &mut Common<R>, commit: &InFlightCommit, failure: Failure) -> End {
        use FailureKind::{Fenced, Full, TooNew, Unavailable};
        let is_unknown = !matches!(failure.kind, Fenced | Full | Unavailable | TooNew);
        let told = match failure.kind {
            Full => Unanswered::Full,
            _ if is_unknown => unknown_outcome(),
            _ => Unanswered::Loading,
        };
        // The store executes no commit behind a failed one.
        let mut newest = commit.number;
        for behind in self.commits.drain() {
            newest = behind.number;
            behind.call.into_iter().for_each(|call| common.act(Action::Abandon(call)));
        }
        common.show(Readiness::Loading { reason: "restarting the engine".into() });
        common.give_up_requests(newest, &told);
        if failure.kind == FailureKind::Fatal {
            return End::Fatal(failure.message);
        }
        common.full |= failure.kind == Full;
        let tainted = is_unknown || failure.kind == Fenced;
        let cause = self.cause_of(&failure);
        common.notice(Notice::CommitFailed(failure));
        End::Again { tainted, cause }
    }

    /// Returns the cause that sets the delay. A store that accepted commits before is probably away. One that never
    /// accepted any would only have all rows loaded again and again.
    fn cause_of(&self, failure: &Failure) -> Cause {
        use FailureKind::{Fenced, OutcomeUnknown, Unavailable};
        match failure.kind {
            Unavailable | OutcomeUnknown | Fenced if self.has_committed => Cause::Away,
            _ => Cause::Failed,
        }
    }

    // A full disk.

    /// Holds the in-flight commits, of which the store did nothing, until there is free space.
    ///
    /// The engine is not dropped: workers would have to open their sessions again, which needs rows, and their leases
    /// would end.
    fn wait_for_space<R>(&mut self, common: &mut Common<R>, now: Timestamp) {
        self.space_is_low(common, now);
        self.waits_for_space = true;
        for commit in self.commits.iter_mut() {
            commit.answer = None;
            if let Some(call) = commit.call.take() {
                common.act(Action::Abandon(call));
            }
        }
        // The outcome is open: this server may end before there is space.
        common.give_up_requests(u64::MAX, &unknown_outcome());
    }

    /// Handles low space: the store commits in its reserve, or has none. From then on no new work is accepted or
    /// started.
    fn space_is_low<R>(&mut self, common: &mut Common<R>, now: Timestamp) {
        if !common.full {
            common.full = true;
            common.notice(Notice::SpaceLow);
            self.probe_at = now + PROBE_INTERVAL;
            self.engine.hold_new_work(true);
            if !self.is_suspended() {
                self.announce(common);
            }
        }
    }

    fn probed<R>(&mut self, common: &mut Common<R>, now: Timestamp, healed: bool) {
        self.probe = None;
        self.probe_at = now + PROBE_INTERVAL;
        if !healed {
            return;
        }
        common.full = false;
        common.notice(Notice::SpaceRecovered);
        self.engine.hold_new_work(false);
        self.announce(common);
        if std::mem::take(&mut self.waits_for_space) {
            for commit in self.commits.iter_mut() {
                let call = Call::Commit(Arc::clone(&self.leases), Arc::clone(&commit.batch));
                (commit.call, commit.sent_at) = (Some(common.call(call, None)), now);
            }
        }
    }

    // The end, and lost commits.

    /// Starts the shutdown. Accepts nothing new; inputs that wait in the lanes are still decided.
    pub(crate) fn stop<R>(&mut self, common: &mut Common<R>, now: Now) {
        self.ending = Some(Ending { by: now.steady + STOP_TIMEOUT, hands_over: false });
        self.announce(common);
    }

    /// Starts the handover. Accepts no new requests; inputs that wait in the lanes are still decided. The lanes stay
    /// open, because this server may lead again.
    fn hand_over<R>(&mut self, common: &mut Common<R>, now: Now) {
        common.notice(Notice::HandoverStarted);
        self.ending = Some(Ending { by: now.steady + HAND_OVER_TIMEOUT, hands_over: true });
        self.announce(common);
    }

    /// After the store lost commits: reports what workers hold of them, and has the store record when reconciliation
    /// is finished.
    fn reconcile<R>(&mut self, common: &mut Common<R>, now: Timestamp) {
        let Reconciling::Due(at) = self.reconciling else { return };
        let strays = self.engine.take_orphaned_executions();
        if !strays.is_empty() {
            common.act(Action::ReportStrays(strays));
        }
        if !self.engine.is_reconciling() && now >= at {
            if !self.reconcile_fails {
                common.notice(Notice::Reconciled);
            }
            let call = common.call(Call::Reconciled(Arc::clone(&self.leases)), None);
            self.reconciling = Reconciling::Recording(call);
        }
    }
}

/// The answer to clients whose commit may have succeeded.
fn unknown_outcome() -> Unanswered {
    match is_on(Mutation::LeaderReportsUnknownAsRefused) {
        true => Unanswered::Loading,
        false => Unanswered::OutcomeUnknown,
    }
}

/// Returns how many inputs this input counts for in the size of a batch.
fn weight(input: &Input) -> usize {
    match input {
        Input::Submit { jobs, .. } => jobs.len(),
        _ => 1,
    }
}

/// Whether an input makes the store grow: a full store refuses such inputs.
pub fn is_new_work(input: &Input) -> bool {
    match input {
        Input::Submit { .. }
        | Input::Update { .. }
        | Input::SetQueue { .. }
        | Input::SetNamespace { .. }
        | Input::Task { .. } => true,
        Input::Schedule { request, .. } => matches!(
            **request,
            ScheduleRequest::Apply { .. }
                | ScheduleRequest::Trigger { .. }
                | ScheduleRequest::Backfill(_)
                | ScheduleRequest::SetCalendar { .. }
        ),
        Input::Service { request, .. } => matches!(
            **request,
            ServiceRequest::Apply { .. } | ServiceRequest::Restart { .. } | ServiceRequest::Rollback { .. }
        ),
        Input::Workflow { request, .. } => {
            matches!(**request, WorkflowRequest::Apply { .. } | WorkflowRequest::Start(_))
        }
        _ => false,
    }
}
