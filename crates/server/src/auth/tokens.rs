//! Tokens of a server, in memory for verification.
//!
//! The store has their hashes. They are loaded at the start and updated when a token is created, so that a request is
//! verified without a query.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use store::query::{Token, TokenKind};
use store::{Store, StoreError};
use subtle::ConstantTimeEq;

use super::token;
use crate::clock::{Clock, SystemClock};

/// Caller of a request: the bearer of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// Name of the caller: the owner of submitted jobs, and the actor in histories.
    pub name: Arc<str>,
    /// Kind of the token.
    pub kind: TokenKind,
    /// Id of the token.
    pub token_id: Arc<str>,
}

struct LoadedToken {
    actor: Actor,
    hash: [u8; 32],
}

impl From<Token> for LoadedToken {
    fn from(token: Token) -> Self {
        let actor = Actor { name: token.name.into(), kind: token.kind, token_id: token.id.into() };
        Self { actor, hash: token.hash }
    }
}

/// All tokens of a server.
pub struct Tokens {
    store: Arc<dyn Store>,
    loaded: RwLock<HashMap<Arc<str>, LoadedToken>>,
}

impl Tokens {
    /// Loads the tokens of the store.
    ///
    /// # Errors
    /// Same as [`Housekeeping::tokens`](store::Housekeeping::tokens).
    pub async fn load(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let tokens = Self { store, loaded: RwLock::default() };
        tokens.reload().await?;
        Ok(tokens)
    }

    /// Reloads the tokens: adds tokens that were created elsewhere, and removes deleted ones.
    ///
    /// # Errors
    /// Same as [`Housekeeping::tokens`](store::Housekeeping::tokens); the loaded tokens are kept.
    pub async fn reload(&self) -> Result<(), StoreError> {
        let known = self.store.tokens().await?.into_iter().map(LoadedToken::from);
        let known = known.map(|known| (Arc::clone(&known.actor.token_id), known)).collect();
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(())
    }

    /// Returns the bearer of a token; `None` if it is invalid. Compares hashes in constant time.
    pub fn verify(&self, text: &str) -> Option<Actor> {
        let parsed = token::parse(text)?;
        let hash = parsed.hash();
        let known = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        let known = known.get(parsed.id)?;
        let same = known.actor.kind == parsed.kind && bool::from(known.hash.ct_eq(&hash));
        same.then(|| known.actor.clone())
    }

    /// Returns the bearer of the token with this id; `None` if there is no such token.
    pub fn bearer_of(&self, token_id: &str) -> Option<Actor> {
        let known = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        known.get(token_id).map(|known| known.actor.clone())
    }

    /// Returns whether a token of this kind exists.
    pub fn any(&self, kind: TokenKind) -> bool {
        let known = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        known.values().any(|known| known.actor.kind == kind)
    }

    /// Creates a token and stores its hash. The text is returned only here.
    ///
    /// # Errors
    /// Same as [`Housekeeping::put_token`](store::Housekeeping::put_token); the token is then not valid.
    pub async fn create(&self, kind: TokenKind, name: &str) -> Result<(Token, String), StoreError> {
        let text = token::generate(kind);
        let token = self.register(&text, name).await?;
        Ok((token, text))
    }

    /// Stores the hash of a token that [`token::generate`] created.
    pub(super) async fn register(&self, text: &str, name: &str) -> Result<Token, StoreError> {
        let parsed = token::parse(text).expect("the text was generated, so it is well formed");
        let token = Token {
            id: parsed.id.to_owned(),
            kind: parsed.kind,
            name: name.to_owned(),
            hash: parsed.hash(),
            created_at: SystemClock.now(),
        };
        self.store.put_token(&token).await?;
        let known = LoadedToken::from(token.clone());
        let mut all = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(Arc::clone(&known.actor.token_id), known);
        Ok(token)
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}
