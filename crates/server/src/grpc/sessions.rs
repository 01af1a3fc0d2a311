//! The open sessions of workers on this server, with the token of each.
//!
//! Workers can share a token, and any bearer of a worker's token can name any worker. So the values of secrets are given out
//! only in the session that is open now, to the token that opened it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::Session;
use model::WorkerId;

/// The newest open session of each worker; clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Sessions(Arc<Mutex<HashMap<WorkerId, OpenSession>>>);

#[derive(Debug)]
struct OpenSession {
    session: Session,
    token_id: Arc<str>,
}

impl Sessions {
    /// Notes that a worker has opened a session with a token. It replaces an older session of the worker.
    pub(super) fn open(&self, worker: WorkerId, session: Session, token_id: &Arc<str>) {
        self.lock().insert(worker, OpenSession { session, token_id: Arc::clone(token_id) });
    }

    /// Notes that a session has ended. Does nothing if the worker has a newer one.
    pub(super) fn close(&self, worker: WorkerId, session: Session) {
        let mut sessions = self.lock();
        if sessions.get(&worker).is_some_and(|open| open.session == session) {
            sessions.remove(&worker);
        }
    }

    /// Returns whether this is the open session of the worker, and was opened with this token.
    pub(super) fn is_open(&self, worker: WorkerId, session: Session, token_id: &str) -> bool {
        let sessions = self.lock();
        sessions.get(&worker).is_some_and(|open| open.session == session && *open.token_id == *token_id)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<WorkerId, OpenSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_session_of_a_worker_is_open_and_only_for_its_token() {
        let (sessions, worker) = (Sessions::default(), WorkerId::from_bits(1));
        let (first, second) = (Session(1), Session(2));
        sessions.open(worker, first, &"a".into());
        assert!(sessions.is_open(worker, first, "a"));
        assert!(!sessions.is_open(worker, first, "b"), "another token");
        assert!(!sessions.is_open(WorkerId::from_bits(2), first, "a"), "another worker");
        sessions.open(worker, second, &"b".into());
        assert!(!sessions.is_open(worker, first, "a") && sessions.is_open(worker, second, "b"));
        sessions.close(worker, first);
        assert!(sessions.is_open(worker, second, "b"), "an older session has ended");
        sessions.close(worker, second);
        assert!(!sessions.is_open(worker, second, "b"));
    }
}
