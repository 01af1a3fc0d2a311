//! Signing keys. All servers of a store share them, so a signature of one server is valid at any other, also after its
//! end.

use store::{Store, StoreError};

/// Keys that sign cursors, sessions and forwarded requests, and encrypt logins.
#[derive(Clone)]
pub struct Keys {
    /// Key for the cursors of lists.
    pub cursors: [u8; 32],
    /// Key for browser sessions.
    pub sessions: [u8; 32],
    /// Key for marks of forwarded requests, between servers behind proxies.
    pub forwards: [u8; 32],
    /// Key that encrypts logins between their start and their end.
    pub logins: [u8; 32],
}

impl Keys {
    /// Loads the keys from the store; generates them at the first start.
    ///
    /// # Errors
    /// Same as [`Members::secret`](store::Members::secret).
    pub async fn load(store: &dyn Store) -> Result<Self, StoreError> {
        Ok(Self {
            cursors: store.secret("cursor-key", &rand::random()).await?,
            sessions: store.secret("session-key", &rand::random()).await?,
            forwards: store.secret("forward-key", &rand::random()).await?,
            logins: store.secret("login-key", &rand::random()).await?,
        })
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}
