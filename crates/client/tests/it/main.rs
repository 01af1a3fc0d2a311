//! Tests of the client against a fake server with scripted responses.

#![expect(clippy::unwrap_used, reason = "helpers of tests, too, fail by panicking")]

mod access;
mod fake;
mod retrying;
mod schedules;
mod services;
mod streaming;
mod tasks;
mod workflows;
