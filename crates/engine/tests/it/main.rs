//! The engine on virtual time, through its public API only.

#![allow(clippy::unwrap_used, reason = "the vocabulary of tests fails as tests do")]

mod catch_up;
mod checkpoints;
mod clock_leaps;
mod completion_deadlines;
mod delivery;
mod follower;
mod held_work;
mod job_lifecycle;
mod ledger_properties;
mod limits;
mod owed_firings;
mod placement;
mod preemption;
mod properties;
mod quotas;
mod reconciliation;
mod replaced_runs;
mod requests;
mod scenario;
mod schedule_scenario;
mod schedules;
mod services;
mod unknown_outcome;
mod upstream_jobs;
mod workers;
mod workflow;
