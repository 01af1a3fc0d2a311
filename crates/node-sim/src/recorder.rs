//! The history, and the one clock that everybody reads.

use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::Timestamp;
use model::record::{Batch, Lease};
use server::clock::Clock;
use sim::history::{Event, What};
use sim::world::StoreRecorder;

use crate::system;

thread_local! {
    /// Where the world stands between two of its steps, when no host is running.
    static BETWEEN: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// When the world began: the first of June 2026, at midnight.
const BEGAN: i64 = 1_780_272_000_000_000;

/// The world has come so far, and no host is running.
pub(crate) fn between(elapsed: Duration) {
    BETWEEN.set(elapsed);
    system::set_clock(BEGAN + micros(elapsed));
}

/// How long the world has lasted.
pub(crate) fn elapsed() -> Duration {
    turmoil::sim_elapsed().unwrap_or_else(|| BETWEEN.get())
}

/// What time it is in the world.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_micros(BEGAN + micros(elapsed()))
}

fn micros(elapsed: Duration) -> i64 {
    i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX)
}

/// The world's clock, for an engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorldClock;

impl Clock for WorldClock {
    fn now(&self) -> Timestamp {
        now()
    }

    fn steady(&self) -> Timestamp {
        now()
    }
}

/// The world's time, for logs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elapsed;

impl tracing_subscriber::fmt::time::FormatTime for Elapsed {
    fn format_time(&self, w: &mut tracing_subscriber::fmt::format::Writer<'_>) -> fmt::Result {
        write!(w, "{:9.3}", elapsed().as_secs_f64())
    }
}

/// Writes down what happens; clones write to the same history.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Record>>);

#[derive(Debug, Default)]
struct Record {
    events: Vec<Event>,
    rows: StoreRecorder,
    requests: u64,
    /// The time of the newest thing that the store did.
    stored: Timestamp,
}

impl Record {
    /// Hosts take turns of one tick, so the next one begins before the last one ended. Who meets whom only by the
    /// network sees nothing of that, but the store is one for all: its time never runs back.
    fn of_store(&mut self) -> Timestamp {
        self.stored = self.stored.max(now());
        self.stored
    }
}

impl Recorder {
    fn lock(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something happened now.
    pub(crate) fn note(&self, what: What) {
        self.lock().events.push(Event { at: now(), what });
    }

    /// A number for a request.
    pub(crate) fn request(&self) -> u64 {
        let mut record = self.lock();
        record.requests += 1;
        record.requests
    }

    /// The store is asked now.
    pub(crate) fn set_store_time(&self) {
        self.lock().of_store();
    }

    /// The time of the store, which knows it from those who ask it: it has threads of its own.
    pub(crate) fn store_time(&self) -> Timestamp {
        self.lock().stored
    }

    /// A batch became durable.
    pub(crate) fn committed(&self, server: u32, leases: &[Lease], batch: &Batch) {
        let mut record = self.lock();
        let at = record.of_store();
        let epoch = leases.first().map(|lease| lease.epoch).unwrap_or_default();
        let commit = record.rows.committed(server, epoch, batch.now, batch);
        record.events.push(Event { at, what: What::Commit(Box::new(commit)) });
    }

    /// A server has the shards for so long from now.
    pub(crate) fn owned(&self, server: u32, leases: &[Lease], ttl: model::Duration) {
        let Some(lease) = leases.first() else { return };
        let mut record = self.lock();
        let at = record.of_store();
        let what = What::Owned { server, epoch: lease.epoch, until: at + ttl };
        record.events.push(Event { at, what });
    }

    /// How many jobs have not ended.
    pub(crate) fn live(&self) -> usize {
        self.lock().rows.live()
    }

    /// Everything, in the order of its times.
    pub(crate) fn finish(&self) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.lock().events);
        events.sort_by_key(|event| event.at);
        events
    }
}
