//! Authentication and authorization.
//!
//! - [`token`]: text format of bearer tokens, which secret scanners can recognize and check.
//! - [`Tokens`]: tokens of a server, verified in memory; the store has only their hashes.
//! - [`Keys`]: signing keys, shared by all servers of a store.
//! - [`Sessions`]: browser sessions, which represent a token.
//! - [`access`]: [`authorize`], the only place with authorization rules.
//! - [`first_start()`]: creates the first admin token and the first worker token.
//!
//! # Invariants
//! - Only the bearer has the secret of a token: memory and store have its SHA-256.
//! - An action without a rule is denied.

pub mod access;
pub mod first_start;
mod keys;
mod session;
pub mod token;
mod tokens;

pub use access::{Denied, Resource, Verb, authorize};
pub use first_start::{FirstStart, FirstStartError, first_start};
pub use keys::Keys;
pub use session::Sessions;
pub use tokens::{Actor, Tokens};
