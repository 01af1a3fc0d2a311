//! The recorded history, and the single clock of a world.

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
    /// Elapsed time between two steps of the world, when no host is running.
    static BETWEEN: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Start time of every world in Unix microseconds: 2026-06-01T00:00Z.
const BEGAN: i64 = 1_780_272_000_000_000;

/// Sets the elapsed time between two steps of the world.
pub(crate) fn set_elapsed(elapsed: Duration) {
    BETWEEN.set(elapsed);
    system::set_clock(BEGAN + micros(elapsed));
}

/// Returns the elapsed time of the world.
pub(crate) fn elapsed() -> Duration {
    turmoil::sim_elapsed().unwrap_or_else(|| BETWEEN.get())
}

/// Returns the current time of the world.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_micros(BEGAN + micros(elapsed()))
}

fn micros(elapsed: Duration) -> i64 {
    i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX)
}

/// Clock of the world for an engine.
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

/// Time of the world for log messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elapsed;

impl tracing_subscriber::fmt::time::FormatTime for Elapsed {
    fn format_time(&self, w: &mut tracing_subscriber::fmt::format::Writer<'_>) -> fmt::Result {
        write!(w, "{:9.3}", elapsed().as_secs_f64())
    }
}

/// Records what happens; clones write to the same history.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Record>>);

#[derive(Debug, Default)]
struct Record {
    events: Vec<Event>,
    rows: StoreRecorder,
    requests: u64,
    /// Time of the latest operation of the store.
    stored: Timestamp,
}

impl Record {
    /// Hosts run in turns of one tick, so the next host starts before the previous one's end time. Hosts that
    /// communicate only over the network do not notice that. The store is shared by all hosts, so its time must not
    /// run backwards.
    fn advance_store_time(&mut self) -> Timestamp {
        self.stored = self.stored.max(now());
        self.stored
    }
}

impl Recorder {
    fn lock(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an event at the current time.
    pub(crate) fn note(&self, what: What) {
        self.lock().events.push(Event { at: now(), what });
    }

    /// Returns a new request number.
    pub(crate) fn request(&self) -> u64 {
        let mut record = self.lock();
        record.requests += 1;
        record.requests
    }

    /// Advances the time of the store at the start of an operation.
    pub(crate) fn set_store_time(&self) {
        self.lock().advance_store_time();
    }

    /// Returns the time of the store, which runs on threads of its own and gets its time from the callers.
    pub(crate) fn store_time(&self) -> Timestamp {
        self.lock().stored
    }

    /// Records a durable batch.
    pub(crate) fn committed(&self, server: u32, leases: &[Lease], batch: &Batch) {
        let mut record = self.lock();
        let at = record.advance_store_time();
        let epoch = leases.first().map(|lease| lease.epoch).unwrap_or_default();
        let commit = record.rows.committed(server, epoch, batch.now, batch);
        record.events.push(Event { at, what: What::Commit(Box::new(commit)) });
    }

    /// Records that a server owns the shards for `ttl` from now.
    pub(crate) fn owned(&self, server: u32, leases: &[Lease], ttl: model::Duration) {
        let Some(lease) = leases.first() else { return };
        let mut record = self.lock();
        let at = record.advance_store_time();
        let what = What::Owned { server, epoch: lease.epoch, until: at + ttl };
        record.events.push(Event { at, what });
    }

    /// Number of jobs that have not ended.
    pub(crate) fn live(&self) -> usize {
        self.lock().rows.live()
    }

    /// Returns all events in the order of their times.
    pub(crate) fn finish(&self) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.lock().events);
        events.sort_by_key(|event| event.at);
        events
    }
}
