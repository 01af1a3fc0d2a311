//! Pings of monitors, which are recorded in batches.
//!
//! A ping is answered when it is durable. Pings that arrive during a write wait for the next one, and two writes are
//! [`INTERVAL`] apart. So the first ping is recorded at once, and any number of pings costs the store ten writes per
//! second at most, each with one row for each monitor.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use alerts::{Alerts, Refusal};
use model::Timestamp;
use model::api::NewPing;
use tokio::sync::{Notify, oneshot};

/// Shortest time between two writes of pings.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);
/// Most pings that wait to be recorded.
const WAITING_MAX: usize = 10_000;

/// Monitor that is pinged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PingedMonitor {
    /// The monitor whose ping URL has a token with this hash.
    OfToken(String),
    /// The monitor with this namespace and name.
    Named(String, String),
}

/// Pings that wait to be recorded, with the error `E` of those that are not.
pub(super) struct PingQueue<E> {
    waiting: Mutex<Vec<WaitingPing<E>>>,
    arrived: Notify,
}

/// Ping that waits to be recorded.
pub(super) struct WaitingPing<E> {
    monitor: PingedMonitor,
    ping: NewPing,
    answer: oneshot::Sender<Result<(), E>>,
}

impl<E> Default for PingQueue<E> {
    fn default() -> Self {
        Self { waiting: Mutex::default(), arrived: Notify::default() }
    }
}

impl<E> PingQueue<E> {
    /// Adds a ping. Returns what receives its result, or `None` if too many pings wait.
    pub(super) fn add(
        &self,
        monitor: PingedMonitor,
        ping: NewPing,
    ) -> Option<oneshot::Receiver<Result<(), E>>> {
        let (answer, answered) = oneshot::channel();
        {
            let mut waiting = self.lock();
            if waiting.len() >= WAITING_MAX {
                return None;
            }
            waiting.push(WaitingPing { monitor, ping, answer });
        }
        self.arrived.notify_one();
        Some(answered)
    }

    /// Waits for pings, and returns all of them.
    pub(super) async fn next_batch(&self) -> Vec<WaitingPing<E>> {
        loop {
            self.arrived.notified().await;
            let batch = std::mem::take(&mut *self.lock());
            if !batch.is_empty() {
                return batch;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<WaitingPing<E>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E> WaitingPing<E> {
    /// Passes the ping to the core.
    pub(super) fn apply(&self, alerts: &mut Alerts, now: Timestamp) -> Result<(), Refusal> {
        let (namespace, name) = match &self.monitor {
            PingedMonitor::Named(namespace, name) => (namespace.clone(), name.clone()),
            PingedMonitor::OfToken(hash) => {
                let found = alerts.monitor_of_token(hash);
                let found = found.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
                found.ok_or(Refusal::NotFound { what: "monitor", name: "/ping/…".to_owned() })?
            }
        };
        alerts.ping(now, &namespace, &name, &self.ping)
    }

    /// Answers the client, unless it has disconnected.
    pub(super) fn answer(self, result: Result<(), E>) {
        let _gone = self.answer.send(result);
    }
}
