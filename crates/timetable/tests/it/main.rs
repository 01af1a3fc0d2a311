//! The timetable from outside.

#![expect(clippy::unwrap_used, reason = "helpers of tests; a failure is a failed test")]
#![expect(clippy::disallowed_methods, reason = "that a search is bounded is measured by a clock")]

mod behaviour;
mod common;
mod croner;
mod draw;
mod errors;
mod golden;
mod oracle;
mod properties;
mod rates;
mod speed;
