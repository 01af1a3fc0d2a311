//! The rules of leadership: who leads, what a leader may tell the world, and until when.
//!
//! One server at a time is the leader. It owns the shards, decides, and renews the leases of workers. Two
//! leaders at a time would run one job twice, so every right of a leader ends at a known moment:
//!
//! - A **commit** is checked by the store: it is refused once another server owns the shard.
//! - Everything that **no commit carries** is checked here: worker leases, answers from memory, stops, and
//!   "ready". The leader may release them only while its own [lease](LeadershipLease) is valid for certain.
//!
//! Like the engine, which it drives, this crate reads no clock and does no I/O. The server is its shell
//! (`server::node`), and the simulator is another one:
//!
//! ```text
//!   requests, worker messages,      ┌──────────┐   calls of the store, answers, effects for workers,
//!   answers of the store, time ───> │  Leader  │ ───> readiness, notices
//!         (Event)                   │ + Engine │        (Action)
//!                                   └──────────┘
//! ```
//!
//! The shell passes [events](Event) to [`Leader::handle`], calls [`Leader::turn`] when it has passed all that waited,
//! carries out the [actions](Action) in their order, and sleeps until [`Leader::wake_at`]. All lengths of time are
//! measured on the steady clock (`CLOCK_BOOTTIME`), which also counts while the machine sleeps.
//!
//! # Which file has which rule
//! - [`membership`]: what a server may do with the shards, from what it sees of the others; who leads.
//! - `lease`: until when the leader's own lease is valid.
//! - `leader`: the phases, and from which to which.
//! - `acquire`: when a standby asks for the shards; what a failure leads to.
//! - `load`: from owned shards to a started engine; which clock it believes.
//! - `standby`: how a standby follows the rows that the leader changes, and becomes its successor.
//! - `lead`: batches, suspension, a full disk, shutdown and handover.
//! - `commits`: which batches are being committed, and in which order their effects are released.
//! - `requests`: the clients that wait for a reply, and the answer to each when leadership ends.
//! - `backoff`, `suspects`: pauses after failures; inputs that made the engine fail.

mod acquire;
mod backoff;
mod commits;
mod event;
mod lead;
mod leader;
mod lease;
mod load;
pub mod membership;
mod requests;
mod standby;
mod suspects;
#[cfg(test)]
mod tests;

pub use event::{
    Action, Answer, Call, CallId, Committed, Event, Failure, FailureKind, Loaded, NotFollowed, Notice,
    Readiness, Retired, Standing, Unanswered,
};
pub use lead::is_new_work;
pub use leader::{Config, Leader};
pub use lease::LeadershipLease;
pub use suspects::Suspect;
