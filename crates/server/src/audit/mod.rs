//! The audit log of a server: from requests to rows of the store.
//!
//! ```text
//! request ─> gate ─> handler, which fills a Note
//!             │
//!             └─ Entry ─> Repeats ─> queue ─> sealed rows ─> store
//!                  (what did not succeed)        └ one chain for all servers
//! ```
//!
//! - `note`: what a handler tells about its request: namespace, object, changed fields.
//! - [`AuditLog`]: the queue of entries, and their way to the store.
//! - `repeats`: counts equal requests that did not succeed, so that a flood of them makes few entries.
//!
//! The gate of the REST API makes the entries (`api::recorder`), and so does the gRPC service of workers. The crate
//! `audit` has the format of an entry and the chain.
//!
//! # Durability
//! The entry of a successful change is written after the change was committed, and before the response is sent: a client
//! that got a response finds the entry. The response waits at most [`WAIT_MAX`] for the entry. Entries of requests that
//! did not succeed are written within a second or so. An entry that cannot be written stays in the queue, and the server
//! tries again. So an entry can be lost only if a server crashes between the commit of a change and the write of its
//! entry, or while the store does not accept writes, or if the queue is full: the number of entries that did not fit is
//! an entry itself.
//!
//! # Invariants
//! - The chain is linear: a server appends after the last row that it knows, and the store refuses another place.
//! - Entries of one server are in the order in which their requests ended.
//! - An entry is written once, also if the outcome of a write was unknown.
//!
//! # Cost
//! Entries that wait at the same time are written in one transaction. Reads make no entries, and submissions of jobs do
//! so only with `server.audit_submissions`.

mod log;
mod note;
mod repeats;
#[cfg(test)]
mod tests;

pub use log::{AuditLog, WAIT_MAX};
pub use note::{Note, Noted};
