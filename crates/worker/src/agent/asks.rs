//! What the supervisor is asked, and has answered.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::Shared;
use crate::link::{ANSWERS_ASKS, Ping, Request};

/// Questions that wait for their answers.
#[derive(Debug, Default)]
pub(super) struct Asks(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    answers: HashMap<u64, oneshot::Sender<()>>,
}

impl Asks {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> (u64, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.lock();
        waiting.last += 1;
        let number = waiting.last;
        // Whoever stopped to wait does not count any more.
        waiting.answers.retain(|_, sender| !sender.is_closed());
        waiting.answers.insert(number, sender);
        (number, receiver)
    }

    /// The supervisor has answered.
    pub(super) fn answered(&self, number: u64) {
        if let Some(sender) = self.lock().answers.remove(&number) {
            // Nobody may wait for it any more.
            sender.send(()).ok();
        }
    }
}

impl Shared {
    /// Asks the supervisor, and waits until it has answered; one of an older release is not asked.
    pub(super) async fn ask(&self, request: impl FnOnce(u64) -> Request) {
        if self.version < ANSWERS_ASKS {
            return;
        }
        let (number, answer) = self.asks.next();
        self.tell(request(number)).await;
        // Dropped only with the link.
        answer.await.ok();
    }
}

/// Asks the supervisor again and again, until it has not answered for too long. Then it stands still, and the fuse has
/// frozen its tasks or is about to; beats that went on would tell the server that all is well.
pub(super) async fn watch(shared: &Shared) {
    let patience = std::time::Duration::from_millis(shared.config.supervisor_patience.as_millis());
    if shared.version < ANSWERS_ASKS {
        return std::future::pending().await;
    }
    loop {
        let ping = shared.ask(|number| Request::Ping(Ping { number }));
        if tokio::time::timeout(patience, ping).await.is_err() {
            tracing::error!(?patience, "the supervisor does not answer, the session is given up");
            return;
        }
        tokio::time::sleep(patience / 4).await;
    }
}
