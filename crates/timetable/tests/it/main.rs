//! Integration tests of the public API of the timetable.

#![expect(clippy::unwrap_used, reason = "helpers of tests; a failure is a failed test")]
#![expect(clippy::disallowed_methods, reason = "tests measure that searches are bounded")]

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
