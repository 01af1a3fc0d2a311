//! The rights of a caller during a stream, which lasts longer than a decision.

use std::sync::Arc;
use std::time::Duration;

use access::Identity;
use tokio::sync::watch;

use super::AccessControl;
use crate::clock::{Clock, SystemClock};

/// Longest sleep until the expiry of a token, because the clock may be set.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Watches whether a caller keeps its token and its rights.
pub struct RightsWatch {
    access: Arc<AccessControl>,
    changes: watch::Receiver<u64>,
    identity: Identity,
}

impl RightsWatch {
    /// Watches the rights that a caller has now.
    pub fn new(access: &Arc<AccessControl>, identity: &Identity) -> Self {
        Self { access: Arc::clone(access), changes: access.changes(), identity: identity.clone() }
    }

    /// Returns the caller, with the rights that it had at the start.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Completes when the token was revoked or has expired, or its bearer has other rights. Cancel-safe.
    pub async fn changed(&mut self) {
        while self.access.bearer_of(&self.identity.token_id).as_ref() == Some(&self.identity) {
            let expiry = self.time_to_expiry().map_or(SLEEP_MAX, |left| left.min(SLEEP_MAX));
            tokio::select! {
                changed = self.changes.changed() => if changed.is_err() {
                    // The server ends, and all streams with it.
                    std::future::pending::<()>().await;
                },
                () = tokio::time::sleep(expiry) => {}
            }
        }
    }

    fn time_to_expiry(&self) -> Option<Duration> {
        let token = |directory: &access::Directory| directory.token(&self.identity.token_id)?.expires_at;
        let left = self.access.read(token)?.since(SystemClock.now());
        Some(left.to_std() + Duration::from_millis(1))
    }
}
