//! Writes down what a test asks and breaks, and when, as it happens.
//!
//! Three of the recorders of a history write here: the clients, the nemesis, and whoever follows the
//! feed of events. The feed says *when* a commit had become durable; what was in it is read from the
//! store in the end.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use client::{Client, EventFilter, FeedItem};
use futures::StreamExt as _;
use model::{Timestamp, WorkerId};
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
    live: u64,
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
        self.log().live
    }

    /// How many jobs have ended.
    pub fn ended(&self) -> u64 {
        self.log().ended
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
            let Some(to) = event.to else { continue };
            let (begins, ends) = (event.from.is_none(), to.is_final());
            log.live = (log.live + u64::from(begins)).saturating_sub(u64::from(ends));
            log.ended += u64::from(ends);
        }
    }
}
