//! Records the requests and faults of a test with their times.
//!
//! Three recorders of a history use it: the clients, the nemesis, and the reader of the event feed. The feed
//! determines *when* a commit was durable at the latest; its contents are read from the store at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use client::{Client, EventFilter, FeedItem};
use futures::StreamExt as _;
use model::{JobId, Timestamp, WorkerId};
use sim::history::{Event, What};

/// A shared record; clones write to the same record.
#[derive(Debug, Clone, Default)]
pub struct Recorder(Arc<Mutex<Log>>);

/// The time in which a whole machine was halted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Halt {
    /// The worker.
    pub worker: WorkerId,
    /// Task processes that this fault stopped and that were not stopped before.
    pub tasks: Vec<i32>,
    /// Start of the halt.
    pub from: Timestamp,
    /// End of the halt.
    pub until: Timestamp,
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) events: Vec<Event>,
    pub(crate) halts: Vec<Halt>,
    /// When the feed delivered each position.
    pub(crate) feed: BTreeMap<u64, Timestamp>,
    requests: u64,
    /// Jobs that have not ended according to the feed.
    live: BTreeSet<JobId>,
    ended: u64,
    /// Number of expected position leaps of the feed.
    leaps: u64,
}

/// A position leap larger than this means that the database is on another timeline.
const LEAP: u64 = 1 << 31;

/// Returns the time on the clock of the harness: the machine's clock, which no test changes.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the time is after 1970");
    Timestamp::from_micros(i64::try_from(since.as_micros()).expect("the time is before the year 290,000"))
}

impl Recorder {
    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an event with the current time.
    pub fn note(&self, what: What) {
        let mut log = self.log();
        log.events.push(Event { at: now(), what });
    }

    /// Returns all events so far.
    pub fn events(&self) -> Vec<Event> {
        self.log().events.clone()
    }

    /// Records that a fault begins or ends.
    pub fn fault(&self, fault: impl ToString, begins: bool) {
        self.note(What::Fault { fault: fault.to_string(), begins });
    }

    /// Records that a whole machine was halted.
    pub fn halted(&self, worker: WorkerId, tasks: Vec<i32>, span: Range<Timestamp>) {
        let Range { start: from, end: until } = span;
        let mut log = self.log();
        log.halts.push(Halt { worker, tasks, from, until });
        log.events.push(Event { at: until, what: What::Woke { worker } });
    }

    /// Returns the time on the clock of the harness.
    pub fn now(&self) -> Timestamp {
        now()
    }

    /// Returns the number of a new request.
    pub fn request(&self) -> u64 {
        let mut log = self.log();
        log.requests += 1;
        log.requests
    }

    /// Returns the number of jobs that have not ended according to the feed.
    pub fn live(&self) -> u64 {
        self.log().live.len() as u64
    }

    /// Returns the jobs that have not ended according to the feed.
    pub fn live_jobs(&self) -> Vec<JobId> {
        self.log().live.iter().copied().collect()
    }

    /// Records that the store lost the commits of this time span: this number of events, and these jobs.
    pub fn lost(&self, span: Range<Timestamp>, commits: u32, jobs: &[JobId]) {
        let mut log = self.log();
        log.live.retain(|job| !jobs.contains(job));
        log.events.push(Event { at: span.end, what: What::TailLost { commits, since: Some(span.start) } });
    }

    /// Whether a commit within this time, from its request to its answer, may have been lost.
    pub fn may_be_lost(&self, during: &Range<Timestamp>) -> bool {
        self.log().losses().any(|lost| *lost.start() <= during.end && during.start <= *lost.end())
    }

    /// Returns the number of ended jobs.
    pub fn ended(&self) -> u64 {
        self.log().ended
    }

    /// Whether all expected leaps of the feed have happened.
    pub fn has_leapt(&self) -> bool {
        self.log().leaps == 0
    }

    /// Expects a leap: after a database failover the feed may continue far beyond the reached position.
    pub fn expect_leap(&self) {
        self.log().leaps += 1;
    }

    /// Follows the feed from its start, through every restart within the client's retry time.
    ///
    /// # Panics
    /// If the feed has a gap or a duplicate, or reports that events were purged; see
    /// [`expect_leap`](Self::expect_leap).
    pub async fn follow(self, client: Client) {
        let filter = EventFilter { since: Some(0), ..EventFilter::default() };
        let mut feed = client.events(&filter);
        while let Some(item) = feed.next().await {
            let FeedItem::Event(event) = item.expect("the feed is available again after each kill") else {
                panic!("the feed purged recent events");
            };
            let mut log = self.log();
            let reached = log.feed.last_key_value().map_or(0, |(seq, _)| *seq);
            if log.leaps > 0 && event.seq > reached + LEAP {
                log.leaps -= 1;
            } else {
                assert_eq!(event.seq, reached + 1, "the event feed has a gap or a duplicate");
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
    /// Returns the time spans of lost commits.
    pub(crate) fn losses(&self) -> impl Iterator<Item = RangeInclusive<Timestamp>> {
        self.events.iter().filter_map(|event| match event.what {
            What::TailLost { since: Some(since), .. } => Some(since..=event.at),
            _ => None,
        })
    }
}
