//! The engine: a single-threaded, deterministic core that makes all scheduling decisions.
//!
//! ```text
//! Input ──> handle ─┐
//! time  ──> handle ─┼─> flush: timers, dispatch ──> Output { batch, effects }
//! rows  ──> restore ┘
//! ```
//!
//! An [`Engine`] is a plain struct. It reads no clock, does no I/O and draws all randomness from one seed, so
//! the same inputs give the same outputs. The server drives it over a store, the simulator over a model of
//! the world. The driver must:
//!
//! 1. Call [`Engine::new`], [`Engine::restore`] for every live row, [`Engine::assume_lost_commits`] if the store may
//!    have lost commits, then [`Engine::start`].
//! 2. Call [`Engine::handle`] for each input as it arrives, and [`Engine::flush`] when the store is free for
//!    another commit. Between two flushes only [`Engine::take_grants`] makes anything visible outside.
//! 3. Commit the batch, then release its effects in order. If the commit fails, drop the engine.
//! 4. Call [`Engine::flush`] again at [`Engine::wakeup`] at the latest.
//!
//! # Invariants
//! - Time never runs backwards: `now` is the greatest accepted or restored time.
//! - A job changes its status only by a row of [`model::lifecycle::TRANSITIONS`].
//! - Exactly one thing ends the current state of each live job: a timer, a queue, or an execution.
//! - A worker's reserved resources are the sum over its live executions.
//!
//! In debug builds, tests can activate deliberate bugs (crate `mutation`); release builds contain none.
//!
//! # Layers
//! The state is in three layers. A layer calls the layers below it; what concerns a layer above is a `signal`,
//! which is delivered after the transition. The parameters of a transition say which layers it may use, and
//! whether it uses the `context` (time, ids, timers, output).
//!
//! - `schedules`: decides the outcome of every scheduled time of every schedule.
//! - `services`: services, their revisions and rollouts, and the jobs of their replicas.
//! - `workflows`: runs, their steps, and the jobs that the steps create.
//! - `jobs`: the life of a job, one file per transition; dispatch; sessions and leases of workers. It owns
//!   `queues` (order and limits of waiting jobs) and `workers` (their state). `placement` filters and scores
//!   workers.
//!
//! `engine` and `across` are above all layers: inputs, the flush, the delivery of signals, and requests that
//! concern several layers. `restore` rebuilds the state from rows, and `follower` keeps a standby's copy ready while another server
//! owns the shards. `rewind` resets engine time in a store.

mod across;
mod check;
mod clock;
mod config;
mod context;
mod difference;
mod engine;
mod follower;
pub mod input;
mod interner;
mod jobs;
mod names;
pub mod output;
mod poison;
mod profile;
mod queues;
mod restore;
mod rewind;
mod schedules;
mod services;
mod signal;
mod statistics;
mod timer;
mod workers;
mod workflows;

pub use clock::{ClockView, LEAP_MAX, Now};
pub use config::Config;
pub use difference::Difference;
pub use engine::Engine;
pub use follower::{FollowError, Follower};
pub use input::{
    Expected, HealthReport, Input, Join, NewBackfill, NewJob, NewRun, NewSchedule, NewService, NewWorkflow,
    Report, ScheduleRequest, ServiceRequest, Session, TaskRequest, Ticket, WorkflowRequest,
};
pub use jobs::OrphanedExecution;
pub use output::{Effect, Output, Reply, View};
pub use poison::Poison;
pub use rewind::Rewind;
pub use schedules::timetable_seed;
