//! Who asks, and what they may do.
//!
//! - [`token`]: the text form of bearer tokens, which secret scanners can recognise and check.
//! - [`Tokens`]: the tokens of a server, verified in memory; the store keeps hashes alone.
//! - [`Keys`]: what is signed with; all servers of a store have the same.
//! - [`Sessions`]: what stands for a token in a browser.
//! - [`access`]: [`authorize`], the one place where it is decided who may do what.
//! - [`first_start()`]: makes the first admin token and the first worker token.
//!
//! # Always true
//! - A token's secret is in nobody's hands but its bearer's: here and in the store is its SHA-256.
//! - What has no rule is refused.

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
