//! How a standby follows the rows that the leader changes, so that its engine is ready for a takeover.
//!
//! ```text
//! wait ─> end of changelog ─> initial load, slowly ─> poll ─> poll ─> …        (another server leads)
//!                                                             poll + count ─> engine   (takeover)
//!
//! poll: read the changed keys from the changelog, then read their rows again
//! ```
//!
//! So the time without a leader does not grow with the number of live rows. A standby uses only a small share of the
//! database's time. It pauses after each portion of rows for as long as the portion took, and after each poll for
//! many times the duration of the poll.
//!
//! # Invariants
//! - Before a takeover, rows may come from different snapshots. After the last poll they are consistent: the
//!   changelog has every change since the initial load began, and its rows were read afterwards.
//! - An unavailable store costs only time. After any other failure the standby drops its engine and begins again
//!   after a delay; a takeover before that loads all rows.
//! - An engine whose count of live jobs differs from the store's never becomes the leader's engine.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use engine::{Engine, Follower, Now};
use model::changelog::{ChangelogPage, ChangelogPosition, LiveKey, ReloadedRows};
use model::record::{Lease, LiveRow};
use model::{Duration, JobStatus, Timestamp};
use mutation::{Mutation, is_on};

use crate::event::{Action, Answer, Call, CallId, Failure, Loaded, NotFollowed, Notice, Retired};
use crate::leader::Common;

/// Minimum delay after a leader change before a standby starts its initial load: the leader may have to read the rows
/// itself, and goes first.
const INITIAL_LOAD_DELAY: Duration = Duration::from_secs(2);
/// Additional delay for every 1,000 live jobs.
const INITIAL_LOAD_DELAY_PER_1000_JOBS_MILLIS: u64 = 15;
/// Delay before a standby begins again after a failure; it doubles with each consecutive failure.
const RESTART_DELAY: Duration = Duration::from_secs(10);
const RESTART_DELAY_MAX: Duration = Duration::from_secs(300);
/// Delay before the next poll if the store is unavailable.
const POLL_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The same delay during a takeover.
const POLL_RETRY_DELAY_TAKEOVER: Duration = Duration::from_millis(100);
/// Maximum number of polls during a takeover.
const TAKEOVER_POLLS_MAX: u32 = 10;
/// Poll interval during the initial load.
const POLL_INTERVAL_LOADING: Duration = Duration::from_secs(1);
/// Minimum duration of a portion of rows, after which the initial load pauses.
const PORTION: Duration = Duration::from_millis(20);
/// Delay between two polls, as a multiple of the duration of the last poll, within bounds.
const PAUSE_FACTOR: u64 = 40;
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Delay between two polls while the leader is about to hand over.
const PAUSE_BEFORE_TAKEOVER: Duration = Duration::from_millis(5);
/// Maximum time for which a standby polls that often.
const PAUSE_BEFORE_TAKEOVER_MAX: Duration = Duration::from_secs(10);

/// Before all other timestamps.
const EARLIEST: Timestamp = Timestamp::from_micros(i64::MIN);

/// Role of the standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Another server leads, or may lead: this one follows its changes.
    Follows,
    /// This server owns the shards, and brings the standby's engine up to date.
    TakingOver,
    /// This server leads, or is in another phase.
    Idle,
}

/// Result of a takeover.
#[derive(Debug)]
pub(crate) enum TakeoverResult {
    /// The engine of the shards, not started, and the engine time of the newest commit.
    Engine(Box<Engine>, Timestamp),
    /// No engine: all rows must be loaded.
    Nothing,
}

/// Standby state of a server; see the [module documentation](self).
#[derive(Debug)]
pub(crate) struct Standby {
    state: State,
    /// Delay before the next start of following if the current one fails.
    begin_again: Duration,
    /// Since when the leader has been about to hand over.
    soon_since: Option<Timestamp>,
    /// Whether the shell shows that this server follows.
    shown: bool,
}

#[derive(Debug)]
enum State {
    /// No rows, and no call.
    Empty,
    /// Waits until `begin_at`. `settled` states whether the additional delay for the number of jobs is included.
    Waits { begin_at: Timestamp, settled: bool },
    /// Counts the live jobs, which determine the additional delay.
    Counts { call: CallId },
    /// Requests the end of the changelog.
    Begins { call: CallId },
    /// Has an engine that follows, perhaps before the end of the initial load.
    Follows(Box<Following>),
}

/// An engine that follows the changelog, and its progress.
#[derive(Debug)]
struct Following {
    follower: Box<Follower>,
    position: ChangelogPosition,
    /// Engine time of the newest commit that it has followed.
    newest: Timestamp,
    initial_load: InitialLoad,
    /// The poll in progress.
    poll: Option<ChangelogPoll>,
    /// When the next poll is due.
    poll_at: Timestamp,
    takeover: Option<Takeover>,
}

/// Progress of the initial load.
#[derive(Debug)]
enum InitialLoad {
    /// Not started: it starts after the first poll of the changelog. A leader that writes no changelog cannot be
    /// followed, so its rows are not read.
    NotAsked,
    Reads {
        call: CallId,
        started_at: Timestamp,
        portion_from: Timestamp,
        rows_from: Timestamp,
    },
    /// All rows were read; those that changed meanwhile are read again.
    RowsLoaded {
        rows: u64,
        started_at: Timestamp,
    },
    Done,
}

/// One poll of the changelog and of the rows that it names.
#[derive(Debug)]
struct ChangelogPoll {
    started_at: Timestamp,
    /// Whether the changed rows are read again once the end of the changelog is reached.
    rereads: bool,
    step: PollStep,
}

#[derive(Debug)]
enum PollStep {
    /// Reads the changelog.
    Since(CallId),
    /// Reads the rows of `keys` again; `left` are the keys after them.
    Rereads { call: CallId, keys: Vec<LiveKey>, left: Vec<LiveKey> },
    /// It is complete.
    Complete,
}

/// State of a takeover: the last poll, in parallel with the store's count of live jobs.
#[derive(Debug)]
struct Takeover {
    polls: u32,
    counting: Option<CallId>,
    counted: Option<BTreeMap<JobStatus, u64>>,
}

impl Standby {
    pub(crate) fn new() -> Self {
        Self { state: State::Empty, begin_again: RESTART_DELAY, soon_since: None, shown: false }
    }

    /// Does everything that is due in this role.
    pub(crate) fn turn<R>(&mut self, common: &mut Common<R>, now: Now, role: Role) {
        match role {
            Role::Idle => self.rest(common),
            Role::TakingOver => self.retry_poll_for_takeover(common, now.steady),
            Role::Follows => self.follow(common, now),
        }
    }

    /// Returns when the next [`turn`](Self::turn) is due, or the next rows may arrive.
    pub(crate) fn wake_at(&self, now: Timestamp) -> Timestamp {
        match &self.state {
            State::Waits { begin_at, .. } => *begin_at,
            State::Follows(following) => following.wake_at(now),
            State::Empty | State::Counts { .. } | State::Begins { .. } => Timestamp::MAX,
        }
    }

    /// Returns the time from which rows of [`Call::Preload`] are accepted.
    pub(crate) fn rows_from(&self) -> Timestamp {
        match &self.state {
            State::Follows(following) => match following.initial_load {
                InitialLoad::Reads { rows_from, .. } => rows_from,
                _ => EARLIEST,
            },
            _ => EARLIEST,
        }
    }

    fn follow<R>(&mut self, common: &mut Common<R>, now: Now) {
        let is_near = common.standing.takeover_is_near;
        let was_soon = self.soon_since.is_some();
        self.soon_since = is_near.then(|| self.soon_since.unwrap_or(now.steady));
        let is_soon =
            self.soon_since.is_some_and(|since| now.steady.since(since) < PAUSE_BEFORE_TAKEOVER_MAX);
        match &mut self.state {
            State::Empty => {
                self.state = State::Waits { begin_at: now.steady + INITIAL_LOAD_DELAY, settled: false };
            }
            State::Waits { begin_at, settled } if *begin_at <= now.steady => {
                self.state = match *settled {
                    false => State::Counts { call: common.call(Call::CountJobs, None) },
                    true => State::Begins { call: common.call(Call::ChangelogEnd, None) },
                };
            }
            State::Follows(following) => {
                following.takeover = None;
                if let Some(followed_until) = following.complete(common, now.steady, is_soon) {
                    self.begin_again = RESTART_DELAY;
                    self.show(common, Some(followed_until));
                }
                if let State::Follows(following) = &mut self.state {
                    following.poll_when_due(common, now.steady, is_near && !was_soon);
                }
            }
            State::Waits { .. } | State::Counts { .. } | State::Begins { .. } => {}
        }
    }

    /// Abandons pending calls. Keeps the engine if the initial load is complete.
    fn rest<R>(&mut self, common: &mut Common<R>) {
        self.soon_since = None;
        self.show(common, None);
        match &mut self.state {
            State::Empty => {}
            State::Waits { .. } => self.state = State::Empty,
            State::Counts { call } | State::Begins { call } => {
                common.act(Action::Abandon(*call));
                self.state = State::Empty;
            }
            State::Follows(following) if following.is_read() => following.abandon(common),
            State::Follows(_) => self.retire(common),
        }
    }

    /// Drops the engine.
    pub(crate) fn retire<R>(&mut self, common: &mut Common<R>) {
        if let State::Follows(mut following) = std::mem::replace(&mut self.state, State::Empty) {
            following.abandon(common);
            common.act(Action::Retire(Retired::Follower(following.follower)));
        }
    }

    fn show<R>(&mut self, common: &mut Common<R>, followed_until: Option<Timestamp>) {
        if followed_until.is_some() || std::mem::replace(&mut self.shown, followed_until.is_some()) {
            self.shown = followed_until.is_some();
            common.act(Action::ShowFollowed(followed_until));
        }
    }

    // A takeover.

    /// Starts the takeover after the shards were acquired. Returns its result if it is known immediately:
    /// [`TakeoverResult::Nothing`] if there is no complete engine.
    pub(crate) fn take_over<R>(
        &mut self,
        common: &mut Common<R>,
        now: Now,
        leases: &[Lease],
    ) -> Option<TakeoverResult> {
        match &mut self.state {
            State::Follows(following) if following.is_read() => {
                if is_on(Mutation::LeaderTakesOverWithoutReading) {
                    return Some(self.own(common, leases));
                }
                following.abandon(common);
                following.takeover = Some(Takeover { polls: 0, counting: None, counted: None });
                following.poll_for_takeover(common, now.steady);
                None
            }
            State::Follows(_) => Some(self.discard(common, NotFollowed::Unread)),
            _ => {
                self.rest(common);
                Some(TakeoverResult::Nothing)
            }
        }
    }

    fn retry_poll_for_takeover<R>(&mut self, common: &mut Common<R>, now: Timestamp) {
        if let State::Follows(following) = &mut self.state
            && following.takeover.is_some()
            && following.poll.is_none()
            && following.poll_at <= now
        {
            following.poll_for_takeover(common, now);
        }
    }

    fn discard<R>(&mut self, common: &mut Common<R>, lost: NotFollowed) -> TakeoverResult {
        common.notice(Notice::StandbyDiscarded(lost));
        self.retire(common);
        TakeoverResult::Nothing
    }

    // Answers.

    /// Whether this call is one of the standby's pending calls.
    pub(crate) fn waits_for(&self, call: CallId) -> bool {
        match &self.state {
            State::Counts { call: asked } | State::Begins { call: asked } => *asked == call,
            State::Follows(following) => following.waits_for(call),
            State::Empty | State::Waits { .. } => false,
        }
    }

    /// Handles the answer to one of its calls. Returns the result of the takeover once it is known.
    pub(crate) fn answered<R>(
        &mut self,
        common: &mut Common<R>,
        now: Now,
        call: CallId,
        answer: Result<Answer, Failure>,
        leases: &[Lease],
    ) -> Option<TakeoverResult> {
        match &mut self.state {
            State::Counts { .. } => {
                let live = match answer {
                    Ok(Answer::Jobs(counts)) => live(&counts).values().sum(),
                    _ => 0,
                };
                let longer = Duration::from_millis(
                    live.saturating_mul(INITIAL_LOAD_DELAY_PER_1000_JOBS_MILLIS) / 1_000,
                );
                self.state = State::Waits { begin_at: now.steady + longer, settled: true };
                None
            }
            State::Begins { .. } => {
                match answer {
                    Ok(Answer::ChangelogEnd(position)) => self.begin(common, now, position),
                    Ok(_) => {}
                    Err(failure) => self.begin_later(common, now.steady, NotFollowed::Store(failure)),
                }
                None
            }
            State::Follows(following) => {
                let taken = following.answered(common, now.steady, call, answer);
                let is_takeover = following.takeover.is_some();
                match taken {
                    Ok(()) if is_takeover => self.finish_takeover(common, leases),
                    Ok(()) => None,
                    Err(lost) if lost.is_away() && following.retry_later(common, now.steady) => None,
                    Err(lost) if is_takeover => Some(self.discard(common, lost)),
                    Err(lost) => {
                        self.begin_later(common, now.steady, lost);
                        None
                    }
                }
            }
            State::Empty | State::Waits { .. } => None,
        }
    }

    /// Restores rows of [`Call::Preload`].
    pub(crate) fn rows<R>(&mut self, common: &mut Common<R>, now: Now, call: CallId, rows: Vec<LiveRow>) {
        let State::Follows(following) = &mut self.state else { return };
        if let Err(lost) = following.restore(now.steady, call, rows) {
            self.begin_later(common, now.steady, lost);
        }
    }

    fn begin<R>(&mut self, common: &mut Common<R>, now: Now, position: ChangelogPosition) {
        let follower = Box::new(Follower::new(common.engine_config(), common.config.shards, now));
        let mut following = Following {
            follower,
            position,
            newest: Timestamp::default(),
            initial_load: InitialLoad::NotAsked,
            poll: None,
            poll_at: now.steady,
            takeover: None,
        };
        following.poll(common, now.steady);
        self.state = State::Follows(Box::new(following));
    }

    fn begin_later<R>(&mut self, common: &mut Common<R>, now: Timestamp, lost: NotFollowed) {
        let pause = self.begin_again;
        self.begin_again = Duration::from_millis(pause.as_millis().saturating_mul(2)).min(RESTART_DELAY_MAX);
        common.notice(Notice::NotFollowed { why: lost, again_in: pause });
        self.retire(common);
        self.show(common, None);
        self.state = State::Waits { begin_at: now + pause, settled: true };
    }

    fn finish_takeover<R>(&mut self, common: &mut Common<R>, leases: &[Lease]) -> Option<TakeoverResult> {
        let State::Follows(following) = &mut self.state else { return None };
        let checked = following.check_takeover()?;
        if let Err(lost) = checked {
            return Some(self.discard(common, lost));
        }
        Some(self.own(common, leases))
    }

    fn own<R>(&mut self, common: &mut Common<R>, leases: &[Lease]) -> TakeoverResult {
        let State::Follows(following) = std::mem::replace(&mut self.state, State::Empty) else {
            return TakeoverResult::Nothing;
        };
        let Following { follower, newest, .. } = *following;
        match follower.own(leases) {
            Some(engine) => TakeoverResult::Engine(Box::new(engine), newest),
            None => self.discard(common, NotFollowed::Unread),
        }
    }
}

impl Following {
    /// Whether the initial load is complete, including rows that changed meanwhile: the standby could take over.
    fn is_read(&self) -> bool {
        matches!(self.initial_load, InitialLoad::Done)
    }

    /// No wake-up is needed while a call is pending, because a turn follows each answer. After a pause, the next
    /// rows arrive without a wake-up.
    fn wake_at(&self, now: Timestamp) -> Timestamp {
        let poll_at = if self.poll.is_none() { self.poll_at } else { Timestamp::MAX };
        match self.initial_load {
            InitialLoad::Reads { rows_from, .. } if rows_from > now => poll_at.min(rows_from),
            _ => poll_at,
        }
    }

    fn waits_for(&self, call: CallId) -> bool {
        let initial_load =
            matches!(self.initial_load, InitialLoad::Reads { call: asked, .. } if asked == call);
        let counts = self.takeover.as_ref().is_some_and(|takeover| takeover.counting == Some(call));
        initial_load || counts || self.poll.as_ref().and_then(ChangelogPoll::call) == Some(call)
    }

    fn abandon<R>(&mut self, common: &mut Common<R>) {
        let poll = self.poll.take().as_ref().and_then(ChangelogPoll::call);
        let counting = self.takeover.take().and_then(|takeover| takeover.counting);
        let initial_load = match self.initial_load {
            InitialLoad::Reads { call, .. } => Some(call),
            _ => None,
        };
        for call in [poll, counting, initial_load].into_iter().flatten() {
            common.act(Action::Abandon(call));
        }
    }

    /// Handles an unavailable store. Returns whether the engine stays usable, so that the next poll reads what was
    /// missed.
    fn retry_later<R>(&mut self, common: &mut Common<R>, now: Timestamp) -> bool {
        let polls = self.takeover.as_ref().map(|takeover| takeover.polls);
        if !self.is_read() || polls.is_some_and(|polls| polls >= TAKEOVER_POLLS_MAX) {
            return false;
        }
        self.abandon(common);
        self.takeover = polls.map(|polls| Takeover { polls, counting: None, counted: None });
        self.poll_at = now + if polls.is_some() { POLL_RETRY_DELAY_TAKEOVER } else { POLL_RETRY_DELAY };
        true
    }

    // Polls.

    /// Finishes a complete poll. Returns the time up to which all changes are known, once the initial load is
    /// complete.
    fn complete<R>(&mut self, common: &mut Common<R>, now: Timestamp, is_soon: bool) -> Option<Timestamp> {
        let poll = self.poll.take_if(|poll| matches!(poll.step, PollStep::Complete))?;
        if let InitialLoad::RowsLoaded { rows, started_at } = self.initial_load
            && poll.rereads
        {
            common.notice(Notice::Follows { rows, took: now.since(started_at) });
            self.initial_load = InitialLoad::Done;
        }
        self.poll_at = match self.initial_load {
            InitialLoad::NotAsked => now,
            InitialLoad::Reads { .. } => now + POLL_INTERVAL_LOADING,
            InitialLoad::RowsLoaded { .. } => now,
            InitialLoad::Done if is_soon => now + PAUSE_BEFORE_TAKEOVER,
            InitialLoad::Done => {
                let millis = now.since(poll.started_at).as_millis().saturating_mul(PAUSE_FACTOR);
                now + Duration::from_millis(millis).clamp(PAUSE_MIN, PAUSE_MAX)
            }
        };
        if matches!(self.initial_load, InitialLoad::NotAsked) {
            let call = common.call(Call::Preload, None);
            self.poll_at = now + POLL_INTERVAL_LOADING;
            self.initial_load =
                InitialLoad::Reads { call, started_at: now, portion_from: now, rows_from: EARLIEST };
        }
        self.is_read().then_some(poll.started_at)
    }

    fn poll_when_due<R>(&mut self, common: &mut Common<R>, now: Timestamp, at_once: bool) {
        if self.poll.is_none() && (self.poll_at <= now || at_once) {
            self.poll(common, now);
        }
    }

    /// Polls the changelog. Reads the changed rows again once all rows have been read.
    fn poll<R>(&mut self, common: &mut Common<R>, now: Timestamp) {
        let rereads = matches!(self.initial_load, InitialLoad::RowsLoaded { .. } | InitialLoad::Done);
        let step = PollStep::Since(common.call(Call::ChangelogSince(self.position), None));
        self.poll = Some(ChangelogPoll { started_at: now, rereads, step });
    }

    fn poll_for_takeover<R>(&mut self, common: &mut Common<R>, now: Timestamp) {
        let Some(takeover) = &mut self.takeover else { return };
        takeover.polls += 1;
        takeover.counting = Some(common.call(Call::CountJobs, None));
        self.poll(common, now);
    }

    // Answers.

    fn answered<R>(
        &mut self,
        common: &mut Common<R>,
        now: Timestamp,
        call: CallId,
        answer: Result<Answer, Failure>,
    ) -> Result<(), NotFollowed> {
        match answer.map_err(NotFollowed::Store)? {
            Answer::ChangelogSince(since) => self.changed(common, since.ok_or(NotFollowed::OutOfReach)?),
            Answer::LiveRows(reread) => self.reread(common, reread),
            Answer::Loaded(loaded) => self.initial_load_finished(now, call, loaded),
            Answer::Jobs(counts) => {
                if let Some(takeover) = &mut self.takeover {
                    (takeover.counting, takeover.counted) = (None, Some(live(&counts)));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn changed<R>(&mut self, common: &mut Common<R>, since: ChangelogPage) -> Result<(), NotFollowed> {
        self.guarded(|follower| follower.follow(&since.touched))?.map_err(NotFollowed::Unfollowed)?;
        (self.position, self.newest) = (since.end, since.now);
        if !since.whole {
            let call = common.call(Call::ChangelogSince(self.position), None);
            return self.step(PollStep::Since(call));
        }
        if !self.poll.as_ref().is_some_and(|poll| poll.rereads) {
            return self.step(PollStep::Complete);
        }
        let stale = self.follower.stale(usize::MAX);
        self.reread_next(common, stale)
    }

    fn reread<R>(&mut self, common: &mut Common<R>, reread: ReloadedRows) -> Result<(), NotFollowed> {
        if reread.unreadable > 0 {
            return Err(NotFollowed::Damaged(reread.unreadable));
        }
        let Some(ChangelogPoll { step: PollStep::Rereads { keys, left, .. }, .. }) = &mut self.poll else {
            return Ok(());
        };
        let (keys, left) = (std::mem::take(keys), std::mem::take(left));
        self.guarded(|follower| follower.refresh(&keys, reread.rows))?;
        self.reread_next(common, left)
    }

    fn reread_next<R>(&mut self, common: &mut Common<R>, mut left: Vec<LiveKey>) -> Result<(), NotFollowed> {
        if !left.is_empty() {
            let rest = left.split_off(left.len().min(common.config.reread_keys));
            let keys = std::mem::replace(&mut left, rest);
            let call = common.call(Call::LiveRows(keys.clone()), None);
            return self.step(PollStep::Rereads { call, keys, left });
        }
        // Rows of one snapshot contradict each other only if they are damaged.
        match self.follower.stale_count() {
            0 => self.step(PollStep::Complete),
            stale => Err(NotFollowed::Inconsistent(stale)),
        }
    }

    fn step(&mut self, step: PollStep) -> Result<(), NotFollowed> {
        if let Some(poll) = &mut self.poll {
            poll.step = step;
        }
        Ok(())
    }

    // The initial load.

    fn restore(&mut self, now: Timestamp, call: CallId, rows: Vec<LiveRow>) -> Result<(), NotFollowed> {
        let InitialLoad::Reads { call: asked, portion_from, rows_from, .. } = &mut self.initial_load else {
            return Ok(());
        };
        if *asked != call {
            return Ok(());
        }
        let took = now.since(*portion_from);
        if took >= PORTION {
            *rows_from = now + took;
            *portion_from = *rows_from;
        }
        self.guarded(|follower| rows.into_iter().for_each(|row| follower.restore(row)))
    }

    fn initial_load_finished(
        &mut self,
        now: Timestamp,
        call: CallId,
        loaded: Loaded,
    ) -> Result<(), NotFollowed> {
        let InitialLoad::Reads { call: asked, started_at, .. } = self.initial_load else { return Ok(()) };
        if asked != call {
            return Ok(());
        }
        if loaded.quarantined > 0 {
            return Err(NotFollowed::Damaged(loaded.quarantined));
        }
        self.guarded(Follower::loaded)?;
        self.initial_load = InitialLoad::RowsLoaded { rows: loaded.rows, started_at };
        self.poll_at = now;
        Ok(())
    }

    // A takeover.

    /// Returns `None` until the last poll and the count are complete; then whether the engine may be used.
    fn check_takeover(&mut self) -> Option<Result<(), NotFollowed>> {
        let counted = self.takeover.as_ref()?.counted.as_ref()?;
        if !matches!(self.poll.as_ref()?.step, PollStep::Complete) {
            return None;
        }
        let here = live(self.follower.live());
        Some(match here == *counted {
            true => Ok(()),
            false => Err(NotFollowed::Miscounted { here, there: counted.clone() }),
        })
    }

    /// Calls the follower. A panic costs the standby's engine, not the server.
    fn guarded<T>(&mut self, act: impl FnOnce(&mut Follower) -> T) -> Result<T, NotFollowed> {
        catch_unwind(AssertUnwindSafe(|| act(&mut self.follower))).map_err(|_| NotFollowed::Panicked)
    }
}

impl ChangelogPoll {
    fn call(&self) -> Option<CallId> {
        match self.step {
            PollStep::Since(call) | PollStep::Rereads { call, .. } => Some(call),
            PollStep::Complete => None,
        }
    }
}

/// Filters the counts of statuses that are not final and not zero.
fn live(counts: &BTreeMap<JobStatus, u64>) -> BTreeMap<JobStatus, u64> {
    let live =
        |(&status, &count): (&JobStatus, &u64)| (!status.is_final() && count > 0).then_some((status, count));
    counts.iter().filter_map(live).collect()
}
