//! The leader core: which server leads, which effects it may release, and until when.
//!
//! One server at a time is the leader. It owns the shards, runs the engine, and renews worker leases. Two leaders at
//! the same time would run one job twice, so every right of a leader ends at a known time:
//!
//! - A **commit** is checked by the store: the store refuses it once another server owns the shard.
//! - **Everything that needs no commit** is checked here: worker leases, replies from memory, stop requests, and
//!   readiness. The leader releases them only while its own [lease](LeadershipLease) is certainly valid.
//!
//! Like the engine, which it drives, this crate reads no clock and does no I/O. Its shells are the server
//! (`server::node`) and the simulator:
//!
//! ```text
//!   requests, worker messages,      ┌──────────┐   store calls, replies, effects for workers,
//!   answers of the store, time ───> │  Leader  │ ───> readiness, notices
//!         (Event)                   │ + Engine │        (Action)
//!                                   └──────────┘
//! ```
//!
//! The shell passes each [event](Event) to [`Leader::handle`]. When no event is waiting, it calls [`Leader::turn`],
//! carries out the [actions](Action) in order, and sleeps until [`Leader::wake_at`]. All durations are measured on
//! the steady clock (`CLOCK_BOOTTIME`), which also advances while the machine is suspended.
//!
//! # Files
//! - [`membership`]: which server leads, and what a server may do with the shards, from its view of the other
//!   servers.
//! - `lease`: until when the leader's own lease is valid.
//! - `leader`: the phases and their transitions.
//! - `acquire`: acquiring and releasing the shards, and handling of failures.
//! - `load`: from owned shards to a started engine, and the choice of a trustworthy clock.
//! - `standby`: how a standby follows the live rows and takes over.
//! - `lead`: batches, suspension, a full disk, shutdown and handover.
//! - `commits`: the in-flight commits, and the order in which their effects are released.
//! - `requests`: the pending client requests, and the answer to each when leadership ends.
//! - `backoff`: delays after failures.
//! - `suspects`: inputs that made the engine panic.

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
