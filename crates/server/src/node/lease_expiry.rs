//! Expiry of the leadership lease, for all threads of the server.
//!
//! The engine's thread owns the lease and publishes its expiry here. All other threads compare it with the clock: the
//! server stops calling itself the leader at that time even if the engine's thread hangs.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use leader::LeadershipLease;
use model::Timestamp;
use tokio::sync::watch;

use super::Readiness;
use crate::clock::Clock;

/// Longest pause between two checks of the lease.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Expiry of the leadership lease, on the steady clock; clones share one value.
#[derive(Clone)]
pub(super) struct LeaseExpiry {
    micros: Arc<AtomicI64>,
    clock: Arc<dyn Clock>,
}

impl LeaseExpiry {
    /// Creates it without a valid lease.
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { micros: Arc::new(AtomicI64::new(i64::MIN)), clock }
    }

    /// Publishes the expiry of `lease`.
    pub(super) fn publish(&self, lease: &LeadershipLease) {
        self.micros.store(lease.valid_until().as_micros(), Ordering::Release);
    }

    /// Returns the remaining time of the lease; `None` after its expiry.
    fn remaining(&self) -> Option<Duration> {
        let until = Timestamp::from_micros(self.micros.load(Ordering::Acquire));
        let now = self.clock.steady();
        (now < until).then(|| until.since(now).to_std())
    }

    pub(super) fn is_valid(&self) -> bool {
        self.remaining().is_some()
    }

    /// Returns the readiness to show: a leader without a valid lease is suspended, not ready.
    pub(super) fn effective(&self, readiness: Readiness) -> Readiness {
        match readiness {
            Readiness::Ready | Readiness::Full if !self.is_valid() => Readiness::Suspended,
            readiness => readiness,
        }
    }

    /// Sets the readiness to suspended when the lease expires, even if the engine's thread hangs.
    pub(super) async fn watch(self, readiness: watch::Sender<Readiness>) -> Infallible {
        loop {
            match self.remaining() {
                Some(left) => tokio::time::sleep(left.min(CHECK_INTERVAL)).await,
                None => {
                    readiness.send_if_modified(|readiness| {
                        let shown = self.effective(readiness.clone());
                        std::mem::replace(readiness, shown.clone()) != shown
                    });
                    tokio::time::sleep(CHECK_INTERVAL).await;
                }
            }
        }
    }
}
