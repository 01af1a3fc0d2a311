//! What the supervisor is asked, and has answered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::Shared;
use crate::link::{ANSWERS_ASKS, Ping, Pong, Request};

/// Questions that wait for their answers, and whether anything is heard of the supervisor.
#[derive(Debug, Default)]
pub(super) struct Asks {
    waiting: Mutex<Waiting>,
    /// How many messages of the supervisor were read.
    heard: AtomicU64,
    /// Whether one of them waits for the server, so that no further one is read.
    is_held_up: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    answers: HashMap<u64, oneshot::Sender<String>>,
    /// What the supervisor said of itself last.
    trouble: String,
}

impl Asks {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> (u64, oneshot::Receiver<String>) {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.lock();
        waiting.last += 1;
        let number = waiting.last;
        // Whoever stopped to wait does not count any more.
        waiting.answers.retain(|_, sender| !sender.is_closed());
        waiting.answers.insert(number, sender);
        (number, receiver)
    }

    /// A message of the supervisor was read.
    pub(super) fn heard(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for the server to take a message of the supervisor; no further one is read meanwhile.
    pub(super) async fn held_up<T>(&self, taken: impl Future<Output = T>) -> T {
        self.is_held_up.store(true, Ordering::Relaxed);
        let result = taken.await;
        // The answers that came meanwhile are read next.
        self.heard();
        self.is_held_up.store(false, Ordering::Relaxed);
        result
    }

    /// Returns once nothing was heard of the supervisor for as long as `patience`, although everything was read.
    async fn until_silent(&self, patience: Duration) {
        loop {
            let before = self.heard.load(Ordering::Relaxed);
            tokio::time::sleep(patience).await;
            if !self.is_held_up.load(Ordering::Relaxed) && self.heard.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }

    /// The supervisor has answered.
    pub(super) fn answered(&self, pong: Pong) {
        if let Some(sender) = self.lock().answers.remove(&pong.number) {
            // Nobody may wait for it any more.
            sender.send(pong.trouble).ok();
        }
    }

    /// Why the supervisor can start nothing, as far as it was asked; empty if it can.
    pub(super) fn trouble(&self) -> String {
        self.lock().trouble.clone()
    }
}

impl Shared {
    /// Asks the supervisor, and waits until it has answered with the trouble that it has; one of an older release is not
    /// asked.
    pub(super) async fn ask(&self, request: impl FnOnce(u64) -> Request) -> String {
        if self.version < ANSWERS_ASKS {
            return String::new();
        }
        let (number, answer) = self.asks.next();
        self.tell(request(number)).await;
        // Dropped only with the link.
        answer.await.unwrap_or_default()
    }
}

/// Asks the supervisor again and again, until nothing was heard of it for too long. Then it stands still, and the fuse
/// has frozen its tasks or is about to; heartbeats that continued would tell the server that all is well.
///
/// A server that is slow to take reports says nothing about the supervisor: its answers wait behind them.
pub(super) async fn watch(shared: &Shared) {
    let patience = Duration::from_millis(shared.config.supervisor_patience.as_millis());
    if shared.version < ANSWERS_ASKS {
        return std::future::pending().await;
    }
    loop {
        tokio::select! {
            trouble = shared.ask(|number| Request::Ping(Ping { number })) => {
                shared.asks.lock().trouble = trouble;
            }
            () = shared.asks.until_silent(patience) => {
                tracing::error!(?patience, "the supervisor does not answer; closing the session");
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

    /// Whether the supervisor is given up within `time`.
    async fn is_given_up(asks: &Asks, time: Duration) -> bool {
        tokio::time::timeout(time, asks.until_silent(PATIENCE)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_supervisor_that_says_nothing_is_given_up() {
        let asks = Asks::default();
        assert!(!is_given_up(&asks, PATIENCE / 2).await);
        assert!(is_given_up(&asks, PATIENCE * 2).await);
    }

    /// Its answers wait behind reports that a slow server has not taken yet.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_slow_to_take_reports_does_not_count_against_the_supervisor() {
        let asks = Asks::default();
        let slow = asks.held_up(tokio::time::sleep(PATIENCE * 10));
        tokio::pin!(slow);
        tokio::select! {
            () = &mut slow => {}
            () = asks.until_silent(PATIENCE) => panic!("given up while the server is slow"),
        }
        assert!(!is_given_up(&asks, PATIENCE / 2).await, "its answer is read only now");
        assert!(is_given_up(&asks, PATIENCE * 3).await);
    }
}
