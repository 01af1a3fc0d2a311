//! Tests of a whole server over a real store, with a fake worker: commits that stall, fail or are lost; workers that
//! disconnect and reconnect; logs; artifacts; malformed messages; alerts; secrets; services that are scaled by metrics; TLS for clients;
//! and clusters of servers, on one store or with Raft.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests are tests")]

mod alerts;
mod artifacts;
mod commits;
mod harness;
mod logs;
mod malformed;
mod node;
mod peers;
mod raft;
mod restart;
mod s3;
mod scaling;
mod secrets;
mod tls;
mod workers;
