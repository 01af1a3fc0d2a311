//! A whole server over a real store and a fake worker: commits that stall, fail or are lost, workers
//! that go and come, logs, artifacts, and messages that no worker of ours would send; and two servers.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests are tests")]

mod artifacts;
mod commits;
mod harness;
mod logs;
mod node;
mod peers;
mod restart;
mod s3;
mod strangers;
mod workers;
