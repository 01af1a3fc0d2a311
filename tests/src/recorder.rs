//! Writes down what a test asks and breaks, and when, as it happens.
//!
//! Three of the recorders of a history write here: the clients, the nemesis, and whoever follows the
//! feed of events. The feed says *when* a commit had become durable; what was in it is read from the
//! store in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use client::{Client, EventFilter, FeedItem};
use futures::StreamExt as _;
use model::{JobId, Timestamp, WorkerId};
use sim::history::{Event, What};

/// What was written down so far; clones write into the same.
#[derive(Debug, Clone, Default)]
pub struct Recorder(Arc<Mutex<Log>>);

/// A whole machine stood still.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Halt {
    /// Which.
    pub worker: WorkerId,
    /// The processes of its tasks that were stopped, and not stopped before.
    pub tasks: Vec<i32>,
    /// Since when.
    pub from: Timestamp,
    /// Until when.
    pub until: Timestamp,
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) events: Vec<Event>,
    pub(crate) halts: Vec<Halt>,
    /// When the feed told of each place.
    pub(crate) feed: BTreeMap<u64, Timestamp>,
    requests: u64,
    /// Jobs that have not ended, as the feed told.
    live: BTreeSet<JobId>,
    ended: u64,
    /// How often the feed may still leap.
    leaps: u64,
}

/// The places of the feed leap by more than this when the database is on another history.
const LEAP: u64 = 1 << 31;

/// The clock of the harness: the machine's, which nobody moves.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
    Timestamp::from_micros(i64::try_from(since.as_micros()).expect("it is earlier than the year 290,000"))
}

impl Recorder {
    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something happens now.
    pub fn note(&self, what: What) {
        let mut log = self.log();
        log.events.push(Event { at: now(), what });
    }

    /// Everything that was written down so far.
    pub fn events(&self) -> Vec<Event> {
        self.log().events.clone()
    }

    /// A fault begins or ends now.
    pub fn fault(&self, fault: impl ToString, begins: bool) {
        self.note(What::Fault { fault: fault.to_string(), begins });
    }

    /// A whole machine stood still.
    pub fn halted(&self, worker: WorkerId, tasks: Vec<i32>, span: Range<Timestamp>) {
        let Range { start: from, end: until } = span;
        let mut log = self.log();
        log.halts.push(Halt { worker, tasks, from, until });
        log.events.push(Event { at: until, what: What::Woke { worker } });
    }

    /// The time on the clock of the harness.
    pub fn now(&self) -> Timestamp {
        now()
    }

    /// A number for a new request.
    pub fn request(&self) -> u64 {
        let mut log = self.log();
        log.requests += 1;
        log.requests
    }

    /// How many jobs have not ended, as the feed told so far.
    pub fn live(&self) -> u64 {
        self.log().live.len() as u64
    }

    /// Which these are.
    pub fn live_jobs(&self) -> Vec<JobId> {
        self.log().live.iter().copied().collect()
    }

    /// The store has forgotten commits of this span: so many events, and these jobs with them.
    pub fn lost(&self, span: Range<Timestamp>, commits: u32, jobs: &[JobId]) {
        let mut log = self.log();
        log.live.retain(|job| !jobs.contains(job));
        log.events.push(Event { at: span.end, what: What::TailLost { commits, since: Some(span.start) } });
    }

    /// Whether what was told then may have been forgotten by now.
    pub fn may_be_lost(&self, at: Timestamp) -> bool {
        self.log().losses().any(|lost| lost.contains(&at))
    }

    /// How many jobs have ended.
    pub fn ended(&self) -> u64 {
        self.log().ended
    }

    /// Whether the feed has leapt as often as it was expected to.
    pub fn has_leapt(&self) -> bool {
        self.log().leaps == 0
    }

    /// The database fails over: the feed may go on far beyond the place that it has reached.
    pub fn expect_leap(&self) {
        self.log().leaps += 1;
    }

    /// Follows the feed from its beginning, through every restart that the client's patience outlasts.
    ///
    /// # Panics
    /// If the feed has a gap or a double, or says that it forgot something; but see
    /// [`expect_leap`](Self::expect_leap).
    pub async fn follow(self, client: Client) {
        let filter = EventFilter { since: Some(0), ..EventFilter::default() };
        let mut feed = client.events(&filter);
        while let Some(item) = feed.next().await {
            let FeedItem::Event(event) = item.expect("the feed is there again after each kill") else {
                panic!("the feed forgot what it told a minute ago");
            };
            let mut log = self.log();
            let reached = log.feed.last_key_value().map_or(0, |(seq, _)| *seq);
            if log.leaps > 0 && event.seq > reached + LEAP {
                log.leaps -= 1;
            } else {
                assert_eq!(event.seq, reached + 1, "the feed of events has a gap or a double");
            }
            log.feed.insert(event.seq, now());
            let (Some(job), Some(to)) = (event.job_id, event.to) else { continue };
            if to.is_final() {
                log.live.remove(&job);
                log.ended += 1;
            } else {
                log.live.insert(job);
            }
        }
    }
}

impl Log {
    /// When commits were made that the store has forgotten.
    pub(crate) fn losses(&self) -> impl Iterator<Item = RangeInclusive<Timestamp>> {
        self.events.iter().filter_map(|event| match event.what {
            What::TailLost { since: Some(since), .. } => Some(since..=event.at),
            _ => None,
        })
    }
}
