//! Whole-system tests: the repository's own rules, and the real binary in real processes.
//!
//! - [`arrows`], [`house`], [`language`], [`pages`]: what holds of the code and the docs without running anything.
//! - [`walkthrough`]: what a user does, from end to end. [`examples`]: every example, and the commands
//!   of the README and the book as they are written. [`definitions`]: what is told to whoever creates
//!   schedules and calendars, by hand or from files. [`workflows`] and [`growing`]: what those of the examples do.
//! - [`survival`], [`chaos`], [`disk`]: kills, pauses and full disks. [`checkpoints`]: what goes on where it
//!   stopped. [`timekeeping`]: schedules through kills, outages and a moved clock. [`failover`]: servers that
//!   share a database. [`partition`]: a leader that is cut off from it. [`cluster`]: `make run-cluster`. [`restoring`]: a backup that was brought back. [`tls`]: workers and
//!   the command line behind a proxy that terminates TLS. [`forecast`]: what is to come, of a server that is only read.

#![expect(clippy::unwrap_used, reason = "all of this crate is tests, their helpers too")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a test says what it skipped or counted")]

mod arrows;
mod chaos;
mod checkpoints;
mod cluster;
mod definitions;
mod disk;
mod examples;
mod failover;
mod forecast;
mod growing;
mod house;
mod language;
mod pages;
mod partition;
mod restoring;
mod survival;
mod timekeeping;
mod tls;
mod walkthrough;
mod workflows;
