//! What is decided: a single-threaded, deterministic engine.
//!
//! ```text
//! Input ──> handle ─┐
//! time  ──> handle ─┼─> flush: timers, dispatch ──> Output { batch, effects }
//! rows  ──> restore ┘
//! ```
//!
//! An [`Engine`] is a plain struct. It reads no clock, does no I/O and draws all randomness from one
//! seed, so the same inputs give the same outputs: the server drives it over a store, the simulator
//! over a model of the world. The driver's contract:
//!
//! 1. [`Engine::new`], [`Engine::restore`] for every live row, [`Engine::distrust`] if the store may have
//!    forgotten commits, [`Engine::start`].
//! 2. [`Engine::handle`] for each input as it comes; [`Engine::flush`] when the store is free for
//!    another commit. In between, nothing is seen outside but [`Engine::take_grants`].
//! 3. Commit the batch, then release its effects in order. If the commit fails, drop the engine.
//! 4. Call again at [`Engine::wakeup`] at the latest.
//!
//! # Always true
//! - Time never runs back: `now` is the greatest that was ever passed or restored.
//! - A job changes its status by a row of [`model::lifecycle::TRANSITIONS`] only.
//! - Each live job has exactly one thing that ends its state: a timer, a queue, or an execution.
//! - A worker's reserved resources are the sum over its live executions.
//!
//! In a debug build the proofs can have it do some things wrong (`mutation`); a release build has none of that.
//!
//! # Where what happens
//! `job` holds the life of a job, one file a transition; `queue` orders waiting jobs; `placement`
//! filters and scores workers; `dispatch` brings the two together; `worker` has sessions and leases;
//! `schedule` decides every instant of every schedule; `workflow` which jobs the steps of a run become;
//! `timer` is the agenda of instants; `restore` rebuilds all of it from rows, `follower` keeps it ready while another
//! server owns them, and `reconcile` holds back what a store that forgot commits could double.

mod clock;
mod config;
mod digest;
mod dispatch;
mod engine;
mod follower;
pub mod input;
mod invariants;
mod job;
pub mod output;
mod pending;
mod placement;
mod profile;
mod queue;
mod reconcile;
mod restore;
mod rewind;
mod schedule;
mod shared;
mod timer;
mod worker;
mod workflow;

pub use clock::{ClockView, LEAP_MAX, Now};
pub use config::Config;
pub use digest::Difference;
pub use engine::Engine;
pub use follower::{Follower, Unfollowed};
pub use input::{
    Expected, Input, Join, NewBackfill, NewJob, NewRun, NewSchedule, NewWorkflow, Report, ScheduleRequest,
    Session, TaskRequest, Ticket, WorkflowRequest,
};
pub use output::{Effect, Output, Reply, View};
pub use reconcile::Stray;
pub use restore::Poison;
pub use rewind::Rewind;
pub use schedule::timetable_seed;
