//! Whole-system tests: rules of the repository, and the real binary in real processes.
//!
//! - [`dependencies`], [`repository_rules`], [`language`], [`pages`]: rules about code and docs that need no running process.
//! - [`walkthrough`]: user journeys from end to end. [`examples`]: every example, and the commands of the README and
//!   the book. [`definitions`]: messages about schedules and calendars, from flags or files. [`workflows`] and
//!   [`added_elements`]: the example workflows.
//! - [`survival`], [`chaos`], [`disk`]: kills, pauses and full disks. [`checkpoints`]: jobs that resume from
//!   checkpoints. [`timekeeping`]: schedules during kills, outages and clock changes. [`failover`]: servers that
//!   share a database. [`partition`]: a leader without a connection to it. [`mod@raft`]: a leader
//!   that is cut off from its cluster. [`cluster`]: `make run-cluster`. [`copies`]: logs of a
//!   cluster without other storage.
//!   [`restoring`]: a restored backup. [`tls`]: workers and the command line behind a proxy that terminates TLS.
//!   [`forecast`]: forecasts for a running server. [`mod@runtimes`]: containers and HTTP requests.

#![expect(clippy::unwrap_used, reason = "this crate contains only tests and their helpers")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "tests report what they skipped or counted")]

mod added_elements;
mod chaos;
mod checkpoints;
mod cluster;
mod copies;
mod definitions;
mod dependencies;
mod disk;
mod examples;
mod failover;
mod forecast;
mod language;
mod pages;
mod partition;
mod preemption;
mod raft;
mod repository_rules;
mod restoring;
mod runtimes;
mod sandbox;
mod secrets;
mod services;
mod survival;
mod timekeeping;
mod tls;
mod walkthrough;
mod workflows;
