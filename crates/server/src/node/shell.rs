//! The engine's thread: the shell around [`Leader`].
//!
//! ```text
//! loop {
//!     lanes, answers of the store, stop ──> leader.handle
//!     leader.turn ──> actions: calls of the store, replies, messages to workers, readiness
//!     wait for: an answer of the store, an input, the leader's next turn
//! }
//! ```
//!
//! The shell has one rule only: heartbeats come first, then reports of workers, then requests, so that submissions
//! cannot delay the other two. The lanes hold back the inputs that do not fit into a batch.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::{Effect, Input, Now};
use leader::{Action, Answer, Call, CallId, Event, Leader};
use model::Timestamp;
use model::record::Batch;
use store::changelog::Changelog;
use store::{Store, StoreError};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::time::Instant;

use super::calls::{Calls, Outcome, failure};
use super::crashes::{self, CommitPhase};
use super::driver::{Driver, Fatal};
use super::outbox::Outboxes;
use super::{
    EventBatch, FromWorker, HeartbeatRequest, Readiness, ReplyTo, Request, RequestError, lost_executions,
    notices,
};

/// Most inputs that are taken from a lane at a time.
const CHUNK: usize = 1_024;
/// Chunks of rows buffered between the store and the engine: of a leader, and of a standby.
const ROW_CHUNKS: usize = 8;
const ROW_CHUNKS_STANDBY: usize = 2;
/// Interval of publishing the view: while something changes, and otherwise.
const VIEW_BUSY: Duration = Duration::from_millis(100);
const VIEW_IDLE: Duration = Duration::from_secs(1);
/// Longest sleep, so that a jump of the wall clock is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Shortest forward jump of the wall clock that is logged.
const CLOCK_JUMP_LOGGED_MIN: Duration = Duration::from_secs(60);

/// Reason for the end of a wait.
enum WaitResult {
    Store(Outcome),
    Beats,
    Reports,
    Requests,
    Standing,
    Stop,
    Time,
}

/// State of the engine's thread.
pub(super) struct Shell {
    driver: Driver,
    leader: Leader<ReplyTo>,
    calls: Calls,
    outboxes: Outboxes,
    /// Buffers of the lanes; empty between steps, kept for their capacity.
    heartbeats: Vec<HeartbeatRequest>,
    reports: Vec<FromWorker>,
    requests: Vec<Request>,
    /// Whether the lanes accept no further inputs.
    lanes_closed: bool,
    stop_received: bool,
    /// Whether the sender of the standing was dropped, so that it does not change any more.
    standing_is_final: bool,
    changed: bool,
    view_published_at: Instant,
    /// Wall clock and monotonic clock at their last reading.
    clocks: (Timestamp, Instant),
    /// Whether the published view says that engine time does not follow the wall clock.
    clock_has_trouble: bool,
}

impl Shell {
    pub(super) fn new(driver: Driver) -> Self {
        let Driver { store, config, .. } = &driver;
        let leader = Leader::new(leader::Config {
            engine: config.engine.clone(),
            shards: store.shards(),
            lease: config.lease,
            commits_ahead: store.commits_ahead().max(1),
            is_exclusive: store.is_exclusive(),
            has_reserve: store.has_reserve(),
            batch_inputs: leader::Config::BATCH_INPUTS,
            ahead_inputs: leader::Config::AHEAD_INPUTS,
            follows: config.warm_standby && store.changelog().is_some(),
            reread_keys: leader::Config::REREAD_KEYS,
        });
        let now = Instant::now();
        Self {
            leader,
            calls: Calls::default(),
            outboxes: Outboxes::new(config.metrics.clone()),
            heartbeats: Vec::new(),
            reports: Vec::new(),
            requests: Vec::new(),
            lanes_closed: false,
            stop_received: false,
            standing_is_final: false,
            changed: true,
            view_published_at: now,
            clocks: (config.clock.now(), now),
            clock_has_trouble: false,
            driver,
        }
    }

    /// Runs until the server stops or fails.
    pub(super) async fn run(mut self) -> Result<(), Fatal> {
        self.update_standing();
        loop {
            if let Some(result) = self.leader.ended() {
                return result.clone().map_err(|reason| Fatal { reason });
            }
            self.step().await;
        }
    }

    /// Runs one turn of the leader, then waits for the next event.
    async fn step(&mut self) {
        let drained = self.drain_lanes();
        // Read after the heartbeats were taken: the leader may answer only heartbeats that were sent before its own
        // lease expired.
        let now = self.now();
        self.leader.turn(now, drained);
        self.execute_actions();
        self.renew_view();
        if self.leader.ended().is_some() {
            return;
        }
        match self.wait().await {
            WaitResult::Store(outcome) => self.outcome(outcome),
            WaitResult::Beats => self.take_heartbeats(),
            WaitResult::Reports => {
                let now = self.now();
                let mut reports = std::mem::take(&mut self.reports);
                reports.drain(..).for_each(|message| self.take_report(now, message));
                self.reports = reports;
            }
            WaitResult::Requests => {
                let now = self.now();
                let mut requests = std::mem::take(&mut self.requests);
                requests.drain(..).for_each(|request| self.take_request(now, request));
                self.requests = requests;
            }
            WaitResult::Standing => self.update_standing(),
            WaitResult::Stop => {
                self.stop_received = true;
                self.handle(Event::Stop);
            }
            WaitResult::Time => {}
        }
        self.execute_actions();
    }

    async fn wait(&mut self) -> WaitResult {
        let until = self.sleep_until();
        let takes_rows = self.leader.rows_from() <= self.driver.config.clock.steady();
        let open = !self.lanes_closed;
        let room = open && self.leader.room() > 0;
        let Driver { requests, reports, heartbeats: beats, stop, config, .. } = &mut self.driver;
        tokio::select! {
            biased;
            // Before the store, whose rows may come without a pause. `stop` also ends when every handle is dropped; it
            // comes before the lanes, which have ended then too.
            _ = stop.wait_for(|stop| *stop), if !self.stop_received => WaitResult::Stop,
            changed = config.standing.changed(), if !self.standing_is_final => {
                self.standing_is_final = changed.is_err();
                WaitResult::Standing
            }
            // Before the lanes: a busy worker must not let the leader's own lease expire.
            outcome = self.calls.next(takes_rows) => WaitResult::Store(outcome),
            _ = beats.recv_many(&mut self.heartbeats, CHUNK), if open => WaitResult::Beats,
            _ = reports.recv_many(&mut self.reports, CHUNK), if room => WaitResult::Reports,
            _ = requests.recv_many(&mut self.requests, CHUNK), if room => WaitResult::Requests,
            () = tokio::time::sleep_until(until) => WaitResult::Time,
        }
    }

    fn sleep_until(&self) -> Instant {
        let (now, clocks) = (Instant::now(), self.driver.config.clock.both());
        let left = self.leader.wake_at(clocks).as_micros().saturating_sub(clocks.steady.as_micros());
        let wake = now + Duration::from_micros(u64::try_from(left).unwrap_or(0)).min(SLEEP_MAX);
        let view = self.view_published_at + if self.changed { VIEW_BUSY } else { VIEW_IDLE };
        if self.leader.engine().is_some() { wake.min(view.max(now)) } else { wake }
    }

    // Inputs.

    fn handle(&mut self, event: Event<ReplyTo>) {
        let now = self.now();
        self.leader.handle(now, event);
    }

    fn update_standing(&mut self) {
        let standing = *self.driver.config.standing.borrow_and_update();
        self.handle(Event::Standing(standing));
    }

    /// Takes the inputs that wait in the lanes, heartbeats first. Returns whether the lanes are closed and empty, so
    /// that nothing remains to be decided before the end.
    fn drain_lanes(&mut self) -> bool {
        let is_empty = |error: TryRecvError, closed: bool| !closed || error == TryRecvError::Disconnected;
        let mut drained = true;
        loop {
            match self.driver.heartbeats.try_recv() {
                Ok(beat) => self.take_heartbeat(beat),
                Err(error) => {
                    drained &= is_empty(error, self.lanes_closed);
                    break;
                }
            }
        }
        let now = self.now();
        while self.leader.room() > 0 {
            match self.driver.reports.try_recv() {
                Ok(message) => self.take_report(now, message),
                Err(error) => {
                    drained &= is_empty(error, self.lanes_closed);
                    break;
                }
            }
        }
        while self.leader.room() > 0 {
            match self.driver.requests.try_recv() {
                Ok(request) => self.take_request(now, request),
                Err(error) => {
                    drained &= is_empty(error, self.lanes_closed);
                    break;
                }
            }
        }
        drained && self.leader.room() > 0
    }

    fn take_heartbeats(&mut self) {
        let mut beats = std::mem::take(&mut self.heartbeats);
        beats.drain(..).for_each(|beat| self.take_heartbeat(beat));
        self.heartbeats = beats;
    }

    /// Reads the clock for each heartbeat after receiving it. An earlier reading may precede the sending of the
    /// heartbeat, however short the code between them: the thread may have been suspended there. The lease would then
    /// expire here before it expires on the worker.
    fn take_heartbeat(&mut self, beat: HeartbeatRequest) {
        let now = self.now();
        self.outboxes.set_heartbeat_stream(beat.session, beat.grants);
        self.leader.handle(now, Event::Worker(beat.input));
    }

    fn take_report(&mut self, now: Now, message: FromWorker) {
        match message {
            FromWorker::Join { join, outbox } => {
                self.outboxes.open(join.worker, join.session, outbox);
                self.leader.handle(now, Event::Worker(Input::Join(join)));
            }
            FromWorker::Inputs(inputs) => {
                for input in inputs {
                    if let Input::Disconnect { session, .. } = &input {
                        self.outboxes.close(*session);
                    }
                    self.leader.handle(now, Event::Worker(input));
                }
            }
        }
    }

    fn take_request(&mut self, now: Now, Request { ticket, input, reply }: Request) {
        self.leader.handle(now, Event::Request { ticket, input, reply });
    }

    fn outcome(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Answered(id, answer) => self.handle(Event::Answered(id, answer)),
            Outcome::Rows(id, rows) => self.handle(Event::Rows(id, rows)),
            Outcome::Committed(id, result, batch) => {
                let reach = |moment| batch.iter().for_each(|batch| crashes::reach(moment, batch));
                let is_done = result.is_ok();
                if is_done {
                    reach(CommitPhase::AfterCommit);
                }
                let answer = result.map(answer_of_commit).map_err(|error| failure(&error));
                self.handle(Event::Answered(id, answer));
                self.execute_actions();
                if is_done {
                    reach(CommitPhase::AfterEffects);
                }
            }
        }
    }

    // Actions.

    /// Carries out the leader's actions, in their order.
    fn execute_actions(&mut self) {
        loop {
            // Before any action that depends on it.
            self.driver.lease_expiry.publish(self.leader.lease());
            self.correct_readiness();
            let actions = self.leader.take_actions();
            if actions.is_empty() {
                return;
            }
            let mut sends = false;
            for action in actions {
                sends |= matches!(action, Action::ToWorker(_));
                self.execute(action);
            }
            if sends {
                self.send();
            }
        }
    }

    fn execute(&mut self, action: Action<ReplyTo>) {
        match action {
            Action::Call { id, call, timeout } => self.call(id, call, timeout),
            Action::Abandon(id) => self.calls.abandon(id),
            Action::Reply { to, reply } => {
                self.changed = true;
                // The client may have given up.
                let _gone = to.send(reply.map_err(RequestError::from));
            }
            Action::ToWorker(effect) => {
                self.changed |= !matches!(effect, Effect::Grant { .. });
                self.outboxes.push(effect);
            }
            Action::CloseSession(session) => self.outboxes.close(session),
            Action::CloseSessions => self.outboxes.close_all(),
            Action::Publish { batch, committed, sent_at, before } => {
                self.changed = true;
                let micros = self.driver.config.clock.steady().as_micros() - sent_at.as_micros();
                let took = Duration::from_micros(u64::try_from(micros).unwrap_or(0));
                self.driver.config.metrics.committed(&batch, before, took);
                if !batch.statistics.is_empty() {
                    self.driver.counted.store(true, Ordering::Relaxed);
                }
                self.publish_events(committed.first_event, batch);
            }
            Action::Show(readiness) => self.show(readiness),
            Action::CloseLanes => {
                let Driver { requests, reports, heartbeats: beats, .. } = &mut self.driver;
                requests.close();
                reports.close();
                beats.close();
                self.lanes_closed = true;
            }
            Action::ReportStrays(named) => {
                let (store, metrics) = (Arc::clone(&self.driver.store), self.driver.config.metrics.clone());
                tokio::spawn(lost_executions::log_lost_executions(store, metrics, named));
            }
            Action::Retire(retired) => drop_in_background(retired),
            Action::ShowFollowed(heard) => self.show_followed(heard),
            Action::Notice(notice) => notices::log_notice(notice, &self.driver.config.metrics),
        }
    }

    /// Publishes the time up to which this standby knows the leader's commits, to other servers and in metrics.
    fn show_followed(&self, heard: Option<Timestamp>) {
        let config = &self.driver.config;
        config.members.set_followed_age(heard.map(|heard| config.clock.steady().since(heard)));
        config.metrics.set_standby_ready(heard.is_some());
    }

    fn show(&mut self, readiness: Readiness) {
        // Clients that wait for readiness read the view next.
        if matches!(readiness, Readiness::Ready | Readiness::Full) {
            self.publish_view();
        } else if self.leader.leases().is_none() {
            // Another server leads: this server's view is outdated.
            self.driver.view.send_replace(Arc::default());
        }
        self.driver.readiness.send_replace(readiness);
    }

    /// Shows the leader as ready again if its lease had expired so briefly that only the watch on the lease noticed.
    fn correct_readiness(&self) {
        let shown = self.leader.readiness();
        if matches!(shown, Readiness::Ready | Readiness::Full)
            && *self.driver.readiness.borrow() == Readiness::Suspended
            && self.leader.leads(self.driver.config.clock.steady())
        {
            self.driver.readiness.send_replace(shown.clone());
        }
    }

    fn send(&mut self) {
        for (worker, session) in self.outboxes.send() {
            tracing::warn!(
                worker_id = %worker, session = session.0,
                "worker session closed: the worker does not read its messages"
            );
            self.handle(Event::Worker(Input::Disconnect { worker, session }));
        }
    }

    fn publish_events(&self, first: u64, batch: Arc<Batch>) {
        let events = &self.driver.events;
        if batch.events.is_empty() || events.receiver_count() == 0 {
            return;
        }
        // The store has dropped its reference by now, so this usually copies nothing.
        let of_batch =
            Arc::try_unwrap(batch).map_or_else(|shared| shared.events.clone(), |batch| batch.events);
        // There may be no subscriber left.
        let _unwatched =
            events.send(Arc::new(EventBatch { first: store::EventSeq(first), events: of_batch }));
    }

    fn call(&mut self, id: CallId, call: Call, timeout: Option<model::Duration>) {
        let store = Arc::clone(&self.driver.store);
        match call {
            Call::Commit(leases, batch) => {
                crashes::reach(CommitPhase::BeforeCommit, &batch);
                let kept = crashpoint::is_enabled().then(|| Arc::clone(&batch));
                self.calls.commit(id, kept, async move { store.commit(&leases, batch).await });
            }
            Call::Load(leases) => {
                let (rows, received) = mpsc::channel(ROW_CHUNKS);
                let load = async move { store.load(&leases, rows).await.map(answer_of_load) };
                self.calls.ask(id, timeout, Some(received), load);
            }
            Call::Preload => {
                let (rows, received) = mpsc::channel(ROW_CHUNKS_STANDBY);
                let preload = async move { changelog_of(&store)?.preload(rows).await.map(answer_of_load) };
                self.calls.ask(id, timeout, Some(received), preload);
            }
            other => {
                let owner = self.driver.config.owner.clone();
                let lease = self.driver.config.lease;
                self.calls.ask(id, timeout, None, answer(store, other, owner, lease));
            }
        }
    }

    // The view, and the clock.

    fn renew_view(&mut self) {
        let age = self.view_published_at.elapsed();
        if self.leader.engine().is_some() && (age >= VIEW_IDLE || (self.changed && age >= VIEW_BUSY)) {
            self.publish_view();
        }
    }

    fn publish_view(&mut self) {
        let Some(view) = self.leader.view() else { return };
        self.changed = false;
        self.view_published_at = Instant::now();
        let trouble = view.clock.trouble();
        match &trouble {
            Some(trouble) if !self.clock_has_trouble => {
                tracing::warn!(reason = %trouble, "engine time does not follow the wall clock");
            }
            None if self.clock_has_trouble => tracing::info!("engine time follows the wall clock again"),
            _ => {}
        }
        self.clock_has_trouble = trouble.is_some();
        let driver = &self.driver;
        driver.config.metrics.count_firings(&view);
        driver.view.send_replace(Arc::new(view));
        driver.config.metrics.inbox(driver.heartbeats.len() + driver.reports.len() + driver.requests.len());
    }

    /// Returns the current time. Logs a jump of the wall clock, because many schedules may fire at once after it.
    fn now(&mut self) -> Now {
        let now = self.driver.config.clock.both();
        let (wall, mono) = (now.wall, Instant::now());
        let (last_wall, last_mono) = std::mem::replace(&mut self.clocks, (wall, mono));
        let leap = wall.since(last_wall).to_std().saturating_sub(mono - last_mono);
        if leap > CLOCK_JUMP_LOGGED_MIN {
            tracing::warn!(seconds = leap.as_secs(), "the wall clock jumped forward");
        } else if last_wall.since(wall).to_std() > Duration::from_secs(1) {
            let seconds = last_wall.since(wall).to_std().as_secs();
            tracing::warn!(seconds, "the wall clock was set back: engine time waits for it");
        }
        now
    }
}

/// Executes any call except a commit and those that return rows.
async fn answer(
    store: Arc<dyn Store>,
    call: Call,
    owner: String,
    lease: model::Duration,
) -> Result<Answer, StoreError> {
    match call {
        Call::Acquire => {
            let all: Vec<_> = (0..store.shards()).map(model::ShardId).collect();
            let leases = store.acquire(&all, &owner, lease).await?;
            Ok(Answer::Acquired { leases, former_owner: store.former_owner() })
        }
        Call::Renew(leases) => store.renew(&leases, lease).await.map(|()| Answer::Done),
        Call::Release(leases) => store.release(&leases).await.map(|()| Answer::Done),
        Call::LostTails(leases) => store.shards_with_lost_commits(&leases).await.map(Answer::LostTails),
        Call::Clock => store.clock().await.map(Answer::Clock),
        Call::Probe => store.check().await.map(|_| Answer::Done),
        Call::Reconciled(leases) => store.mark_reconciled(&leases).await.map(|()| Answer::Done),
        Call::ChangelogEnd => changelog_of(&store)?.end().await.map(Answer::ChangelogEnd),
        Call::ChangelogSince(place) => changelog_of(&store)?.since(place).await.map(Answer::ChangelogSince),
        Call::LiveRows(keys) => changelog_of(&store)?.live_rows(&keys).await.map(Answer::LiveRows),
        Call::CountJobs => store.counts(None).await.map(Answer::Jobs),
        // `Shell::call` executes these.
        Call::Commit(..) | Call::Load(_) | Call::Preload => Ok(Answer::Done),
    }
}

/// Returns the changelog. A leader asks for it only if the store has one.
fn changelog_of(store: &Arc<dyn Store>) -> Result<&dyn Changelog, StoreError> {
    let missing = || StoreError::Unavailable { source: "the store has no changelog".into() };
    store.changelog().ok_or_else(missing)
}

/// Drops a value on its own thread: freeing millions of jobs takes seconds.
fn drop_in_background<T: Send + 'static>(value: T) {
    // If no thread can be created, the value was dropped here.
    let _dropping = std::thread::Builder::new().name("belfry-drop".into()).spawn(move || drop(value));
}

fn answer_of_load(loaded: store::Loaded) -> Answer {
    let store::Loaded { now, rows, quarantined } = loaded;
    Answer::Loaded(leader::Loaded { now, rows, quarantined })
}

fn answer_of_commit(committed: store::Committed) -> Answer {
    let store::Committed { first_event, extended: prolonged, space_low } = committed;
    Answer::Committed(leader::Committed { first_event: first_event.0, prolonged, space_low })
}
