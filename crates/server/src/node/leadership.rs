//! The end of the leadership lease, as the rest of the server sees it.
//!
//! The engine's thread owns the lease and publishes its end here. All other threads compare it with the clock, so the
//! server stops calling itself the leader at that moment even if the engine's thread hangs.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use leader::LeadershipLease;
use model::Timestamp;
use tokio::sync::watch;

use super::Readiness;
use crate::clock::Clock;

/// How often a lease that does not run out, or has run out already, is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Until when the node may lead; clones are the same.
#[derive(Clone)]
pub(super) struct LeadsUntil {
    micros: Arc<AtomicI64>,
    clock: Arc<dyn Clock>,
}

impl LeadsUntil {
    /// It may not lead yet.
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { micros: Arc::new(AtomicI64::new(i64::MIN)), clock }
    }

    /// Publishes what the lease permits.
    pub(super) fn publish(&self, lease: &LeadershipLease) {
        self.micros.store(lease.valid_until().as_micros(), Ordering::Release);
    }

    /// How much is left of the lease; `None` if it is over.
    fn left(&self) -> Option<Duration> {
        let until = Timestamp::from_micros(self.micros.load(Ordering::Acquire));
        let now = self.clock.steady();
        (now < until).then(|| until.since(now).to_std())
    }

    /// Whether the lease is valid now.
    pub(super) fn is_valid(&self) -> bool {
        self.left().is_some()
    }

    /// The readiness that may be shown: one who leads is not ready without a valid lease.
    pub(super) fn shown(&self, readiness: Readiness) -> Readiness {
        match readiness {
            Readiness::Ready | Readiness::Full if !self.is_valid() => Readiness::Suspended,
            readiness => readiness,
        }
    }

    /// Ends the readiness when the lease ends, whatever the engine's thread does.
    pub(super) async fn watch(self, readiness: watch::Sender<Readiness>) -> Infallible {
        loop {
            match self.left() {
                Some(left) => tokio::time::sleep(left.min(LOOK_EVERY)).await,
                None => {
                    readiness.send_if_modified(|readiness| {
                        let shown = self.shown(readiness.clone());
                        std::mem::replace(readiness, shown.clone()) != shown
                    });
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            }
        }
    }
}
