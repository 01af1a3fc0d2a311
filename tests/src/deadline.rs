//! Waiting for conditions in other processes.

use std::time::{Duration, Instant};

/// Poll interval of conditions. It is the only sleep of the harness, because other processes send no events.
const POLL_INTERVAL: Duration = Duration::from_millis(15);

/// Waits for one poll interval.
pub async fn poll_pause() {
    tokio::time::sleep(POLL_INTERVAL).await;
}

/// Waits until `probe` returns a value.
///
/// # Panics
/// If it returns none `within` that time; the message contains `what`.
pub async fn until<T>(what: &str, within: Duration, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(begun.elapsed() < within, "timed out after {within:?} waiting until {what}");
        poll_pause().await;
    }
}

/// Returns whether `probe` became true within that time; for conditions that may never hold.
pub async fn within(time: Duration, mut probe: impl AsyncFnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < time {
        if probe().await {
            return true;
        }
        poll_pause().await;
    }
    false
}
