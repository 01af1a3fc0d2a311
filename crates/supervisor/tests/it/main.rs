//! Tests of the supervisor core on virtual time, through its public API only.

#![allow(clippy::unwrap_used, reason = "test helpers fail like tests")]

mod leases;
mod properties;
mod shell;
mod stops;
