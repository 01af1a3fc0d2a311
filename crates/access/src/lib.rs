//! Access control: identities, roles, bindings, tokens and logins, and the decision about what is allowed.
//!
//! The server loads all entries into a [`Directory`]. For each request it gets an [`Identity`] from the ID of the
//! token, and asks it for a decision before it acts. Like the engine, this crate reads no clock and does no I/O: the
//! caller compares secrets, passes `now`, and reads and writes the rows.
//!
//! ```text
//!   rows of the store ──apply──> ┌───────────┐ ──identity(token, now)──> Identity ──decide──> Ok or Denied
//!                                │ Directory │
//!   Change of an Identity ─plan─>└───────────┘ ──> rows to write, or Refusal
//! ```
//!
//! # Terms
//! - An [`Account`] is a person or a program. It has no rights of its own.
//! - A permission is a [`Verb`] on a [`Resource`]; a [`Role`] is a set of them, built in or custom.
//! - A [`Binding`] gives an account or a group a role in a namespace, in all namespaces below a prefix (`team/*`), or in
//!   all namespaces and the cluster itself (`*`). The groups of an account come from its last login at an OpenID provider.
//! - A [`Token`] authenticates an account, a worker or the system. Its scope can limit it to a role and to namespaces.
//! - A [`Login`] is the password of a person, the invitation to set one, and the identity at an OpenID provider. A login
//!   with one of them creates a session: a token that ends soon.
//!
//! - A [`Secret`] has encrypted values for jobs of its namespace. It gives no right. It is an entry because every server
//!   needs all of them in memory, to check references and to give values to workers.
//!
//! # Rules of a decision
//! [`decide`] denies by default. The rules, in order:
//!
//! 1. A worker may do [`Verb::Work`], and nothing else. No other identity may do it.
//! 2. The identity needs a binding whose role has the permission and which covers the namespace of the object. An
//!    object without a namespace needs a binding in `*`, except to read workers, queues and the server: these can be
//!    read with a binding in any namespace. A admin token acts as if it were bound to `admin` in `*`.
//! 3. The scope of the token must allow the action too: its role must have the permission, and one of its namespaces
//!    must cover that of the object, with the same exception.
//!
//! # Invariants
//! - Bindings only add rights, and scopes only take rights away, so the order of either does not matter.
//! - An entry that cannot be read gives no right, and is not overwritten by a change.
//! - No identity gives a right that it does not have: neither by a binding, nor by a role, nor by a token. Worker tokens
//!   are the exception: to create one needs the right to create tokens in the cluster.
//! - A change leaves a usable token that may administrate everything. Such a token can still expire.
//! - The hashes of tokens, invitations and passwords appear in no `Debug` output.
//! - An invitation is used once: the change that sets the password or links an identity uses it up.
//! - A login with a password and a second factor needs both, and each code of the second factor works once.
//! - An identity at an OpenID provider, which is an issuer and a subject, has one account. Names and mail addresses of the
//!   provider never select an existing account.
//!
//! # Costs
//! A decision of an account with 20 bindings takes 0.1 µs, with 1,000 bindings 3 µs (`cargo bench -p belfry-access`).
//! 10,000 accounts, each with 10 bindings and a token, take 25 MB and are loaded within 0.3 s.
//!
//! # Files
//! - `action`: verbs, resources and objects; `permissions`: sets of them, as bits.
//! - `role`: built-in and custom roles; `namespace`: patterns of namespaces.
//! - `entry`: entries and rows; `read`: reading them; `check`: valid names and texts.
//! - `identity`: callers, with compiled rights; `decide`: the decision and its messages.
//! - `directory`: all entries; `directory/compile`: from bindings to rights; `names`: shared names.
//! - `change`: changes; `changed`: entries before and after; `plan`: checks and rows; `admins`: the last administrator; `refusal`: reasons of refusals.

mod action;
mod admins;
mod change;
mod changed;
mod check;
mod decide;
mod directory;
mod entry;
mod identity;
mod names;
mod namespace;
mod permissions;
mod plan;
mod read;
mod refusal;
mod role;
#[cfg(test)]
mod tests;

pub use action::{Object, Resource, Verb};
pub use change::{Change, OidcLink, PasswordChange, SecondFactor, SessionProof};
pub use changed::Changed;
pub use decide::{Denied, DeniedReason, decide};
pub use directory::Directory;
pub use entry::{
    Account, AccountKind, Bearer, Binding, Deletion, Entry, Invitation, KEPT_AFTER_END, Login, OidcIdentity,
    Password, PasswordHash, Row, SESSION_KEPT_AFTER_END, Secret, Subject, SubmitRate, Token, TokenHash,
    TokenScope, Totp, Unreadable,
};
pub use identity::{Identity, IdentityKind};
pub use namespace::Namespaces;
pub use permissions::Permissions;
pub use refusal::Refusal;
pub use role::{BuiltInRole, CustomRole, Role, Rule};
