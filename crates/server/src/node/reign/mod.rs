//! The loop of the engine's thread while it owns the shards.
//!
//! Here is when it flushes, commits, releases and waits; `intake` has how inputs get to the engine; `suspension` is
//! what it does while its own lease is not valid for certain.
//!
//! # Always true
//! - What no commit carries (worker leases, answers from memory, stops) is released only while the leadership lease
//!   is valid.
//! - No more commits are on their way than the store takes ahead; effects are released when theirs is done, in
//!   order.
//! - A batch that a store without a reserve had no space for is kept, and committed once there is space: the sessions
//!   and leases of workers need no row, so their tasks run on.
//! - When the loop ends, everybody who waited has been answered.

mod intake;
mod lost;
mod suspension;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use engine::{Effect, Engine, Input, Now, Output};
use model::Timestamp;
use model::record::{Batch, Lease};
use mutation::{Mutation, is_on};
use store::{Committed, StoreError};
use tokio::time::Instant;

use super::backoff::Cause;
use super::crashes::{self, Moment};
use super::driver::{Driver, Life};
use super::outbox::Outboxes;
use super::ownership::{Owned, RENEWAL_PAUSE, renew};
use super::suspects::Suspect;
use super::{Beat, EventBatch, FromWorker, NodeConfig, Readiness, Request, RequestError};

/// Inputs that one batch takes; the inbox holds back the rest.
const BATCH_INPUTS: usize = 16_384;
/// Inputs that are worth a commit behind one that is on its way. Measured: with 2,048 the rate of jobs grew by a
/// fifth for nothing; with none, what it cost to write a job grew by a fifth, for pages were written more often.
const AHEAD_INPUTS: usize = 2_048;
/// Inputs taken from a lane at a time.
const CHUNK: usize = 1_024;
/// The view is renewed this often while something changes, and at [`VIEW_IDLE`] at the latest.
const VIEW_BUSY: Duration = Duration::from_millis(100);
const VIEW_IDLE: Duration = Duration::from_secs(1);
/// How often a full store is asked whether it takes writes again.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// How long a shutdown waits for its last commits.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// The same for a hand-over; what is then left is told that nothing happened.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest sleep, so that a leap of the wall clock is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// A leap of the wall clock that is told.
const LEAP: Duration = Duration::from_secs(60);

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Why an ownership ended.
pub(super) enum End {
    /// The server stops; everything is committed.
    Stopped,
    /// Another server is to have the shards; everything is committed.
    HandedOver,
    /// The store cannot be trusted.
    Fatal(String),
    /// The engine is to be built again.
    Again {
        /// Whether a commit may still be on its way, so that new epochs are needed.
        tainted: bool,
        /// How soon is a matter of why.
        cause: Cause,
    },
}

/// A batch that is being committed, and what is released when it is.
struct Flight {
    number: u64,
    batch: Arc<Batch>,
    effects: Vec<Effect>,
    since: Instant,
    /// The same on the steady clock: the lease that a commit prolongs counts from here.
    sent_at: Timestamp,
    commit: BoxFuture<Result<Committed, StoreError>>,
    /// What came of the commit, until those before it are done as well.
    came: Option<Result<Committed, StoreError>>,
}

/// A renewal of the leadership lease that is on its way.
struct Renewal {
    /// On the steady clock, before it was sent.
    sent_at: Timestamp,
    call: BoxFuture<Result<(), StoreError>>,
}

/// What ended a wait.
enum Event {
    Committed(Result<Committed, StoreError>),
    Beats,
    Reports,
    Requests,
    Renewed(Result<(), StoreError>),
    Probed(Result<(), StoreError>),
    Reconciled(Result<(), StoreError>),
    Stop,
    HandOver,
    Time,
    Nothing,
}

/// One ownership.
pub(super) struct Reign<'a> {
    life: &'a mut Life,
    engine: Engine,
    leases: Arc<[Lease]>,
    outboxes: Outboxes,
    /// Sessions that were closed here and of which the engine has not heard.
    closed: Vec<Input>,
    /// In their order.
    flights: VecDeque<Flight>,
    /// How many may be on their way.
    flights_max: usize,
    /// The number of the batch that inputs go into now.
    batch: u64,
    /// Inputs in it so far.
    taken: usize,
    /// Engine time of the newest committed batch.
    committed: Timestamp,
    /// Whether any batch was.
    has_committed: bool,
    /// Buffers of the lanes.
    beats: Vec<Beat>,
    reports: Vec<FromWorker>,
    requests: Vec<Request>,
    renewal: Option<Renewal>,
    /// Whether the newest renewal failed: only the first failure is logged.
    renewals_fail: bool,
    /// The earliest moment of the next renewal: a store that refuses at once is not asked without a pause.
    renew_after: Instant,
    probe: Option<BoxFuture<Result<(), StoreError>>>,
    probe_at: Instant,
    changed: bool,
    viewed_at: Instant,
    /// The wall clock and the monotonic one, as they were read together last.
    clocks: (Timestamp, Instant),
    /// Whether engine time does not follow the wall clock.
    clock_troubles: bool,
    stop_by: Option<Instant>,
    /// It ends because another server is to have the shards.
    hands_over: bool,
    /// Whether the store is still to hear that its lost commits were dealt with.
    reconciles: bool,
    reconciled: Option<BoxFuture<Result<(), StoreError>>>,
    /// Whether the commits that are on their way wait for space.
    waits_for_space: bool,
}

impl<'a> Reign<'a> {
    pub(super) fn new(life: &'a mut Life, owned: Owned) -> Self {
        let (now, config) = (Instant::now(), &life.driver.config);
        let wall = config.clock.now();
        let reconciles = owned.engine.is_reconciling();
        let flights_max = life.driver.store.commits_ahead().max(1);
        Self {
            outboxes: Outboxes::new(Some(config.members.clone()), config.metrics.clone()),
            clocks: (wall, now),
            renewals_fail: false,
            renew_after: now,
            life,
            engine: owned.engine,
            leases: owned.leases,
            closed: Vec::new(),
            flights: VecDeque::new(),
            flights_max,
            batch: 1,
            taken: 0,
            committed: wall,
            has_committed: false,
            beats: Vec::new(),
            reports: Vec::new(),
            requests: Vec::new(),
            renewal: None,
            probe: None,
            probe_at: now + PROBE_EVERY,
            changed: true,
            viewed_at: now,
            clock_troubles: false,
            stop_by: None,
            hands_over: false,
            reconciles,
            reconciled: None,
            waits_for_space: false,
        }
    }

    /// Drives the engine until the ownership ends, and gives it back. Everybody who waits has been answered then.
    pub(super) async fn run(mut self) -> (End, Engine) {
        let end = self.drive().await;
        (end, self.engine)
    }

    async fn drive(&mut self) -> End {
        self.engine.hold_new_work(self.life.full);
        self.publish_view();
        self.life.driver.leads_until.publish(&self.life.lease);
        self.announce();
        let Err(end) = self.lead().await;
        if !matches!(end, End::Stopped | End::HandedOver) {
            self.close();
        }
        // An ownership that ended with a commit on its way cannot know what became of it.
        if let Some(newest) = self.flights.back() {
            self.life.tickets.give_up(newest.number, &RequestError::OutcomeUnknown);
            return match end {
                End::Again { cause, .. } => End::Again { tainted: true, cause },
                end => end,
            };
        }
        self.life.tickets.give_up(0, &RequestError::Loading);
        end
    }

    async fn lead(&mut self) -> Result<Infallible, End> {
        loop {
            if !self.lease_is_valid() {
                self.suspend().await?;
            }
            self.turn()?;
            let event = self.wait().await;
            self.take(event)?;
        }
    }

    /// Whether what no commit carries may be released now.
    fn lease_is_valid(&self) -> bool {
        self.life.lease.is_valid(self.life.driver.config.clock.steady())
    }

    /// The store prolonged the leadership lease for a request sent at `sent_at`.
    fn prolonged(&mut self, sent_at: Timestamp) {
        let life = &mut *self.life;
        life.lease.prolong(sent_at);
        life.driver.leads_until.publish(&life.lease);
        // It ended for a moment, and this thread was too slow to see it: the watch on the lease did.
        let shows_the_end = *life.driver.readiness.borrow() == Readiness::Suspended;
        if shows_the_end && self.lease_is_valid() {
            self.announce();
        }
    }

    /// Takes no more requests. Comes before anybody is answered, so that who asks again at once is
    /// refused rather than lost.
    fn close(&self) {
        self.life.driver.readiness.send_replace(Readiness::Loading { reason: "starting anew".into() });
    }

    fn announce(&self) {
        let readiness = match (self.stop_by, self.life.full) {
            (Some(_), _) if self.hands_over => {
                Readiness::Loading { reason: "another server takes the shards over".into() }
            }
            (Some(_), _) => Readiness::Stopping,
            (None, true) => Readiness::Full,
            (None, false) => Readiness::Ready,
        };
        self.life.driver.readiness.send_replace(readiness);
    }

    /// Takes what waits, and sends off the next batch if the store is free.
    fn turn(&mut self) -> Result<(), End> {
        let drained = self.take_waiting()?;
        // A worker whose lease rests on ours must not outlive it: who leads next waits for leases that were granted
        // before it took over, and for no others. Read after the beats were taken in: those that were sent
        // before the end of our lease are all that this may answer.
        if !self.lease_is_valid() {
            return Ok(());
        }
        // Answers to beats wait for no commit.
        for grant in self.engine.take_grants() {
            self.outboxes.push(grant);
        }
        if self.may_flush() {
            self.flush()?;
        }
        self.renew_view();
        self.reconcile();
        let idle = self.flights.is_empty() && self.engine.is_idle();
        match self.stop_by {
            // What waits for space would hold up the end for as long as the volume is full.
            Some(by) if (drained && idle) || self.waits_for_space || Instant::now() > by => {
                Err(if self.hands_over { End::HandedOver } else { End::Stopped })
            }
            _ => Ok(()),
        }
    }

    /// Whether a batch may leave: what there is when nothing is on its way, and more only for many inputs.
    fn may_flush(&self) -> bool {
        let is_sent = !self.waits_for_space;
        self.flights.is_empty()
            || (is_sent && self.flights.len() < self.flights_max && self.taken >= AHEAD_INPUTS)
    }

    /// Lets the engine decide, and commits that; or releases the effects at once if no row changed.
    fn flush(&mut self) -> Result<(), End> {
        let now = self.now();
        let Output { batch, effects } = self.guarded(Suspect::Flush, |engine| engine.flush(now))?;
        let number = self.batch;
        self.batch += 1;
        self.taken = 0;
        if batch.is_empty() {
            match self.flights.back_mut() {
                // They may tell of what that one is about to make durable.
                Some(newest) => newest.effects.extend(effects),
                None => self.release(effects),
            }
            return self.disconnect_closed();
        }
        let mut effects = effects;
        if is_on(Mutation::ServerReleasesBeforeCommits) {
            self.release(std::mem::take(&mut effects));
        }
        crashes::reach(Moment::BeforeCommit, &batch);
        let batch = Arc::new(batch);
        let (commit, since) = (self.commit(&batch), Instant::now());
        let sent_at = self.life.driver.config.clock.steady();
        self.flights.push_back(Flight { number, batch, effects, since, sent_at, commit, came: None });
        Ok(())
    }

    fn commit(&self, batch: &Arc<Batch>) -> BoxFuture<Result<Committed, StoreError>> {
        let store = Arc::clone(&self.life.driver.store);
        let (leases, rows) = (Arc::clone(&self.leases), Arc::clone(batch));
        Box::pin(async move { store.commit(&leases, rows).await })
    }

    fn release(&mut self, effects: Vec<Effect>) {
        if effects.is_empty() {
            return;
        }
        self.changed = true;
        for effect in effects {
            match effect {
                Effect::Reply { ticket, reply } => {
                    self.life.tickets.answer(ticket, reply.map_err(RequestError::Refused));
                }
                to_worker => self.outboxes.push(to_worker),
            }
        }
        for (worker, session) in self.outboxes.send() {
            tracing::warn!(worker_id = %worker, session = session.0, "closed the session of a worker that does not read");
            self.closed.push(Input::Disconnect { worker, session });
        }
    }

    /// Tells the engine of the sessions that were closed here: nothing more is to be sent to them.
    fn disconnect_closed(&mut self) -> Result<(), End> {
        if self.closed.is_empty() {
            return Ok(());
        }
        let now = self.now();
        let closed = std::mem::take(&mut self.closed);
        closed.into_iter().try_for_each(|input| self.handle(now, input))
    }

    async fn wait(&mut self) -> Event {
        let until = self.sleep_until();
        let open = self.stop_by.is_none();
        let room = open && self.taken < BATCH_INPUTS;
        self.renew_when_due();
        let Driver { requests, reports, beats, stop, store, config, .. } = &mut self.life.driver;
        let NodeConfig { standing, .. } = config;
        if self.life.full && self.probe.is_none() && Instant::now() >= self.probe_at {
            let store = Arc::clone(store);
            self.probe = Some(Box::pin(async move { store.check().await }));
        }
        tokio::select! {
            biased;
            result = fly(&mut self.flights) => Event::Committed(result),
            // Before the lanes: a busy worker must not make the leader's own lease end.
            result = answered(&mut self.renewal) => Event::Renewed(result),
            // Also when every handle is gone; before the lanes, which have ended then too.
            _ = stop.wait_for(|stop| *stop), if open => Event::Stop,
            Ok(_) = standing.wait_for(|standing| standing.gives), if open => Event::HandOver,
            _ = beats.recv_many(&mut self.beats, CHUNK), if open => Event::Beats,
            _ = reports.recv_many(&mut self.reports, CHUNK), if room => Event::Reports,
            _ = requests.recv_many(&mut self.requests, CHUNK), if room => Event::Requests,
            result = some(&mut self.probe) => Event::Probed(result),
            result = some(&mut self.reconciled) => Event::Reconciled(result),
            () = tokio::time::sleep_until(until) => Event::Time,
        }
    }

    fn sleep_until(&mut self) -> Instant {
        let now = Instant::now();
        let may_flush = self.may_flush();
        if may_flush && !self.engine.is_idle() {
            return now;
        }
        let mut until = now + SLEEP_MAX;
        if may_flush && let Some(wakeup) = self.engine.wakeup() {
            let wall = self.engine.believed(self.life.driver.config.clock.both());
            let micros = wakeup.as_micros().saturating_sub(wall.as_micros());
            until = until.min(now + Duration::from_micros(u64::try_from(micros).unwrap_or(0)));
        }
        let view = self.viewed_at + if self.changed { VIEW_BUSY } else { VIEW_IDLE };
        until = until.min(view.max(now));
        if self.renewal.is_none() {
            until = until.min(self.renewal_due().max(now));
        }
        until = until.min(self.at(self.life.lease.valid_until()));
        if self.stop_by.is_some() && self.flights.is_empty() {
            until = until.min(now + Duration::from_millis(1));
        }
        until
    }

    /// When this moment of the steady clock is on the timer's.
    fn at(&self, moment: Timestamp) -> Instant {
        let now = self.life.driver.config.clock.steady();
        Instant::now() + moment.since(now).to_std().min(SLEEP_MAX)
    }

    fn renewal_due(&self) -> Instant {
        self.at(self.life.lease.renew_at()).max(self.renew_after)
    }

    /// Sends a renewal of the leadership lease when it is time and none is on its way.
    fn renew_when_due(&mut self) {
        let (driver, lease) = (&self.life.driver, self.life.lease);
        let sent_at = driver.config.clock.steady();
        if self.renewal.is_some() || sent_at < lease.renew_at() || Instant::now() < self.renew_after {
            return;
        }
        let (store, leases, config) =
            (Arc::clone(&driver.store), Arc::clone(&self.leases), driver.config.clone());
        let call = Box::pin(async move { renew(store.as_ref(), &leases, &lease, &config).await });
        self.renewal = Some(Renewal { sent_at, call });
    }

    fn take(&mut self, event: Event) -> Result<(), End> {
        match event {
            Event::Committed(result) => self.landed(result),
            Event::Beats => {
                let mut beats = std::mem::take(&mut self.beats);
                let taken = beats.drain(..).try_for_each(|beat| self.take_beat(beat));
                self.beats = beats;
                taken
            }
            Event::Reports => {
                let now = self.now();
                let mut reports = std::mem::take(&mut self.reports);
                let taken = reports.drain(..).try_for_each(|message| self.take_report(now, message));
                self.reports = reports;
                taken
            }
            Event::Requests => {
                let now = self.now();
                let mut requests = std::mem::take(&mut self.requests);
                let taken = requests.drain(..).try_for_each(|request| self.take_request(now, request));
                self.requests = requests;
                taken
            }
            Event::Renewed(result) => self.renewed(result),
            Event::Probed(result) => {
                self.probed(result.is_ok());
                Ok(())
            }
            Event::Stop => {
                self.stop();
                Ok(())
            }
            Event::Reconciled(result) => {
                self.reconciled = None;
                self.reconciles = false;
                if let Err(error) = result {
                    // The next owner holds the same work back once more, which delays and harms nothing.
                    tracing::warn!(error = %error, "the store does not know that its lost commits were dealt with");
                }
                Ok(())
            }
            Event::HandOver => {
                self.hand_over();
                Ok(())
            }
            Event::Nothing => Ok(()),
            Event::Time => {
                let now = self.now();
                self.guarded(Suspect::Flush, |engine| engine.handle(now, Input::Tick))
            }
        }
    }

    /// The oldest commit came back.
    fn landed(&mut self, result: Result<Committed, StoreError>) -> Result<(), End> {
        let Some(flight) = self.flights.pop_front() else { return Ok(()) };
        match result {
            Ok(committed) => {
                crashes::reach(Moment::AfterCommit, &flight.batch);
                self.has_committed = true;
                if committed.prolonged {
                    self.prolonged(flight.sent_at);
                }
                let before = std::mem::replace(&mut self.committed, flight.batch.now);
                self.life.driver.config.metrics.committed(&flight.batch, before, flight.since.elapsed());
                self.release(flight.effects);
                crashes::reach(Moment::AfterEffects, &flight.batch);
                self.publish_events(committed, flight.batch);
                if committed.space_low {
                    self.space_is_low();
                }
                self.disconnect_closed()
            }
            Err(_) if is_on(Mutation::ServerGoesOnAfterFailedCommits) => {
                self.release(flight.effects);
                Ok(())
            }
            Err(StoreError::Full) if !self.life.driver.store.has_reserve() => {
                self.flights.push_front(flight);
                self.wait_for_space();
                Ok(())
            }
            Err(error) => {
                // The store does none of those behind it.
                let newest = self.flights.drain(..).next_back().map_or(flight.number, |newest| newest.number);
                Err(self.lost(newest, error))
            }
        }
    }

    /// A commit failed, and with it those behind it, up to the batch `newest`: nobody may go on from what the
    /// engine believes.
    fn lost(&mut self, newest: u64, error: StoreError) -> End {
        let unknown = !matches!(
            error,
            StoreError::Fenced { .. }
                | StoreError::Full
                | StoreError::Unavailable { .. }
                | StoreError::TooNew { .. }
        );
        let told = match error {
            StoreError::Full => RequestError::Full,
            _ if unknown => RequestError::OutcomeUnknown,
            _ => RequestError::Loading,
        };
        self.close();
        self.life.tickets.give_up(newest, &told);
        if let StoreError::Fatal { reason } = error {
            return End::Fatal(reason);
        }
        tracing::warn!(error = %error, "a commit failed; the engine is dropped and loaded again");
        self.life.full |= matches!(error, StoreError::Full);
        let tainted = unknown || matches!(error, StoreError::Fenced { .. });
        End::Again { tainted, cause: self.cause_of(&error) }
    }

    /// A store that took commits and then none is away; one that never took any would only have all rows loaded
    /// again and again.
    fn cause_of(&self, error: &StoreError) -> Cause {
        match error {
            StoreError::Unavailable { .. }
            | StoreError::OutcomeUnknown { .. }
            | StoreError::Fenced { .. }
                if self.has_committed =>
            {
                Cause::Away
            }
            _ => Cause::Failed,
        }
    }

    fn publish_events(&self, committed: Committed, batch: Arc<Batch>) {
        let driver = &self.life.driver;
        if batch.events.is_empty() || driver.events.receiver_count() == 0 {
            return;
        }
        // The store has dropped its share by now, so nothing is copied as a rule.
        let events = Arc::try_unwrap(batch).map_or_else(|shared| shared.events.clone(), |batch| batch.events);
        // Nobody to hear it is fine.
        let _nobody = driver.events.send(Arc::new(EventBatch { first: committed.first_event, events }));
    }

    fn renewed(&mut self, result: Result<(), StoreError>) -> Result<(), End> {
        let Some(renewal) = self.renewal.take() else { return Ok(()) };
        self.renew_after = Instant::now() + RENEWAL_PAUSE;
        match result {
            Ok(()) => {
                if std::mem::take(&mut self.renewals_fail) {
                    tracing::info!("the leadership lease is renewed again");
                }
                self.prolonged(renewal.sent_at);
                Ok(())
            }
            Err(error @ StoreError::Fenced { .. }) => {
                tracing::warn!(error = %error, "lost the shards");
                Err(End::Again { tainted: true, cause: self.cause_of(&error) })
            }
            Err(StoreError::Fatal { reason }) => Err(End::Fatal(reason)),
            Err(error) => {
                if !std::mem::replace(&mut self.renewals_fail, true) {
                    tracing::warn!(error = %error, "cannot renew the leadership lease; trying again");
                }
                // A lease that cannot run out is in no hurry.
                if self.life.lease.is_exclusive() {
                    self.renew_after = Instant::now() + Duration::from_secs(1);
                }
                Ok(())
            }
        }
    }

    /// The store has no space, and did nothing of what is on its way. That is kept until there is space.
    ///
    /// The engine is not dropped: workers would have to open their sessions again, which needs rows, and their leases
    /// would end.
    fn wait_for_space(&mut self) {
        self.space_is_low();
        self.waits_for_space = true;
        for flight in &mut self.flights {
            (flight.commit, flight.came) = (Box::pin(std::future::pending()), None);
        }
        // Nobody can say when it is done, or whether it will be: this server may end before.
        self.life.tickets.give_up(u64::MAX, &RequestError::OutcomeUnknown);
    }

    /// Sends what waited for space.
    fn commit_again(&mut self) {
        if !std::mem::take(&mut self.waits_for_space) {
            return;
        }
        let sent_at = self.life.driver.config.clock.steady();
        let mut flights = std::mem::take(&mut self.flights);
        for flight in &mut flights {
            (flight.commit, flight.sent_at) = (self.commit(&flight.batch), sent_at);
        }
        self.flights = flights;
    }

    /// The store commits in its reserve, or has none: from here on, nothing new is taken or started.
    fn space_is_low(&mut self) {
        if !self.life.full {
            tracing::warn!("the store's volume is full: new work is refused");
            self.life.full = true;
            self.probe_at = Instant::now() + PROBE_EVERY;
            self.engine.hold_new_work(true);
            self.announce();
        }
    }

    fn probed(&mut self, healed: bool) {
        self.probe = None;
        self.probe_at = Instant::now() + PROBE_EVERY;
        if healed {
            tracing::info!("the store has space again");
            self.life.full = false;
            self.engine.hold_new_work(false);
            self.announce();
            self.commit_again();
        }
    }

    /// Takes nothing new from here on; what is in the lanes is still decided.
    fn stop(&mut self) {
        self.stop_by = Some(Instant::now() + STOP_TIMEOUT);
        self.announce();
        let Driver { requests, reports, beats, .. } = &mut self.life.driver;
        requests.close();
        reports.close();
        beats.close();
    }

    /// Takes no new requests from here on; what is in the lanes is still decided, and the lanes stay open
    /// for the time when this server leads again.
    fn hand_over(&mut self) {
        tracing::info!("giving the shards to another server");
        self.hands_over = true;
        self.stop_by = Some(Instant::now() + HAND_OVER_TIMEOUT);
        self.announce();
    }

    /// After the store forgot commits: names what workers hold of them, and tells the store when that is
    /// dealt with.
    fn reconcile(&mut self) {
        if !self.reconciles || self.reconciled.is_some() {
            return;
        }
        let strays = self.engine.take_strays();
        if !strays.is_empty() {
            let (store, metrics) = (Arc::clone(&self.life.driver.store), &self.life.driver.config.metrics);
            tokio::spawn(lost::tell(store, metrics.clone(), strays));
        }
        if !self.engine.is_reconciling() {
            tracing::info!("every worker was heard: what waited for that goes on");
            let (store, leases) = (Arc::clone(&self.life.driver.store), Arc::clone(&self.leases));
            self.reconciled = Some(Box::pin(async move { store.tails_reconciled(&leases).await }));
        }
    }

    fn renew_view(&mut self) {
        let age = self.viewed_at.elapsed();
        if age >= VIEW_IDLE || (self.changed && age >= VIEW_BUSY) {
            self.publish_view();
        }
    }

    fn publish_view(&mut self) {
        self.changed = false;
        self.viewed_at = Instant::now();
        let driver = &self.life.driver;
        let view = self.engine.view();
        let trouble = view.clock.trouble();
        match &trouble {
            Some(trouble) if !self.clock_troubles => tracing::warn!("{trouble}"),
            None if self.clock_troubles => tracing::info!("engine time follows the wall clock again"),
            _ => {}
        }
        self.clock_troubles = trouble.is_some();
        driver.config.metrics.count_firings(&view);
        driver.view.send_replace(Arc::new(view));
        driver.config.metrics.inbox(driver.beats.len() + driver.reports.len() + driver.requests.len());
    }

    /// The time now. A leap is told: with it many jobs may become due at once.
    fn now(&mut self) -> Now {
        let now = self.life.driver.config.clock.both();
        let (wall, mono) = (now.wall, Instant::now());
        let (last_wall, last_mono) = std::mem::replace(&mut self.clocks, (wall, mono));
        let leap = wall.since(last_wall).to_std().saturating_sub(mono - last_mono);
        if leap > LEAP {
            tracing::warn!(seconds = leap.as_secs(), "the clock leapt forward");
        } else if last_wall.since(wall).to_std() > Duration::from_secs(1) {
            tracing::warn!("the clock was set back: engine time waits for it");
        }
        now
    }
}

/// What came of the oldest commit. All are driven; the store does them in the order of their first poll.
async fn fly(flights: &mut VecDeque<Flight>) -> Result<Committed, StoreError> {
    poll_fn(|context| {
        for flight in flights.iter_mut().filter(|flight| flight.came.is_none()) {
            if let Poll::Ready(result) = flight.commit.as_mut().poll(context) {
                flight.came = Some(result);
            }
        }
        match flights.front_mut().and_then(|oldest| oldest.came.take()) {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        }
    })
    .await
}

async fn answered(renewal: &mut Option<Renewal>) -> Result<(), StoreError> {
    match renewal {
        Some(renewal) => renewal.call.as_mut().await,
        None => std::future::pending().await,
    }
}

async fn some<T>(future: &mut Option<BoxFuture<T>>) -> T {
    match future {
        Some(future) => future.as_mut().await,
        None => std::future::pending().await,
    }
}
