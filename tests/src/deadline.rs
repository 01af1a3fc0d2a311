//! Waiting for what another process does.

use std::time::{Duration, Instant};

/// How often a condition is looked at. The one pause of the harness: other processes send no events.
const GLANCE: Duration = Duration::from_millis(15);

/// The pause between two looks.
pub async fn glance() {
    tokio::time::sleep(GLANCE).await;
}

/// Waits until `probe` gives a value.
///
/// # Panics
/// If it gives none `within` that time; the message says `what` was waited for.
pub async fn until<T>(what: &str, within: Duration, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(begun.elapsed() < within, "waited {within:?} in vain until {what}");
        glance().await;
    }
}

/// Whether `probe` became true within that time; for waits that may well be in vain.
pub async fn within(time: Duration, mut probe: impl AsyncFnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < time {
        if probe().await {
            return true;
        }
        glance().await;
    }
    false
}
