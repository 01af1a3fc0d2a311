//! The keys that a server signs with: the same for all servers of a store, so that what one signed is
//! good at any other, and outlives them.

use store::{Store, StoreError};

/// What cursors and sessions are signed with.
#[derive(Clone)]
pub struct Keys {
    /// For the cursors of lists.
    pub cursors: [u8; 32],
    /// For the sessions of browsers.
    pub sessions: [u8; 32],
    /// For the marks of requests that one server hands on to another.
    pub forwards: [u8; 32],
}

impl Keys {
    /// Those that the store keeps; drawn at the first start.
    ///
    /// # Errors
    /// As [`Members::secret`](store::Members::secret).
    pub async fn load(store: &dyn Store) -> Result<Self, StoreError> {
        Ok(Self {
            cursors: store.secret("cursor-key", &rand::random()).await?,
            sessions: store.secret("session-key", &rand::random()).await?,
            forwards: store.secret("forward-key", &rand::random()).await?,
        })
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}
