//! Authentication and authorization.
//!
//! - [`token`]: text format of bearer tokens, which secret scanners can recognize and check.
//! - [`AccessControl`]: accounts, roles, bindings and tokens in memory; the store has only hashes of tokens. The crate
//!   `access` has all rules.
//! - [`Actor`]: the caller of a request, with the action that it takes.
//! - [`RightsWatch`]: ends a stream when the rights of its reader change.
//! - [`Keys`]: signing keys, shared by all servers of a store.
//! - [`Sessions`]: browser sessions, which represent a token.
//! - [`Passwords`]: hashes of passwords; [`TotpSecret`]: second factors; [`Throttle`]: delays after failed logins.
//! - [`first_start()`]: creates the first admin token and the first worker token.
//!
//! # Invariants
//! - Only the bearer has the secret of a token or an invitation: memory and store have its SHA-256. Passwords have a slow
//!   hash.
//! - An action without a rule is denied.

mod actor;
mod control;
pub mod first_start;
mod keys;
mod password;
mod rights;
mod session;
mod throttle;
pub mod token;
mod totp;

pub use access::{Denied, Identity, IdentityKind, Resource, Verb};
pub use actor::Actor;
pub use control::{AccessControl, ChangeError};
pub use first_start::{FirstStart, FirstStartError, first_start};
pub use keys::Keys;
pub use password::{ClearText, HashError, Passwords};
pub use rights::RightsWatch;
pub use session::{Session, SessionClass, Sessions};
pub use throttle::{Attempt, Origin, Throttle};
pub use totp::{TotpSecret, recovery_codes, recovery_hash};
