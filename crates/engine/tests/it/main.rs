//! The engine on virtual time, through its public API only.

#![allow(clippy::unwrap_used, reason = "the vocabulary of tests fails as tests do")]

mod catching_up;
mod checkpoints;
mod delivery;
mod following;
mod holding;
mod leaps;
mod ledgers;
mod life;
mod limits;
mod owed;
mod placement;
mod properties;
mod reconciling;
mod requests;
mod scenario;
mod schedules;
mod timekeeper;
mod unknown;
mod workers;
mod workflow;
