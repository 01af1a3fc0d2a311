//! The client against a small server that answers as each test tells it to.

#![expect(clippy::unwrap_used, reason = "helpers of tests, too, fail by panicking")]

mod fake;
mod retrying;
mod schedules;
mod streaming;
mod tasks;
mod workflows;
