//! Requests to the supervisor that wait for an answer, and the check that the supervisor responds.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::Shared;
use crate::link::{PING_VERSION, Ping, Pong, Request};

/// Pending requests to the supervisor, and the count of its messages.
#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    waiting: Mutex<Waiting>,
    /// Number of messages that were read from the supervisor.
    heard: AtomicU64,
    /// Whether a message waits for the server, so that no further message is read.
    is_blocked: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    answers: HashMap<u64, oneshot::Sender<String>>,
    /// Last reported reason why the supervisor cannot start executions; empty if there is none.
    trouble: String,
}

impl PendingRequests {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> (u64, oneshot::Receiver<String>) {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.lock();
        waiting.last += 1;
        let number = waiting.last;
        // Drop requests whose caller no longer waits.
        waiting.answers.retain(|_, sender| !sender.is_closed());
        waiting.answers.insert(number, sender);
        (number, receiver)
    }

    /// Records that a message of the supervisor was read.
    pub(super) fn count_message(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for the server to accept a message of the supervisor; no further message is read meanwhile.
    pub(super) async fn blocked_by_server<T>(&self, taken: impl Future<Output = T>) -> T {
        self.is_blocked.store(true, Ordering::Relaxed);
        let result = taken.await;
        // Answers that arrived meanwhile are read next.
        self.count_message();
        self.is_blocked.store(false, Ordering::Relaxed);
        result
    }

    /// Returns once no message has arrived for `patience`, although all messages were read.
    async fn wait_until_unresponsive(&self, patience: Duration) {
        loop {
            let before = self.heard.load(Ordering::Relaxed);
            tokio::time::sleep(patience).await;
            if !self.is_blocked.load(Ordering::Relaxed) && self.heard.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }

    /// Passes an answer of the supervisor to the waiting caller.
    pub(super) fn answered(&self, pong: Pong) {
        if let Some(sender) = self.lock().answers.remove(&pong.number) {
            // The caller may no longer wait.
            sender.send(pong.trouble).ok();
        }
    }

    /// Last reported reason why the supervisor cannot start executions; empty if there is none.
    pub(super) fn trouble(&self) -> String {
        self.lock().trouble.clone()
    }
}

impl Shared {
    /// Sends a request to the supervisor and waits for its answer. The answer contains the reason why it cannot start
    /// executions, if any. Returns an empty text at once if the supervisor is of an older release.
    pub(super) async fn call_supervisor(&self, request: impl FnOnce(u64) -> Request) -> String {
        if self.version < PING_VERSION {
            return String::new();
        }
        let (number, answer) = self.asks.next();
        self.send_request(request(number)).await;
        // Dropped only when the connection closes.
        answer.await.unwrap_or_default()
    }
}

/// Pings the supervisor repeatedly; returns when it has not responded for `supervisor_patience`. The supervisor is
/// then stopped, and the fuse freezes its tasks. Further heartbeats would show the server that the worker is
/// healthy.
///
/// A slow server does not count: answers of the supervisor then wait behind its reports.
pub(super) async fn watch(shared: &Shared) {
    let patience = Duration::from_millis(shared.config.supervisor_timeout.as_millis());
    if shared.version < PING_VERSION {
        return std::future::pending().await;
    }
    loop {
        tokio::select! {
            trouble = shared.call_supervisor(|number| Request::Ping(Ping { number })) => {
                shared.asks.lock().trouble = trouble;
            }
            () = shared.asks.wait_until_unresponsive(patience) => {
                tracing::error!(after = ?patience, "no response from the supervisor; closing the session");
                return;
            }
        }
        tokio::time::sleep(patience / 4).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Returns whether the supervisor is considered unresponsive within `time`.
    async fn is_given_up(asks: &PendingRequests, time: Duration) -> bool {
        tokio::time::timeout(time, asks.wait_until_unresponsive(PATIENCE)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_supervisor_is_considered_unresponsive() {
        let asks = PendingRequests::default();
        assert!(!is_given_up(&asks, PATIENCE / 2).await);
        assert!(is_given_up(&asks, PATIENCE * 2).await);
    }

    /// Answers wait behind reports that a slow server has not accepted yet.
    #[tokio::test(start_paused = true)]
    async fn a_slow_server_does_not_make_the_supervisor_unresponsive() {
        let asks = PendingRequests::default();
        let slow = asks.blocked_by_server(tokio::time::sleep(PATIENCE * 10));
        tokio::pin!(slow);
        tokio::select! {
            () = &mut slow => {}
            () = asks.wait_until_unresponsive(PATIENCE) => panic!("given up while the server is slow"),
        }
        assert!(!is_given_up(&asks, PATIENCE / 2).await, "its answer is read only now");
        assert!(is_given_up(&asks, PATIENCE * 3).await);
    }
}
